"""JSON Schema of every message, made from the structs that read and write them, so that the two cannot differ.

Members that are not known are allowed, as in reading. What a facts profile says about facts is not repeated here: a
request whose facts are wrong is still a message. What structs cannot say is added: which members a macro-tool has at
which disclosure level, and that null counts as absent in an intent request.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from manglecp.wire.clauses import StructuredClause
from manglecp.wire.errors import SchemaError, Violation
from manglecp.wire.messages import CLIENT_TYPES, SERVER_TYPES, SUPPORTED_VERSIONS, VERSION, Message

__all__ = ["DIALECT", "PRESENCE", "TYPES", "all_schemas", "choices", "schema"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
TYPES: Final[Mapping[str, type[Message]]] = {**CLIENT_TYPES, **SERVER_TYPES}

PRESENCE: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "full": (frozenset({"description", "input_schema", "safety"}), frozenset()),
    "condensed": (
        frozenset(),
        frozenset({"input_schema", "output_schema", "context_injection", "safety", "validity"}),
    ),
    "minimal": (
        frozenset(),
        frozenset(
            {"description", "input_schema", "output_schema", "context_injection", "safety", "validity", "metadata"}
        ),
    ),
}
"""By disclosure level, the members that a macro-tool has to have and those that it may not have (seed 003, 2.2). A
client accepts a condensed tool without its line (OPEN-24)."""

_REF: Final = "#/$defs/"
_NULLABLE: Final = ("IntentPayload", "Options")
_NULL: Final = {"type": "null"}
_TIME: Final = {"type": ["string", "integer"], "description": 'RFC 3339, milliseconds since 1970, "now", or "_".'}
_FACT: Final = {
    "title": "Fact",
    "description": "One fact, or in retract a pattern in which null stands for any value.",
    "type": "object",
    "properties": {
        "pred": {"type": "string"},
        "args": {"type": "array"},
        "named_args": {"type": "object"},
        "t": {
            "anyOf": [
                {"type": "object", "properties": {"at": _TIME}, "required": ["at"]},
                {"type": "object", "properties": {"start": _TIME, "end": _TIME}, "required": ["start", "end"]},
                _NULL,
            ]
        },
        "source": {
            "type": ["object", "null"],
            "properties": {
                "source_type": {"type": "string"},
                "source_id": {"type": ["string", "null"]},
                "asserted_at": {"anyOf": [_TIME, _NULL]},
            },
            "required": ["source_type"],
        },
        "category": {"enum": ["server", "session", "derived", None]},
    },
    "required": ["pred"],
    "oneOf": [{"required": ["args"]}, {"required": ["named_args"]}],
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
            "properties": {"limit": _AMOUNT, "consumed": _AMOUNT, "unit": {"type": "string"}},
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
        "properties": {"details": {"required": ["requested_version", "supported_versions"]}},
        "required": ["details"],
    },
}


def schema(type_: str) -> dict[str, Any]:
    """The schema of one message type, complete in itself."""
    name = TYPES[type_].__name__
    found = _components()
    needed = {used: copy.deepcopy(found[used]) for used in sorted(_reachable(name, found) - {name})}
    root = copy.deepcopy(found[name])
    return {"$schema": DIALECT, "$id": f"urn:manglecp:{VERSION}:{type_}", **root, "$defs": needed}


def all_schemas() -> dict[str, Any]:
    """One schema that takes any message; ``$defs`` has every part of every message, and the structured clause."""
    any_message = [{"$ref": f"{_REF}{message.__name__}"} for message in TYPES.values()]
    defs = copy.deepcopy(dict(sorted(_components().items())))
    return {"$schema": DIALECT, "$id": f"urn:manglecp:{VERSION}", "oneOf": any_message, "$defs": defs}


def choices(message: type[Message], path: str) -> list[str]:
    """The texts among which the member at a path such as ``$.payload.options.disclosure_preference`` has to choose."""
    found = _components()
    node: Any = found[message.__name__]
    for step in re.findall(r"\.([^.\[]+)|\[", path):
        node = _resolved(node, found)
        node = node.get("properties", {}).get(step, {}) if step else node.get("items", {})
    node = _resolved(node, found)
    options: list[Any] = node.get("enum") or next((o["enum"] for o in node.get("anyOf", ()) if "enum" in o), [])
    return [option for option in options if isinstance(option, str)]


# --- from structs ----------------------------------------------------------------------------------------------------


@cache
def _components() -> dict[str, dict[str, Any]]:
    _, found = msgspec.json.schema_components(
        [*TYPES.values(), StructuredClause, Violation, SchemaError], ref_template=f"{_REF}{{name}}"
    )
    for name, component in found.items():
        _drop_discriminators(component)
        _tidy(component, nullable=name in _NULLABLE)
    for message in TYPES.values():
        envelope = found[message.__name__]
        envelope["properties"]["manglecp"] = {"enum": list(SUPPORTED_VERSIONS)}
        envelope["required"] = ["type", "id", "manglecp", "payload"]
    found["Fact"] = copy.deepcopy(_FACT)
    found["ErrorDetails"] = copy.deepcopy(_DETAILS)
    error = found["ErrorPayload"]
    error["properties"]["details"] = {"$ref": f"{_REF}ErrorDetails"}
    error["allOf"] = [copy.deepcopy(_NEGOTIATION)]
    found["MacroTool"]["allOf"] = [_level(level, *members) for level, members in PRESENCE.items()]
    return found


def _tidy(component: dict[str, Any], *, nullable: bool) -> None:
    required = component.get("required", [])
    for name, member in component.get("properties", {}).items():
        member.pop("default", None)  # of our structs; a foreign server that leaves a member out may mean another
        if nullable and name not in required and _NULL not in member.get("anyOf", ()):
            component["properties"][name] = {"anyOf": [member, dict(_NULL)]}
    if not required:
        component.pop("required", None)


def _drop_discriminators(node: Any) -> None:
    """A word of OpenAPI, not of JSON Schema."""
    if isinstance(node, dict):
        node.pop("discriminator", None)
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            _drop_discriminators(part)


def _level(level: str, needed: frozenset[str], banned: frozenset[str]) -> dict[str, Any]:
    then: dict[str, Any] = {}
    if needed:
        then["required"] = sorted(needed)
    if banned:
        then["properties"] = dict.fromkeys(sorted(banned), False)
    return {"if": {"properties": {"disclosure_level": {"const": level}}}, "then": then}


def _reachable(name: str, found: Mapping[str, Any]) -> set[str]:
    seen: set[str] = set()
    pending = [name]
    while pending:
        if (current := pending.pop()) not in seen:
            seen.add(current)
            pending += _references(found[current])
    return seen


def _references(node: Any) -> Iterable[str]:
    if isinstance(node, dict):
        if isinstance(reference := node.get("$ref"), str):
            yield reference.removeprefix(_REF)
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from _references(part)


def _resolved(node: dict[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Behind references; where null is an alternative, what is not null."""
    while True:
        if "$ref" in node:
            node = found[node["$ref"].removeprefix(_REF)]
            continue
        structural = [option for option in node.get("anyOf", ()) if "$ref" in option or "properties" in option]
        if not structural:
            return node
        node = structural[0]
