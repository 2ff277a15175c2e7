"""Tables of facts: the columns of a table, the values of its cells, and CSV (RFC 4180).

A table has one column per argument, in any order under the argument's name, or by position if the predicate does not
name its arguments. The table of a temporal predicate may have ``@at``, or ``@start`` and ``@end``, or neither.

In CSV the first row names the columns, and each other row is a fact.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from manglecp import wire
from manglecp.base.source import Source
from manglecp.base.text import quote
from manglecp.mangle import FALSE, INT_MAX, INT_MIN, TRUE, Fact, Interval, Time, Value, ValueFault, read_literal
from manglecp.pack.factfiles.files import SPLIT_FIX, FileErrors, FileLimits, lines

MAX_CACHED: Final = 100_000  # cached values of a column
_BOOLEANS: Final = {"true": TRUE, "false": FALSE}
_T = TypeVar("_T", bound=Value)
_as_fact: Final = partial(tuple.__new__, Fact)  # faster than Fact(…), whose checks valid facts do not need


class CellCache(dict[str, _T], Generic[_T]):
    """A bounded cache of the values of one column by their text; ``read`` converts a text and may raise ``Fault``."""

    def __init__(self, read: Callable[[str], _T]) -> None:
        self.read = read

    def __missing__(self, text: str) -> _T:
        if len(self) > MAX_CACHED:
            self.clear()
        value = self[text] = self.read(text)
        return value


def cell_reader(shape: wire.Shape) -> Callable[[str], Value]:
    """Return the reader of a column by the kinds of value (string, number, …) that its declared bound allows.

    If all kinds are allowed, cells are text; if several, Mangle literals.
    """
    if shape.kinds == wire.ANYTHING.kinds:
        return str
    if len(shape.kinds) > 1:
        return parse_literal
    (kind,) = shape.kinds
    return _BY_KIND.get(kind, parse_literal)


def parse_literal(text: str) -> Value:
    try:
        return read_literal(text)
    except ValueFault as fault:
        raise wire.Fault(str(fault), 'write it as Mangle does: "text", 42, /name, [1, 2]') from None


def parse_instant(text: str) -> int:
    """Return nanoseconds since 1970 for RFC 3339 text or milliseconds."""
    return wire.instant_of_milliseconds(wire.read_number(text)) if _is_digits(text) else wire.read_instant(text)


def _is_digits(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit()


_BY_KIND: Final[Mapping[str, Callable[[str], Value]]] = {
    **wire.READERS,
    "name": lambda text: _BOOLEANS.get(text) or wire.read_name(text),
    "time": lambda text: Time(parse_instant(text)),
    "duration": lambda text: (
        wire.duration_of_milliseconds(wire.read_number(text)) if _is_digits(text) else wire.read_duration(text)
    ),
}


AT: Final = "@at"
START: Final = "@start"
END: Final = "@end"
_TIME_COLUMNS: Final = ((), (AT,), (START, END))  # valid combinations of time columns
_OPEN_END: Final = ("", wire.UNBOUNDED)  # cells of an open end


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table that hold the arguments, and those that hold the times."""

    schema: wire.Schema
    header: tuple[str, ...]
    arguments: tuple[int, ...]  # the column of each argument
    times: tuple[int, ...]  # the columns of the interval's ends, or of its instant


def find_layout(predicate: str, header: Sequence[str], schemas: wire.Schemas) -> Layout:
    """Return the layout of a table. Raises :class:`Fault` if the header does not match the declaration."""
    by_arity = schemas.named(predicate)
    for name in header:
        if header.count(name) > 1:
            raise wire.Fault(f"two columns are called {quote(name)}", "give each column its own name")
    times = tuple(name for name in (AT, START, END) if name in header)
    names = [name for name in header if name not in times]
    schema = _schema(predicate, names, by_arity)
    if times not in _TIME_COLUMNS:
        raise wire.Fault(f"{', '.join(times)} do not make an interval", f"give {AT}, or both {START} and {END}")
    if times and not schema.temporal:
        raise wire.Fault(f"{predicate} is not temporal, but has the column {times[0]}", "add temporal to its Decl")
    order = names if schema.arg_names is None else schema.arg_names
    index_of = {name: index for index, name in enumerate(header)}
    arguments = tuple(index_of[name] for name in order)
    return Layout(schema, tuple(header), arguments, tuple(index_of[name] for name in times))


def _schema(predicate: str, names: list[str], by_arity: Mapping[int, wire.Schema]) -> wire.Schema:
    """Return the schema whose arguments have these names. Raises :class:`Fault` if there is none."""
    schema = by_arity.get(len(names))
    if schema is not None and (schema.arg_names is None or set(names) == set(schema.arg_names)):
        return schema
    declared = schema or next(iter(by_arity.values()))  # if no arity has as many columns, the message is about any
    if declared.arg_names is None:
        counts = " or ".join(map(str, sorted(by_arity)))
        raise wire.Fault(f"{predicate} takes {counts} columns, not {len(names)}")
    fix = f"the first row names the columns: {','.join(declared.arg_names)}"
    missing_columns = [name for name in declared.arg_names if name not in names]
    if missing_columns:
        raise wire.Fault(f"{predicate} needs the column {', '.join(map(quote, missing_columns))}", fix)
    unknown = [name for name in names if name not in declared.arg_names]
    raise wire.Fault(f"{predicate} has no argument {', '.join(map(quote, unknown))}", fix)


_CELL: Final = re.compile(r'"(?:[^"]|"")*"|[^,\r\n]*')


def read_csv(
    source: Source, predicate: str, schemas: wire.Schemas, limits: FileLimits, check_bounds: bool
) -> list[Fact]:
    """Return the facts. Raises :class:`ParseError` with all diagnostics."""
    return _Table(source, limits, check_bounds).read(predicate, schemas)


class _Table:
    def __init__(self, source: Source, limits: FileLimits, check_bounds: bool) -> None:
        self.source = source
        self.limits = limits
        self.check_bounds = check_bounds
        self.problems = FileErrors(source, limits.errors)
        self.rows = csv.reader(lines(source.text), strict=True)
        self.instants = CellCache(parse_instant)

    def read(self, predicate: str, schemas: wire.Schemas) -> list[Fact]:
        try:
            self.layout = self._read_header(predicate, schemas)
            facts = self._read_facts()
        except csv.Error as error:
            reason, fix = str(error), 'a cell with a comma, a quote or a line end is written "like ""this"""'
            if "field limit" in reason:
                reason, fix = f"a cell has more than {csv.field_size_limit():,} characters", "shorten it"
            self.problems.add_line(f"not CSV: {reason}", max(1, self.rows.line_num), fix)
        self.problems.raise_if_any()
        return facts

    def _read_header(self, predicate: str, schemas: wire.Schemas) -> Layout:
        header = next(filter(None, self.rows), None)  # without empty lines
        try:
            if header is None:
                raise wire.Fault(
                    "the file is empty", "the first row names the columns, as the Decl names the arguments"
                )
            return find_layout(predicate, [name.strip() for name in header], schemas)
        except wire.Fault as fault:
            self.problems.add_line(fault.message, max(1, self.rows.line_num), fault.fix)
            self.problems.raise_all()

    def _read_facts(self) -> list[Fact]:
        """Return the facts of the valid rows, and report the invalid rows."""
        layout, limit = self.layout, self.limits.facts
        columns = [(self._cache(position), column) for position, column in enumerate(layout.arguments)]
        width, line = len(layout.header), self.rows.line_num + 1
        facts: list[Fact] = []
        for row in self.rows:
            if len(row) == width:
                try:
                    args = tuple([cache[row[column]] for cache, column in columns])
                    when = self._interval(row) if layout.times else None
                    facts.append(_as_fact((layout.schema.predicate, args, when)))
                except wire.Fault:
                    self._report_cells(row, line, columns)
                if len(facts) > limit:
                    self.problems.add_line(f"more than {limit:,} facts", line, SPLIT_FIX)
                    self.problems.raise_all()
            elif row:  # empty lines are ignored
                fix = f"the header names {width}"
                self.problems.add_line(f"{len(row)} cell{'' if len(row) == 1 else 's'} in this row", line, fix)
            line = self.rows.line_num + 1
        return facts

    def _cache(self, position: int) -> CellCache[Any]:
        schema = self.layout.schema
        read = cell_reader(schema.shapes[position])
        # Values of readers other than parse_literal have one kind, and so conform to a bound that admits whole kinds.
        if self.check_bounds and (read is parse_literal or not schema.shapes[position].admits_whole_kinds):
            return CellCache(lambda text: schema.check(position, read(text)))
        return CellCache(read)

    def _interval(self, row: list[str]) -> Interval | None:
        """Return the interval of the time cells of a row; None if both ends are open (an empty cell or ``_``)."""
        times = [row[index] for index in self.layout.times]
        if len(times) == 1:
            start = end = self.instants[times[0]]
        else:
            start = INT_MIN if times[0] in _OPEN_END else self.instants[times[0]]
            end = INT_MAX if times[1] in _OPEN_END else self.instants[times[1]]
        return None if (start, end) == (INT_MIN, INT_MAX) else wire.checked_interval(start, end, self.layout.schema)

    def _report_cells(self, row: list[str], line: int, columns: Iterable[tuple[CellCache[Any], int]]) -> None:
        """Report every invalid cell of the record that begins in a line."""
        for cache, column in columns:
            try:
                cache[row[column]]
            except wire.Fault as fault:
                self._report(fault, line, column)
        try:
            self._interval(row) if self.layout.times else None
        except wire.Fault as fault:
            self._report(fault, line, self.layout.times[0])

    def _report(self, fault: wire.Fault, line: int, column: int) -> None:
        """Report a fault at one cell of the record that begins in a line."""
        start = self.source.line_start(line)
        for _ in range(column):
            start = self._end_of_cell(start) + 1
        message = f"column {self.layout.header[column]}: {fault.message}"
        self.problems.add(message, start, self._end_of_cell(start), fault.fix)

    def _end_of_cell(self, start: int) -> int:
        cell = _CELL.match(self.source.text, start)
        assert cell is not None  # the pattern also matches an empty cell
        return cell.end()
