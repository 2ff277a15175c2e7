"""Relations while they are evaluated: a frozen layer below, what a request changes above.

A fact is a tuple of its arguments; a temporal fact has two more columns, the ends of its interval in nanoseconds.
Indexes are dictionaries from the values of some columns to the facts that have them; they are made when a plan first
asks, and follow the facts from then on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, Final, TypeAlias

from manglecp.mangle.model import MOST_SKIPPED
from manglecp.mangle.program import parts

# Which facts hold at an instant, or some time in a window, without looking at all of them.
#
# Facts are sorted by the start of their interval, and a tree over that order keeps the latest end below each node.
# Those that start in time are a prefix of the order; the tree leads past everything in it that ended too early.


FactTuple: TypeAlias = tuple[Any, ...]


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


Facts: TypeAlias = set[FactTuple] | frozenset[FactTuple]
Columns: TypeAlias = tuple[int, ...]
Index: TypeAlias = dict[Any, list[FactTuple]]
SetIndex: TypeAlias = dict[Any, set[Any]]


def build_index(facts: Iterable[FactTuple], columns: Columns) -> Index:
    """Facts by the values in some columns; the key of one column is the value itself."""
    index: Index = {}
    key = itemgetter(*columns)
    for fact in facts:
        wanted = key(fact)
        bucket = index.get(wanted)
        if bucket is None:
            index[wanted] = [fact]
        else:
            bucket.append(fact)
    return index


def changed_index(index: Index, columns: Columns, added: Facts, removed: Facts) -> Index:
    """A new index that shares the buckets in which nothing changed."""
    index = index.copy()
    key = itemgetter(*columns)
    for wanted in {key(fact) for fact in removed}:
        left = [fact for fact in index[wanted] if fact not in removed]
        if left:
            index[wanted] = left
        else:
            del index[wanted]
    for wanted, facts in build_index(added, columns).items():
        index[wanted] = index.get(wanted, []) + facts
    return index


def build_set_index(facts: Iterable[FactTuple], columns: Columns, value: int) -> SetIndex:
    """Sets of the values in one column, by those in others."""
    index: SetIndex = {}
    key = itemgetter(*columns)
    for fact in facts:
        wanted = key(fact)
        bucket = index.get(wanted)
        if bucket is None:
            index[wanted] = {fact[value]}
        else:
            bucket.add(fact[value])
    return index


class Frozen:
    """Facts that no longer change. Shared between requests and threads."""

    __slots__ = ("_parts", "facts", "indexes", "lone", "shared", "skipped", "timeline")

    def __init__(self, facts: Facts, skipped: Facts = frozenset()) -> None:
        self.facts = facts
        self.skipped = skipped
        self.indexes: dict[Columns, Index] = {}
        self.timeline: Timeline | None = None
        self._parts: int | None = None
        # What is known of constraints: facts that share a key, and facts without a match in another relation.
        self.shared: dict[Columns, set[FactTuple]] = {}
        self.lone: dict[int, tuple[Frozen, set[FactTuple]]] = {}

    def parts(self, columns: Columns) -> int:
        """Of the values in the columns that rules build, which are always the same ones."""
        if self._parts is None:
            self._parts = parts(self.facts, columns)
        return self._parts

    def index(self, columns: Columns) -> Index:
        """Made when it is first asked for."""
        index = self.indexes.get(columns)
        if index is None:  # two threads may both make it; they make the same
            index = self.indexes[columns] = build_index(self.facts, columns)
        return index

    def changed(self, added: Facts, removed: Facts, skipped: Facts) -> Frozen:
        """Other facts that no longer change, with the indexes of these brought up to date."""
        frozen = Frozen((self.facts - removed) | added, skipped)
        for columns, index in self.indexes.copy().items():
            frozen.indexes[columns] = changed_index(index, columns, added, removed)
        return frozen

    def during(self, first: int, last: int) -> list[FactTuple]:
        """Temporal facts that hold some time between two instants."""
        if self.timeline is None:
            self.timeline = Timeline(self.facts)
        return self.timeline.during(first, last)


NOTHING: Final = Frozen(frozenset())
_NONE: Final[frozenset[FactTuple]] = frozenset()
_UNINDEXED: Final[dict[Any, Any]] = {}
"""What every view has for its indexes until there is one: an evaluation makes many views, and indexes few of them."""


class View:
    """One predicate during one evaluation: ``base`` without ``removed``, and ``facts``.

    ``skipped`` is what would be there if its interval did not end before it starts (D20), in base and overlay together.
    """

    __slots__ = ("base", "delta", "facts", "indexes", "new", "removed", "set_indexes", "skipped")

    def __init__(self, base: Frozen) -> None:
        self.base = base
        self.removed: Facts = _NONE
        self.facts: set[FactTuple] = set()
        self.new: Any = _NONE
        self.delta: Any = _NONE
        self.indexes: dict[Columns, Index] = _UNINDEXED
        self.set_indexes: dict[tuple[Columns, int], SetIndex] = _UNINDEXED
        self.skipped = base.skipped

    def skip(self, fact: FactTuple) -> None:
        """Count a derivation that holds at no instant, once, and not beyond what anyone wants to know."""
        if len(self.skipped) < MOST_SKIPPED:
            if self.skipped is self.base.skipped:
                self.skipped = set(self.skipped)
            self.skipped.add(fact)  # type: ignore[union-attr]  # its own set now

    def replace(self, facts: set[FactTuple]) -> None:
        """Other facts stand above the base now."""
        self.facts = facts
        self.indexes = self.set_indexes = _UNINDEXED

    def index(self, columns: Columns) -> Index:
        """Of ``facts`` alone, not of the base. Made when it is first asked for."""
        index = self.indexes.get(columns)
        if index is None:
            index = build_index(self.facts, columns)
            self._keep_index(columns, index)
        return index

    def _keep_index(self, columns: Columns, index: Index) -> None:
        if self.indexes is _UNINDEXED:
            self.indexes = {columns: index}
        else:
            self.indexes[columns] = index

    def set_index(self, columns: Columns, value: int) -> SetIndex:
        """As :meth:`index`, with the set of what stands in column ``value``."""
        index = self.set_indexes.get((columns, value))
        if index is None:
            index = build_set_index(self.facts, columns, value)
            self.set_indexes = {**self.set_indexes, (columns, value): index}
        return index

    def grow(self) -> None:
        """From now on facts come in rounds: those of a round are new, until it is over."""
        if self.new is _NONE:
            self.new = set()

    def advance(self) -> bool:
        """What was new becomes the delta and part of the facts. Is there any?"""
        new = self.delta = self.new
        self.new = set()
        if not new:
            return False
        self.facts |= new
        self.set_indexes = _UNINDEXED
        for columns, index in self.indexes.items():
            key = itemgetter(*columns)
            for fact in new:
                index.setdefault(key(fact), []).append(fact)
        return True

    def added(self) -> int:
        """How many facts stand above the base."""
        return len(self.facts)

    def parts(self, columns: Columns) -> int:
        """As :meth:`Frozen.parts`, with what the request changed."""
        return self.base.parts(columns) - parts(self.removed, columns) + parts(self.facts, columns)

    def __len__(self) -> int:
        return len(self.base.facts) - len(self.removed) + self.added()

    def __iter__(self) -> Iterator[FactTuple]:
        if self.removed:
            yield from (fact for fact in self.base.facts if fact not in self.removed)
        else:
            yield from self.base.facts
        yield from self.facts

    def __contains__(self, fact: FactTuple) -> bool:
        return fact in self.facts or (fact in self.base.facts and fact not in self.removed)

    @property
    def changed(self) -> bool:
        return bool(self.facts or self.removed)

    @property
    def layers(self) -> str:
        """Which layers hold facts: b the whole base, x the base without what was removed, o the overlay."""
        # Constants: they are looked up very often, and are neither made nor hashed anew.
        if self.facts:
            return ("xo" if self.removed else "bo") if self.base.facts else "o"
        return ("x" if self.removed else "b") if self.base.facts else ""


class Grouped(View):
    """A view with two columns, as one set of second values per first value.

    Where a rule hands the second column of a premise straight to its head, whole sets are united and subtracted instead
    of facts visited, which is several times faster on closures and takes a fraction of the memory.
    """

    __slots__ = ("flat", "groups", "known")

    def __init__(self, view: View) -> None:
        super().__init__(view.base)
        self.groups: SetIndex = build_set_index(view.facts, (0,), 1)
        self.known = len(view.facts)
        self.flat: set[FactTuple] | None = None
        self.new: dict[Any, set[Any]] = {}

    def advance(self) -> bool:
        new = self.delta = self.new
        self.new = {}
        groups = self.groups
        for first, seconds in new.items():
            own = groups.get(first)
            if own is None:
                groups[first] = set(seconds)
            else:
                own |= seconds
            self.known += len(seconds)
        if self.indexes:
            facts = [(first, second) for first, seconds in new.items() for second in seconds]
            for columns, index in self.indexes.items():
                key = itemgetter(*columns)
                for fact in facts:
                    index.setdefault(key(fact), []).append(fact)
        return bool(new)

    def pending(self) -> int:
        """How many facts are new since the last round."""
        return sum(map(len, self.new.values()))

    def index(self, columns: Columns) -> Index:
        index = self.indexes.get(columns)
        if index is None:
            facts = ((first, second) for first, seconds in self.groups.items() for second in seconds)
            index = build_index(facts, columns)
            self._keep_index(columns, index)
        return index

    def set_index(self, columns: Columns, value: int) -> SetIndex:
        return self.groups if columns == (0,) else super().set_index(columns, value)

    def added(self) -> int:
        return self.known

    @property
    def facts(self) -> set[FactTuple]:
        """One by one, for whoever asks for them; only when nothing is added any more."""
        if self.flat is None:
            self.flat = {(first, second) for first, seconds in self.groups.items() for second in seconds}
        return self.flat

    @facts.setter
    def facts(self, facts: set[FactTuple]) -> None:
        self.flat = facts

    @property
    def changed(self) -> bool:
        return bool(self.groups)

    @property
    def layers(self) -> str:
        return "o" if self.groups else ""
