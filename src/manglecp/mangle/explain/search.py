"""Search for the best proof of a fact, or for a good proof where the best is too expensive."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from manglecp.mangle.explain.derivation_order import DerivationOrder
from manglecp.mangle.explain.fixpoint import settle
from manglecp.mangle.explain.instances import Absence, Instance, Instances, Option, smallest_cover
from manglecp.mangle.explain.solver import ModelSolver
from manglecp.mangle.facts import Fact
from manglecp.mangle.syntax import Key

# The best proof has the fewest leaves, then the least height, then the least text. Facts are expanded into instances,
# breadth first from the goal; then the least costs are computed per component, bottom-up, to the fixpoint. An instance
# costs more than its premises, so proofs are well-founded under recursion. A leaf counts as often as the proof uses it;
# to count each leaf once would be NP-hard. The expansion stops at WORK instances. If these contain no proof, each fact
# gets one instance whose premises the evaluation derived before the fact.
ChosenFacts: TypeAlias = tuple[Fact, ...] | Absence  # what satisfies a positive or a negated premise
Expansion: TypeAlias = dict[Fact, list[Instance]]  # instances by the fact that they derive

WORK: Final = 128  # instances that a search expands breadth first
MAX_WORK: Final = 20_000  # WORK of a search in which only some given facts may be leaves


@dataclass(frozen=True, slots=True)
class Choice:
    """The last step of the best proof of a fact: an instance, the facts chosen for its premises, and the cost."""

    leaf_count: int
    height: int
    instance: Instance | None = None  # None for a leaf
    chosen: tuple[ChosenFacts, ...] = ()  # one per ground of the instance

    @property
    def rank(self) -> tuple[object, ...]:
        return self.leaf_count, self.height, () if self.instance is None else self.instance.order_key

    @property
    def premises(self) -> Iterator[Fact]:
        return (fact for chosen in self.chosen if not isinstance(chosen, Absence) for fact in chosen)


LEAF: Final = Choice(leaf_count=1, height=0)


class Search:
    """Finds and memoises proofs; ``using`` are the given facts that may be leaves, None for all."""

    def __init__(self, solver: ModelSolver, instances: Instances, using: Collection[Fact] | None = None) -> None:
        self.solver = solver
        self.instances = instances
        self.using = using
        self.best: dict[Fact, Choice] = {}  # the best proof of every proved fact
        self.text: Callable[[Fact], str] = functools.cache(operator.attrgetter("text"))
        self._expanded: dict[Fact, tuple[list[Instance], bool]] = {}  # instances of a fact, and whether these are all
        self._order = DerivationOrder(solver, self.expand)

    def component_of(self, key: Key) -> int:
        """Return the number of a predicate's component in evaluation order; -1 without rules."""
        return self.solver.program.component_numbers.get(key, -1)

    def prove(self, goals: Collection[Fact]) -> None:
        """Fill ``best`` for the goals and the facts on which they rest. A fact without an entry cannot be proved."""
        self._settle_all(self._expand(goals, WORK if self.using is None else MAX_WORK))
        if any(goal not in self.best for goal in goals):
            self._settle_all(self._expand_in_order(goals))

    def _settle_all(self, expansion: Expansion) -> None:
        by_component: dict[int, Expansion] = {}
        for fact, instances in expansion.items():
            by_component.setdefault(self.component_of(fact.key), {})[fact] = instances
        for number in sorted(by_component):
            self._settle(by_component[number])

    def is_leaf(self, fact: Fact) -> bool:
        """Return whether the fact is given and may be a leaf. A leaf needs no proof, even if rules derive the fact."""
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

    def _needs_proof(self, fact: Fact) -> bool:
        return fact not in self.best and not self.is_leaf(fact)

    def _expand(self, goals: Iterable[Fact], work: int) -> Expansion:
        """Expand goals and the facts on which they rest, breadth first, into at most about ``work`` instances."""
        expansion: Expansion = {}
        next_layer = dict.fromkeys(goals)
        while next_layer:
            layer = [fact for fact in next_layer if fact not in expansion and self._needs_proof(fact)]
            layer.sort(key=self.text)  # the work may end within the layer
            next_layer = {}
            for fact in layer:
                if work <= 0:
                    return expansion
                instances, _ = self.expand(fact, work)
                work -= max(len(instances), 1)
                expansion[fact] = instances
                for instance in instances:
                    next_layer.update(dict.fromkeys(instance.facts()))
        return expansion

    def _expand_in_order(self, goals: Iterable[Fact]) -> Expansion:
        """Expand goals and the facts on which they rest into one instance each, whose premises were derived earlier."""
        expansion: Expansion = {}
        stack = list(goals)
        while stack:
            fact = stack.pop()
            if fact not in expansion and self._needs_proof(fact):
                instance, premises = self._order.derivation(fact)
                expansion[fact] = [] if instance is None else [instance]
                stack += premises
        return expansion

    def _settle(self, expansion: Expansion) -> None:
        """Find the best proofs of facts of one component; the earlier components are settled already."""
        readers: dict[Fact, dict[Fact, None]] = {}
        for fact, instances in expansion.items():
            for instance in instances:
                for premise in instance.facts():
                    readers.setdefault(premise, {})[fact] = None

        def improve(fact: Fact) -> bool:
            choices = [choice for one in expansion.get(fact, ()) if (choice := self._choice(one)) is not None]
            best = min(choices, key=lambda choice: choice.rank, default=LEAF)
            known = self.best.get(fact)
            if best is LEAF or (known is not None and known.rank < best.rank):
                return False
            self.best[fact] = best  # of the same rank, with premises that may have been proved since
            return known is None or known.rank != best.rank

        settle(reversed(expansion), readers, improve)

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
        return smallest_cover(Option(proved, option.demand), self._fact_order)

    def _fact_order(self, fact: Fact) -> tuple[int, int, str]:
        choice = self.best[fact]
        return choice.leaf_count, choice.height, self.text(fact)

    def _cost(self, chosen: Iterable[ChosenFacts]) -> tuple[int, int]:
        """Return the sum of the leaves and the greatest height of the chosen facts; a repeated fact counts once."""
        facts = {fact for facts in chosen if isinstance(facts, tuple) for fact in facts}
        choices = [self.best[fact] for fact in facts]
        return sum([choice.leaf_count for choice in choices]), max([choice.height for choice in choices], default=0)

    def _choice(self, instance: Instance) -> Choice | None:
        """Return the best proof that ends with an instance; None if a premise has no proof yet."""
        chosen: list[ChosenFacts] = []
        for ground in instance.grounds:
            facts = ground if isinstance(ground, Absence) else self.cheapest(ground.options)
            if facts is None:
                return None
            chosen.append(facts)
        leaf_count, height = self._cost(chosen)
        return Choice(leaf_count, height + 1, instance, tuple(chosen))
