"""The three kinds of built-ins (functions, predicates, reducers), and functions that check the kinds of arguments.

Types are Mangle type text: in ``fn:List(X)``, the capital letter is a type variable of the built-in. ``op`` is always
the name of a built-in, for messages.
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
    """A function ``fn:…``, which computes one value from its arguments and the evaluation time."""

    name: str
    params: tuple[str, ...]  # types
    result: str  # type
    call: Callable[[tuple[Value, ...], int], Value]  # maps arguments and evaluation time (ns) to the result
    doc: str
    rest: str | None = None  # type of any further arguments
    even: bool = False  # whether the number of arguments has to be even: keys and values alternate

    def accepts(self, count: int) -> bool:
        return _accepts(self.params, self.rest, count) and not (self.even and count % 2)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate ``:…``, which maps its arguments of mode ``+`` to all solutions for its arguments of mode ``-``.

    A test has only arguments of mode ``+``. It returns the empty solution if it holds, and otherwise no solution.
    """

    name: str
    modes: str  # + or - per argument
    params: tuple[str, ...]  # types of all arguments
    solve: Callable[[tuple[Value, ...]], Iterable[tuple[Value, ...]]]
    doc: str


@dataclass(frozen=True, slots=True)
class Reducer:
    """A reducer ``fn:…`` after ``do fn:group_by``, which computes one value from the unordered rows of a group.

    Each row belongs to one solution of the body, and has the values of the reducer's arguments. For a reducer without
    arguments, the row has the values of all variables.
    """

    name: str
    params: tuple[str, ...]
    rest: str | None  # type of any further arguments
    result: str
    doc: str
    reduce: Callable[[Sequence[tuple[Value, ...]]], Value]
    skips_failing_rows: bool = False  # whether a row whose arguments cannot be evaluated is left out

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
    """Make a function that ignores the evaluation time; ``body`` gets ``name``, for messages, and the arguments."""
    return Function(name, params, result, lambda args, _now: body(name, *args), doc, rest, even)


_MAX_TEXT_LENGTH: Final = 80  # characters of a value in a message


def describe(value: Value) -> str:
    text = value_text(value)
    if len(text) > _MAX_TEXT_LENGTH:
        text = text[: _MAX_TEXT_LENGTH - 1] + "…"
    return f"the {KIND_NAMES[type(value)]} {text}"


def argument_fault(op: str, value: Value, expected: str) -> ValueFault:
    return ValueFault(f"{op} takes {expected}, not {describe(value)}")


_Kind = TypeVar("_Kind")
_Inner = TypeVar("_Inner")


def _reader(kind: type[_Kind], expected: str) -> Callable[[str, Value], _Kind]:
    """Return a function that returns its argument if that is of one kind, and raises ValueFault otherwise."""

    def read(op: str, value: Value) -> _Kind:
        if type(value) is not kind:
            raise argument_fault(op, value, expected)
        return value

    return read


def _inner_reader(kind: type[_Kind], inner: Callable[[_Kind], _Inner], expected: str) -> Callable[[str, Value], _Inner]:
    def read(op: str, value: Value) -> _Inner:
        if type(value) is not kind:
            raise argument_fault(op, value, expected)
        return inner(value)

    return read


# Each reader returns the Python value, or raises a fault such as ``fn:plus takes a number, not the string "x"``.
number: Final = _reader(int, "a number")
string: Final = _reader(str, "a string")
pair: Final = _reader(Pair, "a pair")
mapping: Final = _reader(Map, "a map")
struct: Final = _reader(Struct, "a struct")
floating: Final = _inner_reader(Float, lambda value: value.value, "a float64")
name: Final = _inner_reader(Name, lambda value: value.text, "a name")
instant: Final = _inner_reader(Time, lambda value: value.ns, "a time")
duration: Final = _inner_reader(Duration, lambda value: value.ns, "a duration")
items: Final = _inner_reader(List, lambda value: value.items, "a list")


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
    """Make a duration; raises ValueFault, which names the operands, if it needs more than 64 bits."""
    if not INT_MIN <= ns <= INT_MAX:
        raise _out_of_range(op, "duration", operands)
    return Duration(ns)


def checked_instant(op: str, ns: int, *operands: Value) -> Time:
    """Make a finite instant; raises ValueFault, which names the operands, if it is out of range."""
    if not INT_MIN < ns < INT_MAX:
        raise _out_of_range(op, "time", operands)
    return Time(ns)


def _out_of_range(op: str, kind: str, operands: tuple[Value, ...]) -> ValueFault:
    operand_texts = " and ".join(describe(operand) for operand in operands)
    return ValueFault(f"{op} of {operand_texts} gives a {kind} outside the representable range")
