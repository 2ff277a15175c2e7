from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from manglecp.base.json import canonical
from manglecp.base.strict_json import Fault, decode
from manglecp.mangle import (
    FALSE,
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
    row_accepts,
    value_text,
)
from manglecp.mangle.types import (
    BYTES,
    DURATION,
    FLOAT,
    NAME,
    NUMBER,
    STRING,
    TIME,
    ListType,
    MapType,
    PairType,
    Singleton,
    StructType,
    Type,
    Union,
    Vocabulary,
    parts,
)
from manglecp.wire.shapes import ANYTHING, Shape
from manglecp.wire.values import MAX_NESTING, SAFE_INTEGER, plain_value, to_json, to_value
from tests.mangle.membership import is_member
from tests.wire.strategies import types, values

A = Name("/a")
POINT = StructType(((A, NUMBER),), ((Name("/kind"), NAME),))
ENUM = Union((Singleton(Name("/low")), Singleton(Name("/high"))))


_scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())
_keys = st.one_of(st.sampled_from(["_type", "value", "_var"]), st.text(max_size=3))
documents = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_keys, inner, max_size=3)),
    max_leaves=8,
)


def same(left: Value, right: Value) -> bool:
    return type(left) is type(right) and left == right


@given(values, types)
def test_what_goes_out_comes_back(value: Value, type_: Type) -> None:
    """Whatever the bound is, through bytes, and through a second writer of JSON as well."""
    shape = Shape(type_)
    out = to_json(value, shape)
    sent = msgspec.json.encode(out)
    assert same(to_value(decode(sent), shape), value)
    assert same(to_value(json.loads(json.dumps(json.loads(sent))), shape), value)
    assert to_json(to_value(out, shape), shape) == out


@given(values, types)
def test_readers_that_know_only_doubles_do_no_harm(value: Value, type_: Type) -> None:
    """Such as JavaScript: every number becomes a double, and a whole double is written without a point."""

    def as_double(number: str) -> Any:
        double = float(number)
        return int(double) if double.is_integer() and abs(double) < 1e21 else double

    shape = Shape(type_)
    blurred = json.loads(msgspec.json.encode(to_json(value, shape)), parse_float=as_double, parse_int=as_double)
    assert same(to_value(blurred, shape), value)


@given(values, types.filter(lambda type_: not any(isinstance(part, MapType) for part in parts(type_))))
def test_a_shape_accepts_the_members_of_its_bound(value: Value, type_: Type) -> None:
    """Maps aside: a map is asked by key, so that its bound says more about keys than which ones it has."""
    if is_member(value, type_):
        assert Shape(type_).accepts(value)


@given(values, types)
def test_a_shape_and_the_engine_accept_the_same(value: Value, type_: Type) -> None:
    """What the wire has let through is not looked at again."""
    assert Shape(type_).accepts(value) == row_accepts((type_,), (Vocabulary([type_]).value(value),))


@given(documents, types)
def test_any_json_is_a_value_or_a_fault(data: Any, type_: Type) -> None:
    shape = Shape(type_)
    with suppress(Fault):
        value = to_value(data, shape)
        assert same(to_value(to_json(value, shape), shape), value)


@pytest.mark.req("DATA-17")
@pytest.mark.parametrize("data", [[None], {"a": [1, None]}, {"_type": "map", "value": [[None, None]]}])
def test_null_inside_of_a_value_comes_back(data: Any) -> None:
    value = to_value(data)
    assert "/null" in value_text(value)
    assert to_json(value) == data
    assert to_json(Name("/null")) == {"_type": "name", "value": "/null"}


@pytest.mark.req("DATA-12", "DATA-13", "DATA-14", "DATA-15", "DATA-16")
@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("x", "x"),
        ("/x", "/x"),
        (42, 42),
        (1.5, Float(1.5)),
        (1.0, Float(1.0)),
        (True, TRUE),
        (False, FALSE),
        ([1, ["a"]], List((1, List(("a",))))),
        ({"b": 1, "a": {}}, Map((("a", Map()), ("b", 1)))),
        ({"_type": "name", "value": "/x"}, Name("/x")),
        ({"_type": "time", "value": "1970-01-01T00:00:01Z"}, Time(10**9)),
        ({"_type": "duration", "value": "1m"}, Duration(60 * 10**9)),
        ({"_type": "bytes", "value": "AP8="}, Bytes(b"\x00\xff")),
        ({"_type": "float64", "value": "1"}, Float(1.0)),
        ({"_type": "float64", "value": 2.0}, Float(2.0)),
        ({"_type": "pair", "value": [1, 2]}, Pair(1, 2)),
        ({"_type": "struct", "value": {"a": 1}}, Struct(((A, 1),))),
        ({"_type": "map", "value": [[1, "one"]]}, Map(((1, "one"),))),
    ],
)
def test_without_a_bound(data: Any, value: Value) -> None:
    assert same(to_value(data), value)


@pytest.mark.parametrize(
    ("type_", "data", "value"),
    [
        (NAME, "/x", Name("/x")),
        (ENUM, "/low", Name("/low")),
        (Union((NAME, NUMBER)), "/x", Name("/x")),
        (Union((NAME, STRING)), "/x", "/x"),
        (FLOAT, 3, Float(3.0)),
        (FLOAT, 10**20, Float(1e20)),
        (Union((NUMBER, FLOAT)), 3, 3),
        (TIME, "2026-03-02t10:14:00+01:00", Time(1772442840 * 10**9)),
        (TIME, 1500, Time(1500 * 10**6)),
        (DURATION, "1h30m", Duration(5400 * 10**9)),
        (DURATION, 250, Duration(250 * 10**6)),
        (BYTES, "AQI=", Bytes(b"\x01\x02")),
        (PairType(NAME, NUMBER), ["/x", 1], Pair(Name("/x"), 1)),
        (ListType(NAME), ["/x"], List((Name("/x"),))),
        (MapType(NAME, FLOAT), {"/k": 1}, Map(((Name("/k"), Float(1.0)),))),
        (POINT, {"a": 1, "kind": "/k"}, Struct(((A, 1), (Name("/kind"), Name("/k"))))),
    ],
)
def test_the_bound_decides(type_: Type, data: Any, value: Value) -> None:
    assert same(to_value(data, Shape(type_)), value)


@pytest.mark.req("DATA-19", "DATA-20", "DATA-21")
def test_whole_numbers_beyond_doubles_are_wrapped() -> None:
    assert to_json(SAFE_INTEGER) == to_value(SAFE_INTEGER) == 9007199254740991
    wrapped = {"_type": "int64", "value": "9007199254740992"}
    assert to_json(SAFE_INTEGER + 1) == wrapped
    assert to_value(wrapped) == SAFE_INTEGER + 1
    with pytest.raises(Fault, match="not exact") as refused:
        to_value(SAFE_INTEGER + 1)
    assert refused.value.fix == 'write {"_type": "int64", "value": "9007199254740992"}'


@pytest.mark.parametrize(
    ("type_", "value", "out"),
    [
        (NAME, Name("/x"), "/x"),
        (STRING, Name("/x"), {"_type": "name", "value": "/x"}),
        (NAME, TRUE, True),
        (STRING, FALSE, False),
        (FLOAT, Float(1.0), 1.0),
        (NUMBER, Float(1.5), {"_type": "float64", "value": "1.5"}),
        (FLOAT, Float(float("-inf")), {"_type": "float64", "value": "-Infinity"}),
        (TIME, Time(0), "1970-01-01T00:00:00Z"),
        (STRING, Map((("_type", 1),)), {"_type": "map", "value": [["_type", 1]]}),
        (POINT, Map((("a", 1),)), {"_type": "map", "value": [["a", 1]]}),
    ],
)
def test_plain_where_the_bound_says_so_wrapped_elsewhere(type_: Type, value: Value, out: Any) -> None:
    assert to_json(value, Shape(type_)) == out
    assert type(to_json(value, Shape(type_))) is type(out)


@pytest.mark.parametrize(
    ("type_", "data", "path", "message"),
    [
        (NUMBER, 1.5, "$", "1.5 is not a whole number"),
        (NAME, "x", "$", "'x' is not a name"),
        (NAME, "/a//b", "$", "'/a//b' is not a name"),
        (TIME, "2026", "$", "'2026' is not a time"),
        (TIME, 10**18, "$", "the time is out of range"),
        (DURATION, "5 minutes", "$", "'5 minutes' is not a duration"),
        (BYTES, "a", "$", "'a' is not base64"),
        (FLOAT, 10**400, "$", "the number does not fit into a 64-bit float"),
        (STRING, None, "$", "null stands for any value, and a fact states a particular one"),
        (STRING, {"_var": "X"}, "$", "a variable cannot stand in a fact"),
        (STRING, {"_type": "nmae", "value": "/x"}, "$", 'an object with "_type" wraps a value'),
        (STRING, {"_type": "int64", "value": "9223372036854775808"}, "$.value", "does not fit into 64 bits"),
        (STRING, {"_type": "int64", "value": 5}, "$.value", "the value of a wrapped int64 is a string of digits"),
        (STRING, {"_type": "float64", "value": "1,5"}, "$.value", "'1,5' is not a number"),
        (STRING, {"_type": "float64", "value": "1e999"}, "$.value", "'1e999' does not fit into a 64-bit float"),
        (STRING, {"_type": "float64", "value": 1}, "$.value", "the value of a wrapped float64 is a string or"),
        (STRING, {"_type": "name", "value": 1}, "$.value", "the value of a wrapped name is a string"),
        (STRING, {"_type": "list", "value": {}}, "$.value", "the value of a wrapped list is an array"),
        (
            STRING,
            {"_type": "map", "value": [["k", 1], ["k"]]},
            "$.value[1]",
            "an entry is an array of a key and a value",
        ),
        (STRING, b"bytes", "$", "a Python bytes is not JSON"),
        (STRING, [0] * 1_000_000, "$", "a list of 1000001 parts is larger than the limit"),
        (ListType(NAME), ["/x", "y"], "$[1]", "'y' is not a name"),
        (STRING, {"_type": "name", "value": None}, "$.value", "the value of a wrapped name is a string"),
        (PairType(NUMBER, NUMBER), [1, 2, 3], "$", "a pair is an array of two, not of 3"),
        (STRING, {"_type": "map", "value": [["k", 1], ["k", 2]]}, "$", """the key '"k"' stands twice"""),
    ],
)
def test_what_is_wrong_and_where(type_: Type, data: Any, path: str, message: str) -> None:
    with pytest.raises(Fault) as refused:
        to_value(data, Shape(type_))
    assert message in refused.value.message
    assert refused.value.path == path


def test_nesting_is_bounded_both_ways() -> None:
    data: Any = []
    value: Value = List()
    for _ in range(MAX_NESTING - 1):
        data, value = [data], List((value,))
    assert same(to_value(data), value)
    assert to_json(value) == data
    with pytest.raises(Fault, match="nested more than 100 deep"):
        to_value([data])
    with pytest.raises(Fault, match="nested more than 100 deep"):
        to_json(List((value,)))


def test_a_fault_names_the_bound() -> None:
    assert str(Shape(ENUM)) == "fn:Singleton(/low) or fn:Singleton(/high)"
    assert not Shape(ENUM).accepts(Name("/medium"))
    assert ANYTHING.accepts(Map())


# --- plain JSON ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (None, Name("/null")),
        ("/null", "/null"),
        (True, TRUE),
        (False, FALSE),
        (2**63 - 1, 2**63 - 1),
        (1000.0, 1000),
        (-0.0, 0),
        (2.5, Float(2.5)),
        (1e30, Float(1e30)),
        ([1, [None]], List((1, List((Name("/null"),))))),
        ({"_type": "int64", "value": "7"}, Map((("_type", "int64"), ("value", "7")))),
        ({"_var": 1}, Map((("_var", 1),))),
    ],
)
def test_plain_json_has_no_wrapped_values(data: Any, value: Value) -> None:
    assert same(plain_value(data), value)


@pytest.mark.parametrize(("data", "path"), [(2**63, "$"), ({"a": [1, -(2**63) - 1]}, "$.a[1]"), (10**400, "$")])
def test_plain_json_beyond_64_bits_is_refused(data: Any, path: str) -> None:
    with pytest.raises(Fault, match="does not fit into 64 bits") as fault:
        plain_value(data)
    assert fault.value.path == path


def test_plain_json_has_a_greatest_depth() -> None:
    data: Any = 1
    for _ in range(MAX_NESTING):
        data = [data]
    plain_value(data)
    with pytest.raises(Fault, match="nested"):
        plain_value([data])


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text() | st.sampled_from(["_type", "_var"]), part),
    max_leaves=8,
)


@given(JSON_VALUES, JSON_VALUES)
def test_different_json_never_becomes_one_value(one: Any, other: Any) -> None:
    with suppress(Fault):
        assert same(plain_value(one), plain_value(other)) == (canonical(one) == canonical(other))
