"""The answer to an intent for people: a table of tools, then the best one, then what was asked about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from manglecp.base.text import escape_invisible
from manglecp.cli.outputs import count
from manglecp.cli.shown_tools import ShownTool
from manglecp.intent import Answer
from manglecp.wire import Heading, WireError, coverage_lines, derivation_lines, error_lines, why_not_lines
from manglecp.wire.messages import UNSET, IntentResult, MacroTool, ProofHints

__all__ = ["lines", "refusal", "result_lines", "tool_lines", "what_to_state"]

HEADINGS: Final = ("TOOL", "LEVEL", "SCORE", "PHASE", "EFFECTS", "EXPIRES")
_SCORE: Final = 2


def lines(answer: Answer, *, why: bool = False, bold: Callable[[str], str] = str) -> Iterator[str]:
    """``why`` if reasons were asked for, and not only about tools that are missing."""
    proven = {one.macro_id: ShownTool.of_definition(one) for one in answer.definitions}
    return result_lines(answer.response.payload, proven, why=why, bold=bold, flaws=len(answer.flaws))


def result_lines(
    result: IntentResult,
    known: Mapping[str, ShownTool] | None = None,
    *,
    why: bool = False,
    bold: Callable[[str], str] = str,
    flaws: int = 0,
) -> Iterator[str]:
    """An answer as it travels; ``known`` are tools by their ids of which more is known than it tells.

    Facts may hold what a page wrote to its console, so whatever is not seen is written out.
    """
    told = {tool.macro_id: ShownTool.of_message(tool) for tool in result.macro_tools}
    for line in _answered(result, {**told, **(known or {})}, why, flaws):
        yield bold(escape_invisible(line)) if isinstance(line, Heading) else escape_invisible(line)


def tool_lines(tool: ShownTool, *, bold: Callable[[str], str] = str) -> Iterator[str]:
    """One tool."""
    for line in _described(tool):
        yield bold(escape_invisible(line)) if isinstance(line, Heading) else escape_invisible(line)


def _answered(result: IntentResult, known: Mapping[str, ShownTool], why: bool, flaws: int) -> Iterator[str]:
    tools = result.macro_tools
    if tools:
        yield from _table([_row(tool, known[tool.macro_id]) for tool in tools])
        best = max(tools, key=lambda tool: known[tool.macro_id].score or 0)  # the first of equals
        yield ""
        yield from _described(known[best.macro_id])
    else:
        yield _nothing(result, flaws)
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


def _nothing(result: IntentResult, flaws: int) -> str:
    """Why there is no tool; none that is proven, or none that may be shown."""
    diagnostics = result.diagnostics
    if diagnostics is UNSET or diagnostics.tools_proven is UNSET:
        return "No tool is proven for this intent."
    proven = diagnostics.tools_proven
    if proven == flaws:
        return f"{count(proven, 'tool')} proven for this intent, but what the rules say of them makes no tool."
    return f"{count(proven, 'tool')} proven for this intent, but none fits: mind the budget, --max-tools and scores."


def _row(tool: MacroTool, known: ShownTool) -> tuple[str, ...]:
    return (
        tool.name,
        tool.disclosure_level,
        "-" if known.score is None else str(known.score),
        known.phase,
        "-" if known.effects is None else ",".join(known.effects),
        known.expires,
    )


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[n]) for row in (HEADINGS, *rows)) for n in range(len(HEADINGS))]

    def laid_out(row: tuple[str, ...]) -> str:
        cells = [
            cell.rjust(w) if n == _SCORE else cell.ljust(w) for n, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    yield Heading(laid_out(HEADINGS))
    yield from map(laid_out, rows)


def _kind(schema: Mapping[str, Any]) -> str:
    """What a value is, in a word or a few. That it may also be null goes without saying."""
    said = schema.get("type")
    if said is None and isinstance(either := schema.get("anyOf"), list):
        said = [one.get("type") for one in either if isinstance(one, Mapping)]
    kinds = said if isinstance(said, list) else [said]
    return " or ".join(dict.fromkeys(kind for kind in kinds if isinstance(kind, str) and kind != "null")) or "any"


def _described(tool: ShownTool) -> Iterator[str]:
    """What one needs to know to call it."""
    yield Heading(f"{tool.name}: {tool.description}" if tool.description else tool.name)
    yield from (f"  {line}" for line in tool.instructions.splitlines() if line)
    required = tool.input_schema.get("required", ())
    for name, schema in sorted(tool.properties.items()):
        optional = "" if name in required else ", optional"
        said = f": {schema['description']}" if "description" in schema else ""
        yield f"  {name} ({_kind(schema)}{optional}){said}"
    if tool.skills:
        yield f"  skills: {', '.join(tool.skills)}"
    yield from (f"  read {uri}: {relevance}" for uri, relevance in tool.resources)
    if tool.confirmation:
        yield "  a person has to confirm"


def _why(hints: ProofHints, known: Mapping[str, ShownTool]) -> Iterator[str]:
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


def refusal(error: WireError) -> Iterator[str]:
    """An error of the protocol: what, where, and what would help."""
    yield from map(escape_invisible, error_lines(error.code, error.message, error.details))


def what_to_state(error: WireError) -> Iterator[str]:
    """How to give a verb the facts that an intent cannot do without."""
    for name in (error.details or {}).get("missing_facts", ()):
        yield escape_invisible(f"  add --fact '{name}(…)'")
