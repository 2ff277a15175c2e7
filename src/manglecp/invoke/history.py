"""A run as its journal has it, for the process that resumes it.

Only what is on record counts. A step that ended is not run again. One that was sent and has no end on record is
unknown: an idempotent action may be repeated, anything else waits for an operator, whose decision is recorded like an
outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from manglecp.base.digest import digest_bytes
from manglecp.intent import Step as ChainStep
from manglecp.invoke.calls import Call, Outcome, Status
from manglecp.invoke.plan import Plan
from manglecp.invoke.turns import Resumption
from manglecp.store import Claimed, Step, StepState
from manglecp.toolhost import Slots, apply_state

__all__ = ["History", "history_of"]

_STATUS: Mapping[StepState, Status] = {
    StepState.DONE: "done",
    StepState.FAILED: "failed",
    StepState.SKIPPED: "skipped",
    StepState.UNKNOWN: "unknown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The record of a run that another process began."""

    outcomes: tuple[Outcome, ...] = ()
    carried: tuple[Outcome, ...] = ()
    """Outcomes of the effects that the last witness permitted: rows of the next turn."""
    unfinished: tuple[Call, ...] = ()
    """Sent, without an outcome on record."""
    attempts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """How often each step (by kind and number) was attempted."""
    slots: Slots = field(default_factory=dict)
    cancelled: bool = False
    """Whether a client had cancelled it."""
    resumption: Resumption


def history_of(claimed: Claimed, plan: Plan, witnesses: Sequence[str]) -> History:
    """``witnesses`` are the ids of the run's turns so far, in their order."""
    last: dict[tuple[str, int], Step] = {}
    attempts: dict[tuple[str, int], int] = {}
    for step in claimed.steps:
        key = (step.kind, step.number)
        last[key] = step
        attempts[key] = max(attempts.get(key, 0), step.attempt)
    outcomes = [_outcome(claimed.run.run_id, step, plan) for step in last.values() if not _to_be_repeated(step)]
    unfinished = [
        call
        for step in last.values()
        if step.state == StepState.UNKNOWN and (call := _call(claimed.run.run_id, step, plan)) is not None
    ]
    latest = witnesses[-1] if witnesses else None
    return History(
        outcomes=tuple(outcomes),
        carried=tuple(one for one in outcomes if _is_new(one, last[one.kind, one.number], latest)),
        unfinished=tuple(unfinished),
        attempts=attempts,
        slots=_slots(claimed.values.slots),
        cancelled=claimed.run.cancel,
        resumption=Resumption(claimed.run.fence, tuple(witnesses)),
    )


def _to_be_repeated(step: Step) -> bool:
    """In doubt, or did not happen, as a person says."""
    return step.state in (StepState.UNKNOWN, StepState.STARTED) or (
        step.state == StepState.FAILED and step.decided_by is not None
    )


def _is_new(outcome: Outcome, step: Step, latest: str | None) -> bool:
    """Is it a row of no turn yet? Either the last turn permitted it, or a person has said since how it ended."""
    return outcome.call is not None and (step.decided_by is not None or (latest is not None and step.witness == latest))


def _outcome(run: str, step: Step, plan: Plan) -> Outcome:
    note: dict[str, Any] = {} if step.note is None else msgspec.json.decode(step.note)
    done = step.state == StepState.DONE
    output = msgspec.json.decode(step.output) if done and step.output is not None else None
    return Outcome(
        call=_call(run, step, plan),
        number=step.number,
        kind=step.kind,
        action=step.action,
        status=_STATUS[step.state],
        output=output,
        output_digest=step.output_digest or (digest_bytes(step.output or b"null") if done else None),
        code=step.code,
        why=note.get("why"),
        duration_ms=note.get("ms", 0),
        happened=note.get("happened", False),
        by=step.decided_by,
    )


def _call(run: str, step: Step, plan: Plan) -> Call | None:
    """None for a step that was never called."""
    if step.call_id is None or step.input_digest is None:
        return None
    of = plan.step(step.number)
    return Call(
        run=run,
        step=of if step.kind == "do" or of.undo is None else of.undo,
        number=step.number,
        kind=step.kind,
        attempt=step.attempt,
        action=plan.actions[step.action],
        input_json="" if step.input is None else step.input.decode(),
        input_digest=step.input_digest,
        sources=_sources(of) if step.kind == "do" else (step.number,),
        secret=step.input is None,
    )


def _sources(step: ChainStep) -> tuple[int, ...]:
    return tuple(sorted({one.step for one in step.arguments if one.step is not None}))


def _slots(kept: bytes | None) -> Slots:
    return {} if kept is None else apply_state(msgspec.json.decode(kept), {})
