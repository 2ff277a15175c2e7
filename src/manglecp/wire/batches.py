"""The facts of a request all at once, as long as nothing is wrong with them.

Facts of one predicate are a table, and most columns of it hold one type of JSON, so that a whole column is checked with
a few calls: which types are there, which is the largest number. Texts that need reading, such as names and times, are
read once each however often they occur. A table with something unusual in it is cut in two, and each half tried again,
until little is left: that is what :mod:`manglecp.wire.checking` looks at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final

from manglecp.mangle.facts import Fact
from manglecp.mangle.intervals import Interval
from manglecp.mangle.values import Float, Value
from manglecp.wire.checking import Accepts
from manglecp.wire.facts import interval
from manglecp.wire.faults import Fault
from manglecp.wire.provenance import check_category, check_source
from manglecp.wire.publishing import Published
from manglecp.wire.shapes import Shape
from manglecp.wire.texts import usual_instant
from manglecp.wire.values import SAFE_INTEGER, to_value

_ONCE: Final = frozenset({str, int, bool})
"""Types whose equal values are the same; 0.0 and -0.0 are not."""
_FEW: Final = 16
"""Facts that are looked at one by one without more ado."""
_MOST_FAILURES: Final = 100
"""How often a table is cut in two. Whoever sends more wrong facts than that waits for all to be looked at."""
_as_fact: Final = partial(tuple.__new__, Fact)  # without looking at each of them again


class _Unusual(Exception):
    """Something may be wrong: only a closer look tells."""


def read_batch(
    facts: Sequence[Any], readable: Mapping[str, Published], accepts: Accepts, now: int
) -> list[Fact | None]:
    """The facts in their order; None in place of each that is not plainly right."""
    tables: dict[str, _Table] = {}
    for place, fact in enumerate(facts):
        if type(fact) is not dict:
            continue
        name = fact.get("pred")
        table = tables.get(name) if type(name) is str else None
        if table is None:
            if type(name) is not str or name not in readable:
                continue
            table = tables[name] = _Table(readable[name])
        when = None
        try:
            args = fact.get("args")
            if type(args) is not list:
                args = table.in_order(fact)
            if len(fact) > 2:
                when = fact.get("t")
                if len(fact) > 3 or when is None:
                    _look(fact, now)
        except (Fault, _Unusual):
            continue
        if when is not None:
            table.times.append((len(table.rows), when))
        table.places.append(place)
        table.rows.append(args)
    found: list[Fact | None] = [None] * len(facts)
    failures = _MOST_FAILURES
    for table in tables.values():
        pieces = [table]
        while pieces:
            piece = pieces.pop()
            try:
                stated = list(piece.facts(accepts, now))
            except (Fault, _Unusual):
                if failures and len(piece.rows) > _FEW:
                    failures -= 1
                    pieces += piece.halves()
                continue
            for position, fact in zip(piece.places, stated, strict=True):
                found[position] = fact
    return found


class _Table:
    """The facts of one predicate: where each stands in the request, its arguments, and when it holds if it says so."""

    __slots__ = ("entry", "places", "rows", "times")

    def __init__(self, entry: Published) -> None:
        self.entry = entry
        self.places: list[int] = []
        self.rows: list[list[Any]] = []
        self.times: list[tuple[int, Any]] = []

    def halves(self) -> list[_Table]:
        """Two tables with half of the facts each."""
        middle = len(self.rows) // 2
        first, second = _Table(self.entry), _Table(self.entry)
        first.places, second.places = self.places[:middle], self.places[middle:]
        first.rows, second.rows = self.rows[:middle], self.rows[middle:]
        first.times = [(row, when) for row, when in self.times if row < middle]
        second.times = [(row - middle, when) for row, when in self.times if row >= middle]
        return [first, second]

    def in_order(self, fact: dict[str, Any]) -> list[Any]:
        """Arguments that are given by name."""
        named, names = fact.get("named_args"), self.entry.schema.arg_names
        if type(named) is not dict or names is None or len(named) != len(names):
            raise _Unusual
        try:
            return [named[name] for name in names]
        except KeyError:
            raise _Unusual from None

    def facts(self, accepts: Accepts, now: int) -> Iterable[Fact]:
        schema = self.entry.schema
        if set(map(len, self.rows)) != {schema.arity}:
            raise _Unusual
        columns = [_read(c, shape) for c, shape in zip(zip(*self.rows, strict=True), schema.shapes, strict=True)]
        rows: list[tuple[Value, ...]] = list(zip(*columns, strict=True)) if columns else [()] * len(self.rows)
        if self.entry.jointly:
            key = (schema.predicate, schema.arity)
            if not all(accepts(key, row) for row in set(rows)):
                raise _Unusual
        return map(_as_fact, zip(repeat(schema.predicate), rows, self._intervals(now)))

    def _intervals(self, now: int) -> Iterable[Interval | None]:
        if not self.times:
            return repeat(None)
        found: list[Interval | None] = [None] * len(self.rows)
        instants: dict[str, Interval | None] = {}
        schema = self.entry.schema
        for row, when in self.times:
            if type(when) is dict and len(when) == 1 and type(text := when.get("at")) is str:
                between = instants.get(text)
                if between is None:
                    ns = usual_instant(text) if schema.temporal else None
                    between = instants[text] = interval(when, schema, now) if ns is None else (ns, ns)
                found[row] = between
            else:
                found[row] = interval(when, schema, now)
        return found


def _look(fact: dict[str, Any], now: int) -> None:
    """At the members that few facts have."""
    if fact.get("args") is not None and fact.get("named_args") is not None:
        raise _Unusual
    check_source(fact.get("source"), now)
    check_category(fact.get("category"))


def _read(column: tuple[Any, ...], shape: Shape) -> Sequence[Value]:
    """The values that one column of JSON stands for."""
    types = set(map(type, column))
    only = types.pop() if len(types) == 1 else None
    if only is str and shape.plain_text:
        return column
    if only is int and shape.plain_number and min(column) >= -SAFE_INTEGER and max(column) <= SAFE_INTEGER:
        return column
    if only is float and shape.plain_fraction:
        return list(map(Float, column))
    if only in _ONCE:
        values = {data: _value(data, shape) for data in set(column)}
        return [values[data] for data in column]
    return [_value(data, shape) for data in column]


def _value(data: Any, shape: Shape) -> Value:
    value = to_value(data, shape)
    if not shape.accepts(value):
        raise _Unusual
    return value
