"""Facts of a finished evaluation by the value of one column, through the indexes that joins use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from manglecp.mangle.engine.model import EngineModel
from manglecp.mangle.engine.views import FactTuple
from manglecp.mangle.result import Result
from manglecp.mangle.syntax import Key
from manglecp.mangle.values import Value

Finder: TypeAlias = Callable[[Key, Value], list[FactTuple]]


def rows_with(result: Result, key: Key, value: Value, column: int = 0) -> list[FactTuple]:
    """The facts of a predicate that have this value in this column."""
    return finder(result, column)(key, value)


def finder(result: Result, column: int = 0) -> Finder:
    """A function that gives the facts of a predicate that have a value in this column, for whoever asks often.

    Temporal facts end with their two instants. In no particular order. The cost follows the number of matches, not the
    size of the relation.
    """
    model = result.model
    assert isinstance(model, EngineModel)
    columns = (column,)
    ids, views = model.evaluation.compiled.ids, model.evaluation.views

    def find(key: Key, value: Value) -> list[FactTuple]:
        number = ids.get(key)
        if number is None:
            return []
        view = views[number]
        found: list[FactTuple] = []
        if view.base.facts:
            below: Iterable[FactTuple] = view.base.index(columns).get(value, ())
            found += [fact for fact in below if fact not in view.removed] if view.removed else below
        if view.facts:
            found += view.index(columns).get(value, ())
        return found

    return find


def all_rows(result: Result, key: Key) -> list[FactTuple]:
    """All facts of a predicate, in no particular order."""
    model = result.model
    assert isinstance(model, EngineModel)
    number = model.evaluation.compiled.ids.get(key)
    return [] if number is None else list(model.evaluation.views[number])


def changed(result: Result, keys: Iterable[Key]) -> tuple[Key, ...]:
    """Those of the predicates of which the request added facts to the base, or took some away."""
    model = result.model
    assert isinstance(model, EngineModel)
    ids, views = model.evaluation.compiled.ids, model.evaluation.views
    return tuple([key for key in keys if key in ids and views[ids[key]].changed])
