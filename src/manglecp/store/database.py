"""The interface of a database: SQL written once, in what SQLite and PostgreSQL share, with ``?`` for every value.

* ``write_transaction()`` commits when its block ends and rolls back when it raises. After an error inside the block the
  transaction is lost; leave the block.
* ``read_transaction()`` is a snapshot of the moment of its first statement. ``read_statement()`` is cheaper, for a
  single statement.
* On SQLite a writer is alone in the file. On PostgreSQL writers run concurrently, so rows that are read in order to be
  changed have to be locked (:meth:`Transaction.locked`), or changed by the statement that tests them.
* Locks are taken in this order, so that there is no deadlock: rows of runs, other rows, the head of the ledger last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, Protocol, TypeAlias

__all__ = ["PATIENCE", "Database", "Dialect", "Rows", "Synchronous", "Transaction"]

Dialect: TypeAlias = Literal["sqlite", "postgresql"]

Synchronous: TypeAlias = Literal["normal", "full"]
"""``normal``: a commit survives the death of the process. ``full``: the loss of power as well."""

PATIENCE: Final = 5.0
"""Seconds to wait for a lock or a connection."""


class Rows(Protocol):
    """What a statement gave."""

    def fetchone(self) -> Any:
        """The next row, None after the last."""

    def fetchall(self) -> list[Any]:
        """All rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...

    @property
    def rowcount(self) -> int:
        """How many rows an INSERT, UPDATE or DELETE touched."""
        ...


class Transaction(Protocol):
    """Valid inside its block only, and for one thread."""

    @property
    def dialect(self) -> Dialect:
        """Which SQL it speaks, for the few statements that differ."""

    def execute(self, sql: str, params: Sequence[Any] = (), /) -> Rows:
        """One statement; ``?`` stands for a value in either dialect."""

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object:
        """The same statement for each row of values."""

    def locked(self, sql: str, params: Sequence[Any] = (), *, wait: bool = False) -> Rows:
        """A SELECT whose rows stay as they are until the transaction ends.

        Rows that somebody else has locked are left out, or waited for.
        """
        ...

    def now_ms(self) -> int:
        """The time that everybody who shares the database agrees on: the server's, or this machine's for a file."""
        ...


class Database(Protocol):
    """An open database. Threads may share it."""

    @property
    def dialect(self) -> Dialect:
        """As that of its transactions."""

    @property
    def name(self) -> str:
        """Where it is, as people may read it: never with a password."""
        ...

    def write_transaction(self) -> AbstractContextManager[Transaction]:
        """A transaction. It commits when its block ends well, and leaves nothing behind when it raises."""

    def read_statement(self) -> AbstractContextManager[Transaction]:
        """For a single statement."""

    def read_transaction(self) -> AbstractContextManager[Transaction]:
        """A transaction that goes on seeing what there was at its first question."""

    def damage(self) -> list[str]:
        """What the database itself finds wrong with its files."""
        ...

    def close(self) -> None:
        """End all connections. Transactions must be over."""
