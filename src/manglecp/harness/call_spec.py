"""The call spec: 35 fields that bind a turn to its policies.

A field whose name ends in ``Digest`` has the digest of a policy document; a field whose name ends in ``Policy`` has the
policy itself. The first eleven fields, which upstream (the reference implementation) has too, are required; the other
fields are optional.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from manglecp.harness.readers import (
    Flag,
    Integer,
    JsonRecord,
    Member,
    OptionalWords,
    RequiredText,
    RequiredWord,
    Text,
    Texts,
    VerbatimObject,
    Word,
    list_of,
    read_member,
    read_text,
    read_word,
    read_words_by_word,
    reader_of,
)


class ToolChoice(JsonRecord, frozen=True):
    """The mode is ``auto``, ``any`` or ``specific``; ``tool_name`` is the tool that ``specific`` requires."""

    mode: Word = None
    tool_name: Text = None


def _read_tool_choice(value: Any) -> ToolChoice | None:
    if isinstance(value, dict):
        return reader_of(ToolChoice)(value)
    mode = read_word(value)
    return None if mode is None else ToolChoice(mode)


class ParallelPolicy(JsonRecord, frozen=True):
    allowed: Flag = None
    max_branches: Integer = None
    expected_branches: Integer = None


def _read_parallel_policy(value: Any) -> ParallelPolicy | None:
    if isinstance(value, dict):
        return reader_of(ParallelPolicy)(value)
    word = read_word(value)
    return None if word is None else ParallelPolicy(word == "allow")  # an unknown word forbids parallel calls


def _read_tool_name(row: dict[str, Any]) -> str:
    return read_member(row, "toolName", read_text) or ""  # an entry without a name allows no tool


class AllowedTool(JsonRecord, frozen=True):
    """An entry of the allow-list, optionally with the pinned schema of the tool or the digest of that schema."""

    tool_name: Annotated[str, Member(_read_tool_name, computed=True)]
    schema_digest: Text = None
    input_schema: VerbatimObject = None


def _read_allowed_tools(value: Any) -> tuple[AllowedTool, ...]:
    tools = list_of(reader_of(AllowedTool))(value)
    return tuple(sorted(tools, key=lambda tool: (tool.tool_name, tool.schema_digest or "")))


class ToolPolicy(JsonRecord, frozen=True):
    allowed_tools: Annotated[tuple[AllowedTool, ...] | None, Member(_read_allowed_tools)] = None
    parser_profile_id: Text = None


class PreContextFilterPolicy(JsonRecord, frozen=True):
    mode: Word = None
    tools: Texts = ()


class ToolTransportPolicy(JsonRecord, frozen=True):
    parallel_tool_calls: Flag = None
    ordering: Word = None


class TruncationPolicy(JsonRecord, frozen=True):
    max_bytes: Integer = None
    marker: Text = None
    strategy: Word = None


class ExecutionBoundaryPolicy(JsonRecord, frozen=True):
    allowed_edit_surfaces: Annotated[tuple[str, ...] | None, Member(list_of(read_text))] = None
    shell_edits_forbidden: Flag = None
    workdir_roots: Texts = ()


class StopPolicy(JsonRecord, frozen=True):
    max_turns: Integer = None
    max_iterations: Integer = None
    require_checkpoint: Flag = None
    checkpoint_every_turns: Integer = None


class ProtocolStatePolicy(JsonRecord, frozen=True):
    handled_stop_reasons: OptionalWords = None
    continuation: Annotated[dict[str, str] | None, Member(read_words_by_word)] = None


class CallSpec(JsonRecord, frozen=True):
    """The model, the mode and the policies to which a turn is bound. Fields without a default are required."""

    call_id: RequiredText
    model_ref: RequiredText
    action_mode: RequiredWord
    execution_pattern: RequiredWord
    tool_render_protocol_digest: RequiredText
    reminder_queue_policy_digest: RequiredText
    state_view_policy_digest: RequiredText
    decomposition_policy_digest: RequiredText
    governance_policy_digest: RequiredText
    mutation_policy_digest: RequiredText
    normalizer_id: RequiredText
    tool_choice: Annotated[ToolChoice | None, Member(_read_tool_choice)] = None
    tool_policy: ToolPolicy | None = None
    tool_catalog_digest: Text = None
    defer_policy_digest: Text = None
    tool_example_digest: Text = None
    allowed_callers_digest: Text = None
    pre_context_filter_policy: PreContextFilterPolicy | None = None
    eval_profile_ref: Text = None
    parallel_policy: Annotated[ParallelPolicy | None, Member(_read_parallel_policy)] = None
    tool_transport_policy: ToolTransportPolicy | None = None
    tool_response_truncation_policy: TruncationPolicy | None = None
    execution_boundary_policy: ExecutionBoundaryPolicy | None = None
    runtime_sandbox_ref: Text = None
    compaction_policy_digest: Text = None
    guardrail_stage_policy_digest: Text = None
    eval_gate_policy_digest: Text = None
    red_team_policy_digest: Text = None
    observability_mode: Word = None
    risk_tier: Word = None
    orchestration_role: Word = None
    context_scope_digest: Text = None
    handoff_contract_digest: Text = None
    stop_policy: StopPolicy | None = None
    protocol_state_policy: ProtocolStatePolicy | None = None


UPSTREAM_FIELDS: Final = CallSpec.__struct_encode_fields__[
    :11
]  # the required fields, the only fields that upstream digests
