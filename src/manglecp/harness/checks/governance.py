"""Governance checks: the policy package is pinned, and every required control is in place.

Governance *applies* if the profile claims it or if there are governance constraints. A control is then judged if its
object is present or required. These conditions are judged even if governance does not apply:

* an unknown identity claim, and an unknown trace mode or risk tier of the call;
* what the call binds itself: no exports in the mode ``disabled``, a control profile for the tier ``high``, and the
  stages of a guardrail digest, which are all stages if no verified document lists them;
* the mutation of a governance policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from manglecp.harness import classes
from manglecp.harness.classes import Finding, row_pointer
from manglecp.harness.constraints import CLAIM_ID, STAGES, TIERS, TRACE_MODES, GovernanceConstraints, GovernanceProfile
from manglecp.harness.evidence import GuardrailDecision
from manglecp.harness.turn import Turn


class _Governance:
    __slots__ = ("applies", "changes_policy", "changes_policy_automatically", "constraints", "profile", "turn")

    def __init__(self, turn: Turn) -> None:
        profile, constraints = turn.constraints.governance_profile, turn.constraints.governance_constraints
        self.turn = turn
        self.applies = constraints is not None or (profile is not None and profile.claimed is True)
        self.profile = profile or GovernanceProfile()
        self.constraints = constraints or GovernanceConstraints()
        intent = turn.evidence.mutation
        self.changes_policy = intent is not None and intent.kind == "governance_policy"
        self.changes_policy_automatically = self.changes_policy and intent is not None and intent.automated is True

    def judges(self, control: str, present: bool) -> bool:
        """Return whether a control has to be judged; ``present`` is whether the turn has an object for it."""
        return self.applies and (present or control in self.constraints.required_controls)


def _governance_of(turn: Turn) -> _Governance | None:
    """Return the governance of a turn, whether it applies or not; None for an unknown identity claim."""
    governance = _Governance(turn)
    return governance if governance.profile.claim_id in (None, CLAIM_ID) else None


def check_profile(turn: Turn) -> Iterator[Finding]:
    """Check the conditions before the turn starts: package, trace mode and risk tier."""
    governance = _governance_of(turn)
    if governance is None:
        profile = turn.constraints.governance_profile
        yield classes.UNKNOWN_CLAIM_ID.at("governanceProfile", f"the claim {profile and profile.claim_id} is unknown")
        return
    for control in (_check_package, _check_trace_mode, _check_risk_tier):
        yield from control(governance)


def check_guardrails(turn: Turn) -> Iterator[Finding]:
    """Check that every stage has a guardrail decision, in the order of the stages."""
    governance = _governance_of(turn)
    if governance is not None:
        yield from _check_stages(governance)


def check_promotion(turn: Turn) -> Iterator[Finding]:
    """Check the preconditions of a policy change: evaluation, lineage, red team, limits of automation."""
    governance = _governance_of(turn)
    if governance is None:
        return
    for control in (_check_eval_gate, _check_lineage, _check_red_team, _check_self_evolution):
        for finding in control(governance):
            yield finding
            if governance.changes_policy:  # the mutation has the precondition, so its row gets the finding, too
                yield replace(finding, where="mutation")


def _check_package(governance: _Governance) -> Iterator[Finding]:
    provenance, where = governance.profile.policy_provenance, "governanceProfile/policyProvenance"
    if not governance.judges("policyProvenance", provenance is not None or governance.profile.claimed is True):
        return
    if (
        provenance is None
        or provenance.pinned is not True
        or not provenance.package_ref
        or not provenance.expected_digest
        or provenance.bound_digest is None
    ):
        yield classes.UNPINNED.at(where, "the policy package is not pinned by reference and both digests")
        return
    if provenance.expected_digest != provenance.bound_digest:
        yield classes.PACKAGE.at(where, "another package is bound than the one expected")
    if (
        governance.constraints.bind_governance_digest
        and provenance.bound_digest != governance.turn.call.governance_policy_digest
    ):
        yield classes.PACKAGE.at(where, "another package is bound than the one of the call")


def _check_stages(governance: _Governance) -> Iterator[Finding]:
    decisions, declared = governance.turn.evidence.guardrail_decisions, governance.profile.guardrail_stages
    present = bool(decisions) or declared is not None or governance.constraints.required_guardrail_stages is not None
    is_bound = governance.turn.call.guardrail_stage_policy_digest is not None
    if not is_bound and not governance.judges("guardrailStages", present):
        return
    required, is_stage_missing = governance.turn.terms.required_stages, False
    decided = {row.stage for row in decisions or ()}
    for stage in required:
        if (
            (decisions is not None and stage not in decided)
            or (declared is not None and stage not in declared)
            or (decisions is None and declared is None)
        ):
            is_stage_missing = True
            yield classes.STAGE_MISSING.at(row_pointer("guardrailDecisions", stage), "the stage has no decision")
    if is_stage_missing:
        for row in (
            decisions or ()
        ):  # their presence may be why the stages are judged, so each of them gets the finding, too
            where = row_pointer("guardrailDecisions", row.sequence)
            yield classes.STAGE_MISSING.at(where, "another, required stage has no decision")
        return
    if declared is not None and declared != required:
        yield classes.STAGE_ORDER.at("governanceProfile/guardrailStages", "the list is not the required one")
    for row, message in _find_out_of_order(decisions or ()):
        yield classes.STAGE_ORDER.at(row_pointer("guardrailDecisions", row.sequence), message)


def _find_out_of_order(decisions: tuple[GuardrailDecision, ...]) -> Iterator[tuple[GuardrailDecision, str]]:
    """Yield the decisions at unknown stages and those out of the stage order, each with a message."""
    ranks = {stage: rank for rank, stage in enumerate(STAGES)}
    positions = [(row.sequence, ranks[row.stage]) for row in decisions if row.stage in ranks]
    for row in decisions:
        if row.stage not in ranks:
            yield row, f"the stage {row.stage} is unknown"
            continue
        sequence, rank = row.sequence, ranks[row.stage]
        # The product is negative if one comes earlier by sequence and the other by stage.
        if any((sequence - other_sequence) * (rank - other_rank) < 0 for other_sequence, other_rank in positions):
            yield row, f"the stage {row.stage} is out of its order"


def _check_eval_gate(governance: _Governance) -> Iterator[Finding]:
    evaluation, where = governance.profile.eval_gate, "governanceProfile/evalGate"
    if not governance.changes_policy and not governance.judges("evalGate", evaluation is not None):
        return
    if evaluation is None or evaluation.passed is not True:
        yield classes.EVAL.at(where, "the evaluation did not pass")
    own_floors = (evaluation and evaluation.thresholds) or {}
    required_floors = governance.turn.terms.eval_thresholds
    metrics = (evaluation and evaluation.metrics) or {}
    for name in sorted(own_floors.keys() | required_floors.keys()):
        floor = max(floors[name] for floors in (own_floors, required_floors) if name in floors)
        if name not in metrics or metrics[name] < floor:
            yield classes.EVAL.at(where, f"{name} is {metrics.get(name)}; at least {floor} is needed")


def _check_lineage(governance: _Governance) -> Iterator[Finding]:
    lineage, where = governance.profile.eval_evidence, "governanceProfile/evalEvidence"
    if not governance.changes_policy and not governance.judges("evalEvidence", lineage is not None):
        return
    if (
        lineage is None
        or lineage.dataset_lineage_ref is None
        or lineage.grader_config_lineage_ref is None
        or lineage.metric_thresholds_ref is None
    ):
        yield classes.LINEAGE.at(where, "a reference to the data set, the grader or the thresholds is missing")
    if lineage is not None and lineage.profile_ref not in (None, governance.turn.call.eval_profile_ref):
        yield classes.LINEAGE.at(
            where, f"the evaluation ran on {lineage.profile_ref}, not on the benchmark of the call"
        )


def _check_red_team(governance: _Governance) -> Iterator[Finding]:
    report, terms, where = (
        governance.profile.red_team_gate,
        governance.turn.terms.red_team,
        "governanceProfile/redTeamGate",
    )
    if not governance.changes_policy and not governance.judges("redTeamGate", report is not None):
        return
    if report is None:
        yield classes.RED_TEAM.at(where, "there was no adversarial regression")
        return
    if report.passed is not True:
        yield classes.RED_TEAM.at(where, "the adversarial regression did not pass")
    if report.report_ref is None:
        yield classes.RED_TEAM.at(where, "reportRef is missing")
    for plugin in set(terms.required_plugins or ()).difference(report.plugins):
        yield classes.RED_TEAM.at(where, f"the plugin {plugin} did not run")
    for strategy in set(terms.required_strategies or ()).difference(report.strategies):
        yield classes.RED_TEAM.at(where, f"the strategy {strategy} was not tried")
    if terms.min_probes is not None and (report.probes is None or report.probes < terms.min_probes):
        yield classes.RED_TEAM.at(where, f"{report.probes} probes; at least {terms.min_probes} are needed")
    if terms.max_failures is not None and (report.failures is None or report.failures > terms.max_failures):
        yield classes.RED_TEAM.at(where, f"{report.failures} failures; at most {terms.max_failures} are admitted")


def _check_self_evolution(governance: _Governance) -> Iterator[Finding]:
    bounds, where = governance.profile.self_evolution, "governanceProfile/selfEvolution"
    if not governance.changes_policy_automatically and not governance.judges("selfEvolution", bounds is not None):
        return
    if bounds is None or bounds.max_attempts is None or bounds.max_attempts < 1:
        yield classes.RETRY.at(where, "the attempts are not bounded by a number")
    if bounds is None or bounds.terminal_escalation is None:
        yield classes.ESCALATION.at(where, "no owner is named to escalate to")
    if bounds is None or bounds.rollback_ref is None:
        yield classes.ROLLBACK.at(where, "no version is named to roll back to")


def _check_trace_mode(governance: _Governance) -> Iterator[Finding]:
    call_mode, profile_mode = governance.turn.call.observability_mode, governance.profile.observability_mode
    constraints = governance.constraints
    if call_mode is not None and call_mode not in TRACE_MODES:
        yield classes.TRACE.at("callSpec/observabilityMode", f"the mode {call_mode} is unknown")
    if call_mode == "disabled":
        yield from _find_exports(governance)
    is_constrained = bool(constraints.zero_data_retention) or constraints.allowed_observability_modes is not None
    if not governance.judges("observabilityMode", is_constrained or call_mode is not None or profile_mode is not None):
        return
    where = "governanceProfile/observabilityMode"
    mode = call_mode if profile_mode is None else profile_mode
    if mode not in TRACE_MODES:
        yield classes.TRACE.at(where, "the mode is missing" if not mode else f"the mode {mode} is unknown")
        return
    if call_mode not in (None, mode):
        yield classes.TRACE.at(where, f"the call has {call_mode}, the profile {mode}")
    if constraints.allowed_observability_modes is not None and mode not in constraints.allowed_observability_modes:
        yield classes.TRACE.at(where, f"the mode {mode} is not admitted")
    if constraints.zero_data_retention and mode == "dashboard":
        yield classes.TRACE.at(where, "a dashboard retains data")
    if constraints.require_processor_ref and mode != "disabled" and governance.profile.processor_ref is None:
        yield classes.TRACE.at(where, "the processor is not named")
    if mode == "disabled" and call_mode != "disabled":
        yield from _find_exports(governance)


def _find_exports(governance: _Governance) -> Iterator[Finding]:
    for row in governance.turn.evidence.trace_exports:
        yield classes.TRACE.at(row_pointer("traceExports", row.sink or ""), "an export while tracing is disabled")


def _check_risk_tier(governance: _Governance) -> Iterator[Finding]:
    call_tier, risk = governance.turn.call.risk_tier, governance.profile.risk_tier
    if call_tier is not None and call_tier not in TIERS:
        yield classes.RISK.at("callSpec/riskTier", f"the tier {call_tier} is unknown")
    where = "governanceProfile/riskTier"
    if call_tier == "high" and risk is None and not governance.applies:
        yield classes.RISK.at(where, "the tier high has no control profile")
    if not governance.judges("riskTier", risk is not None or call_tier is not None):
        return
    if risk is None:
        yield classes.RISK.at(where, "the tier has no control profile")
        return
    if risk.tier not in TIERS:
        yield classes.RISK.at(where, f"the tier {risk.tier} is unknown")
    if risk.control_profile_bound is not True:
        yield classes.RISK.at(where, "the control profile is not bound")
    if call_tier not in (None, risk.tier):
        yield classes.RISK.at(where, f"the call has {call_tier}, the profile {risk.tier}")
    if risk.tier in (governance.constraints.human_checkpoint_tiers or ()) and risk.approval_ref is None:
        yield classes.RISK.at(where, f"the tier {risk.tier} needs an approval by a human")
