"""Search for the best proof of a fact, or a good one where that is too expensive."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from manglecp.mangle.declarations import Merge
from manglecp.mangle.explain.instances import Absence, Instance, Instances, Option, cover
from manglecp.mangle.explain.solver import ModelSolver, index_by, row_key
from manglecp.mangle.facts import Args, Fact, TimedArgs
from manglecp.mangle.matching import Matcher, Row
from manglecp.mangle.model import Facts, Index, Relation, program_facts
from manglecp.mangle.naive import NaiveEvaluation, Solving
from manglecp.mangle.program import Rule
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Key, Literal, Premise


# A merge discards values whose consequences stay, so a fact may have no instance in the finished model. And of too many
# instances, those that were looked at may only lead back to where they came from. Then the component is replayed, and
# every fact is logged when it first appears. Log entries depend on earlier ones only, so proofs from the log are
# well-founded.
@dataclass(frozen=True, slots=True)
class MergedFact:
    """A value merged from these facts."""

    facts: tuple[Fact, ...]


class Replay(ModelSolver):
    """A component evaluated again over the finished model below it, with a log of how each fact first appeared."""

    def __init__(self, below: ModelSolver, component: Component) -> None:
        super().__init__(below.model)
        self.answers = below.answers.copy()
        self.inside = frozenset(key for key in component.predicates if not self.predicate(key).deferred)
        self.log: dict[Fact, Instance | MergedFact] = {}
        self._given: set[Fact] = set()
        self._instances = Instances(self)
        self._shapes = {id(s.rule): s for shapes in self._instances.shapes.values() for s in shapes}
        self._merging: Key | None = None
        for fact in program_facts(self.program, self.now):
            self._give_again(fact)
        for key in self.inside:
            for args, interval in self.model.derived(key):
                if self.model.origin(Fact(key[0], args, interval)) is not None:
                    self._give_again(Fact(key[0], args, interval))
        self.component(component)

    def _give_again(self, fact: Fact) -> None:
        if fact.key in self.inside:
            self._given.add(fact)
            self.relation(fact.key).add(*fact.timed)

    def relation(self, key: Key) -> Relation:
        return self.relations.setdefault(key, Relation()) if key in self.inside else super().relation(key)

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index:
        if key not in self.inside:
            return super().index(key, positions, raw=raw)
        return index_by(positions, self.relation(key))

    def look_up(self, premise: Literal, row: Row) -> tuple[Matcher, Facts]:
        if premise.atom.key not in self.inside:
            return super().look_up(premise, row)
        matcher = Matcher(premise, row, self.now)
        wanted = matcher.key(row)
        relation = self.relation(premise.atom.key)
        if len(wanted) == premise.atom.key[1]:
            return matcher, [(wanted, interval) for interval in relation.facts.get(wanted, ())]
        return matcher, [fact for fact in relation if matcher.fact_key(fact[0]) == wanted]

    def _solve(self, premise: Premise, rows: list[Row]) -> Solving:
        changes = isinstance(premise, Literal) and premise.atom.key in self.inside
        return (yield from (NaiveEvaluation if changes else ModelSolver)._solve(self, premise, rows))

    def _is_plain_look_up(self, premise: Premise) -> bool:
        return super()._is_plain_look_up(premise) and premise.atom.key not in self.inside  # type: ignore[union-attr]

    def _apply(self, rule: Rule) -> list[TimedArgs]:
        shape = self._shapes[id(rule)]
        found = self._instances.heads(shape, {})
        for fact, rows in found.items():
            ground = Fact(rule.head.predicate, *fact)
            if ground not in self.log and ground not in self._given:
                first = min(rows, key=lambda derived: row_key(derived.row))
                self.log[ground] = self._instances.instance(shape, first, {})
        return list(found)

    def _merge_into(self, key: Key, new: list[Args], *, afresh: bool = False) -> bool:
        self._merging = key
        return super()._merge_into(key, new, afresh=afresh)

    def _merged(self, group: list[Args], args: Args, merge: Merge) -> list[Args]:
        result = super()._merged(group, args, merge)
        assert self._merging is not None
        lost = tuple(Fact(self._merging[0], old) for old in group if old not in result)
        for value in result:
            made = Fact(self._merging[0], value)
            if value not in group and value != args and made not in self._given:
                self.log.setdefault(made, MergedFact((Fact(self._merging[0], args), *lost)))
        return result


# The best proof has the fewest leaves, then the least height, then the least text. Facts are expanded into instances
# from the goal; then costs are settled per component, bottom-up, by Knuth's generalisation of Dijkstra's algorithm. An
# instance costs more than each premise, so proofs are well-founded under recursion. Leaves count as often as they are
# used; counting each once would be NP-hard.
Chosen: TypeAlias = tuple[Fact, ...] | Absence

WIDEST: Final = 50_000  # limit of instances for the best proof
FEW: Final = 8  # limit of instances per fact and rule beyond that


@dataclass(frozen=True, slots=True)
class Choice:
    leaves: int
    height: int
    instance: Instance | None = None  # none for a leaf, and for a value merged from ``chosen``
    chosen: tuple[Chosen, ...] = ()  # the facts of each ground

    @property
    def premises(self) -> Iterator[Fact]:
        return (fact for chosen in self.chosen if not isinstance(chosen, Absence) for fact in chosen)


LEAF: Final = Choice(1, 0)


class TooWide(Exception):
    pass


@dataclass(slots=True)
class _Waiting:
    fact: Fact
    instance: Instance
    chosen: list[Chosen | None]
    missing: int = 0


@dataclass
class Search:
    """Finds and memoises proofs."""

    solver: ModelSolver
    instances: Instances
    using: Collection[Fact] | None = None  # the given facts that may be leaves; None for all
    widest: int | None = WIDEST  # limit of instances
    most: int | None = None  # limit of instances per fact and rule
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
        """Return the index in evaluation order; -1 without rules."""
        return self._component.get(key, -1)

    def text(self, fact: Fact) -> str:
        text = self._texts.get(fact)
        if text is None:
            text = self._texts[fact] = fact.text
        return text

    def prove(self, goals: Iterable[Fact]) -> None:
        """Settle the goals and their dependencies. A fact without an entry in ``best`` cannot be proved.

        Raises TooWide beyond the limit of instances.
        """
        by_component: dict[int, list[Fact]] = {}
        for fact in self._expand(goals):
            by_component.setdefault(self.component(fact.key), []).append(fact)
        for number in sorted(by_component):
            self._settle(number, by_component[number])
            self._recall(number, [fact for fact in by_component[number] if fact not in self.best])

    def leaf(self, fact: Fact) -> bool:
        """Return whether the fact is given and needs no proof, even if it has one."""
        if fact in self.best:
            return self.best[fact] is LEAF
        if self.solver.given(fact) and (self.using is None or fact in self.using):
            self.best[fact] = LEAF
            return True
        return False

    def expand(self, fact: Fact) -> list[Instance]:
        found = self.expanded.get(fact)
        if found is None:
            found = self.expanded[fact] = list(self.instances.of(fact, self.most))
        return found

    def _expand(self, goals: Iterable[Fact]) -> list[Fact]:
        stack = list(goals)
        seen: set[Fact] = set()
        count = 0
        while stack:
            fact = stack.pop()
            if fact in seen or fact in self._settled or fact in self.best or self.leaf(fact):
                continue
            seen.add(fact)
            instances = self.expand(fact)
            count += len(instances)
            if self.widest is not None and count > self.widest:
                raise TooWide
            stack += [other for instance in instances for other in instance.facts() if other not in seen]
        return list(seen)

    def _settle(self, number: int, facts: list[Fact]) -> None:
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
        ranked = [self._ranked(facts) for option in options if (facts := self._cheapest(option))]
        return min(ranked)[-1] if ranked else None

    def _ranked(self, facts: tuple[Fact, ...]) -> tuple[Any, ...]:
        leaves, height = self.cost([facts])
        return leaves, height, [self.text(fact) for fact in facts], facts

    def _cheapest(self, option: Option) -> tuple[Fact, ...] | None:
        proved = [fact for fact in option.facts if fact in self.best]
        if not proved:
            return None
        if option.demand.whole is None:
            return (min(proved, key=self._fact_order),)
        return cover(Option(tuple(proved), option.demand), self._fact_order)

    def _fact_order(self, fact: Fact) -> tuple[int, int, str]:
        choice = self.best[fact]
        return choice.leaves, choice.height, self.text(fact)

    def cost(self, chosen: Iterable[Chosen | None]) -> tuple[int, int]:
        """Return leaves and height; a fact that a rule uses twice counts once."""
        facts = {fact for one in chosen if isinstance(one, tuple) for fact in one}
        choices = [self.best[fact] for fact in facts]
        return sum(c.leaves for c in choices), max((c.height for c in choices), default=0)

    def _finish(self, one: _Waiting, queue: list[tuple[Any, ...]]) -> None:
        leaves, height = self.cost(one.chosen)
        chosen = tuple(c for c in one.chosen if c is not None)
        self._push(queue, one.fact, Choice(leaves, height + 1, one.instance, chosen))

    def _recall(self, number: int, facts: list[Fact]) -> None:
        """Prove facts of a component from a replay, if they may have instances that were not looked at."""
        if not facts or number < 0:
            return
        component = self.solver.program.components[number]
        predicates = [self.solver.predicate(key) for key in component.predicates]
        cut = self.most is not None and component.recursive and not any(p.deferred for p in predicates)
        if not cut and all(predicate.merge is None for predicate in predicates):
            return
        replay = self._replays.get(number)
        if replay is None:
            replay = self._replays[number] = Replay(self.solver, component)
        needed, below = self._needed(replay, number, facts)
        self.prove(below)
        for fact, entry in replay.log.items():
            if fact not in needed or fact in self.best:
                continue
            if isinstance(entry, MergedFact):
                chosen: list[Chosen | None] = [entry.facts]
            else:
                chosen = [g if isinstance(g, Absence) else self.cheapest(g.options) for g in entry.grounds]
            if None not in chosen:
                leaves, height = self.cost(chosen)
                instance = entry if isinstance(entry, Instance) else None
                self.best[fact] = Choice(leaves, height + 1, instance, tuple(c for c in chosen if c is not None))

    def _needed(self, replay: Replay, number: int, facts: list[Fact]) -> tuple[set[Fact], list[Fact]]:
        """Return the dependencies of some log entries: inside the component, and below it."""
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
            stack += entry.facts if isinstance(entry, MergedFact) else entry.facts()
        return needed, below

    def _push(self, queue: list[tuple[Any, ...]], fact: Fact, choice: Choice) -> None:
        order = () if choice.instance is None else choice.instance.order_key
        heapq.heappush(queue, (choice.leaves, choice.height, self.text(fact), order, next(self._number), fact, choice))
