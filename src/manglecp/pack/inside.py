"""Opening a file of a folder, and never one outside of it, whatever is done to the folder meanwhile.

Every part of the name is opened from the one before it, and none may be a link: a link that is put in place of a folder
after that was looked at is not followed. Nothing is waited for, as with a pipe.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["open_inside"]

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_inside(root: Path, name: str) -> int:
    """A descriptor of what has that name, relative to the folder and with slashes; OSError if there is none."""
    *folders, file = name.split("/")
    if {"", ".", ".."} & {*folders, file}:
        raise FileNotFoundError(2, "No such file or directory")
    within = os.open(root, _FOLDER)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=within)
            os.close(within)
            within = inner
        return os.open(file, _FILE, dir_fd=within)
    finally:
        os.close(within)
