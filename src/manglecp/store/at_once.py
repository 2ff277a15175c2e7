"""Short transactions on a SQLite file where they are asked for, without a thread: for an event loop.

To hand a few rows to a thread and to hear that they are written costs more than writing them: two threads wake each
other, and both want the interpreter. A commit to the write-ahead log that does not wait for the disk is a copy into the
memory of the system. So it is done at once, as long as nothing can make it wait:

* Somebody else is writing, in this process or in another one: :class:`.Busy` is raised before anything is done, and
  whoever asked goes to a thread, which waits.
* The log has to be moved into the file once in a while, which does wait for the disk. That is never done here:
  :attr:`SqliteAtOnce.tidying_due` says that it is time, and a thread does it (:meth:`SqliteDatabase.tidy`) while it
  holds the turn. So the log is moved as a whole and begins anew, however much is being written.
* Whoever writes first after that begins the log anew, which waits for the disk as well. It is the same thread, unless
  another process is quicker, or somebody is reading at that moment what is in the log.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import AbstractContextManager
from typing import Any, Final

from manglecp.store.errors import Busy
from manglecp.store.transactions import Failures, SqliteTransaction, transaction

__all__ = ["SqliteAtOnce"]

_MANY_ROWS: Final = 1_000
"""Rows that are written before the log is moved: some megabytes of it."""
_COUNTED: Final = 1 << 32
"""SQLite counts rows with 32 bits: after the largest number comes the least."""


class SqliteAtOnce:
    """A connection of its own that waits for nobody; used by one thread, one transaction at a time."""

    def __init__(self, connection: sqlite3.Connection, turn: threading.RLock, failures: Failures) -> None:
        """``turn`` is what those who write in this process take."""
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._connection = connection
        self._writing = _Writing(connection, turn, failures)
        self._glancing = _Glancing(connection, failures)
        self._tidied = 0

    @property
    def tidying_due(self) -> bool:
        """Is it time to move the log into the file? It is said once."""
        written = self._connection.total_changes
        if (written - self._tidied) % _COUNTED < _MANY_ROWS:
            return False
        self._tidied = written
        return True

    def writing(self) -> AbstractContextManager[SqliteTransaction]:
        """As :meth:`.Database.writing`, or :class:`.Busy`."""
        return self._writing

    def glancing(self) -> AbstractContextManager[SqliteTransaction]:
        """As :meth:`.Database.glancing`, or :class:`.Busy`."""
        return self._glancing

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class _Writing:
    """Entered again and again: what is done thousands of times a second is not made anew for it."""

    def __init__(self, connection: sqlite3.Connection, turn: threading.RLock, failures: Failures) -> None:
        self._transaction = transaction(connection, "BEGIN IMMEDIATE")
        self._turn = turn
        self._failures = failures

    def __enter__(self) -> SqliteTransaction:
        if not self._turn.acquire(blocking=False):
            raise Busy("the store is being written to by another thread; nothing was changed. Try again.")
        try:
            with self._failures:
                return self._transaction.__enter__()
        except BaseException:
            self._turn.release()
            raise

    def __exit__(self, *how: Any) -> None:
        try:
            with self._failures:
                self._transaction.__exit__(*how)
            self._failures.__exit__(*how)
        finally:
            self._turn.release()


class _Glancing:
    def __init__(self, connection: sqlite3.Connection, failures: Failures) -> None:
        self._transaction = SqliteTransaction(connection)
        self._failures = failures

    def __enter__(self) -> SqliteTransaction:
        return self._transaction

    def __exit__(self, *how: Any) -> None:
        self._failures.__exit__(*how)
