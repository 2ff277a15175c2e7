"""The report of a guard: the calls that were tried, what the rules decided, and rules to begin with."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import msgspec

from manglecp.base.proof_page import PageSection, render_page
from manglecp.base.text import escape_invisible, has_invisible
from manglecp.guard.gate import OPERATION, SHADOW_OPERATION
from manglecp.guard.lock import Servers, parameters, qualified_names
from manglecp.intent import Domain
from manglecp.invoke import DecisionDetails, explain_decision
from manglecp.mangle import value_text
from manglecp.store import Store, StoredDecision

_MAX_DECISIONS: Final = 100_000
_MAX_EXAMPLES: Final = 3
_MAX_EXAMPLE: Final = 200  # characters
_MIN_CALLS: Final = 2
"""The calls of a tool from which a common prefix of an argument is proposed as a rule."""
Mode: TypeAlias = Literal["shadow", "enforced"]
_EFFECTS: Final[Mapping[Mode, str]] = {"shadow": "shadow: the calls were forwarded", "enforced": "enforced"}
_ORDER: Final = ("deny", "ask", "allow")


@dataclass(slots=True)
class ToolRow:
    """The decisions about a tool with one verdict and one reason."""

    server: str
    tool: str
    name: str
    """In rules."""
    verdict: str
    mode: Mode
    """In shadow mode the calls were forwarded, whatever the verdict."""
    reason: str
    newest: StoredDecision
    details: DecisionDetails
    """Of the newest decision."""
    calls: int = 0
    approved: int = 0
    failed: int = 0
    """Calls that the server answered with an error."""
    rules: tuple[str, ...] = ()
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Report:
    """What was tried, in the order deny, ask, allow."""

    rows: Sequence[ToolRow]
    proposals: Sequence[str]
    """Lines of Mangle."""

    def document(self) -> dict[str, Any]:
        names = [name for name in ToolRow.__slots__ if name not in ("newest", "details")]
        rows = [{name: getattr(row, name) for name in names} | {"decision": row.newest.id} for row in self.rows]
        return {"calls": rows, "proposals": list(self.proposals)}

    def page(self, domain: Domain) -> str:
        """Return the report as an HTML page, with proofs of the decisions that were made with this domain."""
        sections = []
        for row in self.rows:
            counts = [(name, f"{getattr(row, name):,}") for name in ("calls", "approved", "failed")]
            rows = [("mode", _EFFECTS[row.mode]), *counts, *(("example", example) for example in row.examples)]
            section, title = explain_decision(row.newest, row.details, domain).section(), f"{row.server}.{row.tool}"
            sections.append(section._replace(title=title, rows=[*rows, ("newest decision", ""), *section.rows]))
        proposals = PageSection("Rules to begin with", "", "", (), (), rows=[("", "\n".join(self.proposals))])
        return render_page("What the rules decided about the calls of your MCP servers", [*sections, proposals])


def read_report(store: Store, principal: str, servers: Servers) -> Report:
    """Return the report of the decisions about a principal in a store. Blocks."""
    names = qualified_names(servers)
    with store.read_transaction() as tx:
        found = [
            stored
            for operation in (OPERATION, SHADOW_OPERATION)
            for stored in store.decisions.newest(tx, _MAX_DECISIONS, operation=operation, principal=principal)
        ]
        outcomes = store.decisions.newest(tx, _MAX_DECISIONS, operation="outcome", principal=principal)
        failed = {outcome.run for outcome in outcomes if outcome.verdict == "failure"}
    rows: dict[tuple[str, ...], ToolRow] = {}
    arguments: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for stored in found:
        details = msgspec.json.decode(store.decisions.content(stored), type=DecisionDetails)
        reason = "; ".join(details.public_reasons or details.reasons)
        server, tool = names.get(stored.tool, ("-", stored.tool))
        is_shadow = stored.operation == SHADOW_OPERATION
        mode: Mode = "shadow" if is_shadow else "enforced"
        key = stored.tool, stored.verdict, mode, reason
        if key not in rows:
            rows[key] = ToolRow(
                server, tool, stored.tool, stored.verdict, mode, reason, stored, details, rules=details.rules
            )
        row = rows[key]
        row.failed += stored.run in failed
        if stored.verdict == "ask" and stored.run is not None and not is_shadow:
            row.approved += 1  # its request was recorded before
            continue
        row.calls += 1
        if details.inputs is not None:
            example = _example(details.inputs.args)
            if len(row.examples) < _MAX_EXAMPLES and example not in row.examples:
                row.examples.append(example)
            if stored.verdict == "ask" and stored.tool in names:  # a rule about another tool does not load
                arguments[stored.tool].append(details.inputs.args)
    ordered = sorted(rows.values(), key=lambda row: (_ORDER.index(row.verdict), row.name, row.mode, -row.calls))
    declared = {name: parameters(servers[server][tool].definition) for name, (server, tool) in names.items()}
    return Report(ordered, list(_proposals(arguments, declared)))


def _example(args: Mapping[str, Any]) -> str:
    text = escape_invisible(json.dumps(args, ensure_ascii=False))
    return text if len(text) <= _MAX_EXAMPLE else f"{text[:_MAX_EXAMPLE]}…"


def _proposals(
    arguments: Mapping[str, Sequence[Mapping[str, Any]]], declared: Mapping[str, Collection[str]]
) -> Iterator[str]:
    """Yield rules under which the calls that were asked about need no approval, as comments to choose from."""
    for tool, calls in sorted(arguments.items()):
        name = value_text(tool)
        yield f"# {tool} needs an approval, for {len(calls):,} recorded. Without one:"
        prefixes = list(_prefixes(calls, declared[tool])) if len(calls) >= _MIN_CALLS else []
        conditions = [  # of one rule: a rule about the source of a move would permit any destination
            f"call_arg({value_text(param)}, P{number or ''}), :string:starts_with(P{number or ''}, "
            f'{value_text(prefix)}), !:string:contains(P{number or ""}, "..")'
            for number, (param, prefix) in enumerate(prefixes)
        ]
        yield f"# exempt({name})" + (f" :- {', '.join([f'call({name})', *conditions])}." if conditions else ".")


def _prefixes(calls: Sequence[Mapping[str, Any]], declared: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the text arguments of all calls whose values begin with the same folder or host.

    An argument that the tool does not declare restricts nothing: the agent may add it to any call.
    """
    for param in sorted(set(declared).intersection(*calls)):
        values = [call[param] for call in calls]
        if all(isinstance(value, str) for value in values):
            prefix = _common_prefix(values)
            if len(prefix) > 1 and not prefix.endswith("://") and not has_invisible(prefix):
                yield param, prefix


def _common_prefix(values: Iterable[str]) -> str:
    texts = list(values)
    first, last = min(texts), max(texts)
    end = next((i for i, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    prefix = first[:end]
    return prefix[: prefix.rfind("/") + 1]
