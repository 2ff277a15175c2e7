"""Code locations: a path relative to the root of the repository, and a line number from 1."""

from __future__ import annotations

import os.path
from pathlib import PurePath
from typing import TypedDict

__all__ = ["Frame", "is_inside", "parse_frames", "relative_path"]


class Frame(TypedDict):
    file: str
    """Relative to the repository if the file is in it, otherwise absolute."""
    line: int


def relative_path(file: str, root: str) -> str:
    """Return the path relative to the root; a path outside of the root is returned normalised."""
    path = os.path.normpath(PurePath(root, file)) if file else ""
    return path[len(root) + 1 :] if path.startswith(f"{root}/") else path


def is_inside(file: str) -> bool:
    """Return whether a result of :func:`relative_path` is in the repository and not in ``site-packages``."""
    return bool(file) and not file.startswith(("/", "<")) and "site-packages/" not in file


def parse_frames(value: object, root: str) -> list[Frame]:
    """Convert pairs of a file and a line to frames; other values are left out."""
    frames: list[Frame] = []
    for each in value if isinstance(value, list) else []:
        match each:
            case [str(file), int(line)]:
                frames.append({"file": relative_path(file, root), "line": line})
    return frames
