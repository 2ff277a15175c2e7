"""The evidence of one turn: all rows, each once, in an order that does not depend on the sender's.

Rows that are equal after normalisation are one row. Two different rows of one kind under one id are a contradiction,
and nothing is concluded from contradictions: such evidence is invalid. Of results only terminal ones can contradict one
another; a row that says ``running`` counts for as long as no terminal row has its id.

Rows without an id of their own (accesses, artifacts, decisions, exports) cannot contradict one another: a turn may
well write an artifact twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from manglecp.harness.call_spec import CallSpec
from manglecp.harness.errors import InvalidEvidence
from manglecp.harness.reading import Limits, Member, Read, Record, Texts, entries, one, reader_of
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

__all__ = ["Evidence", "read_evidence"]

_encode: Final = msgspec.json.Encoder(order="sorted").encode
R = TypeVar("R", bound=Record)


def _by_id(kind: type[R], id_of: Callable[[R], str | None]) -> Member:
    """Rows of which each id has one."""
    read_row = reader_of(kind)

    def read(value: Any, limits: Limits) -> tuple[R, ...]:
        rows: dict[str, R] = {}
        nameless: list[R] = []
        for index, row in _rows(value, read_row, limits):
            name = id_of(row)
            if name is None:
                nameless.append(row)
            elif rows.setdefault(name, row) != row:
                raise InvalidEvidence(f"/{index}", f"another row under {name!r:.80} says something else")
        found = tuple(rows[name] for name in sorted(rows))
        return found + _distinct(nameless) if nameless else found

    return Member(read)


def _as_set(kind: type[R]) -> Member:
    """Rows without an id."""
    read_row = reader_of(kind)

    def read(value: Any, limits: Limits) -> tuple[R, ...]:
        return _distinct([row for _, row in _rows(value, read_row, limits)])

    return Member(read)


def _rows(value: Any, read_row: Read[R], limits: Limits) -> list[tuple[int, R]]:
    found = []
    for index, row in enumerate(entries(value, limits)):
        if row is None:
            continue
        try:
            found.append((index, read_row(row, limits)))
        except InvalidEvidence as bad:
            raise bad.under(index) from None
    return found


def _distinct(rows: list[R]) -> tuple[R, ...]:
    return tuple(row for _, row in sorted({_encode(row): row for row in rows}.items()))


_read_result: Final = reader_of(ToolResult)


def _results(value: Any, limits: Limits) -> tuple[ToolResult, ...]:
    terminal: dict[str, ToolResult] = {}
    unfinished: list[ToolResult] = []
    for index, row in _rows(value, _read_result, limits):
        if not row.terminal:
            unfinished.append(row)
        elif terminal.setdefault(row.tool_call_id, row) != row:
            raise InvalidEvidence(
                f"/{index}", f"another terminal result of {row.tool_call_id!r:.80} says something else"
            )
    rows = [*terminal.values(), *(row for row in _distinct(unfinished) if row.tool_call_id not in terminal)]
    return tuple(sorted(rows, key=lambda row: row.tool_call_id))


def _call(row: ToolRequest | ToolUse | ToolRender) -> str:
    return row.tool_call_id


class Evidence(Record, frozen=True):
    """One turn. ``protocolState`` is absent only while the turn is under way."""

    call_spec: Annotated[CallSpec, Member(reader_of(CallSpec), required=True)]
    tool_requests: Annotated[tuple[ToolRequest, ...], _by_id(ToolRequest, _call)] = ()
    tool_results: Annotated[tuple[ToolResult, ...], Member(_results)] = ()
    tool_use: Annotated[tuple[ToolUse, ...], _by_id(ToolUse, _call)] = ()
    protocol_state: Annotated[ProtocolState | None, one(ProtocolState)] = None
    tool_render: Annotated[tuple[ToolRender, ...], _by_id(ToolRender, _call)] = ()
    reminder_queue: Annotated[tuple[ReminderQueue, ...], _by_id(ReminderQueue, lambda row: row.queue_id)] = ()
    state_views: Annotated[tuple[StateView, ...], _by_id(StateView, lambda row: row.view_id)] = ()
    branch_joins: Annotated[tuple[BranchJoin, ...], _by_id(BranchJoin, lambda row: row.branch_id)] = ()
    guardrail_decisions: Annotated[tuple[GuardrailDecision, ...] | None, _as_set(GuardrailDecision)] = None
    """None if there is no such list: an empty one says that no guardrail decided anything."""
    artifacts: Annotated[tuple[Artifact, ...], _as_set(Artifact)] = ()
    context_access: Annotated[tuple[ContextAccess, ...], _as_set(ContextAccess)] = ()
    trace_exports: Annotated[tuple[TraceExport, ...], _as_set(TraceExport)] = ()
    handoff: Annotated[Handoff | None, one(Handoff)] = None
    decomposition: Annotated[Decomposition | None, one(Decomposition)] = None
    compaction: Annotated[Compaction | None, one(Compaction)] = None
    continuity: Annotated[Continuity | None, one(Continuity)] = None
    mutation: Annotated[Mutation | None, one(Mutation)] = None
    session_refs: Texts = ()
    trajectory_refs: Texts = ()


read_evidence: Final = reader_of(Evidence)
