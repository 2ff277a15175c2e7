"""Coalescing: the fewest intervals that cover the same instants, whatever the order in which they come."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from manglecp.base.source import Source
from manglecp.mangle.facts import Interval, clamp, coalesce, is_nonempty_interval
from manglecp.mangle.printer import fact_text
from manglecp.mangle.program import Program
from manglecp.mangle.values import INT_MAX, INT_MIN
from tests.mangle.builtins.strategies import INT64
from tests.mangle.naive import evaluate


def _interval(ends: tuple[int, int]) -> Interval:
    return min(ends), max(ends)


small = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(_interval)
short = st.tuples(st.integers(0, 60), st.integers(0, 4)).map(lambda found: (found[0], found[0] + found[1]))
large = st.tuples(INT64, INT64).map(_interval)
some = st.lists(st.one_of(small, short), max_size=10)
any_size = st.lists(st.one_of(large, small), max_size=8)


def instants(intervals: tuple[Interval, ...] | list[Interval]) -> set[int]:
    return {t for start, end in intervals for t in range(start, end + 1)}


@settings(deadline=None)
@given(some)
def test_the_same_instants_are_covered(intervals: list[Interval]) -> None:
    assert instants(coalesce(intervals)) == instants(intervals)


@settings(deadline=None)
@given(some)
def test_nothing_can_be_joined_any_more(intervals: list[Interval]) -> None:
    """As few as there are runs of instants."""
    covered = instants(intervals)
    assert len(coalesce(intervals)) == sum(1 for t in covered if t - 1 not in covered)


@settings(deadline=None)
@given(any_size)
def test_the_result_is_in_order_with_gaps(intervals: list[Interval]) -> None:
    joined = coalesce(intervals)
    assert all(start <= end for start, end in joined)
    assert all(right[0] > left[1] + 1 for left, right in pairwise(joined))
    starts, ends = {start for start, _ in intervals}, {end for _, end in intervals}
    assert all(start in starts and end in ends for start, end in joined)
    assert all(any(s <= start and end <= e for s, e in joined) for start, end in intervals)


@settings(deadline=None)
@given(any_size)
def test_coalescing_again_changes_nothing(intervals: list[Interval]) -> None:
    joined = coalesce(intervals)
    assert coalesce(joined) == joined
    assert coalesce([*joined, *intervals]) == joined


@settings(deadline=None)
@given(any_size, st.randoms(use_true_random=False), st.integers(0, 8))
def test_order_does_not_matter(intervals: list[Interval], random: Random, cut: int) -> None:
    joined = coalesce(intervals)
    shuffled = intervals.copy()
    random.shuffle(shuffled)
    assert coalesce(shuffled) == joined
    assert coalesce(iter([*shuffled, *intervals])) == joined
    assert coalesce([*coalesce(shuffled[:cut]), *shuffled[cut:]]) == joined


@pytest.mark.parametrize(
    ("intervals", "joined"),
    [
        ([], ()),
        ([(1, 1)], ((1, 1),)),
        ([(1, 2), (3, 4)], ((1, 4),)),  # one nanosecond apart
        ([(1, 2), (4, 5)], ((1, 2), (4, 5))),
        ([(1, 9), (2, 3)], ((1, 9),)),
        ([(1, 5), (5, 7)], ((1, 7),)),
        ([(1, 1), (3, 3), (2, 2)], ((1, 3),)),
        ([(INT_MIN, 0), (1, INT_MAX)], ((INT_MIN, INT_MAX),)),
        ([(INT_MIN, 0), (2, INT_MAX)], ((INT_MIN, 0), (2, INT_MAX))),
        ([(INT_MIN, INT_MAX), (5, 5)], ((INT_MIN, INT_MAX),)),
        ([(5, INT_MAX), (7, INT_MAX), (INT_MIN, 3)], ((INT_MIN, 3), (5, INT_MAX))),
        ([(INT_MAX - 1, INT_MAX), (0, INT_MAX - 2)], ((0, INT_MAX),)),
    ],
)
def test_some(intervals: list[Interval], joined: tuple[Interval, ...]) -> None:
    assert coalesce(intervals) == joined


@settings(deadline=None)
@given(st.lists(st.one_of(small, short), min_size=1, max_size=6), st.booleans(), st.booleans())
def test_a_program_prints_what_is_coalesced(intervals: list[Interval], since_ever: bool, for_ever: bool) -> None:
    if since_ever:
        intervals = [*intervals, (INT_MIN, intervals[0][0])]
    if for_ever:
        intervals = [*intervals, (intervals[-1][1], INT_MAX)]
    text = "Decl p() temporal.\n" + "\n".join(f"{fact_text('p', (), interval)}." for interval in intervals)
    facts = evaluate(Program.load([Source("test.mg", text)]), now=0).facts()
    assert facts == sorted(fact_text("p", (), interval) for interval in coalesce(intervals))


def test_an_interval_needs_an_instant() -> None:
    assert is_nonempty_interval(0, 0)
    assert is_nonempty_interval(INT_MIN, INT_MAX)
    assert is_nonempty_interval(INT_MIN, INT_MIN + 1)
    assert not is_nonempty_interval(1, 0)
    assert not is_nonempty_interval(INT_MAX, INT_MAX)
    assert not is_nonempty_interval(INT_MIN, INT_MIN)


def test_instants_beyond_the_ends_are_infinite() -> None:
    assert clamp(INT_MAX + 1) == INT_MAX
    assert clamp(INT_MIN - 1) == INT_MIN
    assert clamp(7) == 7
