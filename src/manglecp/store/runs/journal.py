"""The journal of runs with effects: everything that may be written about a run, and asked.

What takes a transaction is part of it: the caller adds his ledger entry (last: its head is what everybody waits for)
and commits both. What takes none is a transaction of its own.

A run is the caller's as long as its fence is. Whatever he writes holds the run first (:mod:`.holding`) and raises
:class:`.Fenced` if it is not his any more; nothing of that transaction stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from manglecp.store.database import Database, Transaction
from manglecp.store.errors import Invalid
from manglecp.store.runs import claiming, deciding, keeping, reading, steps, sweeping, waiting
from manglecp.store.runs.errors import KeyTaken, NoRun, NotOpen
from manglecp.store.runs.holding import Statement, hold
from manglecp.store.runs.model import (
    ENDS,
    Claimed,
    Decision,
    NewRun,
    Retention,
    Run,
    RunState,
    Shown,
    StepEnd,
    StepKind,
    StepSettled,
    StepStart,
    StepState,
)
from manglecp.store.runs.sealed import ValueSeals
from manglecp.store.sealing import Seals

__all__ = ["Runs"]

ABORTED: Final = "aborted"

_ACCEPT: Final = """
    INSERT INTO runs (run_id, identity, macro_id, pack_digest, request_key, request_digest, state, fence, owner,
        claim_until_ms, takeovers, cancel, revision, created_ms, touched_ms, slots)
    VALUES (?, ?, ?, ?, ?, ?, 'running', 1, ?, ?, 0, 0, 0, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""
_KEEP: Final = "INSERT INTO run_values (run_id, admission, plan, args) VALUES (?, ?, ?, ?)"
_CLOSE: Final = """
    UPDATE runs SET state = ?, code = ?, step = NULL, kind = NULL, owner = NULL, claim_until_ms = 0,
        revision = revision + 1, touched_ms = ?, ended_ms = ?,
        answer_until_ms = CASE WHEN request_key IS NULL THEN CAST(? AS BIGINT) ELSE CAST(? AS BIGINT) END,
        slots = NULL
    WHERE run_id = ?
"""
_ERASE: Final = "UPDATE run_values SET plan = NULL, args = NULL, answer = ? WHERE run_id = ?"
_ANSWER: Final = "UPDATE run_values SET answer = ? WHERE run_id = ?"
_NEEDS_DECISION: Final = """
    UPDATE runs SET state = 'needs_decision', code = ?, step = ?, kind = ?, owner = NULL, claim_until_ms = 0
    WHERE run_id = ?
"""
_ASK_CANCEL: Final = """
    UPDATE runs SET cancel = 1, revision = revision + 1
    WHERE run_id = ? AND identity = ? AND state IN ('running', 'needs_decision')
"""


class Runs:
    """The runs of one store. Threads may share it."""

    def __init__(self, database: Database, seals: Seals, retention: Retention | None = None) -> None:
        self._database = database
        self._seals = ValueSeals(seals)
        self._retention = retention or Retention()

    # --- accepting ----------------------------------------------------------------------------------------------------

    def accept(self, tx: Transaction, new: NewRun) -> None:
        """The run is acknowledged when this is committed, and the caller's under fence 1."""
        now_ms = tx.now_ms()
        run_id, values = new.run_id, new.values
        row = (
            *(run_id, new.identity, new.macro_id, new.pack_digest, new.request_key, new.request_digest),
            *(new.owner, now_ms + new.claim_ms, now_ms, now_ms, self._seals.seal_run(values.slots, run_id, "slots")),
        )
        if tx.execute(_ACCEPT, row).rowcount == 1:
            plan = self._seals.seal_run(values.plan, run_id, "plan")
            args = self._seals.seal_run(values.args, run_id, "args")
            tx.execute(_KEEP, (run_id, new.admission, plan, args))
            return
        taken = None if new.request_key is None else self.by_key(tx, new.identity, new.request_key)
        if taken is None:
            raise NotOpen(f"there is a run {run_id} already")
        raise KeyTaken(taken.run_id, taken.request_digest)

    # --- whose it is --------------------------------------------------------------------------------------------------

    def claim(
        self,
        owner: str,
        claim_ms: int,
        pack_digests: Collection[str],
        most_takeovers: int,
        *,
        run_id: str | None = None,
        on_poisoned: claiming.OnPoisoned | None = None,
    ) -> Claimed | None:
        """Take over a run (or this one) whose claim has lapsed; steps that were under way are then ``unknown``.

        A run that changed hands more than ``most_takeovers`` times without getting on is set aside instead.
        """
        return claiming.claim(
            self._database, self._seals, owner, claim_ms, pack_digests, most_takeovers, run_id, on_poisoned
        )

    def renew(self, owner: str, runs: Mapping[str, int], claim_ms: int) -> set[str]:
        """The heartbeat of an owner for all of its runs (id: fence). Gives back those that are lost."""
        with self._database.write_transaction() as tx:
            return claiming.renew(tx, owner, runs, claim_ms)

    def release(self, tx: Transaction, run_id: str, fence: int, *, after_ms: int = 0) -> None:
        """Leave the run to others, after a while; this does not count as a take-over."""
        claiming.release(tx, run_id, fence, after_ms)

    # --- what happens in it -------------------------------------------------------------------------------------------

    def started(
        self,
        tx: Transaction,
        run_id: str,
        fence: int,
        starts: Sequence[StepStart],
        *,
        settled: Sequence[StepSettled] = (),
        slots: bytes | None = None,
    ) -> bool:
        """These calls are about to be sent; ``settled`` ended before them. Was cancelling asked for?

        :class:`.NotOpen` if an attempt at one of the steps is in the way of this one.
        """
        changes = len(settled) + len(starts)
        then = [steps.settle(self._seals, run_id, one, changes - at) for at, one in enumerate(settled, 1)]
        then += [steps.start(self._seals, run_id, one, len(starts) - at) for at, one in enumerate(starts, 1)]
        return self._write(tx, run_id, fence, then, changes, slots)

    def finished(
        self,
        tx: Transaction,
        run_id: str,
        fence: int,
        ends: Sequence[StepEnd],
        *,
        settled: Sequence[StepSettled] = (),
        slots: bytes | None = None,
        kept: Mapping[str, bytes] | None = None,
    ) -> bool:
        """What came of calls that were started, and what a later run may ask for. Was cancelling asked for?"""
        progress = any(one.state == StepState.DONE for one in ends)
        then = [steps.finish(self._seals, run_id, one) for one in ends]
        then += [steps.settle(self._seals, run_id, one, len(settled) - at) for at, one in enumerate(settled, 1)]
        asked = self._write(tx, run_id, fence, then, len(settled) + 1, slots, progress=progress)
        keeping.keep(tx, self._seals, run_id, kept or {})
        return asked

    def settled(
        self, tx: Transaction, run_id: str, fence: int, settled: Sequence[StepSettled], *, slots: bytes | None = None
    ) -> bool:
        """Steps that ended without a record of their start, skipped ones too. Was cancelling asked for?"""
        return self.finished(tx, run_id, fence, (), settled=settled, slots=slots)

    def end(self, tx: Transaction, run_id: str, fence: int, state: RunState, answer: bytes | None) -> None:
        """The run is over. Its values are deleted; the answer stays for whoever asks again."""
        if state not in ENDS:
            raise Invalid("state", f"{state.value} is no end of a run")
        held = hold(tx, run_id, fence, changes=0)
        self._close(tx, run_id, state, None, answer, held.now_ms)

    def needs_decision(
        self,
        tx: Transaction,
        run_id: str,
        fence: int,
        code: str,
        *,
        step: int | None = None,
        kind: StepKind = "do",
        answer: bytes | None = None,
    ) -> None:
        """Only a person can say how the run goes on. ``answer`` is what clients are told until then."""
        held = hold(tx, run_id, fence, changes=1)
        steps.doubt(tx, run_id, held.now_ms)
        tx.execute(_NEEDS_DECISION, (code, step, None if step is None else kind, run_id))
        if answer is not None:
            tx.execute(_ANSWER, (self._seals.seal_run(answer, run_id, "answer"), run_id))

    def _write(
        self,
        tx: Transaction,
        run_id: str,
        fence: int,
        then: Sequence[Statement],
        changes: int,
        slots: bytes | None,
        *,
        progress: bool = False,
    ) -> bool:
        sealed = self._seals.seal_run(slots, run_id, "slots")
        return hold(tx, run_id, fence, changes=changes, progress=progress, slots=sealed, then=then).cancel

    def _close(
        self, tx: Transaction, run_id: str, state: RunState, code: str | None, answer: bytes | None, now_ms: int
    ) -> None:
        keep = self._retention
        until = (None, None) if answer is None else (now_ms + keep.other_answers_ms, now_ms + keep.keyed_answers_ms)
        tx.execute(_CLOSE, (state.value, code, now_ms, now_ms, *until, run_id))
        tx.execute(_ERASE, (self._seals.seal_run(answer, run_id, "answer"), run_id))
        steps.erase(tx, run_id, now_ms)

    # --- what people and clients say about it -------------------------------------------------------------------------

    def decide(self, tx: Transaction, run_id: str, decision: Decision, by: str) -> RunState:
        """Carry out what a person decided about a run in ``needs_decision``; gives its state from now on."""
        now_ms = tx.now_ms()
        deciding.lock_undecided(tx, run_id, now_ms)
        if decision.verdict == "abort":
            self._close(tx, run_id, RunState.FAILED, ABORTED, decision.answer, now_ms)
            return RunState.FAILED
        if decision.verdict != "resume":
            deciding.decide_on_step(tx, self._seals, run_id, decision, by)
        state = deciding.move_on(tx, run_id)
        if decision.verdict == "resume" and state != RunState.RUNNING:
            raise NotOpen(f"run {run_id} cannot go on: say first whether the step in doubt happened")
        return state

    def free_key(self, tx: Transaction, run_id: str) -> None:
        """Let the request key of a run that is over begin another one."""
        tx.execute("UPDATE runs SET request_key = NULL WHERE run_id = ? AND ended_ms IS NOT NULL", (run_id,))

    def ask_cancel(self, tx: Transaction, run_id: str, identity: str) -> bool:
        """Ask whoever carries it out to stop. False if this identity has no such run, or it is over."""
        return tx.execute(_ASK_CANCEL, (run_id, identity)).rowcount == 1

    # --- questions ----------------------------------------------------------------------------------------------------

    def by_key(self, tx: Transaction, identity: str, request_key: str) -> Run | None:
        """The run that this identity asked for under this key, if it is still known."""
        return reading.find_by_key(tx, identity, request_key)

    def answer(self, tx: Transaction, run_id: str) -> bytes | None:
        """What was answered; None if there is no answer yet, or none any more."""
        return reading.answer_of(tx, self._seals, run_id)

    def kept(self, tx: Transaction, identity: str, run_id: str, name: str) -> bytes | None:
        """What a run of this identity kept under the name, however it ended; None also if it is somebody else's."""
        return keeping.kept(tx, self._seals, identity, run_id, name)

    def show(self, tx: Transaction, run_id: str) -> Shown | None:
        """A run with its steps, without their values; None if there is none."""
        return reading.show(tx, run_id)

    def load(self, tx: Transaction, run_id: str) -> Claimed:
        """As :meth:`claim` gives it, for whoever holds the run already or only looks."""
        return reading.load(tx, self._seals, run_id)

    def run(self, tx: Transaction, run_id: str) -> Run:
        """The run as it is. Raises :class:`.NoRun`."""
        found = reading.find_run(tx, run_id)
        if found is None:
            raise NoRun(run_id)
        return found

    def wait(self, run_id: str, timeout: float, *, seen: int | None = None) -> Run:
        """Until it is not running, or has another revision than ``seen``; after ``timeout`` seconds as it then is."""
        return waiting.wait(self._database, run_id, timeout, seen)

    def sweep(self, tx: Transaction, *, limit: int = 500) -> sweeping.Swept:
        """Forget what was kept long enough, a piece at a time."""
        return sweeping.sweep(tx, self._retention, limit)

    def list(self, tx: Transaction, state: RunState | None = None, limit: int = 100) -> Sequence[Run]:
        """The newest first."""
        return reading.newest(tx, state, limit)
