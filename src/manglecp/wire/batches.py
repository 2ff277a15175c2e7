"""The facts of a request all at once, as long as nothing is wrong with them.

Facts of one predicate are a table, and most columns of it hold one type of JSON, so that a whole column is checked with
a few calls: which types are there, which is the largest number. Texts that need reading, such as names and times, are
read once each however often they occur. A table with something unusual in it is cut in two, and each half tried again,
until little is left: that is what :mod:`manglecp.wire.checking` looks at.

A few facts make no tables worth the while, and are read one by one in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final, cast

from manglecp.mangle import Fact, Float, Interval, Value
from manglecp.wire.checking import Accepts
from manglecp.wire.facts import interval
from manglecp.wire.faults import Fault
from manglecp.wire.provenance import check_category, check_source
from manglecp.wire.publishing import Published
from manglecp.wire.schemas import Schema
from manglecp.wire.shapes import Shape
from manglecp.wire.texts import usual_instant
from manglecp.wire.values import SAFE_INTEGER, to_value

_ONCE: Final = frozenset({str, int, bool})
"""Types whose equal values are the same; 0.0 and -0.0 are not."""
_FEW: Final = 16
"""Facts that make no table, or none that is cut in two."""
_MOST_FAILURES: Final = 100
"""How often a table is cut in two. Whoever sends more wrong facts than that waits for all to be looked at."""
_as_fact: Final = partial(tuple.__new__, Fact)  # without looking at each of them again


class _Unusual(Exception):
    """Something may be wrong: only a closer look tells."""


def read_batch(
    facts: Sequence[Any], readable: Mapping[str, Published], accepts: Accepts, now: int
) -> list[Fact | None]:
    """The facts in their order; None in place of each that is not plainly right."""
    if len(facts) <= _FEW:
        return [_alone(fact, readable, accepts, now) for fact in facts]
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
                args = _in_order(fact, table.entry)
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
                    between = instants[text] = _at(text, schema, now)
                found[row] = between
            else:
                found[row] = interval(when, schema, now)
        return found


def _alone(fact: Any, readable: Mapping[str, Published], accepts: Accepts, now: int) -> Fact | None:
    """One fact; None if it is not plainly right."""
    if type(fact) is not dict:
        return None
    name = fact.get("pred")
    entry = readable.get(name) if type(name) is str else None
    if entry is None:
        return None
    schema = entry.schema
    between = None
    try:
        args = fact.get("args")
        if type(args) is not list:
            args = _in_order(fact, entry)
        if len(args) != schema.arity:
            return None
        if len(fact) > 2:
            when = fact.get("t")
            if len(fact) > 3 or when is None:
                _look(fact, now)
            if type(when) is dict and len(when) == 1 and type(text := when.get("at")) is str:
                between = _at(text, schema, now)
            else:
                between = interval(when, schema, now)
        row = tuple([_read_one(data, shape) for data, shape in zip(args, schema.shapes, strict=True)])
    except (Fault, _Unusual):
        return None
    if entry.jointly and not accepts((schema.predicate, schema.arity), row):
        return None
    return _as_fact((schema.predicate, row, between))


def _in_order(fact: dict[str, Any], entry: Published) -> list[Any]:
    """Arguments that are given by name."""
    named, names = fact.get("named_args"), entry.schema.arg_names
    if type(named) is not dict or names is None or len(named) != len(names):
        raise _Unusual
    try:
        return [named[name] for name in names]
    except KeyError:
        raise _Unusual from None


def _at(text: str, schema: Schema, now: int) -> Interval | None:
    """The interval that an instant is."""
    ns = usual_instant(text) if schema.temporal else None
    return interval({"at": text}, schema, now) if ns is None else (ns, ns)


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


def _read_one(data: Any, shape: Shape) -> Value:
    """As :func:`_read`, for a column of one."""
    kind = type(data)
    if kind is str and shape.plain_text:
        return cast("str", data)
    if kind is int and shape.plain_number and -SAFE_INTEGER <= data <= SAFE_INTEGER:
        return cast("int", data)
    if kind is float and shape.plain_fraction:
        return Float(data)
    return _value(data, shape)


def _value(data: Any, shape: Shape) -> Value:
    value = to_value(data, shape)
    if not shape.accepts(value):
        raise _Unusual
    return value
