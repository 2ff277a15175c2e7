"""The tables of issue memory: the interface, and an implementation in memory.

The rules are in :mod:`.transitions` and need rows by key only; queries over many rows (the frontier, the issues of one
status) are methods, so that a database can use its indexes. :class:`Folded` is the test oracle of other
implementations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import msgspec

from manglecp.base.hash_chain import EMPTY, Head
from manglecp.issues.events import Event, write_event
from manglecp.issues.model import Edge, Instant, Issue, Lease, Mutation, Status


class Line(NamedTuple):
    """A row of the log: the canonical JSON of an event, and its indexed columns."""

    seq: int
    issue: str
    row_hash: str
    row: bytes


class IssueTables(Protocol):
    """The tables inside one transaction."""

    # --- what is the case ---

    def issue(self, issue: str) -> Issue | None: ...

    def put_issue(self, issue: Issue) -> None:
        """Insert or replace."""

    def lease(self, issue: str) -> Lease | None:
        """Return the lease on this issue, live or expired; None if there is none."""

    def put_lease(self, lease: Lease) -> None:
        """Insert or replace."""

    def drop_lease(self, issue: str) -> None:
        """Delete the lease, if there is one."""

    def edges_from(self, issue: str) -> list[Edge]:
        """Return what the issue depends on, sorted."""
        ...

    def edges_to(self, issue: str) -> list[Edge]:
        """Return what depends on the issue, sorted."""
        ...

    def put_edge(self, edge: Edge) -> None: ...

    def drop_edge(self, edge: Edge) -> None:
        """Delete the edge, if it exists."""

    def is_spent(self, witness_id: str, call_id: str | msgspec.UnsetType) -> bool:
        """Return whether this evidence, or another record of the same turn, has mutated an issue."""
        ...

    def put_mutation(self, seq: int, issue: str, mutation: Mutation) -> None:
        """Record that this evidence is spent."""

    def mutations(self) -> Iterable[tuple[int, str, Mutation]]:
        """Yield event number, issue and mutation, in their order."""
        ...

    # --- what happened ---

    def head(self) -> Head: ...

    def append(self, event: Event) -> None: ...

    def lines(self, *, issue: str | None = None, upto: int | None = None) -> Iterable[Line]:
        """Return the rows of the log in their order, of one issue or of all, as they were written."""
        ...

    # --- questions over many rows ---

    def issues(self, status: Status | None = None) -> Iterable[Issue]:
        """Return issues in the order in which they were added."""
        ...

    def frontier(self, now: Instant) -> Iterable[Issue]:
        """Return claimable issues, the most urgent first, then the oldest.

        Claimable: open, or in progress under a lease that ran out, and not blocked by an issue that is not closed.
        """
        ...


class IssueStore(Protocol):
    def write_transaction(self) -> AbstractContextManager[IssueTables]:
        """Begin a serialised write transaction; it is rolled back if its block raises."""
        ...

    def read_transaction(self) -> AbstractContextManager[IssueTables]: ...

    def damage(self) -> list[str]:
        """Return the problems that the database finds in its files."""
        ...

    def close(self) -> None: ...


# --- folded --------------------------------------------------------------------------------------------------------


class Folded:
    """Tables in memory, made by replaying events (:func:`.memory.replay`)."""

    def __init__(self) -> None:
        self._issues: dict[str, Issue] = {}
        self._leases: dict[str, Lease] = {}
        self._edges: dict[str, set[Edge]] = {}
        self._edges_to: dict[str, set[Edge]] = {}
        self._mutations: dict[str, tuple[int, str, Mutation]] = {}
        self._calls: set[str | msgspec.UnsetType] = set()
        self._events: list[Event] = []

    def issue(self, issue: str) -> Issue | None:
        return self._issues.get(issue)

    def put_issue(self, issue: Issue) -> None:
        self._issues[issue.id] = issue

    def lease(self, issue: str) -> Lease | None:
        return self._leases.get(issue)

    def put_lease(self, lease: Lease) -> None:
        self._leases[lease.issue] = lease

    def drop_lease(self, issue: str) -> None:
        del self._leases[issue]

    def edges_from(self, issue: str) -> list[Edge]:
        return sorted(self._edges.get(issue, ()))

    def edges_to(self, issue: str) -> list[Edge]:
        return sorted(self._edges_to.get(issue, ()))

    def put_edge(self, edge: Edge) -> None:
        self._edges.setdefault(edge.issue, set()).add(edge)
        self._edges_to.setdefault(edge.depends_on, set()).add(edge)

    def drop_edge(self, edge: Edge) -> None:
        self._edges[edge.issue].remove(edge)
        self._edges_to[edge.depends_on].remove(edge)

    def is_spent(self, witness_id: str, call_id: str | msgspec.UnsetType) -> bool:
        return witness_id in self._mutations or (call_id is not msgspec.UNSET and call_id in self._calls)

    def put_mutation(self, seq: int, issue: str, mutation: Mutation) -> None:
        self._mutations[mutation.witness_id] = (seq, issue, mutation)
        self._calls.add(mutation.call_id)

    def mutations(self) -> Iterable[tuple[int, str, Mutation]]:
        return self._mutations.values()

    def head(self) -> Head:
        return self._events[-1].head if self._events else EMPTY

    def append(self, event: Event) -> None:
        self._events.append(event)

    def lines(self, *, issue: str | None = None, upto: int | None = None) -> Iterator[Line]:
        for event in self._events[:upto]:
            if issue is None or event.issue == issue:
                yield Line(event.seq, event.issue, event.row_hash, write_event(event))

    def issues(self, status: Status | None = None) -> Iterable[Issue]:
        return [one for one in self._issues.values() if status is None or one.status is status]

    def frontier(self, now: Instant) -> Iterable[Issue]:
        claimable = [one for one in self._issues.values() if self._is_free(one, now) and not self._is_blocked(one)]
        return sorted(claimable, key=lambda one: (one.priority, one.born))

    def _is_free(self, issue: Issue, now: Instant) -> bool:
        if issue.status is Status.IN_PROGRESS:
            return not self._leases[issue.id].is_live(now)
        return issue.status is Status.OPEN

    def _is_blocked(self, issue: Issue) -> bool:
        return any(
            edge.blocking and self._issues[edge.depends_on].status is not Status.CLOSED
            for edge in self._edges.get(issue.id, ())
        )
