"""The operations on issue memory. Each is one transaction: it happens as a whole, or not at all.

Adding an issue, claiming one, renewing and releasing a lease need no right. Everything else takes a ``MutationReady``
as its first argument and spends it in the transaction that also writes the event, the new state and the record of the
evidence. No argument, setting or caller makes it do without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from manglecp.store.errors import Refused, StoreError
from manglecp.store.instants import Clock, Instant, stamp
from manglecp.store.issues.events import (
    Add,
    AddDependency,
    Claim,
    Close,
    Discover,
    Event,
    FreeChange,
    GatedChange,
    Release,
    RemoveDependency,
    Renew,
    Update,
)
from manglecp.store.issues.folded import Folded
from manglecp.store.issues.limits import DEFAULT_TTL
from manglecp.store.issues.log import events, mutate, record, replay
from manglecp.store.issues.model import Issue, Lease
from manglecp.store.issues.tables import IssueStore, IssueTables
from manglecp.store.issues.transitions import found
from manglecp.store.issues.view import View

if TYPE_CHECKING:
    from manglecp.harness import MutationReady

__all__ = ["IssueMemory", "NewId"]

NewId: TypeAlias = Callable[[], str]
"""A fresh id; one that is taken is asked for again."""

_ATTEMPTS: Final = 8


class IssueMemory:
    """Issues behind a store, a clock and a source of ids."""

    def __init__(self, store: IssueStore, *, clock: Clock, new_id: NewId) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id

    # --- what needs no right ------------------------------------------------------------------------------------------

    def add(self, actor: str, change: Add, issue: str | None = None) -> Issue:
        """A new issue, under the given id or a fresh one."""
        with self._store.write_transaction() as tables:
            issue = self._fresh(tables) if issue is None else issue
            self._record(tables, actor, issue, change)
            return found(tables, issue)

    def claim(self, actor: str, issue: str, ttl: int = DEFAULT_TTL) -> Lease:
        """Become the only one who works on the issue, for ``ttl`` seconds."""
        with self._store.write_transaction() as tables:
            self._record(tables, actor, issue, Claim(ttl=ttl))
            return self._lease(tables, issue)

    def claim_next(self, actor: str, ttl: int = DEFAULT_TTL) -> Lease | None:
        """Claim the first issue that can be claimed; nothing if there is none."""
        with self._store.write_transaction() as tables:
            now = self._now()
            issue = next(iter(tables.frontier(now)), None)
            if issue is None:
                return None
            record(tables, at=now, actor=actor, issue=issue.id, change=Claim(ttl=ttl))
            return self._lease(tables, issue.id)

    def renew(self, actor: str, issue: str, fence: int, ttl: int = DEFAULT_TTL) -> Lease:
        """The lease, from now on for ``ttl`` seconds. Refused if the fence is not the current one."""
        with self._store.write_transaction() as tables:
            self._record(tables, actor, issue, Renew(fence=fence, ttl=ttl))
            return self._lease(tables, issue)

    def release(self, actor: str, issue: str, fence: int) -> Issue:
        """Give the issue back, for others to claim."""
        with self._store.write_transaction() as tables:
            self._record(tables, actor, issue, Release(fence=fence))
            return found(tables, issue)

    # --- what needs a right -------------------------------------------------------------------------------------------

    def update(self, ready: MutationReady, actor: str, issue: str, change: Update) -> Issue:
        """The issue as it is then. ``ready`` is spent by it."""
        return self._mutate(ready, actor, issue, change)

    def discover(self, ready: MutationReady, actor: str, change: Discover, issue: str | None = None) -> Issue:
        """A new issue, found while working on ``change.parent``."""
        return self._mutate(ready, actor, issue, change)

    def close(self, ready: MutationReady, actor: str, issue: str, change: Close) -> Issue:
        """The closed issue. ``ready`` is spent by it."""
        return self._mutate(ready, actor, issue, change)

    def add_dependency(self, ready: MutationReady, actor: str, issue: str, change: AddDependency) -> Issue:
        """The issue as it is then. Refused if the edge would close a circle. ``ready`` is spent by it."""
        return self._mutate(ready, actor, issue, change)

    def remove_dependency(self, ready: MutationReady, actor: str, issue: str, change: RemoveDependency) -> Issue:
        """The issue as it is then. ``ready`` is spent by it."""
        return self._mutate(ready, actor, issue, change)

    def _mutate(self, ready: MutationReady, actor: str, issue: str | None, change: GatedChange) -> Issue:
        with self._store.write_transaction() as tables:
            issue = self._fresh(tables) if issue is None else issue
            mutate(tables, ready, at=self._now(), actor=actor, issue=issue, change=change)
            return found(tables, issue)

    # --- questions ----------------------------------------------------------------------------------------------------

    @contextmanager
    def view(self, as_of: int | None = None) -> Iterator[View]:
        """The memory now, or as it was just after the event of this number."""
        with self._store.read_transaction() as tables:
            if as_of is None:
                yield View(tables, self._now())
                return
            if not 1 <= as_of <= tables.head().seq:
                raise Refused("event_unknown", f"there is no event {as_of}; the last one is {tables.head().seq}")
            past = Folded()
            now = ""
            for event in events(tables, upto=as_of):
                if wrong := replay(past, event):
                    raise StoreError(f"event {event.seq} cannot be replayed: {wrong[0]}")
                now = event.at
        yield View(past, now)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _record(self, tables: IssueTables, actor: str, issue: str, change: FreeChange) -> Event:
        return record(tables, at=self._now(), actor=actor, issue=issue, change=change)

    def _now(self) -> Instant:
        """Read inside the transaction: waiting for the lock makes no lease older than it is."""
        return stamp(self._clock())

    def _fresh(self, tables: IssueTables) -> str:
        for _ in range(_ATTEMPTS):
            issue = self._new_id()
            if tables.issue(issue) is None:
                return issue
        raise Refused("issue_exists", f"{_ATTEMPTS} fresh ids were all taken")

    def _lease(self, tables: IssueTables, issue: str) -> Lease:
        lease = tables.lease(issue)
        assert lease is not None  # it was just claimed or renewed
        return lease
