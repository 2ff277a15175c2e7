"""Count the rules that have an instance in a finished evaluation, without computing rule coverage.

The only rule of a head without given facts fired if the head has facts. A rule of a head without facts did not fire; a
rule that added a fact did; a rule with unchanged inputs did as in the base. For the rest a function is generated that
stops at the first row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from manglecp.mangle.engine.codegen import Generator, NotCompiled
from manglecp.mangle.engine.compiled import CompiledComponent, CompiledProgram, CompiledRule, Functions
from manglecp.mangle.engine.evaluation import Cap, Evaluation, Layer
from manglecp.mangle.engine.views import View
from manglecp.mangle.errors import ValueFault

_UNCAPPED: Final = Cap(1, *[lambda *_: None] * 3)


class Firing:
    def __init__(self, compiled: CompiledProgram, base: Layer) -> None:
        self.lone: frozenset[int] = frozenset(
            i for component in compiled.components for i in component.lone if not base.given[i]
        )
        """Heads with one rule and no given facts: the rule fired if there are facts."""
        self.others = [
            (component, rules)
            for component in compiled.components
            if (rules := [rule for rule in component.rules if rule.head not in self.lone])
        ]
        self.rules = {rule.number: rule for _, rules in self.others for rule in rules}
        self.counts: dict[int, int] = {}  # fired rules of unchanged components, cached
        self.fired: dict[int, bool] = {}  # the same, by rule number


def rules_fired(evaluation: Evaluation) -> int | None:
    """Count the rules that derive at least one fact; None if only rule coverage can tell."""
    compiled, base, views = evaluation.compiled, evaluation.base, evaluation.views
    if compiled.interpreting:
        return None
    firing = base.firing
    if firing is None:  # two threads may both find out; they find the same
        firing = base.firing = Firing(compiled, base)
    try:
        count = sum([1 for i in firing.lone if _holds(views[i])])
        if not firing.lone.isdisjoint(evaluation.given):
            count -= _given_only(evaluation, firing)
        for component, rules in firing.others:
            number = component.number
            if number in evaluation.applied:
                count += _fired_once(evaluation, evaluation.applied[number], firing)
            elif number not in base.done or _touched(views, component.inputs):
                count += _fired(evaluation, component, rules, firing)
            else:
                if number not in firing.counts:
                    firing.counts[number] = _fired(evaluation, component, rules, firing)
                count += firing.counts[number]
        return count
    except (NotCompiled, ValueFault):  # rare: a function meets a value in another order of premises
        return None


def _given_only(evaluation: Evaluation, firing: Firing) -> int:
    """Count heads whose facts were all given by the request."""
    return sum(
        1
        for component in evaluation.compiled.components
        for rule in component.rules
        if rule.head in firing.lone
        and rule.head in evaluation.given
        and _holds(evaluation.views[rule.head])
        and rule.number not in evaluation.fired
        and not _has_instance(evaluation, rule)
    )


def _fired_once(evaluation: Evaluation, functions: Functions, firing: Firing) -> int:
    """Count fired rules among those applied once; others of their component derive nothing."""
    seen, rules = evaluation.fired, firing.rules
    count = 0
    for function in functions:
        number = function.rule
        if number not in rules:
            continue  # its head suffices
        if number in seen or (_holds(evaluation.views[function.head]) and _has_instance(evaluation, rules[number])):
            count += 1
    return count


def _fired(evaluation: Evaluation, component: CompiledComponent, rules: list[CompiledRule], firing: Firing) -> int:
    views, seen = evaluation.views, evaluation.fired
    frozen = component.number in evaluation.base.done
    count = 0
    for rule in rules:
        if rule.number in seen:
            count += 1
        elif not _holds(views[rule.head]):
            continue
        elif frozen and not _touched(views, rule.reads):
            known = firing.fired.get(rule.number)
            if known is None:
                known = firing.fired[rule.number] = _has_instance(evaluation, rule)
            count += known
        else:
            count += _has_instance(evaluation, rule)
    return count


def _touched(views: Sequence[View], numbers: Iterable[int]) -> bool:
    return any(views[i].changed for i in numbers)


def _holds(view: View) -> bool:
    held = view.layers
    return len(view) > 0 if held == "x" else held != ""


def _has_instance(evaluation: Evaluation, rule: CompiledRule) -> bool:
    compiled, views = evaluation.compiled, evaluation.views
    held = tuple([views[i].layers for i in rule.reads])
    run = rule.tests.get(held)
    if run is None:
        if rule.aggregation is not None and compiled.temporal[rule.head]:
            raise NotCompiled("whether it holds at some instant is known by group")
        generator = Generator(
            rule.steps,
            compiled.ids,
            lambda key: views[compiled.ids[key]].layers,
            lambda key: len(views[compiled.ids[key]]),
            lambda key: compiled.temporal[compiled.ids[key]],
            ending="fires",
            name=f"{rule.name}_fires",
        )
        made = generator.compile()
        run = rule.tests[held] = _never if made is None else made.run
    found: list[bool] = []
    run(views, evaluation.now, _UNCAPPED, found)
    return bool(found)


def _never(*_: object) -> None: ...
