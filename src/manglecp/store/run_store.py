"""The journal of runs with effects: records before and after each step, and ownership.

* A step has a row before it is sent and another state after it; recovery continues at the first step without a row.
* Ownership ends at a time of the database's clock unless a heartbeat extends it. A takeover raises the fencing token
  (``fence``), which every statement of an owner tests: a late owner writes nothing and gets :class:`.Fenced`.
* A step that was started and has no end is *in doubt*. A repeatable action is retried; for any other the database
  refuses a second attempt until a person has decided.

Methods that take a transaction are part of it: append to the ledger last, and commit both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from manglecp.store.database import NOW, Database, Transaction
from manglecp.store.errors import Fenced, Invalid, KeyTaken, NoRun, NotOpen, Unusable
from manglecp.store.run_model import (
    ENDS,
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
from manglecp.store.schema import ByDialect, SchemaPart
from manglecp.store.seals import Seals

ABORTED: Final = "aborted"
DID_NOT_HAPPEN: Final = "did_not_happen"
OUTCOME_UNKNOWN: Final = "outcome_unknown"
POISONED: Final = "poisoned"
_MAX_UNREADABLE: Final = 100

OnPoisoned: TypeAlias = Callable[[Transaction, Run], None]
"""Called for a parked run inside the parking transaction, to append a ledger entry."""

# The unique index steps_once enforces at-most-once: a step is started again only if no attempt at it is under way, done
# or skipped, and none that must not be repeated is in doubt. There are no other constraints: PostgreSQL prepares them
# anew for every statement, which made a step a tenth slower.
#
# A row of runs is written with every step and every heartbeat, so it is kept small: rarely changed columns are in
# run_values, and no index has a column that a step or a heartbeat changes.

RUNS: Final = SchemaPart(
    "runs",
    (
        """
    CREATE TABLE runs (
        run_id          TEXT PRIMARY KEY,
        identity        TEXT NOT NULL,
        macro_id        TEXT NOT NULL,
        pack_digest     TEXT NOT NULL,
        request_key     TEXT,
        request_digest  TEXT NOT NULL,
        state           TEXT NOT NULL,
        code            TEXT,
        step            BIGINT,
        kind            TEXT,
        fence           BIGINT NOT NULL,
        owner           TEXT,
        claim_until_ms  BIGINT NOT NULL,
        takeovers       BIGINT NOT NULL,
        cancel          BIGINT NOT NULL,
        revision        BIGINT NOT NULL,
        created_ms      BIGINT NOT NULL,
        touched_ms      BIGINT NOT NULL,
        ended_ms        BIGINT,
        answer_until_ms BIGINT,
        slots           {blob},
        UNIQUE (identity, request_key)
    ) {strict}
    """,
        "CREATE INDEX runs_claimable ON runs (pack_digest) WHERE state = 'running'",
        "CREATE INDEX runs_by_state ON runs (state, created_ms)",
        "CREATE INDEX runs_created ON runs (created_ms)",
        "CREATE INDEX runs_ended ON runs (ended_ms) WHERE ended_ms IS NOT NULL",
        "CREATE INDEX runs_answered ON runs (answer_until_ms) WHERE answer_until_ms IS NOT NULL",
        """
    CREATE TABLE run_values (
        run_id          TEXT PRIMARY KEY,
        admission       {blob} NOT NULL,
        plan            {blob},
        args            {blob},
        answer          {blob}
    ) {strict}
    """,
        # No foreign key: rows are only written under a lock on their run, and PostgreSQL would lock it again for each.
        """
    CREATE TABLE steps (
        run_id          TEXT NOT NULL,
        kind            TEXT NOT NULL,
        number          BIGINT NOT NULL,
        attempt         BIGINT NOT NULL,
        seq             BIGINT NOT NULL,
        state           TEXT NOT NULL,
        call_id         TEXT,
        action          TEXT NOT NULL,
        tier            BIGINT NOT NULL,
        repeatable      BIGINT NOT NULL,
        input_digest    TEXT,
        output_digest   TEXT,
        code            TEXT,
        witness         TEXT,
        decided_by      TEXT,
        started_ms      BIGINT NOT NULL,
        ended_ms        BIGINT,
        input           {blob},
        output          {blob},
        note            {blob},
        PRIMARY KEY (run_id, kind, number, attempt)
    ) {strict}
    """,
        """
    CREATE UNIQUE INDEX steps_once ON steps (run_id, kind, number)
    WHERE state IN ('started', 'done', 'skipped') OR (state = 'unknown' AND repeatable = 0)
    """,
        # Free space for the next version of a row in its page; no compression of encrypted values.
        ByDialect(
            sqlite=(),
            postgresql=(
                "ALTER TABLE runs SET (fillfactor = 50), ALTER COLUMN slots SET STORAGE EXTERNAL",
                "ALTER TABLE run_values ALTER COLUMN plan SET STORAGE EXTERNAL, ALTER COLUMN args SET STORAGE EXTERNAL,"
                " ALTER COLUMN answer SET STORAGE EXTERNAL",
                "ALTER TABLE steps ALTER COLUMN input SET STORAGE EXTERNAL, ALTER COLUMN output SET STORAGE EXTERNAL,"
                " ALTER COLUMN note SET STORAGE EXTERNAL",
            ),
        ),
        # Values for later runs. They are deleted with the run.
        """
    CREATE TABLE run_kept (
        run_id          TEXT NOT NULL,
        name            TEXT NOT NULL,
        value           {blob} NOT NULL,
        PRIMARY KEY (run_id, name)
    ) {strict}
    """,
        ByDialect(sqlite=(), postgresql=("ALTER TABLE run_kept ALTER COLUMN value SET STORAGE EXTERNAL",)),
    ),
)

_ACCEPT: Final = """
    INSERT INTO runs (run_id, identity, macro_id, pack_digest, request_key, request_digest, state, fence, owner,
        claim_until_ms, takeovers, cancel, revision, created_ms, touched_ms, slots)
    VALUES (?, ?, ?, ?, ?, ?, 'running', 1, ?, ?, 0, 0, 0, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""
_PUT_VALUES: Final = "INSERT INTO run_values (run_id, admission, plan, args) VALUES (?, ?, ?, ?)"
_CLOSE: Final = """
    UPDATE runs SET state = ?, code = ?, step = NULL, kind = NULL, owner = NULL, claim_until_ms = 0,
        revision = revision + 1, touched_ms = ?, ended_ms = ?,
        answer_until_ms = CASE WHEN request_key IS NULL THEN CAST(? AS BIGINT) ELSE CAST(? AS BIGINT) END,
        slots = NULL
    WHERE run_id = ?
"""
_ERASE_VALUES: Final = "UPDATE run_values SET plan = NULL, args = NULL, answer = ? WHERE run_id = ?"
_ANSWER: Final = "UPDATE run_values SET answer = ? WHERE run_id = ?"
_NEEDS_DECISION: Final = """
    UPDATE runs SET state = 'needs_decision', code = ?, step = ?, kind = ?, owner = NULL, claim_until_ms = 0
    WHERE run_id = ?
"""
_REQUEST_CANCEL: Final = """
    UPDATE runs SET cancel = 1, revision = revision + 1
    WHERE run_id = ? AND identity = ? AND state IN ('running', 'needs_decision')
"""
# A repeated step stores its value again.
_KEEP: Final = """
    INSERT INTO run_kept (run_id, name, value) VALUES (?, ?, ?)
    ON CONFLICT (run_id, name) DO UPDATE SET value = excluded.value
"""
_KEPT: Final = """
    SELECT k.value FROM run_kept k JOIN runs r ON r.run_id = k.run_id
    WHERE k.run_id = ? AND k.name = ? AND r.identity = ?
"""
# The members of the structs, in their order: rows become structs by position.
_RUN: Final = Run.__struct_fields__
_SEALED: Final = ("input", "output", "note")
_STEP: Final = tuple(name for name in StepRecord.__struct_fields__ if name not in _SEALED)
_STEP_COLUMNS: Final = ("run_id", "seq", *_STEP, *_SEALED)
_SELECT_RUN: Final = f"SELECT {', '.join(_RUN)} FROM runs"
_SELECT_VALUES: Final = """
    SELECT admission, plan, args, slots FROM runs JOIN run_values USING (run_id) WHERE run_id = ?
"""
_OLD_ANSWERS: Final = """
    SELECT run_id FROM runs WHERE answer_until_ms IS NOT NULL AND answer_until_ms <= ? ORDER BY answer_until_ms LIMIT ?
"""
_OLD_RUNS: Final = "SELECT run_id FROM runs WHERE ended_ms IS NOT NULL AND ended_ms <= ? ORDER BY ended_ms LIMIT ?"

_LAPSED: Final = """
    SELECT run_id, takeovers + CASE WHEN owner IS NULL THEN 0 ELSE 1 END FROM runs
    WHERE state = 'running' AND claim_until_ms <= ? AND pack_digest IN ({digests}) {which}
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
# One statement for all runs of an owner.
_HEARTBEAT: Final = """
    UPDATE runs SET claim_until_ms = ? WHERE owner = ? AND state = 'running' AND run_id IN ({runs})
    RETURNING run_id, fence
"""
_RELEASE: Final = """
    UPDATE runs SET owner = NULL, claim_until_ms = ?, touched_ms = ?
    WHERE run_id = ? AND fence = ? AND state = 'running'
"""
_HOLD: Final = """
    UPDATE runs SET revision = revision + ?, touched_ms = {now}, takeovers = takeovers * ?, slots = COALESCE(?, slots)
    WHERE run_id = ? AND fence = ? AND state = 'running'
    RETURNING cancel, touched_ms, revision
"""
_INSERT_STEP: Final = f"""
    INSERT INTO steps ({", ".join(_STEP_COLUMNS)}) VALUES ({", ".join("?" for _ in _STEP_COLUMNS)})
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
_ERASE_STEPS: Final = "UPDATE steps SET input = NULL, output = NULL, note = NULL WHERE run_id = ?"

_LOCK_UNDECIDED: Final = """
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


class RunSweep(NamedTuple):
    """Counts of deleted rows. If one equals the limit, there may be more to sweep."""

    answers: int
    runs: int


class _Ownership(NamedTuple):
    cancel: bool
    now_ms: int
    revision: int


class RunStore:
    """The runs of one store. Threads may share it."""

    def __init__(self, database: Database, seals: Seals, retention: Retention | None = None) -> None:
        self._database = database
        self._seals = seals
        self._retention = retention or Retention()

    def accept(self, tx: Transaction, new: NewRun) -> None:
        """Record a run; it is acknowledged when this is committed, and owned by the caller under fence 1.

        Raises :class:`.KeyTaken` if the identity has used the request key.
        """
        now_ms = tx.now_ms()
        run_id, values = new.run_id, new.values
        row = (
            *(run_id, new.identity, new.macro_id, new.pack_digest, new.request_key, new.request_digest),
            *(new.owner, now_ms + new.claim_ms, now_ms, now_ms, self._seal(values.slots, "runs", run_id, "slots")),
        )
        if tx.execute(_ACCEPT, row).rowcount == 1:
            plan = self._seal(values.plan, "runs", run_id, "plan")
            args = self._seal(values.args, "runs", run_id, "args")
            tx.execute(_PUT_VALUES, (run_id, new.admission, plan, args))
            return
        earlier = None if new.request_key is None else self.by_key(tx, new.identity, new.request_key)
        if earlier is None:
            raise NotOpen(f"there is a run {run_id} already")
        raise KeyTaken(earlier.run_id, earlier.request_digest)

    def take_over(
        self,
        owner: str,
        claim_ms: int,
        pack_digests: Collection[str],
        most_takeovers: int,
        *,
        run_id: str | None = None,
        on_poisoned: OnPoisoned | None = None,
    ) -> OwnedRun | None:
        """Take over a run (or this one) whose ownership has lapsed; steps that were under way are then ``unknown``.

        A run that was taken over more than ``most_takeovers`` times without progress is parked instead: it may crash
        its owners.
        """
        if not pack_digests:
            return None
        unreadable: dict[str, Unusable] = {}
        while True:
            lapsed, values = _search(pack_digests, run_id, unreadable)
            # Usually no run has lapsed; this check must not block writers.
            with self._database.read_transaction() as tx:
                if tx.execute(lapsed, (tx.now_ms(), *values)).fetchone() is None:
                    break
            chosen = ""
            try:
                with self._database.write_transaction() as tx:
                    now_ms = tx.now_ms()
                    lapsed_run = tx.locked(lapsed, (now_ms, *values)).fetchone()
                    if lapsed_run is None:  # another process took it over, or has locked it
                        break
                    chosen, takeovers = lapsed_run
                    tx.execute(_DOUBT, (now_ms, chosen))
                    if takeovers <= most_takeovers:
                        tx.execute(_TAKE_OVER, (owner, now_ms + claim_ms, takeovers, now_ms, chosen))
                        return self.load(tx, chosen)
                    tx.execute(_POISON, (takeovers, now_ms, *(_find_in_doubt(tx, chosen) or (None, None)), chosen))
                    if on_poisoned is not None:
                        on_poisoned(tx, self.run(tx, chosen))
            except Unusable as error:
                # Sealed with another key, or damaged: skip it, so that later runs do not wait for it.
                if not chosen or len(unreadable) == _MAX_UNREADABLE:
                    raise
                unreadable[chosen] = error
        for cause in unreadable.values():
            raise cause
        return None

    def heartbeat(self, owner: str, runs: Mapping[str, int], claim_ms: int) -> set[str]:
        """Extend the ownership of runs (id: fence) in one statement; return those that are lost."""
        if not runs:
            return set()
        with self._database.write_transaction() as tx:
            statement = _HEARTBEAT.format(runs=", ".join("?" * len(runs)))
            extended = dict(tx.execute(statement, (tx.now_ms() + claim_ms, owner, *runs)).fetchall())
        return {run_id for run_id, fence in runs.items() if extended.get(run_id) != fence}

    def release(self, tx: Transaction, run_id: str, fence: int, *, after_ms: int = 0) -> None:
        """Give up ownership, for others from ``after_ms`` on; this does not count as a takeover."""
        now_ms = tx.now_ms()
        if tx.execute(_RELEASE, (now_ms + after_ms, now_ms, run_id, fence)).rowcount != 1:
            raise Fenced(run_id, fence)

    def started(
        self,
        tx: Transaction,
        run_id: str,
        fence: int,
        starts: Sequence[StepStart],
        *,
        settled: Sequence[SettledStep] = (),
        slots: bytes | None = None,
    ) -> bool:
        """Record calls that are about to be sent, after steps that ended; return whether cancelling was requested.

        Raises :class:`.NotOpen` if another attempt at one of the steps exists.
        """
        held = self._hold(tx, run_id, fence, changes=len(settled) + len(starts), slots=slots)
        self._insert_steps(tx, run_id, (*settled, *starts), held)
        return held.cancel

    def finished(
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
        """Record the ends of calls, and values for later runs; return whether cancelling was requested."""
        progress = any(one.state == StepState.DONE for one in ends)
        held = self._hold(tx, run_id, fence, changes=len(settled) + 1, progress=progress, slots=slots)
        for one in ends:
            place = (run_id, one.kind, one.number, one.attempt)
            output, note = (self._seal(getattr(one, name), *_step_place(*place), name) for name in ("output", "note"))
            row = (one.state.value, one.output_digest, one.code, held.now_ms, output, note, *place)
            if tx.execute(_FINISH, row).rowcount != 1:
                raise NotOpen(f"{_attempt_name(*place)} is not under way")
        self._insert_steps(tx, run_id, settled, held)
        for name, value in (kept or {}).items():
            tx.execute(_KEEP, (run_id, name, self._seals.seal(value, "run_kept", run_id, name)))
        return held.cancel

    def end(self, tx: Transaction, run_id: str, fence: int, state: RunState, answer: bytes | None) -> None:
        """End the run. Its values are deleted; the answer stays for repeated requests."""
        if state not in ENDS:
            raise Invalid("state", f"{state.value} is not a final state")
        held = self._hold(tx, run_id, fence, changes=0)
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
        """Park the run until a person decides. ``answer`` is sent to clients until then."""
        held = self._hold(tx, run_id, fence, changes=1)
        tx.execute(_DOUBT, (held.now_ms, run_id))
        tx.execute(_NEEDS_DECISION, (code, step, None if step is None else kind, run_id))
        if answer is not None:
            tx.execute(_ANSWER, (self._seal(answer, "runs", run_id, "answer"), run_id))

    def _hold(
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

        Until the transaction ends no other process can take the run over. ``changes``: by how much the revision grows.
        """
        sealed = self._seal(slots, "runs", run_id, "slots")
        statement = _HOLD.format(now=NOW[tx.dialect])
        row = tx.execute(statement, (changes, 0 if progress else 1, sealed, run_id, fence)).fetchone()
        if row is None:
            raise Fenced(run_id, fence)
        return _Ownership(bool(row[0]), *row[1:])

    def _insert_steps(
        self, tx: Transaction, run_id: str, steps: Sequence[StepStart | SettledStep], held: _Ownership
    ) -> None:
        """Insert steps, in the order of the last revisions of the run. Raises :class:`.NotOpen`."""
        for seq, step in enumerate(steps, held.revision - len(steps) + 1):
            place = (run_id, step.kind, step.number, step.attempt)
            row = msgspec.structs.asdict(step) | {"run_id": run_id, "seq": seq, "started_ms": held.now_ms}
            if isinstance(step, StepStart):
                row |= {"state": "started", "repeatable": int(step.repeatable)}
            elif step.state == StepState.DONE and step.tier > 0:
                raise Invalid("state", "an effect is done only after it was started")
            else:
                row |= {"state": step.state.value, "repeatable": int(step.tier == 0), "ended_ms": held.now_ms}
            for name in _SEALED:
                row[name] = self._seal(row.get(name), *_step_place(*place), name)
            if tx.execute(_INSERT_STEP, [row.get(name) for name in _STEP_COLUMNS]).rowcount != 1:
                # The index steps_once decides.
                raise NotOpen(f"{_attempt_name(*place)} cannot begin: another attempt exists")

    def _close(
        self, tx: Transaction, run_id: str, state: RunState, code: str | None, answer: bytes | None, now_ms: int
    ) -> None:
        keep = self._retention
        until = (None, None) if answer is None else (now_ms + keep.other_answers_ms, now_ms + keep.keyed_answers_ms)
        tx.execute(_CLOSE, (state.value, code, now_ms, now_ms, *until, run_id))
        tx.execute(_ERASE_VALUES, (self._seal(answer, "runs", run_id, "answer"), run_id))
        tx.execute(_DOUBT, (now_ms, run_id))
        tx.execute(_ERASE_STEPS, (run_id,))

    def decide(self, tx: Transaction, run_id: str, decision: Decision, by: str) -> RunState:
        """Apply a person's decision about a run in ``needs_decision``; return its new state.

        A step whose outcome is unknown and that must not be repeated is in doubt: a person decides whether it happened.
        When no step is in doubt, the run continues and may be taken over. A run that waits for another reason continues
        with ``resume``. Every decision raises the fence: the previous owner loses the run.
        """
        now_ms = tx.now_ms()
        if tx.execute(_LOCK_UNDECIDED, (now_ms, run_id)).rowcount != 1:
            raise NotOpen(f"run {run_id} is {self.run(tx, run_id).state.value}: it needs no decision")
        if decision.verdict == "abort":
            self._close(tx, run_id, RunState.FAILED, ABORTED, decision.answer, now_ms)
            return RunState.FAILED
        if decision.verdict != "resume":
            self._decide_step(tx, run_id, decision, by)
        in_doubt = _find_in_doubt(tx, run_id)
        if in_doubt is None:
            tx.execute(_GO_ON, (run_id,))
            tx.execute(_ANSWER, (None, run_id))
            return RunState.RUNNING
        if decision.verdict == "resume":
            raise NotOpen(f"run {run_id} cannot continue: decide first whether the step in doubt happened")
        tx.execute("UPDATE runs SET step = ?, kind = ? WHERE run_id = ?", (*in_doubt, run_id))
        return RunState.NEEDS_DECISION

    def _decide_step(self, tx: Transaction, run_id: str, decision: Decision, by: str) -> None:
        if decision.step is None:
            raise Invalid("step", f"{decision.verdict} is about a step: name it")
        row = tx.execute(_LAST_ATTEMPT, (run_id, decision.kind, decision.step)).fetchone()
        if row is None or row[1] != "unknown":
            raise NotOpen(f"the outcome of {decision.kind} step {decision.step} of run {run_id} is not unknown")
        place = (run_id, decision.kind, decision.step, row[0])
        if decision.verdict == "happened":
            output = self._seal(decision.output, *_step_place(*place), "output")
            tx.execute(_DECIDE, ("done", None, by, output, decision.output_digest, *place))
        else:
            tx.execute(_DECIDE, ("failed", DID_NOT_HAPPEN, by, None, None, *place))

    def free_key(self, tx: Transaction, run_id: str) -> None:
        """Detach the request key from a run that is over, so that it can begin another."""
        tx.execute("UPDATE runs SET request_key = NULL WHERE run_id = ? AND ended_ms IS NOT NULL", (run_id,))

    def request_cancel(self, tx: Transaction, run_id: str, identity: str) -> bool:
        """Request that the owner stop. Return False if this identity has no such run, or it is over."""
        return tx.execute(_REQUEST_CANCEL, (run_id, identity)).rowcount == 1

    def run(self, tx: Transaction, run_id: str) -> Run:
        row = tx.execute(f"{_SELECT_RUN} WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            raise NoRun(run_id)
        return _run(row)

    def by_key(self, tx: Transaction, identity: str, request_key: str) -> Run | None:
        """Return the run that this identity requested under this key, or None."""
        row = tx.execute(f"{_SELECT_RUN} WHERE identity = ? AND request_key = ?", (identity, request_key)).fetchone()
        return None if row is None else _run(row)

    def answer(self, tx: Transaction, run_id: str) -> bytes | None:
        """Return the answer; None if there is none yet, or it was deleted. Raises :class:`.NoRun`."""
        row = tx.execute("SELECT answer FROM run_values WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            raise NoRun(run_id)
        return self._open(row[0], "runs", run_id, "answer")

    def kept(self, tx: Transaction, identity: str, run_id: str, name: str) -> bytes | None:
        """Return a value that a run kept for later runs of the same identity; None also for another identity."""
        row = tx.execute(_KEPT, (run_id, name, identity)).fetchone()
        return None if row is None else self._seals.unseal(row[0], "run_kept", run_id, name)

    def show(self, tx: Transaction, run_id: str) -> RunView | None:
        """Return a run with its steps, without their values; None if there is none."""
        try:
            run = self.run(tx, run_id)
        except NoRun:
            return None
        admission = tx.execute("SELECT admission FROM run_values WHERE run_id = ?", (run_id,)).fetchone()[0]
        return RunView(run=run, admission=admission, steps=self._steps(tx, run_id, _STEP))

    def load(self, tx: Transaction, run_id: str) -> OwnedRun:
        """Return a run with all of its values. Raises :class:`.NoRun`."""
        run = self.run(tx, run_id)
        admission, *sealed = tx.execute(_SELECT_VALUES, (run_id,)).fetchone()
        names = ("plan", "args", "slots")
        values = {name: self._open(value, "runs", run_id, name) for name, value in zip(names, sealed, strict=True)}
        steps = self._steps(tx, run_id, (*_STEP, *_SEALED))
        return OwnedRun(run=run, admission=admission, values=Values(**values), steps=steps)

    def list(self, tx: Transaction, state: RunState | None = None, limit: int = 100) -> Sequence[Run]:
        condition, values = ("", ()) if state is None else (" WHERE state = ?", (state.value,))
        rows = tx.execute(f"{_SELECT_RUN}{condition} ORDER BY created_ms DESC, run_id LIMIT ?", (*values, limit))
        return tuple(_run(row) for row in rows.fetchall())

    def sweep(self, tx: Transaction, *, limit: int = 500) -> RunSweep:
        """Delete up to ``limit`` answers and runs past their retention. Runs that need a decision are never deleted."""
        now_ms = tx.now_ms()
        runs = tx.locked(_OLD_RUNS, (now_ms - self._retention.runs_ms, limit)).fetchall()
        if runs:
            for table in ("steps", "run_values", "run_kept", "runs"):
                tx.executemany(f"DELETE FROM {table} WHERE run_id = ?", runs)
        answers = tx.locked(_OLD_ANSWERS, (now_ms, limit)).fetchall()
        if answers:
            tx.executemany("UPDATE run_values SET answer = NULL WHERE run_id = ?", answers)
            tx.executemany("UPDATE runs SET answer_until_ms = NULL WHERE run_id = ?", answers)
        return RunSweep(len(answers), len(runs))

    # Each sealed value is bound to its table, run, step and column.

    def _seal(self, value: bytes | None, *place: str) -> bytes | None:
        return None if value is None else self._seals.seal(value, *place)

    def _open(self, sealed: bytes | None, *place: str) -> bytes | None:
        return None if sealed is None else self._seals.unseal(sealed, *place)

    def _steps(self, tx: Transaction, run_id: str, columns: Sequence[str]) -> tuple[StepRecord, ...]:
        steps = []
        for row in tx.execute(f"SELECT {', '.join(columns)} FROM steps WHERE run_id = ? ORDER BY seq", (run_id,)):
            step = dict(zip(columns, row, strict=True))
            place = _step_place(run_id, step["kind"], step["number"], step["attempt"])
            for name in _SEALED:
                step[name] = self._open(step.get(name), *place, name)
            steps.append(
                StepRecord(**step | {"state": StepState(step["state"]), "repeatable": bool(step["repeatable"])})
            )
        return tuple(steps)


def pauses(first: float = 0.002, longest: float = 0.1) -> Iterator[float]:
    """Yield the seconds between polls, doubling up to ``longest``."""
    pause = first
    while True:
        yield pause
        pause = min(2 * pause, longest)


def _search(pack_digests: Collection[str], run_id: str | None, without: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Return the statement that finds the next run to take over, and its values."""
    digests, others = (", ".join("?" for _ in some) for some in (pack_digests, without))
    which = "" if run_id is None else "AND run_id = ?"
    which += f" AND run_id NOT IN ({others})" if others else ""
    return (
        _LAPSED.format(digests=digests, which=which),
        (*pack_digests, *(() if run_id is None else (run_id,)), *without),
    )


def _find_in_doubt(tx: Transaction, run_id: str) -> tuple[int, StepKind] | None:
    row = tx.execute(_IN_DOUBT, (run_id,)).fetchone()
    return None if row is None else (row[0], row[1])


def _attempt_name(run_id: str, kind: StepKind, number: int, attempt: int) -> str:
    return f"attempt {attempt} to {kind} step {number} of run {run_id}"


def _step_place(run_id: str, kind: StepKind, number: int, attempt: int) -> tuple[str, str, str]:
    return "steps", run_id, f"{kind}/{number}/{attempt}"


def _run(row: tuple[Any, ...]) -> Run:
    values = dict(zip(_RUN, row, strict=True))
    return Run(**values | {"state": RunState(values["state"]), "cancel": bool(values["cancel"])})
