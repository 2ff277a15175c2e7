"""The evidence of one turn: all rows, each once, in an order that does not depend on the sender.

Rows that are equal after normalisation are one row. Two different rows of one kind under one id are a contradiction and
make the evidence invalid. Only terminal results can contradict one another; a ``running`` row counts until a terminal
row has its id. Rows without an id (accesses, artifacts, decisions, exports) cannot contradict one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec

from manglecp.harness.call_spec import CallSpec
from manglecp.harness.readers import InvalidEvidence, Member, Record, Texts, entries, one, reader_of
from manglecp.harness.rows import (
    Artifact,
    BranchJoin,
    Compaction,
    ContextAccess,
    Continuity,
    Decomposition,
    GuardrailDecision,
    Handoff,
    Mutation,
    ProtocolState,
    ReminderQueue,
    StateView,
    ToolRender,
    ToolRequest,
    ToolResult,
    ToolUse,
    TraceExport,
)

_encode: Final = msgspec.json.Encoder(order="sorted").encode
R = TypeVar("R", bound=Record)
Numbered: TypeAlias = Sequence[tuple[int, R]]
"""Rows with their indices in the received list."""


def _by_id(rows: Numbered[R], id_of: Callable[[R], str | None]) -> tuple[R, ...]:
    """Return the rows, one per id. Raises :class:`InvalidEvidence` for a contradiction."""
    found: dict[str, R] = {}
    nameless: list[R] = []
    for index, row in rows:
        name = id_of(row)
        if name is None:
            nameless.append(row)
        elif found.setdefault(name, row) != row:
            raise InvalidEvidence(f"/{index}", f"another row under {name!r:.80} says something else")
    return tuple(found[name] for name in sorted(found)) + _distinct(nameless)


def _distinct(rows: list[R]) -> tuple[R, ...]:
    return tuple(row for _, row in sorted({_encode(row): row for row in rows}.items())) if rows else ()


def _as_set(rows: Numbered[R]) -> tuple[R, ...]:
    return _distinct([row for _, row in rows])


def _by_call(rows: Numbered[Any]) -> tuple[Any, ...]:
    return _by_id(rows, lambda row: row.tool_call_id)


def _results(rows: Numbered[ToolResult]) -> tuple[ToolResult, ...]:
    terminal = _by_call([(index, row) for index, row in rows if row.terminal])
    answered = {row.tool_call_id for row in terminal}
    unfinished = [row for _, row in rows if not row.terminal and row.tool_call_id not in answered]
    return tuple(sorted((*terminal, *_distinct(unfinished)), key=lambda row: row.tool_call_id))


_ARRANGED: Final[dict[str, Callable[[Numbered[Any]], tuple[Any, ...]]]] = {
    "tool_requests": _by_call,
    "tool_results": _results,
    "tool_use": _by_call,
    "tool_render": _by_call,
    "reminder_queue": lambda rows: _by_id(rows, lambda row: row.queue_id),
    "state_views": lambda rows: _by_id(rows, lambda row: row.view_id),
    "branch_joins": lambda rows: _by_id(rows, lambda row: row.branch_id),
    "guardrail_decisions": _as_set,
    "artifacts": _as_set,
    "context_access": _as_set,
    "trace_exports": _as_set,
}
"""The arrangement of each list."""


class RowList:
    __slots__ = ("_read_row", "arrange")

    def __init__(self, kind: type[Record], name: str) -> None:
        self._read_row = reader_of(kind)
        self.arrange = _ARRANGED[name]

    def __call__(self, value: Any) -> tuple[Any, ...]:
        return self.arrange(self.numbered(value))

    def numbered(self, value: Any, known: int = 0) -> list[tuple[int, Any]]:
        """Return the rows with their indices, without the ``known`` first ones."""
        found: list[tuple[int, Any]] = []
        for index, row in enumerate(entries(value)):
            if index < known or row is None:
                continue
            try:
                found.append((index, self._read_row(row)))
            except InvalidEvidence as bad:
                raise bad.under(index) from None
        return found


def _rows(kind: type[R], name: str) -> Member:
    return Member(RowList(kind, name))


class Evidence(Record, frozen=True):
    """The evidence of one turn. ``protocolState`` is absent only while the turn is open."""

    call_spec: Annotated[CallSpec, Member(reader_of(CallSpec), required=True)]
    tool_requests: Annotated[tuple[ToolRequest, ...], _rows(ToolRequest, "tool_requests")] = ()
    tool_results: Annotated[tuple[ToolResult, ...], _rows(ToolResult, "tool_results")] = ()
    tool_use: Annotated[tuple[ToolUse, ...], _rows(ToolUse, "tool_use")] = ()
    protocol_state: Annotated[ProtocolState | None, one(ProtocolState)] = None
    tool_render: Annotated[tuple[ToolRender, ...], _rows(ToolRender, "tool_render")] = ()
    reminder_queue: Annotated[tuple[ReminderQueue, ...], _rows(ReminderQueue, "reminder_queue")] = ()
    state_views: Annotated[tuple[StateView, ...], _rows(StateView, "state_views")] = ()
    branch_joins: Annotated[tuple[BranchJoin, ...], _rows(BranchJoin, "branch_joins")] = ()
    guardrail_decisions: Annotated[
        tuple[GuardrailDecision, ...] | None, _rows(GuardrailDecision, "guardrail_decisions")
    ] = None
    """None if the list is absent; an empty list means that no guardrail decided."""
    artifacts: Annotated[tuple[Artifact, ...], _rows(Artifact, "artifacts")] = ()
    context_access: Annotated[tuple[ContextAccess, ...], _rows(ContextAccess, "context_access")] = ()
    trace_exports: Annotated[tuple[TraceExport, ...], _rows(TraceExport, "trace_exports")] = ()
    handoff: Annotated[Handoff | None, one(Handoff)] = None
    decomposition: Annotated[Decomposition | None, one(Decomposition)] = None
    compaction: Annotated[Compaction | None, one(Compaction)] = None
    continuity: Annotated[Continuity | None, one(Continuity)] = None
    mutation: Annotated[Mutation | None, one(Mutation)] = None
    session_refs: Texts = ()
    trajectory_refs: Texts = ()


read_evidence: Final = reader_of(Evidence)


def check_arranged(evidence: Evidence) -> None:
    """Raise :class:`InvalidEvidence` if recorded evidence is not in canonical order or contradicts itself."""
    for field, arrange in _ARRANGED.items():
        rows = getattr(evidence, field) or ()
        name = Evidence.__struct_encode_fields__[Evidence.__struct_fields__.index(field)]
        try:
            if arrange([*enumerate(rows)]) != rows:
                raise InvalidEvidence("", "the rows are not in their order")
        except InvalidEvidence as bad:
            raise bad.under(name).under("evidence") from None
