import math

import pytest
from hypothesis import given

from manglecp.mangle.values import (
    FALSE,
    INT_MAX,
    INT_MIN,
    NEG_INF,
    POS_INF,
    TRUE,
    Bytes,
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

from .helpers import fault, holds, interval, lst, solve
from .strategies import INT64

A, AB, A_B = Name("/a"), Name("/ab"), Name("/a/b")
ASCENDING = [
    (-1, 1),
    (Float(-0.5), Float(math.inf)),
    ("B", "a"),
    ("", "\N{GRINNING FACE}"),
    ("\uffff", "\N{GRINNING FACE}"),
    (A, A_B),
    (A_B, AB),
    (NEG_INF, Time(0)),
    (Time(0), POS_INF),
    (Duration(-1), Duration(0)),
]


@pytest.mark.parametrize(("less", "greater"), ASCENDING)
def test_comparisons(less: Value, greater: Value) -> None:
    for name, of_less, of_equal, of_greater in [
        (":lt", True, False, False),
        (":le", True, True, False),
        (":gt", False, False, True),
        (":ge", False, True, True),
    ]:
        assert holds(name, less, greater) is of_less
        assert holds(name, less, less) is of_equal
        assert holds(name, greater, less) is of_greater


@pytest.mark.parametrize("name", [":lt", ":le", ":gt", ":ge"])
@pytest.mark.parametrize("other", [math.nan, 0.0, math.inf])
def test_nan_compares_with_nothing(name: str, other: float) -> None:
    assert not holds(name, Float(math.nan), Float(other))
    assert not holds(name, Float(other), Float(math.nan))


def test_zeros_are_equal_when_compared() -> None:
    assert holds(":le", Float(0.0), Float(-0.0))
    assert not holds(":lt", Float(-0.0), Float(0.0))


@given(a=INT64, b=INT64)
def test_the_comparisons_of_one_kind_agree_with_the_general_ones(a: int, b: int) -> None:
    for relation in ("lt", "le", "gt", "ge"):
        expected = holds(f":{relation}", a, b)
        assert holds(f":time:{relation}", Time(a), Time(b)) is expected
        assert holds(f":duration:{relation}", Duration(a), Duration(b)) is expected


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, Float(1.0)), ("a", A), (1, "1"), (Time(1), Duration(1)), (lst(1), lst(2)), (Bytes(b"a"), Bytes(b"b"))],
)
def test_other_comparisons_are_faults(left: Value, right: Value) -> None:
    for name in (":lt", ":le", ":gt", ":ge"):
        assert fault(name, left, right).startswith(f"{name} takes two numbers, float64s, strings, names, ")


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        (":within_distance", (5, 9, 5), True),
        (":within_distance", (9, 5, 4), False),
        (":within_distance", (INT_MIN, INT_MAX, INT_MAX), False),  # the distance does not wrap
        (":match_prefix", (A_B, A), True),
        (":match_prefix", (AB, A), True),
        (":match_prefix", (A, A), False),
        (":match_prefix", (A, A_B), False),
        (":match_prefix", ("/a/b", A), False),
        (":string:starts_with", ("hello", "he"), True),
        (":string:starts_with", ("hello", ""), True),
        (":string:starts_with", ("hello", "el"), False),
        (":string:starts_with", (Name("/hello"), "/he"), False),
        (":string:ends_with", ("hello", "lo"), True),
        (":string:ends_with", ("hello", "hel"), False),
        (":string:ends_with", (1, ""), False),
        (":string:contains", ("hello", "ell"), True),
        (":string:contains", ("hello", "le"), False),
        (":string:contains", (Bytes(b"hello"), "ell"), False),
        (":filter", (TRUE,), True),
        (":filter", (FALSE,), False),
        (":filter", ("/true",), False),
        (":match_nil", (List(),), True),
        (":match_nil", (lst(1),), False),
        (":match_nil", (Map(),), False),
    ],
)
def test_tests(name: str, args: tuple[Value, ...], expected: bool) -> None:
    assert holds(name, *args) is expected


@pytest.mark.parametrize(
    ("name", "args", "solutions"),
    [
        (":list:member", (lst(2, 1, 2, Float(1.0)),), [(2,), (1,), (Float(1.0),)]),
        (":list:member", (List(),), []),
        (":list:member", (Pair(1, 2),), []),
        (":match_cons", (lst(1, 2, 3),), [(1, lst(2, 3))]),
        (":match_cons", (lst(1),), [(1, List())]),
        (":match_cons", (List(),), []),
        (":match_cons", ("ab",), []),
        (":match_pair", (Pair(1, "a"),), [(1, "a")]),
        (":match_pair", (lst(1, 2),), []),
        (":match_entry", (Map((("a", 1),)), "a"), [(1,)]),
        (":match_entry", (Map((("a", 1),)), A), []),
        (":match_entry", (Map(), "a"), []),
        (":match_entry", (Struct(((A, 1),)), A), []),
        (":match_field", (Struct(((A, 0),)), A), [(0,)]),
        (":match_field", (Struct(((A, 0),)), "x"), []),
        (":match_field", (Map(((A, 0),)), A), []),
    ],
)
def test_matches(name: str, args: tuple[Value, ...], solutions: list[tuple[Value, ...]]) -> None:
    assert solve(name, *args) == solutions


@pytest.mark.parametrize(
    ("relation", "related"),
    [
        ("before", {"ad", "bd", "cd"}),
        ("after", {"da", "db", "dc"}),
        ("meets", {"ab"}),
        ("overlaps", {"aa", "bb", "cc", "dd", "ab", "ac", "ba", "bc", "ca", "cb"}),
        ("during", {"aa", "bb", "cc", "dd", "ac", "bc"}),
        ("contains", {"aa", "bb", "cc", "dd", "ca", "cb"}),
        ("starts", {"aa", "bb", "cc", "dd", "ac", "ca"}),
        ("finishes", {"aa", "bb", "cc", "dd", "bc", "cb"}),
        ("equals", {"aa", "bb", "cc", "dd"}),
    ],
)
def test_intervals(relation: str, related: set[str]) -> None:
    spans = {"a": interval(10, 20), "b": interval(20, 30), "c": interval(10, 30), "d": interval(40, 50)}
    found = {i + j for i in spans for j in spans if holds(f":interval:{relation}", spans[i], spans[j])}
    assert found == related


def test_intervals_may_be_infinite() -> None:
    always = Pair(NEG_INF, POS_INF)
    assert holds(":interval:during", interval(1, 2), always)
    assert not holds(":interval:before", always, interval(1, 2))


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        (
            ":lt",
            (1, "a"),
            ':lt takes two numbers, float64s, strings, names, times or durations, not the number 1 and the string "a"',
        ),
        (":time:lt", (Time(0), 1), ":time:lt takes a time, not the number 1"),
        (":duration:ge", (1, Duration(0)), ":duration:ge takes a duration, not the number 1"),
        (":within_distance", (1, 2, Float(3.0)), ":within_distance takes a number, not the float64 3.0"),
        (":match_prefix", (1, "/a"), ':match_prefix takes a name, not the string "/a"'),
        (":string:starts_with", (1, 5), ":string:starts_with takes a string, not the number 5"),
        (":string:ends_with", ("a", A), ":string:ends_with takes a string, not the name /a"),
        (":string:contains", ("a", A), ":string:contains takes a string, not the name /a"),
        (
            ":interval:before",
            (Pair(1, 2), interval(1, 2)),
            ":interval:before takes a pair of times, not the pair fn:pair(1, 2)",
        ),
    ],
)
def test_faults(name: str, args: tuple[Value, ...], message: str) -> None:
    assert fault(name, *args) == message


_OF_KIND: dict[str, Value] = {
    "string": "a",
    "number": 1,
    "float64": Float(1.0),
    "name": Name("/a"),
    "bytes": Bytes(b"a"),
    "time": Time(0),
    "duration": Duration(0),
    "list": lst(1),
    "map": Map((("a", 1),)),
    "struct": Struct(((Name("/a"), 1),)),
    "pair": Pair(1, 2),
}


@pytest.mark.parametrize("kind", _OF_KIND)
def test_a_value_has_one_kind(kind: str) -> None:
    assert [other for other, value in _OF_KIND.items() if holds(f":is_{kind}", value)] == [kind]


def test_null_is_a_name() -> None:
    assert holds(":is_null", Name("/null"))
    assert holds(":is_name", Name("/null"))
    assert not any(holds(":is_null", value) for value in (*_OF_KIND.values(), "/null", "null"))


@pytest.mark.parametrize(
    ("name", "inputs", "solutions"),
    [
        (":match_index", (lst("a", "b"), 1), [("b",)]),
        (":match_index", (lst("a", "b"), 2), []),
        (":match_index", (lst("a", "b"), -1), []),
        (":match_index", (lst("a"), "0"), []),
        (":match_index", (Map(((0, "a"),)), 0), []),
        (":list:enumerate", (lst("a", "a"),), [(0, "a"), (1, "a")]),
        (":list:enumerate", (lst(),), []),
        (":list:enumerate", ("ab",), []),
        (":match_path", (Map((("a", lst(1, Struct(((Name("/b"), 7),)))),)), lst("a", 1, Name("/b"))), [(7,)]),
        (":match_path", (5, lst()), [(5,)]),
        (":match_path", (lst(1), lst(0, 0)), []),
        (":match_path", (Map((("a", 1),)), lst("b", "c")), []),
        (":match_path", (lst(1), 0), []),
    ],
)
def test_parts_of_values(name: str, inputs: tuple[Value, ...], solutions: list[tuple[Value, ...]]) -> None:
    assert solve(name, *inputs) == solutions


def test_searches_have_limits() -> None:
    assert holds(":string:matches", "x" * 100_000, "x$")
    assert not holds(":string:matches", 5, "5")
    assert "a text of at most 100000 characters, not 100001" in fault(":string:has_word", "x" * 100_001, "x")
    assert "a pattern of at most 1000 characters, not 1001" in fault(":string:matches", "x", "x" * 1_001)
    assert fault(":string:matches", "x", "(a").startswith(
        ':string:matches takes a regular expression, not the string "(a": '
    )
    assert "takes a string" in fault(":string:has_word", "x", 5)
