"""From a change to a row of the log, and back: the only ways in which the tables change.

To *record* a change is to carry it out and to append the event that says so; to *mutate* is the same for a change that
needs a right, and takes it. To *replay* an event is to carry out the same change again and to compare: equal events,
hashes and snapshots included, are the proof that the log means what it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from manglecp.store.errors import Refused, StoreError, Unusable
from manglecp.store.instants import Instant
from manglecp.store.issues.events import Change, Event, FreeChange, GatedChange, action_of, read_event
from manglecp.store.issues.model import Mutation
from manglecp.store.issues.rights import Evidence, check_intent, evidence_of, spend
from manglecp.store.issues.tables import IssueTables
from manglecp.store.issues.transitions import Step, apply, snapshot

if TYPE_CHECKING:
    from manglecp.harness import MutationReady

__all__ = ["events", "mutate", "record", "replay"]


def events(tables: IssueTables, *, issue: str | None = None, upto: int | None = None) -> Iterator[Event]:
    """The events in their order. For who relies on them: a row that is none any more is :class:`.Unusable`."""
    for line in tables.lines(issue=issue, upto=upto):
        try:
            event = read_event(line.row)
        except ValueError:
            raise Unusable(f"event {line.seq} is damaged; `manglecp issue verify` says how") from None
        yield event


def record(tables: IssueTables, *, at: Instant, actor: str, issue: str, change: FreeChange) -> Event:
    """Carry out a change that needs no right, and append its event."""
    event = _carry_out(tables, at, actor, issue, change, None)
    _append(tables, event)
    return event


def mutate(
    tables: IssueTables, ready: MutationReady, *, at: Instant, actor: str, issue: str, change: GatedChange
) -> Event:
    """Carry out a change that somebody has a right to, append its event with the evidence, and spend the right."""
    event = _carry_out(tables, at, actor, issue, change, evidence_of(ready))
    _append(tables, event)
    # Last, and before the commit: a refusal above leaves the right as it was, and of two threads that hold the same
    # right the second is refused here and takes everything back. If the commit fails, this process has lost the right
    # and the evidence is as good as before.
    spend(ready, change)
    return event


def replay(tables: IssueTables, event: Event) -> list[str]:
    """Carry out the change of an event and append the event as it is; everything that is wrong with it."""
    wrong: list[str] = []
    evidence = None
    if (known := event.mutation) is not None:
        evidence = Evidence(known.witness_id, known.call_id, known.intent, known.session_refs, known.trajectory_refs)
    try:
        again = _carry_out(tables, event.at, event.actor, event.issue, event.change, evidence)
    except StoreError as error:
        wrong.append(str(error))
    else:
        wrong += [
            f"{name} is not what follows from the events before it"
            for name in ("seq", "prev_hash", "mutation")
            if getattr(again, name) != getattr(event, name)
        ]
    if event.computed_hash() != event.row_hash:
        wrong.append("row_hash is not the hash of the row")
    _append(tables, event)
    return wrong


def _carry_out(
    tables: IssueTables, at: Instant, actor: str, issue: str, change: Change, evidence: Evidence | None
) -> Event:
    # Not left to the types of the callers: the change decides whether it needs a right, whichever way it came.
    if isinstance(change, get_args(GatedChange)):
        if evidence is None:
            raise Refused("mutation_missing", f"{action_of(change)} has no mutation that allowed it")
        check_intent(tables, evidence, issue, change)
    elif evidence is not None:
        raise Refused("mutation_other", f"{action_of(change)} needs no mutation and has one")
    head = tables.head()
    before = None if evidence is None else snapshot(tables, issue)
    apply(tables, Step(head.seq + 1, at, actor, issue, change))
    mutation = None
    if evidence is not None:
        after = snapshot(tables, issue)
        assert after is not None  # what was mutated is there
        mutation = Mutation(**evidence._asdict(), before=before, after=after)
    return Event.following(head, at=at, actor=actor, issue=issue, change=change, mutation=mutation)


def _append(tables: IssueTables, event: Event) -> None:
    tables.append(event)
    if event.mutation is not None:
        tables.put_mutation(event.seq, event.issue, event.mutation)
