"""Reloads a pack that is being edited, and keeps the last version that works.

An edit is detected by a fingerprint of paths, sizes and times, which is taken before the pack is read: a change during
the read is found by the next poll. After a broken edit the old version stays, and ``problems`` has the diagnostics.

One save may write several files, and many editors remove a file before they write it. A watcher can therefore wait
until several polls find the same fingerprint, and more polls where a file is missing.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Generic, Literal, TypeVar

from manglecp.base.diagnostic import Diagnostic
from manglecp.pack.diagnostics import PackError, pack_problem
from manglecp.pack.folder import MAX_DEPTH, MAX_FILES, is_ignored

T = TypeVar("T")
Change = Literal["none", "swapped", "broken"]  # "broken": an edit was refused, and the old version stays
Entry = tuple[str, int, int, int, int]  # path, inode, size, mtime, ctime
Fingerprint = frozenset[Entry]
_MAX_POLLS: Final = 20  # after them a folder that keeps changing is loaded anyway


class FolderWatcher(Generic[T]):
    """The result of ``load`` for a folder, updated by :meth:`poll`. Thread-safe."""

    def __init__(self, folder: Path, load: Callable[[Path], T], *, steady: int = 0, gone: int = 0) -> None:
        """Load the first version. Raises :class:`PackError`.

        An edit is loaded after ``steady`` more polls with the same fingerprint, or ``gone`` more if a file is missing.
        """
        self.folder: Final = folder
        self._steady = steady
        self._gone = gone
        self._pending: Fingerprint | None = None  # of an edit that is not loaded yet, as the last poll found it
        self._unchanged_polls = 0  # since ``_pending`` has this value
        self._polls = 0  # since the edit was found
        self._load = load
        self._polling = threading.Lock()
        self._known = frozenset(_entries(folder))  # the fingerprint of the last edit that was loaded or refused
        self._state: tuple[T, tuple[Diagnostic, ...]] = (load(folder), ())  # the current version, and the problems

    @property
    def current(self) -> T:
        return self._state[0]

    @property
    def problems(self) -> tuple[Diagnostic, ...]:
        """The diagnostics of the last edit; empty if it was loaded."""
        return self._state[1]

    def poll(self) -> Change:
        """Load the folder if it has changed and the edit has settled; return what happened.

        Errors of ``load`` other than :class:`PackError` are raised, and the next poll tries again.
        """
        with self._polling:
            fingerprint = frozenset(_entries(self.folder))
            if fingerprint == self._known:
                self._pending = None
                return "none"
            if not self._is_settled(fingerprint):
                return "none"
            try:
                loaded = self._load(self.folder)
            except PackError as error:
                self._known = fingerprint
                self._state = (self.current, error.diagnostics)
                return "broken"
            except BaseException as error:
                # Not an error of the pack: the fingerprint is not stored, so that the next poll tries again.
                self._state = (self.current, (pack_problem("", f"it could not be loaded: {type(error).__name__}"),))
                raise
            self._known = fingerprint
            self._state = (loaded, ())
            return "swapped"

    def _is_settled(self, fingerprint: Fingerprint) -> bool:
        """Count a poll that found an edit, and return whether to load it now."""
        self._polls = 0 if self._pending is None else self._polls + 1
        self._unchanged_polls = self._unchanged_polls + 1 if fingerprint == self._pending else 0
        self._pending = fingerprint
        missing = {path for path, *_ in self._known} - {path for path, *_ in fingerprint}
        needed = self._gone if missing else self._steady
        if self._unchanged_polls < needed and self._polls < _MAX_POLLS:
            return False
        self._pending = None
        return True


def _entries(root: Path) -> Iterator[Entry]:
    pending, count = [(os.fspath(root), 0)], 0  # pending: folders and their depths
    while pending:
        folder, depth = pending.pop()
        try:
            with os.scandir(folder) as listed:
                entries = [entry for entry in listed if not is_ignored(entry)]
        except OSError:
            continue
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            count += 1
            if count > MAX_FILES:  # not a pack; the loader reports it
                return
            if stat.S_ISDIR(status.st_mode):
                if depth < MAX_DEPTH:
                    pending.append((entry.path, depth + 1))
                continue
            # ctime cannot be set back, unlike mtime.
            yield entry.path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
