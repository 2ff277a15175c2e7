"""JSON Schema of every message, generated from the structs that read and write them.

Unknown members are allowed, and null counts as absent, as in reading. Added by hand is what structs cannot express:
conditions between members, facts, and the details of errors. The reader does not check the last two: a request with
invalid facts is still a message, and a client has to receive every error.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from manglecp.mangle import INT_MAX
from manglecp.wire.clauses import StructuredClause
from manglecp.wire.errors import SchemaError, Violation
from manglecp.wire.facts import PROVENANCE_CATEGORIES, SOURCE_TYPES
from manglecp.wire.messages import CLIENT_TYPES, PRESENCE, SERVER_TYPES, SUPPORTED_VERSIONS, VERSION, Message
from manglecp.wire.values import MILLISECOND

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
TYPES: Final[Mapping[str, type[Message]]] = {**CLIENT_TYPES, **SERVER_TYPES}

_REF: Final = "#/$defs/"
_REFERENCE: Final = re.compile(rf'"\$ref": "{re.escape(_REF)}(\w+)"')
_STRUCTURAL: Final = frozenset({"$ref", "properties", "items"})
_NULL: Final = {"type": "null"}
_END: Final = {
    "type": ["string", "integer"],
    "minimum": -(INT_MAX // MILLISECOND),
    "maximum": INT_MAX // MILLISECOND,
    "description": 'RFC 3339, milliseconds since 1970, "now", or "_" for no end.',
}
_INSTANT: Final = {**_END, "not": {"const": "_"}, "description": 'RFC 3339, milliseconds since 1970, or "now".'}
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
                    "properties": {"start": _END, "end": _END, "at": _NULL},
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
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_TEXT: Final = {"type": "string"}
_AMOUNT: Final = {"type": "number"}
_DETAILS: Final = {
    "title": "ErrorDetails",
    "description": "What details hold, as far as the code calls for it. Custom codes may add members.",
    "type": "object",
    "properties": {
        "violations": {"type": "array", "items": {"$ref": f"{_REF}Violation"}},
        "missing_facts": _TEXTS,
        "schema_errors": {"type": "array", "items": {"$ref": f"{_REF}SchemaError"}},
        "budget": {
            "type": "object",
            "properties": {"limit": _AMOUNT, "consumed": _AMOUNT, "unit": _TEXT},
            "required": ["limit", "consumed", "unit"],
        },
        "partial_results_available": {"type": "boolean"},
        "suggestion": {"type": "string"},
        "requested_version": {"type": "string"},
        "supported_versions": {**_TEXTS, "minItems": 1},
        "path": {"type": "string"},
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
_NEGOTIATION: Final = {
    "if": {"properties": {"code": {"const": "unsupported_version"}}},
    "then": {
        "properties": {"details": {"type": "object", "required": ["requested_version", "supported_versions"]}},
        "required": ["details"],
    },
}
_SCHEMES: Final = {
    "if": {"properties": {"required": {"const": True}}},
    "then": {"properties": {"schemes": {"type": "array", "minItems": 1}}, "required": ["schemes"]},
}


def schema(type_: str) -> dict[str, Any]:
    """Return the self-contained schema of one message type."""
    name = TYPES[type_].__name__
    components = _components()
    needed = {used: copy.deepcopy(components[used]) for used in sorted(_reachable(name, components) - {name})}
    root = copy.deepcopy(components[name])
    return {"$schema": DIALECT, "$id": f"urn:manglecp:{VERSION}:{type_}", **root, "$defs": needed}


def all_schemas() -> dict[str, Any]:
    """Return one schema for any message; ``$defs`` has all parts, and the structured clause."""
    any_message = [{"$ref": f"{_REF}{message.__name__}"} for message in TYPES.values()]
    defs = copy.deepcopy(dict(sorted(_components().items())))
    return {"$schema": DIALECT, "$id": f"urn:manglecp:{VERSION}", "oneOf": any_message, "$defs": defs}


def choices(message: type[Message], path: Sequence[str | int]) -> list[str]:
    """Return the texts that the member at a path such as ``("payload", "options", "x")`` may have."""
    components = _components()
    node: Any = components[message.__name__]
    for step in path:
        node = _resolved(node, components)
        node = node.get("items", {}) if isinstance(step, int) else node.get("properties", {}).get(step, {})
    node = _resolved(node, components)
    options: list[Any] = node.get("enum") or next((o["enum"] for o in node.get("anyOf", ()) if "enum" in o), [])
    return [option for option in options if isinstance(option, str)]


@cache
def _components() -> dict[str, dict[str, Any]]:
    _, components = msgspec.json.schema_components(
        [*TYPES.values(), StructuredClause, Violation, SchemaError], ref_template=f"{_REF}{{name}}"
    )
    for component in components.values():
        _simplify(component)
        _tidy(component)
    for message in TYPES.values():
        envelope = components[message.__name__]
        envelope["properties"]["manglecp"] = {"enum": list(SUPPORTED_VERSIONS)}
        envelope["required"] = ["type", "id", "manglecp", "payload"]
    components["Fact"] = copy.deepcopy(_FACT)
    components["ErrorDetails"] = copy.deepcopy(_DETAILS)
    error = components["ErrorPayload"]
    error["properties"]["details"] = {"anyOf": [{"$ref": f"{_REF}ErrorDetails"}, dict(_NULL)]}
    error["allOf"] = [copy.deepcopy(_NEGOTIATION)]
    components["Auth"]["allOf"] = [copy.deepcopy(_SCHEMES)]
    components["MacroTool"]["allOf"] = [_level(level, *members) for level, members in PRESENCE.items()]
    return components


def _tidy(component: dict[str, Any]) -> None:
    """Allow null where a member is optional, and drop defaults: those of another server may differ."""
    required = component.get("required", [])
    for name, member in component.get("properties", {}).items():
        member.pop("default", None)
        if name not in required and member != _NULL and _NULL not in member.get("anyOf", ()):
            component["properties"][name] = {"anyOf": [member, dict(_NULL)]}
    if not required:
        component.pop("required", None)


def _simplify(node: Any) -> None:
    """Drop ``discriminator``, which is OpenAPI, and patterns beside an enumeration."""
    if isinstance(node, dict):
        node.pop("discriminator", None)
        if "enum" in node or "anyOf" in node:
            node.pop("pattern", None)
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            _simplify(part)


def _level(level: str, needed: frozenset[str], banned: frozenset[str]) -> dict[str, Any]:
    then: dict[str, Any] = {}
    if needed:
        then["required"] = sorted(needed)
        then["properties"] = {name: {"not": dict(_NULL)} for name in sorted(needed)}
    if banned:
        then["properties"] = {name: dict(_NULL) for name in sorted(banned)}
    return {"if": {"properties": {"disclosure_level": {"const": level}}}, "then": then}


def _reachable(name: str, components: Mapping[str, Any]) -> set[str]:
    seen: set[str] = set()
    pending = [name]
    while pending:
        if (current := pending.pop()) not in seen:
            seen.add(current)
            pending += _REFERENCE.findall(json.dumps(components[current]))
    return seen


def _resolved(node: dict[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    """Follow references, and the alternative of ``anyOf`` that is not null."""
    while True:
        if "$ref" in node:
            node = components[node["$ref"].removeprefix(_REF)]
            continue
        structural = [option for option in node.get("anyOf", ()) if not _STRUCTURAL.isdisjoint(option)]
        if not structural:
            return node
        node = structural[0]
