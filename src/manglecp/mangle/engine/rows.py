"""Facts of a finished evaluation by the value of one column, through the indexes that joins use."""

from __future__ import annotations

from collections.abc import Iterable

from manglecp.mangle.engine.base import EngineModel
from manglecp.mangle.engine.views import FactTuple
from manglecp.mangle.model import Result
from manglecp.mangle.packages import Key
from manglecp.mangle.values import Value


def rows_with(result: Result, key: Key, value: Value, column: int = 0) -> list[FactTuple]:
    """The facts of a predicate that have this value in this column; temporal ones end with their two instants.

    In no particular order. The cost follows the number of matches, not the size of the relation.
    """
    model = result.model
    assert isinstance(model, EngineModel)
    number = model.evaluation.compiled.ids.get(key)
    if number is None:
        return []
    view = model.evaluation.views[number]
    found: list[FactTuple] = []
    if view.base.facts:
        below: Iterable[FactTuple] = view.base.index((column,)).get(value, ())
        found += [fact for fact in below if fact not in view.removed] if view.removed else below
    if view.facts:
        found += view.index((column,)).get(value, ())
    return found


def all_rows(result: Result, key: Key) -> list[FactTuple]:
    """All facts of a predicate, in no particular order."""
    model = result.model
    assert isinstance(model, EngineModel)
    number = model.evaluation.compiled.ids.get(key)
    return [] if number is None else list(model.evaluation.views[number])
