"""A transaction on one connection to a SQLite file, and what SQLite says in the words of this room."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

from manglecp.store.database import Dialect, Rows
from manglecp.store.errors import Busy, StoreError, Unusable

__all__ = ["Failures", "SqliteTransaction", "is_busy", "transaction"]


class SqliteTransaction:
    """A transaction that somebody else began and ends."""

    __slots__ = ("execute", "executemany")

    dialect: Final[Dialect] = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany

    def locked(self, sql: str, params: Sequence[Any] = (), *, wait: bool = False) -> Rows:  # noqa: ARG002
        return self.execute(sql, params)  # whoever writes is alone

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class transaction:
    """From ``begin`` to a commit; if the block raises, nothing was done."""

    __slots__ = ("_begin", "_connection")

    def __init__(self, connection: sqlite3.Connection, begin: str) -> None:
        self._connection = connection
        self._begin = begin

    def __enter__(self) -> SqliteTransaction:
        self._connection.execute(self._begin)
        return SqliteTransaction(self._connection)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if error is None:
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:  # a full disk has ended it already
                self._connection.execute("ROLLBACK")


class Failures:
    """What SQLite says about this file, as errors of this room; a context manager for as often as one likes."""

    __slots__ = ("_path", "_patience")

    def __init__(self, path: Path | Literal[":memory:"], patience: float) -> None:
        self._path = path
        self._patience = patience

    def __enter__(self) -> None:
        """Nothing has failed yet."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            return
        if isinstance(error, sqlite3.OperationalError):
            if is_busy(error):
                raise Busy(
                    f"{self._path} is being written to by another process and was not free within "
                    f"{self._patience:g} s; nothing was changed. Try again, or end the process that holds it."
                ) from None
            raise StoreError(f"{self._path} cannot be used: {error}") from error
        if isinstance(error, sqlite3.IntegrityError):
            raise StoreError(f"{self._path} does not admit this row: {error}") from error
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.ProgrammingError
        ):  # a bug of ours
            raise Unusable(f"{self._path} is damaged, or no SQLite database: {error}") from error


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Does somebody else hold what was asked for?"""
    # The low byte: SQLITE_BUSY has variants such as SQLITE_BUSY_SNAPSHOT.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
