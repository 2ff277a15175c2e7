"""Reducers of the rows of a group, and folds of the elements of a list, such as ``fn:sum`` for both.

Rows are unordered. Therefore reducers add floats and collect lists in the order of the values, and an error names the
least invalid value. The floats of a list are added in the order of the list.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeVar

from manglecp.mangle.builtins.registry import Function, Reducer, argument_fault, items, pure, real
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.values import (
    INT_MAX,
    INT_MIN,
    KIND_NAMES,
    NEG_INF,
    POS_INF,
    Duration,
    Float,
    List,
    Map,
    Time,
    Value,
    order_key,
    tuple_of,
    wrap_int64,
)

Rows = Sequence[tuple[Value, ...]]

_Kind = TypeVar("_Kind")


def _require(kind: type[_Kind], op: str, values: Sequence[Value]) -> list[_Kind]:
    """Return the values if all are of this kind. Raises ValueFault, which names the least value of another kind."""
    fitting: list[_Kind] = []
    faulty: list[Value] = []
    for value in values:
        if isinstance(value, kind):
            fitting.append(value)
        else:
            faulty.append(value)
    if faulty:
        raise argument_fault(op, min(faulty, key=order_key), f"{KIND_NAMES[kind]}s only")
    return fitting


def _extreme(
    pick: Callable[..., Value], kind: type, default: Value, key: Callable[[Any], int] | None = None
) -> Callable[[str, Sequence[Value]], Value]:
    """Return a fold that applies ``pick`` (min or max); without values, the fold returns ``default``."""
    return lambda op, values: pick(_require(kind, op, values), key=key, default=default)


def _float_sum(op: str, values: Sequence[Value]) -> Value:
    total = 0.0
    for value in _require(Float, op, values):
        total += value.value
    return Float(total)


def _float_extreme(pick: Callable[..., Float], default: float) -> Callable[[str, Sequence[Value]], Value]:
    def fold(op: str, values: Sequence[Value]) -> Value:
        floats = _require(Float, op, values)
        nan = Float(math.nan)
        return nan if nan in floats else pick(floats, key=order_key, default=Float(default))

    return fold


def _duration_sum(op: str, values: Sequence[Value]) -> Value:
    ns = sum(span.ns for span in _require(Duration, op, values))
    if not INT_MIN <= ns <= INT_MAX:
        raise ValueFault(f"{op} of {len(values)} durations gives a duration outside the representable range")
    return Duration(ns)


_ns: Final = attrgetter("ns")


@dataclass(frozen=True, slots=True)
class _Fold:
    """A fold of values of one type: a reducer of rows and a function of a list."""

    name: str
    type: str  # Mangle type of the values and of the result
    fold: Callable[[str, Sequence[Value]], Value]
    doc: str
    in_value_order: bool = False  # whether the reducer sorts the values before the fold

    def as_reducer(self) -> Reducer:
        def reduce(rows: Rows) -> Value:
            column = [row[0] for row in rows]
            if self.in_value_order:
                column.sort(key=order_key)
            return self.fold(self.name, column)

        return Reducer(self.name, (self.type,), None, self.type, self.doc, reduce)

    def as_function(self) -> Function:
        def body(op: str, sequence: Value) -> Value:
            return self.fold(op, items(op, sequence))

        return pure(self.name, (f"fn:List({self.type})",), self.type, body, self.doc)


def _avg(rows: Rows) -> Value:
    if not rows:
        return Float(math.nan)
    total = 0.0
    for value in sorted((row[0] for row in rows), key=order_key):
        total += real("fn:avg", value)
    return Float(total / len(rows))


def _pick_any(rows: Rows) -> Value:
    if not rows:
        raise ValueFault("fn:pick_any takes at least one row, not none")
    return min((row[0] for row in rows), key=order_key)


def _collect_to_map(rows: Rows) -> Value:
    entries: dict[Value, Value] = {}
    for key, value in sorted(rows, key=lambda row: order_key(row[1])):
        entries.setdefault(key, value)  # of a repeated key, the first value is the least
    return Map(tuple(entries.items()))


_N: Final = "/number"
_F: Final = "/float64"
_D: Final = "/duration"
_T: Final = "/time"

_FOLDS: Final = (
    _Fold("fn:sum", _N, lambda op, args: wrap_int64(sum(_require(int, op, args))), "The sum of numbers; 0 of nothing."),
    _Fold("fn:min", _N, _extreme(min, int, INT_MAX), "The least number; 2^63-1 of nothing."),
    _Fold("fn:max", _N, _extreme(max, int, INT_MIN), "The greatest number; -2^63 of nothing."),
    _Fold("fn:float:sum", _F, _float_sum, "The sum of floats, added one by one.", in_value_order=True),
    _Fold("fn:float:min", _F, _float_extreme(min, sys.float_info.max), "The least float; NaN if there is one."),
    _Fold("fn:float:max", _F, _float_extreme(max, -sys.float_info.max), "The greatest float; NaN if there is one."),
    _Fold("fn:duration:sum", _D, _duration_sum, "All durations together."),
    _Fold("fn:duration:min", _D, _extreme(min, Duration, Duration(INT_MAX), _ns), "The shortest duration."),
    _Fold("fn:duration:max", _D, _extreme(max, Duration, Duration(INT_MIN), _ns), "The longest duration."),
    _Fold("fn:time:min", _T, _extreme(min, Time, POS_INF, _ns), "The earliest instant."),
    _Fold("fn:time:max", _T, _extreme(max, Time, NEG_INF, _ns), "The latest instant."),
)

LIST_FOLDS: Final[tuple[Function, ...]] = tuple(fold.as_function() for fold in _FOLDS)

_NUMERIC: Final = "fn:Union(/number, /float64)"

_REDUCERS: Final = (
    *[fold.as_reducer() for fold in _FOLDS],
    Reducer("fn:count", (), None, _N, "How many rows there are.", len),
    Reducer("fn:count_distinct", (), None, _N, "How many different bindings there are.", lambda rows: len(set(rows))),
    Reducer("fn:avg", (_NUMERIC,), None, _F, "The mean of numbers and floats.", _avg),
    Reducer("fn:pick_any", ("X",), None, "X", "One of the values: the least.", _pick_any),
    Reducer(
        "fn:collect",
        ("X",),
        "/any",
        "fn:List(X)",
        "The values in order; tuples if there are several arguments.",
        lambda rows: List(tuple(sorted([tuple_of(row) for row in rows], key=order_key))),
        skips_failing_rows=True,
    ),
    Reducer(
        "fn:collect_distinct",
        ("X",),
        "/any",
        "fn:List(X)",
        "As fn:collect, each value once.",
        lambda rows: List(tuple(sorted({tuple_of(row) for row in rows}, key=order_key))),
        skips_failing_rows=True,
    ),
    Reducer(
        "fn:collect_to_map",
        ("K", "V"),
        None,
        "fn:Map(K, V)",
        "The map of keys and values; the least value of a repeated key.",
        _collect_to_map,
        skips_failing_rows=True,
    ),
)

REDUCERS: Final[Mapping[str, Reducer]] = MappingProxyType({entry.name: entry for entry in _REDUCERS})
