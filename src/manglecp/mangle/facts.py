"""Facts, and intervals of validity: closed, in nanoseconds, as pairs ``(start, end)``.

The smallest and the largest int64 are the infinities. Intervals that overlap or touch (at most one nanosecond apart)
are coalesced (D12).
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
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1] + 1:
            if end > joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return tuple(joined)


def holds_somewhere(start: int, end: int) -> bool:
    """Return whether the interval has an instant. It cannot begin at +∞ nor end at -∞."""
    return start <= end and start != INT_MAX and end != INT_MIN


def clamp(ns: int) -> int:
    return max(INT_MIN, min(INT_MAX, ns))


Args: TypeAlias = tuple[Value, ...]
TimedArgs: TypeAlias = tuple[Args, Interval | None]  # arguments and, for a temporal fact, its interval


class Fact(NamedTuple):
    """A fact of ``predicate``. A temporal one without interval holds always."""

    predicate: str
    args: tuple[Value, ...]
    interval: Interval | None = None

    @property
    def key(self) -> Key:
        return self.predicate, len(self.args)

    @property
    def timed(self) -> TimedArgs:
        return self.args, self.interval

    @property
    def text(self) -> str:
        return fact_text(self.predicate, self.args, self.interval)

    def __str__(self) -> str:
        return self.text
