"""What happens in a run, step by step, and how it ends.

Each function is part of a transaction that its caller ends, so that the ledger says the same as the journal. Each
begins by holding the run (:mod:`.holding`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from manglecp.store.database import Transaction
from manglecp.store.errors import Invalid
from manglecp.store.runs.errors import KeyTaken, NotOpen
from manglecp.store.runs.holding import Held, hold
from manglecp.store.runs.model import (
    ENDS,
    Kind,
    NewRun,
    Retention,
    RunState,
    StepEnd,
    StepSettled,
    StepStart,
    StepState,
)
from manglecp.store.runs.reading import find_by_key
from manglecp.store.runs.sealed import ValueSeals

__all__ = ["OUTCOME_UNKNOWN", "accept", "close", "doubt", "end", "finished", "needs_decision", "settled", "started"]

OUTCOME_UNKNOWN: Final = "outcome_unknown"

_ACCEPT: Final = """
    INSERT INTO runs (run_id, identity, macro_id, pack_digest, request_key, request_digest, state, fence, owner,
        claim_until_ms, takeovers, cancel, revision, created_ms, touched_ms, admission, plan, args, slots)
    VALUES (?, ?, ?, ?, ?, ?, 'running', 1, ?, ?, 0, 0, 0, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""
_STEP: Final = """
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
_CLOSE: Final = """
    UPDATE runs SET state = ?, code = ?, step = NULL, kind = NULL, owner = NULL, claim_until_ms = 0,
        fence = fence + ?, revision = revision + 1, touched_ms = ?, ended_ms = ?,
        answer_until_ms = CASE WHEN request_key IS NULL THEN ? ELSE ? END,
        plan = NULL, args = NULL, slots = NULL, answer = ?
    WHERE run_id = ?
"""
_NEEDS_DECISION: Final = """
    UPDATE runs SET state = 'needs_decision', code = ?, step = ?, kind = ?, owner = NULL, claim_until_ms = 0, answer = ?
    WHERE run_id = ?
"""


def accept(tx: Transaction, seals: ValueSeals, new: NewRun) -> None:
    now = tx.now_ms()
    values = new.values
    row = (
        *(new.run_id, new.identity, new.macro_id, new.pack_digest, new.request_key, new.request_digest),
        *(new.owner, now + new.claim_ms, now, now, new.admission),
        seals.seal_run(values.plan, new.run_id, "plan"),
        seals.seal_run(values.args, new.run_id, "args"),
        seals.seal_run(values.slots, new.run_id, "slots"),
    )
    if tx.execute(_ACCEPT, row).rowcount == 1:
        return
    taken = None if new.request_key is None else find_by_key(tx, new.identity, new.request_key)
    if taken is None:
        raise NotOpen(f"there is a run {new.run_id} already")
    raise KeyTaken(taken.run_id, taken.request_digest)


def started(
    tx: Transaction,
    seals: ValueSeals,
    run_id: str,
    fence: int,
    starts: Sequence[StepStart],
    settling: Sequence[StepSettled],
    slots: bytes | None,
) -> bool:
    held = _hold(tx, seals, run_id, fence, len(settling) + len(starts), slots)
    _settle(tx, seals, run_id, held, settling, len(starts))
    for seq, one in enumerate(starts, held.revision - len(starts) + 1):
        row = (
            *(run_id, one.kind, one.number, one.attempt, seq, "started", one.call_id, one.action, one.tier),
            *(int(one.repeatable), one.input_digest, None, None, one.witness, held.now_ms, None),
            seals.seal_step(one.input, run_id, one.kind, one.number, one.attempt, "input"),
            *(None, None),
        )
        _insert(tx, row)
    return held.cancel


def settled(
    tx: Transaction, seals: ValueSeals, run_id: str, fence: int, settling: Sequence[StepSettled], slots: bytes | None
) -> bool:
    held = _hold(tx, seals, run_id, fence, len(settling), slots)
    _settle(tx, seals, run_id, held, settling, 0)
    return held.cancel


def finished(
    tx: Transaction,
    seals: ValueSeals,
    run_id: str,
    fence: int,
    ends: Sequence[StepEnd],
    settling: Sequence[StepSettled],
    slots: bytes | None,
) -> bool:
    progress = any(one.state == StepState.DONE for one in ends)
    held = _hold(tx, seals, run_id, fence, len(settling) + 1, slots, progress=progress)
    _settle(tx, seals, run_id, held, settling, 1)
    for one in ends:
        place = (run_id, one.kind, one.number, one.attempt)
        output = seals.seal_step(one.output, *place, "output")
        note = seals.seal_step(one.note, *place, "note")
        row = (one.state.value, one.output_digest, one.code, held.now_ms, output, note, *place)
        if tx.execute(_FINISH, row).rowcount != 1:
            raise NotOpen(f"{_name(*place)} is not under way")
    return held.cancel


def end(
    tx: Transaction,
    seals: ValueSeals,
    retention: Retention,
    run_id: str,
    fence: int,
    state: RunState,
    answer: bytes | None,
) -> None:
    if state not in ENDS:
        raise Invalid("state", f"a run does not end {state.value}")
    held = hold(tx, run_id, fence, changes=0)
    close(tx, seals, retention, run_id, state, None, answer, held.now_ms)


def close(
    tx: Transaction,
    seals: ValueSeals,
    retention: Retention,
    run_id: str,
    state: RunState,
    code: str | None,
    answer: bytes | None,
    now_ms: int,
) -> None:
    """End a run that the transaction has locked: no value of it stays, and nobody holds it."""
    others_until, keyed_until = now_ms + retention.other_answers_ms, now_ms + retention.keyed_answers_ms
    if answer is None:
        others_until = keyed_until = None  # type: ignore[assignment]
    sealed = seals.seal_run(answer, run_id, "answer")
    tx.execute(_CLOSE, (state.value, code, 1, now_ms, now_ms, others_until, keyed_until, sealed, run_id))
    tx.execute(_DOUBT, (now_ms, run_id))
    tx.execute("UPDATE steps SET input = NULL, output = NULL, note = NULL WHERE run_id = ?", (run_id,))


def needs_decision(
    tx: Transaction,
    seals: ValueSeals,
    run_id: str,
    fence: int,
    code: str,
    step: int | None,
    kind: Kind,
    answer: bytes | None,
) -> None:
    held = hold(tx, run_id, fence, changes=1)
    doubt(tx, run_id, held.now_ms)
    sealed = seals.seal_run(answer, run_id, "answer")
    tx.execute(_NEEDS_DECISION, (code, step, None if step is None else kind, sealed, run_id))


def doubt(tx: Transaction, run_id: str, now_ms: int) -> None:
    """What was started and has no end has no known end: nobody is left who could tell."""
    tx.execute(_DOUBT, (now_ms, run_id))


def _hold(
    tx: Transaction,
    seals: ValueSeals,
    run_id: str,
    fence: int,
    changes: int,
    slots: bytes | None,
    *,
    progress: bool = False,
) -> Held:
    sealed = seals.seal_run(slots, run_id, "slots")
    return hold(tx, run_id, fence, changes=changes, progress=progress, slots=sealed)


def _settle(
    tx: Transaction, seals: ValueSeals, run_id: str, held: Held, settling: Sequence[StepSettled], later: int
) -> None:
    """``later``: how many changes of the same revision come after these."""
    for seq, one in enumerate(settling, held.revision - later - len(settling) + 1):
        if one.state == StepState.DONE and one.tier > 0:
            raise Invalid("state", "an effect is done only after it was started")
        place = (run_id, one.kind, one.number, one.attempt)
        row = (
            *(*place, seq, one.state.value, one.call_id, one.action, one.tier, int(one.tier == 0), one.input_digest),
            *(one.output_digest, one.code, None, held.now_ms, held.now_ms),
            seals.seal_step(one.input, *place, "input"),
            seals.seal_step(one.output, *place, "output"),
            seals.seal_step(one.note, *place, "note"),
        )
        _insert(tx, row)


def _insert(tx: Transaction, row: tuple[Any, ...]) -> None:
    if tx.execute(_STEP, row).rowcount != 1:
        run_id, kind, number, attempt = row[:4]
        raise NotOpen(f"{_name(run_id, kind, number, attempt)} must not begin: another attempt is in its way")


def _name(run_id: str, kind: Kind, number: int, attempt: int) -> str:
    return f"attempt {attempt} to {kind} step {number} of run {run_id}"
