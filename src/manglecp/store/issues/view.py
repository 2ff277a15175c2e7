"""Questions to issue memory, at one moment: now, or after any event of the past."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from manglecp.base.hash_chain import Head
from manglecp.store.instants import Instant
from manglecp.store.issues.events import Event
from manglecp.store.issues.log import events
from manglecp.store.issues.model import Edge, Issue, Lease, Status
from manglecp.store.issues.tables import IssueTables
from manglecp.store.issues.transitions import blockers, found, snapshot

__all__ = ["Blocked", "Detail", "View"]


class Blocked(NamedTuple):
    """An issue that cannot be begun. Without blockers it was set aside by hand."""

    issue: Issue
    blockers: list[tuple[Edge, Issue]]


class Detail(NamedTuple):
    """Everything about one issue."""

    issue: Issue
    lease: Lease | None
    depends_on: list[Edge]
    dependents: list[Edge]
    blockers: list[tuple[Edge, Issue]]
    snapshot: str
    """What an intent may pin, as ``issue://ID@SNAPSHOT``."""


class View:
    """The tables at one moment."""

    def __init__(self, tables: IssueTables, now: Instant) -> None:
        self._tables = tables
        self.now = now

    def head(self) -> Head:
        """The event after which this is so."""
        return self._tables.head()

    def ready(self) -> Iterable[Issue]:
        """What a claim would get, in the order in which it would.

        Issues that are open, or whose holder let the lease run out, and that wait for no other issue.
        """
        return self._tables.frontier(self.now)

    def blocked(self) -> list[Blocked]:
        """Issues that are not closed and cannot be begun, with the reasons."""
        return [
            Blocked(issue, waiting)
            for issue in self._tables.issues()
            if issue.status is not Status.CLOSED
            and ((waiting := blockers(self._tables, issue.id)) or issue.status is Status.BLOCKED)
        ]

    def list(self, status: Status | None = None, label: str | None = None, assignee: str | None = None) -> list[Issue]:
        """In the order in which they were added."""
        return [
            issue
            for issue in self._tables.issues(status)
            if (label is None or label in issue.labels) and (assignee is None or issue.assignee == assignee)
        ]

    def show(self, issue: str) -> Detail:
        """One issue and what surrounds it; a refusal if there is none of this id."""
        one = found(self._tables, issue)
        digest = snapshot(self._tables, issue)
        assert digest is not None  # it was found
        return Detail(
            one,
            self._tables.lease(issue),
            self._tables.edges_from(issue),
            self._tables.edges_to(issue),
            blockers(self._tables, issue),
            digest,
        )

    def history(self, issue: str | None = None) -> Iterable[Event]:
        """The events, of one issue or of all."""
        if issue is not None:
            found(self._tables, issue)
        return events(self._tables, issue=issue)
