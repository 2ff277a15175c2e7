"""Which change is admissible, and what it does; the rules of issue memory are all in this module.

The state is issues, edges and leases. An issue is open, in progress, blocked (set aside by hand) or closed. It is in
progress exactly while it has a lease, so a claim is the only way into that status, and every way out drops the lease.
Renewing, releasing, and changing an issue in progress require the fencing token of a live lease. An expired lease can
be taken over by any worker; the takeover has the next token. An issue cannot be claimed while a blocking edge leads to
an issue that is not closed, and blocking edges form no cycle.

Leases are tested at the time of the change. Everything is checked before anything is written.
"""

from __future__ import annotations

from typing import Any, NamedTuple, assert_never

import msgspec

from manglecp.base.digest import digest
from manglecp.issues import model
from manglecp.issues.events import (
    Add,
    AddDependency,
    Change,
    Claim,
    Close,
    Discover,
    Release,
    RemoveDependency,
    Renew,
    Update,
)
from manglecp.issues.model import EDGE_TYPES, Edge, Instant, Issue, Lease, Status, is_instant, later
from manglecp.issues.tables import IssueTables
from manglecp.store import Invalid, Refused


class Step(NamedTuple):
    """A change with time and actor: an event that is not in the log yet."""

    seq: int
    at: Instant
    actor: str
    issue: str
    change: Change


def apply(tables: IssueTables, step: Step) -> None:
    """Apply a change. Raises :class:`Invalid` or :class:`Refused` and then changes nothing."""
    model.check_id(step.issue)
    model.check_name(step.actor, "actor")
    if not is_instant(step.at):
        raise Invalid("at", "it is no instant in UTC with milliseconds, such as 2026-01-31T12:00:00.000Z")
    match step.change:
        case Add() as change:
            _put_new(tables, step, change)
        case Discover() as change:
            found(tables, change.parent)
            _put_new(tables, step, change)
            tables.put_edge(Edge(step.issue, "discovered-from", change.parent))
        case Claim() as change:
            _claim(tables, step, change)
        case Renew() as change:
            _renew(tables, step, change)
        case Release() as change:
            _release(tables, step, change)
        case Update() as change:
            _update(tables, step, change)
        case Close() as change:
            _close(tables, step, change)
        case AddDependency() as change:
            _add_edge(tables, step, change)
        case RemoveDependency() as change:
            _remove_edge(tables, step, change)
        case _ as never:
            assert_never(never)


def found(tables: IssueTables, issue: str) -> Issue:
    """Return the issue. Raises :class:`Refused` if there is none."""
    model.check_id(issue)
    one = tables.issue(issue)
    if one is None:
        raise Refused("issue_unknown", f"there is no issue {issue}")
    return one


def snapshot(tables: IssueTables, issue: str) -> str | None:
    """Return the digest of an issue and its edges. A claim changes it, renewing a lease does not."""
    one = tables.issue(issue)
    if one is None:
        return None
    row: dict[str, Any] = msgspec.to_builtins(one)
    return digest(row | {"edges": [[edge.type, edge.depends_on] for edge in tables.edges_from(issue)]})


def blockers(tables: IssueTables, issue: str) -> list[tuple[Edge, Issue]]:
    """Return the blocking edges of the issue whose other end is not closed, with those issues."""
    ends = [(edge, found(tables, edge.depends_on)) for edge in tables.edges_from(issue) if edge.blocking]
    return [(edge, end) for edge, end in ends if end.status is not Status.CLOSED]


# --- issues -----------------------------------------------------------------------------------------------------------


def _put_new(tables: IssueTables, step: Step, change: Add | Discover) -> None:
    model.check_title(change.title)
    model.check_text(change.description, "description")
    model.check_priority(change.priority)
    model.check_labels(change.labels)
    if tables.issue(step.issue) is not None:
        raise Refused("issue_exists", f"there is an issue {step.issue} already")
    tables.put_issue(
        Issue(
            id=step.issue,
            title=change.title,
            description=change.description,
            priority=change.priority,
            labels=change.labels,
            created_at=step.at,
            updated_at=step.at,
            born=step.seq,
        )
    )


def _update(tables: IssueTables, step: Step, change: Update) -> None:
    issue = found(tables, step.issue)
    _check_fence(tables, issue, change.fence, step.at)
    given = {
        name: value
        for name in ("title", "description", "status", "priority", "labels", "assignee")
        if (value := getattr(change, name)) is not msgspec.UNSET
    }
    if not given and not change.note:
        raise Invalid("update", "it changes nothing")
    if change.title is not msgspec.UNSET:
        model.check_title(change.title)
    if change.description is not msgspec.UNSET:
        model.check_text(change.description, "description")
    if change.priority is not msgspec.UNSET:
        model.check_priority(change.priority)
    if change.labels is not msgspec.UNSET:
        model.check_labels(change.labels)
    if change.assignee is not msgspec.UNSET and change.assignee is not None:
        model.check_name(change.assignee, "assignee")
    if change.status is msgspec.UNSET:
        if "assignee" in given and issue.status is Status.IN_PROGRESS:
            raise Refused("lease_contention_active", f"issue {issue.id} is assigned to who holds its lease")
    else:
        given |= {"status": Status(change.status), "closed_at": None}
    notes = _with_note(issue, change.note)
    if issue.status is Status.IN_PROGRESS and "status" in given:
        tables.drop_lease(issue.id)
    tables.put_issue(msgspec.structs.replace(issue, notes=notes, updated_at=step.at, **given))


def _close(tables: IssueTables, step: Step, change: Close) -> None:
    issue = found(tables, step.issue)
    if issue.status is Status.CLOSED:
        raise Refused("issue_closed", f"issue {issue.id} is closed already")
    _check_fence(tables, issue, change.fence, step.at)
    notes = _with_note(issue, change.note)
    if issue.status is Status.IN_PROGRESS:
        tables.drop_lease(issue.id)
    tables.put_issue(
        msgspec.structs.replace(issue, status=Status.CLOSED, notes=notes, updated_at=step.at, closed_at=step.at)
    )


def _with_note(issue: Issue, note: str) -> str:
    notes = "\n".join(part for part in (issue.notes, note) if part)
    model.check_text(notes, "notes")
    return notes


# --- leases -----------------------------------------------------------------------------------------------------------


def _claim(tables: IssueTables, step: Step, change: Claim) -> None:
    model.check_ttl(change.ttl)
    issue = found(tables, step.issue)
    if issue.status in (Status.CLOSED, Status.BLOCKED):
        raise Refused(f"issue_{issue.status}", f"issue {issue.id} is {issue.status} and cannot be claimed")
    lease = tables.lease(issue.id)
    if lease is not None and lease.is_live(step.at):
        raise Refused("lease_contention_active", f"issue {issue.id} is leased until {lease.expires_at}")
    if waiting := blockers(tables, issue.id):
        names = ", ".join(sorted({end.id for _, end in waiting}))
        raise Refused("issue_waiting", f"issue {issue.id} waits for {names}")
    fence = issue.fence + 1
    tables.put_issue(
        msgspec.structs.replace(issue, status=Status.IN_PROGRESS, assignee=step.actor, fence=fence, updated_at=step.at)
    )
    tables.put_lease(
        Lease(
            issue=issue.id,
            owner=step.actor,
            fence=fence,
            acquired_at=step.at,
            expires_at=later(step.at, change.ttl),
        )
    )


def _renew(tables: IssueTables, step: Step, change: Renew) -> None:
    model.check_ttl(change.ttl)
    lease = _own_lease(tables, step, change.fence)
    if not lease.is_live(step.at):
        raise Refused("lease_stale", f"the lease on {step.issue} ran out at {lease.expires_at}; claim the issue again")
    tables.put_lease(msgspec.structs.replace(lease, expires_at=later(step.at, change.ttl), renewed_at=step.at))


def _release(tables: IssueTables, step: Step, change: Release) -> None:
    """Release the lease, also an expired one that was not taken over."""
    issue = found(tables, step.issue)
    _own_lease(tables, step, change.fence)
    tables.drop_lease(issue.id)
    tables.put_issue(msgspec.structs.replace(issue, status=Status.OPEN, assignee=None, updated_at=step.at))


def _own_lease(tables: IssueTables, step: Step, fence: int) -> Lease:
    lease = tables.lease(found(tables, step.issue).id)
    if lease is None:
        raise Refused("lease_not_found", f"issue {step.issue} has no lease")
    if lease.fence != fence:
        raise Refused("lease_id_mismatch", f"issue {step.issue} is leased under another fencing token than {fence}")
    if lease.owner != step.actor:
        raise Refused("lease_owner_mismatch", f"the lease on {step.issue} is held by somebody else")
    return lease


def _check_fence(tables: IssueTables, issue: Issue, fence: int | None, at: Instant) -> None:
    """Require the fencing token of the live lease for an issue in progress."""
    lease = tables.lease(issue.id)
    if lease is None:
        if fence is not None:
            raise Refused("lease_not_found", f"issue {issue.id} has no lease, and a fencing token was shown")
    elif fence is None:
        raise Refused(
            "lease_contention_active",
            f"issue {issue.id} is in progress: show the fencing token of its lease, or claim it once that has run out",
        )
    elif fence != lease.fence:
        raise Refused("lease_id_mismatch", f"issue {issue.id} is leased under another fencing token than {fence}")
    elif not lease.is_live(at):
        raise Refused("lease_stale", f"the lease on {issue.id} ran out at {lease.expires_at}; claim the issue again")


# --- edges ------------------------------------------------------------------------------------------------------------


def _add_edge(tables: IssueTables, step: Step, change: AddDependency) -> None:
    issue = found(tables, step.issue)
    edge = _edge(tables, step, change)
    _check_fence(tables, issue, change.fence, step.at)
    known = tables.edges_from(issue.id)
    if edge in known:
        raise Refused("dependency_exists", f"{issue.id} has the edge {edge.type} to {edge.depends_on} already")
    if len(known) >= model.MOST_EDGES:
        raise Refused("dependency_limit", f"{issue.id} has {model.MOST_EDGES} edges, and more are not allowed")
    if edge.blocking and (cycle := _path(tables, edge.depends_on, issue.id)):
        raise Refused("dependency_cycle", f"it would close a cycle: {' -> '.join([issue.id, *cycle])}")
    tables.put_edge(edge)
    tables.put_issue(msgspec.structs.replace(issue, updated_at=step.at))


def _remove_edge(tables: IssueTables, step: Step, change: RemoveDependency) -> None:
    issue = found(tables, step.issue)
    edge = _edge(tables, step, change)
    _check_fence(tables, issue, change.fence, step.at)
    if edge not in tables.edges_from(issue.id):
        raise Refused("dependency_unknown", f"{issue.id} has no edge {edge.type} to {edge.depends_on}")
    tables.drop_edge(edge)
    tables.put_issue(msgspec.structs.replace(issue, updated_at=step.at))


def _edge(tables: IssueTables, step: Step, change: AddDependency | RemoveDependency) -> Edge:
    if change.edge not in EDGE_TYPES:
        raise Invalid("edge", f"it is one of {', '.join(sorted(EDGE_TYPES))}")
    if found(tables, change.depends_on).id == step.issue:
        raise Refused("dependency_cycle", f"{step.issue} cannot depend on itself")
    return Edge(step.issue, change.edge, change.depends_on)


def _path(tables: IssueTables, start: str, end: str) -> list[str] | None:
    """Return a path along blocking edges; iterative, because chains have any length."""
    came_from: dict[str, str | None] = {start: None}
    for here in (work := [start]):
        if here == end:
            way: list[str] = []
            step: str | None = here
            while step is not None:
                way.append(step)
                step = came_from[step]
            return way[::-1]
        for edge in tables.edges_from(here):
            if edge.blocking and edge.depends_on not in came_from:
                came_from[edge.depends_on] = here
                work.append(edge.depends_on)
    return None
