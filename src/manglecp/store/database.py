"""The interface of a database: SQL written once, in what SQLite and PostgreSQL share, with ``?`` for every value.

* ``write_transaction()`` commits when its block ends and rolls back when it raises. After an error inside the block the
  transaction is lost; leave the block.
* ``read_transaction()`` is a snapshot of the moment of its first statement.
* On SQLite a writer is alone in the file. On PostgreSQL writers run concurrently, so rows that are read in order to be
  changed have to be locked (:meth:`Transaction.locked`), or changed by the statement that tests them.
* Locks are taken in this order, so that there is no deadlock: rows of runs, other rows, the head of the ledger last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, Protocol, TypeAlias

Dialect: TypeAlias = Literal["sqlite", "postgresql"]

Synchronous: TypeAlias = Literal["normal", "full"]
"""``normal``: a commit survives the death of the process. ``full``: the loss of power as well."""

NOW: Final[dict[Dialect, str]] = {
    "sqlite": "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
}
"""The clock of :meth:`Transaction.now_ms` as an expression: a statement with it saves a round trip to PostgreSQL."""

PATIENCE: Final = 5.0  # timeout in seconds for a lock or a connection


class Rows(Protocol):
    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...

    @property
    def rowcount(self) -> int: ...


class Transaction(Protocol):
    """An open transaction, for one thread and valid inside its block only."""

    @property
    def dialect(self) -> Dialect: ...

    def execute(self, sql: str, params: Sequence[Any] = (), /) -> Rows:
        """Execute one statement; ``?`` is the placeholder in either dialect."""

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object: ...

    def locked(self, sql: str, params: Sequence[Any] = (), *, wait: bool = False) -> Rows:
        """Execute a SELECT and lock its rows; rows locked by others are skipped, or waited for."""
        ...

    def now_ms(self) -> int:
        """Return the time of the database server, or of this machine for SQLite: one clock for all its users."""
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
        """Begin a read transaction: a snapshot as of its first statement."""

    def damage(self) -> list[str]: ...

    def close(self) -> None:
        """Close all connections. Transactions must be over."""
