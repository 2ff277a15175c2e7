"""How far a rule gets: the way through its premises that leads furthest."""

from __future__ import annotations

from collections.abc import Iterator

from manglecp.mangle.errors import EvalError, ValueFault
from manglecp.mangle.explain.instances import row_key
from manglecp.mangle.explain.shape import Shape
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.matching import Row
from manglecp.mangle.syntax import Premise


def furthest(solver: Finished, shape: Shape, start: Row, most_rows: int, enough: int | None = None) -> tuple[int, Row]:
    """How many premises can be satisfied, and the least row that satisfies them.

    Depth first, in the order of values, over at most so many rows. A way that satisfies ``enough`` premises, by default
    all, is not improved.
    """
    premises = shape.rule.premises
    enough = len(premises) if enough is None else enough
    deepest, best = 0, start
    stack: list[Iterator[Row]] = [iter([start])]
    for _ in range(most_rows):
        if not stack:
            break
        row = next(stack[-1], None)
        if row is None:
            stack.pop()
            continue
        depth = len(stack) - 1
        if depth > deepest:
            deepest, best = depth, row
        if deepest >= enough:
            break
        stack.append(iter(sorted(satisfying(solver, premises[depth], row), key=row_key)))
    return deepest, best


def satisfying(solver: Finished, premise: Premise, row: Row) -> list[Row]:
    """The rows that a premise makes of one. A row that cannot be evaluated is part of no proof."""
    try:
        return list(solver.solve(premise, row))
    except (ValueFault, EvalError):
        return []
