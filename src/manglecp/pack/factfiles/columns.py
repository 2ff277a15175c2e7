"""Which column of a table is which argument.

A table has one column per argument, named as on the wire, in any order. A predicate without names for all its arguments
takes them in the order they stand. A temporal predicate may have ``@at``, or ``@start`` and ``@end``, or neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

from manglecp.base.text import quote
from manglecp.mangle import INT_MAX, INT_MIN, Fact, Interval, Value
from manglecp.wire import UNBOUNDED, Fault, Schema, Schemas, checked_interval

AT: Final = "@at"
START: Final = "@start"
END: Final = "@end"
_TIMES: Final = ((), (AT,), (START, END))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things stand: the column of each argument in turn, and those of the ends of the interval."""

    schema: Schema
    header: tuple[str, ...]
    arguments: tuple[int, ...]
    times: tuple[int, ...]

    def facts(self, columns: Sequence[Iterable[Value]], intervals: Iterable[Interval | None]) -> Iterator[Fact]:
        """The facts whose arguments stand in these columns, one for each row."""
        rows: Iterable[tuple[Value, ...]] = zip(*columns, strict=True) if columns else repeat(())
        return map(tuple.__new__, repeat(Fact), zip(repeat(self.schema.predicate), rows, intervals))


def layout(predicate: str, header: Sequence[str], schemas: Schemas) -> Layout:
    """The layout of a table with this header; a :class:`Fault` if it does not fit the declaration."""
    by_arity = schemas.named(predicate)
    for name in header:
        if header.count(name) > 1:
            raise Fault(f"two columns are called {quote(name)}", "give each column its own name")
    times = tuple(name for name in (AT, START, END) if name in header)
    names = [name for name in header if name not in times]
    schema = _schema(predicate, names, by_arity)
    if times not in _TIMES:
        raise Fault(f"{', '.join(times)} do not make an interval", f"give {AT}, or both {START} and {END}")
    if times and not schema.temporal:
        raise Fault(f"{predicate} is not temporal, but has the column {times[0]}", "add temporal to its Decl")
    order = names if schema.arg_names is None else schema.arg_names
    places = {name: i for i, name in enumerate(header)}
    return Layout(schema, tuple(header), tuple(places[n] for n in order), tuple(places[t] for t in times))


def _schema(predicate: str, names: list[str], by_arity: Mapping[int, Schema]) -> Schema:
    schema = by_arity.get(len(names))
    if schema is not None and (schema.arg_names is None or set(names) == set(schema.arg_names)):
        return schema
    wanted = schema or next(iter(by_arity.values()))
    if wanted.arg_names is None:
        counts = " or ".join(map(str, sorted(by_arity)))
        raise Fault(f"{predicate} takes {counts} columns, not {len(names)}")
    fix = f"the first row names the columns: {','.join(wanted.arg_names)}"
    missing = [name for name in wanted.arg_names if name not in names]
    if missing:
        raise Fault(f"{predicate} needs the column {', '.join(map(quote, missing))}", fix)
    unknown = [name for name in names if name not in wanted.arg_names]
    raise Fault(f"{predicate} has no argument {', '.join(map(quote, unknown))}", fix)


def interval(times: Sequence[Any], instant: Callable[[Any], int], schema: Schema) -> Interval | None:
    """The interval that the time cells of a row say; an empty cell and ``_`` leave that end open."""
    if len(times) == 1:
        start = end = instant(times[0])
    else:
        start = INT_MIN if times[0] in _OPEN else instant(times[0])
        end = INT_MAX if times[1] in _OPEN else instant(times[1])
    return None if (start, end) == (INT_MIN, INT_MAX) else checked_interval(start, end, schema)


_OPEN: Final = (None, "", UNBOUNDED)
