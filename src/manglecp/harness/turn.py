"""A turn: the evidence, the terms in force, and the rows by call id, which the checks read; and the builder of a turn.

:class:`TurnBuilder` reads each row once, when the row is added, and builds the same turn that :func:`read_turn` returns
for the whole document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.base.text import normalize_word, trim
from manglecp.harness.call_spec import ToolPolicy
from manglecp.harness.constraints import Constraints, PolicyDocuments, combine_terms, read_documents
from manglecp.harness.evidence import (
    EVIDENCE_MEMBERS,
    CallerEdge,
    Evidence,
    RowList,
    ToolRequest,
    ToolResult,
    ToolUse,
    read_evidence,
)
from manglecp.harness.readers import InvalidEvidence, member_readers, read_member, read_text, reader_of
from manglecp.wire import validator_of

PROGRAM: Final = (
    "code_execution"  # the kind of a call that runs a program; also the caller kind of calls that the program makes
)

_read_constraints: Final = reader_of(Constraints)
_CONSTRAINT_MEMBERS: Final = member_readers(Constraints)


class Turn:
    """The input of the checks; immutable."""

    def __init__(
        self,
        evidence: Evidence,
        constraints: Constraints,
        documents: PolicyDocuments,
        schema_verdicts: Mapping[str, bool],
    ) -> None:
        self._is_frozen = False
        self.evidence = evidence
        self.call = evidence.call_spec
        self.constraints = constraints
        self.documents = documents
        self.schema_verdicts = schema_verdicts  # whether the arguments match all pinned schemas, by call id
        is_transfer = evidence.mutation is not None and evidence.mutation.kind == "transfer"
        self.terms = combine_terms(constraints, documents, is_handoff=is_transfer or evidence.handoff is not None)
        self.continues = evidence.protocol_state is not None and bool(evidence.protocol_state.continuation_allowed)
        self.has_ended = evidence.protocol_state is not None
        self.requests: dict[str, ToolRequest] = {row.tool_call_id: row for row in evidence.tool_requests}
        self.uses: dict[str, ToolUse] = {row.tool_call_id: row for row in evidence.tool_use}
        self.results: dict[str, ToolResult] = {}  # the terminal results, by call id
        self.unfinished_ids: set[str] = set()  # ids of calls whose results are not terminal
        self.caller_edges: dict[str, CallerEdge] = {}  # the edges to calls that a program made, by call id
        for row in evidence.tool_results:
            if row.is_terminal:
                self.results[row.tool_call_id] = row
            else:
                self.unfinished_ids.add(row.tool_call_id)
            if row.caller_edge is not None:
                self.caller_edges[row.tool_call_id] = row.caller_edge
        self._is_frozen = True

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "_is_frozen", False):
            raise AttributeError("a turn is immutable")
        object.__setattr__(self, name, value)

    def caller_kind(self, request: ToolRequest) -> str:
        """Return the caller kind of the caller edge or of the request, by default ``direct``."""
        edge = self.caller_edges.get(request.tool_call_id)
        if edge is not None and edge.caller_kind is not None:
            return edge.caller_kind
        return "direct" if request.caller_id is None else normalize_word(request.caller_id)

    @property
    def direct_requests(self) -> Iterator[ToolRequest]:
        """The calls of the model itself, without those that a program made."""
        rows = self.evidence.tool_requests
        caller_ids = {row.caller_id for row in rows if row.caller_id is not None}
        program_ids = {caller_id for caller_id in caller_ids if normalize_word(caller_id) == PROGRAM}
        return (row for row in rows if row.tool_call_id not in self.caller_edges and row.caller_id not in program_ids)

    @property
    def needs_context(self) -> bool:
        """Whether the evidence must show how results were rendered: if the turn continues, or consumed a result."""
        return self.continues or any(row.is_consumed for row in self.evidence.tool_use)


def read_turn(document: Mapping[str, Any], *, under_way: bool = False) -> Turn:
    """Return the turn of a document. Raises :class:`.InvalidEvidence`.

    If ``under_way``, the protocol state may be absent.
    """
    if not isinstance(document, Mapping):
        raise InvalidEvidence("", "an object is expected")
    evidence = read_member(document, "evidence", read_evidence)
    if evidence is None:
        raise InvalidEvidence("/evidence", "is absent")
    if evidence.protocol_state is None and not under_way:
        raise InvalidEvidence("/evidence/protocolState", "is absent")
    constraints = _read_constraints(dict(document))
    documents = PolicyDocuments(read_member(document, "policyDocuments", read_documents) or {}, evidence.call_spec)
    schema_verdicts = check_schemas(document["evidence"].get("toolRequests"), evidence.call_spec.tool_policy)
    return Turn(evidence, constraints, documents, schema_verdicts)


def check_schemas(rows: Any, policy: ToolPolicy | None) -> dict[str, bool]:
    """Return, by call id, whether the arguments match the schemas of the tool policy.

    ``rows`` are the requests as received; the evidence has only the digests of their arguments.
    """
    validators: dict[str, list[Callable[[Any], bool]]] = {}
    for tool in (policy and policy.allowed_tools) or ():
        if tool.input_schema is not None:
            validators.setdefault(tool.tool_name, []).append(validator_of(tool.input_schema))
    return {
        trim(row["toolCallId"]): all(is_valid(row["input"]) for is_valid in validators[trim(row["toolName"])])
        for row in (validators and rows) or ()
        if row is not None and row.get("input") is not None and trim(row["toolName"]) in validators
    }


class TurnBuilder(NamedTuple):
    """A turn under construction. Immutable: each method that adds to it returns another builder."""

    evidence: Evidence
    constraints: Constraints
    documents: PolicyDocuments
    schema_verdicts: Mapping[str, bool]

    @classmethod
    def open(cls, call_spec: Mapping[str, Any], constraints: Mapping[str, Any]) -> TurnBuilder:
        """Return the builder of a turn without rows. Raises :class:`.InvalidEvidence`."""
        document = {**constraints, "evidence": {"callSpec": dict(call_spec)}}
        turn = read_turn(deepcopy(document), under_way=True)  # schemas and policy documents are not copied by readers
        return cls(turn.evidence, turn.constraints, turn.documents, {})

    def with_call_id(self, call_id: str) -> TurnBuilder:
        """Return a builder with another call id. Raises :class:`.InvalidEvidence` if evidence was added."""
        call_spec = self.evidence.call_spec
        normalized_id = read_text(call_id)
        if normalized_id is None or self.evidence != Evidence(call_spec):
            raise InvalidEvidence("/evidence/callSpec/callId", "is blank, or the turn has begun")
        return self._replace(evidence=Evidence(msgspec.structs.replace(call_spec, call_id=normalized_id)))

    def with_evidence(self, new_members: Mapping[str, Any]) -> TurnBuilder:
        """Return a builder with more evidence: rows are appended to their list, other members are replaced.

        Raises :class:`.InvalidEvidence`; an index in its path is the position among the added rows.
        """
        if new_members.get("callSpec") is not None:
            raise InvalidEvidence("/evidence/callSpec", "the call spec of a turn cannot be replaced")
        fields = {}
        for name in new_members:
            if name not in EVIDENCE_MEMBERS:
                continue
            field, read = EVIDENCE_MEMBERS[name]
            read_more = partial(read.extend, getattr(self.evidence, field) or ()) if isinstance(read, RowList) else read
            try:
                item = read_member(new_members, name, read_more)
            except InvalidEvidence as error:
                raise error.inside("evidence") from None
            if item is not None:
                fields[field] = item
        evidence = msgspec.structs.replace(self.evidence, **fields)
        verdicts = check_schemas(new_members.get("toolRequests"), evidence.call_spec.tool_policy)
        return self._replace(evidence=evidence, schema_verdicts={**self.schema_verdicts, **verdicts})

    def with_constraints(self, constraints: Mapping[str, Any]) -> TurnBuilder:
        """Return a builder with these constraint objects added or replaced."""
        fields = {}
        for name, (field, read) in _CONSTRAINT_MEMBERS.items():
            if (item := read_member(constraints, name, read)) is not None:
                fields[field] = item
        return self._replace(constraints=msgspec.structs.replace(self.constraints, **fields))

    @property
    def turn(self) -> Turn:
        return Turn(*self)
