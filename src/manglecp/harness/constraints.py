"""The terms a turn is judged by: explicit constraints, policy documents, and the combination in force.

For constraints, *not given* and *empty* differ: an empty allow-list allows nothing. A policy document counts only if
the call spec holds its digest; otherwise it has *drifted*, supplies nothing, and raises the class of its kind. An
explicit constraint replaces the member of a document; they do not intersect. Inline policies of the call spec are no
documents: they apply in addition to the constraints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from manglecp.harness.call_spec import CallSpec
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.classes import CLASSES, FailClass
from manglecp.harness.readers import (
    Computed,
    Flag,
    InvalidEvidence,
    Member,
    Numbers,
    Ordered,
    Read,
    Record,
    Text,
    Texts,
    Whole,
    Word,
    a_text,
    a_word,
    by_name,
    each,
    member,
    numbers_by_name,
    one,
    reader_of,
    texts,
    verbatim_object,
    words,
    words_by_name,
)

# --- vocabularies -----------------------------------------------------------------------------------------------------

STAGES: Final = ("pre_flight", "input", "output")
"""The guardrail stages, in order."""
ROLES: Final = ("orchestrator", "specialist")
TRACE_MODES: Final = ("dashboard", "internal_processor", "disabled")
TIERS: Final = ("low", "moderate", "high")
CLAIM_ID: Final = "profile.doctrine_inf_governance.v0"
HANDLED_STOP_REASONS: Final = ("tool_use", "pause_turn", "max_tokens", "end_turn")
"""The default if the policy lists none."""
PATTERNS: Final = ("single", "chain", "route", "parallel", "orchestrator_workers", "evaluator_optimizer")
AUTONOMOUS: Final = ("orchestrator_workers", "evaluator_optimizer")
"""Patterns in which the model decides when to stop."""
UNDIVIDED: Final = ("single", "chain", "evaluator_optimizer")

# --- explicit constraints ---------------------------------------------------------------------------------------------

SomeTexts: TypeAlias = Annotated[tuple[str, ...] | None, Member(texts)]
"""A set of texts that may also not be given."""
SomeWords: TypeAlias = Annotated[tuple[str, ...] | None, Member(words)]
WordsByName: TypeAlias = Annotated[dict[str, tuple[str, ...]] | None, Member(words_by_name)]


class ToolConstraints(Record, frozen=True):
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
    """Facts about message order known to the transport."""

    parallel_transport_order_valid: Flag = None


class TruncationConstraints(Record, frozen=True):
    required: Flag = None
    valid: Flag = None
    max_bytes: Whole = None
    marker: Text = None
    strategy: Word = None


class CompactionTerms(Record, frozen=True):
    enabled: Flag = None
    required_carry_forward_refs: SomeTexts = None


class RuntimeConstraints(Record, frozen=True):
    workdir_roots: Texts = ()
    compaction: Annotated[CompactionTerms | None, one(CompactionTerms)] = None


class RoleScope(Record, frozen=True):
    """The path prefixes that a role may read and write."""

    read: Texts = ()
    write: Texts = ()


_role_scopes: Final = by_name(reader_of(RoleScope), words=True)


class ContextConstraints(Record, frozen=True):
    required_queue_ids: Texts = ()
    required_state_view_ids: Texts = ()
    allowed_injection_points: SomeWords = None
    dedup: Flag = None
    max_batch_size: Whole = None
    role_scopes: Annotated[dict[str, RoleScope] | None, Member(_role_scopes)] = None
    expected_scope_digest: Text = None


class DecompositionConstraints(Record, frozen=True):
    admissible: Flag = None
    expected_execution_pattern: Word = None
    expected_policy_digest: Text = None
    allowed_patterns: SomeWords = None
    max_fan_out: Whole = None
    require_escalation_trigger: Flag = None


class HandoffConstraints(Record, frozen=True):
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


def _red_team_gate(row: dict[str, Any]) -> RedTeamGate | None:
    return member(row, "redTeamGate", _read_red_team) or member(row, "adversarialGate", _read_red_team)


def _stated_word(value: Any) -> str:
    """Return the word, or ``""`` for a blank or wrongly typed one: a blank mode is an unknown mode."""
    return a_word(value) or ""


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
    """The claimed governance and its evidence."""

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
    required_plugins: SomeTexts = None
    required_strategies: SomeTexts = None
    min_probes: Whole = None
    max_failures: Whole = None


class GovernanceConstraints(Record, frozen=True):
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
    active_policy_digest: Text = None
    required_capability_claims: SomeTexts = None


class Constraints(Record, frozen=True):
    """All constraints. The two that may be None open the governance gate when given."""

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


# --- policy documents -------------------------------------------------------------------------------------------------


class CatalogEntry(Record, frozen=True):
    tool_name: Text = None
    schema_digest: Text = None


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """A kind of document: the call spec field with its digest, the class of its drift, and the terms it supplies."""

    field: str
    drift: FailClass
    read: Read[Any]


def _document(field: str, drift: str, read: Read[Any] = lambda _: None) -> PolicyDocument:
    return PolicyDocument(field, CLASSES[drift], read)


def _supplies(name: str, read: Read[Any]) -> Read[Any]:
    """Return a reader of the one member that matters."""
    return lambda document: member(document, name, read)


DOCUMENTS: Final = {
    "toolCatalog": _document(
        "tool_catalog_digest", "tool.discovery_mismatch", _supplies("tools", each(reader_of(CatalogEntry)))
    ),
    "deferPolicy": _document("defer_policy_digest", "tool.discovery_mismatch", _supplies("deferred", texts)),
    "toolExamples": _document("tool_example_digest", "tool.example_digest_mismatch"),
    "allowedCallers": _document("allowed_callers_digest", "tool.caller_not_allowed", _supplies("tools", words_by_name)),
    "toolRenderProtocol": _document("tool_render_protocol_digest", "context.queue_policy_violation"),
    "reminderQueuePolicy": _document("reminder_queue_policy_digest", "context.queue_policy_violation"),
    "stateViewPolicy": _document("state_view_policy_digest", "context.queue_policy_violation"),
    "compactionPolicy": _document(
        "compaction_policy_digest", "runtime.compaction_state_invalid", reader_of(CompactionTerms)
    ),
    "decompositionPolicy": _document(
        "decomposition_policy_digest",
        "coordination.decomposition_policy_violation",
        reader_of(DecompositionConstraints),
    ),
    "governancePolicy": _document("governance_policy_digest", "governance.policy_package_mismatch"),
    "guardrailStagePolicy": _document(
        "guardrail_stage_policy_digest", "governance.guardrail_stage_missing", _supplies("requiredStages", words)
    ),
    "evalGatePolicy": _document(
        "eval_gate_policy_digest", "governance.eval_lineage_missing", _supplies("thresholds", numbers_by_name)
    ),
    "redTeamPolicy": _document("red_team_policy_digest", "governance.redteam_gate_unmet", reader_of(RedTeamTerms)),
    "contextScope": _document("context_scope_digest", "context.scope_violation", _supplies("roles", _role_scopes)),
    "handoffContract": _document(
        "handoff_contract_digest", "handoff.target_not_allowed", reader_of(HandoffConstraints)
    ),
    "mutationPolicy": _document(
        "mutation_policy_digest", "mutation.policy_digest_mismatch", _supplies("requiredCapabilityClaims", texts)
    ),
}
"""All kinds of documents."""


def read_documents(value: Any) -> dict[str, Any]:
    """Return the documents verbatim, by kind."""
    if not isinstance(value, dict):
        raise InvalidEvidence("", "an object is expected")
    found = {}
    for name, document in value.items():
        if name not in DOCUMENTS:
            raise InvalidEvidence("", "no document has this name").under(name)
        if document is not None:
            found[name] = member(value, name, verbatim_object)
    return found


class Documents:
    """The documents of a turn, compared with its call spec."""

    __slots__ = ("drifted", "verified")

    def __init__(self, documents: Mapping[str, Any], call: CallSpec) -> None:
        self.verified: dict[str, Any] = {}
        """The terms of documents that are present and have not drifted."""
        drifted = []
        for name in sorted(documents):
            kind = DOCUMENTS[name]
            if digest(documents[name]) != getattr(call, kind.field):
                drifted.append(name)
                continue
            try:
                self.verified[name] = kind.read(documents[name])
            except InvalidEvidence as bad:
                raise bad.under(name).under("policyDocuments") from None
        self.drifted = tuple(drifted)


# --- terms in force ---------------------------------------------------------------------------------------------------

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Terms:
    """The constraints of a turn, completed by its verified documents."""

    catalog_tools: tuple[str, ...] | None
    deferred_tools: tuple[str, ...]
    allowed_callers: dict[str, tuple[str, ...]]
    role_scopes: dict[str, RoleScope] | None
    compaction: CompactionTerms
    decomposition: DecompositionConstraints
    handoff: HandoffConstraints
    required_stages: tuple[str, ...]
    """In their order."""
    stages_by_document: bool
    eval_thresholds: dict[str, float]
    red_team: RedTeamTerms
    required_claims: tuple[str, ...] | None


def terms_in_force(constraints: Constraints, documents: Documents, handing_over: bool) -> Terms:
    tool, governance = constraints.tool_constraints, constraints.governance_constraints
    verified = documents.verified.get
    catalog = verified("toolCatalog")
    listed = None if catalog is None else tuple(entry.tool_name for entry in catalog)
    stages = _first(governance and governance.required_guardrail_stages, verified("guardrailStagePolicy"))
    claims = constraints.mutation_constraints.required_capability_claims
    return Terms(
        catalog_tools=_first(tool.catalog_tools, listed),
        deferred_tools=_first(tool.deferred_tools, verified("deferPolicy")) or (),
        allowed_callers=_first(tool.allowed_callers, verified("allowedCallers")) or {},
        role_scopes=_first(constraints.context_constraints.role_scopes, verified("contextScope")),
        compaction=constraints.runtime_constraints.compaction or verified("compactionPolicy") or CompactionTerms(),
        decomposition=_merged(constraints.decomposition_constraints, verified("decompositionPolicy")),
        # The contract document binds only a turn that hands over; explicit constraints always bind.
        handoff=_merged(constraints.handoff_constraints, verified("handoffContract") if handing_over else None),
        required_stages=STAGES if stages is None else _in_order(stages),
        stages_by_document="guardrailStagePolicy" in documents.verified,
        eval_thresholds=_first(governance and governance.eval_thresholds, verified("evalGatePolicy")) or {},
        red_team=(governance and governance.red_team) or verified("redTeamPolicy") or RedTeamTerms(),
        required_claims=_first(claims, verified("mutationPolicy")),
    )


def _first(explicit: Any, supplied: Any) -> Any:
    return supplied if explicit is None else explicit


def _merged(explicit: R, document: R | None) -> R:
    if document is None:
        return explicit
    names = explicit.__struct_fields__
    return type(explicit)(*(_first(getattr(explicit, name), getattr(document, name)) for name in names))


def _in_order(stages: tuple[str, ...]) -> tuple[str, ...]:
    known = tuple(stage for stage in STAGES if stage in stages)
    return known + tuple(stage for stage in stages if stage not in STAGES)
