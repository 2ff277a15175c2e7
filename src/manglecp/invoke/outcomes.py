"""How steps end without having run, and what of all that ended still stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from manglecp.intent import Step
from manglecp.invoke.calls import Call, Effect, EffectStatus, NoCall, Outcome, Status
from manglecp.invoke.plan import Plan
from manglecp.invoke.turns import GateRefused

__all__ = [
    "at_last",
    "effects_of",
    "in_doubt",
    "may_stand",
    "no_call",
    "refused",
    "secret_lost",
    "skipped",
    "states_of",
    "stuck_at",
]


def effects_of(outcomes: Sequence[Outcome]) -> tuple[Effect, ...]:
    """What happened, or may have, in the order in which it did."""
    undoing: dict[int, Status] = {}
    done: list[tuple[Outcome, Call]] = []
    for one in outcomes:
        if one.kind == "undo":
            undoing[one.number] = one.status
        elif one.call is not None and one.call.is_effect and may_stand(one):
            done.append((one, one.call))
    return tuple(
        [
            Effect(
                step=one.number,
                action=one.action,
                status=standing(one, undoing.get(one.number)),
                lasting=not isinstance(call.step, Step) or call.step.lasting,
            )
            for one, call in done
        ]
    )


def may_stand(outcome: Outcome) -> bool:
    """Did it happen, or might it have?"""
    return outcome.status in ("done", "unknown") or outcome.happened


def standing(outcome: Outcome, undoing: Status | None) -> EffectStatus:
    if undoing == "done":
        return "undone"
    return "unknown" if "unknown" in (outcome.status, undoing) else "done"


def states_of(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """How each step ended, for the view of the run that a turn shows."""
    return {f"{one.kind} {one.number}": one.status for one in outcomes}


def skipped(step: Step, why: str) -> Outcome:
    """Of a step that is left out, and why."""
    return Outcome(call=None, number=step.number, action=step.action, status="skipped", why=why)


def no_call(number: int, kind: Literal["do", "undo"], action: str, trouble: NoCall) -> Outcome:
    """Of a step for which no call could be made."""
    return Outcome(
        call=None, number=number, kind=kind, action=action, status="failed", code=trouble.code, detail=str(trouble)
    )


def stuck_at(plan: Plan, outcomes: Sequence[Outcome], code: str) -> Outcome:
    """The step that is not got over: the next one, or the last where all are settled."""
    step = next(iter(plan.ready({one.number for one in outcomes if one.kind == "do"})), plan.definition.steps[-1])
    return Outcome(call=None, number=step.number, action=step.action, status="failed", code=code)


def secret_lost(step: Step) -> Outcome:
    """Of a step that needs a secret which went with the process that had it."""
    return Outcome(call=None, number=step.number, action=step.action, status="failed", code="secret_lost")


def in_doubt(call: Call) -> Outcome:
    """Of a call that was sent by a process that is gone."""
    return Outcome(
        call=call,
        number=call.number,
        kind=call.kind,
        action=call.action.name,
        status="unknown",
        code="outcome_unknown",
        detail="whoever sent it was lost before its outcome was on record",
    )


def refused(gate: GateRefused, outcomes: Sequence[Outcome]) -> Outcome:
    """The failure after which the gate let nothing more through."""
    return at_last(outcomes, "gate_refused", ", ".join(gate.classes))


def at_last(outcomes: Sequence[Outcome], code: str, detail: str) -> Outcome:
    """Why it does not go on after the last step."""
    last = outcomes[-1]
    return Outcome(
        call=None,
        number=last.number,
        kind=last.kind,
        action=last.action,
        status="failed",
        code=code,
        detail=detail,
    )
