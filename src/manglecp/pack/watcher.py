"""Detects edits of a folder, such as a pack that is being written.

An edit is detected by a fingerprint of paths, sizes and times. One save may write several files, and many editors
remove a file before they write it. A watcher can therefore wait until several polls find the same fingerprint, and more
polls where a file is missing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from manglecp.pack.folder import MAX_DEPTH, MAX_FILES, is_ignored

Entry = tuple[str, int, int, int, int]  # path, inode, size, mtime, ctime
Fingerprint = frozenset[Entry]
_MAX_POLLS: Final = 20  # after so many polls, a folder that keeps changing counts as edited


class FolderWatcher:
    """Finds completed edits since it was created.

    An edit is complete after ``steady`` more polls with the same fingerprint, or ``gone`` more if a file is missing.
    """

    def __init__(self, folder: Path, *, steady: int = 0, gone: int = 0) -> None:
        self.folder: Final = folder
        self._steady = steady
        self._gone = gone
        self._pending: Fingerprint | None = None  # the fingerprint of an incomplete edit at the last poll
        self._unchanged_polls = 0  # polls since ``_pending`` last changed
        self._polls = 0  # polls since the edit was found
        self._known = frozenset(_entries(folder))  # the fingerprint of the last completed edit

    def poll(self) -> bool:
        """Look at the folder, and return whether an edit is complete."""
        fingerprint = frozenset(_entries(self.folder))
        if fingerprint == self._known:
            self._pending = None
            return False
        if not self._is_settled(fingerprint):
            return False
        self._known = fingerprint
        return True

    def _is_settled(self, fingerprint: Fingerprint) -> bool:
        """Count a poll that found an edit, and return whether the edit is complete."""
        self._polls = 0 if self._pending is None else self._polls + 1
        self._unchanged_polls = self._unchanged_polls + 1 if fingerprint == self._pending else 0
        self._pending = fingerprint
        missing_paths = {path for path, *_ in self._known} - {path for path, *_ in fingerprint}
        required_polls = self._gone if missing_paths else self._steady
        if self._unchanged_polls < required_polls and self._polls < _MAX_POLLS:
            return False
        self._pending = None
        return True


def _entries(root: Path) -> Iterator[Entry]:
    pending, count = [(os.fspath(root), 0)], 0  # pending: folders and their depths
    while pending:
        folder, depth = pending.pop()
        try:
            with os.scandir(folder) as entry_iterator:
                entries = [entry for entry in entry_iterator if not is_ignored(entry)]
        except OSError:
            continue
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            count += 1
            if count > MAX_FILES:  # too large for a pack, as the loader reports
                return
            if stat.S_ISDIR(status.st_mode):
                if depth < MAX_DEPTH:
                    pending.append((entry.path, depth + 1))
                continue
            # ctime cannot be set back, unlike mtime.
            yield entry.path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
