"""Rows of steps: the statements that write them under a run that is held, and what is done to all of a run."""

from __future__ import annotations

from typing import Final

from manglecp.store.database import Transaction
from manglecp.store.errors import Invalid
from manglecp.store.runs.holding import Statement
from manglecp.store.runs.model import StepEnd, StepKind, StepSettled, StepStart, StepState
from manglecp.store.runs.sealed import ValueSeals

__all__ = ["doubt", "erase", "finish", "first_in_doubt", "settle", "start"]

OUTCOME_UNKNOWN: Final = "outcome_unknown"

# The row comes from a SELECT, where PostgreSQL does not guess the type of a value that is missing.
_START: Final = """
    INSERT INTO steps (run_id, kind, number, attempt, seq, state, call_id, action, tier, repeatable, input_digest,
        witness, started_ms, input)
    SELECT ?, ?, ?, ?, revision - ?, 'started', ?, ?, ?, ?, ?, ?, touched_ms, CAST(? AS {blob}) FROM {held}
    WHERE true ON CONFLICT DO NOTHING
"""
_SETTLE: Final = """
    INSERT INTO steps (run_id, kind, number, attempt, seq, state, call_id, action, tier, repeatable, input_digest,
        output_digest, code, started_ms, ended_ms, input, output, note)
    SELECT ?, ?, ?, ?, revision - ?, ?, ?, ?, ?, ?, ?, ?, ?, touched_ms, touched_ms,
        CAST(? AS {blob}), CAST(? AS {blob}), CAST(? AS {blob}) FROM {held}
    WHERE true ON CONFLICT DO NOTHING
"""
_FINISH: Final = """
    UPDATE steps SET state = ?, output_digest = ?, code = ?, ended_ms = touched_ms, output = ?, note = ? FROM {held}
    WHERE run_id = ? AND kind = ? AND number = ? AND attempt = ? AND state = 'started'
"""
_DOUBT: Final = f"""
    UPDATE steps SET state = 'unknown', code = '{OUTCOME_UNKNOWN}', ended_ms = ? WHERE run_id = ? AND state = 'started'
"""
_IN_DOUBT: Final = """
    SELECT number, kind FROM steps WHERE run_id = ? AND state = 'unknown' AND repeatable = 0 ORDER BY seq LIMIT 1
"""
_ERASE: Final = "UPDATE steps SET input = NULL, output = NULL, note = NULL WHERE run_id = ?"


def start(seals: ValueSeals, run_id: str, one: StepStart, later: int) -> Statement:
    """``later``: how many changes of the run come after this one in the same transaction."""
    place = (run_id, one.kind, one.number, one.attempt)
    row = (
        *(*place, later, one.call_id, one.action, one.tier, int(one.repeatable), one.input_digest, one.witness),
        seals.seal_step(one.input, *place, "input"),
    )
    return Statement(_START, row, (), _in_the_way(*place))


def settle(seals: ValueSeals, run_id: str, one: StepSettled, later: int) -> Statement:
    """A row for a step that begins and ends at once: it read, failed before it began, or was skipped."""
    if one.state == StepState.DONE and one.tier > 0:
        raise Invalid("state", "an effect is done only after it was started")
    place = (run_id, one.kind, one.number, one.attempt)
    row = (
        *(*place, later, one.state.value, one.call_id, one.action, one.tier, int(one.tier == 0)),
        *(one.input_digest, one.output_digest, one.code),
        seals.seal_step(one.input, *place, "input"),
        seals.seal_step(one.output, *place, "output"),
        seals.seal_step(one.note, *place, "note"),
    )
    return Statement(_SETTLE, row, (), _in_the_way(*place))


def finish(seals: ValueSeals, run_id: str, one: StepEnd) -> Statement:
    """The end of a step that was started."""
    place = (run_id, one.kind, one.number, one.attempt)
    output = seals.seal_step(one.output, *place, "output")
    note = seals.seal_step(one.note, *place, "note")
    changed = (one.state.value, one.output_digest, one.code, output, note)
    return Statement(_FINISH, changed, place, f"{_name(*place)} is not under way")


def doubt(tx: Transaction, run_id: str, now_ms: int) -> None:
    """What was started and has no end has no known end: nobody is left who could tell."""
    tx.execute(_DOUBT, (now_ms, run_id))


def first_in_doubt(tx: Transaction, run_id: str) -> tuple[int, StepKind] | None:
    """A step that nobody knows the outcome of, and that must not be repeated."""
    row = tx.execute(_IN_DOUBT, (run_id,)).fetchone()
    return None if row is None else (row[0], row[1])


def erase(tx: Transaction, run_id: str, now_ms: int) -> None:
    """The run is over: its steps keep digests and codes, and no values."""
    doubt(tx, run_id, now_ms)
    tx.execute(_ERASE, (run_id,))


def _in_the_way(run_id: str, kind: StepKind, number: int, attempt: int) -> str:
    # It is the index steps_once that decides.
    return f"{_name(run_id, kind, number, attempt)} cannot begin: another attempt is in its way"


def _name(run_id: str, kind: StepKind, number: int, attempt: int) -> str:
    return f"attempt {attempt} to {kind} step {number} of run {run_id}"
