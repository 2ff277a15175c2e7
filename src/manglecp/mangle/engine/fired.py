"""Which rules have an instance in a finished evaluation: the same answer as rule coverage, at a request's speed.

Most rules need no look at any row. A head without facts has no instance; the only rule for a head that nobody gave
facts for has one if there are facts; a rule that was seen to add a fact has one; and a rule none of whose premises the
request touched is what it was in the base, as is a whole component. For the rest a function is made that stops at the
first row.
"""

from __future__ import annotations

from typing import Final

from manglecp.mangle.engine.base import EngineModel
from manglecp.mangle.engine.codegen import Generator, NotCompiled
from manglecp.mangle.engine.compiled import CompiledComponent, CompiledRule
from manglecp.mangle.engine.evaluation import Cap, Evaluation
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.model import Result

_UNTOUCHED: Final = ("", "b")
"""The layers of a predicate that is as it is in the base."""
_UNCAPPED: Final = Cap(1, *[lambda *_: None] * 3)
"""The evaluation is over, and so are its limits."""


def rules_fired(result: Result) -> int:
    """The number of distinct rules that derive at least one fact, whether others derive it too or not."""
    model = result.model
    assert isinstance(model, EngineModel)
    evaluation = model.evaluation
    try:
        layers = [view.layers for view in evaluation.views]
        touched = frozenset([i for i, held in enumerate(layers) if held not in _UNTOUCHED])
        done, known = evaluation.base.done, evaluation.base.fired_of
        count = 0
        for component in evaluation.compiled.components:
            if component.interpreted:
                return result.coverage().count("fired")
            number = component.number
            if number not in done or not touched.isdisjoint(component.inputs):
                count += _fired(evaluation, component, layers, touched)
                continue
            if number not in known:  # two threads may both find out; they find the same
                known[number] = _fired(evaluation, component, layers, touched)
            count += known[number]
        return count
    except (NotCompiled, ValueFault):  # rare: a function meets a value in another order of premises
        return result.coverage().count("fired")


def _fired(evaluation: Evaluation, component: CompiledComponent, layers: list[str], touched: frozenset[int]) -> int:
    base, seen = evaluation.base, evaluation.fired
    frozen = component.number in base.done
    count = 0
    for rule in component.rules:
        if rule.number in seen:
            count += 1
            continue
        held = layers[rule.head]
        if not held or (held == "x" and not len(evaluation.views[rule.head])):  # all of the base may have been removed
            continue
        if frozen and touched.isdisjoint(rule.reads):
            known = base.fired.get(rule.number)
            if known is None:
                known = base.fired[rule.number] = _has_instance(evaluation, component, rule, layers)
            count += known
        else:
            count += _has_instance(evaluation, component, rule, layers)
    return count


def _has_instance(evaluation: Evaluation, component: CompiledComponent, rule: CompiledRule, layers: list[str]) -> bool:
    compiled, views = evaluation.compiled, evaluation.views
    head = rule.head
    if head in component.lone and not evaluation.base.given[head] and head not in evaluation.given:
        return True
    held = tuple([layers[i] for i in rule.reads])
    run = rule.tests.get(held)
    if run is None:
        if rule.aggregation is not None and compiled.temporal[head]:
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


def _never(*_: object) -> None:
    """The rule can derive nothing from these layers."""
