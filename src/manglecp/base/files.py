"""Atomic replacement of files, and a lock that outlasts the replacement of a file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def replace_file(path: Path, lines: Iterable[bytes], mode: int, *, owner: tuple[int, int] | None = None) -> None:
    """Write a temporary file and rename it to ``path``, so that readers see either the old or the new file.

    ``owner`` is the uid and gid of the new file.
    """
    from tempfile import NamedTemporaryFile  # late: slow to import

    with NamedTemporaryFile(dir=path.absolute().parent, prefix=f".{path.name}.", delete=False) as new:
        try:
            new.writelines(lines)
            new.flush()
            os.fsync(new.fileno())
            os.fchmod(new.fileno(), mode)
            if owner is not None:
                os.fchown(new.fileno(), *owner)
            Path(new.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(new.name).unlink()
            raise


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes; the lock of a file would end when the file is replaced."""
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder_fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder_fd)  # releases the lock
