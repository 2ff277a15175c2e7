"""A run from its acceptance to its end."""

from __future__ import annotations

import pytest

from manglecp.store.errors import Fenced, Invalid, NoRun, NotOpen
from manglecp.store.run_model import RunState, StepState, Values
from tests.store.runs.bench import HOUR, Bench, ending, new_run, read, start


def test_what_is_written_is_read(bench: Bench) -> None:
    bench.accept(key="k")
    assert not bench.started(start(2), settled=[read(1)], slots=b"slots after 1")
    bench.finished(ending(2), slots=b"slots after 2")
    loaded = bench.loaded()
    run = loaded.run
    assert (run.run_id, run.identity, run.macro_id, run.request_key) == ("r1", "kim", "macro_1", "k")
    assert (run.state, run.fence, run.owner, run.takeovers, run.cancel) == (RunState.RUNNING, 1, "first", 0, False)
    assert run.created_ms <= run.touched_ms < run.claim_until_ms <= run.created_ms + HOUR
    assert (run.ended_ms, run.code, run.step, run.kind) == (None, None, None, None)
    assert loaded.admission == bench.shown().admission == b'{"run":"r1"}'
    assert loaded.values == Values(plan=b"the plan", args=b"the arguments", slots=b"slots after 2")
    first, second = loaded.steps
    assert (first.number, first.state, first.tier, first.repeatable) == (1, StepState.DONE, 0, True)
    assert (first.input, first.output, first.note) == (b"question", b"reply", b"why")
    assert (first.input_digest, first.output_digest) == ("sha256:question", "sha256:reply")
    assert (second.number, second.kind, second.attempt, second.state) == (2, "do", 1, StepState.DONE)
    assert (second.call_id, second.action, second.tier, second.repeatable) == ("r1/d2/1", "charge", 2, False)
    assert (second.input, second.output, second.note, second.witness) == (b"in", b"out", b"a note", "jw1_w")
    assert second.ended_ms is not None
    assert run.created_ms <= second.started_ms <= second.ended_ms


def test_time_is_that_of_the_database(bench: Bench) -> None:
    bench.accept()
    with bench.database.write_transaction() as tx:
        before = tx.now_ms()
        bench.runs.record_starts(tx, "r1", 1, [start()])
        after = tx.now_ms()
    assert before - 1 <= bench.shown().steps[0].started_ms <= after + 1  # it is rounded in two ways


def test_values_are_shown_to_nobody_who_only_looks(bench: Bench) -> None:
    bench.accept()
    bench.started(start(2), settled=[read(1)])
    for step in bench.shown().steps:
        assert (step.input, step.output, step.note) == (None, None, None)


def test_a_secret_input_is_not_kept(bench: Bench) -> None:
    bench.accept()
    bench.started(start(value=None))
    assert bench.loaded().steps[0].input is None


def test_steps_come_back_in_the_order_of_their_records(bench: Bench) -> None:
    bench.accept()
    bench.started(start(9), start(4), settled=[read(7), read(8)])
    bench.finished(ending(4), ending(9), settled=[read(3)])
    bench.settled(read(2), read(1, state=StepState.SKIPPED, tier=3))
    bench.started(start(4, kind="undo"))
    assert [(kind, number) for kind, number, _, _ in bench.states()] == [
        *(("do", 7), ("do", 8), ("do", 9), ("do", 4), ("do", 3), ("do", 2), ("do", 1)),
        ("undo", 4),
    ]


def test_every_change_is_a_revision(bench: Bench) -> None:
    bench.accept()
    seen = [bench.shown().run.revision]
    for change in (
        lambda: bench.started(start()),
        lambda: bench.finished(ending()),
        lambda: bench.settled(read(2)),
        lambda: bench.undecided(),
        lambda: bench.decide("resume"),
        lambda: bench.claim(),
        lambda: bench.end(fence=3),
    ):
        change()
        seen.append(bench.shown().run.revision)
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("repeatable", [False, True])
@pytest.mark.parametrize("state", [None, StepState.DONE, StepState.FAILED, StepState.UNKNOWN])
def test_another_attempt(bench: Bench, state: StepState | None, repeatable: bool) -> None:
    """Only after a failure, or in doubt if the action may be repeated."""
    bench.accept()
    bench.started(start(repeatable=repeatable))
    if state is not None:
        bench.finished(ending(state=state))
    if state == StepState.FAILED or (state == StepState.UNKNOWN and repeatable):
        bench.started(start(attempt=2, repeatable=repeatable))
        assert bench.states() == [("do", 1, 1, state.value), ("do", 1, 2, "started")]
        return
    with pytest.raises(NotOpen):
        bench.started(start(attempt=2, repeatable=repeatable))
    assert bench.states() == [("do", 1, 1, "started" if state is None else state.value)]


def test_the_same_attempt_twice(bench: Bench) -> None:
    bench.accept()
    bench.started(start())
    bench.finished(ending(state=StepState.FAILED))
    with pytest.raises(NotOpen):
        bench.started(start())


def test_a_skipped_step_is_not_started(bench: Bench) -> None:
    bench.accept()
    bench.settled(read(1, state=StepState.SKIPPED, tier=2))
    with pytest.raises(NotOpen):
        bench.started(start(1, attempt=2))


def test_to_undo_is_another_step(bench: Bench) -> None:
    bench.accept()
    bench.started(start())
    bench.finished(ending())
    bench.started(start(kind="undo"))
    bench.finished(ending(kind="undo"))
    assert bench.states() == [("do", 1, 1, "done"), ("undo", 1, 1, "done")]


@pytest.mark.parametrize("state", [StepState.DONE, StepState.FAILED, StepState.UNKNOWN])
def test_a_step_is_finished_once_and_after_its_start(bench: Bench, state: StepState) -> None:
    bench.accept()
    with pytest.raises(NotOpen):
        bench.finished(ending(state=state))
    bench.started(start())
    bench.finished(ending(state=state))
    with pytest.raises(NotOpen):
        bench.finished(ending())
    assert bench.states() == [("do", 1, 1, state.value)]


def test_one_of_a_group_that_cannot_start_holds_all_back(bench: Bench) -> None:
    bench.accept()
    bench.started(start(2))
    with pytest.raises(NotOpen):
        bench.started(start(1), start(2, attempt=2), settled=[read(3)], slots=b"other")
    assert bench.states() == [("do", 2, 1, "started")]
    assert bench.loaded().values.slots == b"the slots"


def test_an_effect_is_not_done_without_a_start(bench: Bench) -> None:
    bench.accept()
    with pytest.raises(Invalid):
        bench.settled(read(1, tier=1))
    bench.settled(read(1, state=StepState.FAILED, tier=1))  # it was never sent


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED])
def test_the_end(bench: Bench, state: RunState) -> None:
    bench.accept(key="k")
    bench.started(start(1), start(2))
    bench.finished(ending(1))
    bench.end(state, b"all done")
    shown = bench.shown()
    assert (shown.run.state, shown.run.owner) == (state, None)
    assert shown.run.ended_ms is not None
    assert bench.states() == [("do", 1, 1, "done"), ("do", 2, 1, "unknown")]
    assert bench.answer() == b"all done"
    assert bench.claim() is None
    for again in (bench.end, bench.undecided, lambda: bench.started(start(3)), lambda: bench.finished(ending(2))):
        with pytest.raises(Fenced):
            again()
    assert bench.shown() == shown


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.NEEDS_DECISION])
def test_no_end(bench: Bench, state: RunState) -> None:
    bench.accept()
    with pytest.raises(Invalid):
        bench.end(state)
    assert bench.shown().run.state == RunState.RUNNING


def test_cancelling(bench: Bench) -> None:
    bench.accept()
    with bench.database.write_transaction() as tx:
        assert not bench.runs.request_cancel(tx, "r1", "somebody else")
        assert not bench.runs.request_cancel(tx, "r2", "kim")
    assert not bench.started(start())
    with bench.database.write_transaction() as tx:
        assert bench.runs.request_cancel(tx, "r1", "kim")
    assert bench.finished(ending())
    assert bench.settled(read(2))
    assert bench.started(start(kind="undo"))
    assert bench.shown().run.cancel
    bench.end(RunState.CANCELLED)
    with bench.database.write_transaction() as tx:
        assert not bench.runs.request_cancel(tx, "r1", "kim")


def test_lists(bench: Bench) -> None:
    for number in range(1, 5):
        bench.accept(f"r{number}")
        with bench.database.write_transaction() as tx:
            tx.execute("UPDATE runs SET created_ms = ? WHERE run_id = ?", (number, f"r{number}"))
    bench.end(run="r2")
    bench.undecided(run="r3")

    def listed(state: RunState | None = None, limit: int = 10) -> list[str]:
        with bench.database.read_transaction() as tx:
            return [run.run_id for run in bench.runs.list(tx, state, limit)]

    assert listed() == ["r4", "r3", "r2", "r1"]
    assert listed(limit=2) == ["r4", "r3"]
    assert listed(RunState.RUNNING) == ["r4", "r1"]
    assert listed(RunState.RUNNING, 1) == ["r4"]
    assert listed(RunState.NEEDS_DECISION) == ["r3"]
    assert listed(RunState.SUCCEEDED) == ["r2"]
    assert listed(RunState.CANCELLED) == []


def test_a_run_that_is_not_there(bench: Bench) -> None:
    with bench.database.read_transaction() as tx:
        assert bench.runs.show(tx, "r1") is None
        with pytest.raises(NoRun):
            bench.runs.load(tx, "r1")
        with pytest.raises(NoRun):
            bench.runs.answer(tx, "r1")
    with pytest.raises(NoRun):
        bench.decide("abort")
    with pytest.raises(NoRun), bench.database.read_transaction() as tx:
        bench.runs.run(tx, "r1")
    with pytest.raises(Fenced):
        bench.started(start())


def test_an_id_is_used_once(bench: Bench) -> None:
    bench.accept()
    with pytest.raises(NotOpen):
        bench.accept(identity="other")
    with pytest.raises(NotOpen):
        bench.accept(key="k")
    with bench.database.read_transaction() as tx:
        assert bench.runs.by_key(tx, "kim", "k") is None
    assert bench.shown().run.identity == new_run().identity
