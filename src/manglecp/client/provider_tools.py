"""Tools in the formats of model providers. Names of tools fit all of them: packs with other names are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from manglecp.client.errors import RequestRefused

if TYPE_CHECKING:
    from manglecp.client.results import Tool

_SUBSCHEMAS: Final = ("items", "additionalProperties", "not")
_SUBSCHEMA_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SUBSCHEMA_MAPS: Final = ("properties", "$defs")


class _NotStrict(Exception):
    """A schema has an object of any members, which strict mode cannot express."""


def to_anthropic(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return the argument ``tools`` of the Messages API."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": _close(_input_schema(tool))}
        for tool in tools
    ]


def to_openai(tools: Iterable[Tool], *, strict: bool = True, chat: bool = False) -> list[dict[str, Any]]:
    """Return the argument ``tools`` of the Responses API, or with ``chat`` of the Chat Completions API.

    With ``strict``, optional arguments are required and may be null, which :meth:`.Client.invoke` reads as absent. A
    tool with an object of any members has ``strict`` false, because strict mode cannot express it.
    """
    functions = [_function(tool, strict=strict) for tool in tools]
    return [{"type": "function", "function": each} if chat else {"type": "function", **each} for each in functions]


def _function(tool: Tool, *, strict: bool) -> dict[str, Any]:
    parameters = _close(_input_schema(tool))
    if strict:
        try:
            parameters = _strict(parameters)
        except _NotStrict:
            strict = False
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters,
        "strict": strict,
    }


def _input_schema(tool: Tool) -> Mapping[str, Any]:
    if tool.input_schema is None:
        message = f"{tool.name} was not sent in full: pass level='full' to evaluate, or upgrade the tool"
        raise RequestRefused("not_in_full", message)
    return tool.input_schema


def _close(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with ``additionalProperties: false`` in each object that lists its members."""
    closed_schema = _rewrite(schema, _close)
    if closed_schema.get("type") == "object" and "additionalProperties" not in closed_schema:
        closed_schema.setdefault("properties", {})
        closed_schema["additionalProperties"] = False
    return closed_schema


def _strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a closed schema in which every member is required. Raises :class:`_NotStrict`."""
    strict = _rewrite(schema, _strict)
    strict.pop("default", None)
    if strict.get("type") == "object":
        if strict.get("additionalProperties") is not False or "patternProperties" in strict:
            raise _NotStrict
        required = strict.get("required", ())
        strict["properties"] = {
            name: member if name in required else {"anyOf": [member, {"type": "null"}]}
            for name, member in strict.get("properties", {}).items()
        }
        strict["required"] = list(strict["properties"])
    elif not strict.keys() & {"type", "enum", "const", "anyOf", "$ref"}:
        raise _NotStrict  # any value
    return strict


def _rewrite(schema: Mapping[str, Any], rewrite: Callable[[Mapping[str, Any]], Any]) -> dict[str, Any]:
    """Return the schema with its subschemas rewritten."""
    result = dict(schema)
    for key in _SUBSCHEMAS:
        if isinstance(result.get(key), Mapping):
            result[key] = rewrite(result[key])
    for key in _SUBSCHEMA_LISTS:
        if isinstance(result.get(key), list | tuple):
            result[key] = [rewrite(one) if isinstance(one, Mapping) else one for one in result[key]]
    for key in _SUBSCHEMA_MAPS:
        if isinstance(result.get(key), Mapping):
            result[key] = {name: rewrite(one) if isinstance(one, Mapping) else one for name, one in result[key].items()}
    return result
