"""A pack that is being edited: the watcher always has a version that works.

An edit is detected by a fingerprint of names, sizes and times, which is cheap enough for several polls a second. It is
taken before the pack is read: a change during the read is another edit, found by the next poll. A broken edit leaves
the old version in place and its diagnostics beside it.

One save may write several files, and many editors remove a file before they write it anew, so that a folder in between
can be another pack. A watcher can therefore wait until an edit is stable: until several polls find the same
fingerprint, and more polls where a file is missing.
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
from manglecp.pack.folder import DEEPEST, MOST_FILES, is_ignored

__all__ = ["Change", "FolderWatcher"]

T = TypeVar("T")
Change = Literal["none", "swapped", "broken"]
Fingerprint = frozenset[tuple[str, int, int, int, int]]
_RESTLESS: Final = 20
"""Looks after which a folder that does not come to rest is loaded as it is."""


class FolderWatcher(Generic[T]):
    """What ``load`` makes of a folder, kept up to date by :meth:`poll`. May be used by several threads."""

    def __init__(self, folder: Path, load: Callable[[Path], T], *, steady: int = 0, gone: int = 0) -> None:
        """Load the first version; :class:`PackError` if there is none.

        An edit is loaded if it looked the same ``steady`` more times, or ``gone`` where a file is missing.
        """
        self.folder: Final = folder
        self._steady = steady
        self._gone = gone
        self._latest: Fingerprint | None = None
        """What was there at the last look, as long as it is not loaded."""
        self._same = 0
        self._looks = 0
        self._load = load
        self._polling = threading.Lock()
        self._seen = _fingerprint(folder)
        self._state: tuple[T, tuple[Diagnostic, ...]] = (load(folder), ())

    @property
    def current(self) -> T:
        """The last version that works."""
        return self._state[0]

    @property
    def problems(self) -> tuple[Diagnostic, ...]:
        """What is wrong with the folder as it is now; nothing, if the current version is made from it."""
        return self._state[1]

    def poll(self) -> Change:
        """Look whether the folder has changed since the last look, and load it if so.

        An error of ``load`` that is no :class:`PackError` is raised, and the same edit is loaded again next time.
        """
        with self._polling:
            seen = _fingerprint(self.folder)
            if seen == self._seen:
                self._latest = None
                return "none"
            if not self._at_rest(seen):
                return "none"
            try:
                loaded = self._load(self.folder)
            except PackError as error:
                self._seen = seen
                self._state = (self.current, error.diagnostics)
                return "broken"
            except BaseException as error:
                # Not the pack's mistake, and perhaps over soon: the edit is not taken as seen, and is tried again.
                self._state = (self.current, (pack_problem("", f"it could not be loaded: {type(error).__name__}"),))
                raise
            self._seen = seen
            self._state = (loaded, ())
            return "swapped"

    def _at_rest(self, seen: Fingerprint) -> bool:
        self._looks = 0 if self._latest is None else self._looks + 1
        self._same = self._same + 1 if seen == self._latest else 0
        self._latest = seen
        missing = {path for path, *_ in self._seen} - {path for path, *_ in seen}
        if self._same < (self._gone if missing else self._steady) and self._looks < _RESTLESS:
            return False
        self._latest = None
        return True


def _fingerprint(folder: Path) -> Fingerprint:
    """Return the fingerprint of a folder, without what cannot be accessed."""
    return frozenset(_entries(os.fspath(folder)))


def _entries(root: str) -> Iterator[tuple[str, int, int, int, int]]:
    waiting, count = [(root, 0)], 0
    while waiting:
        folder, depth = waiting.pop()
        try:
            with os.scandir(folder) as listed:
                entries = [entry for entry in listed if not is_ignored(entry)]
        except OSError:
            continue
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            count += 1
            if count > MOST_FILES:  # no pack, which the loader reports
                return
            if stat.S_ISDIR(found.st_mode):
                if depth < DEEPEST:
                    waiting.append((entry.path, depth + 1))
                continue
            # The time of the last change of the inode cannot be set back, unlike that of the content.
            yield entry.path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
