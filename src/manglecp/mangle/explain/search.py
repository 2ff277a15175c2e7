"""Search for the best proof of a fact, or a good one where that is too expensive."""

from __future__ import annotations

import functools
import heapq
import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
        given = [fact for fact in program_facts(self.program, self.now) if fact.key in self.inside]
        for key in self.inside:
            facts = (Fact(key[0], *timed) for timed in self.model.derived(key))
            given += [fact for fact in facts if self.model.origin(fact) is not None]
        self._given.update(given)
        for fact in given:
            self.relation(fact.key).add(*fact.timed_args)
        self.evaluate_component(component)

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
        heads = self._instances.heads(shape, {})
        for fact, rows in heads.items():
            ground = Fact(rule.head.predicate, *fact)
            if ground not in self.log and ground not in self._given:
                first = min(rows, key=lambda derived: row_key(derived.row))
                self.log[ground] = self._instances.instance(shape, first, {})
        return list(heads)

    def _merge_into(self, key: Key, new: list[Args], *, replace: bool = False) -> bool:
        self._merging = key
        return super()._merge_into(key, new, replace=replace)

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
class _PendingInstance:
    """An instance some of whose premises have no proof yet."""

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
        self.text: Callable[[Fact], str] = functools.cache(operator.attrgetter("text"))
        self._replays: dict[int, Replay] = {}
        self._number = itertools.count()  # two heap entries must never compare further
        self._component: dict[Key, int] = {}
        for number, component in enumerate(self.solver.program.components):
            self._component.update(dict.fromkeys(component.predicates, number))

    def component(self, key: Key) -> int:
        """Return the index in evaluation order; -1 without rules."""
        return self._component.get(key, -1)

    def prove(self, goals: Iterable[Fact]) -> None:
        """Settle the goals and their dependencies. A fact without an entry in ``best`` cannot be proved.

        Raises TooWide beyond the limit of instances.
        """
        by_component: dict[int, list[Fact]] = {}
        for fact in self._expand(goals):
            by_component.setdefault(self.component(fact.key), []).append(fact)
        for number in sorted(by_component):
            self._settle(number, by_component[number])
            self._prove_from_replay(number, [fact for fact in by_component[number] if fact not in self.best])

    def leaf(self, fact: Fact) -> bool:
        """Return whether the fact is given and needs no proof, even if it has one."""
        if fact in self.best:
            return self.best[fact] is LEAF
        if self.solver.given(fact) and (self.using is None or fact in self.using):
            self.best[fact] = LEAF
            return True
        return False

    def expand(self, fact: Fact) -> list[Instance]:
        instances = self.expanded.get(fact)
        if instances is None:
            instances = self.expanded[fact] = list(self.instances.of(fact, self.most))
        return instances

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
        waiting: dict[Fact, list[tuple[_PendingInstance, int]]] = {}
        queue: list[tuple[Any, ...]] = []
        for fact in facts:
            for instance in self.expanded[fact]:
                pending = _PendingInstance(fact, instance, [None] * len(instance.grounds))
                if self._choose_outside(number, pending, waiting) and not pending.missing:
                    self._finish(pending, queue)
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
            for pending, place in waiting.get(fact, ()):
                if pending.chosen[place] is None:
                    pending.chosen[place] = (fact,)
                    pending.missing -= 1
                    if pending.missing == 0:
                        self._finish(pending, queue)
        self._settled.update(facts)

    def _choose_outside(
        self, number: int, pending: _PendingInstance, waiting: dict[Fact, list[tuple[_PendingInstance, int]]]
    ) -> bool:
        """Choose proofs of the premises outside of the component, and wait for the others.

        Returns False if a premise cannot be proved.
        """
        inside: list[tuple[Fact, int]] = []
        for place, ground in enumerate(pending.instance.grounds):
            if not isinstance(ground, Absence) and self.component(ground.literal.atom.key) == number:
                inside += [(option.facts[0], place) for option in ground.options]
                pending.missing += 1
                continue
            pending.chosen[place] = ground if isinstance(ground, Absence) else self.cheapest(ground.options)
            if pending.chosen[place] is None:
                return False
        for fact, place in inside:
            waiting.setdefault(fact, []).append((pending, place))
        return True

    def cheapest(self, options: Iterable[Option]) -> tuple[Fact, ...] | None:
        """Return the facts of the option with the best proofs; None if no option is proved."""
        choices = [facts for option in options if (facts := self._cheapest(option))]

        def rank(facts: tuple[Fact, ...]) -> tuple[tuple[int, int], list[str]]:
            return self.cost([facts]), [self.text(fact) for fact in facts]

        return min(choices, key=rank, default=None)

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

    def _finish(self, pending: _PendingInstance, queue: list[tuple[Any, ...]]) -> None:
        self._push(queue, pending.fact, self._choice(pending.instance, pending.chosen))

    def _choice(self, instance: Instance | None, chosen: Sequence[Chosen | None]) -> Choice:
        leaves, height = self.cost(chosen)
        return Choice(leaves, height + 1, instance, tuple(c for c in chosen if c is not None))

    def _prove_from_replay(self, number: int, facts: list[Fact]) -> None:
        """Prove facts of a component from a replay, if they may have instances that were not examined."""
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
                self.best[fact] = self._choice(entry if isinstance(entry, Instance) else None, chosen)

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
