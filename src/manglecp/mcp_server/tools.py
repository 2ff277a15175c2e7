"""Definitions of the three fixed tools, whose list never changes, and the instructions for the model."""

from __future__ import annotations

from typing import Any, Final

import mcp_types as types

from manglecp.wire.messages import UNSET, ManifestPayload

DECLARE: Final = "declare_intent"
INVOKE: Final = "invoke"
EXPLAIN: Final = "explain"
_HIDDEN: Final = ("bulk_asserted", "bulk_retracted")  # predicates of other clients, not of a model
_MAX_LISTED: Final = 10  # intents in the instructions
_UNLISTED: Final = "not listed by this server, ask the user for the name"
_STRING: Final[dict[str, Any]] = {"type": "string"}
_OBJECT: Final[dict[str, Any]] = {"type": "object"}
# A list of types is less portable than anyOf: clients for some providers refuse the tool.
_FACTS: Final[dict[str, Any]] = {"type": "array", "items": {"anyOf": [_STRING, _OBJECT]}}


def instructions(manifest: ManifestPayload) -> str:
    """Return how to use the three tools, and the names of the intents, which the first tool describes."""
    names = [intent.name for intent in manifest.intents]
    intents = ", ".join(names[:_MAX_LISTED]) + (", …" if len(names) > _MAX_LISTED else "")
    return (
        f"Rules decide which tools exist for you now. 1. {DECLARE} with what the user wants, and the facts that you "
        f"know: it returns the tools that are proven for that, each with a handle. 2. {INVOKE} with a handle and "
        f"arguments. 3. {EXPLAIN} says why a tool is offered, or what is missing if it is not. Never invent facts or "
        f"handles. After a refusal, do what it says, or tell the user. Intents: {intents or _UNLISTED}."
    )


def fixed_tools(manifest: ManifestPayload) -> list[types.Tool]:
    """Return the three tools, always in this order."""
    described = "; ".join(f"{one.name}: {one.description}" for one in manifest.intents)
    intent: dict[str, Any] = {"type": "string", **({"description": described} if described else {})}
    stated = "; ".join(
        f"{one.predicate}({', '.join(one.arg_types if one.arg_names is UNSET else one.arg_names)})"
        f"{'' if one.description is UNSET else f' - {one.description}'}"
        for one in manifest.facts_profile.predicates
        if one.direction != "output" and one.predicate not in _HIDDEN
    )
    facts = {**_FACTS, "description": f'What you know, such as p("a", 1). Predicates: {stated or "none"}'}
    handle = {"type": "string", "description": f"of a tool that {DECLARE} returned"}
    return [
        types.Tool(
            name=DECLARE,
            title="Declare an intent",
            description="Return the tools that are proven for an intent with these facts.",
            input_schema=_schema(
                ["intent"],
                intent=intent,
                params=_OBJECT,
                facts=facts,
                budget={"type": "integer", "minimum": 0, "description": "of tokens"},
            ),
            output_schema=_result_schema(tools={"type": "array", "items": _OBJECT}),
            annotations=types.ToolAnnotations(
                read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
            ),
        ),
        types.Tool(
            name=INVOKE,
            title="Invoke a proven tool",
            description="Run a tool that was proven for you. It is decided again, with these arguments.",
            input_schema=_schema(
                ["handle"],
                handle=handle,
                args=_OBJECT,
                request_key={"type": "string", "description": "the same key repeats no effect"},
            ),
            output_schema=_result_schema(result=_OBJECT, summary=_STRING, next={"type": "array", "items": _OBJECT}),
            annotations=types.ToolAnnotations(
                read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
            ),
        ),
        types.Tool(
            name=EXPLAIN,
            title="Explain a tool",
            description="Say why a tool is offered, or what it lacks. Pass a handle, or tool and intent.",
            input_schema=_schema(
                ["question"],
                question={"enum": ["why", "why_not"]},
                handle=handle,
                tool=_STRING,
                intent={"type": "string"},
                params=_OBJECT,
                facts=_FACTS,
            ),
            output_schema=_result_schema(tool=_STRING, text=_STRING, would_unlock={"type": "array"}),
            annotations=types.ToolAnnotations(
                read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
            ),
        ),
    ]


def _schema(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _result_schema(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of results and errors: some hosts check errors, too, and hide one that does not fit."""
    return _schema([], error=_OBJECT, **properties)
