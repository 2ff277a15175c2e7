"""Arguments against schemas that do not come from friends."""

from __future__ import annotations

import time
from typing import Any

import pytest

from manglecp.wire import is_valid

NODE = {"$ref": "#/$defs/node"}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.req("HARN-46")
def test_arguments_fit_or_they_do_not() -> None:
    schema = {"type": "object", "required": ["p"], "properties": {"p": {"type": "string"}}}
    assert is_valid({"p": "x"}, schema)
    assert not is_valid({"p": 1}, schema)
    assert not is_valid({}, schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nope"},
        {"$ref": "http://127.0.0.1:9/x"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/$defs/none"},
        {"$ref": 5},
        {"$ref": "#/allOf/7", "allOf": [{}]},
        {"$schema": "http://127.0.0.1:9/meta"},
        {"pattern": "(?=a)a"},
        {"pattern": "(((a{1,100}){1,100}){1,100}){1,100}"},
    ],
)
def test_what_cannot_be_decided_fits_nothing(schema: dict[str, Any]) -> None:
    assert not is_valid("a", schema)


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        # references that double at every step, in the schema
        (
            {
                "$ref": "#/$defs/0",
                "$defs": {
                    **{str(i): {"allOf": [{"$ref": f"#/$defs/{i + 1}"}] * 2} for i in range(60)},
                    "60": {},
                },
            },
            {},
        ),
        # and along the arguments, through every way there is
        ({**NODE, "$defs": {"node": {"allOf": [{"properties": {"a": NODE}}] * 2}}}, nested(60)),
        ({**NODE, "$defs": {"node": {"anyOf": [{"patternProperties": {"a": NODE}}] * 2}}}, nested(60)),
        ({**NODE, "$defs": {"node": {"if": {"additionalProperties": NODE}, "else": {"additionalProperties": NODE}}}},
         nested(60)),
        ({**NODE, "$defs": {"node": {"dependentSchemas": {"a": {"properties": {"a": NODE}}, "b": {"properties": {
            "a": NODE}}}}}}, nested(60)),
        # a tree of pairs that is too large to be counted
        ({**NODE, "$defs": {"node": {"items": NODE, "contains": NODE}}}, [[0] * 500] * 500),
    ],
)  # fmt: skip
def test_work_that_doubles_is_not_begun(schema: dict[str, Any], arguments: Any) -> None:
    start = time.process_time()
    is_valid(arguments, schema)
    assert time.process_time() - start < 8


def test_recursive_schemas_are_fine() -> None:
    tree = {**NODE, "$defs": {"node": {"type": "object", "properties": {"a": NODE}}}}
    assert is_valid(nested(60), tree)
    assert not is_valid({"a": {"a": 1}}, tree)
    assert is_valid({}, {"$ref": "#"})
    assert is_valid(
        [[1], [2]], {"items": {"$ref": "#/$defs/row~1s"}, "$defs": {"row/s": {"prefixItems": [{"type": "integer"}]}}}
    )


def test_patterns_take_linear_time() -> None:
    start = time.process_time()
    assert not is_valid("a" * 50_000 + "b", {"pattern": "^(a+)+$"})
    assert time.process_time() - start < 5


def test_arguments_that_are_too_deep_fit_nothing() -> None:
    assert not is_valid(nested(900), {"properties": {"a": {"const": 1}}, "type": "array"})
