"""A writable copy of git's index.

The index caches the stat data of each file. In a repository that was copied, mounted or restored the data is stale, and
git reads every file on every command, because it cannot update a read-only index. It can update a copy, which is
replaced when the original index changes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Final

from .file_reader import Stamp, stamp

__all__ = ["Index"]

_ABANDONED: Final = 86_400.0


class Index:
    """The copy of one process. A shared copy could restore entries that another process has replaced."""

    def __init__(self, git_folder: Path, folder: Path | None) -> None:
        self._source: Final = git_folder / "index"
        self._copy: Final = folder / f"index.{os.getpid()}" if folder is not None else None
        self._copied: Stamp | None = None
        if folder is not None:
            _clear(folder)

    def current(self) -> Path | None:
        """Return an up-to-date copy of the index; None if it cannot be copied."""
        if self._copy is None:
            return None
        try:
            now = stamp(self._source.lstat())
            if now != self._copied:
                fresh = self._copy.with_name(f"{self._copy.name}.new")
                shutil.copyfile(self._source, fresh, follow_symlinks=False)
                # Git reads files that are as new as the index again, so the copy must not look newer than the original.
                os.utime(fresh, ns=(now.written_ns, now.written_ns))
                fresh.replace(self._copy)
                self._copied = now
        except OSError:
            return None
        return self._copy

    def close(self) -> None:
        """Delete the copy."""
        if self._copy is not None:
            with contextlib.suppress(OSError):
                self._copy.unlink()


def _clear(folder: Path) -> None:
    """Delete the copies of processes that did not close them."""
    with contextlib.suppress(OSError):
        for path in folder.glob("index.*"):
            if path.lstat().st_mtime < time.time() - _ABANDONED:
                path.unlink()
