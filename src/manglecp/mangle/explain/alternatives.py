"""All the ways in which a fact is supported: the minimal sets of given facts that its proofs rest on.

A proof stops at a given fact; here a given fact that is also derived may be replaced by what derives it. Sets are
combined from the bottom up, and inside a recursion until nothing changes. There can be very many, so only the smallest
are kept, and the answer says whether any were left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from manglecp.mangle.explain.covers import minimal
from manglecp.mangle.explain.hypotheses import NOTHING, Assumed, Sets
from manglecp.mangle.explain.instances import Absence, Instance, Option
from manglecp.mangle.explain.search import Search, TooWide
from manglecp.mangle.facts import Fact

WIDEST: Final = 20_000
MOST_COVERS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Minimal sets of given facts, each sorted by text, the smaller ones first."""

    sets: tuple[tuple[Fact, ...], ...]
    complete: bool

    def as_json(self) -> dict[str, object]:
        """The facts as text; ``complete`` says whether these are all sets."""
        return {"leaf_facts": [[fact.text for fact in facts] for facts in self.sets], "complete": self.complete}


class Supports:
    """One search for the supports of a goal."""

    def __init__(self, search: Search, limit: int) -> None:
        self.search = search
        self.limit = limit
        self.complete = True
        self._sets: dict[Fact, Sets] = {}

    def of(self, options: Iterable[Option]) -> Alternatives:
        """What these options rest on, up to the limit."""
        options = tuple(options)
        for component in self._by_component([fact for option in options for fact in option.facts]):
            self._settle(component)
        found = self._any(options)
        ordered = sorted((tuple(sorted(one, key=self.search.text)) for one in found), key=self._order)
        if len(ordered) > self.limit:
            self.complete = False
        return Alternatives(tuple(ordered[: self.limit]), self.complete)

    def _order(self, facts: tuple[Fact, ...]) -> tuple[int, list[str]]:
        return len(facts), [self.search.text(fact) for fact in facts]

    def _by_component(self, goals: list[Fact]) -> list[list[Fact]]:
        """Everything the goals could rest on, given facts included, in the order of evaluation."""
        found: dict[int, list[Fact]] = {}
        stack, seen, count = list(goals), set(goals), 0
        while stack:
            fact = stack.pop()
            found.setdefault(self.search.component(fact.key), []).append(fact)
            instances = self.search.expand(fact)
            count += len(instances)
            if count > WIDEST:
                raise TooWide
            for instance in instances:
                for other in instance.facts():
                    if other not in seen:
                        seen.add(other)
                        stack.append(other)
        return [found[number] for number in sorted(found)]

    def _settle(self, facts: list[Fact]) -> None:
        readers: dict[Fact, set[Fact]] = {}
        for fact in facts:
            self._sets[fact] = Sets([frozenset({fact})] if self.search.solver.given(fact) else ())
            for instance in self.search.expand(fact):
                for other in instance.facts():
                    readers.setdefault(other, set()).add(fact)
        dirty = dict.fromkeys(sorted(facts, key=self.search.text))
        while dirty:
            fact = next(iter(dirty))
            del dirty[fact]
            if self._extend(fact):
                dirty.update(dict.fromkeys(readers.get(fact, ())))

    def _extend(self, fact: Fact) -> bool:
        own = self._sets[fact]
        changed = False
        for instance in self.search.expand(fact):
            for one in self._all(instance):
                if len(own) >= self.limit and not any(one <= old for old in own):
                    self.complete = self.complete and any(old <= one for old in own)
                    continue
                changed |= own.add(one)
        return changed

    def _all(self, instance: Instance) -> Sets:
        """Every way to satisfy all grounds of an instance."""
        found = Sets([NOTHING])
        for ground in instance.grounds:
            if not isinstance(ground, Absence):
                found = self._both(found, self._any(ground.options))
        return found

    def _any(self, options: Iterable[Option]) -> Sets:
        found = Sets()
        for option in options:
            if option.asked.whole is None:
                for fact in option.facts:
                    self._add(found, self._sets[fact])
                continue
            pieces = [(fact.interval, fact) for fact in option.facts if fact.interval is not None]
            covers = list(islice(minimal(option.asked.whole, pieces), MOST_COVERS + 1))
            self.complete = self.complete and len(covers) <= MOST_COVERS
            for cover in covers[:MOST_COVERS]:
                together = Sets([NOTHING])
                for fact in cover:
                    together = self._both(together, self._sets[fact])
                self._add(found, together)
        return found

    def _both(self, left: Sets, right: Sets) -> Sets:
        found = Sets()
        self._add(found, (one | other for one in left for other in right))
        return found

    def _add(self, found: Sets, new: Iterable[Assumed]) -> None:
        """Add sets while there is room; ten times the limit, because unions make some superfluous."""
        for one in new:
            if len(found) >= 10 * self.limit:
                self.complete = False
                return
            found.add(one)
