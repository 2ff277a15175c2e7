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
from manglecp.mangle.explain.instances import Absence, Instance, Instances, Option, cheapest_cover
from manglecp.mangle.explain.solver import ModelSolver, index_by, row_key
from manglecp.mangle.facts import Args, Fact, TimedArgs
from manglecp.mangle.matching import Matcher, Row
from manglecp.mangle.model import Facts, Index, Relation, program_facts
from manglecp.mangle.naive import NaiveEvaluation, Solving
from manglecp.mangle.program import Rule
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Key, Literal, Premise


# A fact may have no usable instance in the finished model: a merge discards values whose consequences stay, and if only
# some of many instances are examined, these may be circular. Then the component is evaluated again, and every fact is
# logged when it first appears. Log entries depend on earlier ones only, so proofs from the log are well-founded.
@dataclass(frozen=True, slots=True)
class MergedFact:
    """A value merged from these facts."""

    facts: tuple[Fact, ...]


class Replay(ModelSolver):
    """A component, evaluated again over the finished model of the others, with a log of how each fact appeared."""

    def __init__(self, solver: ModelSolver, component: Component) -> None:
        super().__init__(solver.model)
        self.answers = solver.answers.copy()
        self.own_keys = frozenset(key for key in component.predicates if not self.predicate(key).deferred)
        self.log: dict[Fact, Instance | MergedFact] = {}  # how each fact appeared first
        self._given: set[Fact] = set()
        self._instances = Instances(self)
        self._shapes = {id(s.rule): s for shapes in self._instances.shapes.values() for s in shapes}
        self._merging: Key | None = None  # the predicate that is being merged
        given = [fact for fact in program_facts(self.program, self.now) if fact.key in self.own_keys]
        for key in self.own_keys:
            facts = (Fact(key[0], *timed) for timed in self.model.derived(key))
            given += [fact for fact in facts if self.model.origin(fact) is not None]
        self._given.update(given)
        for fact in given:
            self.relation(fact.key).add(*fact.timed_args)
        self.evaluate_component(component)

    def relation(self, key: Key) -> Relation:
        return self.relations.setdefault(key, Relation()) if key in self.own_keys else super().relation(key)

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index:
        if key not in self.own_keys:
            return super().index(key, positions, raw=raw)
        return index_by(positions, self.relation(key))

    def look_up(self, premise: Literal, row: Row) -> tuple[Matcher, Facts]:
        if premise.atom.key not in self.own_keys:
            return super().look_up(premise, row)
        matcher = Matcher(premise, row, self.now)
        row_values = matcher.key(row)
        relation = self.relation(premise.atom.key)
        if len(row_values) == premise.atom.key[1]:
            return matcher, [(row_values, interval) for interval in relation.facts.get(row_values, ())]
        return matcher, [fact for fact in relation if matcher.fact_key(fact[0]) == row_values]

    def _solve(self, premise: Premise, rows: list[Row]) -> Solving:
        is_own = isinstance(premise, Literal) and premise.atom.key in self.own_keys
        return (yield from (NaiveEvaluation if is_own else ModelSolver)._solve(self, premise, rows))

    def _is_plain_look_up(self, premise: Premise) -> bool:
        return super()._is_plain_look_up(premise) and premise.atom.key not in self.own_keys  # type: ignore[union-attr]

    def _apply(self, rule: Rule) -> list[TimedArgs]:
        shape = self._shapes[id(rule)]
        derivations = self._instances.derivations(shape, {})
        for timed_args, rows in derivations.items():
            derived_fact = Fact(rule.head.predicate, *timed_args)
            if derived_fact not in self.log and derived_fact not in self._given:
                first = min(rows, key=lambda derived: row_key(derived.row))
                self.log[derived_fact] = self._instances.instance(shape, first, {})
        return list(derivations)

    def _merge_into(self, key: Key, new_facts: list[Args], *, replace: bool = False) -> bool:
        self._merging = key
        return super()._merge_into(key, new_facts, replace=replace)

    def _merged(self, group: list[Args], args: Args, merge: Merge) -> list[Args]:
        result = super()._merged(group, args, merge)
        assert self._merging is not None
        replaced = tuple(Fact(self._merging[0], old) for old in group if old not in result)
        for merged_args in result:
            merged_fact = Fact(self._merging[0], merged_args)
            if merged_args not in group and merged_args != args and merged_fact not in self._given:
                self.log.setdefault(merged_fact, MergedFact((Fact(self._merging[0], args), *replaced)))
        return result


# The best proof has the fewest leaves, then the least height, then the least text. Facts are expanded into instances
# from the goal; then costs are settled per component, bottom-up, by Knuth's generalisation of Dijkstra's algorithm. An
# instance costs more than each premise, so proofs are well-founded under recursion. Leaves count as often as they are
# used; counting each once would be NP-hard.
Chosen: TypeAlias = tuple[Fact, ...] | Absence  # the facts that satisfy a positive premise, or a negated premise

MAX_INSTANCES: Final = 50_000  # in the search for the best proof
FEW_INSTANCES: Final = 8  # instances per fact and rule, in the search for any proof beyond MAX_INSTANCES


@dataclass(frozen=True, slots=True)
class Choice:
    """The proof of a fact, by an instance and the facts it rests on, and its cost."""

    leaf_count: int
    height: int
    instance: Instance | None = None  # None for a leaf, and for a value merged from ``chosen``
    chosen: tuple[Chosen, ...] = ()  # of each ground of the instance

    @property
    def premises(self) -> Iterator[Fact]:
        return (fact for chosen in self.chosen if not isinstance(chosen, Absence) for fact in chosen)


LEAF: Final = Choice(leaf_count=1, height=0)


class TooWide(Exception):
    """There are more instances than the limit."""


@dataclass(slots=True)
class _PendingInstance:
    """An instance some of whose premises have no proof yet."""

    fact: Fact
    instance: Instance
    chosen: list[Chosen | None]  # of each ground; None without a proof
    missing_count: int = 0  # grounds without a proof


@dataclass
class Search:
    """Finds and memoises proofs."""

    solver: ModelSolver
    instances: Instances
    using: Collection[Fact] | None = None  # the given facts that may be leaves; None for all
    max_instances: int | None = MAX_INSTANCES
    max_per_rule: int | None = None  # limit of instances per fact and rule
    best: dict[Fact, Choice] = field(default_factory=dict)  # of every proved fact
    expanded: dict[Fact, list[Instance]] = field(default_factory=dict)  # the instances of facts

    def __post_init__(self) -> None:
        self._settled: set[Fact] = set()
        self.text: Callable[[Fact], str] = functools.cache(operator.attrgetter("text"))
        self._replays: dict[int, Replay] = {}  # by component number
        self._tie_breaker = itertools.count()  # so that heap entries never compare facts
        self._component_numbers: dict[Key, int] = {}
        for number, component in enumerate(self.solver.program.components):
            self._component_numbers.update(dict.fromkeys(component.predicates, number))

    def component_of(self, key: Key) -> int:
        """Return the number of a predicate's component in evaluation order; -1 without rules."""
        return self._component_numbers.get(key, -1)

    def prove(self, goals: Iterable[Fact]) -> None:
        """Settle the goals and their dependencies. A fact without an entry in ``best`` cannot be proved.

        Raises TooWide beyond the limit of instances.
        """
        by_component: dict[int, list[Fact]] = {}
        for fact in self._expand(goals):
            by_component.setdefault(self.component_of(fact.key), []).append(fact)
        for number in sorted(by_component):
            self._settle(number, by_component[number])
            self._prove_from_replay(number, [fact for fact in by_component[number] if fact not in self.best])

    def is_leaf(self, fact: Fact) -> bool:
        """Return whether the fact is given and may be used; then it needs no proof, even if rules derive it."""
        if fact in self.best:
            return self.best[fact] is LEAF
        if self.solver.is_given(fact) and (self.using is None or fact in self.using):
            self.best[fact] = LEAF
            return True
        return False

    def expand(self, fact: Fact) -> list[Instance]:
        """Return the instances that derive a fact, memoised."""
        instances = self.expanded.get(fact)
        if instances is None:
            instances = self.expanded[fact] = list(self.instances.of(fact, self.max_per_rule))
        return instances

    def _expand(self, goals: Iterable[Fact]) -> list[Fact]:
        """Expand the goals and what they rest on; return the facts that have to be settled."""
        stack = list(goals)
        seen: set[Fact] = set()
        count = 0
        while stack:
            fact = stack.pop()
            if fact in seen or fact in self._settled or fact in self.best or self.is_leaf(fact):
                continue
            seen.add(fact)
            instances = self.expand(fact)
            count += len(instances)
            if self.max_instances is not None and count > self.max_instances:
                raise TooWide
            stack += [other for instance in instances for other in instance.facts() if other not in seen]
        return list(seen)

    def _settle(self, number: int, facts: list[Fact]) -> None:
        """Find the best proofs of the facts of one component, the cheapest first."""
        waiting: dict[Fact, list[tuple[_PendingInstance, int]]] = {}
        queue: list[tuple[Any, ...]] = []
        for fact in facts:
            for instance in self.expanded[fact]:
                pending = _PendingInstance(fact, instance, [None] * len(instance.grounds))
                if self._choose_outside(number, pending, waiting) and not pending.missing_count:
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
            for pending, ground_index in waiting.get(fact, ()):
                if pending.chosen[ground_index] is None:
                    pending.chosen[ground_index] = (fact,)
                    pending.missing_count -= 1
                    if pending.missing_count == 0:
                        self._finish(pending, queue)
        self._settled.update(facts)

    def _choose_outside(
        self, number: int, pending: _PendingInstance, waiting: dict[Fact, list[tuple[_PendingInstance, int]]]
    ) -> bool:
        """Choose facts for the premises outside of the component, and register the others in ``waiting``.

        Returns False if a premise cannot be proved.
        """
        inside: list[tuple[Fact, int]] = []
        for ground_index, ground in enumerate(pending.instance.grounds):
            if not isinstance(ground, Absence) and self.component_of(ground.literal.atom.key) == number:
                inside += [(option.facts[0], ground_index) for option in ground.options]
                pending.missing_count += 1
                continue
            pending.chosen[ground_index] = ground if isinstance(ground, Absence) else self.cheapest(ground.options)
            if pending.chosen[ground_index] is None:
                return False
        for fact, ground_index in inside:
            waiting.setdefault(fact, []).append((pending, ground_index))
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
        return cheapest_cover(Option(tuple(proved), option.demand), self._fact_order)

    def _fact_order(self, fact: Fact) -> tuple[int, int, str]:
        choice = self.best[fact]
        return choice.leaf_count, choice.height, self.text(fact)

    def cost(self, chosen: Iterable[Chosen | None]) -> tuple[int, int]:
        """Return the number of leaves and the height of chosen facts; a fact that occurs twice counts once."""
        facts = {fact for facts in chosen if isinstance(facts, tuple) for fact in facts}
        choices = [self.best[fact] for fact in facts]
        return sum(choice.leaf_count for choice in choices), max((choice.height for choice in choices), default=0)

    def _finish(self, pending: _PendingInstance, queue: list[tuple[Any, ...]]) -> None:
        self._push(queue, pending.fact, self._choice(pending.instance, pending.chosen))

    def _choice(self, instance: Instance | None, chosen: Sequence[Chosen | None]) -> Choice:
        leaf_count, height = self.cost(chosen)
        return Choice(leaf_count, height + 1, instance, tuple(c for c in chosen if c is not None))

    def _prove_from_replay(self, number: int, facts: list[Fact]) -> None:
        """Prove facts of a component from a replay, if they may have instances that were not examined."""
        if not facts or number < 0:
            return
        component = self.solver.program.components[number]
        predicates = [self.solver.predicate(key) for key in component.predicates]
        was_limited = self.max_per_rule is not None and component.recursive and not any(p.deferred for p in predicates)
        if not was_limited and all(predicate.merge is None for predicate in predicates):
            return
        replay = self._replays.get(number)
        if replay is None:
            replay = self._replays[number] = Replay(self.solver, component)
        needed, below = self._log_dependencies(replay, number, facts)
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

    def _log_dependencies(self, replay: Replay, number: int, facts: list[Fact]) -> tuple[set[Fact], list[Fact]]:
        """Return the facts that some log entries rest on: those of the component, and those below it."""
        needed: set[Fact] = set()
        below: list[Fact] = []
        stack = list(facts)
        while stack:
            fact = stack.pop()
            if self.component_of(fact.key) != number:
                below.append(fact)
                continue
            entry = replay.log.get(fact)
            if fact in needed or self.is_leaf(fact) or entry is None:
                continue
            needed.add(fact)
            stack += entry.facts if isinstance(entry, MergedFact) else entry.facts()
        return needed, below

    def _push(self, queue: list[tuple[Any, ...]], fact: Fact, choice: Choice) -> None:
        instance_order = () if choice.instance is None else choice.instance.order_key
        rank = (choice.leaf_count, choice.height, self.text(fact), instance_order, next(self._tie_breaker))
        heapq.heappush(queue, (*rank, fact, choice))
