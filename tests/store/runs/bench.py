"""A journal under test, and short words for what is done with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from manglecp.store.database import Database, Transaction
from manglecp.store.ledger import LEDGER
from manglecp.store.run_model import (
    Decision,
    NewRun,
    OwnedRun,
    Retention,
    RunState,
    RunView,
    SettledStep,
    StepEnd,
    StepKind,
    StepStart,
    StepState,
    Values,
)
from manglecp.store.run_store import RUNS, RunStore
from manglecp.store.seals import Seals

PARTS = (RUNS, LEDGER)
PACK = "sha256:pack"
HOUR = 3_600_000
"""A claim that does not lapse while a test runs."""


def new_run(
    run_id: str = "r1",
    *,
    identity: str = "kim",
    key: str | None = None,
    digest: str = "sha256:request",
    pack: str = PACK,
    owner: str = "first",
    claim_ms: int = HOUR,
    values: Values | None = None,
) -> NewRun:
    return NewRun(
        run_id=run_id,
        identity=identity,
        macro_id="macro_1",
        pack_digest=pack,
        request_digest=digest,
        request_key=key,
        admission=b'{"run":"r1"}',
        values=values or Values(plan=b"the plan", args=b"the arguments", slots=b"the slots"),
        owner=owner,
        claim_ms=claim_ms,
    )


def start(
    number: int = 1, attempt: int = 1, *, kind: StepKind = "do", repeatable: bool = False, value: bytes | None = b"in"
) -> StepStart:
    return StepStart(
        number=number,
        kind=kind,
        attempt=attempt,
        call_id=f"r1/{kind[0]}{number}/{attempt}",
        action="charge",
        tier=2,
        repeatable=repeatable,
        input=value,
        input_digest="sha256:in",
        witness="jw1_w",
    )


def ending(
    number: int = 1,
    attempt: int = 1,
    *,
    kind: StepKind = "do",
    state: Any = StepState.DONE,
    output: bytes | None = b"out",
    code: str | None = None,
) -> StepEnd:
    return StepEnd(
        number=number,
        kind=kind,
        attempt=attempt,
        state=state,
        output=output,
        output_digest="sha256:out",
        code=code,
        note=b"a note",
    )


def read(number: int, *, state: Any = StepState.DONE, tier: int = 0) -> SettledStep:
    return SettledStep(
        number=number,
        state=state,
        call_id=f"r1/s{number}/1",
        action="look",
        tier=tier,
        input=b"question",
        input_digest="sha256:question",
        output=b"reply",
        output_digest="sha256:reply",
        note=b"why",
    )


class Bench:
    """One transaction for each word."""

    def __init__(self, database: Database, seals: Seals | None = None, retention: Retention | None = None) -> None:
        self.database = database
        self.runs = RunStore(database, seals or Seals(), retention)

    def accept(self, run_id: str = "r1", **members: Any) -> None:
        with self.database.write_transaction() as tx:
            self.runs.accept(tx, new_run(run_id, **members))

    def started(self, *starts: StepStart, run: str = "r1", fence: int = 1, **rest: Any) -> bool:
        with self.database.write_transaction() as tx:
            return self.runs.record_starts(tx, run, fence, starts, **rest)

    def finished(self, *ends: StepEnd, run: str = "r1", fence: int = 1, **rest: Any) -> bool:
        with self.database.write_transaction() as tx:
            return self.runs.record_ends(tx, run, fence, ends, **rest)

    def settled(self, *settled: SettledStep, run: str = "r1", fence: int = 1) -> bool:
        with self.database.write_transaction() as tx:
            return self.runs.record_ends(tx, run, fence, (), settled=settled)

    def end(
        self, state: RunState = RunState.SUCCEEDED, answer: bytes | None = b"answer", *, run: str = "r1", fence: int = 1
    ) -> None:
        with self.database.write_transaction() as tx:
            self.runs.end(tx, run, fence, state, answer)

    def undecided(
        self, code: str = "gate_refused", step: int | None = None, *, run: str = "r1", fence: int = 1, **rest: Any
    ) -> None:
        with self.database.write_transaction() as tx:
            self.runs.park(tx, run, fence, code, step=step, **rest)

    def decide(
        self, verdict: Any, step: int | None = None, *, run: str = "r1", by: str = "op", **rest: Any
    ) -> RunState:
        with self.database.write_transaction() as tx:
            return self.runs.decide(tx, run, Decision(verdict=verdict, step=step, **rest), by)

    def claim(
        self, owner: str = "second", *, claim_ms: int = HOUR, packs: Sequence[str] = (PACK,), most: int = 3, **rest: Any
    ) -> OwnedRun | None:
        return self.runs.take_over(owner, claim_ms, packs, most, **rest)

    def lapse(self, run: str = "r1") -> None:
        """As if the time of its claim had passed."""
        with self.database.write_transaction() as tx:
            tx.execute("UPDATE runs SET claim_until_ms = ? WHERE run_id = ?", (tx.now_ms(), run))

    def shown(self, run: str = "r1") -> RunView:
        with self.database.read_transaction() as tx:
            shown = self.runs.show(tx, run)
        assert shown is not None
        return shown

    def loaded(self, run: str = "r1") -> OwnedRun:
        with self.database.read_transaction() as tx:
            return self.runs.load(tx, run)

    def states(self, run: str = "r1") -> list[tuple[StepKind, int, int, str]]:
        return [(step.kind, step.number, step.attempt, step.state.value) for step in self.shown(run).steps]

    def answer(self, run: str = "r1") -> bytes | None:
        with self.database.read_transaction() as tx:
            return self.runs.answer(tx, run)


def everything(tx: Transaction) -> list[tuple[Any, ...]]:
    """All that the journal holds."""
    runs = tx.execute("SELECT * FROM runs ORDER BY run_id").fetchall()
    runs += tx.execute("SELECT * FROM run_values ORDER BY run_id").fetchall()
    return runs + tx.execute("SELECT * FROM steps ORDER BY run_id, seq").fetchall()
