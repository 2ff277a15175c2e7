"""The answer to an intent for people: a table of tools, then the best one, then what was asked about."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from manglecp.cli.outputs import count
from manglecp.intent.definition import Definition
from manglecp.intent.responding import Answer
from manglecp.intent.visible import shown
from manglecp.mangle.text import instant_text
from manglecp.wire.errors import WireError
from manglecp.wire.messages.envelope import UNSET
from manglecp.wire.messages.intent import ProofHints, RuleCoverage, WhyNot
from manglecp.wire.messages.tools import MacroTool

__all__ = ["fact_text", "lines", "refusal", "why_not_lines"]

HEADINGS: Final = ("TOOL", "LEVEL", "SCORE", "PHASE", "EFFECTS", "EXPIRES")
_SCORE: Final = 2


class _Heading(str):
    """A line that people at a terminal see in bold."""

    __slots__ = ()


def lines(answer: Answer, *, why: bool = False, bold: Callable[[str], str] = str) -> Iterator[str]:
    """``why`` if reasons were asked for, and not only about tools that are missing.

    Facts may hold what a page wrote to its console, so whatever is not seen is written out.
    """
    for line in _answered(answer, why):
        yield bold(shown(line)) if isinstance(line, _Heading) else shown(line)


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
            yield from why_not_lines(blocked)
    if result.diagnostics is UNSET:
        return
    if result.diagnostics.rule_coverage is not UNSET:
        yield from _coverage(result.diagnostics.rule_coverage)
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

    yield _Heading(laid_out(HEADINGS))
    yield from map(laid_out, rows)


def _described(tool: Definition) -> Iterator[str]:
    """What one needs to know to call it."""
    yield _Heading(f"{tool.tool}: {tool.description}")
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
        name = proven[derivation.macro_id].tool
        yield _Heading(f"why {name}: {derivation.selected_by}, {derivation.score}")
        yield f"  by {', '.join(derivation.rule_chain)}"
        yield from (f"  {fact_text(fact)}" for fact in derivation.supporting_facts)
    if hints.excluded:
        yield ""
        yield _Heading("excluded")
        yield from (f"  {each.candidate}, {each.excluded_by}: {each.reason}" for each in hints.excluded)
    if hints.unmatched_facts:
        yield ""
        yield _Heading("facts that were not used")
        yield from (f"  {fact.pred}: {fact.reason}" for fact in hints.unmatched_facts)


def why_not_lines(blocked: WhyNot) -> Iterator[str]:
    yield ""
    yield _Heading(f"why not {blocked.tool}")
    if not blocked.known:
        yield "  no tool of this name could serve this intent"
        return
    if blocked.would_unlock == ((),):
        yield "  it is there"
        return
    yield from (f"  {reason}" for reason in blocked.blocked_by)
    if blocked.would_unlock:
        yield "  it would be there with"
        for facts in blocked.would_unlock:
            yield "    " + "\n      and ".join(fact_text(fact) for fact in facts)
        if not blocked.complete:
            yield "  and maybe otherwise"
    elif blocked.complete:
        yield "  no fact that a client may state would bring it"
    else:
        yield "  no facts were found that would bring it and may be told"


def _coverage(coverage: RuleCoverage) -> Iterator[str]:
    yield ""
    yield _Heading(
        f"rules: {coverage.rules_fired} of {coverage.total_rules} fired, {coverage.rules_dormant} dormant, "
        f"{coverage.rules_inapplicable} for other intents"
    )
    for rule in coverage.dormant_details:
        missing = f", without {', '.join(rule.missing_predicates)}" if rule.missing_predicates else ""
        yield f"  {rule.rule}: {rule.status.replace('_', ' ')}{missing}"


def fact_text(fact: Mapping[str, Any]) -> str:
    """A fact of the protocol, as ``--fact`` takes it; what may be anything is ``_``."""
    args = ", ".join(_argument(arg) for arg in fact.get("args", ()))
    return f"{fact['pred']}({args}){_annotation(fact.get('t'))}"


def _argument(arg: Any) -> str:
    if arg is None:
        return "_"
    if isinstance(arg, dict):
        if "_var" in arg:
            return str(arg["_var"])
        if set(arg) == {"_type", "value"}:
            return str(arg["value"])
    return json.dumps(arg, ensure_ascii=False)


def _annotation(t: Any) -> str:
    if not isinstance(t, dict):
        return ""
    return f"@[{t['at']}]" if "at" in t else f"@[{t.get('start')}, {t.get('end')}]"


def refusal(error: WireError) -> Iterator[str]:
    """An error of the protocol: what, where, and what would help."""
    yield from map(shown, _refused(error))


def _refused(error: WireError) -> Iterator[str]:
    yield f"error[{error.code}]: {error.message}"
    details = error.details or {}
    for violation in details.get("violations", ()):
        yield f"  fact {violation['fact_index']}, {violation['predicate']}: {violation['message']}"
        if "suggestion" in violation:
            yield f"    {violation['suggestion']}"
    for name in details.get("missing_facts", ()):
        yield f"  missing: {name}"
    if "suggestion" in details:
        yield f"  {details['suggestion']}"
