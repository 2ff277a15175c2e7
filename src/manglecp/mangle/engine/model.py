"""The finished model of a compiled evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain

from manglecp.mangle.engine.codegen import NotCompiled
from manglecp.mangle.engine.compiled import CompiledRule
from manglecp.mangle.engine.evaluation import Evaluation
from manglecp.mangle.engine.interpreter import check_constraints
from manglecp.mangle.engine.plan import relation_premises
from manglecp.mangle.engine.views import NOTHING, Layer, Rounds, SizedFacts, View, ViewIndex
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.externals import replay_calls
from manglecp.mangle.facts import Fact, TimedArgs
from manglecp.mangle.model import Facts, Index, Limits, Origin, program_facts
from manglecp.mangle.program import Rule
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Key


class EvaluatedModel:
    """The model of one evaluation. The facts of an external predicate are the results of its calls."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self.program = evaluation.compiled.program
        self.now = evaluation.now
        self.limits = evaluation.limits
        self._external_calls = evaluation.external_calls

    @cached_property
    def relations(self) -> Mapping[Key, Facts]:
        """The predicates that have facts, without duplicates; temporal facts are coalesced."""
        compiled = self.evaluation.compiled
        relations = zip(compiled.keys, self.evaluation.views, compiled.temporal, strict=True)
        return {key: SizedFacts(view, temporal) for key, view, temporal in relations if len(view)}

    def facts(self, key: Key) -> Iterable[TimedArgs]:
        """Return the facts of a predicate, including the results of calls if the predicate is external."""
        return self._with_external_facts(key, self.relations.get(key, ()))

    def derived(self, key: Key) -> Iterable[TimedArgs]:
        """Return the given and the derived facts, before coalescing."""
        return self._with_external_facts(key, self.stored_as_derived(key))

    def _with_external_facts(self, key: Key, stored: Iterable[TimedArgs]) -> Iterable[TimedArgs]:
        if key not in self._external_calls:
            return stored
        results = self._external_calls[key].values()
        return dict.fromkeys(chain(stored, ((args, None) for rows in results for args in rows)))

    def stored_as_derived(self, key: Key) -> Iterable[TimedArgs]:
        """Return the facts before coalescing and merging, without results of external predicates."""
        i = self.evaluation.compiled.ids[key]
        if not self.evaluation.compiled.temporal[i]:
            stored = self.relations.get(key, ())
            if self.program.predicates[key].merge is None:
                return stored
            # A merge may drop given facts.
            given = self.evaluation.base.given[i] | self.evaluation.added_given.get(i, set())
            return dict.fromkeys(chain(stored, ((args, None) for args in given)))
        return SizedFacts(self._raw(i), temporal=True)

    def _raw(self, i: int) -> View:
        view = self.evaluation.raw.get(i)
        return View(self.evaluation.base.raw.get(i, NOTHING)) if view is None else view

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index | None:
        """Return an index of the facts, or with ``raw`` of uncoalesced facts; None if the views have no such index."""
        i = self.evaluation.compiled.ids.get(key)
        if i is None or key in self._external_calls:
            return None
        temporal = self.evaluation.compiled.temporal[i]
        if raw and not temporal and self.program.predicates[key].merge is not None:
            return None  # the facts before a merge include given facts that the view lacks
        view = self._raw(i) if raw and temporal else self.evaluation.views[i]
        return ViewIndex(view, positions, key[1], temporal)

    def has_fired(self, rule: Rule) -> bool:
        """Return True if the rule was observed to add a fact to the base; False does not mean that it derives none."""
        return any(compiled.steps.rule is rule for compiled in self.evaluation.fired)

    def rules_fired(self) -> tuple[int, list[Rule]]:
        """Return how many rules derive at least one fact, and the rules that only rule coverage can count.

        A rule without facts of its head or of a premise did not fire. A rule that added a fact fired, and so did a rule
        that alone derives a head with facts. For a rule with unchanged inputs, the result of the base is reused. For
        other rules a function is generated that stops at the first row. The interpreter counts interpreted rules.
        """
        evaluation = self.evaluation
        compiled, base, views = evaluation.compiled, evaluation.base, evaluation.views
        fired, given, base_given = evaluation.fired, evaluation.added_given, base.given
        layers = [view.layers for view in views]
        empty = {i for i, layers_of_view in enumerate(layers) if not layers_of_view}  # predicates without facts
        count = 0
        uncounted: list[Rule] = []
        for component in compiled.components:
            if component.interpreter_reason:
                if component in evaluation.fired_counts:
                    count += evaluation.fired_counts[component]
                else:  # merged, deferred, or evaluated for the base only
                    uncounted += [r for r in self.program.rules if r.head.key in component.component.predicates]
                continue
            is_in_base = component in base.done
            for rule in component.selection.possible(views):
                head = rule.head
                if rule in fired:
                    count += 1
                elif not layers[head] or not empty.isdisjoint(rule.scans):
                    continue
                elif rule.is_only and not base_given[head] and head not in given:
                    count += bool(len(views[head]))  # all facts of the base may be removed
                else:
                    try:
                        if not is_in_base or any(views[i].changed for i in rule.reads):
                            count += _has_instance(evaluation, rule, layers)
                        else:
                            if rule not in base.fired:  # two threads may both compute the same result
                                base.fired[rule] = _has_instance(evaluation, rule, layers)
                            count += base.fired[rule]
                    except (NotCompiled, ValueFault):  # rare: another order of premises may visit an invalid value
                        uncounted.append(rule.steps.rule)
        return count, uncounted

    def head_counts(self, rule: Rule) -> dict[int, int] | None:
        """Return the cache of the number of derived facts by rule id; None if the request may change the number."""
        evaluation = self.evaluation
        ids, predicates = evaluation.compiled.ids, self.program.predicates
        if predicates[rule.head.key].deferred or ids[rule.head.key] not in self._heads_in_base:
            return None
        for premise in relation_premises(rule):
            i = ids[premise.atom.key]
            if predicates[premise.atom.key].deferred or i in evaluation.raw or evaluation.views[i].changed:
                return None
        return evaluation.base.head_counts

    def rounds(self, component: Component, limits: Limits) -> Rounds | None:
        """Return the round in which each fact of a component is derived; None if the component is interpreted.

        The component is evaluated again. If the request did not change its inputs, the result is cached in the base.
        """
        finished = self.evaluation
        compiled = next(c for c in finished.compiled.components if c.component == component)
        if compiled.interpreter_reason:
            return None
        base = finished.base
        is_of_base = compiled in base.done and not any(
            i in finished.raw or finished.views[i].changed for i in compiled.inputs
        )
        if is_of_base and compiled in base.rounds:
            return base.rounds[compiled]
        evaluation = Evaluation(finished.compiled, base, self.now, limits)
        evaluation.added_given, evaluation.removed_given = finished.added_given, finished.removed_given
        evaluation.views = [*finished.views]
        try:
            rounds = evaluation.rounds(compiled)
        except NotCompiled:
            return None
        if is_of_base:
            base.rounds[compiled] = rounds
        return rounds

    def with_facts(self, added: Iterable[Fact], limits: Limits) -> EvaluatedModel:
        """Return a model with facts added, evaluated within ``limits``. Raises EvalError."""
        compiled = self.evaluation.compiled
        externals = replay_calls(self._external_calls, self.program.predicates)
        evaluation = Evaluation(compiled, self._layer, self.now, limits, externals=externals)
        evaluation.run(compiled.intake.by_predicate(added, check=False))
        check_constraints(evaluation)
        return EvaluatedModel(evaluation)

    @cached_property
    def _heads_in_base(self) -> frozenset[int]:
        """Predicates whose rules were evaluated for the base."""
        return frozenset(i for component in self.evaluation.base.done for i in component.heads)

    @cached_property
    def _layer(self) -> Layer:
        """All given facts, evaluated as the base of :meth:`with_facts`."""
        evaluation = Evaluation(
            self.evaluation.compiled, self.evaluation.base, self.now, self.limits, includes_volatile=False
        )
        evaluation.run(self.evaluation.added_given)
        return evaluation.freeze()

    @cached_property
    def _program_facts(self) -> frozenset[Fact]:
        return frozenset(program_facts(self.program, self.now))

    def origin(self, fact: Fact) -> Origin | None:
        """Return the origin of a fact, with its uncoalesced interval; None if the fact was not given."""
        if fact in self._program_facts:
            return "given"
        i = self.evaluation.compiled.ids[fact.key]
        row = fact.args if fact.interval is None else (*fact.args, *fact.interval)
        if row in self.evaluation.base.given[i]:
            return "server"
        if row in self.evaluation.added_given.get(i, ()):
            return "session"
        inputs = tuple(fact.args[position] for position in self.program.predicates[fact.key].inputs())
        return "external" if fact.args in self._external_calls.get(fact.key, {}).get(inputs, ()) else None


def _has_instance(evaluation: Evaluation, rule: CompiledRule, layers: Sequence[str]) -> bool:
    """Return whether a rule derives a fact. Raises NotCompiled."""
    if rule.aggregation is not None and evaluation.compiled.temporal[rule.head]:
        raise NotCompiled("whether it holds at some instant is known by group")
    function = rule.functions.get(("fires", *[layers[i] for i in rule.reads]))
    if function is None:  # not generated yet, or generated as None
        function = rule.function(evaluation.compiled, evaluation.views, "fires", ending="exists")
    instances: list[bool] = []
    if function is not None:
        function.run(evaluation.views, evaluation.now, evaluation, instances)
    return bool(instances)
