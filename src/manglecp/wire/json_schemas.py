"""JSON Schema of every message, generated from the structs that read and write messages.

The schemas allow unknown members, and null for an absent member. A client accepts more than the schemas do: unknown
words, and any JSON in the informational parts of a response. ``schema_parts.json`` adds what structs cannot express:
facts, the details of errors, and conditions between members. ``message_reader`` does not check facts or the details of
errors: a request with invalid facts is still a message, and a client has to receive every error.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from manglecp.mangle import INT_MAX
from manglecp.wire.clauses import StructuredClause
from manglecp.wire.errors import SchemaError, Violation
from manglecp.wire.messages import CLIENT_TYPES, LEVEL_MEMBERS, SERVER_TYPES, SUPPORTED_VERSIONS, VERSION, Message
from manglecp.wire.values import NS_PER_MS

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
TYPES: Final[Mapping[str, type[Message]]] = {**CLIENT_TYPES, **SERVER_TYPES}

_DEFS: Final = "#/$defs/"
_REFERENCE: Final = re.compile(rf'"\$ref": "{re.escape(_DEFS)}(\w+)"')
_NULL: Final = {"type": "null"}
_MAX_MILLISECONDS: Final = INT_MAX // NS_PER_MS


def schema(type_: str) -> dict[str, Any]:
    """Return the self-contained schema of one message type."""
    name = TYPES[type_].__name__
    components = _components()
    defs = {used: copy.deepcopy(components[used]) for used in sorted(_reachable(name, components) - {name})}
    root = copy.deepcopy(components[name])
    return {"$schema": DIALECT, "$id": f"urn:manglecp:{VERSION}:{type_}", **root, "$defs": defs}


def all_schemas() -> dict[str, Any]:
    """Return one schema for any message; its ``$defs`` contain all parts, and the structured clause."""
    any_message = [{"$ref": f"{_DEFS}{message.__name__}"} for message in TYPES.values()]
    defs = copy.deepcopy(dict(sorted(_components().items())))
    return {"$schema": DIALECT, "$id": f"urn:manglecp:{VERSION}", "oneOf": any_message, "$defs": defs}


@cache
def _components() -> dict[str, dict[str, Any]]:
    """Return the schemas of all structs by name. A caller has to copy the schemas that it returns or changes."""
    _, components = msgspec.json.schema_components(
        [*TYPES.values(), StructuredClause, Violation, SchemaError], ref_template=f"{_DEFS}{{name}}"
    )
    milliseconds = {"type": "integer", "minimum": -_MAX_MILLISECONDS, "maximum": _MAX_MILLISECONDS}
    for name, member in (("IntentResult", "eval_time_used"), ("Validity", "not_before"), ("Validity", "expires_at")):
        components[name]["properties"][member] = {"anyOf": [{"type": "string"}, dict(milliseconds)]}
    for component in components.values():
        _simplify(component)
        _allow_nulls(component)
    for message in TYPES.values():
        envelope = components[message.__name__]
        envelope["properties"]["manglecp"] = {"enum": list(SUPPORTED_VERSIONS)}
        envelope["required"] = ["type", "id", "manglecp", "payload"]
    parts: dict[str, dict[str, Any]] = json.loads(files(__package__).joinpath("schema_parts.json").read_text("utf-8"))
    for name, part in parts.items():
        components.setdefault(name, {}).update(part)
    components["ErrorPayload"]["properties"]["details"] = {"anyOf": [{"$ref": f"{_DEFS}ErrorDetails"}, dict(_NULL)]}
    components["MacroTool"]["allOf"] = [_level_condition(level, *members) for level, members in LEVEL_MEMBERS.items()]
    return components


def _allow_nulls(component: dict[str, Any]) -> None:
    """Allow null where a member is optional, and drop defaults: another server may have other defaults."""
    required = component.get("required", [])
    for name, member in component.get("properties", {}).items():
        member.pop("default", None)
        if name not in required and member != _NULL and _NULL not in member.get("anyOf", ()):
            component["properties"][name] = {"anyOf": [member, dict(_NULL)]}
    if not required:
        component.pop("required", None)


def _simplify(node: Any) -> None:
    """Drop ``discriminator``, a keyword of OpenAPI, and a ``pattern`` beside an equivalent ``enum`` or ``anyOf``."""
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
