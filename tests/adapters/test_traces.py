from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from manglecp.adapters.turns import MIN_RUN, UnusedResults

letters = st.text("abc ", min_size=0, max_size=120)


def found(result: str, reply: str, call_id: str = "c") -> dict[int, str]:
    traces = UnusedResults(1 << 16)
    traces.add(1, call_id, [result])
    return dict(traces.search(reply))


@given(letters, letters)
def test_every_run_of_24_characters_is_found(result: str, reply: str) -> None:
    """Compared with looking at every place."""
    runs = [result[i : i + MIN_RUN] for i in range(len(result) - MIN_RUN + 1)]
    expected = any(run in reply and sum(map(str.isalnum, run)) >= MIN_RUN for run in runs)
    run = found(result, reply).get(1)
    if expected:
        assert run is not None
    if run is not None:
        assert len(run) >= MIN_RUN
        assert run in result
        assert run in reply


@pytest.mark.parametrize("length", range(24, 60))
@pytest.mark.parametrize("start", range(0, 40, 7))
def test_runs_anywhere(start: int, length: int) -> None:
    rnd = random.Random(1)
    result = "".join(rnd.choices("abcdefghijklmnop", k=100))
    run = result[start : start + length]
    assert found(result, f"!!{run}!!") == {1: run}
    assert found(result, f"!!{run[:23]}!!") == {}


@pytest.mark.parametrize(
    ("result", "reply", "span"),
    [
        ("order ORD-1234 shipped", "Your ORD-1234 is on its way", "ORD-1234"),
        ("see a3f9c2d.", "commit a3f9c2d", "a3f9c2d"),
        ("on 2026-03-02", "on 2026-03-02", None),  # a date is no id
        ("a1b2", "a1b2", None),
        ("xORD-1234", "ORD-1234", None),
        ("pretty", "pretty", None),
        (" " * 60, " " * 60, None),
        ("|-----------|-----------|---------|", "|-----------|-----------|---------|", None),
    ],
)
def test_ids(result: str, reply: str, span: str | None) -> None:
    assert found(result, reply).get(1) == span


def test_the_id_of_the_call() -> None:
    assert found("x", "as toolu_01 says", "toolu_01") == {1: "toolu_01"}
    assert found("x", "the 1 and only", "1") == {}


def test_found_once_and_then_no_longer_watched() -> None:
    traces = UnusedResults(1 << 16)
    traces.add(1, "c", ["the pool has room for eighty guests"])
    traces.add(2, "c", ["the pool has room for eighty guests"])
    assert dict(traces.search("the pool has room for eighty guests")).keys() == {1, 2}
    assert dict(traces.search("the pool has room for eighty guests")) == {}


def test_what_is_watched_survives_what_is_dropped() -> None:
    traces = UnusedResults(1 << 16)
    traces.add(0, "c", ["the pool has room for eighty guests"])
    for key in range(1, 100):
        traces.add(key, "c", [f"result number {key} of a hundred and some"])
        traces.drop(key)
    assert dict(traces.search("the pool has room for eighty guests")).keys() == {0}


def test_only_so_much_of_a_result_is_searched() -> None:
    traces = UnusedResults(30)
    traces.add(1, "c", ["x" * 30 + "the pool has room for eighty guests"])
    assert dict(traces.search("the pool has room for eighty guests")) == {}
