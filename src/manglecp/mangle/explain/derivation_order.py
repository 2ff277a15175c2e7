"""The order in which an evaluation derived the facts of a model, found by evaluating components again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from manglecp.mangle.declarations import Merge
from manglecp.mangle.engine.views import Rounds
from manglecp.mangle.explain.instances import Instance, Instances, Option, Support, smallest_cover
from manglecp.mangle.explain.solver import ModelSolver, index_by, row_key
from manglecp.mangle.facts import Args, Fact, TimedArgs
from manglecp.mangle.model import Index, Relation, program_facts
from manglecp.mangle.program import Rule
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Atom, Key, Literal, Variable

FEW_INSTANCES: Final = 128  # instances of a fact that are examined at first


# A fact may have no instance in the finished model, because a merge discards a value, but not the facts derived from
# that value. Then the component is evaluated again, and every fact is logged when it first appears. An entry of the log
# depends only on earlier entries, so proofs from the log are well-founded.
class Replay(ModelSolver):
    """An evaluation of one component over the finished model of the others, with a log of derivations.

    A merge is logged as an instance without a rule, whose grounds are the values that were merged.
    """

    def __init__(self, solver: ModelSolver, component: Component) -> None:
        super().__init__(solver.model)
        self.deadline = solver.deadline
        self.answers = solver.answers.copy()
        self.own_keys = frozenset(key for key in component.predicates if not self.predicate(key).deferred)
        self.log: dict[Fact, Instance] = {}  # the first instance that derived each fact
        self._given_facts: set[Fact] = set()
        self._instances = Instances(self, every_row=True)
        self._shapes = {id(s.rule): s for shapes in self._instances.shapes.values() for s in shapes}
        self._merging: Key | None = None  # the predicate that is being merged
        given_facts = [fact for fact in program_facts(self.program, self.now) if fact.key in self.own_keys]
        for key in self.own_keys:
            facts = (Fact(key[0], *timed) for timed in self.model.derived(key))
            given_facts += [fact for fact in facts if self.model.origin(fact) is not None]
        self._given_facts.update(given_facts)
        for fact in given_facts:
            self.relation(fact.key).add(*fact.timed_args)
        self.evaluate_component(component)

    def relation(self, key: Key) -> Relation:
        return self.relations.setdefault(key, Relation()) if key in self.own_keys else super().relation(key)

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index:
        if key in self.own_keys and (key, raw, positions) not in self._indexes:
            self._indexes[key, raw, positions] = index_by(positions, self.relation(key))
        return super().index(key, positions, raw=raw)

    def _apply(self, rule: Rule) -> list[TimedArgs]:
        self._matchers.clear()  # a matcher holds an index of a relation that has grown
        self._indexes = {k: v for k, v in self._indexes.items() if k[0] not in self.own_keys}
        shape = self._shapes[id(rule)]
        derivations = self._instances.derivations(shape, {})
        for timed_args, rows in derivations.items():
            derived_fact = Fact(rule.head.predicate, *timed_args)
            if derived_fact not in self.log and derived_fact not in self._given_facts:
                first_row = min(rows, key=lambda derived: row_key(derived.row))
                self.log[derived_fact] = self._instances.instance(shape, first_row, {})
        return list(derivations)

    def _merge_into(self, key: Key, new_facts: list[Args], *, replace: bool = False) -> bool:
        self._merging = key
        return super()._merge_into(key, new_facts, replace=replace)

    def _merged(self, group: list[Args], args: Args, merge: Merge) -> list[Args]:
        result = super()._merged(group, args, merge)
        assert self._merging is not None
        name, arity = self._merging
        merged_values = [args, *(old for old in group if old not in result)]
        literal = Literal(Atom(name, (Variable("_"),) * arity))
        grounds = tuple(Support(literal, {}, (Option((Fact(name, value),)),)) for value in merged_values)
        for merged_args in result:
            merged_fact = Fact(name, merged_args)
            if merged_args not in group and merged_args != args and merged_fact not in self._given_facts:
                self.log.setdefault(merged_fact, Instance(None, {}, grounds))
        return result


class DerivationOrder:
    """Finds, for each derived fact, an instance that rests only on earlier facts.

    A compiled recursive component is evaluated again to learn the round of each fact, an interpreted component to fill
    the log of a :class:`Replay`. In every other component, an instance rests on facts of earlier components only.
    """

    def __init__(self, solver: ModelSolver, expand: Callable[[Fact, int], tuple[list[Instance], bool]]) -> None:
        """``expand(fact, limit)`` returns at most ``limit`` instances of a fact per rule, and whether these are all."""
        self.solver = solver
        self._expand = expand
        self._rounds: dict[Component, Rounds | None] = {}  # None for an interpreted component
        self._replays: dict[Component, Replay] = {}

    def logged(self, fact: Fact) -> Instance | None:
        """Return the first instance of a fact of an interpreted component; None if the fact is not derived."""
        program = self.solver.program
        component = program.components[program.component_numbers[fact.key]]
        if component not in self._replays:
            self._replays[component] = Replay(self.solver, component)
        return self._replays[component].log.get(fact)

    def derivation(self, fact: Fact) -> tuple[Instance | None, list[Fact]]:
        """Return an instance of a fact and earlier facts that satisfy its premises; ``(None, [])`` if there is none."""
        rounds = self._rounds_of(fact)
        if rounds is None:
            instance = self.logged(fact)
        else:
            instance, is_all, limit = None, False, FEW_INSTANCES
            while instance is None and not is_all:
                instances, is_all = self._expand(fact, limit)
                round_of_fact = _round(fact, rounds)
                earlier = [each for each in instances if self._is_earlier(each, round_of_fact, rounds)]
                instance = min(earlier, key=lambda each: each.order_key, default=None)
                limit *= 8
        if instance is None:
            return None, []
        supports = (ground for ground in instance.grounds if isinstance(ground, Support))
        return instance, [fact for support in supports for fact in self._earliest_facts(support, rounds or {})]

    def _rounds_of(self, fact: Fact) -> Rounds | None:
        """Return the rounds of the fact's component: empty if any instance will do, None if it is interpreted."""
        program = self.solver.program
        if fact.key not in program.component_numbers or self.solver.predicate(fact.key).deferred:
            return {}
        component = program.components[program.component_numbers[fact.key]]
        if component not in self._rounds:
            is_ordered = component.recursive or any(self.solver.predicate(key).merge for key in component.predicates)
            limits = self.solver.limits_left()
            self._rounds[component] = self.solver.model.rounds(component, limits) if is_ordered else {}
        return self._rounds[component]

    def _is_earlier(self, instance: Instance, round_of_fact: float, rounds: Rounds) -> bool:
        """Return whether each premise in the component of ``rounds`` has a fact from before ``round_of_fact``."""
        supports = (ground for ground in instance.grounds if isinstance(ground, Support))
        inside = (support for support in supports if support.literal.atom.key in rounds)
        return all(any(self._round_or_given(o.facts[0], rounds) < round_of_fact for o in s.options) for s in inside)

    def _round_or_given(self, fact: Fact, rounds: Rounds) -> float:
        return 0 if self.solver.is_given(fact) else _round(fact, rounds)

    def _earliest_facts(self, support: Support, rounds: Rounds) -> Sequence[Fact]:
        """Return facts that satisfy a premise; in the component of ``rounds``, the fact that was derived first."""
        if support.literal.atom.key in rounds:
            facts = (option.facts[0] for option in support.options)
            return [min(facts, key=lambda fact: (self._round_or_given(fact, rounds), fact.text))]
        option = support.options[0]
        if option.demand.whole is None:
            return option.facts[:1]
        return smallest_cover(option, lambda fact: (fact.text,))


def _round(fact: Fact, rounds: Rounds) -> float:
    return rounds.get(fact.key, {}).get((*fact.args, *(fact.interval or ())), math.inf)
