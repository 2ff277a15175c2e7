"""The journal of runs (executions of a tool's steps) with effects: records before and after each step, and ownership.

* The row of a step is inserted before its call is sent, and updated when the call ends. Recovery continues at the first
  step without a row.
* Ownership ends at a time of the database's clock unless a heartbeat extends it. A takeover raises the fencing token
  (``fence``), which every statement of an owner tests: a former owner writes nothing and gets :class:`.Fenced`.
* A step that was started and has no end has an *unknown* outcome. A repeatable action is retried; any other step is
  *in doubt*, and the database refuses a second attempt until a person has decided.

Methods with a parameter ``tx`` run in the caller's transaction, which appends to the ledger last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from manglecp.store.database import NOW, Database, Transaction
from manglecp.store.errors import Fenced, Invalid, KeyTaken, NoRun, NotOpen, Unusable
from manglecp.store.run_model import (
    FINAL_STATES,
    Decision,
    NewRun,
    OwnedRun,
    Retention,
    Run,
    RunState,
    RunView,
    SettledStep,
    StepEnd,
    StepKind,
    StepRecord,
    StepStart,
    StepState,
    Values,
)
from manglecp.store.schema import read_part
from manglecp.store.seals import Seals

# Codes of runs and steps. A run is poisoned if it was taken over too often without progress: it may crash its owners.
ABORTED: Final = "aborted"
DID_NOT_HAPPEN: Final = "did_not_happen"
OUTCOME_UNKNOWN: Final = "outcome_unknown"
POISONED: Final = "poisoned"
_MAX_UNREADABLE: Final = 100  # the most unreadable runs that one call of take_over skips

OnPoisoned: TypeAlias = Callable[[Transaction, Run], None]
"""Called for a run that was parked as poisoned, in the same transaction, to append a ledger entry."""

RUNS: Final = read_part(__package__, "runs")

_INSERT_RUN: Final = """
    INSERT INTO runs (run_id, identity, macro_id, pack_digest, request_key, request_digest, state, fence, owner,
        claim_until_ms, takeovers, cancel, revision, created_ms, touched_ms, slots)
    VALUES (?, ?, ?, ?, ?, ?, 'running', 1, ?, ?, 0, 0, 0, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""
_INSERT_VALUES: Final = "INSERT INTO run_values (run_id, admission, plan, args) VALUES (?, ?, ?, ?)"
_END_RUN: Final = """
    UPDATE runs SET state = ?, code = ?, step = NULL, kind = NULL, owner = NULL, claim_until_ms = 0,
        revision = revision + 1, touched_ms = ?, ended_ms = ?,
        answer_until_ms = CASE WHEN request_key IS NULL THEN CAST(? AS BIGINT) ELSE CAST(? AS BIGINT) END,
        slots = NULL
    WHERE run_id = ?
"""
_ERASE_VALUES: Final = "UPDATE run_values SET plan = NULL, args = NULL, answer = ? WHERE run_id = ?"
_SET_ANSWER: Final = "UPDATE run_values SET answer = ? WHERE run_id = ?"
_PARK: Final = """
    UPDATE runs SET state = 'needs_decision', code = ?, step = ?, kind = ?, owner = NULL, claim_until_ms = 0
    WHERE run_id = ?
"""
_REQUEST_CANCEL: Final = """
    UPDATE runs SET cancel = 1, revision = revision + 1
    WHERE run_id = ? AND identity = ? AND state IN ('running', 'needs_decision')
"""
# A second attempt at a step stores its values again.
_PUT_KEPT_VALUE: Final = """
    INSERT INTO run_kept (run_id, name, value) VALUES (?, ?, ?)
    ON CONFLICT (run_id, name) DO UPDATE SET value = excluded.value
"""
_PUT_FAILURES: Final = """
    INSERT INTO run_failures (run_id, failed_ms, failures) VALUES (?, ?, ?)
    ON CONFLICT (run_id) DO UPDATE SET failed_ms = excluded.failed_ms, failures = excluded.failures
"""
_SELECT_KEPT_VALUE: Final = """
    SELECT k.value FROM run_kept k JOIN runs r ON r.run_id = k.run_id
    WHERE k.run_id = ? AND k.name = ? AND r.identity = ?
"""
# _read_run and _steps require that the columns have the names of the struct fields.
_RUN_COLUMNS: Final = Run.__struct_fields__
_SEALED_COLUMNS: Final = ("input", "output", "note")
_PLAIN_COLUMNS: Final = tuple(name for name in StepRecord.__struct_fields__ if name not in _SEALED_COLUMNS)
_STEP_COLUMNS: Final = ("run_id", "seq", *_PLAIN_COLUMNS, *_SEALED_COLUMNS)
_SELECT_RUN: Final = f"SELECT {', '.join(_RUN_COLUMNS)} FROM runs"
_SELECT_VALUES: Final = "SELECT admission, plan, args, slots FROM runs JOIN run_values USING (run_id) WHERE run_id = ?"
_OLD_ANSWERS: Final = """
    SELECT run_id FROM runs WHERE answer_until_ms IS NOT NULL AND answer_until_ms <= ? ORDER BY answer_until_ms LIMIT ?
"""
_OLD_RUNS: Final = "SELECT run_id FROM runs WHERE ended_ms IS NOT NULL AND ended_ms <= ? ORDER BY ended_ms LIMIT ?"
# Returns a run and its number of takeovers. This one is included unless the owner has released the run.
_SELECT_LAPSED: Final = """
    SELECT run_id, takeovers + CASE WHEN owner IS NULL THEN 0 ELSE 1 END FROM runs
    WHERE state = 'running' AND claim_until_ms <= ? AND pack_digest IN ({digests}) {condition}
    ORDER BY claim_until_ms LIMIT 1
"""
_TAKE_OVER: Final = """
    UPDATE runs SET fence = fence + 1, owner = ?, claim_until_ms = ?, takeovers = ?, revision = revision + 1,
        touched_ms = ?
    WHERE run_id = ?
"""
_POISON: Final = f"""
    UPDATE runs SET state = 'needs_decision', code = '{POISONED}', fence = fence + 1, owner = NULL, claim_until_ms = 0,
        takeovers = ?, revision = revision + 1, touched_ms = ?, step = ?, kind = ?
    WHERE run_id = ?
"""
_HEARTBEAT: Final = """
    UPDATE runs SET claim_until_ms = ? WHERE owner = ? AND state = 'running' AND run_id IN ({runs})
    RETURNING run_id, fence
"""
_RELEASE: Final = """
    UPDATE runs SET owner = NULL, claim_until_ms = ?, touched_ms = ?
    WHERE run_id = ? AND fence = ? AND state = 'running'
"""
# The placeholder that multiplies takeovers is 0 after progress, otherwise 1.
_CONFIRM_OWNERSHIP: Final = """
    UPDATE runs SET revision = revision + ?, touched_ms = {now}, takeovers = takeovers * ?, slots = COALESCE(?, slots)
    WHERE run_id = ? AND fence = ? AND state = 'running'
    RETURNING cancel, touched_ms, revision
"""
_INSERT_STEP: Final = f"""
    INSERT INTO steps ({", ".join(_STEP_COLUMNS)}) VALUES ({", ".join("?" for _ in _STEP_COLUMNS)})
    ON CONFLICT DO NOTHING
"""
_END_STEP: Final = """
    UPDATE steps SET state = ?, output_digest = ?, code = ?, ended_ms = ?, output = ?, note = ?
    WHERE run_id = ? AND kind = ? AND number = ? AND attempt = ? AND state = 'started'
"""
_MARK_UNKNOWN: Final = f"""
    UPDATE steps SET state = 'unknown', code = '{OUTCOME_UNKNOWN}', ended_ms = ? WHERE run_id = ? AND state = 'started'
"""
_SELECT_IN_DOUBT: Final = """
    SELECT number, kind FROM steps WHERE run_id = ? AND state = 'unknown' AND repeatable = 0 ORDER BY seq LIMIT 1
"""
_ERASE_STEPS: Final = "UPDATE steps SET input = NULL, output = NULL, note = NULL WHERE run_id = ?"

_LOCK_UNDECIDED: Final = """
    UPDATE runs SET fence = fence + 1, revision = revision + 1, touched_ms = ?
    WHERE run_id = ? AND state = 'needs_decision'
"""
_DECIDE_STEP: Final = """
    UPDATE steps SET state = ?, code = ?, decided_by = ?, output = ?, output_digest = ?
    WHERE run_id = ? AND kind = ? AND number = ? AND attempt = ?
"""
_SELECT_LAST_ATTEMPT: Final = """
    SELECT attempt, state FROM steps WHERE run_id = ? AND kind = ? AND number = ? ORDER BY attempt DESC LIMIT 1
"""
_RESUME: Final = """
    UPDATE runs SET state = 'running', code = NULL, step = NULL, kind = NULL, owner = NULL, claim_until_ms = 0,
        takeovers = 0
    WHERE run_id = ?
"""


class RunSweep(NamedTuple):
    """Numbers of deleted answers and runs. If one equals the limit of the sweep, there may be more to delete."""

    answers: int
    runs: int


class _Ownership(NamedTuple):
    cancel_requested: bool
    now_ms: int
    revision: int  # the revision after the change


class RunStore:
    """The runs of one store. Threads may share it."""

    def __init__(self, database: Database, seals: Seals, retention: Retention | None = None) -> None:
        self._database = database
        self._seals = seals
        self._retention = retention or Retention()

    def accept(self, tx: Transaction, new: NewRun) -> None:
        """Insert a run that ``new.owner`` owns under fence 1. Commit before the client gets an acknowledgement.

        Raises :class:`.KeyTaken` if the identity has used the request key, :class:`.NotOpen` if the run id exists.
        """
        now_ms = tx.now_ms()
        run_id, values = new.run_id, new.values
        request = (run_id, new.identity, new.macro_id, new.pack_digest, new.request_key, new.request_digest)
        slots = self._seal(values.slots, "runs", run_id, "slots")
        row = (*request, new.owner, now_ms + new.claim_ms, now_ms, now_ms, slots)
        if tx.execute(_INSERT_RUN, row).rowcount == 1:
            plan = self._seal(values.plan, "runs", run_id, "plan")
            args = self._seal(values.args, "runs", run_id, "args")
            tx.execute(_INSERT_VALUES, (run_id, new.admission, plan, args))
            return
        earlier_run = None if new.request_key is None else self.by_key(tx, new.identity, new.request_key)
        if earlier_run is None:
            raise NotOpen(f"there is a run {run_id} already")
        raise KeyTaken(earlier_run.run_id, earlier_run.request_digest)

    def take_over(
        self,
        owner: str,
        claim_ms: int,
        pack_digests: Collection[str],
        max_takeovers: int,
        *,
        run_id: str | None = None,
        on_poisoned: OnPoisoned | None = None,
    ) -> OwnedRun | None:
        """Take over a run of these packs (or ``run_id``) whose ownership has lapsed; return None without such a run.

        Steps that were under way become ``unknown``. A run that was taken over more than ``max_takeovers`` times
        without progress is parked as poisoned instead. ``claim_ms``: how long the ownership lasts without a heartbeat.
        Raises :class:`.Unusable` if the values of a lapsed run cannot be read and no other run has lapsed.
        """
        if not pack_digests:
            return None
        unreadable: dict[str, Unusable] = {}
        while True:
            query, values = _lapsed_query(pack_digests, run_id, unreadable)
            # Usually no run has lapsed, which a read transaction finds out without blocking writers.
            with self._database.read_transaction() as tx:
                if tx.execute(query, (tx.now_ms(), *values)).fetchone() is None:
                    break
            chosen_id = ""
            try:
                with self._database.write_transaction() as tx:
                    now_ms = tx.now_ms()
                    lapsed_run = tx.locked(query, (now_ms, *values)).fetchone()
                    if lapsed_run is None:  # another process took it over, or has locked it
                        break
                    chosen_id, takeovers = lapsed_run
                    tx.execute(_MARK_UNKNOWN, (now_ms, chosen_id))
                    if takeovers <= max_takeovers:
                        tx.execute(_TAKE_OVER, (owner, now_ms + claim_ms, takeovers, now_ms, chosen_id))
                        return self.load(tx, chosen_id)
                    step, kind = _find_in_doubt(tx, chosen_id) or (None, None)
                    tx.execute(_POISON, (takeovers, now_ms, step, kind, chosen_id))
                    if on_poisoned is not None:
                        on_poisoned(tx, self.run(tx, chosen_id))
            except Unusable as error:
                # The run is sealed with another key, or damaged: continue without this run.
                if not chosen_id or len(unreadable) == _MAX_UNREADABLE:
                    raise
                unreadable[chosen_id] = error
        if unreadable:
            raise next(iter(unreadable.values()))
        return None

    def heartbeat(self, owner: str, runs: Mapping[str, int], claim_ms: int) -> set[str]:
        """Extend the ownership of ``runs`` (fence by run id) by ``claim_ms`` from now; return the ids of lost runs."""
        if not runs:
            return set()
        with self._database.write_transaction() as tx:
            statement = _HEARTBEAT.format(runs=", ".join("?" * len(runs)))
            extended = dict(tx.execute(statement, (tx.now_ms() + claim_ms, owner, *runs)).fetchall())
        return {run_id for run_id, fence in runs.items() if extended.get(run_id) != fence}

    def release(self, tx: Transaction, run_id: str, fence: int, *, after_ms: int = 0) -> None:
        """Give up ownership; any worker may take the run over after ``after_ms``. Raises :class:`.Fenced`."""
        now_ms = tx.now_ms()
        if tx.execute(_RELEASE, (now_ms + after_ms, now_ms, run_id, fence)).rowcount != 1:
            raise Fenced(run_id, fence)

    def record_starts(
        self,
        tx: Transaction,
        run_id: str,
        fence: int,
        starts: Sequence[StepStart],
        *,
        settled: Sequence[SettledStep] = (),
        slots: bytes | None = None,
    ) -> bool:
        """Record ``settled``, then calls that are about to be sent; return whether a client requested a cancellation.

        ``slots``, the state that each call passes to the next, replaces the stored value unless it is None. Raises
        :class:`.Fenced`, and :class:`.NotOpen` if an earlier attempt at one of the steps forbids another.
        """
        ownership = self._confirm_ownership(tx, run_id, fence, changes=len(settled) + len(starts), slots=slots)
        self._insert_steps(tx, run_id, (*settled, *starts), ownership)
        return ownership.cancel_requested

    def record_ends(
        self,
        tx: Transaction,
        run_id: str,
        fence: int,
        ends: Sequence[StepEnd],
        *,
        settled: Sequence[SettledStep] = (),
        slots: bytes | None = None,
        kept: Mapping[str, bytes] | None = None,
    ) -> bool:
        """Record the ends of calls, then ``settled``, and values for later runs (``kept``, by name).

        Return and raise as :meth:`record_starts` does; also :class:`.NotOpen` for a call that is not under way.
        """
        # One revision for all ends together, and one for each settled step, which becomes the ``seq`` of the step.
        progress = any(end.state == StepState.DONE for end in ends)
        ownership = self._confirm_ownership(tx, run_id, fence, changes=len(settled) + 1, progress=progress, slots=slots)
        for end in ends:
            attempt = (run_id, end.kind, end.number, end.attempt)
            output = self._seal(end.output, *_step_place(*attempt), "output")
            note = self._seal(end.note, *_step_place(*attempt), "note")
            row = (end.state.value, end.output_digest, end.code, ownership.now_ms, output, note, *attempt)
            if tx.execute(_END_STEP, row).rowcount != 1:
                raise NotOpen(f"{_attempt_name(*attempt)} is not under way")
        self._insert_steps(tx, run_id, settled, ownership)
        for name, value in (kept or {}).items():
            tx.execute(_PUT_KEPT_VALUE, (run_id, name, self._seals.seal(value, "run_kept", run_id, name)))
        return ownership.cancel_requested

    def record_failures(self, tx: Transaction, run_id: str, failures: bytes) -> None:
        """Record why calls of a run failed, for operators; the text is kept as long as ended runs are."""
        tx.execute(_PUT_FAILURES, (run_id, tx.now_ms(), self._seals.seal(failures, "run_failures", run_id)))

    def failures(self, tx: Transaction, run_id: str) -> bytes | None:
        """Return what :meth:`record_failures` stored, or None. Runs without effects have no row for :meth:`show`."""
        row = tx.execute("SELECT failures FROM run_failures WHERE run_id = ?", (run_id,)).fetchone()
        return None if row is None else self._seals.unseal(row[0], "run_failures", run_id)

    def end(self, tx: Transaction, run_id: str, fence: int, state: RunState, answer: bytes | None) -> None:
        """End the run and delete its values; the answer is kept for repeated requests. Raises :class:`.Fenced`."""
        if state not in FINAL_STATES:
            raise Invalid("state", f"{state.value} is not a final state")
        ownership = self._confirm_ownership(tx, run_id, fence, changes=0)
        self._end(tx, run_id, state, None, answer, ownership.now_ms)

    def park(
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
        """Set the state ``needs_decision``, with the reason (``code``) and the step (``step``, ``kind``) to decide on.

        Until the decision, clients get ``answer``. Raises :class:`.Fenced`.
        """
        ownership = self._confirm_ownership(tx, run_id, fence, changes=1)
        tx.execute(_MARK_UNKNOWN, (ownership.now_ms, run_id))
        tx.execute(_PARK, (code, step, None if step is None else kind, run_id))
        if answer is not None:
            tx.execute(_SET_ANSWER, (self._seal(answer, "runs", run_id, "answer"), run_id))

    def _confirm_ownership(
        self,
        tx: Transaction,
        run_id: str,
        fence: int,
        *,
        changes: int,
        progress: bool = False,
        slots: bytes | None = None,
    ) -> _Ownership:
        """Test the fence and lock the run in one statement. Raises :class:`.Fenced`.

        Until the transaction ends no other process can take the run over. ``changes`` is added to the revision;
        ``progress`` resets the number of takeovers; ``slots`` are replaced unless None.
        """
        sealed_slots = self._seal(slots, "runs", run_id, "slots")
        statement = _CONFIRM_OWNERSHIP.format(now=NOW[tx.dialect])
        row = tx.execute(statement, (changes, 0 if progress else 1, sealed_slots, run_id, fence)).fetchone()
        if row is None:
            raise Fenced(run_id, fence)
        cancel, now_ms, revision = row
        return _Ownership(bool(cancel), now_ms, revision)

    def _insert_steps(
        self, tx: Transaction, run_id: str, steps: Sequence[StepStart | SettledStep], ownership: _Ownership
    ) -> None:
        """Insert steps; their ``seq`` are the last ``len(steps)`` revisions of the run. Raises :class:`.NotOpen`."""
        for seq, step in enumerate(steps, ownership.revision - len(steps) + 1):
            attempt = (run_id, step.kind, step.number, step.attempt)
            row = msgspec.structs.asdict(step) | {"run_id": run_id, "seq": seq, "started_ms": ownership.now_ms}
            if isinstance(step, StepStart):
                row |= {"state": "started", "repeatable": int(step.repeatable)}
            elif step.state == StepState.DONE and step.tier > 0:
                raise Invalid("state", "an effect is done only after it was started")
            else:
                has_no_effect = step.tier == 0
                row |= {"state": step.state.value, "repeatable": int(has_no_effect), "ended_ms": ownership.now_ms}
            for name in _SEALED_COLUMNS:
                row[name] = self._seal(row.get(name), *_step_place(*attempt), name)
            if tx.execute(_INSERT_STEP, [row.get(name) for name in _STEP_COLUMNS]).rowcount != 1:
                # The index steps_once, or the primary key, refused the row.
                raise NotOpen(f"{_attempt_name(*attempt)} cannot begin: another attempt exists")

    def _end(
        self, tx: Transaction, run_id: str, state: RunState, code: str | None, answer: bytes | None, now_ms: int
    ) -> None:
        # When the answer expires, without and with a request key: _END_RUN selects one of the two times.
        answer_until: tuple[int | None, int | None] = (None, None)
        if answer is not None:
            answer_until = (now_ms + self._retention.other_answers_ms, now_ms + self._retention.keyed_answers_ms)
        tx.execute(_END_RUN, (state.value, code, now_ms, now_ms, *answer_until, run_id))
        tx.execute(_ERASE_VALUES, (self._seal(answer, "runs", run_id, "answer"), run_id))
        tx.execute(_MARK_UNKNOWN, (now_ms, run_id))
        tx.execute(_ERASE_STEPS, (run_id,))

    def decide(self, tx: Transaction, run_id: str, decision: Decision, by: str) -> RunState:
        """Apply the decision of a person (``by``) about a run in ``needs_decision``; return the new state of the run.

        When no step is in doubt any more, the run continues: a worker may take it over. A run that was parked for
        another reason continues with ``resume``. Every decision raises the fence, so that no former owner can write.
        Raises :class:`.NotOpen` if the decision does not fit the state of the run, :class:`.NoRun`, :class:`.Invalid`.
        """
        now_ms = tx.now_ms()
        if tx.execute(_LOCK_UNDECIDED, (now_ms, run_id)).rowcount != 1:
            raise NotOpen(f"run {run_id} is {self.run(tx, run_id).state.value}: it needs no decision")
        if decision.verdict == "abort":
            self._end(tx, run_id, RunState.FAILED, ABORTED, decision.answer, now_ms)
            return RunState.FAILED
        if decision.verdict != "resume":
            self._decide_step(tx, run_id, decision, by)
        in_doubt = _find_in_doubt(tx, run_id)
        if in_doubt is None:
            tx.execute(_RESUME, (run_id,))
            tx.execute(_SET_ANSWER, (None, run_id))
            return RunState.RUNNING
        if decision.verdict == "resume":
            raise NotOpen(f"run {run_id} cannot continue: decide first whether the step in doubt happened")
        tx.execute("UPDATE runs SET step = ?, kind = ? WHERE run_id = ?", (*in_doubt, run_id))
        return RunState.NEEDS_DECISION

    def _decide_step(self, tx: Transaction, run_id: str, decision: Decision, by: str) -> None:
        if decision.step is None:
            raise Invalid("step", f"{decision.verdict} is about a step: name it")
        row = tx.execute(_SELECT_LAST_ATTEMPT, (run_id, decision.kind, decision.step)).fetchone()
        last_attempt, state = row or (0, None)
        if state != "unknown":
            raise NotOpen(f"the outcome of {decision.kind} step {decision.step} of run {run_id} is not unknown")
        attempt = (run_id, decision.kind, decision.step, last_attempt)
        if decision.verdict == "happened":
            output = self._seal(decision.output, *_step_place(*attempt), "output")
            tx.execute(_DECIDE_STEP, ("done", None, by, output, decision.output_digest, *attempt))
        else:
            tx.execute(_DECIDE_STEP, ("failed", DID_NOT_HAPPEN, by, None, None, *attempt))

    def free_key(self, tx: Transaction, run_id: str) -> None:
        """Detach the request key from a run that has ended, so that a client can use the key for another run."""
        tx.execute("UPDATE runs SET request_key = NULL WHERE run_id = ? AND ended_ms IS NOT NULL", (run_id,))

    def request_cancel(self, tx: Transaction, run_id: str, identity: str) -> bool:
        """Request that the owner stop the run; return False if this identity has no such run, or the run has ended."""
        return tx.execute(_REQUEST_CANCEL, (run_id, identity)).rowcount == 1

    def run(self, tx: Transaction, run_id: str) -> Run:
        """Return a run without its values. Raises :class:`.NoRun`."""
        row = tx.execute(f"{_SELECT_RUN} WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            raise NoRun(run_id)
        return _read_run(row)

    def by_key(self, tx: Transaction, identity: str, request_key: str) -> Run | None:
        """Return the run that this identity requested under this key, or None."""
        row = tx.execute(f"{_SELECT_RUN} WHERE identity = ? AND request_key = ?", (identity, request_key)).fetchone()
        return None if row is None else _read_run(row)

    def answer(self, tx: Transaction, run_id: str) -> bytes | None:
        """Return the answer of a run; None if the run has no answer yet, or it was deleted. Raises :class:`.NoRun`."""
        row = tx.execute("SELECT answer FROM run_values WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            raise NoRun(run_id)
        return self._unseal(row[0], "runs", run_id, "answer")

    def kept(self, tx: Transaction, identity: str, run_id: str, name: str) -> bytes | None:
        """Return a value that a run kept for later runs; None if the run has no such value, or another identity."""
        row = tx.execute(_SELECT_KEPT_VALUE, (run_id, name, identity)).fetchone()
        return None if row is None else self._seals.unseal(row[0], "run_kept", run_id, name)

    def show(self, tx: Transaction, run_id: str) -> RunView | None:
        """Return a run with its steps, without sealed values; None if there is no such run."""
        try:
            run = self.run(tx, run_id)
        except NoRun:
            return None
        admission = tx.execute("SELECT admission FROM run_values WHERE run_id = ?", (run_id,)).fetchone()[0]
        return RunView(run=run, admission=admission, steps=self._steps(tx, run_id, _PLAIN_COLUMNS))

    def load(self, tx: Transaction, run_id: str) -> OwnedRun:
        """Return a run with all of its values. Raises :class:`.NoRun`."""
        run = self.run(tx, run_id)
        admission, *sealed = tx.execute(_SELECT_VALUES, (run_id,)).fetchone()
        names = ("plan", "args", "slots")
        values = {name: self._unseal(value, "runs", run_id, name) for name, value in zip(names, sealed, strict=True)}
        steps = self._steps(tx, run_id, (*_PLAIN_COLUMNS, *_SEALED_COLUMNS))
        return OwnedRun(run=run, admission=admission, values=Values(**values), steps=steps)

    def list(self, tx: Transaction, state: RunState | None = None, limit: int = 100) -> Sequence[Run]:
        """Return the last ``limit`` runs, the newest first; only those in ``state`` unless it is None."""
        condition, values = ("", ()) if state is None else (" WHERE state = ?", (state.value,))
        rows = tx.execute(f"{_SELECT_RUN}{condition} ORDER BY created_ms DESC, run_id LIMIT ?", (*values, limit))
        return tuple(_read_run(row) for row in rows.fetchall())

    def sweep(self, tx: Transaction, *, limit: int = 500) -> RunSweep:
        """Delete up to ``limit`` ended runs and up to ``limit`` answers that are past their retention."""
        now_ms = tx.now_ms()
        runs = tx.locked(_OLD_RUNS, (now_ms - self._retention.runs_ms, limit)).fetchall()
        for table in ("steps", "run_values", "run_kept", "runs"):
            tx.executemany(f"DELETE FROM {table} WHERE run_id = ?", runs)
        tx.execute("DELETE FROM run_failures WHERE failed_ms <= ?", (now_ms - self._retention.runs_ms,))
        answers = tx.locked(_OLD_ANSWERS, (now_ms, limit)).fetchall()
        tx.executemany("UPDATE run_values SET answer = NULL WHERE run_id = ?", answers)
        tx.executemany("UPDATE runs SET answer_until_ms = NULL WHERE run_id = ?", answers)
        return RunSweep(len(answers), len(runs))

    def _seal(self, value: bytes | None, *place: str) -> bytes | None:
        """Seal a value for a place: table, run, step and column."""
        return None if value is None else self._seals.seal(value, *place)

    def _unseal(self, sealed: bytes | None, *place: str) -> bytes | None:
        return None if sealed is None else self._seals.unseal(sealed, *place)

    def _steps(self, tx: Transaction, run_id: str, columns: Sequence[str]) -> tuple[StepRecord, ...]:
        steps = []
        for row in tx.execute(f"SELECT {', '.join(columns)} FROM steps WHERE run_id = ? ORDER BY seq", (run_id,)):
            step = dict(zip(columns, row, strict=True))
            place = _step_place(run_id, step["kind"], step["number"], step["attempt"])
            for name in _SEALED_COLUMNS:
                step[name] = self._unseal(step.get(name), *place, name)
            step |= {"state": StepState(step["state"]), "repeatable": bool(step["repeatable"])}
            steps.append(StepRecord(**step))
        return tuple(steps)


def pauses() -> Iterator[float]:
    """Yield the seconds to wait between polls of the store: 2 ms, then doubled up to 100 ms."""
    pause = 0.002
    while True:
        yield pause
        pause = min(2 * pause, 0.1)


def _lapsed_query(
    pack_digests: Collection[str], run_id: str | None, excluded: Collection[str]
) -> tuple[str, tuple[str, ...]]:
    """Return the query for the next run to take over, and its parameters except the first, the current time."""
    condition = "" if run_id is None else "AND run_id = ?"
    if excluded:
        condition += f" AND run_id NOT IN ({', '.join('?' * len(excluded))})"
    query = _SELECT_LAPSED.format(digests=", ".join("?" * len(pack_digests)), condition=condition)
    run_parameter = () if run_id is None else (run_id,)
    return query, (*pack_digests, *run_parameter, *excluded)


def _find_in_doubt(tx: Transaction, run_id: str) -> tuple[int, StepKind] | None:
    """Return the number and kind of the first step in doubt, or None."""
    row = tx.execute(_SELECT_IN_DOUBT, (run_id,)).fetchone()
    return None if row is None else (row[0], row[1])


def _attempt_name(run_id: str, kind: StepKind, number: int, attempt: int) -> str:
    return f"attempt {attempt} to {kind} step {number} of run {run_id}"


def _step_place(run_id: str, kind: StepKind, number: int, attempt: int) -> tuple[str, str, str]:
    return "steps", run_id, f"{kind}/{number}/{attempt}"


def _read_run(row: tuple[Any, ...]) -> Run:
    values = dict(zip(_RUN_COLUMNS, row, strict=True))
    return Run(**values | {"state": RunState(values["state"]), "cancel": bool(values["cancel"])})
