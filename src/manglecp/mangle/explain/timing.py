"""When a fact would have to hold to satisfy a premise: the smallest interval that does."""

from __future__ import annotations

from collections.abc import Iterator

from manglecp.mangle.explain.candidates import Candidates
from manglecp.mangle.explain.covers import free_ends
from manglecp.mangle.intervals import Interval, holds_somewhere
from manglecp.mangle.matching import Row, instant_of, window
from manglecp.mangle.syntax import Literal, Variable


def intervals_for(premise: Literal, row: Row, candidates: Candidates) -> list[Interval]:
    """The intervals worth trying; the smallest that does comes first.

    A box asks for its window, a known end for its instant, a diamond for the instant of its window nearest to now, and
    a premise that asks for no time in particular for now. A larger interval that another premise asks for is worth
    trying because one fact may serve both; where variables are free to take the ends, every interval is.
    """
    now = candidates.solver.now
    looked_at = None if premise.operator is None else window(premise.operator, row, now)
    points: list[int] = []
    touched: Interval | None = None
    if premise.operator is not None and looked_at is not None:
        if premise.operator.is_box:
            points += looked_at
        else:
            touched = looked_at
    for bound in () if premise.annotation is None else premise.annotation.bounds:
        instant = None if _is_wildcard(bound.value) else instant_of(bound, row, now)
        if instant is not None:
            points.append(instant)
    smallest = _smallest(points, touched, now)
    found = dict.fromkeys([smallest])
    free = free_ends(premise, row)
    if any(free):
        found.update(dict.fromkeys(_enlarged(points, touched, candidates)))
    else:
        found.update(dict.fromkeys(i for i in candidates.intervals if _satisfies(i, points, touched)))
    if free[0] is not None and free[0] == free[1]:
        found = {interval: None for interval in found if interval[0] == interval[1]}
    return [interval for interval in found if holds_somewhere(*interval)]


def _is_wildcard(value: object) -> bool:
    return isinstance(value, Variable) and value.anonymous


def _smallest(points: list[int], touched: Interval | None, now: int) -> Interval:
    if not points:
        instant = now if touched is None else min(max(now, touched[0]), touched[1])
        return instant, instant
    first, last = min(points), max(points)
    if touched is not None:
        first, last = (
            min(first, max(touched[0], min(first, touched[1]))),
            max(last, min(touched[1], max(last, touched[0]))),
        )
    return first, last


def _satisfies(interval: Interval, points: list[int], touched: Interval | None) -> bool:
    start, end = interval
    if touched is not None and (end < touched[0] or touched[1] < start):
        return False
    return all(start <= point <= end for point in points)


def _enlarged(points: list[int], touched: Interval | None, candidates: Candidates) -> Iterator[Interval]:
    """Intervals that somebody speaks of, each made large enough."""
    for start, end in candidates.intervals:
        if _satisfies((start, end), [], touched):
            yield min([start, *points]), max([end, *points])
