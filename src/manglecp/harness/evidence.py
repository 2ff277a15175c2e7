"""The evidence of one turn: a type per kind of row, and :class:`Evidence` with all rows, each once, in canonical order.

A row is normalised when it is read: texts are trimmed, synonyms replaced, and defaults filled in. Payloads, arguments
and messages are not stored; rows hold their digests.

Rows that are equal after normalisation are one row. Two different rows of one kind with one id are a contradiction and
make the evidence invalid. Of results, only terminal ones can contradict one another; a result that is not terminal
counts until there is a terminal one with its id. Rows without an id (accesses, artifacts, decisions, exports) cannot
contradict one another. *Upstream* is the reference implementation of the harness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from manglecp.base.digest import digest_bytes, digest_text
from manglecp.harness.call_spec import CallSpec
from manglecp.harness.readers import (
    ComputedMember,
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
    checked_list,
    list_of,
    member_readers,
    read_integer,
    read_member,
    read_text,
    read_texts,
    read_word,
    reader_of,
)


class ErrorEnvelope(JsonRecord, frozen=True):
    """The error of a result. ``gaps`` are the missing members, which have defaults; a typed error has no gaps."""

    error_code: str
    retryable: bool
    error_message_digest: str
    gaps: tuple[str, ...] = ()
    error_summary_digest: str | None = None


def _first_present(first: str, second: str) -> ComputedMember:
    """Read member ``first``, or ``second`` if ``first`` is absent; a blank ``first`` counts, as in upstream's hash."""

    def read(row: dict[str, Any]) -> str | None:
        return read_member(row, second if row.get(first) is None else first, read_text)

    return ComputedMember(read)


class _RawError(JsonRecord, frozen=True):
    error_code: Text = None
    code: Text = None
    retryable: Flag = None
    error_message: Text = None
    message: Text = None
    hashed_code: Annotated[str | None, _first_present("errorCode", "code")] = None
    hashed_message: Annotated[str | None, _first_present("errorMessage", "message")] = None


def _read_raw_error(value: Any) -> _RawError | None:
    return reader_of(_RawError)(value) if isinstance(value, dict) else None  # a text is not an error object


class _ErrorMembers(JsonRecord, frozen=True):
    error_code: Text = None
    retryable: Flag = None
    error_message: Text = None
    error_message_digest: Text = None
    error_summary: Text = None
    raw_error: Annotated[_RawError, Member(_read_raw_error)] = _RawError()


def read_envelope(row: dict[str, Any]) -> ErrorEnvelope:
    """Return the error of a result; members of the row take precedence over those of its ``rawError``."""
    members = reader_of(_ErrorMembers)(row)
    raw = members.raw_error
    retryable = raw.retryable if members.retryable is None else members.retryable
    message = members.error_message or raw.hashed_message
    values_by_member = {
        "errorCode": members.error_code or raw.error_code or raw.code,
        "retryable": retryable is not None,
        "errorMessage": members.error_message or members.error_message_digest or raw.error_message or raw.message,
    }
    return ErrorEnvelope(
        error_code=members.error_code or raw.hashed_code or "unknown_error",
        retryable=retryable is True,
        error_message_digest=digest_text(message) if message else members.error_message_digest or digest_text(""),
        gaps=tuple(name for name, value in values_by_member.items() if not value),
        error_summary_digest=None if members.error_summary is None else digest_text(members.error_summary),
    )


def _read_query_digest(row: dict[str, Any]) -> str | None:
    query = read_member(row, "query", read_text)
    return read_member(row, "queryDigest", read_text) if query is None else digest_text(query)


class SearchRef(JsonRecord, frozen=True):
    query_digest: Annotated[str | None, ComputedMember(_read_query_digest)] = None
    catalog_digest: Text = None
    result_tools: Annotated[tuple[str, ...] | None, Member(read_texts)] = None
    result_set_digest: Text = None
    resolved_tool_name: Text = None


def _read_search_fits(row: dict[str, Any]) -> bool | None:
    """Return whether ``searchRefDigest`` matches the recorded search; None if one of them is missing."""
    declared = read_member(row, "searchRefDigest", read_text)
    if declared is None or row.get("searchRef") is None:
        return None
    return declared == digest_bytes(_canonical_member(row, "searchRef"))


def _read_input_digest(row: dict[str, Any]) -> str | None:
    """Return the digest of the recorded arguments, or the declared digest if they are not recorded."""
    declared = read_member(row, "inputDigest", read_text)
    return declared if row.get("input") is None else digest_bytes(_canonical_member(row, "input"))


def _canonical_member(row: dict[str, Any], name: str) -> bytes:
    return read_member(row, name, canonical_form) or b""


class ToolRequest(JsonRecord, frozen=True):
    """A call of the model, with the digest of its arguments."""

    tool_call_id: RequiredText
    tool_name: RequiredText
    tool_kind: Word = "function"
    schema_digest: Text = None
    caller_id: Text = None
    search_ref_digest: Text = None
    source_block: Word = None
    parser_profile_id: Text = None
    input_digest: Annotated[str | None, ComputedMember(_read_input_digest)] = None
    schema_valid: Flag = None
    action_index: Integer = None
    call_group_id: Text = None
    branch_id: Text = None
    ordinal: Integer = None
    search_ref: SearchRef | None = None
    search_fits: Annotated[bool | None, ComputedMember(_read_search_fits)] = None
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
    if word is None and (value is None or type(value) is str):  # absent or blank: error members decide
        has_error = reader_of(_ErrorMembers)(row) != _ErrorMembers() or isinstance(row.get("rawError"), dict)
        return "error" if has_error else "ok"
    if word not in _STATUS_WORDS:
        raise InvalidEvidence("/status", f"{value!r:.80} is not a status")
    return _STATUS_WORDS[word]


def _read_result_digest(row: dict[str, Any]) -> str | None:
    declared = read_member(row, "resultDigest", read_text)
    if declared is not None or row.get("payload") is None:
        return declared
    return digest_bytes(_canonical_member(row, "payload"))


def _read_payload_bytes(row: dict[str, Any]) -> int | None:
    """Return the larger of the declared and the measured size of the payload."""
    declared = read_member(row, "payloadBytes", read_integer)
    payload = row.get("payload")
    if payload is None:
        return declared
    measured = len(payload.encode("utf-8", "replace") if type(payload) is str else _canonical_member(row, "payload"))
    return measured if declared is None else max(declared, measured)


def _read_error(row: dict[str, Any]) -> ErrorEnvelope | None:
    envelope = read_envelope(row)  # also of a result that is not an error, because it raises for invalid members
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


class ToolResult(JsonRecord, frozen=True):
    """The result of a call, with the digest and size of its payload."""

    tool_call_id: RequiredText
    status: Annotated[Status, ComputedMember(_read_status)]
    result_digest: Annotated[str | None, ComputedMember(_read_result_digest)] = None
    payload_bytes: Annotated[int | None, ComputedMember(_read_payload_bytes)] = None
    error: Annotated[ErrorEnvelope | None, ComputedMember(_read_error)] = None
    provenance: Provenance | None = None
    observation: Observation | None = None
    caller_edge: CallerEdge | None = None
    token_usage: TokenUsage | None = None
    truncation: Truncation | None = None
    shell: Shell | None = None
    edit_surface: Text = None
    sequence: Integer = None

    @property
    def terminal(self) -> bool:
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


class ToolUse(JsonRecord, frozen=True):
    """The use of a result: consumed, observed, discarded or retried."""

    tool_call_id: RequiredText
    disposition: Annotated[Disposition, ComputedMember(_read_disposition)]
    result_digest: Text = None
    reason_code: Annotated[str | None, ComputedMember(_read_reason)] = None
    summary_ref: Text = None
    handoff_ref: Text = None
    mutation_input_ref: Text = None
    retry_ref: Text = None

    @property
    def consumed(self) -> bool:
        return self.disposition == "consumed"

    @property
    def provenance(self) -> tuple[str, ...]:
        """The references (summary, handoff, mutation input) for which the result was used."""
        refs = (self.summary_ref, self.handoff_ref, self.mutation_input_ref)
        return tuple(ref for ref in refs if ref is not None)


class ToolRender(JsonRecord, frozen=True):
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


class ReminderQueue(JsonRecord, frozen=True):
    queue_id: RequiredText
    reduced_digest: RequiredText
    policy_digest: RequiredText
    entries: Annotated[tuple[QueueEntry, ...], Member(_read_queue_entries)] = ()


class StateView(JsonRecord, frozen=True):
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


class GuardrailDecision(JsonRecord, frozen=True):
    """The decision of a guardrail at its stage, ordered by ``sequence``."""

    stage: RequiredWord
    sequence: Annotated[int, ComputedMember(_read_required_sequence)]
    guardrail_id: Text = None
    triggered: Flag = None
    outcome: Word = None
    tool_call_id: Text = None
    threshold_ref: Text = None
    model_ref: Text = None
    policy_digest: Text = None


class Artifact(JsonRecord, frozen=True):
    """An artifact that the turn references or wrote, and whether it exists."""

    ref: RequiredText
    path: Text = None
    digest: Text = None
    exists: Flag = True
    written: Flag = None
    role: Word = None
    owner_role: Word = None
    tool_call_id: Text = None


class ContextAccess(JsonRecord, frozen=True):
    ref: RequiredText
    access: Word = "read"
    role: Word = None


class TraceExport(JsonRecord, frozen=True):
    sink: Text = None


class BranchJoin(JsonRecord, frozen=True):
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
    """How the turn began: ``fresh``, after a handoff (``descent``), or after a ``compaction``."""

    mode: Word = None
    handoff_ref: Text = None
    artifact_refs: Texts = ()


class NamedCall(JsonRecord, frozen=True):
    """A call that a mutation names: tool, input digest and id."""

    tool_call_id: RequiredText
    tool_name: RequiredText
    input_digest: RequiredText


def _read_named_calls(value: Any) -> tuple[NamedCall, ...]:
    """Return the calls by id, each once. Two different calls under one id are a contradiction."""
    calls: dict[str, NamedCall] = {}
    for call in list_of(reader_of(NamedCall))(value):
        if calls.setdefault(call.tool_call_id, call) != call:
            raise InvalidEvidence("", f"another call under {call.tool_call_id!r:.80} differs")
    return tuple(calls[name] for name in sorted(calls))


class Mutation(JsonRecord, frozen=True):
    """The intent of the turn to change something outside of it, and the references that justify the change."""

    kind: Word = None
    action: Text = None
    input_refs: Texts = ()
    instruction_ref: Text = None
    capability_claims: Texts = ()
    policy_digest: Text = None
    join_witness_refs: Texts = ()
    automated: Flag = None
    calls: Annotated[tuple[NamedCall, ...], Member(_read_named_calls)] = ()
    """The calls that a mutation of the kind ``effect`` may make, each once."""


_encode: Final = msgspec.json.Encoder(order="sorted").encode
R = TypeVar("R", bound=JsonRecord)
NumberedRows: TypeAlias = Sequence[tuple[int, R]]  # rows with their indices in the received list
Arrange: TypeAlias = Callable[[NumberedRows[Any]], tuple[Any, ...]]
"""Returns the distinct rows in canonical order. Raises :class:`InvalidEvidence` for a contradiction."""


def _arrange_set(rows: NumberedRows[R]) -> tuple[R, ...]:
    return tuple(row for _, row in sorted({_encode(row): row for _, row in rows}.items()))


def _arrange_by_id(field: str) -> Arrange:
    """Return the arrangement of rows whose id is in ``field``: one row per id, sorted by it."""

    def arrange(rows: NumberedRows[R]) -> tuple[R, ...]:
        by_id: dict[str, R] = {}
        without_id: list[tuple[int, R]] = []
        for index, row in rows:
            row_id = getattr(row, field)
            if row_id is None:
                without_id.append((index, row))
            elif by_id.setdefault(row_id, row) != row:
                raise InvalidEvidence(f"/{index}", f"another row under {row_id!r:.80} differs")
        return tuple(by_id[row_id] for row_id in sorted(by_id)) + _arrange_set(without_id)

    return arrange


_arrange_by_call_id: Final = _arrange_by_id("tool_call_id")


def _arrange_results(rows: NumberedRows[ToolResult]) -> tuple[ToolResult, ...]:
    terminal = _arrange_by_call_id([(index, row) for index, row in rows if row.terminal])
    finished_ids = {row.tool_call_id for row in terminal}
    unfinished = [entry for entry in rows if not entry[1].terminal and entry[1].tool_call_id not in finished_ids]
    return tuple(sorted((*terminal, *_arrange_set(unfinished)), key=lambda row: row.tool_call_id))


class RowList:
    """The reader of a list of rows of one kind."""

    __slots__ = ("_read_row", "arrange")

    def __init__(self, kind: type[JsonRecord], arrange: Arrange) -> None:
        self._read_row = reader_of(kind)
        self.arrange = arrange

    def __call__(self, value: Any) -> tuple[Any, ...]:
        return self.arrange(self.numbered(value))

    def numbered(self, value: Any, start: int = 0) -> list[tuple[int, Any]]:
        """Return the rows from index ``start`` on, with their indices, not arranged; null entries are skipped."""
        rows: list[tuple[int, Any]] = []
        for index, row in enumerate(checked_list(value)):
            if index < start or row is None:
                continue
            try:
                rows.append((index, self._read_row(row)))
            except InvalidEvidence as error:
                raise error.under(index) from None
        return rows


def _rows(kind: type[R], arrange: Arrange = _arrange_set) -> Member:
    return Member(RowList(kind, arrange))


class Evidence(JsonRecord, frozen=True):
    """The evidence of one turn. ``protocolState`` is absent only while the turn is open."""

    call_spec: CallSpec
    tool_requests: Annotated[tuple[ToolRequest, ...], _rows(ToolRequest, _arrange_by_call_id)] = ()
    tool_results: Annotated[tuple[ToolResult, ...], _rows(ToolResult, _arrange_results)] = ()
    tool_use: Annotated[tuple[ToolUse, ...], _rows(ToolUse, _arrange_by_call_id)] = ()
    protocol_state: ProtocolState | None = None
    tool_render: Annotated[tuple[ToolRender, ...], _rows(ToolRender, _arrange_by_call_id)] = ()
    reminder_queue: Annotated[tuple[ReminderQueue, ...], _rows(ReminderQueue, _arrange_by_id("queue_id"))] = ()
    state_views: Annotated[tuple[StateView, ...], _rows(StateView, _arrange_by_id("view_id"))] = ()
    branch_joins: Annotated[tuple[BranchJoin, ...], _rows(BranchJoin, _arrange_by_id("branch_id"))] = ()
    guardrail_decisions: Annotated[tuple[GuardrailDecision, ...] | None, _rows(GuardrailDecision)] = None
    """None if the list is absent; an empty list means that no guardrail decided."""
    artifacts: Annotated[tuple[Artifact, ...], _rows(Artifact)] = ()
    context_access: Annotated[tuple[ContextAccess, ...], _rows(ContextAccess)] = ()
    trace_exports: Annotated[tuple[TraceExport, ...], _rows(TraceExport)] = ()
    handoff: Handoff | None = None
    decomposition: Decomposition | None = None
    compaction: Compaction | None = None
    continuity: Continuity | None = None
    mutation: Mutation | None = None
    session_refs: Texts = ()
    trajectory_refs: Texts = ()


read_evidence: Final = reader_of(Evidence)
_ROW_LISTS: Final = [  # (member name, field name, reader)
    (name, field, read) for name, (field, read) in member_readers(Evidence).items() if isinstance(read, RowList)
]


def check_row_order(evidence: Evidence) -> None:
    """Raise :class:`InvalidEvidence` if recorded evidence is not in canonical order or contradicts itself."""
    for name, field, read in _ROW_LISTS:
        rows = getattr(evidence, field) or ()
        try:
            if read.arrange([*enumerate(rows)]) != rows:
                raise InvalidEvidence("", "the rows are not in canonical order")
        except InvalidEvidence as error:
            raise error.under(name).under("evidence") from None
