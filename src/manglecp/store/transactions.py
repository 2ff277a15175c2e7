"""A transaction on one connection to a SQLite file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from manglecp.store.database import Dialect, Rows

__all__ = ["SqliteTransaction", "transaction"]


class SqliteTransaction:
    """A transaction that somebody else began and ends."""

    __slots__ = ("_connection", "execute", "executemany")

    dialect: Final[Dialect] = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.execute = connection.execute
        self.executemany = connection.executemany

    def locked(self, sql: str, params: Sequence[Any] = (), *, wait: bool = False) -> Rows:  # noqa: ARG002
        return self.execute(sql, params)  # whoever writes is alone

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[SqliteTransaction]:
    """From ``begin`` to its end: a commit, or nothing was done."""
    connection.execute(begin)
    try:
        yield SqliteTransaction(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has ended it already
            connection.execute("ROLLBACK")
        raise
