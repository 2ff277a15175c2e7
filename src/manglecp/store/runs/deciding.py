"""What a person may say about a run that waits for a decision.

A step whose outcome is unknown and that must not be repeated is *in doubt*. About such a step one says that it happened
or that it did not (of one that may be repeated one can say so too); when no step is in doubt any more, the run goes on
and anybody may claim it. A run that waits for another reason (its gate is closed, it was taken over too often) is let
go on with ``resume``. Or the run is aborted.

Every decision raises the fence: whoever held the run before has lost it.
"""

from __future__ import annotations

from typing import Final

from manglecp.store.database import Transaction
from manglecp.store.errors import Invalid
from manglecp.store.runs.errors import NoRun, NotOpen
from manglecp.store.runs.model import Decision, RunState
from manglecp.store.runs.sealed import ValueSeals
from manglecp.store.runs.steps import first_in_doubt

__all__ = ["DID_NOT_HAPPEN", "decide_on_step", "lock_undecided", "move_on"]

DID_NOT_HAPPEN: Final = "did_not_happen"

_LOCK: Final = """
    UPDATE runs SET fence = fence + 1, revision = revision + 1, touched_ms = ?
    WHERE run_id = ? AND state = 'needs_decision'
"""
_DECIDE: Final = """
    UPDATE steps SET state = ?, code = ?, decided_by = ?, output = ?, output_digest = ?
    WHERE run_id = ? AND kind = ? AND number = ? AND attempt = ?
"""
_LAST_ATTEMPT: Final = """
    SELECT attempt, state FROM steps WHERE run_id = ? AND kind = ? AND number = ? ORDER BY attempt DESC LIMIT 1
"""
_GO_ON: Final = """
    UPDATE runs SET state = 'running', code = NULL, step = NULL, kind = NULL, owner = NULL, claim_until_ms = 0,
        takeovers = 0
    WHERE run_id = ?
"""


def lock_undecided(tx: Transaction, run_id: str, now_ms: int) -> None:
    """Keep others from deciding at the same time. :class:`NotOpen` if there is nothing to decide."""
    if tx.execute(_LOCK, (now_ms, run_id)).rowcount == 1:
        return
    row = tx.execute("SELECT state FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        raise NoRun(run_id)
    raise NotOpen(f"run {run_id} is {row[0]}: there is nothing to decide")


def decide_on_step(tx: Transaction, seals: ValueSeals, run_id: str, decision: Decision, by: str) -> None:
    """Write down what a person says about a step whose outcome nobody knew."""
    if decision.step is None:
        raise Invalid("step", f"{decision.verdict} is about a step: say which")
    row = tx.execute(_LAST_ATTEMPT, (run_id, decision.kind, decision.step)).fetchone()
    if row is None or row[1] != "unknown":
        raise NotOpen(f"the outcome of {decision.kind} step {decision.step} of run {run_id} is not unknown")
    place = (run_id, decision.kind, decision.step, row[0])
    if decision.verdict == "happened":
        output = seals.seal_step(decision.output, *place, "output")
        tx.execute(_DECIDE, ("done", None, by, output, decision.output_digest, *place))
    else:
        tx.execute(_DECIDE, ("failed", DID_NOT_HAPPEN, by, None, None, *place))


def move_on(tx: Transaction, run_id: str) -> RunState:
    """Let the run go on, unless a step is still in doubt."""
    doubted = first_in_doubt(tx, run_id)
    if doubted is None:
        tx.execute(_GO_ON, (run_id,))
        tx.execute("UPDATE run_values SET answer = NULL WHERE run_id = ?", (run_id,))
        return RunState.RUNNING
    tx.execute("UPDATE runs SET step = ?, kind = ? WHERE run_id = ?", (*doubted, run_id))
    return RunState.NEEDS_DECISION
