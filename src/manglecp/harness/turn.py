"""A turn as it is judged: its evidence, what is in force for it, and the rows by the calls that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from manglecp.base.digest import digest_bytes
from manglecp.base.text import normalize_word, trim
from manglecp.harness.call_spec import CallSpec
from manglecp.harness.canonical_v1 import canonical
from manglecp.harness.constraints import Constraints
from manglecp.harness.documents import Documents, read_documents
from manglecp.harness.errors import InvalidEvidence
from manglecp.harness.evidence import Evidence, read_evidence
from manglecp.harness.reading import LIMITS, Limits, reader_of
from manglecp.harness.rows import CallerEdge, ToolRequest, ToolResult, ToolUse
from manglecp.harness.terms import Terms
from manglecp.wire import validator_of

__all__ = ["PROGRAM", "Turn", "TurnContext", "read_turn", "schema_verdicts"]

PROGRAM: Final = "code_execution"
"""The kind of call that is a program, and the caller of what a program calls."""

_read_constraints: Final = reader_of(Constraints)


class TurnContext:
    """What stands beside the evidence of a turn: constraints and policy documents, the latter against its call spec.

    Immutable, and shared by all turns that are opened under the same terms.
    """

    def __init__(
        self,
        call: CallSpec,
        constraints: Constraints,
        documents: Mapping[str, Any],
        limits: Limits = LIMITS,
        compared: Documents | None = None,
    ) -> None:
        """``compared`` are the same documents, if they were compared with the same call spec already."""
        self.constraints = constraints
        self.documents = documents
        self.compared = compared or Documents.compared(documents, call, limits)

    @cached_property
    def terms(self) -> Terms:
        """What is in force for a turn that does not hand over."""
        return Terms(self.constraints, self.compared, False)

    @cached_property
    def handoff_terms(self) -> Terms:
        """What is in force for a turn that hands over."""
        return Terms(self.constraints, self.compared, True)

    @cached_property
    def written(self) -> tuple[msgspec.Raw, msgspec.Raw]:
        """The canonical JSON of the constraints, and of the documents."""
        constraints = msgspec.json.decode(msgspec.json.encode(self.constraints))
        return msgspec.Raw(canonical(constraints)), msgspec.Raw(canonical(dict(self.documents)))

    @cached_property
    def digest(self) -> str:
        """Of both as they were read: no number is carried as text."""
        return digest_bytes(msgspec.json.encode([self.constraints, self.documents], order="sorted"))


class Turn:
    """Everything that the checks may ask."""

    __slots__ = (
        "_frozen",
        "call",
        "constraints",
        "context",
        "continuing",
        "documents",
        "drifted",
        "edges",
        "ended",
        "evidence",
        "requests",
        "results",
        "schema_verdicts",
        "terms",
        "unfinished",
        "uses",
    )

    def __init__(self, evidence: Evidence, context: TurnContext, schema_verdicts: Mapping[str, bool]) -> None:
        self._frozen = False
        self.evidence = evidence
        self.call = evidence.call_spec
        self.context = context
        self.constraints = context.constraints
        self.documents = context.documents
        self.schema_verdicts = schema_verdicts
        """Of the calls whose arguments were there: whether they fit every schema that is pinned for their tool."""
        self.drifted = context.compared.drifted
        handing_over = evidence.handoff is not None or (
            evidence.mutation is not None and evidence.mutation.kind == "transfer"
        )
        self.terms = context.handoff_terms if handing_over else context.terms
        self.continuing = evidence.protocol_state is not None and bool(evidence.protocol_state.continuation_allowed)
        self.ended = evidence.protocol_state is not None
        self.requests: dict[str, ToolRequest] = {row.tool_call_id: row for row in evidence.tool_requests}
        self.uses: dict[str, ToolUse] = {row.tool_call_id: row for row in evidence.tool_use}
        self.results: dict[str, ToolResult] = {}
        """The terminal ones."""
        self.unfinished: set[str] = set()
        self.edges: dict[str, CallerEdge] = {}
        for row in evidence.tool_results:
            if row.terminal:
                self.results[row.tool_call_id] = row
            else:
                self.unfinished.add(row.tool_call_id)
            if row.caller_edge is not None:
                self.edges[row.tool_call_id] = row.caller_edge
        self._frozen = True

    def __setattr__(self, name: str, value: object) -> None:
        """A turn that was judged stays the turn that was judged."""
        if getattr(self, "_frozen", False):
            raise AttributeError("a turn does not change")
        object.__setattr__(self, name, value)

    def caller(self, request: ToolRequest) -> str:
        """Who made the call: as its edge says, else as the request says, else the model directly."""
        edge = self.edges.get(request.tool_call_id)
        if edge is not None and edge.caller_kind is not None:
            return edge.caller_kind
        return "direct" if request.caller_id is None else normalize_word(request.caller_id)

    @property
    def direct(self) -> Iterator[ToolRequest]:
        """The calls that the model made itself. What a program calls is part of the program."""
        rows = self.evidence.tool_requests
        programs = {
            name for name in {row.caller_id for row in rows} if name is not None and normalize_word(name) == PROGRAM
        }
        return (row for row in rows if row.tool_call_id not in self.edges and row.caller_id not in programs)

    @property
    def context_owed(self) -> bool:
        """Whether the model is going to see, or has used, what the turn brought."""
        return self.continuing or any(row.consumed for row in self.evidence.tool_use)


def read_turn(document: Mapping[str, Any], limits: Limits = LIMITS, *, under_way: bool = False) -> Turn:
    """The turn that a document describes, or :class:`.InvalidEvidence`.

    ``under_way``: it has not ended yet, and how it ended need not be there.
    """
    if not isinstance(document, Mapping):
        raise InvalidEvidence("", "an object is expected")
    whole = dict(document)
    found = whole.get("evidence")
    if found is None:
        raise InvalidEvidence("/evidence", "is absent")
    try:
        evidence = read_evidence(found, limits)
        if evidence.protocol_state is None and not under_way:
            raise InvalidEvidence("/protocolState", "is absent")
    except InvalidEvidence as bad:
        raise bad.under("evidence") from None
    constraints = _read_constraints(whole, limits)
    documents: dict[str, Any] = {}
    if whole.get("policyDocuments") is not None:
        try:
            documents = read_documents(whole["policyDocuments"], limits)
        except InvalidEvidence as bad:
            raise bad.under("policyDocuments") from None
    context = TurnContext(evidence.call_spec, constraints, documents, limits)
    return Turn(evidence, context, schema_verdicts(found, evidence))


def schema_verdicts(found: dict[str, Any], evidence: Evidence) -> dict[str, bool]:
    """Arguments are judged while they are there. Afterwards there is their digest, and this verdict."""
    policy = evidence.call_spec.tool_policy
    pins: dict[str, list[dict[str, Any]]] = {}
    for tool in (policy and policy.allowed_tools) or ():
        if tool.input_schema is not None:
            pins.setdefault(tool.tool_name, []).append(tool.input_schema)
    if not pins:
        return {}
    arguments = {}
    for row in found.get("toolRequests") or ():
        if row is not None and row.get("input") is not None:
            arguments[trim(row["toolCallId"])] = row["input"]
    return {
        row.tool_call_id: all(validator_of(schema)(arguments[row.tool_call_id]) for schema in pins[row.tool_name])
        for row in evidence.tool_requests
        if row.tool_call_id in arguments and row.tool_name in pins
    }
