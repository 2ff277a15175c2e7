"""No entry lets anything out but a value or a fault, whatever values it meets."""

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from manglecp.mangle.builtins import FUNCTIONS, PREDICATES, REDUCERS, Function, Predicate, Reducer
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.values import (
    INT_MAX,
    INT_MIN,
    KIND_NAMES,
    Duration,
    Float,
    List,
    Name,
    Pair,
    Time,
    Value,
)
from tests.effort import examples

from .strategies import INT64, VALUES, of_type

pytestmark = pytest.mark.no_cover

EXAMPLES = 25  # of each of more than a hundred entries
_MADE_OF: dict[str, type] = {
    "/number": int,
    "/float64": Float,
    "/string": str,
    "/name": Name,
    "/time": Time,
    "/duration": Duration,
}


def check_value(value: Value) -> None:
    assert type(value) in KIND_NAMES
    whole = value.ns if isinstance(value, Time | Duration) else value
    if isinstance(whole, int):
        assert INT_MIN <= whole <= INT_MAX


def check_result(value: Value, type_text: str) -> None:
    check_value(value)
    assert type(value) is _MADE_OF.get(type_text, type(value))


def check_fault(name: str, fault: ValueFault) -> None:
    message = str(fault)
    assert message.startswith(name + " ")
    assert "\n" not in message
    assert len(message) < 500
    assert fault.__cause__ is None


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)
@examples(EXAMPLES)
@given(data=st.data(), now=INT64)
def test_every_function_is_total(function: Function, data: st.DataObject, now: int) -> None:
    types = list(function.params)
    if function.rest is not None:
        further = data.draw(st.integers(0, 4))
        types += [function.rest] * (further // 2 * 2 if function.even else further)
    args = tuple(data.draw(of_type(type_text)) for type_text in types)
    try:
        check_result(function.call(args, now), function.result)
    except ValueFault as fault:
        check_fault(function.name, fault)


@pytest.mark.parametrize("predicate", PREDICATES.values(), ids=lambda entry: entry.name)
@examples(EXAMPLES)
@given(data=st.data())
def test_every_predicate_is_total(predicate: Predicate, data: st.DataObject) -> None:
    modes = list(zip(predicate.modes, predicate.params, strict=True))
    inputs = tuple(data.draw(of_type(type_text)) for mode, type_text in modes if mode == "+")
    try:
        solutions = list(predicate.solve(inputs))
    except ValueFault as fault:
        check_fault(predicate.name, fault)
        return
    assert len(set(solutions)) == len(solutions)
    for solution in solutions:
        assert len(solution) == predicate.modes.count("-")
        for value in solution:
            check_value(value)


@pytest.mark.parametrize("reducer", REDUCERS.values(), ids=lambda entry: entry.name)
@examples(EXAMPLES)
@given(data=st.data())
def test_every_reducer_is_total_and_blind_to_order(reducer: Reducer, data: st.DataObject) -> None:
    if not reducer.params:
        row = st.tuples(VALUES, VALUES)
        rows: list[tuple[Value, ...]] = list(data.draw(st.lists(row, max_size=4)))
    else:
        types = [*reducer.params, *([reducer.rest] * data.draw(st.integers(0, 2)) if reducer.rest else [])]
        rows = data.draw(st.lists(st.tuples(*map(of_type, types)), max_size=5))
    shuffled = data.draw(st.permutations(rows))
    assert outcome(reducer, rows) == outcome(reducer, shuffled)


def outcome(reducer: Reducer, rows: Sequence[tuple[Value, ...]]) -> Value | tuple[str]:
    try:
        value = reducer.reduce(rows)
    except ValueFault as fault:
        check_fault(reducer.name, fault)
        return (str(fault),)
    check_result(value, reducer.result)
    return value


def test_depth_is_no_obstacle() -> None:
    deep: Value = 0
    for _ in range(2_000):
        deep = List((Pair(deep, 1),))
    for function in FUNCTIONS.values():
        count = next(n for n in (1, 2, 3, 4, 0) if function.accepts(n))
        try:
            check_value(function.call((deep,) * count, 0))
        except ValueFault as fault:
            check_fault(function.name, fault)
    for predicate in PREDICATES.values():
        try:
            list(predicate.solve((deep,) * predicate.modes.count("+")))
        except ValueFault as fault:
            check_fault(predicate.name, fault)
    for reducer in REDUCERS.values():
        outcome(reducer, [(deep,) * max(1, len(reducer.params)), (deep,) * max(1, len(reducer.params))])
