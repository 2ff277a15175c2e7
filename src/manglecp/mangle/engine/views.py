"""Relations during evaluation: a frozen base and the overlay of a request.

A fact is a tuple of its arguments; a temporal fact has two more columns, the ends of its interval in nanoseconds.
Indexes are dictionaries from values of some columns to facts; they are built on demand and then maintained.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from manglecp.mangle.facts import Args, TimedArgs
from manglecp.mangle.model import Facts as TimedFacts
from manglecp.mangle.program import count_parts
from manglecp.mangle.syntax import Key

if TYPE_CHECKING:
    from manglecp.mangle.engine.compiled import CompiledComponent, CompiledProgram, CompiledRule

FactTuple: TypeAlias = tuple[Any, ...]
Rounds: TypeAlias = Mapping[Key, Mapping[FactTuple, int]]
"""The round of a fixpoint in which each fact is derived, counted from 1; given facts are left out."""


class Timeline:
    """Immutable temporal facts, indexed by interval: sorted by start, with a binary tree of the latest ends."""

    __slots__ = ("facts", "latest", "leaf_count", "starts")

    def __init__(self, facts: Iterable[FactTuple]) -> None:
        self.facts = sorted(facts, key=lambda fact: fact[-2])
        self.starts = [fact[-2] for fact in self.facts]
        self.leaf_count = 1
        while self.leaf_count < len(self.facts):
            self.leaf_count *= 2
        before_all = -(1 << 64)  # instants are int64
        self.latest = [before_all] * (2 * self.leaf_count)
        self.latest[self.leaf_count : self.leaf_count + len(self.facts)] = [fact[-1] for fact in self.facts]
        for node in range(self.leaf_count - 1, 0, -1):
            self.latest[node] = max(self.latest[2 * node], self.latest[2 * node + 1])

    def during(self, first: int, last: int) -> list[FactTuple]:
        """Return the facts whose interval meets the window from ``first`` to ``last``."""
        started_count = bisect_right(self.starts, last)
        overlapping: list[FactTuple] = []
        stack = [(1, 0, self.leaf_count)]
        while stack:
            node, low, width = stack.pop()
            if low >= started_count or self.latest[node] < first:
                continue
            if width == 1:
                overlapping.append(self.facts[low])
            else:
                half = width // 2
                stack.append((2 * node + 1, low + half, half))
                stack.append((2 * node, low, half))
        return overlapping


Facts: TypeAlias = Set[FactTuple]
Columns: TypeAlias = tuple[int, ...]
Buckets: TypeAlias = dict[Any, list[FactTuple]]
SetIndex: TypeAlias = dict[Any, set[Any]]

_NO_FACTS: Final[frozenset[FactTuple]] = frozenset()
_MAX_PATCH: Final = 2_048  # a set is copied after so many changes; until then, each version copies the changes
_PATCH_SHARE: Final = 8  # a set is also copied when one fact in so many has changed


class PatchedFacts(Set[FactTuple]):
    """An immutable set of facts: ``large``, which other versions share, without ``removed`` and with ``added``."""

    __slots__ = ("added", "large", "removed")

    def __init__(self, large: Facts, added: Facts = _NO_FACTS, removed: Facts = _NO_FACTS) -> None:
        self.large = large
        self.added = added
        self.removed = removed

    @classmethod
    def _from_iterable(cls, facts: Iterable[FactTuple]) -> set[FactTuple]:  # type: ignore[override]
        return set(facts)  # called for the result of an operator such as ``|``

    def __contains__(self, fact: object) -> bool:
        return fact in self.added or (fact in self.large and fact not in self.removed)

    def __iter__(self) -> Iterator[FactTuple]:
        removed = self.removed
        return chain((fact for fact in self.large if fact not in removed) if removed else self.large, self.added)

    def __len__(self) -> int:
        return len(self.large) - len(self.removed) + len(self.added)


def change_facts(facts: Facts, added: Facts, removed: Facts) -> Facts:
    """Return the facts without ``removed`` and with ``added``; for few changes, the size hardly matters."""
    patch = facts if isinstance(facts, PatchedFacts) else PatchedFacts(facts)
    more = (patch.added - removed) | (added - patch.large)
    less = (patch.removed | (removed & patch.large)) - added
    if len(more) + len(less) <= min(_MAX_PATCH, len(patch.large) // _PATCH_SHARE):
        return PatchedFacts(patch.large, more, less)
    return (patch.large - less) | more


class PatchedIndex(Mapping[Any, list[FactTuple]]):
    """The index of :class:`PatchedFacts`: the index of the large set, with other facts for the keys of the changes."""

    __slots__ = ("_added", "_changed", "_large", "_removed")

    def __init__(self, large: Buckets, columns: Columns, added: Facts, removed: Facts) -> None:
        self._large = large
        self._added = build_index(added, columns)
        self._removed = removed
        # The facts of a key are merged at the first read; two threads may both merge them, with the same result.
        self._changed: dict[Any, list[FactTuple] | None] = dict.fromkeys([*self._added, *build_index(removed, columns)])

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self._changed:
            return self._large.get(key, default)
        facts = self._changed[key]
        if facts is None:
            unchanged = [fact for fact in self._large.get(key, ()) if fact not in self._removed]
            facts = self._changed[key] = unchanged + self._added.get(key, [])
        return facts or default

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None

    def __getitem__(self, key: Any) -> list[FactTuple]:
        facts: list[FactTuple] | None = self.get(key)
        if facts is None:
            raise KeyError(key)
        return facts

    def __iter__(self) -> Iterator[Any]:
        yield from (key for key in self._large if key not in self._changed)
        yield from (key for key in self._changed if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def copy(self) -> Buckets:
        copied = self._large.copy()
        for key in self._changed:
            if facts := self.get(key):
                copied[key] = facts
            else:
                copied.pop(key, None)
        return copied


Index: TypeAlias = Buckets | PatchedIndex


def build_index(facts: Iterable[FactTuple], columns: Columns) -> Buckets:
    """Index facts by their values in some columns: a tuple or, for one column, the value itself."""
    index: Buckets = {}
    key_of = itemgetter(*columns)
    for fact in facts:
        key = key_of(fact)
        bucket = index.get(key)
        if bucket is None:
            index[key] = [fact]
        else:
            bucket.append(fact)
    return index


def build_set_index(facts: Iterable[FactTuple], columns: Columns, value_column: int) -> SetIndex:
    """Return, by the values in some columns as in :func:`build_index`, the set of values in ``value_column``."""
    return {key: {fact[value_column] for fact in bucket} for key, bucket in build_index(facts, columns).items()}


class FrozenFacts:
    """Immutable facts, shared between requests and threads; if they are patched, ``large`` holds the large set."""

    __slots__ = ("_part_count", "facts", "indexes", "large", "sharing_key", "timeline", "unmatched")

    def __init__(self, facts: Facts, large: FrozenFacts | None = None) -> None:
        self.facts = facts
        self.large = large
        self.indexes: dict[Columns, Index] = {}
        self.timeline: Timeline | None = None
        self._part_count: int | None = None
        # Caches of constraint checks. By the columns of a key: the facts that share their key with another fact.
        self.sharing_key: dict[Columns, set[FactTuple]] = {}
        # By the id of an inclusion: the relation that was searched, and the facts without a match in that relation.
        self.unmatched: dict[int, tuple[FrozenFacts, set[FactTuple]]] = {}

    def part_count(self, columns: Columns) -> int:
        """Return :func:`count_parts`, cached once: ``columns`` are always the built columns of the predicate."""
        if self._part_count is None:
            self._part_count = count_parts(self.facts, columns)
        return self._part_count

    def index(self, columns: Columns) -> Index:
        index = self.indexes.get(columns)
        if index is None:  # two threads may both build the index, with the same result
            index = self.indexes[columns] = self._build_index(columns)
        return index

    def _build_index(self, columns: Columns) -> Index:
        if self.large is None or not isinstance(self.facts, PatchedFacts):
            return build_index(self.facts, columns)
        return self.large.patched_index(columns, self.facts.added, self.facts.removed)

    def patched_index(self, columns: Columns, added: Facts, removed: Facts) -> PatchedIndex:
        index = self.index(columns)
        assert isinstance(index, dict)  # the large set of patched facts is never patched itself
        return PatchedIndex(index, columns, added, removed)

    def with_changes(self, added: Facts, removed: Facts) -> FrozenFacts:
        """Return the changed facts, with patched indexes; the other caches start empty."""
        large = self.large or self
        facts = change_facts(self.facts, added, removed)
        if isinstance(facts, PatchedFacts):
            return FrozenFacts(facts, large)
        copied = FrozenFacts(facts)
        more, less = facts - large.facts, large.facts - facts
        for columns in list(large.indexes):  # a copy of an index takes less time than a new index
            copied.indexes[columns] = large.patched_index(columns, more, less).copy()
        return copied

    def during(self, first: int, last: int) -> list[FactTuple]:
        if self.timeline is None:
            self.timeline = Timeline(self.facts)
        return self.timeline.during(first, last)


NOTHING: Final = FrozenFacts(frozenset())
_FEW_FACTS: Final = 8  # up to this number, a search is faster than an index
_UNINDEXED: Final[dict[Any, Any]] = {}
"""Shared by views without indexes: an evaluation makes many views and builds indexes for few of them."""


class View:
    """The facts of one predicate during one evaluation: ``base`` without ``removed``, and the overlay ``facts``.

    In a fixpoint ``delta`` has the facts of the last round, and ``new`` those of the current one.
    """

    __slots__ = ("base", "delta", "facts", "indexes", "new", "removed", "set_indexes")

    def __init__(self, base: FrozenFacts, facts: Any = None) -> None:
        """Create a view. Several evaluations may read a view whose ``facts`` are a frozen set: adding a fact raises."""
        self.base = base
        self.removed: Facts = _NO_FACTS
        self.facts: set[FactTuple] = set() if facts is None else facts
        self.new: Any = _NO_FACTS
        self.delta: Any = _NO_FACTS
        self.indexes: dict[Columns, Buckets] = _UNINDEXED
        self.set_indexes: dict[tuple[Columns, int], SetIndex] = _UNINDEXED

    def index(self, columns: Columns) -> Index:
        """Return an index of the overlay, without the base."""
        index = self.indexes.get(columns)
        if index is None:
            index = build_index(self.overlay(), columns)
            if self.indexes is _UNINDEXED:
                self.indexes = {}
            self.indexes[columns] = index
        return index

    def overlay(self) -> Iterable[FactTuple]:
        return self.facts

    def matching(self, columns: Columns, values: Any) -> list[FactTuple]:
        """Return the facts with these values in these columns; for one column, ``values`` is the value itself."""
        matches: list[FactTuple] = []
        if self.base.facts:
            base_matches = self.base.index(columns).get(values, ())
            matches += [fact for fact in base_matches if fact not in self.removed] if self.removed else base_matches
        if len(self.facts) > _FEW_FACTS or columns in self.indexes:
            matches += self.index(columns).get(values, ())
        elif self.facts:
            key_of = itemgetter(*columns)
            matches += [fact for fact in self.facts if key_of(fact) == values]
        return matches

    def set_index(self, columns: Columns, value_column: int) -> SetIndex:
        """Return the set index of the overlay, see :func:`build_set_index`."""
        index = self.set_indexes.get((columns, value_column))
        if index is None:
            index = build_set_index(self.facts, columns, value_column)
            self.set_indexes = {**self.set_indexes, (columns, value_column): index}
        return index

    def start_rounds(self) -> None:
        """Prepare ``new`` to collect the facts of the first round."""
        if self.new is _NO_FACTS:
            self.new = set()

    def advance(self) -> bool:
        """Make the new facts the delta; return whether there are any."""
        new = self.delta = self.new
        self.new = set()
        if not new:
            return False
        self.facts |= new
        self.set_indexes = _UNINDEXED
        self._add_to_indexes(new)
        return True

    def _add_to_indexes(self, facts: Iterable[FactTuple]) -> None:
        for columns, index in self.indexes.items():
            key_of = itemgetter(*columns)
            for fact in facts:
                index.setdefault(key_of(fact), []).append(fact)

    def overlay_size(self) -> int:
        return len(self.facts)

    def part_count(self, columns: Columns) -> int:
        return self.base.part_count(columns) - count_parts(self.removed, columns) + count_parts(self.facts, columns)

    def __len__(self) -> int:
        return len(self.base.facts) - len(self.removed) + self.overlay_size()

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
        """Which layers hold facts: b the whole base, x the base without removed facts, o the overlay."""
        # The strings are constants, because evaluations read the layers very often.
        if self.facts:
            return ("xo" if self.removed else "bo") if self.base.facts else "o"
        return ("x" if self.removed else "b") if self.base.facts else ""


class RecordedView(View):
    """A view that records the round of the fixpoint in which each fact is added, counted from 1."""

    __slots__ = ("round", "rounds")

    def __init__(self, base: FrozenFacts) -> None:
        super().__init__(base)
        self.round = 0
        self.rounds: dict[FactTuple, int] = {}

    def advance(self) -> bool:
        has_new = super().advance()
        self.round += 1
        self.rounds.update(dict.fromkeys(self.delta, self.round))
        return has_new


class GroupedView(View):
    """A binary relation as one set of second values per first value. Its base is empty, and nothing is removed.

    Where a rule passes the second column of a premise to its head, whole sets are united and subtracted, which is
    several times faster on transitive closures and takes a fraction of the memory.
    """

    __slots__ = ("fact_count", "flat", "groups")

    def __init__(self, view: View) -> None:
        super().__init__(view.base)
        self.groups: SetIndex = build_set_index(view.facts, (0,), 1)  # second values by first value
        self.fact_count = len(view.facts)
        self.flat: set[FactTuple] | None = None  # the facts as tuples, after the first read
        self.new: dict[Any, set[Any]] = {}

    def advance(self) -> bool:
        new = self.delta = self.new
        self.new = {}
        groups = self.groups
        for first, seconds in new.items():
            group = groups.get(first)
            if group is None:
                groups[first] = set(seconds)
            else:
                group |= seconds
            self.fact_count += len(seconds)
        if self.indexes:
            self._add_to_indexes([(first, second) for first, seconds in new.items() for second in seconds])
        return bool(new)

    def new_count(self) -> int:
        return sum(map(len, self.new.values()))

    def overlay(self) -> Iterable[FactTuple]:
        return ((first, second) for first, seconds in self.groups.items() for second in seconds)

    def set_index(self, columns: Columns, value_column: int) -> SetIndex:
        return self.groups if columns == (0,) else super().set_index(columns, value_column)

    def overlay_size(self) -> int:
        return self.fact_count

    @property
    def facts(self) -> set[FactTuple]:
        """The facts as tuples, computed at the first read, which has to come after the last :meth:`advance`."""
        if self.flat is None:
            self.flat = set(self.overlay())
        return self.flat

    @facts.setter
    def facts(self, facts: set[FactTuple]) -> None:
        self.flat = facts  # called by View.__init__ only; ``groups`` holds the facts

    @property
    def changed(self) -> bool:
        return bool(self.groups)

    @property
    def layers(self) -> str:
        return "o" if self.groups else ""


class Layer:
    """The relations of an evaluated base, by predicate number. ``done`` are the evaluated components."""

    def __init__(
        self,
        compiled: CompiledProgram,
        facts: list[FrozenFacts] | None = None,  # as rules read them: temporal facts coalesced
        raw: dict[int, FrozenFacts] | None = None,  # temporal facts as given and derived
        given: Sequence[Facts] | None = None,  # given facts, as passed in
        done: frozenset[CompiledComponent] = frozenset(),
    ) -> None:
        count = len(compiled.keys)
        self.facts = [NOTHING] * count if facts is None else facts
        self.raw = {} if raw is None else raw
        self.given = [_NO_FACTS] * count if given is None else given
        self.done = done
        self.views = [View(frozen, _NO_FACTS) for frozen in self.facts]  # shared by evaluations, which replace some
        self.layers = [view.layers for view in self.views]
        self.given_count = sum(map(len, self.given))
        self.derived_counts = [0] * count  # how many facts are derived, not given
        for i in compiled.ruled:
            stored = self.raw.get(i, self.facts[i]).facts
            lost = len(self.given[i] - stored) if i in compiled.merged else 0  # a merge may drop given facts
            self.derived_counts[i] = len(stored) - len(self.given[i]) + lost
        self.derived_count = sum(self.derived_counts)
        self.fired: dict[CompiledRule, bool] = {}  # whether a rule has an instance, memoised
        self.head_counts: dict[int, int] = {}  # number of derived facts by rule id, memoised
        self.rounds: dict[CompiledComponent, Rounds] = {}  # see EvaluatedModel.rounds, memoised


class ViewIndex:
    """Facts of one view by their values at some positions, read from the indexes of base and overlay."""

    def __init__(self, view: View, positions: Columns, arity: int, temporal: bool) -> None:
        self._view = view
        self._positions = positions
        self._temporal = temporal
        self._has_all_columns = not temporal and len(positions) == arity
        self._cache: dict[Args, TimedFacts] = {}

    def get(self, values: Args, default: TimedFacts, /) -> TimedFacts:
        """Return the facts with these values, memoised; ``default`` if there are none."""
        cached = self._cache.get(values)
        if cached is None:
            cached = self._cache[values] = self._find(values)
        return cached or default

    def _find(self, values: Args) -> TimedFacts:
        view = self._view
        if self._has_all_columns:
            return ((values, None),) if values in view else ()
        if not self._positions:
            return SizedFacts(view, self._temporal)
        return SizedFacts(view.matching(self._positions, values if len(values) > 1 else values[0]), self._temporal)


class SizedFacts:
    """Facts as pairs of arguments and interval, with their number."""

    def __init__(self, facts: View | list[FactTuple], temporal: bool) -> None:
        self._facts = facts
        self._count = len(facts)
        self._temporal = temporal

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[TimedArgs]:
        if self._temporal:
            return ((fact[:-2], (fact[-2], fact[-1])) for fact in self._facts)
        return ((fact, None) for fact in self._facts)
