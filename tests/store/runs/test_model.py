"""Whatever is done with runs, in whatever order and by whomever: the journal does what a small model of it says.

The model holds the state machine of model.py in a few dictionaries. Owners come too late on purpose (old fences), start
steps that must not start, decide what is not to be decided. What the model forbids has to be refused and to change
nothing; what it admits has to happen exactly so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from manglecp.store.errors import ChangeRefused, Fenced, KeyTaken, NotOpen
from manglecp.store.run_model import RunState, StepState
from manglecp.store.store import open_database
from tests.store.runs.bench import HOUR, PACK, PARTS, Bench, ending, read, start
from tests.store.runs.conftest import Opened

RUN_IDS = ("r1", "r2", "r3")
OWNERS = ("ann", "bob")
MOST_TAKEOVERS = 2

runs = st.sampled_from(RUN_IDS)
owners = st.sampled_from(OWNERS)
numbers = st.integers(1, 2)
kinds = st.sampled_from(["do", "undo"])
late = st.sampled_from([0, 0, 0, 0, 0, 1, 2])
"""How many fences behind somebody is."""


@dataclass
class Attempt:
    kind: str
    number: int
    attempt: int
    state: str
    repeatable: bool
    by: str | None = None

    @property
    def blocks(self) -> bool:
        return self.state in ("started", "done", "skipped") or self.in_doubt

    @property
    def in_doubt(self) -> bool:
        return self.state == "unknown" and not self.repeatable


@dataclass
class Modelled:
    key: str | None
    owner: str | None
    lapsed: bool
    state: str = "running"
    fence: int = 1
    takeovers: int = 0
    cancel: bool = False
    code: str | None = None
    answer: bytes | None = None
    slots: bytes | None = b"the slots"
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return self.state not in ("running", "needs_decision")

    def of(self, kind: str, number: int) -> list[Attempt]:
        return [one for one in self.attempts if (one.kind, one.number) == (kind, number)]

    def doubt(self) -> None:
        for one in self.attempts:
            if one.state == "started":
                one.state = "unknown"

    def close(self, state: str, code: str | None, answer: bytes | None) -> None:
        self.doubt()
        self.state, self.code, self.answer, self.owner, self.slots = state, code, answer, None, None


class JournalMachine(RuleBasedStateMachine):
    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.model: dict[str, Modelled] = {}

    @initialize()
    def empty(self) -> None:
        with self.bench.database.write_transaction() as tx:
            for table in ("runs", "run_values", "steps"):
                tx.execute(f"DELETE FROM {table}")

    def expect(self, allowed: bool, refusal: type[ChangeRefused] | tuple[type[ChangeRefused], ...], do: Any) -> bool:
        """Do it; it has to be refused exactly if it is not allowed."""
        if allowed:
            do()
            return True
        with pytest.raises(refusal):
            do()
        return False

    def holds(self, run: str, fence: int) -> bool:
        return run in self.model and self.model[run].state == "running" and self.model[run].fence == fence

    def fence(self, run: str, behind: int) -> int:
        return max(self.model[run].fence - behind, 0) if run in self.model else 1

    # --- accepting and claiming ---

    @rule(run=runs, owner=owners, key=st.sampled_from([None, "k1", "k2"]), lapsed=st.booleans())
    def accept(self, run: str, owner: str, key: str | None, lapsed: bool) -> None:
        taken = key is not None and any(one.key == key for one in self.model.values())
        do = lambda: self.bench.accept(run, key=key, owner=owner, claim_ms=0 if lapsed else HOUR)  # noqa: E731
        if self.expect(not taken and run not in self.model, KeyTaken if taken else NotOpen, do):
            self.model[run] = Modelled(key=key, owner=owner, lapsed=lapsed)

    @rule(owner=owners, run=runs, lapsed=st.booleans())
    def claim(self, owner: str, run: str, lapsed: bool) -> None:
        claimed = self.bench.runs.take_over(owner, 0 if lapsed else HOUR, [PACK], MOST_TAKEOVERS, run_id=run)
        one = self.model.get(run)
        if one is None or one.state != "running" or not one.lapsed:
            assert claimed is None
            return
        one.takeovers += one.owner is not None
        one.fence += 1
        one.doubt()
        if one.takeovers > MOST_TAKEOVERS:
            assert claimed is None
            one.state, one.code, one.owner = "needs_decision", "poisoned", None
            return
        assert claimed is not None
        one.owner, one.lapsed = owner, lapsed
        assert (claimed.run.fence, claimed.run.owner) == (one.fence, owner)
        assert claimed.values.slots == one.slots

    @rule(owner=owners, behind=late, lapsed=st.booleans())
    def renew(self, owner: str, behind: int, lapsed: bool) -> None:
        beat = {run: self.fence(run, behind) for run in RUN_IDS}
        lost = self.bench.runs.heartbeat(owner, beat, 0 if lapsed else HOUR)
        mine = {run for run, one in self.model.items() if one.state == "running" and one.owner == owner}
        assert lost == {run for run in RUN_IDS if run not in mine or self.model[run].fence != beat[run]}
        for run in mine:
            self.model[run].lapsed = lapsed

    @rule(run=runs, behind=late)
    def release(self, run: str, behind: int) -> None:
        fence = self.fence(run, behind)

        def do() -> None:
            with self.bench.database.write_transaction() as tx:
                self.bench.runs.release(tx, run, fence)

        if self.expect(self.holds(run, fence), Fenced, do):
            self.model[run].owner, self.model[run].lapsed = None, True

    # --- steps ---

    @rule(run=runs, behind=late, kind=kinds, number=numbers, attempt=st.integers(0, 2), repeatable=st.booleans())
    def start(self, run: str, behind: int, kind: Any, number: int, attempt: int, repeatable: bool) -> None:
        """Attempt 0 is the next one, the others may have been."""
        fence = self.fence(run, behind)
        before = self.model[run].of(kind, number) if run in self.model else []
        attempt = attempt or len(before) + 1
        free = not any(one.blocks or one.attempt == attempt for one in before)
        held = self.holds(run, fence)
        one = start(number, attempt, kind=kind, repeatable=repeatable)
        if self.expect(
            held and free, NotOpen if held else Fenced, lambda: self.bench.started(one, run=run, fence=fence)
        ):
            self.model[run].attempts.append(Attempt(kind, number, attempt, "started", repeatable))

    @precondition(lambda self: any(one.state == "started" for run in self.model.values() for one in run.attempts))
    @rule(data=st.data(), behind=late, state=st.sampled_from(["done", "done", "failed", "unknown"]))
    def finish(self, data: st.DataObject, behind: int, state: str) -> None:
        """Something that was started, by whoever it was started."""
        under_way = [(run, one) for run, all_ in self.model.items() for one in all_.attempts if one.state == "started"]
        run, one = data.draw(st.sampled_from(under_way))
        self.finish_that(run, behind, one.kind, one.number, one.attempt, state)

    @rule(run=runs, behind=late, kind=kinds, number=numbers, attempt=st.integers(1, 2))
    def finish_anything(self, run: str, behind: int, kind: str, number: int, attempt: int) -> None:
        self.finish_that(run, behind, kind, number, attempt, "done")

    def finish_that(self, run: str, behind: int, kind: Any, number: int, attempt: int, state: str) -> None:
        fence = self.fence(run, behind)
        held = self.holds(run, fence)
        found = [one for one in self.model[run].of(kind, number) if one.attempt == attempt] if run in self.model else []
        under_way = bool(found) and found[0].state == "started"
        end = ending(number, attempt, kind=kind, state=StepState(state))
        slots = f"slots {kind} {number} {attempt}".encode()
        do = lambda: self.bench.finished(end, run=run, fence=fence, slots=slots)  # noqa: E731
        if self.expect(held and under_way, NotOpen if held else Fenced, do):
            found[0].state = state
            self.model[run].slots = slots
            if state == "done":
                self.model[run].takeovers = 0

    @rule(run=runs, behind=late, number=numbers, state=st.sampled_from(["done", "failed", "skipped"]))
    def settle(self, run: str, behind: int, number: int, state: str) -> None:
        fence = self.fence(run, behind)
        before = self.model[run].of("do", number) if run in self.model else []
        blocks = state != "failed" and any(one.blocks for one in before)
        free = not blocks and not any(one.attempt == 1 for one in before)
        held = self.holds(run, fence)
        do = lambda: self.bench.settled(read(number, state=StepState(state)), run=run, fence=fence)  # noqa: E731
        if self.expect(held and free, NotOpen if held else Fenced, do):
            self.model[run].attempts.append(Attempt("do", number, 1, state, True))

    # --- ends and decisions ---

    @rule(run=runs, behind=late, state=st.sampled_from(["succeeded", "failed", "cancelled"]))
    def end(self, run: str, behind: int, state: str) -> None:
        fence = self.fence(run, behind)
        do = lambda: self.bench.end(RunState(state), state.encode(), run=run, fence=fence)  # noqa: E731
        if self.expect(self.holds(run, fence), Fenced, do):
            self.model[run].close(state, None, state.encode())

    @rule(run=runs, behind=late)
    def ask_for_a_decision(self, run: str, behind: int) -> None:
        fence = self.fence(run, behind)
        do = lambda: self.bench.undecided("gate_refused", run=run, fence=fence, answer=b"wait")  # noqa: E731
        if self.expect(self.holds(run, fence), Fenced, do):
            one = self.model[run]
            one.doubt()
            one.state, one.code, one.owner, one.answer = "needs_decision", "gate_refused", None, b"wait"

    @precondition(lambda self: self.model)
    @rule(
        data=st.data(),
        verdict=st.sampled_from(["happened", "did_not", "resume", "abort"]),
        kind=kinds,
        number=numbers,
    )
    def decide(self, data: st.DataObject, verdict: str, kind: str, number: int) -> None:
        run = data.draw(st.sampled_from(sorted(self.model)))
        one = self.model[run]
        attempts = one.of(kind, number)
        last = max(attempts, key=lambda attempt: attempt.attempt) if attempts else None
        allowed = one.state == "needs_decision" and (
            verdict == "abort"
            or (verdict == "resume" and not any(attempt.in_doubt for attempt in one.attempts))
            or (verdict in ("happened", "did_not") and last is not None and last.state == "unknown")
        )
        do = lambda: self.bench.decide(verdict, number, run=run, kind=kind, by="olga", answer=b"no")  # noqa: E731
        if not self.expect(allowed, NotOpen, do):
            return
        one.fence += 1
        if verdict == "abort":
            one.close("failed", "aborted", b"no")
            return
        if verdict != "resume":
            assert last is not None
            last.state, last.by = ("done" if verdict == "happened" else "failed"), "olga"
        if not any(attempt.in_doubt for attempt in one.attempts):
            one.state, one.code, one.owner, one.answer = "running", None, None, None
            one.lapsed, one.takeovers = True, 0

    @rule(run=runs, identity=st.sampled_from(["kim", "eve"]))
    def ask_cancel(self, run: str, identity: str) -> None:
        with self.bench.database.write_transaction() as tx:
            asked = self.bench.runs.request_cancel(tx, run, identity)
        assert asked == (identity == "kim" and run in self.model and not self.model[run].over)
        if asked:
            self.model[run].cancel = True

    # --- what has to hold after each of them ---

    @invariant()
    def the_journal_is_as_the_model(self) -> None:
        with self.bench.database.read_transaction() as tx:
            assert {run.run_id for run in self.bench.runs.list(tx)} == set(self.model)
            for run_id, one in self.model.items():
                loaded = self.bench.runs.load(tx, run_id)
                run = loaded.run
                found = (run.state, run.fence, run.owner, run.takeovers, run.cancel, run.code)
                assert found == (one.state, one.fence, one.owner, one.takeovers, one.cancel, one.code)
                assert [
                    (step.kind, step.number, step.attempt, step.state, step.decided_by) for step in loaded.steps
                ] == [(step.kind, step.number, step.attempt, step.state, step.by) for step in one.attempts]
                assert loaded.values.slots == one.slots
                assert self.bench.runs.answer(tx, run_id) == one.answer
                assert (loaded.values.args is None) == (run.ended_ms is not None) == one.over
                assert not one.over or all(step.input is None and step.output is None for step in loaded.steps)
                for step in loaded.steps:
                    same = one.of(step.kind, step.number)
                    assert sum(attempt.blocks for attempt in same) <= 1, "no effect twice"


EXAMPLES = settings.default.max_examples if settings.default else 20
LONG = settings(stateful_step_count=60, max_examples=2 * EXAMPLES)
SHORT = settings(stateful_step_count=60, max_examples=EXAMPLES // 3)


def machine(bench: Bench) -> type[JournalMachine]:
    class OnThis(JournalMachine):
        def __init__(self) -> None:
            super().__init__(bench)

    return OnThis


def test_in_memory() -> None:
    database = open_database(":memory:", parts=PARTS)
    run_state_machine_as_test(machine(Bench(database)), settings=LONG)
    database.close()


def test_on_postgresql(postgresql: Opened) -> None:
    run_state_machine_as_test(machine(Bench(postgresql.database)), settings=SHORT)
