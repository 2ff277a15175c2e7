"""Tools, results and errors as lines of text.

The lines are not escaped, and may contain any text of clients and servers: print results with :func:`styled`, errors
with ``print_stderr``.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from manglecp.base.text import escape_invisible
from manglecp.cli.intent_request import decode_value
from manglecp.cli.output import columns, count
from manglecp.wire import Heading, WireError, coverage_lines, derivation_lines, error_lines, fact_text, why_not_lines
from manglecp.wire.messages import UNSET, IntentResult, InvokeResult, MacroTool, ProofHints, UnsetType

_UNKNOWN: Final = "-"  # the text of a cell without a value
_COLUMNS: Final = ("TOOL", "LEVEL", "SCORE", "PHASE", "EFFECTS", "EXPIRES")


def styled(lines: Iterable[str], bold: Callable[[str], str]) -> Iterator[str]:
    """Escape invisible characters, and apply ``bold`` to headings."""
    for line in lines:
        yield bold(escape_invisible(line)) if isinstance(line, Heading) else escape_invisible(line)


def argument_schemas(tool: MacroTool) -> dict[str, Mapping[str, Any]]:
    """Return the schema of each argument. The schema ``true`` of JSON Schema is returned as an empty mapping."""
    properties = (tool.input_schema or {}).get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {name: schema if isinstance(schema, Mapping) else {} for name, schema in properties.items()}


def _score(tool: MacroTool) -> int | float | None:
    return None if not tool.metadata or tool.metadata.score is UNSET else tool.metadata.score


def result_lines(
    result: IntentResult, full_tools: Mapping[str, MacroTool], invalid_count: int, *, why: bool
) -> Iterator[str]:
    """Render the result of an intent. ``full_tools`` are full definitions by macro_id; the result may abridge them.

    ``why`` adds derivations, exclusions and unused facts. ``invalid_count`` proven tools have an invalid definition.
    """
    tools = result.macro_tools
    definitions = {**{tool.macro_id: tool for tool in tools}, **full_tools}
    if tools:
        rows = (_row(tool, definitions[tool.macro_id]) for tool in tools)
        headings, *lines = columns([_COLUMNS, *rows], right=_COLUMNS.index("SCORE"))
        yield Heading(headings)
        yield from lines
        best_tool = max(tools, key=lambda tool: _score(definitions[tool.macro_id]) or 0)  # the first of the best
        yield ""
        yield from tool_lines(definitions[best_tool.macro_id])
    else:
        yield _no_tools_text(result, invalid_count)
    if why and result.proof_hints:
        yield from _why_lines(result.proof_hints, definitions)
    yield from blocked_tool_lines(result.proof_hints)
    if result.diagnostics is UNSET:
        return
    if result.diagnostics.rule_coverage:
        yield ""
        yield from coverage_lines(result.diagnostics.rule_coverage)
    tokens: Mapping[str, Any] = result.diagnostics.tokens or {}
    number = tokens.get("count")
    size = f", {number:,} tokens by {tokens.get('by')}" if isinstance(number, int) else ""
    yield ""
    yield f"{count(len(tools), 'tool')} at {result.eval_time_used}{size}"


def _no_tools_text(result: IntentResult, invalid_count: int) -> str:
    diagnostics = result.diagnostics
    if diagnostics is UNSET or diagnostics.tools_proven is UNSET:
        return "No tool is proven for this intent."
    proven_count = diagnostics.tools_proven
    has_only_invalid = proven_count == invalid_count
    reason = "has a valid definition" if has_only_invalid else "fits the budget, --max-tools or the score limit"
    return f"{count(proven_count, 'tool')} proven for this intent, but none {reason}."


def blocked_tool_lines(hints: ProofHints | UnsetType) -> Iterator[str]:
    """Yield what blocks each tool of a why-not query, after an empty line."""
    for blocked_tool in (hints.why_not or ()) if hints else ():
        yield ""
        yield from why_not_lines(blocked_tool)


def _row(tool: MacroTool, definition: MacroTool) -> tuple[str, ...]:
    """Return the cells: name and level from the ``tool`` as sent, the other cells from its full ``definition``."""
    score, validity = _score(definition), definition.validity
    return (
        tool.name,
        tool.disclosure_level,
        _UNKNOWN if score is None else str(score),
        (definition.metadata and definition.metadata.selection_phase) or _UNKNOWN,
        ",".join(definition.safety.side_effects) if definition.safety else _UNKNOWN,
        (validity and validity.expires_at) or _UNKNOWN,
    )


def _type_text(schema: Mapping[str, Any]) -> str:
    """Return the types that a JSON Schema permits, except null, such as ``string or integer``."""
    types = schema.get("type")
    if types is None and isinstance(alternatives := schema.get("anyOf"), list):
        types = [alternative.get("type") for alternative in alternatives if isinstance(alternative, Mapping)]
    names = types if isinstance(types, list) else [types]
    return " or ".join(dict.fromkeys(name for name in names if isinstance(name, str) and name != "null")) or "any"


def tool_lines(tool: MacroTool) -> Iterator[str]:
    """Describe a tool: its instructions, arguments, skills, resources, and whether it needs approval."""
    context = tool.context_injection
    yield Heading(f"{tool.name}: {tool.description}" if tool.description else tool.name)
    if context:
        yield from (f"  {line}" for line in (context.instructions or "").splitlines() if line)
    required_names = (tool.input_schema or {}).get("required", ())
    for name, schema in sorted(argument_schemas(tool).items()):
        optional = "" if name in required_names else ", optional"
        meaning = f": {schema['description']}" if "description" in schema else ""
        yield f"  {name} ({_type_text(schema)}{optional}){meaning}"
    if context and context.skills:
        yield f"  skills: {', '.join(skill.skill_id for skill in context.skills)}"
    if context:
        yield from (f"  read {item.uri}: {item.relevance or ''}" for item in context.context_resources or ())
    if tool.safety and tool.safety.requires_user_confirmation:
        yield "  needs approval"


def _why_lines(hints: ProofHints, definitions: Mapping[str, MacroTool]) -> Iterator[str]:
    for derivation in hints.derivations:
        yield ""
        tool = definitions.get(derivation.macro_id)
        yield from derivation_lines(derivation.macro_id if tool is None else tool.name, derivation)
    if hints.excluded:
        yield ""
        yield Heading("excluded")
        yield from (f"  {tool.candidate}, {tool.excluded_by}: {tool.reason}" for tool in hints.excluded)
    if hints.unmatched_facts:
        yield ""
        yield Heading("facts that were not used")
        yield from (f"  {fact.pred}: {fact.reason}" for fact in hints.unmatched_facts)


def wire_error_lines(error: WireError) -> Iterator[str]:
    return error_lines(error.code, error.message, error.details)


def missing_fact_lines(error: WireError) -> Iterator[str]:
    """Yield the options of the command line that supply the missing facts of the error."""
    return (f"  add --fact '{name}(…)'" for name in (error.details or {}).get("missing_facts", ()))


_MAX_JSON_WIDTH: Final = 100  # longer JSON is printed on several lines
_EFFECT_TEXT: Final = {"done": "it happened", "undone": "it happened and was undone", "unknown": "it may have happened"}


def answer_lines(answer: InvokeResult) -> Iterator[str]:
    """Render the result of an invocation."""
    yield Heading(answer.observability.summary or "Done.")
    if answer.result:
        yield ""
        yield Heading("result")
        for name, value in answer.result.items():
            yield from _value_lines(name, value)
    yield from _event_lines(msgspec.to_builtins(answer.observability.events))
    if omitted_count := answer.observability.events_omitted:
        yield f"  {omitted_count} more steps without an event"
    yield from _delta_lines(answer.state_delta.asserts, answer.state_delta.retract)
    if answer.next.suggested_intents or answer.next.continuation_facts:
        yield ""
        yield Heading("next")
    for intent in answer.next.suggested_intents:
        params = "".join(f" --param {assignment(name, value)}" for name, value in (intent.params or {}).items())
        yield f"  {intent.name}{params}{'' if intent.description is UNSET else f': {intent.description}'}"
    yield from (f"  with {fact_text(fact)}" for fact in answer.next.continuation_facts)


def failure_lines(error: WireError, host_lines: Iterable[str] = ()) -> Iterator[str]:
    """Render the error of an invocation. ``host_lines`` are what host processes wrote about failed calls."""
    yield from wire_error_lines(error)
    details: Mapping[str, Any] = error.details or {}
    effects = details.get("effects", ())
    for schema_error in details.get("schema_errors", ()):
        yield f"  {schema_error['path'] or '/'}: {schema_error['message']}"
    if details.get("failure_classes"):
        yield f"  {', '.join(details['failure_classes'])}"
    for effect in effects:
        yield f"  step {effect['step']}, {effect['action']}: {_EFFECT_TEXT[effect['status']]}"
    for event in details.get("events", ()):
        if event["status"] == "failure" and "detail" in event:
            yield f"  {event['action']}: {event['detail']}"
    yield from host_lines
    delta = details.get("state_delta") or {}
    yield from _delta_lines(delta.get("assert", ()), delta.get("retract", ()))
    run = details.get("run_id")
    if run is not None:
        yield f"  run {run}"
        if details.get("reason") == "needs_decision":
            steps_in_doubt = [effect["step"] for effect in effects if effect["status"] == "unknown"]
            yield from decision_lines(run, min(steps_in_doubt, default=None))


def decision_lines(run: str, step: int | None) -> Iterator[str]:
    """Yield the commands that decide a run; ``step`` is the step in doubt, if there is one."""
    decide_command = f"    manglecp runs decide {run}"
    if step is not None:
        yield f"  Find out whether step {step} happened. Then decide with one of"
        yield f"{decide_command} --step {step} --happened [--output FILE]"
        yield f"{decide_command} --step {step} --did-not"
    else:
        yield "  No step is in doubt. Resume the run, or end it, with one of"
        yield f"    manglecp runs resume {run} PACK"
    yield f"{decide_command} --abort"


def _value_lines(name: str, value: Any) -> Iterator[str]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str) and len(text) > _MAX_JSON_WIDTH:
        text = json.dumps(value, ensure_ascii=False, indent=2)
    if "\n" in text:
        yield f"  {name}:"
        yield from (f"    {line}" for line in text.splitlines())
    else:
        yield f"  {name}: {text}"


def _event_lines(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not events:
        return
    yield ""
    yield Heading("events")
    width = max(len(event["action"]) for event in events)
    for event in events:
        duration = f"{event['duration_ms']} ms" if "duration_ms" in event else ""
        detail = f"  {event['detail']}" if "detail" in event else ""
        yield f"  {event['status']:<7}  {event['action']:<{width}}  {duration}{detail}".rstrip()


def _delta_lines(asserted: Sequence[Mapping[str, Any]], retracted: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if asserted or retracted:
        yield ""
        yield Heading("delta")
    yield from (f"  + {fact_text(fact)}" for fact in asserted)
    yield from (f"  - {fact_text(fact)}" for fact in retracted)


def assignment(name: str, value: Any) -> str:
    """Return ``NAME=VALUE`` quoted for a shell. Text that would be read as JSON is written as a JSON string."""
    is_plain = isinstance(value, str) and decode_value(value) == value
    return shlex.quote(f"{name}={value if is_plain else json.dumps(value, ensure_ascii=False)}")
