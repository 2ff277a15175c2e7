"""Rows of steps, written under a run that the transaction holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from manglecp.store.database import Transaction
from manglecp.store.errors import Invalid
from manglecp.store.runs.errors import NotOpen
from manglecp.store.runs.model import Kind, StepEnd, StepSettled, StepStart, StepState
from manglecp.store.runs.sealed import ValueSeals

__all__ = ["OUTCOME_UNKNOWN", "doubt", "erase", "finish", "first_in_doubt", "settle", "start"]

OUTCOME_UNKNOWN: Final = "outcome_unknown"

_INSERT: Final = """
    INSERT INTO steps (run_id, kind, number, attempt, seq, state, call_id, action, tier, repeatable, input_digest,
        output_digest, code, witness, started_ms, ended_ms, input, output, note)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""
_FINISH: Final = """
    UPDATE steps SET state = ?, output_digest = ?, code = ?, ended_ms = ?, output = ?, note = ?
    WHERE run_id = ? AND kind = ? AND number = ? AND attempt = ? AND state = 'started'
"""
_DOUBT: Final = f"""
    UPDATE steps SET state = 'unknown', code = '{OUTCOME_UNKNOWN}', ended_ms = ? WHERE run_id = ? AND state = 'started'
"""
_IN_DOUBT: Final = """
    SELECT number, kind FROM steps WHERE run_id = ? AND state = 'unknown' AND repeatable = 0 ORDER BY seq LIMIT 1
"""
_ERASE: Final = "UPDATE steps SET input = NULL, output = NULL, note = NULL WHERE run_id = ?"


def start(
    tx: Transaction, seals: ValueSeals, run_id: str, first_seq: int, starts: Sequence[StepStart], now_ms: int
) -> None:
    for seq, one in enumerate(starts, first_seq):
        place = (run_id, one.kind, one.number, one.attempt)
        row = (
            *(*place, seq, "started", one.call_id, one.action, one.tier, int(one.repeatable), one.input_digest),
            *(None, None, one.witness, now_ms, None),
            *(seals.seal_step(one.input, *place, "input"), None, None),
        )
        _insert(tx, row)


def settle(
    tx: Transaction, seals: ValueSeals, run_id: str, first_seq: int, settled: Sequence[StepSettled], now_ms: int
) -> None:
    for seq, one in enumerate(settled, first_seq):
        if one.state == StepState.DONE and one.tier > 0:
            raise Invalid("state", "an effect is done only after it was started")
        place = (run_id, one.kind, one.number, one.attempt)
        row = (
            *(*place, seq, one.state.value, one.call_id, one.action, one.tier, int(one.tier == 0), one.input_digest),
            *(one.output_digest, one.code, None, now_ms, now_ms),
            seals.seal_step(one.input, *place, "input"),
            seals.seal_step(one.output, *place, "output"),
            seals.seal_step(one.note, *place, "note"),
        )
        _insert(tx, row)


def finish(tx: Transaction, seals: ValueSeals, run_id: str, ends: Sequence[StepEnd], now_ms: int) -> None:
    for one in ends:
        place = (run_id, one.kind, one.number, one.attempt)
        row = (
            *(one.state.value, one.output_digest, one.code, now_ms),
            seals.seal_step(one.output, *place, "output"),
            seals.seal_step(one.note, *place, "note"),
            *place,
        )
        if tx.execute(_FINISH, row).rowcount != 1:
            raise NotOpen(f"{_name(*place)} is not under way")


def doubt(tx: Transaction, run_id: str, now_ms: int) -> None:
    """What was started and has no end has no known end: nobody is left who could tell."""
    tx.execute(_DOUBT, (now_ms, run_id))


def first_in_doubt(tx: Transaction, run_id: str) -> tuple[int, Kind] | None:
    """A step that nobody knows the outcome of, and that must not be repeated."""
    row = tx.execute(_IN_DOUBT, (run_id,)).fetchone()
    return None if row is None else (row[0], row[1])


def erase(tx: Transaction, run_id: str, now_ms: int) -> None:
    """The run is over: its steps keep digests and codes, and no values."""
    doubt(tx, run_id, now_ms)
    tx.execute(_ERASE, (run_id,))


def _insert(tx: Transaction, row: tuple[Any, ...]) -> None:
    # The index steps_once decides whether there may be this attempt.
    if tx.execute(_INSERT, row).rowcount != 1:
        run_id, kind, number, attempt = row[:4]
        raise NotOpen(f"{_name(run_id, kind, number, attempt)} cannot begin: another attempt is in its way")


def _name(run_id: str, kind: Kind, number: int, attempt: int) -> str:
    return f"attempt {attempt} to {kind} step {number} of run {run_id}"
