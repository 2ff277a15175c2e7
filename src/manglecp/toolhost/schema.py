"""Shapes as JSON Schema 2020-12: what a caller is told before he calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from manglecp.toolhost.shapes import ArrayOf, Choice, Constrained, MapOf, Record, Scalar, Shape, Union

__all__ = ["DIALECT", "schema"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SAID: Final = frozenset({"title", "description", "examples"})
"""Keywords that restrict nothing."""


def schema(shape: Shape) -> dict[str, Any]:
    """The schema of every JSON value that fits the shape, and of no other."""
    match shape:
        case Scalar("any"):
            return {}
        case Scalar(kind):
            return {"type": kind}
        case Choice(values, _):
            return {"const": values[0]} if len(values) == 1 else {"enum": list(values)}
        case ArrayOf(_, fixed, _) if fixed is not None:
            items = {"prefixItems": [schema(item) for item in fixed]} if fixed else {}
            return {"type": "array", **items, "items": False, "minItems": len(fixed)}
        case ArrayOf(item, _, _):
            return {"type": "array", "items": schema(item)} if item is not None else {"type": "array"}
        case MapOf(value):
            return {"type": "object", "additionalProperties": schema(value)}
        case Record():
            return _record(shape)
        case Union(options):
            return {"anyOf": [schema(option) for option in options]}
        case Constrained(inner, keywords):
            return _together(schema(inner), keywords)


def _together(inner: dict[str, Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Both: what the outer one restricts must not replace what the inner one does."""
    if inner.keys() & keywords.keys() <= _SAID:
        return {**inner, **keywords}
    return {**keywords, "allOf": [inner, *keywords.get("allOf", ())]}


def _record(record: Record) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {field.name: schema(field.shape) for field in record.fields},
        "required": [field.name for field in record.fields if field.required],
        "additionalProperties": False,
    }
