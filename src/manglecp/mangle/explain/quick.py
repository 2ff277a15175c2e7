"""A good proof where looking for the best one would take too long.

Downwards from the goal, each fact takes the one instance whose premises came earliest, and only its premises are looked
at further. Inside a recursive component only premises of earlier rounds will do, so the proof is well-founded.
"""

from __future__ import annotations

from typing import Any

from manglecp.mangle.explain.covers import cheapest
from manglecp.mangle.explain.instances import Absence, Instance, Option, Support
from manglecp.mangle.explain.rounds import Rounds
from manglecp.mangle.explain.search import Choice, Chosen, Search
from manglecp.mangle.facts import Fact


class Quick:
    """For one search, which keeps what is found."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.solver = search.solver
        self._rounds: dict[int, Rounds | None] = {}

    def prove(self, goals: list[Fact]) -> None:
        """Give each goal an entry in ``search.best``."""
        steps: dict[Fact, tuple[Instance, tuple[Chosen, ...]]] = {}
        stack = list(goals)
        while stack:
            fact = stack.pop()
            if fact in steps or fact in self.search.best or self.search.leaf(fact):
                continue
            if self._searched(fact):
                self.search.prove([fact], widest=None)
                continue
            *_, instance, chosen = min(self._ways(fact))
            steps[fact] = instance, chosen
            stack += [other for one in chosen if not isinstance(one, Absence) for other in one]
        self._enter(steps)

    def _enter(self, steps: dict[Fact, tuple[Instance, tuple[Chosen, ...]]]) -> None:
        """Premises first."""
        best = self.search.best
        work = list(steps)
        while work:
            fact = work[-1]
            if fact in best:
                work.pop()
                continue
            instance, chosen = steps[fact]
            missing = [f for one in chosen if not isinstance(one, Absence) for f in one if f not in best]
            if missing:
                work += missing
                continue
            leaves, height = self.search.cost(chosen)
            best[fact] = Choice(leaves, height + 1, instance, chosen)

    def _searched(self, fact: Fact) -> bool:
        """Is its component one that has no rounds: merged, or partly deferred?"""
        keys = self.solver.program.components[self.search.component(fact.key)].predicates
        return any(self.solver.predicate(key).merge is not None or self.solver.predicate(key).deferred for key in keys)

    def rounds(self, number: int) -> Rounds | None:
        """None for what does not depend on itself."""
        if number not in self._rounds:
            component = self.solver.program.components[number]
            self._rounds[number] = Rounds(self.solver, component) if component.recursive else None
        return self._rounds[number]

    def _ways(self, fact: Fact) -> list[tuple[Any, ...]]:
        """The instances that may be used, best first when sorted."""
        number = self.search.component(fact.key)
        rounds = self.rounds(number)
        rank = {} if rounds is None else rounds.rank
        ways = []
        for place, instance in enumerate(self.search.expand(fact)):
            chosen: list[Chosen] = []
            latest = 0
            for ground in instance.grounds:
                if isinstance(ground, Absence):
                    chosen.append(ground)
                    continue
                inside = self.search.component(ground.literal.atom.key) == number
                facts = self._earlier(ground, rank, rank[fact]) if inside else self._any(ground)
                if not facts:
                    break
                if inside:
                    latest = max(latest, rank[facts[0]])
                chosen.append(facts)
            else:
                ways.append((latest, len(chosen), instance.order_key, place, instance, tuple(chosen)))
        return ways

    def _earlier(self, support: Support, rank: dict[Fact, int], before: int) -> tuple[Fact, ...]:
        facts = [option.facts[0] for option in support.options if rank[option.facts[0]] < before]
        return (min(facts, key=lambda fact: (rank[fact], self.search.text(fact))),) if facts else ()

    def _any(self, support: Support) -> tuple[Fact, ...]:
        """One option: if possible, given facts."""
        return min(map(self._option, support.options), key=lambda facts: [self._order(fact) for fact in facts])

    def _option(self, option: Option) -> tuple[Fact, ...]:
        if option.asked.whole is None:
            return (min(option.facts, key=self._order),)
        pieces = [(fact.interval, fact) for fact in option.facts if fact.interval is not None]
        return tuple(cheapest(option.asked.whole, pieces, self._order))

    def _order(self, fact: Fact) -> tuple[int, str]:
        return 1 if self.search.leaf(fact) else 2, self.search.text(fact)
