"""Tools, results and errors as text."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from manglecp.base.text import escape_invisible
from manglecp.cli.intent_request import value_of
from manglecp.cli.output import columns, count
from manglecp.wire import Heading, WireError, coverage_lines, derivation_lines, error_lines, fact_text, why_not_lines
from manglecp.wire.messages import UNSET, IntentResult, InvokeResult, MacroTool, ProofHints, UnsetType

_UNKNOWN: Final = "-"


def argument_schemas(tool: MacroTool) -> dict[str, Mapping[str, Any]]:
    """Return the arguments and their schemas. A server may send any JSON for a schema, such as true."""
    given = None if tool.input_schema is UNSET else tool.input_schema.get("properties")
    if not isinstance(given, Mapping):
        return {}
    return {name: one if isinstance(one, Mapping) else {} for name, one in given.items()}


def _score(tool: MacroTool) -> int | float | None:
    metadata = tool.metadata
    return None if metadata is UNSET or metadata.score is UNSET else metadata.score


def _text(text: str | UnsetType, default: str = "") -> str:
    return default if text is UNSET else text


HEADINGS: Final = ("TOOL", "LEVEL", "SCORE", "PHASE", "EFFECTS", "EXPIRES")
_RIGHT: Final = 2


def result_lines(
    result: IntentResult,
    known: Mapping[str, MacroTool] | None = None,
    *,
    why: bool = False,
    bold: Callable[[str], str] = str,
    flaws: int = 0,
) -> Iterator[str]:
    """Render a result message; ``known`` are full definitions of tools by id, beyond what the message discloses.

    ``why`` adds derivations, exclusions and unused facts. ``flaws`` counts proven tools with an invalid definition.
    Facts may contain any text, such as a page's console output, so invisible characters are escaped.
    """
    sent = {tool.macro_id: tool for tool in result.macro_tools}
    return _styled(_result_lines(result, {**sent, **(known or {})}, why, flaws), bold)


def tool_lines(tool: MacroTool, *, bold: Callable[[str], str] = str) -> Iterator[str]:
    return _styled(_described(tool), bold)


def _styled(lines: Iterable[str], bold: Callable[[str], str]) -> Iterator[str]:
    for line in lines:
        yield bold(escape_invisible(line)) if isinstance(line, Heading) else escape_invisible(line)


def _result_lines(result: IntentResult, known: Mapping[str, MacroTool], why: bool, flaws: int) -> Iterator[str]:
    tools = result.macro_tools
    if tools:
        headings, *rows = columns([HEADINGS, *(_row(tool, known[tool.macro_id]) for tool in tools)], right=_RIGHT)
        yield Heading(headings)
        yield from rows
        best = max(tools, key=lambda tool: _score(known[tool.macro_id]) or 0)  # the first of equals
        yield ""
        yield from _described(known[best.macro_id])
    else:
        yield _no_tools_text(result, flaws)
    hints = result.proof_hints
    if hints is not UNSET:
        if why:
            yield from _why(hints, known)
        for blocked in hints.why_not if hints.why_not is not UNSET else ():
            yield ""
            yield from why_not_lines(blocked)
    if result.diagnostics is UNSET:
        return
    if result.diagnostics.rule_coverage is not UNSET:
        yield ""
        yield from coverage_lines(result.diagnostics.rule_coverage)
    tokens = result.diagnostics.tokens
    cost = "" if tokens is UNSET else _cost(tokens)
    yield ""
    yield f"{count(len(tools), 'tool')} at {result.eval_time_used}{cost}"


def _cost(tokens: Mapping[str, Any]) -> str:
    spent = tokens.get("count")
    return f", {spent:,} tokens by {tokens.get('by')}" if isinstance(spent, int) else ""


def _no_tools_text(result: IntentResult, flaws: int) -> str:
    diagnostics = result.diagnostics
    if diagnostics is UNSET or diagnostics.tools_proven is UNSET:
        return "No tool is proven for this intent."
    proven = diagnostics.tools_proven
    if proven == flaws:
        return f"{count(proven, 'tool')} proven for this intent, but none has a valid definition."
    return f"{count(proven, 'tool')} proven for this intent, but none fits the budget, --max-tools and the scores."


def _row(tool: MacroTool, known: MacroTool) -> tuple[str, ...]:
    metadata, safety, validity, score = known.metadata, known.safety, known.validity, _score(known)
    return (
        tool.name,
        tool.disclosure_level,
        _UNKNOWN if score is None else str(score),
        _UNKNOWN if metadata is UNSET else _text(metadata.selection_phase, _UNKNOWN),
        _UNKNOWN if safety is UNSET else ",".join(safety.side_effects),
        _UNKNOWN if validity is UNSET else _text(validity.expires_at, _UNKNOWN),
    )


def _kind(schema: Mapping[str, Any]) -> str:
    declared = schema.get("type")
    if declared is None and isinstance(options := schema.get("anyOf"), list):
        declared = [one.get("type") for one in options if isinstance(one, Mapping)]
    kinds = declared if isinstance(declared, list) else [declared]
    return " or ".join(dict.fromkeys(kind for kind in kinds if isinstance(kind, str) and kind != "null")) or "any"


def _described(tool: MacroTool) -> Iterator[str]:
    description, context = _text(tool.description), tool.context_injection
    yield Heading(f"{tool.name}: {description}" if description else tool.name)
    if context is not UNSET:
        yield from (f"  {line}" for line in _text(context.instructions).splitlines() if line)
    required = () if tool.input_schema is UNSET else tool.input_schema.get("required", ())
    for name, schema in sorted(argument_schemas(tool).items()):
        optional = "" if name in required else ", optional"
        argument = f": {schema['description']}" if "description" in schema else ""
        yield f"  {name} ({_kind(schema)}{optional}){argument}"
    if context is not UNSET and context.skills is not UNSET:
        yield f"  skills: {', '.join(one.skill_id for one in context.skills)}"
    if context is not UNSET and context.context_resources is not UNSET:
        yield from (f"  read {one.uri}: {_text(one.relevance)}" for one in context.context_resources)
    if tool.safety is not UNSET and tool.safety.requires_user_confirmation:
        yield "  needs approval"


def _why(hints: ProofHints, known: Mapping[str, MacroTool]) -> Iterator[str]:
    for derivation in hints.derivations:
        yield ""
        tool = known.get(derivation.macro_id)
        yield from derivation_lines(derivation.macro_id if tool is None else tool.name, derivation)
    if hints.excluded:
        yield ""
        yield Heading("excluded")
        yield from (f"  {each.candidate}, {each.excluded_by}: {each.reason}" for each in hints.excluded)
    if hints.unmatched_facts:
        yield ""
        yield Heading("facts that were not used")
        yield from (f"  {fact.pred}: {fact.reason}" for fact in hints.unmatched_facts)


def wire_error_lines(error: WireError) -> Iterator[str]:
    yield from map(escape_invisible, error_lines(error.code, error.message, error.details))


def missing_fact_lines(error: WireError) -> Iterator[str]:
    """Yield the options that supply missing facts."""
    for name in (error.details or {}).get("missing_facts", ()):
        yield escape_invisible(f"  add --fact '{name}(…)'")


_MAX_WIDTH: Final = 100
_DECIDE: Final = "manglecp runs decide"


def answer_lines(answer: InvokeResult, *, bold: Callable[[str], str] = str) -> Iterator[str]:
    observed = answer.observability
    yield bold(escape_invisible(observed.summary or "Done."))
    if answer.result:
        yield ""
        yield bold("result")
        for name, value in answer.result.items():
            yield from _value(name, value)
    yield from _events(msgspec.to_builtins(observed.events), bold)
    yield from _delta(answer.state_delta.asserts, answer.state_delta.retract, bold)
    following = answer.next
    if following.suggested_intents or following.continuation_facts:
        yield ""
        yield bold("next")
    for intent in following.suggested_intents:
        params = {} if intent.params is UNSET else intent.params
        given = "".join(f" --param {assignment(name, value)}" for name, value in params.items())
        why = "" if intent.description is UNSET else f": {intent.description}"
        yield escape_invisible(f"  {intent.name}{given}{why}")
    for fact in following.continuation_facts:
        yield escape_invisible(f"  with {fact_text(fact)}")


def failure_lines(error: WireError, host_lines: Sequence[str] = ()) -> Iterator[str]:
    """Render the error of an invocation. ``host_lines`` are lines that hosts wrote about failed calls."""
    yield from wire_error_lines(error)
    details: Mapping[str, Any] = error.details or {}
    for wrong in details.get("schema_errors", ()):
        yield escape_invisible(f"  {wrong['path'] or '/'}: {wrong['message']}")
    if details.get("failure_classes"):
        yield escape_invisible(f"  {', '.join(details['failure_classes'])}")
    for effect in details.get("effects", ()):
        yield escape_invisible(f"  step {effect['step']}, {effect['action']}: {_EFFECT_TEXT[effect['status']]}")
    for event in details.get("events", ()):
        if event["status"] == "failure" and "detail" in event:
            yield escape_invisible(f"  {event['action']}: {event['detail']}")
    yield from host_lines
    delta = details.get("state_delta") or {}
    yield from _delta(delta.get("assert", ()), delta.get("retract", ()), str)
    run = details.get("run_id")
    if run is not None:
        yield f"  run {run}"
        if details.get("reason") == "needs_decision":
            doubted = {one["step"] for one in details.get("effects", ()) if one["status"] == "unknown"}
            yield from decision_lines(run, next(iter(sorted(doubted)), None))


_EFFECT_TEXT: Final = {"done": "it happened", "undone": "it happened and was undone", "unknown": "it may have happened"}


def decision_lines(run: str, step: int | None) -> Iterator[str]:
    """Yield the commands that decide a run; ``step`` is the step in doubt, if there is one."""
    if step is not None:
        yield f"  Find out whether step {step} happened. Then decide with one of"
        yield f"    {_DECIDE} {run} --step {step} --happened [--output FILE]"
        yield f"    {_DECIDE} {run} --step {step} --did-not"
    else:
        yield "  No step is in doubt. Resume the run, or end it, with one of"
        yield f"    manglecp runs resume {run} PACK"
    yield f"    {_DECIDE} {run} --abort"


def _value(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, str) and "\n" in value:
        yield escape_invisible(f"  {name}:")
        yield from (f"    {escape_invisible(line)}" for line in value.splitlines())
        return
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= _MAX_WIDTH or isinstance(value, str):
        yield escape_invisible(f"  {name}: {text}")
        return
    yield escape_invisible(f"  {name}:")
    yield from (
        f"    {escape_invisible(line)}" for line in json.dumps(value, ensure_ascii=False, indent=2).splitlines()
    )


def _events(events: Sequence[Mapping[str, Any]], bold: Callable[[str], str]) -> Iterator[str]:
    if not events:
        return
    yield ""
    yield bold("events")
    width = max(len(event["action"]) for event in events)
    for event in events:
        took = f"{event['duration_ms']} ms" if "duration_ms" in event else ""
        detail = f"  {event['detail']}" if "detail" in event else ""
        yield escape_invisible(f"  {event['status']:<7}  {event['action']:<{width}}  {took}{detail}").rstrip()


def _delta(
    asserted: Sequence[Mapping[str, Any]], retracted: Sequence[Mapping[str, Any]], bold: Callable[[str], str]
) -> Iterator[str]:
    if asserted or retracted:
        yield ""
        yield bold("delta")
    yield from (escape_invisible(f"  + {fact_text(fact)}") for fact in asserted)
    yield from (escape_invisible(f"  - {fact_text(fact)}") for fact in retracted)


def assignment(name: str, value: Any) -> str:
    """Return ``NAME=VALUE`` quoted for a shell. Text that is valid JSON is encoded, so that it decodes to itself."""
    plain = isinstance(value, str) and value_of(value) == value
    return shlex.quote(f"{name}={value if plain else json.dumps(value, ensure_ascii=False)}")
