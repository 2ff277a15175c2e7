"""Intervals of validity: closed, in nanoseconds, as pairs ``(start, end)`` of integers.

The smallest and the largest int64 are the infinities. Intervals that overlap or touch (at most one nanosecond apart)
are one interval (D12).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from manglecp.mangle.values import INT_MAX, INT_MIN

Interval: TypeAlias = tuple[int, int]


def coalesce(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """The fewest intervals that cover the same instants, in order."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1] + 1:
            if end > joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return tuple(joined)


def holds_somewhere(start: int, end: int) -> bool:
    """Is there an instant between the two ends? An interval cannot begin at +∞ nor end at -∞."""
    return start <= end and start != INT_MAX and end != INT_MIN


def clamp(ns: int) -> int:
    """An instant beyond the representable ones is infinitely far away."""
    return max(INT_MIN, min(INT_MAX, ns))
