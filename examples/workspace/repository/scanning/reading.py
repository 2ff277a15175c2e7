"""The bytes of a file of the tree, and never of one outside of it.

It is reached as :mod:`repository.opening` does. How a file looked from outside (its *stamp*) is what tells the next
pass that it need not be read.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Final, NamedTuple

from ..opening import FOLDER, file_in, folder_below, read_at_most

__all__ = ["LARGEST", "Content", "Stamp", "read", "stamp", "target_inside"]

LARGEST: Final = 2 << 20
"""Bytes; what is larger is no file that people write."""
_RACE: Final = 1_000_000_000


class Stamp(NamedTuple):
    """How a file looks from outside."""

    inode: int
    changed_ns: int
    written_ns: int
    size: int
    kind: int


class Content(NamedTuple):
    """What was read; without data, why not."""

    data: bytes | None
    why: str
    stamp: Stamp
    settled: bool
    """Whether a later change is sure to have another stamp: clocks of files are coarse."""


def stamp(status: os.stat_result) -> Stamp:
    """Of what the system says about a file."""
    return Stamp(status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size, stat.S_IFMT(status.st_mode))


def read(root: Path, name: str) -> Content:
    """A regular file; an OSError if there is none (any more)."""
    started = time.time_ns()
    *folders, file = name.split("/")
    top = os.open(root, FOLDER)
    try:
        with folder_below(top, folders) as folder, file_in(folder, file, name) as descriptor:
            return _content(descriptor, started)
    finally:
        os.close(top)


def _content(descriptor: int, started: int) -> Content:
    status = os.fstat(descriptor)
    seen = stamp(status)
    settled = status.st_ctime_ns < started - _RACE
    if not stat.S_ISREG(status.st_mode):
        return Content(None, "not a regular file", seen, settled)
    if status.st_size > LARGEST:
        return Content(None, "too large", seen, settled)
    data = read_at_most(descriptor, LARGEST)
    if data is None:
        return Content(None, "too large", seen, settled=False)
    return Content(data, "", seen, settled and stamp(os.fstat(descriptor)) == seen)


def target_inside(root: Path, name: str) -> str | None:
    """Where a link leads, if that is a file or folder of the root."""
    try:
        target = (root / name).resolve(strict=True)
        inside = target.relative_to(root)
    except (OSError, RuntimeError, ValueError):  # nowhere, in a circle, outside
        return None
    return None if ".git" in inside.parts[:1] else inside.as_posix()
