"""Read files of the work tree, and never a file outside of it (:mod:`repository.confined_open`).

The stamp of a file is its stat data. A file with an unchanged stamp is not read again.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Final, NamedTuple

from ..confined_open import FOLDER, open_file, open_folder, read_at_most

__all__ = ["LARGEST", "Content", "Stamp", "read", "stamp", "target_inside"]

LARGEST: Final = 2 << 20
"""The largest file, in bytes, that is read."""
_RACE: Final = 1_000_000_000


class Stamp(NamedTuple):
    """The stat data by which a change of a file is detected."""

    inode: int
    changed_ns: int
    written_ns: int
    size: int
    kind: int


class Content(NamedTuple):
    """The bytes of a file, or None with the reason."""

    data: bytes | None
    problem: str
    stamp: Stamp
    settled: bool
    """Whether a later change is certain to change the stamp; file timestamps are coarse."""


def stamp(status: os.stat_result) -> Stamp:
    """Return the stamp from the stat data of a file."""
    return Stamp(status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size, stat.S_IFMT(status.st_mode))


def read(root: Path, name: str) -> Content:
    """Read a regular file. Raises OSError if it does not exist or cannot be opened."""
    started = time.time_ns()
    *folders, file = name.split("/")
    top = os.open(root, FOLDER)
    try:
        with open_folder(top, folders) as folder, open_file(folder, file, name) as descriptor:
            return _content(descriptor, started)
    finally:
        os.close(top)


def _content(descriptor: int, started: int) -> Content:
    status = os.fstat(descriptor)
    before = stamp(status)
    settled = status.st_ctime_ns < started - _RACE
    if not stat.S_ISREG(status.st_mode):
        return Content(None, "not a regular file", before, settled)
    if status.st_size > LARGEST:
        return Content(None, "too large", before, settled)
    data = read_at_most(descriptor, LARGEST)
    if data is None:
        return Content(None, "too large", before, settled=False)
    return Content(data, "", before, settled and stamp(os.fstat(descriptor)) == before)


def target_inside(root: Path, name: str) -> str | None:
    """Return the target of a symbolic link, relative to the root; None if it is missing or outside of the root."""
    try:
        target = (root / name).resolve(strict=True)
        inside = target.relative_to(root)
    except (OSError, RuntimeError, ValueError):  # missing, a loop, or outside of the root
        return None
    return None if ".git" in inside.parts[:1] else inside.as_posix()
