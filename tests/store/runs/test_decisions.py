"""What only a person can say."""

from __future__ import annotations

import threading

import pytest

from manglecp.store.errors import Invalid, NotOpen
from manglecp.store.ledger import Ledger
from manglecp.store.run_model import Decision, RunState, StepState
from manglecp.store.run_store import DID_NOT_HAPPEN
from tests.store.runs.bench import Bench, ending, start


@pytest.fixture
def doubtful(bench: Bench) -> Bench:
    """A run that waits for a word about step 2."""
    bench.accept(key="k")
    bench.started(start(1))
    bench.finished(ending(1))
    bench.started(start(2))
    bench.undecided("outcome_unknown", 2, answer=b"ask an operator")
    return bench


def test_it_waits(doubtful: Bench) -> None:
    run = doubtful.shown().run
    assert (run.state, run.code, run.step, run.kind) == (RunState.NEEDS_DECISION, "outcome_unknown", 2, "do")
    assert (run.owner, run.ended_ms) == (None, None)
    assert doubtful.answer() == b"ask an operator"
    assert doubtful.claim() is None
    assert doubtful.states()[1] == ("do", 2, 1, "unknown")
    assert doubtful.loaded().values.args == b"the arguments", "it may have to go on"


def test_it_happened(doubtful: Bench) -> None:
    state = doubtful.decide("happened", 2, output=b"receipt", output_digest="sha256:receipt", by="olga")
    assert state == RunState.RUNNING
    claimed = doubtful.claim()
    assert claimed is not None
    assert (claimed.run.code, claimed.run.step, claimed.run.kind, claimed.run.takeovers) == (None, None, None, 0)
    step = claimed.steps[1]
    assert (step.state, step.output, step.output_digest) == (StepState.DONE, b"receipt", "sha256:receipt")
    assert (step.decided_by, step.code) == ("olga", None)
    assert claimed.steps[0].decided_by is None
    with pytest.raises(NotOpen):
        doubtful.started(start(2, attempt=2), fence=claimed.run.fence)
    assert doubtful.answer() is None, "what clients were told is not true any more"


def test_it_did_not(doubtful: Bench) -> None:
    assert doubtful.decide("did_not", 2, by="olga") == RunState.RUNNING
    claimed = doubtful.claim()
    assert claimed is not None
    step = claimed.steps[1]
    assert (step.state, step.code, step.output, step.decided_by) == (StepState.FAILED, DID_NOT_HAPPEN, None, "olga")
    doubtful.started(start(2, attempt=2), fence=claimed.run.fence)


def test_abort(doubtful: Bench) -> None:
    assert doubtful.decide("abort", answer=b"given up") == RunState.FAILED
    run = doubtful.shown().run
    assert (run.state, run.code, run.step) == (RunState.FAILED, "aborted", None)
    assert run.ended_ms is not None
    assert doubtful.answer() == b"given up"
    assert doubtful.claim() is None
    assert doubtful.states() == [("do", 1, 1, "done"), ("do", 2, 1, "unknown")]
    with pytest.raises(NotOpen):
        doubtful.decide("abort")


def test_doubt_is_not_resumed(doubtful: Bench) -> None:
    with pytest.raises(NotOpen):
        doubtful.decide("resume")
    assert doubtful.shown().run.state == RunState.NEEDS_DECISION


@pytest.mark.parametrize("verdict", ["happened", "did_not"])
@pytest.mark.parametrize(("step", "kind"), [(1, "do"), (3, "do"), (2, "undo")])
def test_another_step(doubtful: Bench, verdict: str, step: int, kind: str) -> None:
    before = doubtful.shown()
    with pytest.raises(NotOpen):
        doubtful.decide(verdict, step, kind=kind)
    with pytest.raises(Invalid):
        doubtful.decide(verdict)
    assert doubtful.shown() == before


@pytest.mark.parametrize("verdict", ["happened", "did_not", "resume", "abort"])
@pytest.mark.parametrize("state", [None, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED])
def test_only_where_a_decision_is_needed(bench: Bench, state: RunState | None, verdict: str) -> None:
    bench.accept()
    bench.started(start(1))
    bench.finished(ending(1, state=StepState.UNKNOWN))
    if state is not None:
        bench.end(state)
    before = bench.shown()
    with pytest.raises(NotOpen):
        bench.decide(verdict, 1)
    assert bench.shown() == before


def test_several_steps_in_doubt(bench: Bench) -> None:
    """A group whose coordinator died: one word for each, and only then it goes on."""
    bench.accept()
    bench.started(start(1), start(2, repeatable=True), start(3))
    bench.undecided("outcome_unknown", 1)
    assert bench.decide("did_not", 1) == RunState.NEEDS_DECISION
    assert (bench.shown().run.step, bench.claim()) == (3, None)
    with pytest.raises(NotOpen):
        bench.decide("happened", 1)
    assert bench.decide("happened", 3) == RunState.RUNNING
    assert bench.states() == [("do", 1, 1, "failed"), ("do", 2, 1, "unknown"), ("do", 3, 1, "done")]


def test_of_a_repeatable_step_one_may_say_so_too(bench: Bench) -> None:
    bench.accept()
    bench.started(start(1, repeatable=True))
    bench.undecided()
    assert bench.decide("happened", 1) == RunState.RUNNING
    assert bench.states() == [("do", 1, 1, "done")]


def test_it_is_about_the_last_attempt(bench: Bench) -> None:
    bench.accept()
    for attempt in (1, 2):
        bench.started(start(1, attempt, repeatable=True), start(2, attempt, repeatable=True))
        state = StepState.UNKNOWN if attempt == 1 else StepState.FAILED
        bench.finished(ending(1, attempt, state=StepState.UNKNOWN), ending(2, attempt, state=state))
    bench.undecided()
    with pytest.raises(NotOpen):
        bench.decide("happened", 2)
    bench.decide("happened", 1)
    assert bench.states() == [
        *(("do", 1, 1, "unknown"), ("do", 2, 1, "unknown")),
        *(("do", 1, 2, "done"), ("do", 2, 2, "failed")),
    ]


def test_a_gate_that_was_closed(bench: Bench) -> None:
    bench.accept()
    bench.undecided("gate_refused")
    assert bench.decide("resume") == RunState.RUNNING
    claimed = bench.claim()
    assert claimed is not None
    assert (claimed.run.fence, claimed.run.takeovers) == (3, 0)


def test_poison_starts_anew(bench: Bench) -> None:
    bench.accept()
    bench.lapse()
    assert bench.claim(most=0) is None
    assert bench.decide("resume") == RunState.RUNNING
    assert bench.claim(most=0, claim_ms=0) is not None, "nobody had it: that is no take-over"
    assert bench.claim(most=0) is None
    assert bench.shown().run.code == "poisoned"


def test_cancelling_waits_for_the_decision(doubtful: Bench) -> None:
    with doubtful.database.write_transaction() as tx:
        assert doubtful.runs.request_cancel(tx, "r1", "kim")
    doubtful.decide("happened", 2)
    claimed = doubtful.claim()
    assert claimed is not None
    assert claimed.run.cancel


def test_two_people(doubtful: Bench) -> None:
    """One is heard; nothing that the other wrote beside it stays."""
    ready = threading.Barrier(2)
    said: list[str] = []

    def decide(verdict: str) -> None:
        ready.wait(60)
        try:
            with doubtful.database.write_transaction() as tx:
                doubtful.runs.decide(tx, "r1", Decision(verdict=verdict, step=2), verdict)  # type: ignore[arg-type]
                Ledger().append(tx, "decision", {"verdict": verdict}, run="r1", identity=verdict)
        except NotOpen:
            return
        said.append(verdict)

    with doubtful.database.read_transaction() as tx:
        before = Ledger().head(tx).seq
    threads = [threading.Thread(target=decide, args=(verdict,)) for verdict in ("happened", "did_not")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(said) == 1
    assert doubtful.shown().steps[1].decided_by == said[0]
    with doubtful.database.read_transaction() as tx:
        assert [entry.identity for entry in Ledger().rows(tx, before)] == said
