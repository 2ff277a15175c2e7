"""The change that a ``MutationReady`` authorises: the ``inputRefs`` of the turn's mutation name it.

The gate passes an input only if a consumed result or an earlier join carries it, and every input is in the evidence
digest. The input that names the subject may not be a join, so it proves that the turn read this issue. Exactly one is
allowed; other inputs may stand beside it:

    issue://ID[@sha256:HEX]   issue.update, issue.close, issue.discover (ID is the parent); pinned to a snapshot
    dependency://ID/TYPE/ON   dep.add, dep.remove: the edge of this type from ID to ON

The right is checked first and spent last, in the transaction: a refusal does not use it up. Its turn is spent for good.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from manglecp.harness import Mutation as Intent
from manglecp.issues.events import AddDependency, Discover, GatedChange, RemoveDependency, action_of
from manglecp.issues.model import ID, check_id
from manglecp.issues.tables import IssueTables
from manglecp.issues.transitions import snapshot
from manglecp.store import Refused

if TYPE_CHECKING:
    from manglecp.harness import MutationReady

LARGEST_EVIDENCE: Final = 65_536

_SUBJECTS: Final = ("issue://", "dependency://")
_PINNED: Final = re.compile(rf"(issue://{ID})@(sha256:[0-9a-f]{{64}})")


class Evidence(NamedTuple):
    """The evidence of a turn that mutated an issue."""

    witness_id: str
    call_id: str | msgspec.UnsetType
    intent: Intent
    session_refs: tuple[str, ...]
    trajectory_refs: tuple[str, ...]


def subject(issue: str, change: GatedChange) -> str:
    """Return the input that an intent for this change has."""
    check_id(issue)
    match change:
        case AddDependency() | RemoveDependency():
            check_id(change.depends_on, "depends_on")
            return f"dependency://{issue}/{change.edge}/{change.depends_on}"
        case Discover():
            check_id(change.parent, "parent")
            return f"issue://{change.parent}"
        case _:
            return f"issue://{issue}"


def evidence_of(ready: MutationReady) -> Evidence:
    """Return the evidence of a right without spending it."""
    from manglecp.harness import Forged, MutationReady  # queries do not load the harness

    if not isinstance(ready, MutationReady):
        raise Forged(f"a {type(ready).__name__} is no MutationReady")
    judgement = ready.judgement  # of a forged right there is none
    turn = judgement.turn.evidence
    assert turn.mutation is not None  # or there were no right
    call_id = judgement.turn.call.call_id
    return Evidence(judgement.witness_id, call_id, turn.mutation, turn.session_refs, turn.trajectory_refs)


def check_intent(tables: IssueTables, evidence: Evidence, issue: str, change: GatedChange) -> None:
    """Refuse evidence that does not authorise this change, or was used for another."""
    intent = evidence.intent
    kind, action = _demanded(change)
    if (intent.kind, intent.action) != (kind, action):
        raise Refused("mutation_other", f"the evidence is no right to {action}")
    if tables.is_spent(evidence.witness_id, evidence.call_id):
        raise Refused("mutation_evidence_spent", "this evidence has mutated something already; a turn mutates once")
    _check_size(evidence)
    named = [ref for ref in intent.input_refs if ref.startswith(_SUBJECTS)]
    demanded = subject(issue, change)
    if len(named) != 1:
        raise Refused(
            "mutation_subject_unclear",
            f"the intent names {len(named)} issues and edges among its inputRefs; it has to name {demanded} alone",
        )
    pinned = _PINNED.fullmatch(named[0])
    if (pinned[1] if pinned else named[0]) != demanded:
        raise Refused("mutation_subject_other", f"the evidence is no right to {demanded}")
    if named[0] in intent.join_witness_refs:
        raise Refused("mutation_subject_unread", f"no consumed result of the turn is about {demanded}")
    if pinned and pinned[2] != snapshot(tables, demanded.removeprefix("issue://")):
        raise Refused("mutation_snapshot_changed", f"{demanded} is not what it was when the turn looked at it")


def spend(ready: MutationReady, change: GatedChange) -> None:
    from manglecp.harness import redeem  # as above

    redeem(ready, *_demanded(change))


def _demanded(change: GatedChange) -> tuple[str, str]:
    return ("dependency" if isinstance(change, AddDependency | RemoveDependency) else "issue"), action_of(change)


def _check_size(evidence: Evidence) -> None:
    size = len(msgspec.json.encode((evidence.witness_id, *evidence[2:])))  # older evidence has no call
    if size > LARGEST_EVIDENCE:
        raise Refused("mutation_too_large", f"the intent has {size:,} bytes, and {LARGEST_EVIDENCE:,} are allowed")
