"""A copy of git's index that may be written to.

The index remembers how each file looked when git last read it. Where a repository was copied, mounted or restored that
is no longer true: git then reads every file, each time that it is asked, for it may not note anything in a repository
that is not ours to write. It may in a copy, which is made anew when the index itself has changed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Final

from .reading import Stamp, stamp

__all__ = ["Index"]

_ABANDONED: Final = 86_400.0


class Index:
    """The copy of one process: two that wrote one file could bring back what the other has replaced."""

    def __init__(self, git_folder: Path, folder: Path | None) -> None:
        self._source: Final = git_folder / "index"
        self._copy: Final = folder / f"index.{os.getpid()}" if folder is not None else None
        self._copied: Stamp | None = None
        if folder is not None:
            _clear(folder)

    def current(self) -> Path | None:
        """A copy of the index as it is now; None if there is none to be had."""
        if self._copy is None:
            return None
        try:
            now = stamp(self._source.lstat())
            if now != self._copied:
                fresh = self._copy.with_name(f"{self._copy.name}.new")
                shutil.copyfile(self._source, fresh, follow_symlinks=False)
                # Git trusts no file that is as new as the index, so the copy must not look newer than it is.
                os.utime(fresh, ns=(now.written_ns, now.written_ns))
                fresh.replace(self._copy)
                self._copied = now
        except OSError:
            return None
        return self._copy

    def close(self) -> None:
        """Remove the copy."""
        if self._copy is not None:
            with contextlib.suppress(OSError):
                self._copy.unlink()


def _clear(folder: Path) -> None:
    """Remove what processes left behind that did not end well."""
    with contextlib.suppress(OSError):
        for path in folder.glob("index.*"):
            if path.lstat().st_mtime < time.time() - _ABANDONED:
                path.unlink()
