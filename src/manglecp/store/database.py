"""One way to speak to a database, whichever it is.

SQL is written once, with ``?`` for every value, in the part of the language that SQLite and PostgreSQL share
(``ON CONFLICT``, ``RETURNING``, common table expressions). What differs is behind two small protocols: how a
transaction begins and ends, how rows are locked, whose clock counts.

* ``writing()`` is a transaction that commits when its block ends well and leaves nothing behind when it raises. After
  an error inside the block the transaction is lost; leave the block.
* ``reading()`` sees the store as it is at its first question, and goes on seeing that. ``glancing()`` is the same for a
  single question, which sees one moment anyway, and costs less.
* On SQLite a writer is alone in the file. On PostgreSQL writers run side by side, so what is read in order to be
  changed has to be locked (:meth:`Transaction.locked`), or changed in the statement that tests it.

* ``at_once()`` is for whoever must not wait, an event loop: there, too, one writes and glances, and hears
  :class:`.Busy` where everybody else would wait. Not every database has it.

Locks are taken in this order, so that nobody waits in a circle: rows of runs, other rows, the head of the ledger last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, Protocol, TypeAlias

__all__ = ["PATIENCE", "AtOnce", "Database", "Dialect", "Place", "Rows", "Synchronous", "Transaction"]

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


class Place(Protocol):
    """Where something short is written or looked up: a database, or what it offers to who must not wait."""

    def writing(self) -> AbstractContextManager[Transaction]:
        """A transaction. It commits when its block ends well, and leaves nothing behind when it raises."""

    def glancing(self) -> AbstractContextManager[Transaction]:
        """For a single question."""


class AtOnce(Place, Protocol):
    """A place where nobody waits; for one thread. What would have to wait is :class:`.Busy`, and nothing was done."""

    @property
    def tidying_due(self) -> bool:
        """Is it time for :meth:`Database.tidy`, in a thread? It is said once."""
        ...

    def close(self) -> None:
        """Nothing more is written there."""


class Database(Place, Protocol):
    """An open database. Threads may share it."""

    @property
    def dialect(self) -> Dialect:
        """As that of its transactions."""

    @property
    def name(self) -> str:
        """Where it is, as people may read it: never with a password."""
        ...

    def reading(self) -> AbstractContextManager[Transaction]:
        """A transaction that goes on seeing what there was at its first question."""

    def at_once(self) -> AtOnce | None:
        """A place for whoever must not wait, and closes it at the end; None if everything here may wait."""

    def tidy(self) -> None:
        """What is left to be done by those who do not wait."""

    def damage(self) -> list[str]:
        """What the database itself finds wrong with its files."""
        ...

    def close(self) -> None:
        """End all connections. Transactions must be over."""
