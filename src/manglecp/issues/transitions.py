"""State transitions of issue memory: which change is admissible, its effect, and its authorisation.

The state is issues, edges and leases. An issue is open, in progress, blocked (by an update) or closed. It is in
progress exactly while it has a lease, so a claim is the only way into that status, and every transition out of it drops
the lease. Renewing a lease, and changing an issue in progress, require the fencing token of a live lease. Releasing an
expired lease requires its token, too. Any actor may claim an issue with an expired lease, and gets the next token. An
issue cannot be claimed while a blocking edge leads to an issue that is not closed, and blocking edges form no cycle.

Whether a lease is live is decided by the time of the change, so that a replay has the same result. All checks precede
the first write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec
from msgspec.structs import replace

from manglecp.base.digest import digest
from manglecp.issues import model
from manglecp.issues.tables import IssueTables
from manglecp.store import ChangeRefused, Invalid

if TYPE_CHECKING:
    from manglecp.harness import MutationReady


def apply_event(tables: IssueTables, event: model.IssueEvent) -> None:
    """Apply the change of an event. Raises :class:`Invalid` or :class:`ChangeRefused` and then changes nothing."""
    model.check_id(event.issue)
    model.check_line(event.actor, "actor")
    if not model.is_instant(event.at):
        raise Invalid("at", "it is not an instant in UTC with milliseconds, such as 2026-01-31T12:00:00.000Z")
    match event.change:
        case model.Add() as change:
            _add_issue(tables, event, change)
        case model.Discover() as change:
            get_issue(tables, change.parent)
            _add_issue(tables, event, change)
            tables.put_edge(model.Edge(event.issue, "discovered-from", change.parent))
        case model.Claim() as change:
            _claim(tables, event, change)
        case model.Renew() as change:
            _renew(tables, event, change)
        case model.Release() as change:
            _release(tables, event, change)
        case model.Update() as change:
            _update(tables, event, change)
        case model.Close() as change:
            _close(tables, event, change)
        case model.AddDependency() | model.RemoveDependency() as change:
            _change_edge(tables, event, change)
        case _ as never:
            assert_never(never)


def get_issue(tables: IssueTables, issue_id: str) -> model.Issue:
    """Return the issue. Raises :class:`ChangeRefused` if it does not exist."""
    model.check_id(issue_id)
    issue = tables.issue(issue_id)
    if issue is None:
        raise ChangeRefused("issue_unknown", f"issue {issue_id} does not exist")
    return issue


def snapshot_digest(tables: IssueTables, issue_id: str) -> str | None:
    """Return the digest of an issue and its edges, without the lease; None if the issue does not exist."""
    issue = tables.issue(issue_id)
    if issue is None:
        return None
    members: dict[str, Any] = msgspec.to_builtins(issue)
    return digest(members | {"edges": [[edge.type, edge.depends_on] for edge in tables.edges_from(issue_id)]})


def open_blockers(tables: IssueTables, issue_id: str) -> list[tuple[model.Edge, model.Issue]]:
    """Return the blocking edges from an issue to issues that are not closed, each with the issue that it leads to."""
    blockers = [(edge, get_issue(tables, edge.depends_on)) for edge in tables.edges_from(issue_id) if edge.is_blocking]
    return [(edge, target) for edge, target in blockers if target.status is not model.Status.CLOSED]


def _add_issue(tables: IssueTables, event: model.IssueEvent, change: model.Add | model.Discover) -> None:
    _check_fields({name: getattr(change, name) for name in ("title", "description", "priority", "labels")})
    if tables.issue(event.issue) is not None:
        raise ChangeRefused("issue_exists", f"issue {event.issue} exists already")
    tables.put_issue(
        model.Issue(
            id=event.issue,
            title=change.title,
            description=change.description,
            priority=change.priority,
            labels=change.labels,
            created_at=event.at,
            updated_at=event.at,
            added_by=event.seq,
        )
    )


def _check_fields(fields: Mapping[str, Any]) -> None:
    if "title" in fields:
        model.check_line(fields["title"], "title", model.MAX_TITLE_LENGTH)
    if "description" in fields:
        model.check_text(fields["description"], "description")
    if not 0 <= fields.get("priority", 0) <= model.LOWEST_PRIORITY:
        raise Invalid("priority", f"it is a number from 0, the most urgent, to {model.LOWEST_PRIORITY}")
    model.check_labels(fields.get("labels", ()))
    if fields.get("assignee") is not None:
        model.check_line(fields["assignee"], "assignee")


def _update(tables: IssueTables, event: model.IssueEvent, change: model.Update) -> None:
    issue = get_issue(tables, event.issue)
    _check_fence(tables, issue, change.fence, event.at)
    updates = {
        name: value
        for name in ("title", "description", "status", "priority", "labels", "assignee")
        if (value := getattr(change, name)) is not msgspec.UNSET
    }
    if not updates and not change.note:
        raise Invalid("update", "it changes nothing")
    _check_fields(updates)
    in_progress = issue.status is model.Status.IN_PROGRESS
    if change.status is not msgspec.UNSET:
        updates |= {"status": model.Status(change.status), "closed_at": None}  # open or blocked, see model.Update
    elif in_progress and "assignee" in updates:
        raise ChangeRefused("lease_contention_active", f"issue {issue.id} is assigned to the owner of its lease")
    notes = _append_note(issue, change.note)
    if in_progress and "status" in updates:
        tables.drop_lease(issue.id)
    tables.put_issue(replace(issue, notes=notes, updated_at=event.at, **updates))


def _close(tables: IssueTables, event: model.IssueEvent, change: model.Close) -> None:
    issue = get_issue(tables, event.issue)
    if issue.status is model.Status.CLOSED:
        raise ChangeRefused("issue_closed", f"issue {issue.id} is closed already")
    _check_fence(tables, issue, change.fence, event.at)
    notes = _append_note(issue, change.note)
    if issue.status is model.Status.IN_PROGRESS:
        tables.drop_lease(issue.id)
    tables.put_issue(replace(issue, status=model.Status.CLOSED, notes=notes, updated_at=event.at, closed_at=event.at))


def _append_note(issue: model.Issue, note: str) -> str:
    """Return the notes of the issue with a line added. Raises :class:`Invalid`."""
    notes = "\n".join(part for part in (issue.notes, note) if part)
    model.check_text(notes, "notes")
    return notes


def _claim(tables: IssueTables, event: model.IssueEvent, change: model.Claim) -> None:
    model.check_ttl(change.ttl)
    issue = get_issue(tables, event.issue)
    if issue.status in (model.Status.CLOSED, model.Status.BLOCKED):
        raise ChangeRefused(f"issue_{issue.status}", f"issue {issue.id} is {issue.status} and cannot be claimed")
    lease = tables.lease(issue.id)
    if lease is not None and lease.is_live(event.at):
        raise ChangeRefused("lease_contention_active", f"issue {issue.id} is leased until {lease.expires_at}")
    if blockers := open_blockers(tables, issue.id):
        names = ", ".join(sorted({blocker.id for _, blocker in blockers}))
        raise ChangeRefused("issue_waiting", f"issue {issue.id} waits for {names}")
    fence = issue.fence + 1
    status, expires_at = model.Status.IN_PROGRESS, model.add_seconds(event.at, change.ttl)
    tables.put_issue(replace(issue, status=status, assignee=event.actor, fence=fence, updated_at=event.at))
    tables.put_lease(
        model.Lease(issue=issue.id, owner=event.actor, fence=fence, acquired_at=event.at, expires_at=expires_at)
    )


def _renew(tables: IssueTables, event: model.IssueEvent, change: model.Renew) -> None:
    model.check_ttl(change.ttl)
    lease = _require_own_lease(tables, event, change.fence)
    if not lease.is_live(event.at):
        raise ChangeRefused("lease_stale", f"the lease on {event.issue} expired at {lease.expires_at}; claim it again")
    tables.put_lease(replace(lease, expires_at=model.add_seconds(event.at, change.ttl), renewed_at=event.at))


def _release(tables: IssueTables, event: model.IssueEvent, change: model.Release) -> None:
    """Drop the lease; an expired lease can be dropped until another actor claims the issue."""
    issue = get_issue(tables, event.issue)
    _require_own_lease(tables, event, change.fence)
    tables.drop_lease(issue.id)
    tables.put_issue(replace(issue, status=model.Status.OPEN, assignee=None, updated_at=event.at))


def _require_own_lease(tables: IssueTables, event: model.IssueEvent, fence: int) -> model.Lease:
    lease = tables.lease(get_issue(tables, event.issue).id)
    if lease is None:
        raise ChangeRefused("lease_not_found", f"issue {event.issue} has no lease")
    if lease.fence != fence:
        raise ChangeRefused("lease_id_mismatch", f"the lease on {event.issue} has another fencing token than {fence}")
    if lease.owner != event.actor:
        raise ChangeRefused("lease_owner_mismatch", f"another actor holds the lease on {event.issue}")
    return lease


def _check_fence(tables: IssueTables, issue: model.Issue, fence: int | None, at: model.Instant) -> None:
    """Refuse a change of an issue in progress without the fencing token of its live lease.

    A token for an issue without a lease is refused, too.
    """
    lease = tables.lease(issue.id)
    if lease is None:
        if fence is not None:
            raise ChangeRefused("lease_not_found", f"issue {issue.id} has no lease, but a fencing token was given")
    elif fence is None:
        raise ChangeRefused(
            "lease_contention_active",
            f"issue {issue.id} is in progress: give the fencing token of its lease, or claim it after its expiry",
        )
    elif fence != lease.fence:
        raise ChangeRefused("lease_id_mismatch", f"the lease on {issue.id} has another fencing token than {fence}")
    elif not lease.is_live(at):
        raise ChangeRefused("lease_stale", f"the lease on {issue.id} expired at {lease.expires_at}; claim it again")


def _change_edge(
    tables: IssueTables, event: model.IssueEvent, change: model.AddDependency | model.RemoveDependency
) -> None:
    issue = get_issue(tables, event.issue)
    if change.edge not in model.EDGE_TYPES:
        raise Invalid("edge", f"it is one of {', '.join(sorted(model.EDGE_TYPES))}")
    if get_issue(tables, change.depends_on).id == event.issue:
        raise ChangeRefused("dependency_cycle", f"{event.issue} cannot depend on itself")
    edge = model.Edge(event.issue, change.edge, change.depends_on)
    _check_fence(tables, issue, change.fence, event.at)
    edges = tables.edges_from(issue.id)
    if isinstance(change, model.RemoveDependency):
        if edge not in edges:
            raise ChangeRefused("dependency_unknown", f"{issue.id} has no edge {edge.type} to {edge.depends_on}")
        tables.drop_edge(edge)
    else:
        _check_new_edge(tables, edge, edges)
        tables.put_edge(edge)
    tables.put_issue(replace(issue, updated_at=event.at))


def _check_new_edge(tables: IssueTables, edge: model.Edge, edges: list[model.Edge]) -> None:
    """Raise :class:`ChangeRefused` if the edge cannot be added to ``edges``, the edges from the same issue."""
    if edge in edges:
        raise ChangeRefused("dependency_exists", f"{edge.issue} has the edge {edge.type} to {edge.depends_on} already")
    limit = model.MAX_EDGES_PER_ISSUE
    if len(edges) >= limit:
        raise ChangeRefused("dependency_limit", f"{edge.issue} has {limit} edges, and more are not allowed")
    if edge.is_blocking and (path_back := _find_path(tables, edge.depends_on, edge.issue)):
        cycle = " -> ".join([edge.issue, *path_back])
        raise ChangeRefused("dependency_cycle", f"the edge would close a cycle: {cycle}")


def _find_path(tables: IssueTables, start: str, end: str) -> list[str] | None:
    """Return the ids on a path along blocking edges, or None. Not recursive, because a path may have any length."""
    came_from: dict[str, str | None] = {start: None}
    for issue_id in (queue := [start]):  # the queue grows during the loop: breadth-first search
        if issue_id == end:
            path: list[str] = []
            current: str | None = end
            while current is not None:
                path.append(current)
                current = came_from[current]
            return path[::-1]
        for edge in tables.edges_from(issue_id):
            if edge.is_blocking and edge.depends_on not in came_from:
                came_from[edge.depends_on] = issue_id
                queue.append(edge.depends_on)
    return None


# The mutation of a ``MutationReady`` lists its ``inputRefs``. Exactly one of them, the subject, names the issue or edge
# that may be changed. The harness accepts an inputRef that comes from a result the turn consumed, or from an earlier
# join. For the subject a join is not enough: the turn itself must have read the issue. The forms of a subject:
#
#     issue://ID[@sha256:HEX]   for issue.update, issue.close, and issue.discover (ID is the parent); with the digest of
#                               a snapshot, the change is refused if the issue has changed since
#     dependency://ID/TYPE/ON   for dep.add and dep.remove: the edge of this type from ID to ON
#
# The authorisation is checked first and spent last, in the transaction: a refused change does not spend it.

MAX_RECORD_BYTES: Final = 65_536
_SIZED_FIELDS: Final = ("witness_id", "call_id", "mutation", "session_refs", "trajectory_refs")

_SUBJECT_SCHEMES: Final = ("issue://", "dependency://")
_PINNED_SUBJECT: Final = re.compile(rf"(issue://{model.ID_PATTERN})@(sha256:[0-9a-f]{{64}})")


def subject_ref(issue_id: str, change: model.GatedChange) -> str:
    """Return the subject, without a snapshot, that a mutation for this change must name."""
    model.check_id(issue_id)
    match change:
        case model.DependencyChange():
            model.check_id(change.depends_on, "depends_on")
            return f"dependency://{issue_id}/{change.edge}/{change.depends_on}"
        case model.Discover():
            model.check_id(change.parent, "parent")
            return f"issue://{change.parent}"
        case _:
            return f"issue://{issue_id}"


def read_authorisation(ready: MutationReady) -> model.MutationRecord:
    """Return the record of an authorisation, without ``before`` and ``after``. Raises ForgedState."""
    from manglecp.harness import ForgedState, MutationReady  # imported late: queries need no states of the harness

    if not isinstance(ready, MutationReady):
        raise ForgedState(f"a {type(ready).__name__} is not a MutationReady")
    judgement = ready.judgement  # raises ForgedState if the state is forged or spent
    evidence = judgement.turn.evidence
    assert evidence.mutation is not None  # a MutationReady has a mutation
    return model.MutationRecord(
        witness_id=judgement.witness_id,
        call_id=evidence.call_spec.call_id,
        mutation=evidence.mutation,
        session_refs=evidence.session_refs,
        trajectory_refs=evidence.trajectory_refs,
    )


def check_mutation(tables: IssueTables, record: model.MutationRecord, issue_id: str, change: model.GatedChange) -> None:
    """Raise :class:`ChangeRefused` if the record does not authorise this change, or has authorised another one."""
    mutation = record.mutation
    kind, action = required_mutation(change)
    if (mutation.kind, mutation.action) != (kind, action):
        raise ChangeRefused("mutation_other", f"the evidence does not authorise {action}")
    if tables.is_spent(record.witness_id, record.call_id):
        raise ChangeRefused("mutation_evidence_spent", "this evidence was used already; a turn mutates once")
    size = len(msgspec.json.encode([getattr(record, name) for name in _SIZED_FIELDS]))
    if size > MAX_RECORD_BYTES:
        raise ChangeRefused(
            "mutation_too_large", f"the evidence has {size:,} bytes; at most {MAX_RECORD_BYTES:,} are allowed"
        )
    subjects = [ref for ref in mutation.input_refs if ref.startswith(_SUBJECT_SCHEMES)]
    target = subject_ref(issue_id, change)
    if len(subjects) != 1:
        raise ChangeRefused(
            "mutation_subject_unclear",
            f"the mutation names {len(subjects)} issues and edges among its inputRefs; it has to name {target} alone",
        )
    pinned_subject = _PINNED_SUBJECT.fullmatch(subjects[0])
    subject, snapshot = pinned_subject.groups() if pinned_subject else (subjects[0], None)
    if subject != target:
        raise ChangeRefused("mutation_subject_other", f"the evidence does not authorise a change of {target}")
    if subjects[0] in mutation.join_witness_refs:
        raise ChangeRefused("mutation_subject_unread", f"no consumed result of the turn is about {target}")
    if snapshot is not None and snapshot != snapshot_digest(tables, target.removeprefix("issue://")):
        raise ChangeRefused("mutation_snapshot_changed", f"{target} has changed since the turn read it")


def spend_authorisation(ready: MutationReady, change: model.GatedChange) -> None:
    from manglecp.harness import redeem  # imported late, as in read_authorisation()

    redeem(ready, *required_mutation(change))


def required_mutation(change: model.GatedChange) -> tuple[str, str]:
    """Return the kind and the action of a mutation that authorises this change."""
    return ("dependency" if isinstance(change, model.DependencyChange) else "issue"), model.action_of(change)
