"""Short ways to call built-ins and to write values in tables."""

from collections.abc import Callable

import pytest

from manglecp.mangle.builtins import FUNCTIONS, PREDICATES, REDUCERS
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.values import Duration, Float, List, Name, Pair, Time, Value

SECOND = 1_000_000_000


def call(name: str, *args: Value, now: int = 0) -> Value:
    assert FUNCTIONS[name].accepts(len(args))
    return FUNCTIONS[name].call(args, now)


def solve(name: str, *inputs: Value) -> list[tuple[Value, ...]]:
    assert PREDICATES[name].modes.count("+") == len(inputs)
    return list(PREDICATES[name].solve(inputs))


def holds(name: str, *inputs: Value) -> bool:
    solutions = solve(name, *inputs)
    assert solutions in ([], [()])
    return bool(solutions)


def reduce(name: str, *rows: tuple[Value, ...]) -> Value:
    return REDUCERS[name].reduce(rows)


def fault(name: str, *args: Value) -> str:
    """The message of the fault that a function or predicate raises."""
    run: Callable[..., object] = solve if name in PREDICATES else call
    with pytest.raises(ValueFault) as raised:
        run(name, *args)
    return str(raised.value)


def reducer_fault(name: str, *rows: tuple[Value, ...]) -> str:
    with pytest.raises(ValueFault) as raised:
        reduce(name, *rows)
    return str(raised.value)


def time(text: str) -> Time:
    value = call("fn:time:parse_rfc3339", text)
    assert isinstance(value, Time)
    return value


def span(text: str) -> Duration:
    value = call("fn:duration:parse", text)
    assert isinstance(value, Duration)
    return value


def row(*values: Value) -> tuple[Value, ...]:
    return values


def lst(*values: Value) -> List:
    return List(values)


def names(*texts: str) -> List:
    return List(tuple(Name(text) for text in texts))


def floats(*numbers: float) -> List:
    return List(tuple(Float(number) for number in numbers))


def interval(start: int, end: int) -> Pair:
    return Pair(Time(start), Time(end))
