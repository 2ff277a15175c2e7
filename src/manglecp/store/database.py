"""The interface of a database. Statements use only the SQL that SQLite and PostgreSQL share, with ``?`` for values.

* SQLite runs one write transaction at a time; PostgreSQL runs them concurrently. Lock rows before a change that depends
  on them (:meth:`Transaction.locked`), or test and change them in one statement.
* Every transaction locks in this order, so that there is no deadlock: rows of runs, other rows, the head of the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, Protocol, TypeAlias

Dialect: TypeAlias = Literal["sqlite", "postgresql"]

Synchronous: TypeAlias = Literal["normal", "full"]
"""``normal``: a commit survives the death of the process. ``full``: the loss of power as well."""

NOW: Final[dict[Dialect, str]] = {
    "sqlite": "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",  # 2440587.5: the start of 1970
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
}
"""SQL expressions for the time in milliseconds, for statements that save a call of :meth:`Transaction.now_ms`."""

PATIENCE: Final = 5.0  # timeout in seconds for a lock or a connection


class Rows(Protocol):
    """The result of a statement; ``rowcount`` is the number of rows that it changed."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...

    @property
    def rowcount(self) -> int: ...


class Transaction(Protocol):
    """An open transaction, for one thread. After an error of a statement no other statement may follow."""

    @property
    def dialect(self) -> Dialect: ...

    def execute(self, sql: str, params: Sequence[Any] = (), /) -> Rows:
        """Execute one statement."""

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object: ...

    def locked(self, sql: str, params: Sequence[Any] = (), *, wait: bool = False) -> Rows:
        """Execute a SELECT and lock its rows; skip rows that another transaction has locked, or ``wait`` for them."""
        ...

    def now_ms(self) -> int:
        """Return the time in milliseconds by the clock of the database server; with SQLite, of this machine."""
        ...


class Database(Protocol):
    """An open database. Threads may share it."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def name(self) -> str:
        """The location, for messages, without a password."""
        ...

    def write_transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction that commits at the end of its block, and rolls back if the block raises."""

    def read_transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a read transaction, which sees a snapshot as of its first statement."""

    def damage(self) -> list[str]:
        """Return a description of each damage that a check of the database finds."""
        ...

    def close(self) -> None:
        """Close all connections. Transactions must be over."""
