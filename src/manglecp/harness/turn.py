"""A turn as it is judged: its evidence, the terms in force, and its rows by call; complete or under construction.

:class:`TurnBuilder` reads each row once, when it is added, and results in the same turn as :func:`read_turn` of the
whole document. The caller may later mutate the values that it passed, so the builder copies them through JSON and reads
the copy. A value that differs from its copy (a tuple, a number without a JSON form) is also read itself, so that its
errors are raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from manglecp.base.digest import digest_bytes
from manglecp.base.text import normalize_word, trim
from manglecp.harness.call_spec import CallSpec
from manglecp.harness.constraints import Constraints, Terms, VerifiedDocuments, combine_terms, read_documents
from manglecp.harness.evidence import CallerEdge, Evidence, RowList, ToolRequest, ToolResult, ToolUse, read_evidence
from manglecp.harness.readers import InvalidEvidence, member_readers, read_member, read_text, reader_of
from manglecp.wire import validator_of

PROGRAM: Final = "code_execution"  # the kind of a call that is a program, and the caller kind of the calls it makes

_read_constraints: Final = reader_of(Constraints)


class TurnContext:
    """Constraints and policy documents, compared with the call spec. Immutable; turns with the same terms share it."""

    def __init__(
        self,
        call: CallSpec,
        constraints: Constraints,
        documents: Mapping[str, Any],
        verified: VerifiedDocuments | None = None,
    ) -> None:
        """Compare the documents with the call spec, unless ``verified`` has the result already."""
        self.constraints = constraints
        self.documents = documents
        self.verified = verified or VerifiedDocuments(documents, call)

    @cached_property
    def terms(self) -> Terms:
        """The terms of a turn that does not hand over."""
        return combine_terms(self.constraints, self.verified, handing_over=False)

    @cached_property
    def handoff_terms(self) -> Terms:
        """The terms of a turn that hands over."""
        return combine_terms(self.constraints, self.verified, handing_over=True)

    @cached_property
    def digest(self) -> str:
        """The digest of constraints and documents; unlike in canonical_v1, no numbers are converted to text."""
        return digest_bytes(msgspec.json.encode([self.constraints, self.documents], order="sorted"))


class Turn:
    """The input of the checks; immutable."""

    def __init__(self, evidence: Evidence, context: TurnContext, schema_verdicts: Mapping[str, bool]) -> None:
        self._frozen = False
        self.evidence = evidence
        self.call = evidence.call_spec
        self.context = context
        self.constraints = context.constraints
        self.documents = context.documents
        self.schema_verdicts = schema_verdicts  # by call id: whether the arguments match all pinned schemas
        self.drifted = context.verified.drifted  # kinds of the policy documents that differ from the call spec
        handing_over = evidence.handoff is not None or (
            evidence.mutation is not None and evidence.mutation.kind == "transfer"
        )
        self.terms = context.handoff_terms if handing_over else context.terms
        self.continuing = evidence.protocol_state is not None and bool(evidence.protocol_state.continuation_allowed)
        self.ended = evidence.protocol_state is not None
        self.requests: dict[str, ToolRequest] = {row.tool_call_id: row for row in evidence.tool_requests}
        self.uses: dict[str, ToolUse] = {row.tool_call_id: row for row in evidence.tool_use}
        self.results: dict[str, ToolResult] = {}  # terminal ones, by call id
        self.unfinished: set[str] = set()  # ids of calls whose results are not terminal
        self.edges: dict[str, CallerEdge] = {}  # of the calls that a program made, by call id
        for row in evidence.tool_results:
            if row.terminal:
                self.results[row.tool_call_id] = row
            else:
                self.unfinished.add(row.tool_call_id)
            if row.caller_edge is not None:
                self.edges[row.tool_call_id] = row.caller_edge
        self._frozen = True

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "_frozen", False):
            raise AttributeError("a turn is immutable")
        object.__setattr__(self, name, value)

    def caller_kind(self, request: ToolRequest) -> str:
        """Return the kind of the caller: from the edge, else from the request, else ``direct``."""
        edge = self.edges.get(request.tool_call_id)
        if edge is not None and edge.caller_kind is not None:
            return edge.caller_kind
        return "direct" if request.caller_id is None else normalize_word(request.caller_id)

    @property
    def direct_requests(self) -> Iterator[ToolRequest]:
        """The calls of the model itself, without those that a program made."""
        rows = self.evidence.tool_requests
        caller_ids = {row.caller_id for row in rows if row.caller_id is not None}
        program_ids = {caller_id for caller_id in caller_ids if normalize_word(caller_id) == PROGRAM}
        return (row for row in rows if row.tool_call_id not in self.edges and row.caller_id not in program_ids)

    @property
    def context_owed(self) -> bool:
        """Whether the evidence must show how results were rendered: the turn continues, or has used a result."""
        return self.continuing or any(row.consumed for row in self.evidence.tool_use)


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
    context = _read_context(evidence.call_spec, dict(document))
    return Turn(evidence, context, check_schemas(document["evidence"], evidence))


def _read_context(call: CallSpec, document: dict[str, Any]) -> TurnContext:
    constraints = _read_constraints(document)
    return TurnContext(call, constraints, read_member(document, "policyDocuments", read_documents) or {})


def check_schemas(document: dict[str, Any], evidence: Evidence) -> dict[str, bool]:
    """Return, by call id, whether the arguments match the schemas of the tool policy.

    ``document`` is the evidence as received: ``evidence`` has only the digests of the arguments.
    """
    policy = evidence.call_spec.tool_policy
    schemas: dict[str, list[dict[str, Any]]] = {}
    for tool in (policy and policy.allowed_tools) or ():
        if tool.input_schema is not None:
            schemas.setdefault(tool.tool_name, []).append(tool.input_schema)
    if not schemas:
        return {}
    arguments = {}
    for row in document.get("toolRequests") or ():
        if row is not None and row.get("input") is not None:
            arguments[trim(row["toolCallId"])] = row["input"]
    return {
        row.tool_call_id: all(validator_of(schema)(arguments[row.tool_call_id]) for schema in schemas[row.tool_name])
        for row in evidence.tool_requests
        if row.tool_call_id in arguments and row.tool_name in schemas
    }


_CALL_SPEC: Final = "callSpec"
_REQUESTS: Final = "toolRequests"
_MEMBERS: Final = member_readers(Evidence)  # member name -> (field name, reader)
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class TurnBuilder:
    """A turn under construction. Immutable: each method that adds to it returns another builder."""

    __slots__ = ("_numbered", "_raw", "_raw_context", "_verdicts", "context", "evidence")

    def __init__(
        self,
        context: TurnContext,
        evidence: Evidence,
        raw_context: Mapping[str, Any],
        raw: Mapping[str, Any],
        numbered: Mapping[str, list[tuple[int, Any]]],
        verdicts: Mapping[str, bool],
    ) -> None:
        """``raw_context`` and ``raw`` are constraints and evidence as received.

        ``numbered`` has, by member, the rows that were read, each with its index in ``raw``; ``verdicts`` is the result
        of :func:`check_schemas`.
        """
        self.context = context
        self.evidence = evidence
        self._raw_context = raw_context
        self._raw = raw
        self._numbered = numbered
        self._verdicts = verdicts

    @classmethod
    def open(cls, call_spec: Mapping[str, Any], constraints: Mapping[str, Any]) -> TurnBuilder:
        """Return a turn without rows. Raises :class:`.InvalidEvidence`."""
        document = {name: value for name, value in constraints.items() if value is not None}
        document["evidence"] = {_CALL_SPEC: dict(call_spec)}
        copy = _copy_json(document, lambda: read_turn(document, under_way=True))
        turn = read_turn(copy, under_way=True)
        raw = copy.pop("evidence")
        return cls(turn.context, turn.evidence, copy, raw, {}, {})

    def with_call_id(self, call_id: str) -> TurnBuilder:
        """Return the same turn, which must have no rows yet, with another call id."""
        normalized = read_text(call_id)
        if normalized is None or len(self._raw) != 1:  # the call spec alone
            raise InvalidEvidence("/evidence/callSpec/callId", "is blank, or the turn has begun")
        raw = {_CALL_SPEC: {**self._raw[_CALL_SPEC], "callId": call_id}}
        call = msgspec.structs.replace(self.evidence.call_spec, call_id=normalized)
        return TurnBuilder(self.context, Evidence(call), self._raw_context, raw, {}, {})

    def with_evidence(self, added: Mapping[str, Any]) -> TurnBuilder:
        """Return a builder with more evidence: rows are appended to their list, other members are replaced."""
        added = {name: value for name, value in added.items() if value is not None}
        return self._add(_copy_json(added, lambda: self._add(added)))

    def with_constraints(self, constraints: Mapping[str, Any]) -> TurnBuilder:
        """Return a builder with these constraints added or replaced."""
        call, before = self.evidence.call_spec, self.context
        copy = _copy_json(dict(constraints), lambda: _read_context(call, {**self._raw_context, **constraints}))
        raw = {**self._raw_context, **copy}
        if "policyDocuments" in copy:
            context = _read_context(call, raw)
        else:
            context = TurnContext(call, _read_constraints(raw), before.documents, before.verified)
        return TurnBuilder(context, self.evidence, raw, self._raw, self._numbered, self._verdicts)

    @property
    def document(self) -> dict[str, Any]:
        """A copy of constraints and evidence, as an input of :func:`.judgement.judge`."""
        copy: dict[str, Any] = _decode(_encode({**self._raw_context, "evidence": self._raw}))
        return copy

    @property
    def turn(self) -> Turn:
        return Turn(self.evidence, self.context, self._verdicts)

    def constraint(self, name: str) -> Any:
        """Return a constraint object as received, or None."""
        return self._raw_context.get(name)

    def _add(self, added: dict[str, Any]) -> TurnBuilder:
        raw, numbered, fields = dict(self._raw), dict(self._numbered), {}
        for name, value in added.items():
            if name == _CALL_SPEC:
                raise InvalidEvidence("/evidence/callSpec", "the call spec of a turn cannot be replaced")
            before = raw.get(name)
            raw[name] = _append(before, value)
            if name not in _MEMBERS:
                continue
            field, read = _MEMBERS[name]
            try:
                if isinstance(read, RowList):
                    start = len(before) if isinstance(before, list) else 0
                    numbered[name] = [*numbered.get(name, ()), *read.numbered(raw[name], start)]
                    fields[field] = read.arrange(numbered[name])
                elif (item := read(raw[name])) is not None:
                    fields[field] = item
            except InvalidEvidence as error:
                raise error.under(name).under("evidence") from None
        evidence = msgspec.structs.replace(self.evidence, **fields)
        verdicts = self._verdicts
        if any(row is not None and row.get("input") is not None for row in added.get(_REQUESTS, ())):
            verdicts = check_schemas(raw, evidence)
        return TurnBuilder(self.context, evidence, self._raw_context, raw, numbered, verdicts)


def _append(before: Any, value: Any) -> Any:
    """Return both lists joined, or the new value if one of them is not a list."""
    if isinstance(before, list) and isinstance(value, Sequence) and not isinstance(value, str):
        return [*before, *value]
    return value


def _copy_json(value: Any, read: Callable[[], object]) -> Any:
    """Return a copy through JSON. ``read`` reads the original, to raise for what the copy lost, such as a NaN."""
    try:
        copy = _decode(_encode(value))
    except (ValueError, TypeError, RecursionError) as error:
        read()  # prefer its error, which has a path
        raise InvalidEvidence("", f"not JSON: {error}") from None
    if copy != value:
        read()
    return copy
