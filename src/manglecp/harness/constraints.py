"""What whoever judges demands: the constraint objects beside the evidence.

Evidence says what happened; constraints say what the active policy wants. In these types *not given* and *empty* are
different where an empty allow-list is a list that allows nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from manglecp.harness.reading import (
    Computed,
    Flag,
    Limits,
    Member,
    Numbers,
    Ordered,
    Record,
    Text,
    Texts,
    Whole,
    Word,
    a_text,
    a_word,
    by_name,
    member,
    one,
    reader_of,
    texts,
    words,
    words_by_name,
)

__all__ = [
    "CompactionTerms",
    "Constraints",
    "ContextConstraints",
    "DecompositionConstraints",
    "GovernanceConstraints",
    "GovernanceProfile",
    "HandoffConstraints",
    "MutationConstraints",
    "ProtocolConstraints",
    "RedTeamTerms",
    "RoleScope",
    "RuntimeConstraints",
    "ToolConstraints",
    "TruncationConstraints",
]

SomeTexts: TypeAlias = Annotated[tuple[str, ...] | None, Member(texts)]
"""A set of texts that may also not be given."""
SomeWords: TypeAlias = Annotated[tuple[str, ...] | None, Member(words)]
WordsByName: TypeAlias = Annotated[dict[str, tuple[str, ...]] | None, Member(words_by_name)]


class ToolConstraints(Record, frozen=True):
    """Which tools may be called, by whom, and the digests that their descriptions must have."""

    allowed_tools: SomeTexts = None
    schema_digests: Annotated[dict[str, str] | None, Member(by_name(a_text))] = None
    catalog_tools: SomeTexts = None
    deferred_tools: SomeTexts = None
    allowed_callers: WordsByName = None
    example_digests: Annotated[dict[str, str] | None, Member(by_name(a_text))] = None
    expected_tool_catalog_digest: Text = None
    expected_defer_policy_digest: Text = None
    expected_tool_example_digest: Text = None
    expected_allowed_callers_digest: Text = None
    parser_profiles: SomeTexts = None
    require_result_provenance: Flag = None


class ProtocolConstraints(Record, frozen=True):
    """What whoever carried the messages knows about their order."""

    parallel_transport_order_valid: Flag = None


class TruncationConstraints(Record, frozen=True):
    """Whether long results must be cut, to how much, and how the cut is marked."""

    required: Flag = None
    valid: Flag = None
    max_bytes: Whole = None
    marker: Text = None
    strategy: Word = None


class CompactionTerms(Record, frozen=True):
    """Whether a conversation may be compacted, and what must not get lost by it."""

    enabled: Flag = None
    required_carry_forward_refs: SomeTexts = None


class RuntimeConstraints(Record, frozen=True):
    """Where a shell may work, and how a conversation may be compacted."""

    workdir_roots: Texts = ()
    compaction: Annotated[CompactionTerms | None, one(CompactionTerms)] = None


class RoleScope(Record, frozen=True):
    """The prefixes that a role may read and write under."""

    read: Texts = ()
    write: Texts = ()


class ContextConstraints(Record, frozen=True):
    """Which queues and views the model must have been shown, where, and which role may touch what."""

    required_queue_ids: Texts = ()
    required_state_view_ids: Texts = ()
    allowed_injection_points: SomeWords = None
    dedup: Flag = None
    max_batch_size: Whole = None
    role_scopes: Annotated[dict[str, RoleScope] | None, Member(by_name(reader_of(RoleScope), words=True))] = None
    expected_scope_digest: Text = None


class DecompositionConstraints(Record, frozen=True):
    """How work may be split, and how far."""

    admissible: Flag = None
    expected_execution_pattern: Word = None
    expected_policy_digest: Text = None
    allowed_patterns: SomeWords = None
    max_fan_out: Whole = None
    require_escalation_trigger: Flag = None


class HandoffConstraints(Record, frozen=True):
    """To whom work may be handed over, and what the packet has to hold."""

    required_artifact_refs: SomeTexts = None
    allowed_targets: SomeTexts = None
    require_return_path: Flag = None
    allowed_targets_by_role: Annotated[dict[str, tuple[str, ...]] | None, Member(by_name(texts, words=True))] = None
    require_artifact_existence: Flag = None
    required_packet_fields: SomeTexts = None
    expected_contract_digest: Text = None


# --- governance ----------------------------------------------------------------------------------------------------


class PolicyProvenance(Record, frozen=True):
    pinned: Flag = None
    package_ref: Text = None
    expected_digest: Text = None
    bound_digest: Text = None


class EvalGate(Record, frozen=True):
    passed: Flag = None
    metrics: Numbers = None
    thresholds: Numbers = None


class EvalEvidence(Record, frozen=True):
    dataset_lineage_ref: Text = None
    grader_config_lineage_ref: Text = None
    metric_thresholds_ref: Text = None
    profile_ref: Text = None


class RedTeamGate(Record, frozen=True):
    passed: Flag = None
    plugins: Texts = ()
    strategies: Texts = ()
    probes: Whole = None
    failures: Whole = None
    report_ref: Text = None


_read_red_team: Final = reader_of(RedTeamGate)


def _red_team_gate(row: dict[str, Any], limits: Limits) -> RedTeamGate | None:
    return member(row, "redTeamGate", _read_red_team, limits) or member(row, "adversarialGate", _read_red_team, limits)


def _stated_word(value: Any, limits: Limits) -> str:
    """A word, or the empty text for what is there and is none: a blank mode is a mode that is not known."""
    return a_word(value, limits) or ""


class RiskTier(Record, frozen=True):
    tier: Word = None
    control_profile_bound: Flag = None
    control_profile_ref: Text = None
    approval_ref: Text = None


class SelfEvolution(Record, frozen=True):
    max_attempts: Whole = None
    terminal_escalation: Text = None
    rollback_ref: Text = None


class GovernanceProfile(Record, frozen=True):
    """What is claimed about governance, with what there is to show for it."""

    claim_id: Text = None
    claimed: Flag = None
    policy_provenance: Annotated[PolicyProvenance | None, one(PolicyProvenance)] = None
    guardrail_stages: Ordered = None
    eval_gate: Annotated[EvalGate | None, one(EvalGate)] = None
    eval_evidence: Annotated[EvalEvidence | None, one(EvalEvidence)] = None
    red_team_gate: Annotated[RedTeamGate | None, Computed(_red_team_gate)] = None
    observability_mode: Annotated[str | None, Member(_stated_word)] = None
    processor_ref: Text = None
    risk_tier: Annotated[RiskTier | None, one(RiskTier)] = None
    self_evolution: Annotated[SelfEvolution | None, one(SelfEvolution)] = None


class RedTeamTerms(Record, frozen=True):
    """What an attack on the policy must have covered, and how many failures are too many."""

    required_plugins: SomeTexts = None
    required_strategies: SomeTexts = None
    min_probes: Whole = None
    max_failures: Whole = None


class GovernanceConstraints(Record, frozen=True):
    """Which controls are demanded, and what they have to show."""

    required_controls: Texts = ()
    required_guardrail_stages: SomeWords = None
    eval_thresholds: Numbers = None
    red_team: Annotated[RedTeamTerms | None, one(RedTeamTerms)] = None
    allowed_observability_modes: SomeWords = None
    zero_data_retention: Flag = None
    require_processor_ref: Flag = None
    human_checkpoint_tiers: SomeWords = None
    bind_governance_digest: Flag = None


class MutationConstraints(Record, frozen=True):
    """Under which policy a mutation has to stand, and with which claims."""

    active_policy_digest: Text = None
    required_capability_claims: SomeTexts = None


class Constraints(Record, frozen=True):
    """All of them. Only of two does it matter whether they were given: they open the governance gate."""

    tool_constraints: Annotated[ToolConstraints, one(ToolConstraints)] = ToolConstraints()
    protocol_constraints: Annotated[ProtocolConstraints, one(ProtocolConstraints)] = ProtocolConstraints()
    truncation_constraints: Annotated[TruncationConstraints, one(TruncationConstraints)] = TruncationConstraints()
    runtime_constraints: Annotated[RuntimeConstraints, one(RuntimeConstraints)] = RuntimeConstraints()
    context_constraints: Annotated[ContextConstraints, one(ContextConstraints)] = ContextConstraints()
    decomposition_constraints: Annotated[DecompositionConstraints, one(DecompositionConstraints)] = (
        DecompositionConstraints()
    )
    handoff_constraints: Annotated[HandoffConstraints, one(HandoffConstraints)] = HandoffConstraints()
    governance_profile: Annotated[GovernanceProfile | None, one(GovernanceProfile)] = None
    governance_constraints: Annotated[GovernanceConstraints | None, one(GovernanceConstraints)] = None
    mutation_constraints: Annotated[MutationConstraints, one(MutationConstraints)] = MutationConstraints()
