"""Values as plain JSON."""

import pytest

from manglecp.mangle import (
    FALSE,
    TRUE,
    Bytes,
    Duration,
    Float,
    List,
    Map,
    Name,
    NotPlain,
    Pair,
    Struct,
    Time,
    Value,
    plain_json,
)


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (7, 7),
        ((1 << 63) - 1, 9223372036854775807),
        ("text", "text"),
        (Name("/a/b"), "/a/b"),
        (TRUE, True),
        (FALSE, False),
        (Name("/null"), None),
        (Map((("default", Name("/null")),)), {"default": None}),
        (Float(1.0), 1.0),
        (Time(0), "1970-01-01T00:00:00Z"),
        (Duration(90_000_000_000), "1m30s"),
        (Bytes(b"ab"), "YWI="),
        (List((1, List(("x",)))), [1, ["x"]]),
        (Pair(1, "b"), [1, "b"]),
        (Map((("b", 1), ("a", TRUE))), {"a": True, "b": 1}),
        (Map(((Name("/k"), 1),)), {"/k": 1}),
        (Struct(((Name("/type"), "string"),)), {"type": "string"}),
    ],
)
def test_every_kind_of_value_is_plain_json(value: Value, json: object) -> None:
    assert plain_json(value) == json
    assert type(plain_json(value)) is type(json)


def nested(depth: int) -> Value:
    value: Value = 1
    for _ in range(depth):
        value = List((value,))
    return value


@pytest.mark.parametrize(
    "value",
    [
        Float(float("nan")),
        Float(float("inf")),
        Map(((1, "x"),)),
        Map((("/a", 1), (Name("/a"), 2))),
        nested(101),
        List((Float(float("-inf")),)),
    ],
)
def test_what_no_json_stands_for_is_refused(value: Value) -> None:
    with pytest.raises(NotPlain):
        plain_json(value)


def test_nesting_is_bounded_not_forbidden() -> None:
    assert plain_json(nested(100)) is not None
