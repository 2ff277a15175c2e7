"""What is over is forgotten after a while, and nothing else is."""

from __future__ import annotations

import pytest

from manglecp.store.errors import KeyTaken, NoRun
from manglecp.store.run_model import Retention, RunState
from manglecp.store.run_store import RunSweep
from tests.store.runs.bench import HOUR, Bench, start
from tests.store.runs.conftest import Opened

DAY = 24 * HOUR


@pytest.fixture
def keeping(opened: Opened) -> Bench:
    retention = Retention(keyed_answers_ms=DAY, other_answers_ms=HOUR, runs_ms=2 * DAY)
    return Bench(opened.database, retention=retention)


def age(bench: Bench, ms: int) -> None:
    """Everything that happened, happened so much earlier."""
    with bench.database.write_transaction() as tx:
        tx.execute("UPDATE runs SET ended_ms = ended_ms - ?, answer_until_ms = answer_until_ms - ?", (ms, ms))


def sweep(bench: Bench, limit: int = 100) -> RunSweep:
    with bench.database.write_transaction() as tx:
        return bench.runs.sweep(tx, limit=limit)


def test_answers_go_first_then_runs(keeping: Bench) -> None:
    keeping.accept("keyed", key="k")
    keeping.accept("other")
    for run in ("keyed", "other"):
        keeping.started(start(), run=run)
        keeping.end(run=run)
    assert sweep(keeping) == (0, 0)
    age(keeping, HOUR)
    assert sweep(keeping) == (1, 0)
    assert (keeping.answer("keyed"), keeping.answer("other")) == (b"answer", None)
    age(keeping, DAY - HOUR)
    assert sweep(keeping) == (1, 0)
    assert keeping.answer("keyed") is None
    with pytest.raises(KeyTaken):  # to run it again would be worse than to have no answer
        keeping.accept("again", key="k")
    age(keeping, DAY - 60_000)
    assert sweep(keeping) == (0, 0)
    age(keeping, 60_000)
    assert sweep(keeping) == (0, 2)
    with pytest.raises(NoRun):
        keeping.answer("keyed")
    with keeping.database.read_transaction() as tx:
        assert tx.execute("SELECT count(*) FROM steps").fetchone()[0] == 0
    keeping.accept("again", key="k")


def test_a_long_time_off_at_once(keeping: Bench) -> None:
    keeping.accept(key="k")
    keeping.end()
    age(keeping, 10 * DAY)
    assert sweep(keeping) == (0, 1)


def test_what_is_not_over_stays(keeping: Bench) -> None:
    keeping.accept("running")
    keeping.accept("waiting")
    keeping.undecided(run="waiting", answer=b"ask")
    with keeping.database.write_transaction() as tx:
        tx.execute("UPDATE runs SET created_ms = 0, touched_ms = 0")
    assert sweep(keeping) == (0, 0)
    assert keeping.answer("waiting") == b"ask"
    assert keeping.shown("running").run.state == RunState.RUNNING


def test_a_piece_at_a_time(keeping: Bench) -> None:
    for number in range(5):
        keeping.accept(f"r{number}")
        keeping.end(run=f"r{number}")
    age(keeping, HOUR)
    assert [sweep(keeping, 2) for _ in range(4)] == [(2, 0), (2, 0), (1, 0), (0, 0)]
    age(keeping, 2 * DAY)
    assert [sweep(keeping, 3) for _ in range(3)] == [(0, 3), (0, 2), (0, 0)]


def test_a_run_without_answer(keeping: Bench) -> None:
    keeping.accept()
    keeping.end(answer=None)
    age(keeping, DAY)
    assert sweep(keeping) == (0, 0)
    assert keeping.answer() is None
