"""The call spec: 35 fields that bind a turn to its policies.

A field whose name ends in ``Digest`` references a policy document; one that ends in ``Policy`` holds the policy inline.
The eleven fields of upstream are required; the others are judged if present.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from manglecp.harness.readers import (
    Computed,
    Flag,
    Member,
    Record,
    RequiredText,
    RequiredWord,
    Text,
    Texts,
    Verbatim,
    Whole,
    Word,
    a_text,
    a_word,
    each,
    member,
    one,
    reader_of,
    words,
    words_by_word,
)


class ToolChoice(Record, frozen=True):
    """``auto``, ``any`` or ``specific``; the mode is None if not given."""

    mode: Word = None
    tool_name: Text = None


_read_choice: Final = reader_of(ToolChoice)


def _tool_choice(value: Any) -> ToolChoice | None:
    if isinstance(value, dict):
        return _read_choice(value)
    mode = a_word(value)
    return None if mode is None else ToolChoice(mode)


class ParallelPolicy(Record, frozen=True):
    allowed: Flag = None
    max_branches: Whole = None
    expected_branches: Whole = None


_read_parallel: Final = reader_of(ParallelPolicy)


def _parallel_policy(value: Any) -> ParallelPolicy | None:
    if isinstance(value, dict):
        return _read_parallel(value)
    said = a_word(value)
    return None if said is None else ParallelPolicy(said == "allow")  # a word that is not known allows nothing


def _tool_name(row: dict[str, Any]) -> str:
    return member(row, "toolName", a_text) or ""  # an entry that names nothing allows nothing


class AllowedTool(Record, frozen=True):
    """An entry of the allow-list, with the pins of its schema."""

    tool_name: Annotated[str, Computed(_tool_name)]
    schema_digest: Text = None
    input_schema: Verbatim = None


_read_tools: Final = each(reader_of(AllowedTool))


def _allowed_tools(value: Any) -> tuple[AllowedTool, ...]:
    return tuple(sorted(_read_tools(value), key=lambda tool: (tool.tool_name, tool.schema_digest or "")))


class ToolPolicy(Record, frozen=True):
    allowed_tools: Annotated[tuple[AllowedTool, ...] | None, Member(_allowed_tools)] = None
    parser_profile_id: Text = None


class PreContextFilterPolicy(Record, frozen=True):
    mode: Word = None
    tools: Texts = ()


class ToolTransportPolicy(Record, frozen=True):
    parallel_tool_calls: Flag = None
    ordering: Word = None


class TruncationPolicy(Record, frozen=True):
    max_bytes: Whole = None
    marker: Text = None
    strategy: Word = None


class ExecutionBoundaryPolicy(Record, frozen=True):
    allowed_edit_surfaces: Annotated[tuple[str, ...] | None, Member(each(a_text))] = None
    shell_edits_forbidden: Flag = None
    workdir_roots: Texts = ()


class StopPolicy(Record, frozen=True):
    max_turns: Whole = None
    max_iterations: Whole = None
    require_checkpoint: Flag = None
    checkpoint_every_turns: Whole = None


class ProtocolStatePolicy(Record, frozen=True):
    handled_stop_reasons: Annotated[tuple[str, ...] | None, Member(words)] = None
    continuation: Annotated[dict[str, str] | None, Member(words_by_word)] = None


class CallSpec(Record, frozen=True):
    """The binding of a turn. Fields without a default are required."""

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
    tool_choice: Annotated[ToolChoice | None, Member(_tool_choice)] = None
    tool_policy: Annotated[ToolPolicy | None, one(ToolPolicy)] = None
    tool_catalog_digest: Text = None
    defer_policy_digest: Text = None
    tool_example_digest: Text = None
    allowed_callers_digest: Text = None
    pre_context_filter_policy: Annotated[PreContextFilterPolicy | None, one(PreContextFilterPolicy)] = None
    eval_profile_ref: Text = None
    parallel_policy: Annotated[ParallelPolicy | None, Member(_parallel_policy)] = None
    tool_transport_policy: Annotated[ToolTransportPolicy | None, one(ToolTransportPolicy)] = None
    tool_response_truncation_policy: Annotated[TruncationPolicy | None, one(TruncationPolicy)] = None
    execution_boundary_policy: Annotated[ExecutionBoundaryPolicy | None, one(ExecutionBoundaryPolicy)] = None
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
    stop_policy: Annotated[StopPolicy | None, one(StopPolicy)] = None
    protocol_state_policy: Annotated[ProtocolStatePolicy | None, one(ProtocolStatePolicy)] = None


UPSTREAM_FIELDS: Final = CallSpec.__struct_encode_fields__[:11]
"""The required fields; upstream digests these alone."""
