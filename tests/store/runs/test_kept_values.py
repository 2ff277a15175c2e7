"""What a run leaves for a later one: its owner's, sealed, and there as long as the run is known."""

from __future__ import annotations

import pytest

from manglecp.store.errors import Fenced, Unusable
from manglecp.store.run_model import Retention, RunState
from manglecp.store.seals import Seals
from tests.store.runs.bench import Bench, ending, start
from tests.store.runs.conftest import Opened

KEY = bytes(range(32))


def keep(bench: Bench, run: str = "r1", fence: int = 1, **values: bytes) -> None:
    with bench.database.write_transaction() as tx:
        bench.runs.record_ends(tx, run, fence, [ending()], kept=values)


def kept(bench: Bench, name: str = "backup", run: str = "r1", identity: str = "kim") -> bytes | None:
    with bench.database.read_transaction() as tx:
        return bench.runs.kept(tx, identity, run, name)


@pytest.fixture
def running(bench: Bench) -> Bench:
    bench.accept()
    bench.started(start())
    return bench


def test_it_outlives_the_run(running: Bench) -> None:
    keep(running, backup=b"before", other=b"more")
    running.end(state=RunState.FAILED)
    assert kept(running) == b"before"
    assert kept(running, "other") == b"more"
    assert kept(running, "nothing") is None


def test_it_belongs_to_who_asked(running: Bench) -> None:
    keep(running, backup=b"before")
    assert kept(running, identity="robin") is None
    assert kept(running, run="r2") is None


def test_nobody_keeps_for_a_run_that_is_another_s_now(running: Bench) -> None:
    with pytest.raises(Fenced):
        keep(running, fence=2, backup=b"late")
    assert kept(running) is None


def test_it_goes_with_the_run(opened: Opened) -> None:
    bench = Bench(opened.database, retention=Retention(runs_ms=0))
    bench.accept()
    bench.started(start())
    keep(bench, backup=b"before")
    bench.end()
    with bench.database.write_transaction() as tx:
        assert bench.runs.sweep(tx).runs == 1
        assert tx.execute("SELECT count(*) FROM run_kept").fetchone()[0] == 0


def test_it_is_sealed_and_does_not_move(opened: Opened) -> None:
    bench = Bench(opened.database, Seals(KEY))
    bench.accept()
    bench.started(start())
    keep(bench, backup=b"before", other=b"more")
    with bench.database.write_transaction() as tx:
        rows = [bytes(value) for (value,) in tx.execute("SELECT value FROM run_kept").fetchall()]
        assert not any(b"before" in row or b"more" in row for row in rows)
        tx.execute("DELETE FROM run_kept WHERE name = 'other'")
        tx.execute("UPDATE run_kept SET name = 'other'")
    with pytest.raises(Unusable, match="does not open"):
        kept(bench, "other")
