"""Where each rule that could have derived a fact stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from manglecp.mangle.explain.instances import Instances, row_key
from manglecp.mangle.explain.reach import furthest
from manglecp.mangle.explain.shape import RuleRef, Shape, unifies
from manglecp.mangle.explain.wording import filled_in, premise_text
from manglecp.mangle.facts import Fact
from manglecp.mangle.matching import Row
from manglecp.mangle.text import interval_text, value_text
from manglecp.mangle.values import Value

WIDEST: Final = 100_000
"""So many rows are followed to see how far a rule gets."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A rule, and the first of its premises that fails on the way that leads furthest."""

    rule: RuleRef
    premise: str
    bindings: Mapping[str, Value]


class Blocks:
    """For one finished model."""

    def __init__(self, instances: Instances) -> None:
        self.instances = instances
        self.solver = instances.solver

    def of(self, goal: Fact) -> list[Blocked]:
        """One entry for each rule whose head could be the fact, in the order of the program."""
        found = []
        for shape in self.instances.shapes.get(goal.key, ()):
            if unifies(shape.rule.head, goal.args):
                found.append(self._block(shape, goal))
        return found

    def _block(self, shape: Shape, goal: Fact) -> Blocked:
        start = shape.fix(shape.fixable, [goal.args[i] for i in shape.fixable])
        assert start is not None  # the head unifies
        before, self.solver.raw = self.solver.raw, self.solver.reads_raw(shape.rule)
        try:
            # Where the head is fixed no row can satisfy all, and one that leaves only the last premise open will do.
            enough = len(shape.rule.premises) - (0 if shape.leaves_open(shape.fixable) else 1)
            depth, row = furthest(self.solver, shape, start, WIDEST, enough)
        finally:
            self.solver.raw = before
        if depth < len(shape.rule.premises):
            return self._blocked(shape, premise_text(shape.as_written(depth), row), row)
        return self._head(shape, start, row, goal)

    def _head(self, shape: Shape, start: Row, row: Row, goal: Fact) -> Blocked:
        """Every premise holds, but what is derived is another fact."""
        rule = shape.rule
        rows = self.solver.body(rule, start) if rule.clause.aggregates else [row]
        derived = min(self.instances.transformed(rule, rows), key=lambda d: row_key(d.row))
        row = derived.row if rule.clause.aggregates else {**start, **derived.row}
        for term, own, value in zip(rule.head.args, self.solver.head_args(rule.clause, row), goal.args, strict=True):
            if own != value:
                return self._blocked(shape, f"{filled_in(term, row)} = {value_text(value)}", row)
        head = self.instances.head(rule, row)
        interval = None if head is None else head[1]
        if interval is None or goal.interval is None:
            return self._blocked(shape, "the interval ends before it starts", row)
        return self._blocked(shape, f"{interval_text(interval)} contains {interval_text(goal.interval)}", row)

    def _blocked(self, shape: Shape, premise: str, row: Row) -> Blocked:
        return Blocked(shape.ref, premise, shape.in_order(row))
