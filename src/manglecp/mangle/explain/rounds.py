"""The round in which each fact of a recursive component first appears.

Rounds are a well-founded rank: a fact of round n has an instance whose premises are of rounds before n. They are found
by evaluating the component once more, semi-naively, over the finished model below it. That costs about what evaluating
it did, and is done only where looking at all instances would cost far more.
"""

from __future__ import annotations

from collections.abc import Iterator

from manglecp.mangle.explain.instances import Instances
from manglecp.mangle.explain.shape import Shape
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.facts import Fact
from manglecp.mangle.matching import Args, Matcher, Timed
from manglecp.mangle.model import Index
from manglecp.mangle.packages import Key
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Apply, Literal


class Rounds(Finished):
    """One component evaluated again, counting rounds. It has no deferred and no merged predicates."""

    def __init__(self, below: Finished, component: Component) -> None:
        super().__init__(below.model)
        self.answers = below.answers
        self.rank: dict[Fact, int] = {}
        self._inside = frozenset(component.predicates)
        self._grown: dict[tuple[Key, tuple[int, ...]], dict[Args, list[Timed]]] = {}
        self._instances = Instances(self)
        self._shapes = [shape for key in component.predicates for shape in self._instances.shapes.get(key, ())]
        self._run()

    def _build(self, key: Key, positions: tuple[int, ...], raw: bool) -> Index:
        """The indexes of the component start with what is known and grow with every round."""
        if key not in self._inside:
            return super()._build(key, positions, raw)
        if (key, positions) not in self._grown:
            self._grown[key, positions] = {}
            for fact in self.rank:
                if fact.key == key:
                    self._enter(fact, positions)
        return self._grown[key, positions]

    def _enter(self, fact: Fact, positions: tuple[int, ...]) -> None:
        index = self._grown[fact.key, positions]
        index.setdefault(tuple([fact.args[i] for i in positions]), []).append(fact.timed)

    def _run(self) -> None:
        given = {
            Fact(key[0], *fact)
            for key in self._inside
            for fact in self.model.derived(key)
            if self.model.origin(Fact(key[0], *fact)) is not None
        }
        number = 0
        news = given
        while news or number == 0:
            for fact in news:
                self.rank[fact] = number
                for key, positions in self._grown:
                    if key == fact.key:
                        self._enter(fact, positions)
            number += 1
            found = self._first() if number == 1 else self._following(news)
            news = {fact for fact in found if fact not in self.rank}

    def _first(self) -> Iterator[Fact]:
        for shape in self._shapes:
            for fact in self._instances.heads(shape, {}):
                yield Fact(shape.rule.head.predicate, *fact)

    def _following(self, news: set[Fact]) -> Iterator[Fact]:
        """What the news of one round lead to. Two facts of one round meet: the other premises see both."""
        by_key: dict[Key, list[Fact]] = {}
        for fact in news:
            by_key.setdefault(fact.key, []).append(fact)
        for shape in self._shapes:
            if shape.rule.clause.aggregates:
                continue  # it reads only what was finished before
            places = [i for i, p in enumerate(shape.rule.premises) if isinstance(p, Literal) and p.atom.key in by_key]
            if not places:
                continue
            if not all(self._may_lead(shape, place) for place in places):
                for head in self._instances.heads(shape, {}):
                    yield Fact(shape.rule.head.predicate, *head)
                continue
            for place in places:
                yield from self._from(shape, place, by_key)

    def _from(self, shape: Shape, place: int, by_key: dict[Key, list[Fact]]) -> Iterator[Fact]:
        premise = shape.rule.premises[place]
        assert isinstance(premise, Literal)
        matcher = Matcher(premise, {}, self.now)
        wanted = matcher.key({})
        for fact in by_key[premise.atom.key]:
            row = matcher.match({}, *fact.timed) if matcher.fact_key(fact.args) == wanted else None
            if row is not None:
                for head in self._instances.heads(shape, row, place):
                    yield Fact(shape.rule.head.predicate, *head)

    def _may_lead(self, shape: Shape, place: int) -> bool:
        """May this premise run first? Not where the order tells which ends of intervals are known."""
        literals = [premise for premise in shape.rule.premises if isinstance(premise, Literal)]
        lead = shape.rule.premises[place]
        assert isinstance(lead, Literal)
        return not any(p.timed for p in literals) and not any(isinstance(arg, Apply) for arg in lead.atom.args)
