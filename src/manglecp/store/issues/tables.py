"""What a database has to offer to hold issue memory, and nothing more.

The rules are in :mod:`.transitions` and need rows by key only; what has to be quick on many rows (the frontier, the
issues of one status) is asked for as a whole, so that a database can use its indexes. :class:`.folded.Folded` does the
same in memory and is the oracle of every other implementation.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import msgspec

from manglecp.base.hash_chain import Head
from manglecp.store.instants import Instant
from manglecp.store.issues.events import Event
from manglecp.store.issues.model import Edge, Issue, Lease, Mutation, Status

__all__ = ["IssueStore", "IssueTables", "Line"]


class Line(NamedTuple):
    """A row of the log: the canonical JSON of an event, and what the database says about it to find it again."""

    seq: int
    issue: str
    row_hash: str
    row: bytes


class IssueTables(Protocol):
    """The tables inside one transaction."""

    # --- what is the case ---

    def issue(self, issue: str) -> Issue | None:
        """None if there is none of this id."""

    def put_issue(self, issue: Issue) -> None:
        """Write it, whether it was there before or not."""

    def lease(self, issue: str) -> Lease | None:
        """The one on this issue, which may have run out; None if there is none."""

    def put_lease(self, lease: Lease) -> None:
        """Write it in place of any other on this issue."""

    def drop_lease(self, issue: str) -> None:
        """Nothing happens if there is none."""

    def edges_from(self, issue: str) -> list[Edge]:
        """What the issue depends on, sorted."""
        ...

    def edges_to(self, issue: str) -> list[Edge]:
        """What depends on the issue, sorted."""
        ...

    def put_edge(self, edge: Edge) -> None:
        """Write one that is not there yet."""

    def drop_edge(self, edge: Edge) -> None:
        """Nothing happens if it is not there."""

    def is_spent(self, witness_id: str, call_id: str | msgspec.UnsetType) -> bool:
        """Whether this evidence, or the same turn told otherwise, has mutated something."""
        ...

    def put_mutation(self, seq: int, issue: str, mutation: Mutation) -> None:
        """Remember that this evidence is spent, and on what."""

    def mutations(self) -> Iterable[tuple[int, str, Mutation]]:
        """With the number of the event and the issue, in their order."""
        ...

    # --- what happened ---

    def head(self) -> Head:
        """Of the last event; of an empty log before the first."""

    def append(self, event: Event) -> None:
        """Add a row to the log, which follows the head."""

    def lines(self, *, issue: str | None = None, upto: int | None = None) -> Iterable[Line]:
        """The rows of the log in their order, of one issue or of all, as they were written."""
        ...

    # --- questions over many rows ---

    def issues(self, status: Status | None = None) -> Iterable[Issue]:
        """In the order in which they were added."""
        ...

    def frontier(self, now: Instant) -> Iterable[Issue]:
        """What can be claimed, the most urgent first, then the eldest.

        An issue can be claimed if it is open, or in progress under a lease that ran out, and no issue that is not
        closed blocks it.
        """
        ...


class IssueStore(Protocol):
    """Where the tables are."""

    def write_transaction(self) -> AbstractContextManager[IssueTables]:
        """One transaction, after every other one that writes and before the next. Nothing of it stays if it raises."""
        ...

    def read_transaction(self) -> AbstractContextManager[IssueTables]:
        """The state at one moment."""
        ...

    def damage(self) -> list[str]:
        """What the database itself finds wrong with its files."""
        ...

    def close(self) -> None:
        """End what connects to the database."""
