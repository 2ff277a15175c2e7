"""The three kinds of entries, and their tables.

Types are Mangle type text: ``fn:List(X)``, where a capital letter is a type variable of the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from manglecp.mangle.errors import ValueFault
from manglecp.mangle.printer import value_text
from manglecp.mangle.values import (
    INT_MAX,
    INT_MIN,
    NEG_INF,
    POS_INF,
    Duration,
    Float,
    List,
    Map,
    Name,
    Pair,
    Struct,
    Time,
    Value,
    kind_name,
)


@dataclass(frozen=True, slots=True)
class Function:
    """``fn:…``: one value from some values and the evaluation time."""

    name: str
    params: tuple[str, ...]
    result: str
    call: Callable[[tuple[Value, ...], int], Value]
    doc: str
    rest: str | None = None  # type of any further arguments
    even: bool = False  # only an even number of arguments: keys and values

    @property
    def min_args(self) -> int:
        return len(self.params)

    def accepts(self, count: int) -> bool:
        return _accepts(self.params, self.rest, count) and not (self.even and count % 2)


@dataclass(frozen=True, slots=True)
class Predicate:
    """``:…``: maps the values at ``+`` to all solutions for the positions at ``-``.

    A test has no ``-``: it yields the empty solution once, or none.
    """

    name: str
    modes: str
    params: tuple[str, ...]
    solve: Callable[[tuple[Value, ...]], Iterable[tuple[Value, ...]]]
    doc: str


@dataclass(frozen=True, slots=True)
class Reducer:
    """``fn:…`` after ``do fn:group_by``: one value from the unordered rows of a group.

    A row holds the values of the arguments; for a reducer without arguments, all bindings of the row.
    """

    name: str
    params: tuple[str, ...]
    rest: str | None
    result: str
    doc: str
    reduce: Callable[[Sequence[tuple[Value, ...]]], Value]
    skips_failing_rows: bool = False  # a row whose arguments cannot be evaluated is left out

    @property
    def min_args(self) -> int:
        return len(self.params)

    def accepts(self, count: int) -> bool:
        return _accepts(self.params, self.rest, count)


def _accepts(params: tuple[str, ...], rest: str | None, count: int) -> bool:
    return count == len(params) or (rest is not None and count > len(params))


def pure(
    name: str,
    params: tuple[str, ...],
    result: str,
    body: Callable[..., Value],
    doc: str,
    *,
    rest: str | None = None,
    even: bool = False,
) -> Function:
    """Make a function that ignores the evaluation time; ``body`` gets the name, for messages, and the arguments."""
    return Function(name, params, result, lambda args, _now: body(name, *args), doc, rest, even)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=_Named)


def by_name(*groups: Iterable[Entry]) -> Mapping[str, Entry]:
    """Make one read-only table; a duplicate name is an error."""
    table: dict[str, Entry] = {}
    for group in groups:
        for entry in group:
            if entry.name in table:
                raise ValueError(f"{entry.name} is registered twice")
            table[entry.name] = entry
    return MappingProxyType(table)


# ``number``, ``string``, … return the Python value, or raise a fault like ``fn:plus takes a number, not the string
# "x"``.
_WIDEST: Final = 80


def shown(value: Value) -> str:
    text = value_text(value)
    if len(text) > _WIDEST:
        text = text[: _WIDEST - 1] + "…"
    return f"the {kind_name(value)} {text}"


def refused(who: str, value: Value, expected: str) -> ValueFault:
    return ValueFault(f"{who} takes {expected}, not {shown(value)}")


def number(who: str, value: Value) -> int:
    if type(value) is not int:
        raise refused(who, value, "a number")
    return value


def real(who: str, value: Value) -> float:
    if isinstance(value, Float):
        return value.value
    if type(value) is not int:
        raise refused(who, value, "a number or a float64")
    return float(value)


def floating(who: str, value: Value) -> float:
    if not isinstance(value, Float):
        raise refused(who, value, "a float64")
    return value.value


def string(who: str, value: Value) -> str:
    if type(value) is not str:
        raise refused(who, value, "a string")
    return value


def name(who: str, value: Value) -> str:
    if not isinstance(value, Name):
        raise refused(who, value, "a name")
    return value.text


def instant(who: str, value: Value) -> int:
    if not isinstance(value, Time):
        raise refused(who, value, "a time")
    return value.ns


def finite_instant(who: str, value: Value) -> int:
    ns = instant(who, value)
    if value is NEG_INF or value is POS_INF:
        raise ValueFault(f"{who} takes a finite time, but {shown(value)} is infinite")
    return ns


def duration(who: str, value: Value) -> int:
    if not isinstance(value, Duration):
        raise refused(who, value, "a duration")
    return value.ns


def pair(who: str, value: Value) -> Pair:
    if not isinstance(value, Pair):
        raise refused(who, value, "a pair")
    return value


def interval(who: str, value: Value) -> tuple[Time, Time]:
    if isinstance(value, Pair):
        start, end = value.first, value.second
        if isinstance(start, Time) and isinstance(end, Time):
            return start, end
    raise refused(who, value, "a pair of times")


def items(who: str, value: Value) -> tuple[Value, ...]:
    if not isinstance(value, List):
        raise refused(who, value, "a list")
    return value.items


def mapping(who: str, value: Value) -> Map:
    if not isinstance(value, Map):
        raise refused(who, value, "a map")
    return value


def struct(who: str, value: Value) -> Struct:
    if not isinstance(value, Struct):
        raise refused(who, value, "a struct")
    return value


def made_duration(who: str, ns: int, *operands: Value) -> Duration:
    """Make a duration; raises instead of wrapping around."""
    if not INT_MIN <= ns <= INT_MAX:
        raise _out_of_range(who, "duration", operands)
    return Duration(ns)


def made_instant(who: str, ns: int, *operands: Value) -> Time:
    """Make an instant; finite operands must not reach the infinities."""
    if not INT_MIN < ns < INT_MAX:
        raise _out_of_range(who, "time", operands)
    return Time(ns)


def _out_of_range(who: str, kind: str, operands: tuple[Value, ...]) -> ValueFault:
    given = " and ".join(shown(operand) for operand in operands)
    return ValueFault(f"{who} of {given} gives a {kind} outside the representable range")
