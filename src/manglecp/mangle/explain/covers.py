"""Which of the intervals that were given and derived a premise about time really needs.

A premise reads facts whose intervals have been joined where they touch (D12); a proof names the intervals as they were
given. A box needs those that cover its window, a diamond one that meets it, a known instant one that contains it, and
a variable that took the end of the joined interval needs the way from there to everything else that was asked.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from manglecp.mangle.intervals import Interval
from manglecp.mangle.matching import Row, instant_of, window
from manglecp.mangle.syntax import Literal, Variable

_T = TypeVar("_T")


def free_ends(premise: Literal, row: Row) -> tuple[str | None, str | None]:
    """The variables that take the start and the end of the fact's interval."""
    if premise.annotation is None:
        return None, None
    start, end = (bound.value for bound in (premise.annotation.start, premise.annotation.end))
    return _free(start, row), _free(end, row)


def _free(value: object, row: Row) -> str | None:
    return value.name if isinstance(value, Variable) and not value.anonymous and value.name not in row else None


@dataclass(frozen=True, slots=True)
class Demand:
    """What a premise asks of one joined interval."""

    whole: Interval | None = None
    """Every instant from here to there."""
    touched: Interval | None = None
    """Some instant in here."""
    loose: bool = False
    """Did a variable take an end of the joined interval? Then a longer interval would not do."""


NO_DEMAND: Final = Demand()


def demand(premise: Literal, row: Row, joined: Interval, now: int) -> Demand:
    """``row`` is what was known before the premise."""
    points: list[int] = []
    touched: Interval | None = None
    loose = False
    if premise.operator is not None:
        looked_at = window(premise.operator, row, now)
        if premise.operator.is_box:
            points += looked_at
        else:
            touched = looked_at
    if premise.annotation is not None:
        for bound, own in zip((premise.annotation.start, premise.annotation.end), joined, strict=True):
            if isinstance(bound.value, Variable) and bound.value.anonymous:
                continue
            instant = instant_of(bound, row, now)
            loose = loose or instant is None
            points.append(own if instant is None else instant)
    if not points:
        return Demand(None, touched, loose)
    first, last = min(points), max(points)
    if touched is not None:  # the way from what is needed to the window, if it does not reach it
        if last < touched[0]:
            last = touched[0]
        elif first > touched[1]:
            first = touched[1]
    return Demand((first, last), None, loose)


def useful(asked: Demand, intervals: Sequence[tuple[Interval, _T]]) -> list[tuple[Interval, _T]]:
    """The intervals that can help."""
    part = asked.whole or asked.touched
    if part is None:
        return list(intervals)
    return [(i, item) for i, item in intervals if i[0] <= part[1] and part[0] <= i[1]]


def cheapest(whole: Interval, pieces: Sequence[tuple[Interval, _T]], cost: Callable[[_T], tuple[Any, ...]]) -> list[_T]:
    """The pieces that cover ``whole`` for the least sum of the first cost; [] if there are none.

    A search along time: the state is how far is covered, a step adds a piece that goes on from there.
    """
    first, last = whole
    ordered = sorted(((cost(item), interval, item) for interval, item in pieces), key=lambda p: (p[0], p[1]))
    costs = [c[0] for c, _, _ in ordered]
    queue: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]
    reached: set[int] = set()
    upto: dict[tuple[int, ...], int] = {(): first}
    while queue:
        total, _, chosen = heapq.heappop(queue)
        position = upto[chosen]
        if position > last:
            return [ordered[i][2] for i in sorted(chosen, key=lambda i: ordered[i][1])]
        if position in reached:
            continue
        reached.add(position)
        for i, (_, (start, end), _) in enumerate(ordered):
            if start <= position <= end and end + 1 not in reached:
                following = (*chosen, i)
                upto[following] = end + 1
                heapq.heappush(queue, (total + costs[i], len(following), following))
    return []


def minimal(whole: Interval, pieces: Sequence[tuple[Interval, _T]]) -> Iterator[list[_T]]:
    """Every set of pieces that covers ``whole`` and from which none can be left out."""
    ordered = sorted(pieces, key=lambda piece: piece[0])
    stack: list[tuple[int, tuple[int, ...]]] = [(whole[0], ())]
    while stack:
        position, chosen = stack.pop()
        if position > whole[1]:
            if not _has_surplus(whole, [ordered[i][0] for i in chosen]):
                yield [ordered[i][1] for i in chosen]
            continue
        for i, ((start, end), _) in enumerate(ordered):
            if start <= position <= end:
                stack.append((end + 1, (*chosen, i)))


def _has_surplus(whole: Interval, intervals: list[Interval]) -> bool:
    return any(covers(intervals[:i] + intervals[i + 1 :], whole) for i in range(len(intervals)))


def covers(intervals: Sequence[Interval], whole: Interval) -> bool:
    """Do these intervals together leave no gap in the whole?"""
    position = whole[0]
    for start, end in sorted(intervals):
        if start > position:
            return False
        position = max(position, end + 1)
        if position > whole[1]:
            return True
    return position > whole[1]
