"""Reaching a file below a folder, and nothing else.

One component after the other is opened, each relative to the folder before it and never through a symbolic link. So
there is no moment between a check and its use: what was opened is what was checked, however names are swapped
meanwhile. (``openat2`` would do this in one call; the sandbox does not let it through.) Nothing is waited for, as with
a pipe.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ["FOLDER", "Stopped", "file_in", "folder_below", "read_at_most"]

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a folder is opened."""
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Stopped(OSError):
    """A component could not be opened. ``filename`` is the path up to it."""

    is_link = False


@contextmanager
def folder_below(top: int, parts: Sequence[str]) -> Iterator[int]:
    """A folder below an open one; :class:`Stopped` where the way ends."""
    here = os.dup(top)
    try:
        for depth, part in enumerate(parts, 1):
            below = _open(part, FOLDER, here, "/".join(parts[:depth]))
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


@contextmanager
def file_in(folder: int, name: str, path: str) -> Iterator[int]:
    """What has that name in an open folder, whatever it is but a link; ``path`` is what to call it."""
    descriptor = _open(name, _FILE, folder, path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_at_most(descriptor: int, most: int) -> bytes | None:
    """All of an open file; None if it has more bytes than that."""
    with os.fdopen(descriptor, "rb", closefd=False) as stream:
        data = stream.read(most + 1)
    return data if len(data) <= most else None


def _open(name: str, flags: int, folder: int, path: str) -> int:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Stopped(errno.ENOENT, os.strerror(errno.ENOENT), path)
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        stopped = Stopped(error.errno, error.strerror, path)
    if stopped.errno in (errno.ELOOP, errno.ENOTDIR):
        with suppress(OSError):
            stopped.is_link = stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    raise stopped
