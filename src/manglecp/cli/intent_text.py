"""The answer to an intent for people: a table of tools, then the best one, then what was asked about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from manglecp.cli.outputs import count
from manglecp.intent.definition import Definition
from manglecp.intent.responding import Answer
from manglecp.intent.visible import shown
from manglecp.mangle.text import instant_text
from manglecp.wire.errors import WireError
from manglecp.wire.messages.envelope import UNSET
from manglecp.wire.messages.intent import ProofHints
from manglecp.wire.messages.tools import MacroTool
from manglecp.wire.telling import Heading, coverage_lines, derivation_lines, error_lines, why_not_lines

__all__ = ["lines", "refusal"]

HEADINGS: Final = ("TOOL", "LEVEL", "SCORE", "PHASE", "EFFECTS", "EXPIRES")
_SCORE: Final = 2


def lines(answer: Answer, *, why: bool = False, bold: Callable[[str], str] = str) -> Iterator[str]:
    """``why`` if reasons were asked for, and not only about tools that are missing.

    Facts may hold what a page wrote to its console, so whatever is not seen is written out.
    """
    for line in _answered(answer, why):
        yield bold(shown(line)) if isinstance(line, Heading) else shown(line)


def _answered(answer: Answer, why: bool) -> Iterator[str]:
    result = answer.response.payload
    tools = result.macro_tools
    proven = {definition.macro_id: definition for definition in answer.definitions}
    if tools:
        yield from _table([_row(tool, proven[tool.macro_id]) for tool in tools])
        best = max(tools, key=lambda tool: proven[tool.macro_id].score)  # the first of equals
        yield ""
        yield from _described(proven[best.macro_id])
    else:
        yield _nothing(answer)
    hints = result.proof_hints
    if hints is not UNSET:
        if why:
            yield from _why(hints, proven)
        for blocked in hints.why_not if hints.why_not is not UNSET else ():
            yield ""
            yield from why_not_lines(blocked)
    if result.diagnostics is UNSET:
        return
    if result.diagnostics.rule_coverage is not UNSET:
        yield ""
        yield from coverage_lines(result.diagnostics.rule_coverage)
    tokens = result.diagnostics.tokens
    cost = f", {tokens['count']:,} tokens by {tokens['by']}" if tokens is not UNSET else ""
    yield ""
    yield f"{count(len(tools), 'tool')} at {result.eval_time_used}{cost}"


def _nothing(answer: Answer) -> str:
    """Why there is no tool; none that is proven, or none that may be shown."""
    diagnostics = answer.response.payload.diagnostics
    if diagnostics is UNSET or diagnostics.tools_proven is UNSET:
        return "No tool is proven for this intent."
    proven = diagnostics.tools_proven
    if proven == len(answer.flaws):
        return f"{count(proven, 'tool')} proven for this intent, but what the rules say of them makes no tool."
    return f"{count(proven, 'tool')} proven for this intent, but none fits: mind the budget, --max-tools and scores."


def _row(tool: MacroTool, proven: Definition) -> tuple[str, ...]:
    return (
        tool.name,
        tool.disclosure_level,
        str(proven.score),
        proven.phase,
        ",".join(proven.safety.side_effects),
        "-" if proven.expires_at is None else instant_text(proven.expires_at),
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


def _described(tool: Definition) -> Iterator[str]:
    """What one needs to know to call it."""
    yield Heading(f"{tool.tool}: {tool.description}")
    yield from (f"  {line}" for line in tool.instructions.splitlines() if line)
    required = tool.input_schema.get("required", ())
    for name, schema in sorted(tool.input_schema.get("properties", {}).items()):
        optional = "" if name in required else ", optional"
        said = f": {schema['description']}" if "description" in schema else ""
        yield f"  {name} ({schema.get('type', 'any')}{optional}){said}"
    if tool.skills:
        yield f"  skills: {', '.join(tool.skills)}"
    yield from (f"  read {resource.uri}: {resource.relevance}" for resource in tool.resources)
    if tool.safety.requires_user_confirmation:
        yield "  a person has to confirm"


def _why(hints: ProofHints, proven: Mapping[str, Definition]) -> Iterator[str]:
    for derivation in hints.derivations:
        yield ""
        yield from derivation_lines(proven[derivation.macro_id].tool, derivation)
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
    yield from map(shown, error_lines(error.code, error.message, error.details))
