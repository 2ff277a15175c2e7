"""Sets of assumptions, and questions whose answers depend on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from manglecp.mangle.facts import Fact
from manglecp.mangle.intervals import Interval
from manglecp.mangle.matching import Row, Timed
from manglecp.mangle.packages import Key
from manglecp.mangle.syntax import Literal, Variable
from manglecp.mangle.values import Value

Assumed: TypeAlias = frozenset[Fact]
Pattern: TypeAlias = tuple[Value | None, ...]
"""What is known of a fact's arguments."""

NOTHING: Final[Assumed] = frozenset()
_NO_SETS: Final[frozenset[Assumed]] = frozenset()


class Sets:
    """Sets of assumptions none of which contains another."""

    __slots__ = ("_by_fact", "_sets")

    def __init__(self, sets: Iterable[Assumed] = ()) -> None:
        self._sets: dict[Assumed, None] = {}
        self._by_fact: dict[Fact, set[Assumed]] = {}
        for one in sets:
            self.add(one)

    def add(self, new: Assumed) -> bool:
        """Is it new, and not implied by a smaller one?"""
        if new in self._sets or self._implied(new):
            return False
        for old in self._implying(new):
            del self._sets[old]
            for fact in old:
                self._by_fact[fact].discard(old)
        self._sets[new] = None
        for fact in new:
            self._by_fact.setdefault(fact, set()).add(new)
        return True

    def _implied(self, new: Assumed) -> bool:
        if NOTHING in self._sets:
            return True
        return any(old <= new for fact in new for old in self._by_fact.get(fact, ()))

    def _implying(self, new: Assumed) -> list[Assumed]:
        """The sets that contain the new one; all of them are among those of its rarest fact."""
        if not new:
            return list(self._sets)
        rarest = min((self._by_fact.get(fact, _NO_SETS) for fact in new), key=len)
        return [old for old in rarest if new <= old]

    def __iter__(self) -> Iterator[Assumed]:
        return iter(tuple(self._sets))

    def __len__(self) -> int:
        return len(self._sets)


class Pending(NamedTuple):
    """A premise that is assumed before all its variables have values."""

    literal: Literal
    interval: Interval | None
    dictated: bool = False
    """Is it the smallest interval that will do?"""

    def free(self, row: Row) -> list[str]:
        """The variables that still lack a value."""
        names = [arg.name for arg in self.literal.atom.args if isinstance(arg, Variable)]
        return [name for name in names if name != "_" and name not in row]


class State(NamedTuple):
    """How far a body has got: values, assumptions, and assumptions that still have variables."""

    row: Row
    assumed: Assumed = NOTHING
    pending: tuple[Pending, ...] = ()

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for states from which the same follows."""
        return frozenset(self.row.items()), self.assumed, tuple((id(p.literal), p.interval) for p in self.pending)

    def keys(self) -> set[Key]:
        """The predicates of what is assumed: there are at least so many facts."""
        return {fact.key for fact in self.assumed} | {p.literal.atom.key for p in self.pending}


def distinct(states: Iterable[State]) -> list[State]:
    """One of each, in the order in which they came first."""
    return list({state.identity: state for state in states}.values())


@dataclass(eq=False, slots=True)
class Table:
    """What holds of a pattern under assumptions, and does not hold without."""

    key: Key
    pattern: Pattern
    answers: dict[Timed, Sets] = field(default_factory=dict)
    progress: Sets = field(default_factory=Sets)
    """Assumptions that change something about the pattern, one cannot say what."""
    readers: set[Table] = field(default_factory=set)

    def agrees(self, fact: Timed) -> bool:
        """Does the fact fit what the pattern fixes?"""
        return all(known is None or value == known for known, value in zip(self.pattern, fact[0], strict=True))


class Exhausted(Exception):
    """The search has taken as long as it may."""


@dataclass
class Effort:
    """How much a search may look at."""

    steps: int

    def spend(self, steps: int = 1) -> None:
        """Raises :class:`Exhausted` when nothing is left."""
        self.steps -= steps
        if self.steps < 0:
            raise Exhausted
