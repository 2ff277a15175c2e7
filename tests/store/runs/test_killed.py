"""Processes that are killed: what they said is there, and the next one knows where they were."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from manglecp.store.ledger import Ledger
from manglecp.store.run_model import RunState
from tests.store.runs.bench import PACK, Bench

pytestmark = pytest.mark.no_cover  # whole processes, and the code in them is tested elsewhere

ROOT = Path(__file__).resolve().parents[3]


def wait_until_they_are_gone(bench: Bench) -> None:
    """A server may still be at work for a client that is dead."""
    if bench.database.dialect == "sqlite":
        return
    deadline = time.monotonic() + 60
    while True:
        with bench.database.write_transaction() as tx:
            busy = tx.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'"
            ).fetchone()[0]
        if not busy:
            return
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("seed", range(2))
def test_killed_at_any_moment(bench: Bench, where: str, seed: int) -> None:
    chance = random.Random(seed)
    with bench.database.read_transaction() as tx:
        before = Ledger().head(tx).seq
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.store.runs._worker", where, name],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("p", "q")
    ]
    said: list[list[str]] = []
    for worker in workers:
        assert worker.stdout is not None
        said.append(worker.stdout.readline().split())  # it is at work
    time.sleep(chance.uniform(0.02, 0.2))
    for worker in workers:
        worker.kill()
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stderr is not None
        # Not communicate(): what readline() has fetched beyond its line would be missing from it.
        out, err = worker.stdout.read(), worker.stderr.read()
        assert (worker.wait(), err) == (-signal.SIGKILL, "")
        worker.stdout.close()
        worker.stderr.close()
        said += [line.split() for line in out.splitlines(keepends=True) if line.endswith("\n")]
    wait_until_they_are_gone(bench)

    for what, run, *rest in said:
        shown = bench.shown(run)
        steps = {step.number: step.state.value for step in shown.steps}
        if what == "started":
            assert int(rest[0]) in steps
        if what == "finished":
            assert steps[int(rest[0])] == "done"
        assert what != "ended" or shown.run.state == RunState.SUCCEEDED

    with bench.database.read_transaction() as tx:
        runs = bench.runs.list(tx, limit=100_000)
        entries = Ledger().rows(tx, before, 1_000_000)
        assert Ledger().verify(tx).sound
    assert {entry.run for entry in entries if entry.kind == "admission"} == {run.run_id for run in runs}
    witnessed = [(entry.run, entry.body["step"]) for entry in entries if entry.kind == "turn"]
    begun = [(run.run_id, step.number) for run in runs for step in bench.shown(run.run_id).steps]
    assert sorted(witnessed) == sorted(begun), "a step was started if and only if its witness is in the ledger"

    left = {run.run_id for run in runs if run.state == RunState.RUNNING}
    assert len(left) <= 2
    for run_id in left:
        bench.lapse(run_id)
        claimed = bench.runs.take_over("next", 60_000, [PACK], 3, run_id=run_id)
        assert claimed is not None
        assert [step.number for step in claimed.steps] == list(range(1, len(claimed.steps) + 1))
        assert all(step.state == "done" for step in claimed.steps[:-1]), "at most the last one is in doubt"
