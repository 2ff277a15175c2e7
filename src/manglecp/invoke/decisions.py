"""What a person decides about a run that cannot go on by itself.

A decision is one transaction: the record of the run, and an entry in the ledger under the name of whoever decided. The
step that was in doubt then counts as done or as not done, with that name, and whoever goes on with the run puts it into
evidence as an operator's word. A run that is ended keeps an answer that says so, and which effects stand.
"""

from __future__ import annotations

from typing import Any, Final

from manglecp.base.digest import digest_bytes
from manglecp.invoke.results import decoded, encoded
from manglecp.store import (
    Decision,
    Invalid,
    NoRun,
    NotOpen,
    RunState,
    RunView,
    StepKind,
    StepState,
    Store,
    Transaction,
    Verdict,
)
from manglecp.wire import WireError

__all__ = [
    "decide",
    "doubted_step",
]

_ABORTED: Final = "aborted"


def decide(
    store: Store,
    run_id: str,
    verdict: Verdict,
    by: str,
    *,
    step: int | None = None,
    output: bytes | None = None,
) -> RunState:
    """The run's state from now on. ``output``: with ``happened``, the JSON that the action returned, if it is known.

    :class:`manglecp.store.errors.Refused` if there is nothing of the kind to decide.
    """
    if not by:
        raise Invalid("by", "a decision is somebody's: say whose")
    with store.write_transaction() as tx:
        shown = store.runs.show(tx, run_id)
        if shown is None:
            raise NoRun(run_id)
        decision = Decision(
            verdict=verdict,
            step=step,
            kind=_kind(shown, step),
            output=output,
            output_digest=None if output is None else digest_bytes(output),
            answer=_aborted(store, tx, shown) if verdict == "abort" else None,
        )
        state = store.runs.decide(tx, run_id, decision, by)
        body: dict[str, Any] = {"verdict": verdict, "state": state.value}
        if step is not None:
            body |= {"step": step, "kind": decision.kind}
        if decision.output_digest is not None:
            body["output_digest"] = decision.output_digest
        store.ledger.append(tx, "decision", body, run=run_id, identity=by)
    return state


def doubted_step(shown: RunView) -> int | None:
    """The first step whose outcome nobody knows and that must not be repeated."""
    doubted = (one.number for one in shown.steps if one.state == StepState.UNKNOWN and not one.repeatable)
    return next(doubted, None)


def _kind(shown: RunView, step: int | None) -> StepKind:
    """Whether the step was done or undone when its outcome was lost."""
    if step is None:
        return "do"
    kinds: list[StepKind] = [one.kind for one in shown.steps if one.number == step and one.state == StepState.UNKNOWN]
    if not kinds:
        raise NotOpen(f"the outcome of step {step} of run {shown.run.run_id} is not unknown")
    return kinds[-1]


def _aborted(store: Store, tx: Transaction, shown: RunView) -> bytes:
    """What clients are told from now on: what they were told until now, and that it is over."""
    run_id = shown.run.run_id
    details: dict[str, Any] = {"run_id": run_id}
    kept = store.runs.answer(tx, run_id)
    if kept is not None and isinstance(before := decoded(kept), WireError):
        details |= dict(before.details or {})
    details["reason"] = _ABORTED
    return encoded(WireError("execution_failed", "The run was ended by a decision", details))
