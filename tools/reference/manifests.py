"""The members of all messages, from the JSON Schemas of their structs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from manglecp.wire import TYPES, all_schemas
from manglecp.wire.messages import CLIENT_TYPES
from tools.reference.tables import cell, table

__all__ = ["blocks"]

_REF: Final = "#/$defs/"
_ENVELOPE: Final = "payload"


def blocks() -> dict[str, Callable[[], str]]:
    return {"message types": _types, "message members": _members}


def _types() -> str:
    definitions = all_schemas()["$defs"]
    rows = []
    for name, struct in TYPES.items():
        properties = definitions[struct.__name__]["properties"]
        identified = {"string": "a string that is not empty", "null": "null"}
        kinds = " or ".join(identified[kind] for kind in _kinds(properties["id"]))
        sender = "client" if name in CLIENT_TYPES else "server"
        payload = properties[_ENVELOPE]["$ref"].removeprefix(_REF)
        rows.append((f"`{name}`", sender, kinds, f"[{payload}](#{payload.lower()})"))
    return table(("type", "sent by", "`id`", "payload"), rows)


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    parts = schema.get("anyOf") or [schema]
    return [part["type"] for part in parts]


def _members() -> str:
    definitions = all_schemas()["$defs"]
    shown = [
        definitions[struct.__name__]["properties"][_ENVELOPE]["$ref"].removeprefix(_REF) for struct in TYPES.values()
    ]
    for name in shown:  # the list grows during the iteration
        shown += [one for one in _named_in(definitions[name]) if one not in shown]
    parts = []
    for name in shown:
        definition = definitions[name]
        about = cell(definition.get("description", ""))
        rows = [
            (f"`{member}`", _shown(schema), "yes" if member in definition.get("required", ()) else "")
            for member, schema in definition["properties"].items()
        ]
        parts += [f"### {name}\n", *([f"{about}\n"] if about else []), table(("member", "value", "needed"), rows)]
    return "\n".join(parts)


def _named_in(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if "$ref" in schema:
            yield schema["$ref"].removeprefix(_REF)
        for part in schema.values():
            yield from _named_in(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _named_in(part)


def _shown(schema: Mapping[str, Any]) -> str:
    """Return a short description of a schema; ``manglecp schema`` prints the whole."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"] if choice is not None)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_shown(part) for part in schema["anyOf"] if part.get("type") != "null"))
    kinds = schema.get("type", "anything")
    kinds = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"]
    text = " or ".join(kinds)
    if schema.get("items"):
        text += f" of {_shown(schema['items'])}"
    inner = schema.get("additionalProperties")
    if isinstance(inner, Mapping) and inner:
        text += f" of {_shown(inner)}"
    return text
