"""How much work a value is, told before anybody does it."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.base.json import value_size
from manglecp.wire import is_valid, schema_errors
from manglecp.wire.schema_validation import MAX_ERRORS, MAX_VISITS, schema_breadth, validation_cost

KINDS = [{"type": "object", "properties": {"k": {"const": n}, "v": {"type": "integer"}}} for n in range(10)]


@pytest.mark.parametrize(
    ("schema", "most"),
    [
        (True, 1),
        ({}, 1),
        ({"properties": {"a": {}, "b": {"items": {}}}}, 1),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, 2),
        ({"anyOf": [{}, {}, {}]}, 4),
        ({"items": {"oneOf": KINDS}}, 31),
        ({"allOf": [{"properties": {"a": {"anyOf": [{}] * 4}}}, {"properties": {"a": {"not": {}}}}]}, 10),
        ({"anyOf": [{"items": {"anyOf": [{}] * 3}}] * 3}, 16),
        ({"if": {}, "then": {}, "else": {"patternProperties": {"a": {}, "b": {}}}}, 6),
    ],
)
def test_how_many_nodes_visit_one_value_at_most(schema: Any, most: int) -> None:
    assert schema_breadth(schema) == most


def test_a_size_is_not_counted_further_than_it_matters() -> None:
    assert value_size([1, {"a": [2]}, "x"], 100) == 7
    assert value_size("a" * 3_200, 1_000) == 101
    assert value_size([0] * 1_000_000, 10) > 10


def test_what_is_too_much_fits_nothing_and_what_is_not_does() -> None:
    schema = {"items": {"oneOf": KINDS}}
    some = [{"k": 3, "v": 1}] * 1_000
    assert is_valid(some, schema)
    assert validation_cost(some, schema) <= MAX_VISITS
    many = some * 400
    assert validation_cost(many, schema) == float("inf")
    assert not is_valid(many, schema)
    (error,) = schema_errors(many, schema)
    assert "too complex" in error.message
    assert is_valid([1] * 3_000_000, {"items": {"type": "integer"}}), "what is simple may be long"


def test_what_is_wrong_is_found_in_what_is_large() -> None:
    """Where it is, and what of it is missing; nothing of the value is repeated."""
    item = {"oneOf": KINDS, "required": ["k"]}
    schema = {"properties": {"all": {"items": item}, "text": {"maxLength": 10}}, "required": ["name"]}
    value: dict[str, Any] = {"all": [{"k": 1, "v": 1}] * 5_000, "text": "secret" * 20_000}
    value["all"][4_000:4_001] = [{"k": 1, "v": "secret"}]
    errors = schema_errors(value, schema)
    assert {one.path: one.keyword for one in errors} == {
        "/all/4000": "oneOf",
        "/name": "required",
        "/text": "maxLength",
    }
    assert "secret" not in str(errors)
    assert len(schema_errors({"all": [{}] * 5_000, "name": 1}, schema)) == MAX_ERRORS
