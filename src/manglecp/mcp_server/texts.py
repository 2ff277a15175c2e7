"""Results as short texts that a model can act on. The same content is in ``structuredContent``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from manglecp.client import EvaluationResult, InvocationResult, Tool
from manglecp.wire import error_lines, fact_text
from manglecp.wire.messages import UNSET, IntentDescription

_MAX_INLINE_SKILL: Final = 4_000  # characters; longer skills are read as resources
_REMEDIES: Final = {
    "macro_not_found": "Declare the intent again: this handle is not one of yours now.",
    "macro_expired": "Declare the intent again: the tool is not proven any more.",
    "x-unknown_intent": "The argument intent of declare_intent describes those that are listed.",
}


def evaluation_text(found: EvaluationResult, intents: Iterable[IntentDescription]) -> str:
    """Return the proven tools with handles and arguments, or the facts that the intent reads."""
    intent = found.request.intent.name
    if not found:
        reads = [fact for one in intents if one.name == intent for fact in one.optional_facts or ()]
        which = f" It reads the facts {', '.join(reads)}: state those that you know." if reads else ""
        is_limited = found.request.constraints.max_tokens_budget is not None
        budget = " Or the budget is too small: repeat this without it." if is_limited else ""
        unproven = f"No tool is proven for {intent} with these facts.{which}{budget}"
        return f"{unproven} explain says what a tool needs, by its name."
    lines = [f"Proven for {intent}: call invoke with a handle and args; ? marks an optional argument."]
    for tool in found:
        lines += tool_lines(tool)
    for skill_id, content in _skills(found).items():
        text = f"read skill://{skill_id}" if len(content) > _MAX_INLINE_SKILL else content
        lines += ["", f"Skill {skill_id}: {text}"]
    return "\n".join(lines)


def tool_lines(tool: Tool) -> Iterator[str]:
    """Yield a tool with its handle and arguments."""
    schema = tool.input_schema or {}
    arguments, required = schema.get("properties", {}), schema.get("required", ())
    names = sorted(arguments, key=lambda name: name not in required)
    signature = ", ".join(f"{name}{'' if name in required else '?'}: {_type_text(arguments[name])}" for name in names)
    yield f"{tool.name}({signature}), handle {tool.macro_id}: {tool.description}"
    for name in names:
        if isinstance(argument := arguments[name], dict) and "description" in argument:
            yield f"  {name}: {argument['description']}"
    context = tool.definition.context_injection
    if context is not UNSET:
        if context.instructions is not UNSET:
            yield f"  {context.instructions}"
        yield from (f"  follow the skill {skill.skill_id}" for skill in context.skills or ())
        yield from (f"  read {resource.uri}" for resource in context.context_resources or ())
    if tool.needs_approval:
        yield "  needs the approval of a person"


def _type_text(schema: Any) -> str:
    """Return a schema as a type; JSON if it has more than types, values and a default."""
    if not isinstance(schema, dict):
        return "any"
    rest = {key: value for key, value in schema.items() if key not in ("description", "title", "default")}
    if "enum" in rest:
        text = " | ".join(map(json.dumps, rest["enum"]))
    elif rest.keys() == {"type"} and isinstance(rest["type"], str):
        text = rest["type"]
    elif rest.keys() == {"type", "items"} and rest["type"] == "array":
        text = f"array of {_type_text(rest['items'])}"
    else:
        text = json.dumps(rest, ensure_ascii=False, separators=(",", ":")) if rest else "any"
    return f"{text} = {json.dumps(schema['default'])}" if "default" in schema else text


def _skills(found: EvaluationResult) -> dict[str, str]:
    """Return the texts of the skills that the tools refer to, by id."""
    texts = {skill.skill_id: skill.content for skill in found.result.required_skills or ()}
    for tool in found:
        context = tool.definition.context_injection
        for skill in () if context is UNSET else context.skills or ():
            if skill.content is not UNSET:
                texts[skill.skill_id] = skill.content
    return texts


def tool_document(tool: Tool) -> dict[str, Any]:
    """Return a tool for ``structuredContent``."""
    document: dict[str, Any] = {
        "handle": tool.macro_id,
        "name": tool.name,
        "description": tool.description,
        "input_schema": dict(tool.input_schema or {}),
    }
    if tool.needs_approval:
        document["needs_approval"] = True
    context, validity = tool.definition.context_injection, tool.definition.validity
    if context is not UNSET and context.skills is not UNSET:
        document["skills"] = [f"skill://{skill.skill_id}" for skill in context.skills]
    if validity is not UNSET and validity.expires_at is not UNSET:
        document["expires_at"] = validity.expires_at
    return document


def invocation_text(outcome: InvocationResult) -> str:
    """Return the result of a run, and what the rules suggest next."""
    lines = [outcome.summary] if outcome.summary else []
    lines.append(json.dumps(outcome.result, ensure_ascii=False, separators=(",", ":")))
    for intent in outcome.suggestions:
        facts = ", ".join(fact_text(fact) for fact in outcome.continuation_facts)
        lines.append(f"Next: declare_intent {intent.name}{f' with the facts {facts}' if facts else ''}")
    return "\n".join(lines)


def error_text(code: str, message: str, details: Mapping[str, Any]) -> str:
    """Return an error with what is wrong, where, and what to do next."""
    lines: list[str] = list(map(str, error_lines(code, message, details)))
    for error in _dicts(details.get("schema_errors")):
        lines.append(f"  {error.get('path') or '/'}: {error.get('message', '')}")
    for event in _dicts(details.get("events")):
        if event.get("status") == "failure" and event.get("detail") != message:
            lines.append(f"  {event.get('action')}: {event.get('detail')}")
    if code in _REMEDIES:
        lines.append(f"  {_REMEDIES[code]}")
    return "\n".join(lines)


def approval_refusal(approval: str, details: Mapping[str, Any], approve_with: str) -> str:
    """Return how the call can be approved, for a host that cannot ask, or whose user may not approve it."""
    challenge = details.get("challenge")
    challenge = challenge if isinstance(challenge, dict) else {}
    lines = ["A person has to approve this call; nothing was executed. Tell the user to run"]
    lines.append(f"  manglecp approvals approve {approval}{approve_with}")
    if roles := challenge.get("roles"):
        lines.append(f"The approver needs the permission {' and '.join(map(str, roles))}.")
    if challenge.get("four_eyes"):
        lines.append("The approver must be another person than the requester.")
    lines.append("Then repeat this call with the same arguments; other arguments need another approval.")
    return "\n".join(lines)


def _dicts(value: object) -> Iterable[dict[str, Any]]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list | tuple) else ()
