"""The rules of issue memory: which change is admissible, and its effect.

The state is issues, edges and leases. An issue is open, in progress, blocked (set aside by hand) or closed. It is in
progress exactly while it has a lease, so a claim is the only way into that status, and every way out drops the lease.
Renewing, releasing, and changing an issue in progress require the fencing token of a live lease. An expired lease can
be taken over by any worker; the takeover has the next token. An issue cannot be claimed while a blocking edge leads to
an issue that is not closed, and blocking edges form no cycle.

Leases are tested at the time of the change. All checks precede the first write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

import msgspec

from manglecp.base.digest import digest
from manglecp.harness import Mutation as Intent
from manglecp.issues import model
from manglecp.issues.model import (
    EDGE_TYPES,
    ID,
    Add,
    AddDependency,
    Change,
    Claim,
    Close,
    DependencyChange,
    Discover,
    Edge,
    GatedChange,
    Instant,
    Issue,
    Lease,
    Release,
    RemoveDependency,
    Renew,
    Status,
    Update,
    action_of,
    add_seconds,
    check_id,
    is_instant,
)
from manglecp.issues.tables import IssueTables
from manglecp.store import ChangeRefused, Invalid

if TYPE_CHECKING:
    from manglecp.harness import MutationReady


class ProposedEvent(NamedTuple):
    """A change with time and actor: an event that is not in the log yet."""

    seq: int
    at: Instant
    actor: str
    issue: str
    change: Change


def apply_event(tables: IssueTables, step: ProposedEvent) -> None:
    """Apply a change. Raises :class:`Invalid` or :class:`ChangeRefused` and then changes nothing."""
    model.check_id(step.issue)
    model.check_name(step.actor, "actor")
    if not is_instant(step.at):
        raise Invalid("at", "it is not an instant in UTC with milliseconds, such as 2026-01-31T12:00:00.000Z")
    match step.change:
        case Add() as change:
            _put_new(tables, step, change)
        case Discover() as change:
            get_issue(tables, change.parent)
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
        case AddDependency() | RemoveDependency() as change:
            _change_edge(tables, step, change)
        case _ as never:
            assert_never(never)


def get_issue(tables: IssueTables, issue: str) -> Issue:
    """Return the issue. Raises :class:`ChangeRefused` if it does not exist."""
    model.check_id(issue)
    one = tables.issue(issue)
    if one is None:
        raise ChangeRefused("issue_unknown", f"issue {issue} does not exist")
    return one


def snapshot_digest(tables: IssueTables, issue: str) -> str | None:
    """Return the digest of an issue and its edges. A claim changes it, renewing a lease does not."""
    one = tables.issue(issue)
    if one is None:
        return None
    row: dict[str, Any] = msgspec.to_builtins(one)
    return digest(row | {"edges": [[edge.type, edge.depends_on] for edge in tables.edges_from(issue)]})


def open_blockers(tables: IssueTables, issue: str) -> list[tuple[Edge, Issue]]:
    """Return the blocking edges of the issue whose other end is not closed, with those issues."""
    ends = [(edge, get_issue(tables, edge.depends_on)) for edge in tables.edges_from(issue) if edge.blocking]
    return [(edge, end) for edge, end in ends if end.status is not Status.CLOSED]


def _put_new(tables: IssueTables, step: ProposedEvent, change: Add | Discover) -> None:
    _check_members({name: getattr(change, name) for name in ("title", "description", "priority", "labels")})
    if tables.issue(step.issue) is not None:
        raise ChangeRefused("issue_exists", f"issue {step.issue} exists already")
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


_LIMITS: Final[dict[str, Callable[[Any], None]]] = {
    "title": model.check_title,
    "description": lambda text: model.check_text(text, "description"),
    "priority": model.check_priority,
    "labels": model.check_labels,
    "assignee": lambda name: None if name is None else model.check_name(name, "assignee"),
}


def _check_members(members: Mapping[str, Any]) -> None:
    for name, check in _LIMITS.items():
        if name in members:
            check(members[name])


def _update(tables: IssueTables, step: ProposedEvent, change: Update) -> None:
    issue = get_issue(tables, step.issue)
    _check_fence(tables, issue, change.fence, step.at)
    members = {
        name: value
        for name in ("title", "description", "status", "priority", "labels", "assignee")
        if (value := getattr(change, name)) is not msgspec.UNSET
    }
    if not members and not change.note:
        raise Invalid("update", "it changes nothing")
    _check_members(members)
    if change.status is msgspec.UNSET:
        if "assignee" in members and issue.status is Status.IN_PROGRESS:
            raise ChangeRefused("lease_contention_active", f"issue {issue.id} is assigned to the owner of its lease")
    else:
        members |= {"status": Status(change.status), "closed_at": None}
    notes = _append_note(issue, change.note)
    if issue.status is Status.IN_PROGRESS and "status" in members:
        tables.drop_lease(issue.id)
    tables.put_issue(msgspec.structs.replace(issue, notes=notes, updated_at=step.at, **members))


def _close(tables: IssueTables, step: ProposedEvent, change: Close) -> None:
    issue = get_issue(tables, step.issue)
    if issue.status is Status.CLOSED:
        raise ChangeRefused("issue_closed", f"issue {issue.id} is closed already")
    _check_fence(tables, issue, change.fence, step.at)
    notes = _append_note(issue, change.note)
    if issue.status is Status.IN_PROGRESS:
        tables.drop_lease(issue.id)
    tables.put_issue(
        msgspec.structs.replace(issue, status=Status.CLOSED, notes=notes, updated_at=step.at, closed_at=step.at)
    )


def _append_note(issue: Issue, note: str) -> str:
    notes = "\n".join(part for part in (issue.notes, note) if part)
    model.check_text(notes, "notes")
    return notes


def _claim(tables: IssueTables, step: ProposedEvent, change: Claim) -> None:
    model.check_ttl(change.ttl)
    issue = get_issue(tables, step.issue)
    if issue.status in (Status.CLOSED, Status.BLOCKED):
        raise ChangeRefused(f"issue_{issue.status}", f"issue {issue.id} is {issue.status} and cannot be claimed")
    lease = tables.lease(issue.id)
    if lease is not None and lease.is_live(step.at):
        raise ChangeRefused("lease_contention_active", f"issue {issue.id} is leased until {lease.expires_at}")
    if waiting := open_blockers(tables, issue.id):
        names = ", ".join(sorted({end.id for _, end in waiting}))
        raise ChangeRefused("issue_waiting", f"issue {issue.id} waits for {names}")
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
            expires_at=add_seconds(step.at, change.ttl),
        )
    )


def _renew(tables: IssueTables, step: ProposedEvent, change: Renew) -> None:
    model.check_ttl(change.ttl)
    lease = _require_own_lease(tables, step, change.fence)
    if not lease.is_live(step.at):
        raise ChangeRefused("lease_stale", f"the lease on {step.issue} expired at {lease.expires_at}; claim it again")
    tables.put_lease(msgspec.structs.replace(lease, expires_at=add_seconds(step.at, change.ttl), renewed_at=step.at))


def _release(tables: IssueTables, step: ProposedEvent, change: Release) -> None:
    """Release the lease, also an expired one that was not taken over."""
    issue = get_issue(tables, step.issue)
    _require_own_lease(tables, step, change.fence)
    tables.drop_lease(issue.id)
    tables.put_issue(msgspec.structs.replace(issue, status=Status.OPEN, assignee=None, updated_at=step.at))


def _require_own_lease(tables: IssueTables, step: ProposedEvent, fence: int) -> Lease:
    lease = tables.lease(get_issue(tables, step.issue).id)
    if lease is None:
        raise ChangeRefused("lease_not_found", f"issue {step.issue} has no lease")
    if lease.fence != fence:
        raise ChangeRefused(
            "lease_id_mismatch", f"issue {step.issue} is leased under another fencing token than {fence}"
        )
    if lease.owner != step.actor:
        raise ChangeRefused("lease_owner_mismatch", f"another worker holds the lease on {step.issue}")
    return lease


def _check_fence(tables: IssueTables, issue: Issue, fence: int | None, at: Instant) -> None:
    """Require the fencing token of the live lease for an issue in progress."""
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
        raise ChangeRefused("lease_id_mismatch", f"issue {issue.id} is leased under another fencing token than {fence}")
    elif not lease.is_live(at):
        raise ChangeRefused("lease_stale", f"the lease on {issue.id} expired at {lease.expires_at}; claim it again")


def _change_edge(tables: IssueTables, step: ProposedEvent, change: AddDependency | RemoveDependency) -> None:
    issue = get_issue(tables, step.issue)
    if change.edge not in EDGE_TYPES:
        raise Invalid("edge", f"it is one of {', '.join(sorted(EDGE_TYPES))}")
    if get_issue(tables, change.depends_on).id == step.issue:
        raise ChangeRefused("dependency_cycle", f"{step.issue} cannot depend on itself")
    edge = Edge(step.issue, change.edge, change.depends_on)
    _check_fence(tables, issue, change.fence, step.at)
    edges = tables.edges_from(issue.id)
    if isinstance(change, RemoveDependency):
        if edge not in edges:
            raise ChangeRefused("dependency_unknown", f"{issue.id} has no edge {edge.type} to {edge.depends_on}")
        tables.drop_edge(edge)
    else:
        _check_new_edge(tables, edge, edges)
        tables.put_edge(edge)
    tables.put_issue(msgspec.structs.replace(issue, updated_at=step.at))


def _check_new_edge(tables: IssueTables, edge: Edge, edges: list[Edge]) -> None:
    if edge in edges:
        raise ChangeRefused("dependency_exists", f"{edge.issue} has the edge {edge.type} to {edge.depends_on} already")
    if len(edges) >= model.MOST_EDGES:
        raise ChangeRefused("dependency_limit", f"{edge.issue} has {model.MOST_EDGES} edges, and more are not allowed")
    if edge.blocking and (cycle := _find_path(tables, edge.depends_on, edge.issue)):
        raise ChangeRefused("dependency_cycle", f"the edge would close a cycle: {' -> '.join([edge.issue, *cycle])}")


def _find_path(tables: IssueTables, start: str, end: str) -> list[str] | None:
    """Return a path along blocking edges; iterative, because chains have any length."""
    came_from: dict[str, str | None] = {start: None}
    for issue in (pending := [start]):
        if issue == end:
            path: list[str] = []
            step: str | None = issue
            while step is not None:
                path.append(step)
                step = came_from[step]
            return path[::-1]
        for edge in tables.edges_from(issue):
            if edge.blocking and edge.depends_on not in came_from:
                came_from[edge.depends_on] = issue
                pending.append(edge.depends_on)
    return None


# The ``inputRefs`` of the turn's mutation name what a ``MutationReady`` authorises. The gate passes an input only if a
# consumed result or an earlier join carries it. The input that names the subject may not be a join, so it proves that
# the turn read this issue. Exactly one is allowed; other inputs may stand beside it:
#
#     issue://ID[@sha256:HEX]   issue.update, issue.close, issue.discover (ID is the parent); pinned to a snapshot
#     dependency://ID/TYPE/ON   dep.add, dep.remove: the edge of this type from ID to ON
#
# The right is checked first and spent last, in the transaction: a refusal does not use it up.

LARGEST_EVIDENCE: Final = 65_536

_SUBJECTS: Final = ("issue://", "dependency://")
_PINNED: Final = re.compile(rf"(issue://{ID})@(sha256:[0-9a-f]{{64}})")


class MutationEvidence(NamedTuple):
    """The evidence of a turn that mutated an issue."""

    witness_id: str
    call_id: str
    intent: Intent
    session_refs: tuple[str, ...]
    trajectory_refs: tuple[str, ...]


def subject_ref(issue: str, change: GatedChange) -> str:
    """Return the input that an intent for this change has."""
    check_id(issue)
    match change:
        case DependencyChange():
            check_id(change.depends_on, "depends_on")
            return f"dependency://{issue}/{change.edge}/{change.depends_on}"
        case Discover():
            check_id(change.parent, "parent")
            return f"issue://{change.parent}"
        case _:
            return f"issue://{issue}"


def read_evidence(ready: MutationReady) -> MutationEvidence:
    from manglecp.harness import ForgedState, MutationReady  # queries do not load the harness

    if not isinstance(ready, MutationReady):
        raise ForgedState(f"a {type(ready).__name__} is not a MutationReady")
    judgement = ready.judgement  # raises ForgedState
    turn = judgement.turn.evidence
    assert turn.mutation is not None  # a MutationReady has a mutation
    call_id = judgement.turn.call.call_id
    return MutationEvidence(judgement.witness_id, call_id, turn.mutation, turn.session_refs, turn.trajectory_refs)


def check_intent(tables: IssueTables, evidence: MutationEvidence, issue: str, change: GatedChange) -> None:
    """Refuse evidence that does not authorise this change, or was used for another."""
    intent = evidence.intent
    kind, action = _required_intent(change)
    if (intent.kind, intent.action) != (kind, action):
        raise ChangeRefused("mutation_other", f"the evidence does not authorise {action}")
    if tables.is_spent(evidence.witness_id, evidence.call_id):
        raise ChangeRefused("mutation_evidence_spent", "this evidence was used already; a turn mutates once")
    size = len(msgspec.json.encode(evidence))
    if size > LARGEST_EVIDENCE:
        raise ChangeRefused(
            "mutation_too_large", f"the intent has {size:,} bytes, and {LARGEST_EVIDENCE:,} are allowed"
        )
    subjects = [ref for ref in intent.input_refs if ref.startswith(_SUBJECTS)]
    required = subject_ref(issue, change)
    if len(subjects) != 1:
        raise ChangeRefused(
            "mutation_subject_unclear",
            f"the intent names {len(subjects)} issues and edges among its inputRefs; it has to name {required} alone",
        )
    pinned = _PINNED.fullmatch(subjects[0])
    if (pinned[1] if pinned else subjects[0]) != required:
        raise ChangeRefused("mutation_subject_other", f"the evidence does not authorise a change of {required}")
    if subjects[0] in intent.join_witness_refs:
        raise ChangeRefused("mutation_subject_unread", f"no consumed result of the turn is about {required}")
    if pinned and pinned[2] != snapshot_digest(tables, required.removeprefix("issue://")):
        raise ChangeRefused("mutation_snapshot_changed", f"{required} has changed since the turn read it")


def spend_right(ready: MutationReady, change: GatedChange) -> None:
    from manglecp.harness import redeem  # as above

    redeem(ready, *_required_intent(change))


def _required_intent(change: GatedChange) -> tuple[str, str]:
    return ("dependency" if isinstance(change, DependencyChange) else "issue"), action_of(change)
