"""Incremental maintenance of a component whose inputs shrank, or whose negated or aggregated inputs changed.

This is a variant of delete and rederive (DRed):

1. Overdelete: apply each rule to lost facts, over the union of the old and the new state and without negations.
2. Insert: apply each rule to gained facts, over the new state.
3. Rederive: a fact of step 1 is deleted unless a rule still derives the fact.

Aggregates are maintained by group. The rules must have no recursion, no computed heads, and every group key in the
head. Other components are evaluated again. So is a component whose step 1 raises: it visits rows outside of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from manglecp.mangle.engine.codegen import NotCompiled
from manglecp.mangle.engine.plan import Negation, Scan, with_positive_premise
from manglecp.mangle.engine.views import FactTuple, View
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.syntax import Apply, Variable

if TYPE_CHECKING:
    from manglecp.mangle.engine.compiled import CompiledComponent, CompiledProgram, CompiledRule
    from manglecp.mangle.engine.evaluation import Evaluation


@dataclass(eq=False)
class MaintainedRule:
    rule: CompiledRule
    keys: tuple[str, ...]  # variables that an aggregation groups by
    key_columns: tuple[int, ...]  # positions of the keys in the head


def maintainable(compiled: CompiledProgram, component: CompiledComponent) -> tuple[MaintainedRule, ...] | str:
    """Return the prepared rules of a component, or the reason why the component has to be evaluated again."""
    if component.recursive:
        return "it is recursive"
    if component.temporal_heads:
        return "its facts hold for intervals"
    maintained = []
    for rule in component.rules:
        clause = rule.steps.rule.clause
        if any(isinstance(arg, Apply) for arg in clause.head.args) or (clause.transforms and not clause.aggregates):
            return "a head is computed"
        keys: tuple[str, ...] = ()
        key_columns: tuple[int, ...] = ()
        if clause.aggregates:
            do = clause.transforms[0].do
            keys = () if do is None else tuple(arg.name for arg in do.args if isinstance(arg, Variable))
            names = [arg.name if isinstance(arg, Variable) else None for arg in clause.head.args]
            if len(clause.transforms) > 1 or not keys or not all(key in names for key in keys):
                return "its groups cannot be told from its facts"
            key_columns = tuple(names.index(key) for key in keys)
        for step in rule.steps.steps:
            if isinstance(step, Negation):
                temporal = compiled.temporal[compiled.ids[step.literal.atom.key]]
                if temporal or with_positive_premise(rule.steps, step.position) is None:
                    return "a negation looks at time or computes"
        maintained.append(MaintainedRule(rule, keys, key_columns))
    return tuple(maintained)


def maintain(evaluation: Evaluation, component: CompiledComponent) -> bool:
    """Update the component; return False if the component has to be evaluated again."""
    if component.maintained_rules is None:
        component.maintained_rules = maintainable(evaluation.compiled, component)
    if isinstance(component.maintained_rules, str):
        return False
    try:
        _Update(evaluation, component, component.maintained_rules).run()
    except (ValueFault, NotCompiled):
        return False
    return True


class _Update:
    def __init__(self, evaluation: Evaluation, component: CompiledComponent, rules: tuple[MaintainedRule, ...]) -> None:
        self.evaluation = evaluation
        self.compiled = evaluation.compiled
        self.views = evaluation.views
        self.rules = rules
        (self.head,) = component.heads
        self.groups: dict[int, dict[FactTuple, set[FactTuple]]] = {id(rule): {} for rule in rules}  # see _group

    def run(self) -> None:
        base_facts = self.views[self.head].base.facts
        given = self.evaluation.all_given(self.head)
        suspects = {fact for fact in self.evaluation.removed_given.get(self.head, ()) if fact in base_facts}
        new: set[FactTuple] = set(self.views[self.head].facts)
        for rule in self.rules:
            if rule.keys:
                options = {"ending": "variables", "collected": rule.keys, "either_state": True}
                for key in self._apply(rule, losses=True, gains=True, **options):
                    new |= self._group(rule, key)
                    index = self.views[self.head].base.index(rule.key_columns)
                    suspects.update(index.get(key[0] if len(key) == 1 else key, ()))
            else:
                suspects |= self._apply(rule, losses=True, ending="fact", either_state=True) & base_facts
                new |= self._apply(rule, gains=True, ending="fact")
        lost = {fact for fact in suspects - given if not any(self._derives(rule, fact) for rule in self.rules)}
        view = View(self.views[self.head].base, new - base_facts)
        view.removed = lost
        self.views[self.head] = view

    def _run(self, rule: MaintainedRule, name: str, rows: Any, known: FactTuple | None = None, **options: Any) -> None:
        """Call the function ``name``, which adds to ``rows``; ``options`` are those of its Generator."""
        function = rule.rule.function(self.compiled, self.views, name, **options)
        if function is not None:
            function.run(self.views, self.evaluation.now, self.evaluation, rows, known)

    def _apply(
        self, rule: MaintainedRule, *, losses: bool = False, gains: bool = False, **options: Any
    ) -> set[FactTuple]:
        """Apply the rule to the lost or gained facts of its premises; a gain of a negated premise counts as a loss."""
        rows: set[FactTuple] = set()
        steps = rule.rule.steps
        for step in steps.steps:
            if not isinstance(step, Scan | Negation):
                continue
            view = self.views[self.compiled.ids[step.literal.atom.key]]
            if not view.changed:
                continue
            options["delta"], options["steps"] = step.position, steps
            lost, gained = view.removed, view.facts
            if isinstance(step, Negation):
                lost, gained = gained, lost
                options["steps"] = with_positive_premise(steps, step.position)
            for delta in ([lost] if losses else []) + ([gained] if gains else []):
                if delta:
                    view.delta = delta
                    self._run(rule, f"changes_{losses}_{gains}_{step.position}", rows, **options)
        return rows

    def _group(self, rule: MaintainedRule, key: FactTuple) -> set[FactTuple]:
        """Return the facts of an aggregation for one group in the new state, memoised."""
        cached = self.groups[id(rule)]
        if key not in cached:
            assert rule.rule.aggregation is not None
            rows: Any = [] if rule.rule.steps.rule.counts_facts else set()
            self._run(rule, "group", rows, key, ending="row", preset=rule.keys)
            cached[key] = set(rule.rule.aggregation.facts(rows, self.evaluation.now))
        return cached[key]

    def _derives(self, rule: MaintainedRule, fact: FactTuple) -> bool:
        if rule.keys:
            return fact in self._group(rule, tuple([fact[c] for c in rule.key_columns]))
        values: dict[str, Any] = {}
        for arg, value in zip(rule.rule.steps.rule.head.args, fact, strict=True):
            if isinstance(arg, Variable):
                if values.setdefault(arg.name, value) != value:
                    return False
            elif arg != value:
                return False
        rows: list[bool] = []
        self._run(rule, "derives", rows, tuple(values.values()), ending="exists", preset=tuple(values))
        return bool(rows)
