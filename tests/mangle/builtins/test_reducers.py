import math
import sys

import pytest

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
    Time,
    Value,
)

from .helpers import call, fault, floats, lst, reduce, reducer_fault, row

DAYS = lst(Time(5), Time(-5), POS_INF)
SPANS = lst(Duration(5), Duration(-7))


@pytest.mark.parametrize(
    ("name", "values", "result"),
    [
        ("fn:sum", lst(3, 1, 2), 6),
        ("fn:sum", lst(INT_MAX, 1), INT_MIN),
        ("fn:sum", List(), 0),
        ("fn:min", lst(3, 1, 2), 1),
        ("fn:min", List(), INT_MAX),
        ("fn:max", lst(3, 1, 2), 3),
        ("fn:max", List(), INT_MIN),
        ("fn:float:sum", floats(0.5, 0.25), Float(0.75)),
        ("fn:float:sum", floats(math.inf, 1.0), Float(math.inf)),
        ("fn:float:sum", List(), Float(0.0)),
        ("fn:float:min", floats(2.0, -1.0), Float(-1.0)),
        ("fn:float:min", floats(0.0, -0.0), Float(-0.0)),
        ("fn:float:min", floats(math.inf), Float(math.inf)),
        ("fn:float:min", floats(math.nan, -math.inf), Float(math.nan)),
        ("fn:float:min", List(), Float(sys.float_info.max)),
        ("fn:float:max", floats(2.0, -1.0), Float(2.0)),
        ("fn:float:max", floats(-0.0, 0.0), Float(0.0)),
        ("fn:float:max", floats(math.inf, math.nan), Float(math.nan)),
        ("fn:float:max", List(), Float(-sys.float_info.max)),
        ("fn:duration:sum", SPANS, Duration(-2)),
        ("fn:duration:sum", lst(Duration(INT_MAX), Duration(INT_MAX), Duration(INT_MIN)), Duration(INT_MAX - 1)),
        ("fn:duration:sum", List(), Duration(0)),
        ("fn:duration:min", SPANS, Duration(-7)),
        ("fn:duration:min", List(), Duration(INT_MAX)),
        ("fn:duration:max", SPANS, Duration(5)),
        ("fn:duration:max", List(), Duration(INT_MIN)),
        ("fn:time:min", DAYS, Time(-5)),
        ("fn:time:min", List(), POS_INF),
        ("fn:time:max", DAYS, POS_INF),
        ("fn:time:max", List(), NEG_INF),
    ],
)
def test_folds_of_rows_and_of_a_list(name: str, values: List, result: Value) -> None:
    assert reduce(name, *[(value,) for value in values.items]) == result
    assert call(name, values) == result


def test_floats_of_rows_are_added_in_value_order_and_those_of_a_list_in_its_own() -> None:
    values = floats(1e16, 1.0, -1e16, 1.0)
    assert call("fn:float:sum", values) is Float(1.0)
    assert reduce("fn:float:sum", *[(value,) for value in values.items]) is Float(0.0)


@pytest.mark.parametrize(
    ("name", "rows", "result"),
    [
        ("fn:count", [], 0),
        ("fn:count", [row(1), row(1), row(2)], 3),
        ("fn:count_distinct", [row(1, "a"), row(1, "a"), row("1", "a"), row(Float(1.0), "a")], 3),
        ("fn:count_distinct", [row(), row()], 1),
        ("fn:avg", [row(1), row(2), row(4)], Float(2.3333333333333335)),
        ("fn:avg", [row(1), row(Float(2.0))], Float(1.5)),
        ("fn:avg", [], Float(math.nan)),
        ("fn:pick_any", [row("s"), row(Name("/n")), row(1)], Name("/n")),
        ("fn:collect", [], List()),
        ("fn:collect", [row(2), row(1), row(2)], lst(1, 2, 2)),
        ("fn:collect", [row(Float(0.0)), row(Float(-0.0)), row("b"), row(7)], lst("b", 7, Float(-0.0), Float(0.0))),
        ("fn:collect", [row(2, "y"), row(2, "x"), row(1, "z")], lst(Pair(1, "z"), Pair(2, "x"), Pair(2, "y"))),
        ("fn:collect", [row(1, 2, 3)], lst(Pair(1, Pair(2, 3)))),
        ("fn:collect_distinct", [row(2), row(1), row(2)], lst(1, 2)),
        ("fn:collect_distinct", [row(2, 1), row(2, 1)], lst(Pair(2, 1))),
        ("fn:collect_to_map", [row("y", 2), row("x", 3), row("x", 1)], Map((("x", 1), ("y", 2)))),
        ("fn:collect_to_map", [], Map()),
    ],
)
def test_reducers_of_rows(name: str, rows: list[tuple[Value, ...]], result: Value) -> None:
    assert reduce(name, *rows) == result


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("fn:sum", [row(Float(1.5))], "fn:sum takes numbers only, not the float64 1.5"),
        ("fn:max", [row(2), row("b"), row("a")], 'fn:max takes numbers only, not the string "a"'),
        ("fn:float:sum", [row(1)], "fn:float:sum takes float64s only, not the number 1"),
        ("fn:duration:min", [row(Time(0))], None),
        ("fn:time:max", [row(Duration(0))], None),
        ("fn:avg", [row(1), row("x")], 'fn:avg takes a number or a float64, not the string "x"'),
        ("fn:pick_any", [], "fn:pick_any takes at least one row, not none"),
        (
            "fn:duration:sum",
            [row(Duration(INT_MAX)), row(Duration(1))],
            "fn:duration:sum of 2 durations gives a duration outside the representable range",
        ),
    ],
)
def test_faults_of_reducers(name: str, rows: list[tuple[Value, ...]], message: str | None) -> None:
    assert reducer_fault(name, *rows) == (message or reducer_fault(name, *reversed(rows)))


def test_faults_of_list_folds() -> None:
    assert fault("fn:sum", 1) == "fn:sum takes a list, not the number 1"
    assert fault("fn:sum", floats(1.5)) == "fn:sum takes numbers only, not the float64 1.5"
