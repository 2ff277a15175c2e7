"""JSON Schema of every message, generated from the structs that read and write them.

Unknown members are allowed, and null counts as absent, as when a message is read. A client accepts more than the
schemas: unknown words, and anything in the informational parts of a response. This module adds what structs cannot
express: conditions between members, facts, and the details of errors. ``message_reader`` does not check the last two: a
request with invalid facts is still a message, and a client has to receive every error.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from manglecp.mangle import INT_MAX
from manglecp.wire.clauses import StructuredClause
from manglecp.wire.errors import SchemaError, Violation
from manglecp.wire.facts import PROVENANCE_CATEGORIES, SOURCE_TYPES
from manglecp.wire.messages import CLIENT_TYPES, LEVEL_MEMBERS, SERVER_TYPES, SUPPORTED_VERSIONS, VERSION, Message
from manglecp.wire.values import NS_PER_MS

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
TYPES: Final[Mapping[str, type[Message]]] = {**CLIENT_TYPES, **SERVER_TYPES}

_DEFS: Final = "#/$defs/"
_REFERENCE: Final = re.compile(rf'"\$ref": "{re.escape(_DEFS)}(\w+)"')
_NULL: Final = {"type": "null"}
_BOUND: Final = {
    "type": ["string", "integer"],
    "minimum": -(INT_MAX // NS_PER_MS),
    "maximum": INT_MAX // NS_PER_MS,
    "description": 'RFC 3339, milliseconds since 1970, "now", or "_" for no end.',
}
_INSTANT: Final = {**_BOUND, "not": {"const": "_"}, "description": 'RFC 3339, milliseconds since 1970, or "now".'}
_FACT: Final = {
    "title": "Fact",
    "description": "One fact, or in retract a pattern in which null stands for any value.",
    "type": "object",
    "properties": {
        "pred": {"type": "string"},
        "args": {"type": ["array", "null"]},
        "named_args": {"type": ["object", "null"]},
        "t": {
            "anyOf": [
                {"type": "object", "properties": {"at": _INSTANT, "start": _NULL, "end": _NULL}, "required": ["at"]},
                {
                    "type": "object",
                    "properties": {"start": _BOUND, "end": _BOUND, "at": _NULL},
                    "required": ["start", "end"],
                },
                _NULL,
            ]
        },
        "source": {
            "type": ["object", "null"],
            "properties": {
                "source_type": {"type": "string", "anyOf": [{"enum": list(SOURCE_TYPES)}, {"pattern": r"^x-[\s\S]"}]},
                "source_id": {"type": ["string", "null"]},
                "asserted_at": {"anyOf": [_INSTANT, _NULL]},
            },
            "required": ["source_type"],
        },
        "category": {"enum": [*PROVENANCE_CATEGORIES, None]},
    },
    "required": ["pred"],
    "oneOf": [
        {"required": ["args"], "properties": {"args": {"type": "array"}}},
        {"required": ["named_args"], "properties": {"named_args": {"type": "object"}}},
    ],
}
_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_NUMBER: Final = {"type": "number"}
_ERROR_DETAILS: Final = {
    "title": "ErrorDetails",
    "description": "What details hold, as far as the code calls for it. Custom codes may add members.",
    "type": "object",
    "properties": {
        "violations": {"type": "array", "items": {"$ref": f"{_DEFS}Violation"}},
        "missing_facts": _TEXTS,
        "schema_errors": {"type": "array", "items": {"$ref": f"{_DEFS}SchemaError"}},
        "budget": {
            "type": "object",
            "properties": {"limit": _NUMBER, "consumed": _NUMBER, "unit": _TEXT},
            "required": ["limit", "consumed", "unit"],
        },
        "partial_results_available": {"type": "boolean"},
        "suggestion": _TEXT,
        "requested_version": _TEXT,
        "supported_versions": {**_TEXTS, "minItems": 1},
        "path": _TEXT,
        "x-violations": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"path": _TEXT, "message": _TEXT, "suggestion": _TEXT},
                "required": ["path", "message"],
            },
        },
    },
}
_UNSUPPORTED_VERSION_HAS_DETAILS: Final = {
    "if": {"properties": {"code": {"const": "unsupported_version"}}},
    "then": {
        "properties": {"details": {"type": "object", "required": ["requested_version", "supported_versions"]}},
        "required": ["details"],
    },
}
_REQUIRED_AUTH_HAS_SCHEMES: Final = {
    "if": {"properties": {"required": {"const": True}}},
    "then": {"properties": {"schemes": {"type": "array", "minItems": 1}}, "required": ["schemes"]},
}


def schema(type_: str) -> dict[str, Any]:
    """Return the self-contained schema of one message type."""
    name = TYPES[type_].__name__
    components = _components()
    defs = {used: copy.deepcopy(components[used]) for used in sorted(_reachable(name, components) - {name})}
    root = copy.deepcopy(components[name])
    return {"$schema": DIALECT, "$id": f"urn:manglecp:{VERSION}:{type_}", **root, "$defs": defs}


def all_schemas() -> dict[str, Any]:
    """Return one schema for any message; ``$defs`` has all parts, and the structured clause."""
    any_message = [{"$ref": f"{_DEFS}{message.__name__}"} for message in TYPES.values()]
    defs = copy.deepcopy(dict(sorted(_components().items())))
    return {"$schema": DIALECT, "$id": f"urn:manglecp:{VERSION}", "oneOf": any_message, "$defs": defs}


@cache
def _components() -> dict[str, dict[str, Any]]:
    """Return the schemas of all structs by name. Callers must copy what they return or change."""
    _, components = msgspec.json.schema_components(
        [*TYPES.values(), StructuredClause, Violation, SchemaError], ref_template=f"{_DEFS}{{name}}"
    )
    milliseconds = {"type": "integer", "minimum": _BOUND["minimum"], "maximum": _BOUND["maximum"]}
    for name, member in (("IntentResult", "eval_time_used"), ("Validity", "not_before"), ("Validity", "expires_at")):
        components[name]["properties"][member] = {"anyOf": [{"type": "string"}, dict(milliseconds)]}
    for component in components.values():
        _simplify(component)
        _allow_nulls(component)
    for message in TYPES.values():
        envelope = components[message.__name__]
        envelope["properties"]["manglecp"] = {"enum": list(SUPPORTED_VERSIONS)}
        envelope["required"] = ["type", "id", "manglecp", "payload"]
    components["Fact"] = copy.deepcopy(_FACT)
    components["ErrorDetails"] = copy.deepcopy(_ERROR_DETAILS)
    error = components["ErrorPayload"]
    error["properties"]["details"] = {"anyOf": [{"$ref": f"{_DEFS}ErrorDetails"}, dict(_NULL)]}
    error["allOf"] = [copy.deepcopy(_UNSUPPORTED_VERSION_HAS_DETAILS)]
    components["Auth"]["allOf"] = [copy.deepcopy(_REQUIRED_AUTH_HAS_SCHEMES)]
    components["MacroTool"]["allOf"] = [_level_condition(level, *members) for level, members in LEVEL_MEMBERS.items()]
    return components


def _allow_nulls(component: dict[str, Any]) -> None:
    """Allow null where a member is optional, and drop defaults: those of another server may differ."""
    required = component.get("required", [])
    for name, member in component.get("properties", {}).items():
        member.pop("default", None)
        if name not in required and member != _NULL and _NULL not in member.get("anyOf", ()):
            component["properties"][name] = {"anyOf": [member, dict(_NULL)]}
    if not required:
        component.pop("required", None)


def _simplify(node: Any) -> None:
    """Drop ``discriminator``, which is OpenAPI, and patterns beside ``enum`` or ``anyOf``, which are equivalent."""
    if isinstance(node, dict):
        node.pop("discriminator", None)
        if "enum" in node or "anyOf" in node:
            node.pop("pattern", None)
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            _simplify(part)


def _level_condition(level: str, required: frozenset[str], forbidden: frozenset[str]) -> dict[str, Any]:
    then: dict[str, Any] = {}
    if required:
        then["required"] = sorted(required)
        then["properties"] = {name: {"not": dict(_NULL)} for name in sorted(required)}
    if forbidden:
        then["properties"] = {name: dict(_NULL) for name in sorted(forbidden)}
    return {"if": {"properties": {"disclosure_level": {"const": level}}}, "then": then}


def _reachable(name: str, components: Mapping[str, Any]) -> set[str]:
    seen: set[str] = set()
    pending = [name]
    while pending:
        if (current := pending.pop()) not in seen:
            seen.add(current)
            pending += _REFERENCE.findall(json.dumps(components[current]))
    return seen
