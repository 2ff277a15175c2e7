"""Places in code, as the repository calls them: paths below its root, lines from 1."""

from __future__ import annotations

import os.path
from pathlib import PurePath
from typing import TypedDict

__all__ = ["Frame", "frames_of", "is_inside", "relative"]


class Frame(TypedDict):
    file: str
    """Relative to the repository, if it lies there."""
    line: int


def relative(file: str, root: str) -> str:
    """The path of a file below the root; of another one, its own."""
    path = os.path.normpath(PurePath(root, file)) if file else ""
    return path[len(root) + 1 :] if path.startswith(f"{root}/") else path


def is_inside(file: str) -> bool:
    """Whether a path that :func:`relative` gave lies in the repository, and is not installed there."""
    return bool(file) and not file.startswith(("/", "<")) and "site-packages/" not in file


def frames_of(said: object, root: str) -> list[Frame]:
    """Pairs of a file and a line; anything else is left out."""
    frames: list[Frame] = []
    for each in said if isinstance(said, list) else []:
        match each:
            case [str(file), int(line)]:
                frames.append({"file": relative(file, root), "line": line})
    return frames
