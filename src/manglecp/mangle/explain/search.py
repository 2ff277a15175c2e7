"""Search for the best proof of a fact, or for a good proof where the best is too expensive."""

from __future__ import annotations

import functools
import heapq
import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from zlib import crc32

from manglecp.mangle.declarations import Merge
from manglecp.mangle.explain.instances import Absence, Ground, Instance, Instances, Option, cheapest_cover
from manglecp.mangle.explain.solver import ModelSolver, index_by, row_key
from manglecp.mangle.facts import Args, Fact, TimedArgs
from manglecp.mangle.model import Index, Relation, program_facts
from manglecp.mangle.program import Rule
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Key


# A fact may have no instance in the finished model, because a merge discards values whose consequences stay. Then the
# component is evaluated again, and every fact is logged when it first appears. Entries depend on earlier entries only,
# so proofs from the log are well-founded.
@dataclass(frozen=True, slots=True)
class MergedFact:
    """A value merged from these facts."""

    facts: tuple[Fact, ...]


class Replay(ModelSolver):
    """A component, evaluated again over the finished model of the others, with a log of how each fact appeared."""

    def __init__(self, solver: ModelSolver, component: Component) -> None:
        super().__init__(solver.model)
        self.deadline = solver.deadline
        self.answers = solver.answers.copy()
        self.own_keys = frozenset(key for key in component.predicates if not self.predicate(key).deferred)
        self.log: dict[Fact, Instance | MergedFact] = {}  # how each fact appeared first
        self._given: set[Fact] = set()
        self._instances = Instances(self, every_row=True)
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
        if key in self.own_keys and (key, raw, positions) not in self._indexes:
            self._indexes[key, raw, positions] = index_by(positions, self.relation(key))
        return super().index(key, positions, raw=raw)

    def _apply(self, rule: Rule) -> list[TimedArgs]:
        self._matchers.clear()  # they hold indexes of relations that have grown
        self._indexes = {place: index for place, index in self._indexes.items() if place[0] not in self.own_keys}
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


# The best proof has the fewest leaves, then the least height, then the least text. Facts are expanded into instances,
# breadth first from the goal; then costs are settled per component, bottom-up, by Knuth's generalisation of Dijkstra's
# algorithm. An instance costs more than its premises, so proofs are well-founded under recursion. Leaves count as often
# as they are used; counting each once would be NP-hard. A search that reaches WORK instances takes the best proof from
# these; if these make none, it expands instances depth first until there is a proof.
ChosenFacts: TypeAlias = tuple[Fact, ...] | Absence  # the facts that satisfy a positive premise, or a negated premise

WORK: Final = 128  # instances that a search expands breadth first


@dataclass(frozen=True, slots=True)
class Choice:
    """The proof of a fact, by an instance and the facts it rests on, and its cost."""

    leaf_count: int
    height: int
    instance: Instance | None = None  # None for a leaf, and for a value merged from ``chosen``
    chosen: tuple[ChosenFacts, ...] = ()  # one per ground of the instance

    @property
    def premises(self) -> Iterator[Fact]:
        return (fact for chosen in self.chosen if not isinstance(chosen, Absence) for fact in chosen)


LEAF: Final = Choice(leaf_count=1, height=0)


@dataclass(slots=True)
class _PendingInstance:
    """An instance some of whose premises have no proof yet."""

    fact: Fact
    instance: Instance
    chosen: list[ChosenFacts | None]  # one per ground; None without a proof
    missing_count: int = 0  # grounds without a proof


class Search:
    """Finds and memoises proofs; ``using`` are the given facts that may be leaves, None for all."""

    def __init__(self, solver: ModelSolver, instances: Instances, using: Collection[Fact] | None = None) -> None:
        self.solver = solver
        self.instances = instances
        self.using = using
        self.best: dict[Fact, Choice] = {}  # the best proof of every proved fact
        self.text: Callable[[Fact], str] = functools.cache(operator.attrgetter("text"))
        self._expanded: dict[Fact, tuple[list[Instance], bool]] = {}  # instances of a fact, and whether these are all
        self._unprovable: set[Fact] = set()
        self._replays: dict[int, Replay] = {}  # by component number
        self._tie_breaker = itertools.count()  # so that heap entries never compare facts
        self._component_numbers: dict[Key, int] = {}
        for number, component in enumerate(solver.program.components):
            self._component_numbers.update(dict.fromkeys(component.predicates, number))

    def component_of(self, key: Key) -> int:
        """Return the number of a predicate's component in evaluation order; -1 without rules."""
        return self._component_numbers.get(key, -1)

    def prove(self, goals: Collection[Fact]) -> None:
        """Settle the goals and what they rest on. A fact without an entry in ``best`` cannot be proved."""
        limit = WORK
        expanded, is_whole = self._expand(goals, limit)
        self._settle_all(expanded)
        while not is_whole and any(goal not in self.best for goal in goals):
            expanded, is_whole = self._expand_depth_first(goals, limit)
            self._settle_all(expanded)
            limit *= 2
        if is_whole:
            self._unprovable.update(fact for fact in expanded if fact not in self.best)

    def _settle_all(self, facts: Iterable[Fact]) -> None:
        by_component: dict[int, list[Fact]] = {}
        for fact in facts:
            by_component.setdefault(self.component_of(fact.key), []).append(fact)
        for number in sorted(by_component):
            self._settle(number, by_component[number])
            self._prove_from_replay(number, [fact for fact in by_component[number] if fact not in self.best])

    def is_leaf(self, fact: Fact) -> bool:
        """Return whether the fact is given and may be used; then it needs no proof, even if rules derive it."""
        if fact in self.best:
            return self.best[fact] is LEAF
        if (self.using is None or fact in self.using) and self.solver.is_given(fact):
            self.best[fact] = LEAF
            return True
        return False

    def expand(self, fact: Fact, limit: int) -> tuple[list[Instance], bool]:
        """Return instances that derive a fact, at most ``limit`` per rule, and whether these are all; memoised."""
        expanded = self._expanded.get(fact)
        if expanded is None or not (expanded[1] or len(expanded[0]) >= limit):
            expanded = self._expanded[fact] = self.instances.of(fact, limit)
        return expanded

    def _expand(self, goals: Iterable[Fact], work: int) -> tuple[list[Fact], bool]:
        """Expand goals and what they rest on, breadth first; return the expanded facts and whether these are all."""
        expanded: dict[Fact, None] = {}
        next_layer = dict.fromkeys(goals)
        is_whole = True
        while next_layer:
            layer = [fact for fact in next_layer if fact not in expanded and self._needs_search(fact)]
            if len(layer) > work:
                layer.sort(key=self.text)
            next_layer = {}
            for fact in layer:
                if work <= 0:
                    return list(expanded), False
                instances, is_all = self.expand(fact, work)
                work -= max(len(instances), 1)
                is_whole &= is_all
                expanded[fact] = None
                for instance in instances:
                    next_layer.update(dict.fromkeys(instance.facts()))
        return list(expanded), is_whole

    def _needs_search(self, fact: Fact) -> bool:
        return fact not in self.best and fact not in self._unprovable and not self.is_leaf(fact)

    def _expand_depth_first(self, goals: Iterable[Fact], limit: int) -> tuple[list[Fact], bool]:
        """Expand depth first until the goals have proofs; return the expanded facts and whether these are all."""
        expanded: dict[Fact, None] = {}
        proved: set[Fact] = set()
        waiting: dict[Fact, list[tuple[Fact, dict[int, Ground]]]] = {}  # by fact: readers, and the grounds they lack
        is_whole = True

        def is_met(ground: Ground) -> bool:
            options = () if isinstance(ground, Absence) else ground.options
            return not options or any(
                (any if option.demand.whole is None else all)(
                    f in proved or not self._needs_search(f) for f in option.facts
                )
                for option in options
            )

        stack = [(goal, goal) for goal in goals]  # facts, each with the fact that needs it
        while stack:
            fact, reader = stack.pop()
            if fact in expanded or fact in proved or reader in proved or not self._needs_search(fact):
                continue
            instances, is_all = self.expand(fact, limit)
            is_whole &= is_all
            expanded[fact] = None
            needed: dict[Fact, None] = {}
            for instance in instances:
                lacking = {i: ground for i, ground in enumerate(instance.grounds) if not is_met(ground)}
                if not lacking:
                    needed, newly_proved = {}, [fact]
                    while newly_proved:
                        done = newly_proved.pop()
                        proved.add(done)
                        for head, lacked in waiting.pop(done, ()):
                            for i in [i for i, ground in lacked.items() if is_met(ground)]:
                                del lacked[i]
                            if not lacked and head not in proved:
                                newly_proved.append(head)
                    break
                for ground in lacking.values():
                    for other in (f for option in ground.options for f in option.facts):  # type: ignore[union-attr]
                        waiting.setdefault(other, []).append((fact, lacking))
                        needed[other] = None
            # Sorted by a hash, so that no systematic order of names causes long detours.
            stack += [(other, fact) for other in sorted(needed, key=lambda f: crc32(self.text(f).encode()))]
        return list(expanded), is_whole and not proved.issuperset(goals)

    def _settle(self, number: int, facts: list[Fact]) -> None:
        """Find the best proofs of the facts of one component, the cheapest first."""
        waiting: dict[Fact, list[tuple[_PendingInstance, int]]] = {}
        queue: list[tuple[Any, ...]] = []
        for fact in facts:
            for instance in self._expanded[fact][0]:
                pending = _PendingInstance(fact, instance, [None] * len(instance.grounds))
                if self._choose_outside(number, pending, waiting) and not pending.missing_count:
                    self._push(queue, fact, self._choice(instance, pending.chosen))
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
                        self._push(queue, pending.fact, self._choice(pending.instance, pending.chosen))

    def _choose_outside(
        self, number: int, pending: _PendingInstance, waiting: dict[Fact, list[tuple[_PendingInstance, int]]]
    ) -> bool:
        """Choose facts for the premises outside of the component, and register the premises inside in ``waiting``.

        Returns False if a premise cannot be proved.
        """
        inner_facts: list[tuple[Fact, int]] = []
        for ground_index, ground in enumerate(pending.instance.grounds):
            if not isinstance(ground, Absence) and self.component_of(ground.literal.atom.key) == number:
                inner_facts += [(option.facts[0], ground_index) for option in ground.options]
                pending.missing_count += 1
                continue
            pending.chosen[ground_index] = ground if isinstance(ground, Absence) else self.cheapest(ground.options)
            if pending.chosen[ground_index] is None:
                return False
        for fact, ground_index in inner_facts:
            waiting.setdefault(fact, []).append((pending, ground_index))
        return True

    def cheapest(self, options: Sequence[Option]) -> tuple[Fact, ...] | None:
        """Return the facts of the option with the best proofs; None if no option is proved."""
        choices = [facts for option in options if (facts := self._cheapest(option))]

        def rank(facts: tuple[Fact, ...]) -> tuple[tuple[int, int], list[str]]:
            return self._cost([facts]), [self.text(fact) for fact in facts]

        return min(choices, key=rank) if len(choices) > 1 else choices[0] if choices else None

    def _cheapest(self, option: Option) -> tuple[Fact, ...] | None:
        proved = tuple([fact for fact in option.facts if fact in self.best])
        if len(proved) < 2 and option.demand.whole is None:
            return proved
        if option.demand.whole is None:
            return (min(proved, key=self._fact_order),)
        return cheapest_cover(Option(proved, option.demand), self._fact_order)

    def _fact_order(self, fact: Fact) -> tuple[int, int, str]:
        choice = self.best[fact]
        return choice.leaf_count, choice.height, self.text(fact)

    def _cost(self, chosen: Iterable[ChosenFacts | None]) -> tuple[int, int]:
        """Return the number of leaves and the height of chosen facts; a fact that occurs twice counts once."""
        facts = {fact for facts in chosen if isinstance(facts, tuple) for fact in facts}
        choices = [self.best[fact] for fact in facts]
        return sum([choice.leaf_count for choice in choices]), max([choice.height for choice in choices], default=0)

    def _choice(self, instance: Instance | None, chosen: Sequence[ChosenFacts | None]) -> Choice:
        leaf_count, height = self._cost(chosen)
        return Choice(leaf_count, height + 1, instance, tuple([c for c in chosen if c is not None]))

    def _push(self, queue: list[tuple[Any, ...]], fact: Fact, choice: Choice) -> None:
        instance_order = () if choice.instance is None else choice.instance.order_key
        rank = (choice.leaf_count, choice.height, self.text(fact), instance_order, next(self._tie_breaker))
        heapq.heappush(queue, (*rank, fact, choice))

    def _prove_from_replay(self, number: int, facts: list[Fact]) -> None:
        """Prove facts of a component with a merge from a replay."""
        if not facts or number < 0:
            return
        component = self.solver.program.components[number]
        if all(self.solver.predicate(key).merge is None for key in component.predicates):
            return
        replay = self._replays.get(number)
        if replay is None:
            replay = self._replays[number] = Replay(self.solver, component)
        needed: set[Fact] = set()  # facts of the component
        outer_facts: list[Fact] = []
        stack = list(facts)
        while stack:
            fact = stack.pop()
            entry = replay.log.get(fact)
            if self.component_of(fact.key) != number:
                outer_facts.append(fact)
            elif fact not in needed and not self.is_leaf(fact) and entry is not None:
                needed.add(fact)
                stack += entry.facts if isinstance(entry, MergedFact) else entry.facts()
        self.prove(outer_facts)
        for fact, entry in replay.log.items():
            if fact not in needed or fact in self.best:
                continue
            if isinstance(entry, MergedFact):
                chosen: list[ChosenFacts | None] = [entry.facts]
            else:
                chosen = [g if isinstance(g, Absence) else self.cheapest(g.options) for g in entry.grounds]
            if None not in chosen:
                self.best[fact] = self._choice(entry if isinstance(entry, Instance) else None, chosen)
