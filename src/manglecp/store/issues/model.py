"""Issues, edges, leases, mutations: what is the case. Values that do not change."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from manglecp.harness import Mutation as Intent
from manglecp.store.instants import Instant

__all__ = ["BLOCKING", "EDGE_TYPES", "Edge", "Issue", "Lease", "Mutation", "Status"]


class Status(StrEnum):
    """Where an issue stands."""

    OPEN = "open"
    IN_PROGRESS = "in_progress"
    """Somebody holds a lease. This is the only status with a lease, and a claim the only way into it."""
    BLOCKED = "blocked"
    """Set aside by hand. An issue that waits for others is open; the edges say what it waits for."""
    CLOSED = "closed"


BLOCKING: Final = frozenset({"blocks", "parent-child", "conditional-blocks", "waits-for"})
"""While the other issue is not closed, this one cannot be claimed. These edges form no cycle."""

EDGE_TYPES: Final = BLOCKING | {"related", "discovered-from", "relates-to", "duplicates", "supersedes", "replies-to"}


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work, as the events up to now have made it."""

    id: str
    title: str
    description: str = ""
    status: Status = Status.OPEN
    priority: int
    labels: tuple[str, ...] = ()
    assignee: str | None = None
    notes: str = ""
    created_at: Instant
    updated_at: Instant
    closed_at: Instant | None = None
    born: int
    """The number of the event that added it. Among issues of one priority the elder is first."""
    fence: int = 0
    """How often it was claimed."""


class Edge(msgspec.Struct, frozen=True, order=True):
    """``issue`` depends on ``depends_on``."""

    issue: str
    type: str
    depends_on: str

    @property
    def blocking(self) -> bool:
        """Does the issue have to wait until the other one is closed?"""
        return self.type in BLOCKING


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right of one worker to be the only one on an issue, for a time."""

    issue: str
    owner: str
    fence: int
    """The fencing token: which claim of the issue this is. A holder who was robbed shows an old one."""
    acquired_at: Instant
    expires_at: Instant
    renewed_at: Instant | None = None

    @property
    def lease_id(self) -> str:
        """Made of the issue and the fence; a later lease on the same issue has another one."""
        return f"lease1_{self.issue}_{self.fence}"

    def is_live(self, now: Instant) -> bool:
        """Has it not run out by then?"""
        return now < self.expires_at


class Mutation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a change was allowed: the evidence, what it was a right to, and what the change did."""

    witness_id: str
    """Of the turn, as it is told."""
    call_id: str | msgspec.UnsetType = msgspec.UNSET
    """Of the turn, however it is told: one turn mutates once. Events of older memories do not have it."""
    intent: Intent
    """The mutation that was authorised: action, inputs, instruction, claims."""
    session_refs: tuple[str, ...]
    trajectory_refs: tuple[str, ...]
    """Where the turn is told in full."""
    before: str | None
    """Digest of the issue's snapshot; null where there was no issue yet."""
    after: str
