"""Reloads a pack that is being edited, and keeps the last version that works.

An edit is detected by a fingerprint of names, sizes and times. It is taken before the pack is read: a change during the
read is found by the next poll. A broken edit leaves the old version in place and its diagnostics beside it.

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
Change = Literal["none", "swapped", "broken"]
Fingerprint = frozenset[tuple[str, int, int, int, int]]
_MAX_WAIT: Final = 20  # polls after which a folder that keeps changing is loaded anyway


class FolderWatcher(Generic[T]):
    """The result of ``load`` for a folder, updated by :meth:`poll`. Thread-safe."""

    def __init__(self, folder: Path, load: Callable[[Path], T], *, steady: int = 0, gone: int = 0) -> None:
        """Load the first version. Raises :class:`PackError`.

        An edit is loaded after ``steady`` more polls with the same fingerprint, or ``gone`` where a file is missing.
        """
        self.folder: Final = folder
        self._steady = steady
        self._gone = gone
        self._latest: Fingerprint | None = None  # of the last poll, until it is loaded
        self._same = 0
        self._polls = 0
        self._load = load
        self._polling = threading.Lock()
        self._loaded = frozenset(_entries(folder))
        self._state: tuple[T, tuple[Diagnostic, ...]] = (load(folder), ())

    @property
    def current(self) -> T:
        return self._state[0]

    @property
    def problems(self) -> tuple[Diagnostic, ...]:
        """The diagnostics of the last edit; empty if it was loaded."""
        return self._state[1]

    def poll(self) -> Change:
        """Load the folder if it has changed, and return what happened.

        Errors of ``load`` other than :class:`PackError` are raised, and the next poll tries again.
        """
        with self._polling:
            fingerprint = frozenset(_entries(self.folder))
            if fingerprint == self._loaded:
                self._latest = None
                return "none"
            if not self._is_settled(fingerprint):
                return "none"
            try:
                loaded = self._load(self.folder)
            except PackError as error:
                self._loaded = fingerprint
                self._state = (self.current, error.diagnostics)
                return "broken"
            except BaseException as error:
                # Not an error of the pack: the edit is not marked as seen, and is tried again.
                self._state = (self.current, (pack_problem("", f"it could not be loaded: {type(error).__name__}"),))
                raise
            self._loaded = fingerprint
            self._state = (loaded, ())
            return "swapped"

    def _is_settled(self, fingerprint: Fingerprint) -> bool:
        self._polls = 0 if self._latest is None else self._polls + 1
        self._same = self._same + 1 if fingerprint == self._latest else 0
        self._latest = fingerprint
        missing = {path for path, *_ in self._loaded} - {path for path, *_ in fingerprint}
        if self._same < (self._gone if missing else self._steady) and self._polls < _MAX_WAIT:
            return False
        self._latest = None
        return True


def _entries(root: Path) -> Iterator[tuple[str, int, int, int, int]]:
    waiting, count = [(os.fspath(root), 0)], 0
    while waiting:
        folder, depth = waiting.pop()
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
                    waiting.append((entry.path, depth + 1))
                continue
            # ctime cannot be set back, unlike mtime.
            yield entry.path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
