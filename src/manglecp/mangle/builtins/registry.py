"""The three kinds of entries, and their tables.

Types are Mangle type text: ``fn:List(X)``, where a capital letter is a type variable of the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from manglecp.mangle.errors import ValueFault
from manglecp.mangle.printer import value_text
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
    Name,
    Pair,
    Struct,
    Time,
    Value,
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


# ``number``, ``string``, … return the Python value, or raise a fault like ``fn:plus takes a number, not the string
# "x"``.
_WIDEST: Final = 80


def describe(value: Value) -> str:
    text = value_text(value)
    if len(text) > _WIDEST:
        text = text[: _WIDEST - 1] + "…"
    return f"the {KIND_NAMES[type(value)]} {text}"


def argument_fault(op: str, value: Value, expected: str) -> ValueFault:
    return ValueFault(f"{op} takes {expected}, not {describe(value)}")


_Kind = TypeVar("_Kind")
_Inner = TypeVar("_Inner")


def _taken(kind: type[_Kind], expected: str) -> Callable[[str, Value], _Kind]:
    def take(op: str, value: Value) -> _Kind:
        if type(value) is not kind:
            raise argument_fault(op, value, expected)
        return value

    return take


def _inside(kind: type[_Kind], inner: Callable[[_Kind], _Inner], expected: str) -> Callable[[str, Value], _Inner]:
    def take(op: str, value: Value) -> _Inner:
        if type(value) is not kind:
            raise argument_fault(op, value, expected)
        return inner(value)

    return take


number: Final = _taken(int, "a number")
string: Final = _taken(str, "a string")
pair: Final = _taken(Pair, "a pair")
mapping: Final = _taken(Map, "a map")
struct: Final = _taken(Struct, "a struct")
floating: Final = _inside(Float, lambda value: value.value, "a float64")
name: Final = _inside(Name, lambda value: value.text, "a name")
instant: Final = _inside(Time, lambda value: value.ns, "a time")
duration: Final = _inside(Duration, lambda value: value.ns, "a duration")
items: Final = _inside(List, lambda value: value.items, "a list")


def real(op: str, value: Value) -> float:
    if isinstance(value, Float):
        return value.value
    if type(value) is not int:
        raise argument_fault(op, value, "a number or a float64")
    return float(value)


def finite_instant(op: str, value: Value) -> int:
    ns = instant(op, value)
    if value is NEG_INF or value is POS_INF:
        raise ValueFault(f"{op} takes a finite time, but {describe(value)} is infinite")
    return ns


def interval(op: str, value: Value) -> tuple[Time, Time]:
    if isinstance(value, Pair):
        start, end = value.first, value.second
        if isinstance(start, Time) and isinstance(end, Time):
            return start, end
    raise argument_fault(op, value, "a pair of times")


def checked_duration(op: str, ns: int, *operands: Value) -> Duration:
    """Make a duration; raises instead of wrapping around."""
    if not INT_MIN <= ns <= INT_MAX:
        raise _out_of_range(op, "duration", operands)
    return Duration(ns)


def checked_instant(op: str, ns: int, *operands: Value) -> Time:
    """Make an instant; finite operands must not reach the infinities."""
    if not INT_MIN < ns < INT_MAX:
        raise _out_of_range(op, "time", operands)
    return Time(ns)


def _out_of_range(op: str, kind: str, operands: tuple[Value, ...]) -> ValueFault:
    shown = " and ".join(describe(operand) for operand in operands)
    return ValueFault(f"{op} of {shown} gives a {kind} outside the representable range")
