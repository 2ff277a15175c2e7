"""The best proof of a fact: fewest leaves, then least height, then least text.

From the goal downwards every fact that could take part is expanded into its instances. Then, component by component
from the bottom up, costs are settled as shortest paths are (Knuth's generalisation of Dijkstra's algorithm): a fact is
settled when it is the cheapest of those whose premises are settled. An instance always costs more than each of its
premises, so the choice that settles a fact never leads back to it: proofs are well-founded whatever the recursion.

The leaves of a proof are counted as often as they are used; counting each once would be a hard problem.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from manglecp.mangle.explain.covers import cheapest
from manglecp.mangle.explain.instances import Absence, Instance, Instances, Option, Support
from manglecp.mangle.explain.replay import Merged, Replay
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.facts import Fact
from manglecp.mangle.packages import Key

Chosen: TypeAlias = tuple[Fact, ...] | Absence

WIDEST: Final = 50_000
"""So many instances are looked at for the best proof; beyond, any good proof will do."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How a fact is proved."""

    leaves: int
    height: int
    instance: Instance | None = None
    """None for a leaf, and for a value that was merged from ``chosen``."""
    chosen: tuple[Chosen, ...] = ()
    """For each ground of the instance, the facts it rests on."""

    @property
    def premises(self) -> Iterator[Fact]:
        """The facts that it rests on, without those that have to be absent."""
        return (fact for chosen in self.chosen if not isinstance(chosen, Absence) for fact in chosen)


LEAF: Final = Choice(1, 0)


class TooWide(Exception):
    """There are more instances than are worth looking at."""


@dataclass(slots=True)
class _Waiting:
    """An instance some of whose premises are not settled yet."""

    fact: Fact
    instance: Instance
    chosen: list[Chosen | None]
    missing: int = 0


@dataclass
class Search:
    """Finds proofs and remembers them."""

    solver: Finished
    instances: Instances
    using: Collection[Fact] | None = None
    """The given facts that may be leaves; None for all."""
    best: dict[Fact, Choice] = field(default_factory=dict)
    expanded: dict[Fact, list[Instance]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._settled: set[Fact] = set()
        self._texts: dict[Fact, str] = {}
        self._replays: dict[int, Replay] = {}
        self._number = itertools.count()  # two heap entries must never compare further
        self._component: dict[Key, int] = {}
        for number, component in enumerate(self.solver.program.components):
            self._component.update(dict.fromkeys(component.predicates, number))

    def component(self, key: Key) -> int:
        """Its place in the order of evaluation; -1 for what has no rules."""
        return self._component.get(key, -1)

    def text(self, fact: Fact) -> str:
        """Kept, for facts are compared by it over and over."""
        text = self._texts.get(fact)
        if text is None:
            text = self._texts[fact] = fact.text
        return text

    def prove(self, goals: Iterable[Fact], widest: int | None = WIDEST) -> None:
        """Settle the goals and all they could rest on; what cannot be proved is in ``best`` afterwards or is not."""
        by_component: dict[int, list[Fact]] = {}
        for fact in self._expand(goals, widest):
            by_component.setdefault(self.component(fact.key), []).append(fact)
        for number in sorted(by_component):
            self._settle(number, by_component[number])
            self._recall(number, [fact for fact in by_component[number] if fact not in self.best])

    def leaf(self, fact: Fact) -> bool:
        """Is it given? Then it needs no proof, even if it has one."""
        if fact in self.best:
            return self.best[fact] is LEAF
        if self.solver.given(fact) and (self.using is None or fact in self.using):
            self.best[fact] = LEAF
            return True
        return False

    def expand(self, fact: Fact) -> list[Instance]:
        """All instances that yield the fact, found once."""
        found = self.expanded.get(fact)
        if found is None:
            found = self.expanded[fact] = list(self.instances.of(fact))
        return found

    def _expand(self, goals: Iterable[Fact], widest: int | None) -> list[Fact]:
        """The facts that have to be settled, in no particular order."""
        stack = list(goals)
        seen: set[Fact] = set()
        count = 0
        while stack:
            fact = stack.pop()
            if fact in seen or fact in self._settled or self.leaf(fact):
                continue
            seen.add(fact)
            instances = self.expand(fact)
            count += len(instances)
            if widest is not None and count > widest:
                raise TooWide
            for instance in instances:
                for ground in instance.grounds:
                    if isinstance(ground, Support):
                        stack += [other for option in ground.options for other in option.facts if other not in seen]
        return list(seen)

    # --- settling --------------------------------------------------------------------------------------------------

    def _settle(self, number: int, facts: list[Fact]) -> None:
        """Settle the facts of one component; those below it are settled."""
        waiting: dict[Fact, list[tuple[_Waiting, int]]] = {}
        queue: list[tuple[Any, ...]] = []
        for fact in facts:
            for instance in self.expanded[fact]:
                self._begin(number, _Waiting(fact, instance, [None] * len(instance.grounds)), waiting, queue)
        for fact in waiting:
            if fact in self.best:
                self._push(queue, fact, self.best[fact])
        done: set[Fact] = set()
        while queue:
            *_, fact, choice = heapq.heappop(queue)
            if fact in done:
                continue
            done.add(fact)
            self.best.setdefault(fact, choice)
            for one, place in waiting.get(fact, ()):
                if one.chosen[place] is None:
                    one.chosen[place] = (fact,)
                    one.missing -= 1
                    if one.missing == 0:
                        self._finish(one, queue)
        self._settled.update(facts)

    def _begin(
        self,
        number: int,
        one: _Waiting,
        waiting: dict[Fact, list[tuple[_Waiting, int]]],
        queue: list[tuple[Any, ...]],
    ) -> None:
        """Choose what is settled and wait for the rest, unless some premise cannot be proved."""
        inside: list[tuple[Fact, int]] = []
        for place, ground in enumerate(one.instance.grounds):
            if isinstance(ground, Absence):
                one.chosen[place] = ground
            elif self.component(ground.literal.atom.key) == number:
                inside += [(option.facts[0], place) for option in ground.options]
                one.missing += 1
            else:
                chosen = self.cheapest(ground.options)
                if chosen is None:
                    return
                one.chosen[place] = chosen
        for fact, place in inside:
            waiting.setdefault(fact, []).append((one, place))
        if not inside:
            self._finish(one, queue)

    def cheapest(self, options: Iterable[Option]) -> tuple[Fact, ...] | None:
        """The best of some options whose facts are settled; None if there is none."""
        ranked = [self._ranked(facts) for option in options if (facts := self._cheapest(option))]
        return min(ranked)[-1] if ranked else None

    def _ranked(self, facts: tuple[Fact, ...]) -> tuple[Any, ...]:
        leaves, height = self.cost([facts])
        return leaves, height, [self.text(fact) for fact in facts], facts

    def _cheapest(self, option: Option) -> tuple[Fact, ...] | None:
        proved = [fact for fact in option.facts if fact in self.best]
        if not proved:
            return None
        if option.asked.whole is None:
            return (min(proved, key=self._fact_order),)
        pieces = [(fact.interval, fact) for fact in proved if fact.interval is not None]
        return tuple(cheapest(option.asked.whole, pieces, self._fact_order))

    def _fact_order(self, fact: Fact) -> tuple[int, int, str]:
        choice = self.best[fact]
        return choice.leaves, choice.height, self.text(fact)

    def cost(self, chosen: Iterable[Chosen | None]) -> tuple[int, int]:
        """Leaves and height of what some grounds rest on; a fact that is used twice by one rule counts once."""
        facts = {fact for one in chosen if isinstance(one, tuple) for fact in one}
        choices = [self.best[fact] for fact in facts]
        return sum(c.leaves for c in choices), max((c.height for c in choices), default=0)

    def _finish(self, one: _Waiting, queue: list[tuple[Any, ...]]) -> None:
        leaves, height = self.cost(one.chosen)
        chosen = tuple(c for c in one.chosen if c is not None)
        self._push(queue, one.fact, Choice(leaves, height + 1, one.instance, chosen))

    # --- what the finished model no longer shows -------------------------------------------------------------------

    def _recall(self, number: int, facts: list[Fact]) -> None:
        """Prove facts of a merging component from the way they came about."""
        keys = () if number < 0 else self.solver.program.components[number].predicates
        if not facts or not any(self.solver.predicate(key).merge is not None for key in keys):
            return
        replay = self._replays.get(number)
        if replay is None:
            replay = self._replays[number] = Replay(self.solver, self.solver.program.components[number])
        needed, below = self._needed(replay, number, facts)
        self.prove(below)
        for fact, entry in replay.log.items():
            if fact not in needed or fact in self.best:
                continue
            if isinstance(entry, Merged):
                chosen: list[Chosen | None] = [entry.facts]
            else:
                chosen = [g if isinstance(g, Absence) else self.cheapest(g.options) for g in entry.grounds]
            if None not in chosen:
                leaves, height = self.cost(chosen)
                instance = entry if isinstance(entry, Instance) else None
                self.best[fact] = Choice(leaves, height + 1, instance, tuple(c for c in chosen if c is not None))

    def _needed(self, replay: Replay, number: int, facts: list[Fact]) -> tuple[set[Fact], list[Fact]]:
        """What the log entries of some facts rest on: in their component, and below it."""
        needed: set[Fact] = set()
        below: list[Fact] = []
        stack = list(facts)
        while stack:
            fact = stack.pop()
            if self.component(fact.key) != number:
                below.append(fact)
                continue
            entry = replay.log.get(fact)
            if fact in needed or self.leaf(fact) or entry is None:
                continue
            needed.add(fact)
            if isinstance(entry, Merged):
                stack += entry.facts
            else:
                supports = [ground for ground in entry.grounds if isinstance(ground, Support)]
                stack += [other for support in supports for option in support.options for other in option.facts]
        return needed, below

    def _push(self, queue: list[tuple[Any, ...]], fact: Fact, choice: Choice) -> None:
        order = () if choice.instance is None else choice.instance.order_key
        heapq.heappush(queue, (choice.leaves, choice.height, self.text(fact), order, next(self._number), fact, choice))
