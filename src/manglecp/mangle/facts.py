"""Facts, and intervals of validity: closed, in nanoseconds, as pairs ``(start, end)``.

The smallest and the largest int64 stand for infinity. Intervals are coalesced if they overlap, or if one starts a
nanosecond after the other ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from manglecp.mangle.printer import fact_text
from manglecp.mangle.syntax import Key
from manglecp.mangle.values import INT_MAX, INT_MIN, Value

Interval: TypeAlias = tuple[int, int]


def coalesce(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the fewest intervals that cover the same instants, sorted."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1] + 1:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return tuple(merged)


def is_nonempty_interval(start: int, end: int) -> bool:
    """Return whether the interval contains an instant. An interval that starts at +∞ or ends at -∞ is empty."""
    return start <= end and start != INT_MAX and end != INT_MIN


def clamp(ns: int) -> int:
    """Limit an instant to int64, whose ends stand for infinity."""
    return max(INT_MIN, min(INT_MAX, ns))


Args: TypeAlias = tuple[Value, ...]
TimedArgs: TypeAlias = tuple[Args, Interval | None]  # arguments and, for a temporal fact, its interval


class Fact(NamedTuple):
    """A fact of ``predicate``. Without ``interval``, a fact of a temporal predicate always holds."""

    predicate: str
    args: tuple[Value, ...]
    interval: Interval | None = None

    @property
    def key(self) -> Key:
        return self.predicate, len(self.args)

    @property
    def timed_args(self) -> TimedArgs:
        return self.args, self.interval

    @property
    def text(self) -> str:
        return fact_text(self.predicate, self.args, self.interval)

    def __str__(self) -> str:
        return self.text
