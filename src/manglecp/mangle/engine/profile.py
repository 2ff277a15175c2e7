"""The cost of each rule of an evaluation (``manglecp eval --profile``)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from manglecp.mangle import printer
from manglecp.mangle.engine.codegen import CompiledFunction
from manglecp.mangle.engine.views import GroupedView, View
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Key


@dataclass(slots=True)
class RuleCost:
    """The cost of a rule, or of rules that are interpreted together, in all evaluations of a program."""

    place: str
    """The file and line of the rule; for interpreted rules, their predicates."""
    text: str
    seconds: float = 0.0
    runs: int = 0
    """How often the rule was applied: once, or once for each round of a recursion."""
    rows: int = 0
    """The new facts, or the rows that an aggregation collected."""


class RuleProfile:
    """The costs of the rules of one program. A compiled program with a profile measures all of its evaluations."""

    def __init__(self) -> None:
        self._costs: dict[object, RuleCost] = {}

    def costs(self) -> list[RuleCost]:
        """Return the costs, the highest first."""
        return sorted(self._costs.values(), key=lambda cost: (-cost.seconds, cost.place, cost.text))

    def measured(self, rule: Rule, head: int, function: CompiledFunction) -> CompiledFunction:
        """Return a function that measures the function of a rule; ``head`` is the number of the rule's predicate."""
        span = rule.clause.span
        place = rule.head.predicate if span is None else f"{span.source.name}:{span.line}"
        cost = self._costs.setdefault(rule, RuleCost(place, printer.clause(rule.clause)))

        def run(views: list[View], now: int, evaluation: Any, rows: Any, *known: Any) -> None:
            size_before = _size(views[head])
            started = time.perf_counter()
            try:
                function.run(views, now, evaluation, rows, *known)
            finally:
                cost.seconds += time.perf_counter() - started
                cost.runs += 1
                cost.rows += _size(views[head]) - size_before + (0 if rows is None else len(rows))

        return CompiledFunction(function.source, run)

    @contextmanager
    def interpreting(self, predicates: tuple[Key, ...]) -> Iterator[None]:
        """Measure the rules of these predicates, which are interpreted together. Their rows are not counted."""
        names = ", ".join(f"{name}/{arity}" for name, arity in predicates)
        cost = self._costs.setdefault(predicates, RuleCost(names, "interpreted rules"))
        started = time.perf_counter()
        try:
            yield
        finally:
            cost.seconds += time.perf_counter() - started
            cost.runs += 1


def _size(view: View) -> int:
    return view.overlay_size() + (view.new_count() if isinstance(view, GroupedView) else len(view.new))
