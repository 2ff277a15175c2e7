"""The way back to the naive evaluator, for what is rare: merged and deferred predicates, and the place of an error.

It sees the relations of a compiled evaluation, evaluates one component, and puts the result where the compiled one
would have put it. Facts are visited in their order, so that an error is the same one whatever the order they came in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from manglecp.mangle.engine.views import FactTuple, View
from manglecp.mangle.matching import Row, Timed
from manglecp.mangle.model import Relation
from manglecp.mangle.naive import NaiveEvaluation
from manglecp.mangle.packages import Key
from manglecp.mangle.syntax import Atom
from manglecp.mangle.values import order_key

if TYPE_CHECKING:
    from manglecp.mangle.engine.compiled import CompiledComponent
    from manglecp.mangle.engine.evaluation import Evaluation


def interpret(evaluation: Evaluation, component: CompiledComponent) -> None:
    """Evaluate a component over the facts given for it, and what it reads as it stands."""
    interpreter = _Interpreter(evaluation)
    interpreter.derived = evaluation.derived
    interpreter.parts = evaluation.parts
    interpreter.statistics = evaluation.statistics
    interpreter.component(component.component)
    for i in component.heads:
        key = evaluation.compiled.keys[i]
        if evaluation.compiled.program.predicates[key].deferred:
            continue
        view = evaluation.views[i]
        relation = interpreter.relations.get(key)
        facts = set() if relation is None else set(as_tuples(relation))
        fresh = View(view.base)
        fresh.replace(facts - view.base.facts)
        fresh.removed = view.base.facts - facts
        fresh.skipped = {(*args, *interval) for skipped, args, interval in interpreter.skipped if skipped == key}
        evaluation.views[i] = fresh


def matching(evaluation: Evaluation) -> Callable[[Atom, Row], bool]:
    """A function that tells whether an atom has a match in a finished evaluation."""
    interpreter = _Interpreter(evaluation)
    return interpreter.holds


def as_tuples(relation: Relation) -> Iterable[FactTuple]:
    """The facts as derived, with the ends of their interval as columns."""
    for args, intervals in relation.facts.items():
        for interval in intervals:
            yield args if interval is None else (*args, *interval)


def as_fact(fact: FactTuple, temporal: bool) -> Timed:
    """The arguments and the interval, which the engine keeps in one tuple."""
    return (fact[:-2], (fact[-2], fact[-1])) if temporal else (fact, None)


class _Interpreter(NaiveEvaluation):
    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__(evaluation.compiled.program, evaluation.now, evaluation.limits, evaluation.externals)
        self.evaluation = evaluation
        self.asked = evaluation.asked
        self.acceptance = evaluation.compiled.intake.acceptance

    def checkpoint(self) -> None:
        self.evaluation.checkpoint()

    def relation(self, key: Key) -> Relation:
        if key not in self.relations:
            i = self.evaluation.compiled.ids[key]
            temporal = self.evaluation.compiled.temporal[i]
            relation = Relation()
            columns = key[1]
            facts = sorted(self.evaluation.views[i], key=lambda f: ([order_key(v) for v in f[:columns]], f[columns:]))
            for fact in facts:
                relation.add(*as_fact(fact, temporal))
            self.relations[key] = relation
        return self.relations[key]
