"""The evidence of one turn: a type per kind of row, and :class:`Evidence` with all rows, each once, in canonical order.

A row is normalised when it is read: texts are trimmed, synonyms replaced, and defaults filled in. Payloads, arguments
and messages are not stored; rows hold their digests.

Rows that are equal after normalisation are one row. Two different rows of the same kind with the same id are a
contradiction, and make the evidence invalid. Among results, only terminal results can contradict one another; a result
that is not terminal counts until there is a terminal result with the same id. Rows of kinds without ids (accesses,
artifacts, decisions, exports) cannot contradict one another. *Upstream* is the reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from manglecp.base.digest import digest_bytes, digest_text
from manglecp.harness.call_spec import CallSpec
from manglecp.harness.classes import row_pointer
from manglecp.harness.readers import (
    Flag,
    Integer,
    InvalidEvidence,
    JsonRecord,
    Member,
    Multiset,
    RequiredText,
    RequiredWord,
    Text,
    Texts,
    Word,
    canonical_form,
    list_of,
    member_readers,
    read_integer,
    read_member,
    read_text,
    read_texts,
    read_word,
    reader_of,
)


class Row(JsonRecord, frozen=True):
    """A row of a list of the evidence."""

    @property
    def where(self) -> str:
        """The place of the row, for a finding: the name of its list and its id."""
        list_name, id_field = _PLACES[type(self)]
        row_id = getattr(self, id_field)
        return row_pointer(list_name, "" if row_id is None else row_id)


class ErrorEnvelope(JsonRecord, frozen=True):
    """The error of a result. ``gaps`` names the missing members, which got defaults; a typed error has no gaps."""

    error_code: str
    retryable: bool
    error_message_digest: str
    gaps: tuple[str, ...] = ()
    error_summary_digest: str | None = None


class _RawError(JsonRecord, frozen=True):
    error_code: Text = None
    code: Text = None
    retryable: Flag = None
    error_message: Text = None
    message: Text = None


def _read_raw_error(value: Any) -> tuple[_RawError, dict[str, Any]] | None:
    """Return the error and its JSON; a text is not an error object."""
    return (reader_of(_RawError)(value), value) if isinstance(value, dict) else None


class _ErrorMembers(JsonRecord, frozen=True):
    error_code: Text = None
    retryable: Flag = None
    error_message: Text = None
    error_message_digest: Text = None
    error_summary: Text = None


def read_envelope(row: dict[str, Any]) -> ErrorEnvelope:
    """Return the error of a result; a member of the row takes precedence over the same member of ``rawError``."""
    members = reader_of(_ErrorMembers)(row)
    raw, raw_json = read_member(row, "rawError", _read_raw_error) or (_RawError(), {})
    retryable = raw.retryable if members.retryable is None else members.retryable
    # As for upstream, a blank errorCode hides code (and errorMessage hides message) in the digests, but not in gaps.
    code = members.error_code or (raw.code if raw_json.get("errorCode") is None else raw.error_code)
    message = members.error_message or (raw.message if raw_json.get("errorMessage") is None else raw.error_message)
    values_by_member = {
        "errorCode": members.error_code or raw.error_code or raw.code,
        "retryable": retryable is not None,
        "errorMessage": members.error_message or members.error_message_digest or raw.error_message or raw.message,
    }
    return ErrorEnvelope(
        error_code=code or "unknown_error",
        retryable=retryable is True,
        error_message_digest=digest_text(message) if message else members.error_message_digest or digest_text(""),
        gaps=tuple(name for name, value in values_by_member.items() if not value),
        error_summary_digest=None if members.error_summary is None else digest_text(members.error_summary),
    )


def _read_query_digest(row: dict[str, Any]) -> str | None:
    query = read_member(row, "query", read_text)
    return read_member(row, "queryDigest", read_text) if query is None else digest_text(query)


class SearchRef(JsonRecord, frozen=True):
    query_digest: Annotated[str | None, Member(_read_query_digest, computed=True)] = None
    catalog_digest: Text = None
    result_tools: Annotated[tuple[str, ...] | None, Member(read_texts)] = None
    result_set_digest: Text = None
    resolved_tool_name: Text = None


def _read_search_fits(row: dict[str, Any]) -> bool | None:
    """Return whether ``searchRefDigest`` is the digest of the recorded search; None if either is missing."""
    declared_digest = read_member(row, "searchRefDigest", read_text)
    if declared_digest is None or row.get("searchRef") is None:
        return None
    return declared_digest == digest_bytes(_canonical_member(row, "searchRef"))


def _read_input_digest(row: dict[str, Any]) -> str | None:
    """Return the digest of the recorded arguments or, without recorded arguments, the declared digest."""
    declared_digest = read_member(row, "inputDigest", read_text)
    return declared_digest if row.get("input") is None else digest_bytes(_canonical_member(row, "input"))


def _canonical_member(row: dict[str, Any], name: str) -> bytes:
    return read_member(row, name, canonical_form) or b""


class ToolRequest(Row, frozen=True):
    """A call of the model, with the digest of its arguments."""

    tool_call_id: RequiredText
    tool_name: RequiredText
    tool_kind: Word = "function"
    schema_digest: Text = None
    caller_id: Text = None
    search_ref_digest: Text = None
    source_block: Word = None
    parser_profile_id: Text = None
    input_digest: Annotated[str | None, Member(_read_input_digest, computed=True)] = None
    schema_valid: Flag = None
    action_index: Integer = None
    call_group_id: Text = None
    branch_id: Text = None
    ordinal: Integer = None
    search_ref: SearchRef | None = None
    search_fits: Annotated[bool | None, Member(_read_search_fits, computed=True)] = None
    example_digest: Text = None


Status: TypeAlias = Literal["ok", "error", "pending", "running", "streaming"]
_STATUS_WORDS: Final[dict[str | None, Status]] = {
    "ok": "ok", "success": "ok",
    "error": "error", "failure": "error", "failed": "error", "timeout": "error", "cancelled": "error",
    "denied": "error",
    "pending": "pending", "running": "running", "streaming": "streaming",
}  # fmt: skip


def _read_status(row: dict[str, Any]) -> Status:
    value = row.get("status")
    word = read_member(row, "status", read_word)
    if word is None and (value is None or type(value) is str):  # without a status, error members decide
        has_error = reader_of(_ErrorMembers)(row) != _ErrorMembers() or isinstance(row.get("rawError"), dict)
        return "error" if has_error else "ok"
    if word not in _STATUS_WORDS:
        raise InvalidEvidence("/status", f"{value!r:.80} is not a status")
    return _STATUS_WORDS[word]


def _read_result_digest(row: dict[str, Any]) -> str | None:
    declared_digest = read_member(row, "resultDigest", read_text)
    if declared_digest is not None or row.get("payload") is None:
        return declared_digest
    return digest_bytes(_canonical_member(row, "payload"))


def _read_payload_bytes(row: dict[str, Any]) -> int | None:
    """Return the larger of the declared and the measured size of the payload."""
    declared_size = read_member(row, "payloadBytes", read_integer)
    payload = row.get("payload")
    if payload is None:
        return declared_size
    measured_size = len(
        payload.encode("utf-8", "replace") if type(payload) is str else _canonical_member(row, "payload")
    )
    return measured_size if declared_size is None else max(declared_size, measured_size)


def _read_error(row: dict[str, Any]) -> ErrorEnvelope | None:
    envelope = read_envelope(row)  # read even if the status is ok, because invalid members must raise
    return envelope if _read_status(row) == "error" else None


class Provenance(JsonRecord, frozen=True):
    kind: Word = None
    ref: Text = None


class Observation(JsonRecord, frozen=True):
    stdout_digest: Text = None
    stderr_digest: Text = None
    traceback_digest: Text = None


class CallerEdge(JsonRecord, frozen=True):
    caller_kind: Word = None
    parent_tool_call_id: Text = None
    child_tool_call_id: Text = None


class TokenUsage(JsonRecord, frozen=True):
    unfiltered_tokens: Integer = None
    filtered_tokens: Integer = None
    delta_tokens: Integer = None
    filter_applied: Flag = None


class Truncation(JsonRecord, frozen=True):
    truncated: Flag = None
    strategy: Word = None
    marker: Text = None
    original_bytes: Integer = None
    kept_bytes: Integer = None
    head_bytes: Integer = None
    tail_bytes: Integer = None
    omitted_bytes: Integer = None


class Shell(JsonRecord, frozen=True):
    """Directory, sandbox, exit status and edited files of a command."""

    workdir: Text = None
    sandbox_ref: Text = None
    command_digest: Text = None
    exit_code: Integer = None
    edited_paths: Texts = ()


class ToolResult(Row, frozen=True):
    """The result of a call, with the digest and size of its payload."""

    tool_call_id: RequiredText
    status: Annotated[Status, Member(_read_status, computed=True)]
    result_digest: Annotated[str | None, Member(_read_result_digest, computed=True)] = None
    payload_bytes: Annotated[int | None, Member(_read_payload_bytes, computed=True)] = None
    error: Annotated[ErrorEnvelope | None, Member(_read_error, computed=True)] = None
    provenance: Provenance | None = None
    observation: Observation | None = None
    caller_edge: CallerEdge | None = None
    token_usage: TokenUsage | None = None
    truncation: Truncation | None = None
    shell: Shell | None = None
    edit_surface: Text = None
    sequence: Integer = None

    @property
    def is_terminal(self) -> bool:
        """Whether this is a final result, not a report of progress."""
        return self.status in ("ok", "error")


Disposition: TypeAlias = Literal["consumed", "observed_only", "discarded_with_reason", "discarded", "retry_scheduled"]
_DISPOSITION_WORDS: Final[dict[str | None, Disposition]] = {
    "consumed": "consumed",
    "observed_only": "observed_only", "observed": "observed_only",
    "discarded_with_reason": "discarded_with_reason", "discarded": "discarded",
    "retry_scheduled": "retry_scheduled",
}  # fmt: skip


def _read_disposition(row: dict[str, Any]) -> Disposition:
    name = "useDisposition" if read_member(row, "disposition", read_text) is None else "disposition"
    word = read_member(row, name, read_word)
    if word not in _DISPOSITION_WORDS:
        raise InvalidEvidence(f"/{name}", "is absent" if word is None else f"{word!r:.80} is not a disposition")
    # Upstream's `discarded` needs no reason. With a reason it equals `discarded_with_reason`, which needs one.
    return "discarded_with_reason" if word == "discarded" and _read_reason(row) else _DISPOSITION_WORDS[word]


def _read_reason(row: dict[str, Any]) -> str | None:
    return read_member(row, "reasonCode", read_text) or read_member(row, "useReason", read_text)


class ToolUse(Row, frozen=True):
    """The use of a result: consumed, observed, discarded or retried."""

    tool_call_id: RequiredText
    disposition: Annotated[Disposition, Member(_read_disposition, computed=True)]
    result_digest: Text = None
    reason_code: Annotated[str | None, Member(_read_reason, computed=True)] = None
    summary_ref: Text = None
    handoff_ref: Text = None
    mutation_input_ref: Text = None
    retry_ref: Text = None

    @property
    def is_consumed(self) -> bool:
        return self.disposition == "consumed"

    @property
    def provenance(self) -> tuple[str, ...]:
        """The references (summary, handoff, mutation input) for which the result was used."""
        refs = (self.summary_ref, self.handoff_ref, self.mutation_input_ref)
        return tuple(ref for ref in refs if ref is not None)


class ToolRender(Row, frozen=True):
    """The rendering of a result for the operator and, as a reminder, for the model."""

    tool_call_id: RequiredText
    operator_payload_digest: RequiredText
    reminder_render_digest: RequiredText
    injection_point: RequiredWord
    policy_digest: RequiredText


class QueueEntry(JsonRecord, frozen=True):
    reminder_digest: Text = None
    batch_id: Text = None


def _read_queue_entries(value: Any) -> tuple[QueueEntry, ...]:
    entries = list_of(reader_of(QueueEntry))(value)
    return tuple(sorted(entries, key=lambda entry: (entry.reminder_digest or "", entry.batch_id or "")))


class ReminderQueue(Row, frozen=True):
    queue_id: RequiredText
    reduced_digest: RequiredText
    policy_digest: RequiredText
    entries: Annotated[tuple[QueueEntry, ...], Member(_read_queue_entries)] = ()


class StateView(Row, frozen=True):
    """A view of the state on which decisions were based, and its sources."""

    view_id: RequiredText
    view_digest: RequiredText
    policy_digest: RequiredText
    source_refs: Texts = ()


def _read_required_sequence(row: dict[str, Any]) -> int:
    number = read_member(row, "sequence", read_integer)
    if number is None:
        raise InvalidEvidence("/sequence", "is absent or not an integer")
    return number


class GuardrailDecision(Row, frozen=True):
    """The decision of a guardrail at its stage, ordered by ``sequence``."""

    stage: RequiredWord
    sequence: Annotated[int, Member(_read_required_sequence, computed=True)]
    guardrail_id: Text = None
    triggered: Flag = None
    outcome: Word = None
    tool_call_id: Text = None
    threshold_ref: Text = None
    model_ref: Text = None
    policy_digest: Text = None


class Artifact(Row, frozen=True):
    """An artifact that the turn references or wrote, and whether it exists."""

    ref: RequiredText
    path: Text = None
    digest: Text = None
    exists: Flag = True
    written: Flag = None
    role: Word = None
    owner_role: Word = None
    tool_call_id: Text = None


class ContextAccess(Row, frozen=True):
    ref: RequiredText
    access: Word = "read"
    role: Word = None


class TraceExport(Row, frozen=True):
    sink: Text = None


class BranchJoin(Row, frozen=True):
    """Whether a branch of the turn has closed."""

    branch_id: Text = None
    join_closed: Flag = None
    join_digest: Text = None


class ProtocolState(JsonRecord, frozen=True):
    """The stop reason of the model, and whether it may continue."""

    stop_reason: RequiredWord
    continuation_allowed: Flag = False
    turn_index: Integer = None
    iteration: Integer = None
    checkpoint_ref: Text = None


class Handoff(JsonRecord, frozen=True):
    target: RequiredText
    required_artifact_refs: Texts = ()
    return_path_ref: Text = None
    intent: Text = None
    constraints: Texts = ()
    packet_digest: Text = None


class Decomposition(JsonRecord, frozen=True):
    mode: Word = None
    fan_out: Integer = None
    workers: Multiset = ()
    escalation_trigger_ref: Text = None

    @property
    def width(self) -> int:
        """The larger of the declared fan-out and the number of workers."""
        return max(self.fan_out or 0, len(self.workers))


class Compaction(JsonRecord, frozen=True):
    """The compaction of a context: the references carried forward, and the calls dropped."""

    invoked: Flag = True
    policy_digest: Text = None
    summary_digest: Text = None
    continuity_ref: Text = None
    carry_forward_refs: Texts = ()
    dropped_tool_call_ids: Texts = ()


class Continuity(JsonRecord, frozen=True):
    """The beginning of the turn: ``fresh``, after a handoff (``descent``), or after a ``compaction``."""

    mode: Word = None
    handoff_ref: Text = None
    artifact_refs: Texts = ()


class NamedCall(JsonRecord, frozen=True):
    """A call that a mutation names: tool, input digest and id."""

    tool_call_id: RequiredText
    tool_name: RequiredText
    input_digest: RequiredText


def _read_named_calls(value: Any) -> tuple[NamedCall, ...]:
    """Return the distinct calls, sorted by id. Two different calls with the same id are a contradiction."""
    calls: dict[str, NamedCall] = {}
    for call in list_of(reader_of(NamedCall))(value):
        if calls.setdefault(call.tool_call_id, call) != call:
            raise InvalidEvidence("", f"another call under {call.tool_call_id!r:.80} differs")
    return tuple(calls[name] for name in sorted(calls))


class Mutation(JsonRecord, frozen=True):
    """A change outside of the turn that the turn intends, and the references that justify the change."""

    kind: Word = None
    action: Text = None
    input_refs: Texts = ()
    instruction_ref: Text = None
    capability_claims: Texts = ()
    policy_digest: Text = None
    join_witness_refs: Texts = ()
    automated: Flag = None
    calls: Annotated[tuple[NamedCall, ...], Member(_read_named_calls)] = ()
    """The calls that a mutation of the kind ``effect`` permits, each once."""


_encode: Final = msgspec.json.Encoder(order="sorted").encode
R = TypeVar("R", bound=JsonRecord)


def _arrange_set(rows: Iterable[R]) -> tuple[R, ...]:
    """Return the distinct rows, sorted by their JSON."""
    return tuple(row for _, row in sorted({_encode(row): row for row in rows}.items()))


class RowList:
    """The reader of a list of rows. If ``is_unique``, rows with the same ``id_field`` have to be equal."""

    def __init__(self, kind: type[Row], id_field: str = "tool_call_id", *, is_unique: bool = True) -> None:
        self.kind = kind
        self.id_field = id_field
        self._is_unique = is_unique
        self._read_rows = list_of(reader_of(kind))

    def __call__(self, value: Any) -> tuple[Any, ...]:
        return self.extend((), value)

    def extend(self, rows: Iterable[Any], added: Any) -> tuple[Any, ...]:
        """Return ``rows`` and the rows of the JSON list ``added``, in canonical order."""
        return self.arrange((*rows, *self._read_rows(added)))

    def arrange(self, rows: Iterable[Any]) -> tuple[Any, ...]:
        """Return the distinct rows in canonical order. Raises :class:`InvalidEvidence` for a contradiction."""
        if not self._is_unique:
            return _arrange_set(rows)
        by_id: dict[str, Any] = {}
        without_id = []
        for row in rows:
            row_id = getattr(row, self.id_field)
            if row_id is None:
                without_id.append(row)
            elif by_id.setdefault(row_id, row) != row:
                raise InvalidEvidence("", f"another row under {row_id!r:.80} differs")
        return tuple(by_id[row_id] for row_id in sorted(by_id)) + _arrange_set(without_id)


class _ResultList(RowList):
    def arrange(self, rows: Iterable[ToolResult]) -> tuple[ToolResult, ...]:
        rows = tuple(rows)
        terminal = super().arrange(row for row in rows if row.is_terminal)
        terminal_ids = {row.tool_call_id for row in terminal}
        pending_rows = _arrange_set(row for row in rows if not row.is_terminal and row.tool_call_id not in terminal_ids)
        return tuple(sorted((*terminal, *pending_rows), key=lambda row: row.tool_call_id))


_DECISIONS: Final = Member(RowList(GuardrailDecision, "sequence", is_unique=False))
_ARTIFACTS: Final = Member(RowList(Artifact, "ref", is_unique=False))
_ACCESSES: Final = Member(RowList(ContextAccess, "ref", is_unique=False))
_EXPORTS: Final = Member(RowList(TraceExport, "sink", is_unique=False))


class Evidence(JsonRecord, frozen=True):
    """The evidence of one turn. ``protocolState`` is absent only while the turn is open."""

    call_spec: CallSpec
    tool_requests: Annotated[tuple[ToolRequest, ...], Member(RowList(ToolRequest))] = ()
    tool_results: Annotated[tuple[ToolResult, ...], Member(_ResultList(ToolResult))] = ()
    tool_use: Annotated[tuple[ToolUse, ...], Member(RowList(ToolUse))] = ()
    protocol_state: ProtocolState | None = None
    tool_render: Annotated[tuple[ToolRender, ...], Member(RowList(ToolRender))] = ()
    reminder_queue: Annotated[tuple[ReminderQueue, ...], Member(RowList(ReminderQueue, "queue_id"))] = ()
    state_views: Annotated[tuple[StateView, ...], Member(RowList(StateView, "view_id"))] = ()
    branch_joins: Annotated[tuple[BranchJoin, ...], Member(RowList(BranchJoin, "branch_id"))] = ()
    guardrail_decisions: Annotated[tuple[GuardrailDecision, ...] | None, _DECISIONS] = None
    """None if the list is absent; an empty list means that no guardrail decided."""
    artifacts: Annotated[tuple[Artifact, ...], _ARTIFACTS] = ()
    context_access: Annotated[tuple[ContextAccess, ...], _ACCESSES] = ()
    trace_exports: Annotated[tuple[TraceExport, ...], _EXPORTS] = ()
    handoff: Handoff | None = None
    decomposition: Decomposition | None = None
    compaction: Compaction | None = None
    continuity: Continuity | None = None
    mutation: Mutation | None = None
    session_refs: Texts = ()
    trajectory_refs: Texts = ()


read_evidence: Final = reader_of(Evidence)
EVIDENCE_MEMBERS: Final = member_readers(Evidence)  # the field and its reader, by member name
_ROW_LISTS: Final = {name: read for name, (_, read) in EVIDENCE_MEMBERS.items() if isinstance(read, RowList)}
_PLACES: Final = {read.kind: (name, read.id_field) for name, read in _ROW_LISTS.items()}  # by kind of row


def check_row_order(evidence: Evidence) -> None:
    """Raise :class:`InvalidEvidence` if recorded evidence is not in canonical order or contradicts itself."""
    for name, read in _ROW_LISTS.items():
        rows = getattr(evidence, EVIDENCE_MEMBERS[name][0]) or ()
        try:
            if read.arrange(rows) != rows:
                raise InvalidEvidence("", "the rows are not in canonical order")
        except InvalidEvidence as error:
            raise error.inside(name).inside("evidence") from None
