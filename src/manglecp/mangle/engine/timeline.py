"""Which facts hold at an instant, or some time in a window, without looking at all of them.

Facts are sorted by the start of their interval, and a tree over that order keeps the latest end below each node. Those
that start in time are a prefix of the order; the tree leads past everything in it that ended too early.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

FactTuple = tuple[Any, ...]


class Timeline:
    """The facts of one predicate, which do not change any more."""

    __slots__ = ("facts", "latest", "leaves", "starts")

    def __init__(self, facts: Iterable[FactTuple]) -> None:
        self.facts = sorted(facts, key=lambda fact: fact[-2])
        self.starts = [fact[-2] for fact in self.facts]
        self.leaves = 1
        while self.leaves < len(self.facts):
            self.leaves *= 2
        nothing = -(1 << 64)
        self.latest = [nothing] * (2 * self.leaves)
        self.latest[self.leaves : self.leaves + len(self.facts)] = [fact[-1] for fact in self.facts]
        for node in range(self.leaves - 1, 0, -1):
            self.latest[node] = max(self.latest[2 * node], self.latest[2 * node + 1])

    def during(self, first: int, last: int) -> list[FactTuple]:
        """The facts whose interval shares an instant with ``[first, last]``."""
        in_time = bisect_right(self.starts, last)
        found: list[FactTuple] = []
        stack = [(1, 0, self.leaves)]
        while stack:
            node, low, width = stack.pop()
            if low >= in_time or self.latest[node] < first:
                continue
            if width == 1:
                found.append(self.facts[low])
            else:
                half = width // 2
                stack.append((2 * node + 1, low + half, half))
                stack.append((2 * node, low, half))
        return found
