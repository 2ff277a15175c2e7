"""Whoever lost a run can write nothing about it, however late he comes and whatever he was doing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

import pytest

from manglecp.store.database import Transaction
from manglecp.store.errors import Fenced
from manglecp.store.ledger import Ledger
from manglecp.store.run_model import RunState
from manglecp.store.run_store import RunStore
from manglecp.store.store import open_database
from tests.store.runs.bench import PARTS, Bench, ending, everything, read, start

Write: TypeAlias = Callable[[RunStore, Transaction, int], object]

WRITES: dict[str, Write] = {
    "started": lambda runs, tx, fence: runs.record_starts(
        tx, "r1", fence, [start(2)], settled=[read(3)], slots=b"late"
    ),
    "finished": lambda runs, tx, fence: runs.record_ends(tx, "r1", fence, [ending(1)], slots=b"late"),
    "settled": lambda runs, tx, fence: runs.record_ends(tx, "r1", fence, (), settled=[read(3)], slots=b"late"),
    "end": lambda runs, tx, fence: runs.end(tx, "r1", fence, RunState.SUCCEEDED, b"late"),
    "needs_decision": lambda runs, tx, fence: runs.park(tx, "r1", fence, "late", step=1),
    "release": lambda runs, tx, fence: runs.release(tx, "r1", fence),
}


@pytest.fixture(params=sorted(WRITES))
def write(request: pytest.FixtureRequest) -> Write:
    return WRITES[request.param]


def test_after_a_take_over(bench: Bench, write: Write) -> None:
    """Neither the journal nor the ledger has anything of it."""
    bench.accept()
    bench.started(start(1))
    bench.lapse()
    assert bench.claim() is not None
    with bench.database.read_transaction() as tx:
        before = everything(tx), Ledger().head(tx)

    def come_late() -> None:
        with bench.database.write_transaction() as tx:
            Ledger().append(tx, "turn", {}, run="r1")
            write(bench.runs, tx, 1)

    with pytest.raises(Fenced) as raised:
        come_late()
    assert (raised.value.run_id, raised.value.fence, raised.value.code) == ("r1", 1, "fenced")
    with bench.database.read_transaction() as tx:
        assert (everything(tx), Ledger().head(tx)) == before


def test_the_new_owner_writes(bench: Bench, write: Write) -> None:
    bench.accept()
    bench.lapse()
    assert bench.claim() is not None
    bench.started(start(1), fence=2)
    with bench.database.write_transaction() as tx:
        write(bench.runs, tx, 2)


@pytest.mark.parametrize("verdict", ["happened", "did_not", "resume", "abort"])
def test_after_a_decision(bench: Bench, write: Write, verdict: str) -> None:
    bench.accept()
    if verdict == "resume":
        bench.undecided()
    else:
        bench.started(start(1))
        bench.undecided("outcome_unknown", 1)
    with pytest.raises(Fenced), bench.database.write_transaction() as tx:
        write(bench.runs, tx, 1)
    bench.decide(verdict, 1)
    with pytest.raises(Fenced), bench.database.write_transaction() as tx:
        write(bench.runs, tx, 1)


def test_of_a_run_that_was_set_aside(bench: Bench, write: Write) -> None:
    bench.accept()
    bench.started(start(1))
    bench.lapse()
    assert bench.claim(most=0) is None
    for fence in (1, 2):
        with pytest.raises(Fenced), bench.database.write_transaction() as tx:
            write(bench.runs, tx, fence)


def test_one_that_was_released_is_not_one_s_own(bench: Bench, write: Write) -> None:
    """Released and claimed again by the same owner, it has another fence."""
    bench.accept()
    bench.started(start(1))
    with bench.database.write_transaction() as tx:
        bench.runs.release(tx, "r1", 1)
    assert bench.claim("first") is not None
    with pytest.raises(Fenced), bench.database.write_transaction() as tx:
        write(bench.runs, tx, 1)


def test_a_take_over_waits_for_what_is_being_written(bench: Bench, where: str) -> None:
    """What the old owner commits, the new one sees; there is no time in between."""
    other = Bench(open_database(where, parts=PARTS, patience=60))
    bench.accept()
    bench.lapse()
    written, go_on = threading.Event(), threading.Event()

    def old_owner() -> None:
        with bench.database.write_transaction() as tx:
            bench.runs.record_starts(tx, "r1", 1, [start(1)])
            written.set()
            assert go_on.wait(60)

    thread = threading.Thread(target=old_owner)
    thread.start()
    try:
        assert written.wait(60)
        if other.database.dialect == "postgresql":  # SQLite has no second writer that could try
            assert other.claim() is None
    finally:
        go_on.set()
        thread.join(60)
    claimed = other.claim()
    assert claimed is not None
    assert [(step.number, step.state.value) for step in claimed.steps] == [(1, "unknown")]
    other.database.close()


def test_what_is_written_waits_for_a_take_over(bench: Bench, where: str) -> None:
    other = Bench(open_database(where, parts=PARTS, patience=60))
    bench.accept()
    bench.lapse()
    claiming, go_on = threading.Event(), threading.Event()
    fenced: list[bool] = []

    def old_owner() -> None:
        assert claiming.wait(60)
        go_on.set()
        try:
            bench.started(start(1))
        except Fenced:
            fenced.append(True)

    thread = threading.Thread(target=old_owner)
    thread.start()
    with other.database.write_transaction() as tx:  # as a claim does it, only slower
        tx.execute("UPDATE runs SET fence = fence + 1, owner = 'other' WHERE run_id = 'r1'")
        claiming.set()
        assert go_on.wait(60)
        thread.join(0.2)
        assert thread.is_alive(), "it has to wait"
    thread.join(60)
    assert fenced == [True]
    assert bench.states() == []
    other.database.close()
