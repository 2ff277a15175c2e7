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

PATIENCE: Final = 5.0  # seconds to wait for a lock or a connection


class Rows(Protocol):
    """The result of a statement."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...

    @property
    def rowcount(self) -> int: ...


class Transaction(Protocol):
    """Valid inside its block only, and for one thread."""

    @property
    def dialect(self) -> Dialect: ...

    def execute(self, sql: str, params: Sequence[Any] = (), /) -> Rows:
        """Execute one statement; ``?`` is the placeholder in either dialect."""

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object: ...

    def locked(self, sql: str, params: Sequence[Any] = (), *, wait: bool = False) -> Rows:
        """Execute a SELECT and lock its rows; rows locked by others are skipped, or waited for."""
        ...

    def now_ms(self) -> int:
        """Return the time of the server, or of this machine for a file: one clock for all users of the database."""
        ...


class Database(Protocol):
    """An open database. Threads may share it."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def name(self) -> str:
        """Its location, for messages: never with a password."""
        ...

    def write_transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction that commits at the end of its block, and rolls back if the block raises."""

    def read_transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a read transaction: a snapshot as of its first statement."""

    def damage(self) -> list[str]:
        """Return the problems that the database finds in its files."""
        ...

    def close(self) -> None:
        """Close all connections. Transactions must be over."""
