"""The naive evaluator as a fallback, for merged and deferred predicates and to locate errors; constraint checks.

The fallback reads the relations of a compiled evaluation, evaluates one component, and stores the result. It visits
facts in the order of values, so that errors are deterministic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from manglecp.base.diagnostic import Diagnostic
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.engine.views import Columns, FactTuple, FrozenFacts, GroupedView, View, ViewIndex
from manglecp.mangle.errors import EvalError
from manglecp.mangle.facts import TimedArgs
from manglecp.mangle.matching import Matcher, Row
from manglecp.mangle.model import Relation, violations
from manglecp.mangle.naive import NaiveEvaluation
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Atom, Key, Literal
from manglecp.mangle.values import order_key

if TYPE_CHECKING:
    from manglecp.mangle.engine.compiled import CompiledComponent
    from manglecp.mangle.engine.evaluation import Evaluation


def interpret(evaluation: Evaluation, component: CompiledComponent) -> None:
    """Evaluate a component; put the result into the views of its heads."""
    interpreter = _Interpreter(evaluation)
    interpreter.derived_count = evaluation.derived_count
    interpreter.part_count = evaluation.part_count
    interpreter.statistics = evaluation.statistics
    interpreter.evaluate_component(component.component)
    if not component.merged_heads and not any(
        interpreter.predicate(key).deferred for key in component.component.predicates
    ):
        # Without a merge, facts are only added, so a rule that derived a fact in some round still derives that fact.
        evaluation.fired_counts[component] = len(interpreter.fired)
    for i in component.heads:
        key = evaluation.compiled.keys[i]
        if evaluation.compiled.program.predicates[key].deferred:
            continue
        view = evaluation.views[i]
        stored = interpreter.relations[key].facts if key in interpreter.relations else {}
        facts = {(*args, *(interval or ())) for args, intervals in stored.items() for interval in intervals}
        fresh = View(view.base, facts - view.base.facts)
        fresh.removed = view.base.facts - facts
        evaluation.views[i] = fresh


def split_interval(fact: FactTuple, temporal: bool) -> TimedArgs:
    return (fact[:-2], (fact[-2], fact[-1])) if temporal else (fact, None)


class _Interpreter(NaiveEvaluation):
    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__(evaluation.compiled.program, evaluation.now, evaluation.limits, evaluation.externals)
        self.evaluation = evaluation
        self.external_calls = evaluation.external_calls
        self.acceptance = evaluation.compiled.intake.acceptance
        self.fired: set[int] = set()  # ids of the rules that derived a fact

    def checkpoint(self) -> None:
        self.evaluation.checkpoint()

    def _add(self, rule: Rule, facts: list[TimedArgs]) -> bool:
        if facts:
            self.fired.add(id(rule))
        return super()._add(rule, facts)

    def relation(self, key: Key) -> Relation:
        if key not in self.relations:
            i = self.evaluation.compiled.ids[key]
            temporal = self.evaluation.compiled.temporal[i]
            relation = Relation()
            columns = key[1]
            facts = sorted(self.evaluation.views[i], key=lambda f: ([order_key(v) for v in f[:columns]], f[columns:]))
            for fact in facts:
                relation.add(*split_interval(fact, temporal))
            self.relations[key] = relation
        return self.relations[key]


# Constraints are checked incrementally. A functional dependency can be violated only by added facts, by facts with the
# key of an added fact, and by facts of the base that share a key; an inclusion only by added facts, and by facts of the
# base without a match in the base. If a relation lost facts, all its facts are checked.
def check_constraints(evaluation: Evaluation) -> None:
    """Raise EvalError if the model violates an integrity constraint."""
    constrained = evaluation.compiled.constrained
    if constrained:
        diagnostics = [violation for key in constrained for violation in _Integrity(evaluation).violations(key)]
        if diagnostics:
            raise EvalError(diagnostics)


class _Integrity:
    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self.compiled = evaluation.compiled
        self._interpret = _Interpreter(evaluation).holds

    def violations(self, key: Key) -> Iterable[Diagnostic]:
        predicate = self.compiled.program.predicates[key]
        temporal = self.compiled.temporal[self.compiled.ids[key]]
        suspects = (split_interval(fact, temporal) for fact in self._suspects(predicate))
        return violations(predicate, suspects, self.holds)

    def _suspects(self, predicate: Predicate) -> Iterable[FactTuple]:
        """Return a set that contains every fact that could violate a constraint."""
        view = self.evaluation.views[self.compiled.ids[predicate.key]]
        if isinstance(view, GroupedView) or view.removed or not view.base.facts:
            return view
        if any(self._view(atom).removed or self._is_computed(atom) for atom in predicate.inclusion):
            return view
        suspects = set(view.facts)
        for dependency in predicate.fundeps:
            columns = dependency.source
            suspects |= _sharing_key(view.base, columns)
            if columns:
                index = view.base.index(columns)
                for key in view.index(columns):
                    suspects.update(index.get(key, ()))
            elif view.facts:
                return view
        for atom in predicate.inclusion:
            suspects |= self._unmatched(predicate, view.base, atom)
        return suspects

    def _view(self, atom: Atom) -> View:
        return self.evaluation.views[self.compiled.ids[atom.key]]

    def _is_computed(self, atom: Atom) -> bool:
        predicate = self.compiled.program.predicates[atom.key]
        return predicate.deferred or predicate.external

    def _unmatched(self, predicate: Predicate, base: FrozenFacts, atom: Atom) -> set[FactTuple]:
        """Return the facts of the base whose inclusion ``atom`` has no match in the base; cached."""
        target = self._view(atom).base
        cached = base.unmatched.get(id(atom))
        if cached is None or cached[0] is not target:
            unmatched = {fact for fact in base.facts if not self._matches(View(target), atom, predicate.row(fact))}
            cached = base.unmatched[id(atom)] = (target, unmatched)
        return cached[1]

    def holds(self, atom: Atom, row: Row) -> bool:
        return self._interpret(atom, row) if self._is_computed(atom) else self._matches(self._view(atom), atom, row)

    def _matches(self, view: View, atom: Atom, row: Row) -> bool:
        matcher = Matcher(Literal(atom), row, self.evaluation.now)
        columns = tuple([position for position, _ in matcher.known])
        facts = ViewIndex(view, columns, len(atom.args), self.compiled.temporal[self.compiled.ids[atom.key]])
        return any(matcher.match(row, args, None) is not None for args, _ in facts.get(matcher.key(row), ()))


def _sharing_key(base: FrozenFacts, source: Columns) -> set[FactTuple]:
    """Return the facts of a base that share the key of a dependency with another fact; cached."""
    sharing = base.sharing_key.get(source)
    if sharing is None:
        buckets = base.index(source).values() if source else [list(base.facts)]
        sharing = base.sharing_key[source] = {fact for bucket in buckets if len(bucket) > 1 for fact in bucket}
    return sharing
