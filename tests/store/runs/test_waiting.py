"""Whoever attached himself to a run learns what becomes of it."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from manglecp.store.runs import RunState, pauses
from manglecp.store.store import open_database
from tests.store.runs.bench import PARTS, Bench, start

LONG = 120.0
"""Nobody waits that long who is told in time."""


def test_it_is_over_already(bench: Bench) -> None:
    bench.accept()
    bench.end()
    began = time.monotonic()
    assert bench.runs.wait("r1", LONG).state == RunState.SUCCEEDED
    assert time.monotonic() < began + LONG / 2


@pytest.mark.parametrize("how", ["end", "undecided"])
def test_somebody_else_ends_it(bench: Bench, where: str, how: str) -> None:
    other = Bench(open_database(where, parts=PARTS))
    bench.accept()
    threading.Timer(0.1, getattr(other, how)).start()
    began = time.monotonic()
    run = bench.runs.wait("r1", LONG)
    assert time.monotonic() < began + LONG / 2
    assert run.state == (RunState.SUCCEEDED if how == "end" else RunState.NEEDS_DECISION)
    other.database.close()


def test_progress(bench: Bench, where: str) -> None:
    other = Bench(open_database(where, parts=PARTS))
    bench.accept()
    seen = bench.shown().run.revision
    assert bench.runs.wait("r1", 0.01, seen=seen).revision == seen
    threading.Timer(0.1, other.started, [start()]).start()
    began = time.monotonic()
    run = bench.runs.wait("r1", LONG, seen=seen)
    assert time.monotonic() < began + LONG / 2
    assert run.revision > seen
    assert run.state == RunState.RUNNING
    other.database.close()


def test_no_longer_than_one_wants(bench: Bench) -> None:
    bench.accept()
    began = time.monotonic()
    assert bench.runs.wait("r1", 0.2).state == RunState.RUNNING
    assert time.monotonic() - began > 0.19


def test_pauses_grow_and_stay_small() -> None:
    some = list(itertools.islice(pauses(), 20))
    assert some == sorted(some)
    assert 0 < some[0] <= 0.005
    assert some[-1] <= 0.1
