"""Open files below a folder without following symbolic links.

Path components are opened one after the other, each relative to its parent. There is no gap between check and use: the
opened file is the checked file, even if names are exchanged in the meantime. ``openat2`` would do this in one call, but
the sandbox does not permit it. Files are opened non-blocking, so that a named pipe does not block the caller.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ["FOLDER", "OpenError", "open_file", "open_folder", "read_at_most"]

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""The flags to open a folder."""
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class OpenError(OSError):
    """A component could not be opened. ``filename`` is the path up to it."""

    is_link = False


@contextmanager
def open_folder(top: int, parts: Sequence[str]) -> Iterator[int]:
    """Open a folder below an open one. Raises :class:`OpenError` for the first component that cannot be opened."""
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
def open_file(folder: int, name: str, path: str) -> Iterator[int]:
    """Open any file but a link in an open folder; ``path`` is used in errors."""
    descriptor = _open(name, _FILE, folder, path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_at_most(descriptor: int, most: int) -> bytes | None:
    """Return the content of an open file; None if it has more than ``most`` bytes."""
    with os.fdopen(descriptor, "rb", closefd=False) as stream:
        data = stream.read(most + 1)
    return data if len(data) <= most else None


def _open(name: str, flags: int, folder: int, path: str) -> int:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise OpenError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        failure = OpenError(error.errno, error.strerror, path)
    if failure.errno in (errno.ELOOP, errno.ENOTDIR):
        with suppress(OSError):
            failure.is_link = stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    raise failure
