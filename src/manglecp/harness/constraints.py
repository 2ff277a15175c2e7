"""The terms by which a turn is judged: explicit constraints, policy documents, and their combination.

An absent constraint differs from an empty constraint: an empty allow-list allows nothing. A policy document whose
digest is not in the call spec has *drifted*: it supplies no terms, and causes a finding of the failure class of its
kind. An explicit constraint replaces the same member of a document; the two are not intersected. The policies inside
the call spec apply in addition to the constraints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar

from manglecp.harness import classes
from manglecp.harness.call_spec import CallSpec, TruncationPolicy
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.classes import FailClass
from manglecp.harness.readers import (
    Flag,
    Integer,
    InvalidEvidence,
    JsonRecord,
    Member,
    NumbersByName,
    OptionalTexts,
    OptionalWords,
    OrderedWords,
    Reader,
    Text,
    Texts,
    Word,
    list_of,
    mapping_of,
    read_member,
    read_numbers_by_name,
    read_text,
    read_texts,
    read_verbatim,
    read_word,
    read_words,
    read_words_by_name,
    reader_of,
)

STAGES: Final = ("pre_flight", "input", "output")  # the guardrail stages, in order
ROLES: Final = ("orchestrator", "specialist")
TRACE_MODES: Final = ("dashboard", "internal_processor", "disabled")
TIERS: Final = ("low", "moderate", "high")
GOVERNANCE_CLAIM_ID: Final = "profile.doctrine_inf_governance.v0"  # the only known id of a governance claim
HANDLED_STOP_REASONS: Final = ("tool_use", "pause_turn", "max_tokens", "end_turn")
"""The stop reasons that are handled if the policy lists none."""
PATTERNS: Final = ("single", "chain", "route", "parallel", "orchestrator_workers", "evaluator_optimizer")
AUTONOMOUS_PATTERNS: Final = ("orchestrator_workers", "evaluator_optimizer")  # the model decides when to stop
UNDIVIDED_PATTERNS: Final = ("single", "chain", "evaluator_optimizer")  # the work is not split

WordsByName: TypeAlias = Annotated[dict[str, tuple[str, ...]] | None, Member(read_words_by_name)]


class ToolConstraints(JsonRecord, frozen=True):
    allowed_tools: OptionalTexts = None
    schema_digests: Annotated[dict[str, str] | None, Member(mapping_of(read_text))] = None
    catalog_tools: OptionalTexts = None
    deferred_tools: OptionalTexts = None
    allowed_callers: WordsByName = None
    example_digests: Annotated[dict[str, str] | None, Member(mapping_of(read_text))] = None
    expected_tool_catalog_digest: Text = None
    expected_defer_policy_digest: Text = None
    expected_tool_example_digest: Text = None
    expected_allowed_callers_digest: Text = None
    parser_profiles: OptionalTexts = None
    require_result_provenance: Flag = None


class ProtocolConstraints(JsonRecord, frozen=True):
    """What the transport reports about the order of messages."""

    parallel_transport_order_valid: Flag = None


class TruncationConstraints(TruncationPolicy, frozen=True):
    required: Flag = None
    valid: Flag = None


class CompactionTerms(JsonRecord, frozen=True):
    enabled: Flag = None
    required_carry_forward_refs: OptionalTexts = None


class RuntimeConstraints(JsonRecord, frozen=True):
    workdir_roots: Texts = ()
    compaction: CompactionTerms | None = None


class RoleScope(JsonRecord, frozen=True):
    """The path prefixes that a role may read and write."""

    read: Texts = ()
    write: Texts = ()


_read_role_scopes: Final = mapping_of(reader_of(RoleScope), words=True)


class ContextConstraints(JsonRecord, frozen=True):
    required_queue_ids: Texts = ()
    required_state_view_ids: Texts = ()
    allowed_injection_points: OptionalWords = None
    dedup: Flag = None
    max_batch_size: Integer = None
    role_scopes: Annotated[dict[str, RoleScope] | None, Member(_read_role_scopes)] = None
    expected_scope_digest: Text = None


class DecompositionConstraints(JsonRecord, frozen=True):
    admissible: Flag = None
    expected_execution_pattern: Word = None
    expected_policy_digest: Text = None
    allowed_patterns: OptionalWords = None
    max_fan_out: Integer = None
    require_escalation_trigger: Flag = None


class HandoffConstraints(JsonRecord, frozen=True):
    required_artifact_refs: OptionalTexts = None
    allowed_targets: OptionalTexts = None
    require_return_path: Flag = None
    allowed_targets_by_role: Annotated[
        dict[str, tuple[str, ...]] | None, Member(mapping_of(read_texts, words=True))
    ] = None
    require_artifact_existence: Flag = None
    required_packet_fields: OptionalTexts = None
    expected_contract_digest: Text = None


class PolicyProvenance(JsonRecord, frozen=True):
    pinned: Flag = None
    package_ref: Text = None
    expected_digest: Text = None
    bound_digest: Text = None


class EvalGate(JsonRecord, frozen=True):
    passed: Flag = None
    metrics: NumbersByName = None
    thresholds: NumbersByName = None


class EvalEvidence(JsonRecord, frozen=True):
    dataset_lineage_ref: Text = None
    grader_config_lineage_ref: Text = None
    metric_thresholds_ref: Text = None
    profile_ref: Text = None


class RedTeamGate(JsonRecord, frozen=True):
    passed: Flag = None
    plugins: Texts = ()
    strategies: Texts = ()
    probes: Integer = None
    failures: Integer = None
    report_ref: Text = None


def _read_red_team_gate(row: dict[str, Any]) -> RedTeamGate | None:
    read = reader_of(RedTeamGate)
    return read_member(row, "redTeamGate", read) or read_member(row, "adversarialGate", read)


def _read_mode(value: Any) -> str:
    """Return the word, or ``""`` for a blank text or another type, so that the mode is unknown and not absent."""
    return read_word(value) or ""


class RiskTier(JsonRecord, frozen=True):
    tier: Word = None
    control_profile_bound: Flag = None
    control_profile_ref: Text = None
    approval_ref: Text = None


class SelfEvolution(JsonRecord, frozen=True):
    max_attempts: Integer = None
    terminal_escalation: Text = None
    rollback_ref: Text = None


class GovernanceProfile(JsonRecord, frozen=True):
    """The governance that the turn claims, with the evidence for it."""

    claim_id: Text = None
    claimed: Flag = None
    policy_provenance: PolicyProvenance | None = None
    guardrail_stages: OrderedWords = None
    eval_gate: EvalGate | None = None
    eval_evidence: EvalEvidence | None = None
    red_team_gate: Annotated[RedTeamGate | None, Member(_read_red_team_gate, computed=True)] = None
    observability_mode: Annotated[str | None, Member(_read_mode)] = None
    processor_ref: Text = None
    risk_tier: RiskTier | None = None
    self_evolution: SelfEvolution | None = None


class RedTeamTerms(JsonRecord, frozen=True):
    required_plugins: OptionalTexts = None
    required_strategies: OptionalTexts = None
    min_probes: Integer = None
    max_failures: Integer = None


class GovernanceConstraints(JsonRecord, frozen=True):
    required_controls: Texts = ()
    required_guardrail_stages: OptionalWords = None
    eval_thresholds: NumbersByName = None
    red_team: RedTeamTerms | None = None
    allowed_observability_modes: OptionalWords = None
    zero_data_retention: Flag = None
    require_processor_ref: Flag = None
    human_checkpoint_tiers: OptionalWords = None
    bind_governance_digest: Flag = None


class MutationConstraints(JsonRecord, frozen=True):
    active_policy_digest: Text = None
    required_capability_claims: OptionalTexts = None


class Constraints(JsonRecord, frozen=True):
    """All constraints. Governance applies if there are governance constraints, or if the profile claims governance."""

    tool_constraints: ToolConstraints = ToolConstraints()
    protocol_constraints: ProtocolConstraints = ProtocolConstraints()
    truncation_constraints: TruncationConstraints = TruncationConstraints()
    runtime_constraints: RuntimeConstraints = RuntimeConstraints()
    context_constraints: ContextConstraints = ContextConstraints()
    decomposition_constraints: DecompositionConstraints = DecompositionConstraints()
    handoff_constraints: HandoffConstraints = HandoffConstraints()
    governance_profile: GovernanceProfile | None = None
    governance_constraints: GovernanceConstraints | None = None
    mutation_constraints: MutationConstraints = MutationConstraints()


class CatalogEntry(JsonRecord, frozen=True):
    tool_name: Text = None
    schema_digest: Text = None


class PolicyKind(NamedTuple):
    """One kind of policy document."""

    digest_field: str  # the field of the call spec with its digest
    drift_class: FailClass  # the class of the finding if the digest of the document differs
    read: Reader[Any] = lambda _: None  # returns the terms that the document supplies; None by default


def _member_of(name: str, read: Reader[Any]) -> Reader[Any]:
    """Return a reader of a document that supplies one member only."""
    return lambda document: read_member(document, name, read)


# fmt: off
DOCUMENTS: Final = {
    "toolCatalog": PolicyKind(
        "tool_catalog_digest", classes.DISCOVERY_MISMATCH, _member_of("tools", list_of(reader_of(CatalogEntry)))),
    "deferPolicy": PolicyKind("defer_policy_digest", classes.DISCOVERY_MISMATCH, _member_of("deferred", read_texts)),
    "toolExamples": PolicyKind("tool_example_digest", classes.EXAMPLES),
    "allowedCallers": PolicyKind("allowed_callers_digest", classes.CALLER, _member_of("tools", read_words_by_name)),
    "toolRenderProtocol": PolicyKind("tool_render_protocol_digest", classes.QUEUE),
    "reminderQueuePolicy": PolicyKind("reminder_queue_policy_digest", classes.QUEUE),
    "stateViewPolicy": PolicyKind("state_view_policy_digest", classes.QUEUE),
    "compactionPolicy": PolicyKind("compaction_policy_digest", classes.COMPACTION, reader_of(CompactionTerms)),
    "decompositionPolicy": PolicyKind(
        "decomposition_policy_digest", classes.DECOMPOSITION, reader_of(DecompositionConstraints)),
    "governancePolicy": PolicyKind("governance_policy_digest", classes.PACKAGE_MISMATCH),
    "guardrailStagePolicy": PolicyKind(
        "guardrail_stage_policy_digest", classes.STAGE_MISSING, _member_of("requiredStages", read_words)),
    "evalGatePolicy": PolicyKind(
        "eval_gate_policy_digest", classes.LINEAGE_MISSING, _member_of("thresholds", read_numbers_by_name)),
    "redTeamPolicy": PolicyKind("red_team_policy_digest", classes.RED_TEAM_UNMET, reader_of(RedTeamTerms)),
    "contextScope": PolicyKind("context_scope_digest", classes.SCOPE, _member_of("roles", _read_role_scopes)),
    "handoffContract": PolicyKind(
        "handoff_contract_digest", classes.TARGET_DISALLOWED, reader_of(HandoffConstraints)),
    "mutationPolicy": PolicyKind(
        "mutation_policy_digest", classes.MUTATION_POLICY_MISMATCH, _member_of("requiredCapabilityClaims", read_texts)),
}
# fmt: on


def read_documents(value: Any) -> dict[str, Any]:
    """Return the policy documents unchanged, by kind. Raises :class:`.InvalidEvidence`."""
    if not isinstance(value, dict):
        raise InvalidEvidence("", "an object is expected")
    for name in value:
        if name not in DOCUMENTS:
            raise InvalidEvidence("", "is not a kind of policy document").inside(name)
    documents = {name: read_member(value, name, read_verbatim) for name in value}
    return {name: document for name, document in documents.items() if document is not None}


class PolicyDocuments:
    """The policy documents of a turn, compared with its call spec. Immutable, and shared by similar turns."""

    __slots__ = ("contents", "drifted_kinds", "terms")

    def __init__(self, contents: Mapping[str, Any], call: CallSpec) -> None:
        self.contents = contents  # the documents, by kind
        self.terms: dict[str, Any] = {}  # supplied by the documents that have not drifted, by kind
        drifted_kinds = []
        for name in sorted(contents):
            kind = DOCUMENTS[name]
            if digest(contents[name]) != getattr(call, kind.digest_field):
                drifted_kinds.append(name)
                continue
            try:
                self.terms[name] = kind.read(contents[name])
            except InvalidEvidence as error:
                raise error.inside(name).inside("policyDocuments") from None
        self.drifted_kinds = tuple(drifted_kinds)


R = TypeVar("R", bound=JsonRecord)


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
    required_stages: tuple[str, ...]  # sorted as in STAGES
    eval_thresholds: dict[str, float]
    red_team: RedTeamTerms
    required_claims: tuple[str, ...] | None


def combine_terms(constraints: Constraints, documents: PolicyDocuments, *, is_handoff: bool) -> Terms:
    tool, governance = constraints.tool_constraints, constraints.governance_constraints
    term_of = documents.terms.get
    catalog = term_of("toolCatalog")
    catalog_tools = None if catalog is None else tuple(entry.tool_name for entry in catalog)
    stages = _prefer_explicit(governance and governance.required_guardrail_stages, term_of("guardrailStagePolicy"))
    claims = constraints.mutation_constraints.required_capability_claims
    return Terms(
        catalog_tools=_prefer_explicit(tool.catalog_tools, catalog_tools),
        deferred_tools=_prefer_explicit(tool.deferred_tools, term_of("deferPolicy")) or (),
        allowed_callers=_prefer_explicit(tool.allowed_callers, term_of("allowedCallers")) or {},
        role_scopes=_prefer_explicit(constraints.context_constraints.role_scopes, term_of("contextScope")),
        compaction=constraints.runtime_constraints.compaction or term_of("compactionPolicy") or CompactionTerms(),
        decomposition=_merge(constraints.decomposition_constraints, term_of("decompositionPolicy")),
        # The contract document applies only to a turn with a handoff; explicit constraints always apply.
        handoff=_merge(constraints.handoff_constraints, term_of("handoffContract") if is_handoff else None),
        required_stages=STAGES if stages is None else _sort_stages(stages),
        eval_thresholds=_prefer_explicit(governance and governance.eval_thresholds, term_of("evalGatePolicy")) or {},
        red_team=(governance and governance.red_team) or term_of("redTeamPolicy") or RedTeamTerms(),
        required_claims=_prefer_explicit(claims, term_of("mutationPolicy")),
    )


def _prefer_explicit(explicit: Any, from_document: Any) -> Any:
    return from_document if explicit is None else explicit


def _merge(explicit: R, document: R | None) -> R:
    if document is None:
        return explicit
    names = explicit.__struct_fields__
    return type(explicit)(*(_prefer_explicit(getattr(explicit, name), getattr(document, name)) for name in names))


def _sort_stages(stages: tuple[str, ...]) -> tuple[str, ...]:
    """Return the known stages in their order, then the unknown stages."""
    return (*(stage for stage in STAGES if stage in stages), *(stage for stage in stages if stage not in STAGES))
