"""From choices to proofs."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy

from manglecp.mangle.acceptance import Acceptance
from manglecp.mangle.explain.covers import Demand, useful
from manglecp.mangle.explain.instances import Absence, Instances, Option
from manglecp.mangle.explain.model import Model
from manglecp.mangle.explain.proof import Node, Proof
from manglecp.mangle.explain.quick import Quick
from manglecp.mangle.explain.search import LEAF, Choice, Search, TooWide
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.facts import Fact


class Prover:
    """Proves facts of one model and keeps the nodes, so that proofs share what they have in common."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.solver = Finished(model)
        self.instances = Instances(self.solver)
        self.acceptance = Acceptance(model.program.predicates)
        self._start(None)

    def using(self, leaves: Collection[Fact]) -> Prover:
        """A prover of the same model whose proofs rest on nothing but these given facts."""
        other = copy(self)
        other._start(frozenset(leaves))
        return other

    def _start(self, leaves: frozenset[Fact] | None) -> None:
        self.search = Search(self.solver, self.instances, leaves)
        self.quick = Quick(self.search)
        self._nodes: dict[Fact, Node] = {}

    def prove(self, facts: list[Fact]) -> None:
        """The best proofs where that is feasible, good ones otherwise."""
        try:
            self.search.prove(facts)
        except TooWide:
            if self.search.using is None:  # with some leaves only, one may not find a proof by going straight ahead
                self.quick.prove(facts)

    def proof(self, goal: Fact) -> Proof | None:
        """The best proof, or None if the fact does not hold or cannot be proved from its leaves."""
        if not self.solver.contains(goal):
            return None
        option = self.option(goal)
        self.prove(list(option.facts))
        chosen = self.search.cheapest([option])
        if not chosen:
            return None  # not from these leaves
        if goal in option.facts:
            return Proof(goal.text, self._node(goal))
        parts = tuple(self._node(part) for part in chosen)
        return Proof(goal.text, Node(goal.text, "derived", None, {}, parts, goal))

    def option(self, goal: Fact) -> Option:
        """What a goal rests on: itself, or the intervals, as given and derived, that make up the one it names."""
        if goal.interval is None:
            return Option((goal,))
        raw = self.solver.intervals(goal.key, goal.args, raw=True)
        if goal.interval in raw:
            return Option((goal,))
        asked = Demand(goal.interval)
        pieces = [(interval, Fact(goal.predicate, goal.args, interval)) for interval in raw]
        return Option(tuple(fact for _, fact in useful(asked, pieces)), asked)

    def _node(self, goal: Fact) -> Node:
        """The node of a fact that is proved, and of everything below it."""
        best = self.search.best
        work = [goal]
        while work:
            fact = work[-1]
            if fact in self._nodes:
                work.pop()
                continue
            missing = [premise for premise in best[fact].premises if premise not in self._nodes]
            if missing:
                work += missing
            else:
                self._nodes[fact] = self._make(fact, best[fact])
                work.pop()
        return self._nodes[goal]

    def _make(self, fact: Fact, choice: Choice) -> Node:
        if choice is LEAF:
            return Node(fact.text, self.model.origin(fact) or "given", ground=fact)
        premises: dict[object, Node] = {}
        for chosen in choice.chosen:
            if isinstance(chosen, Absence):
                premises.setdefault(chosen.text, Node(chosen.text, "absent"))
            else:
                premises.update({premise: self._nodes[premise] for premise in chosen})
        instance = choice.instance
        if instance is None:
            return Node(fact.text, "derived", None, {}, tuple(premises.values()), fact)
        shape = instance.shape
        return Node(fact.text, "derived", shape.ref, shape.in_order(instance.row), tuple(premises.values()), fact)
