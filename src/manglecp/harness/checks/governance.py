"""Governance checks: the policy package is pinned, and every required control is in place.

Governance *applies* if the profile claims governance, or if there are governance constraints. If governance applies, a
control is judged if the turn has an object for the control, or if the control is required. Some conditions are judged
even if governance does not apply:

* an unknown identity claim, and an unknown trace mode or risk tier of the call;
* requirements of the call spec: no exports in the mode ``disabled``, a control profile for the tier ``high``, and with
  a guardrail policy digest its stages (all stages if no verified document lists them);
* the mutation of a governance policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from manglecp.harness import classes
from manglecp.harness.classes import Finding, row_pointer
from manglecp.harness.constraints import (
    GOVERNANCE_CLAIM_ID,
    STAGES,
    TIERS,
    TRACE_MODES,
    EvalEvidence,
    EvalGate,
    GovernanceConstraints,
    GovernanceProfile,
    PolicyProvenance,
    SelfEvolution,
)
from manglecp.harness.evidence import Mutation
from manglecp.harness.turn import Turn


class _Governance:
    """The governance of a turn: its profile and constraints, and whether it changes a policy."""

    def __init__(self, turn: Turn) -> None:
        constraints, mutation = turn.constraints.governance_constraints, turn.evidence.mutation or Mutation()
        self.turn = turn
        self.profile = turn.constraints.governance_profile or GovernanceProfile()
        self.constraints = constraints or GovernanceConstraints()
        self.has_unknown_claim = self.profile.claim_id not in (None, GOVERNANCE_CLAIM_ID)  # then no control is judged
        self.applies = constraints is not None or self.profile.claimed is True
        self.changes_policy = mutation.kind == "governance_policy"
        self.changes_policy_automatically = self.changes_policy and mutation.automated is True

    def must_judge(self, control: str, is_present: bool) -> bool:
        """Return whether a control has to be judged; ``is_present`` is whether the turn has an object for it."""
        return self.applies and (is_present or control in self.constraints.required_controls)


def check_profile(turn: Turn) -> Iterator[Finding]:
    """Check the conditions for the start of the turn: package, trace mode and risk tier."""
    governance = _Governance(turn)
    if governance.has_unknown_claim:
        claim_id = governance.profile.claim_id
        yield classes.CLAIM_ID_INVALID.at("governanceProfile", f"the claim {claim_id} is unknown")
        return
    for control in (_check_package, _check_trace_mode, _check_risk_tier):
        yield from control(governance)


def check_guardrails(turn: Turn) -> Iterator[Finding]:
    """Check that every stage has a guardrail decision, in the order of the stages."""
    governance = _Governance(turn)
    if not governance.has_unknown_claim:
        yield from _check_stages(governance)


def check_promotion(turn: Turn) -> Iterator[Finding]:
    """Check the preconditions of a policy change: evaluation, lineage, red team, limits of automation."""
    governance = _Governance(turn)
    if governance.has_unknown_claim:
        return
    for control in (_check_eval_gate, _check_lineage, _check_red_team, _check_self_evolution):
        for finding in control(governance):
            yield finding
            if governance.changes_policy:  # the mutation requires the control, so its row gets it, too
                yield replace(finding, where="mutation")


def _check_package(governance: _Governance) -> Iterator[Finding]:
    profile, where = governance.profile, "governanceProfile/policyProvenance"
    if not governance.must_judge("policyProvenance", profile.policy_provenance is not None or profile.claimed is True):
        return
    provenance = profile.policy_provenance or PolicyProvenance()
    bound_digest = provenance.bound_digest
    if not (provenance.pinned and provenance.package_ref and provenance.expected_digest and bound_digest):
        yield classes.PACKAGE_UNPINNED.at(where, "the policy package is not pinned by reference and both digests")
        return
    if provenance.expected_digest != bound_digest:
        yield classes.PACKAGE_MISMATCH.at(where, "another package is bound than the one expected")
    if governance.constraints.bind_governance_digest and bound_digest != governance.turn.call.governance_policy_digest:
        yield classes.PACKAGE_MISMATCH.at(where, "another package is bound than the one of the call")


def _check_stages(governance: _Governance) -> Iterator[Finding]:
    decisions, declared_stages = governance.turn.evidence.guardrail_decisions, governance.profile.guardrail_stages
    has_required_stages = governance.constraints.required_guardrail_stages is not None
    is_present = bool(decisions) or declared_stages is not None or has_required_stages
    has_policy = governance.turn.call.guardrail_stage_policy_digest is not None
    if not has_policy and not governance.must_judge("guardrailStages", is_present):
        return
    required_stages = governance.turn.terms.required_stages
    stage_lists = [] if declared_stages is None else [declared_stages]
    if decisions is not None:
        stage_lists.append(tuple(row.stage for row in decisions))
    missing_stages = [
        stage for stage in required_stages if not stage_lists or any(stage not in stages for stages in stage_lists)
    ]
    for stage in missing_stages:
        yield classes.STAGE_MISSING.at(row_pointer("guardrailDecisions", stage), "the stage has no decision")
    if missing_stages:
        for row in decisions or ():  # each row gets the finding, too: stages may be judged only because rows exist
            yield classes.STAGE_MISSING.at(row.where, "another, required stage has no decision")
        return
    if declared_stages is not None and declared_stages != required_stages:
        yield classes.STAGE_ORDER_INVALID.at("governanceProfile/guardrailStages", "the list is not the required one")
    known_decisions = [row for row in decisions or () if row.stage in STAGES]
    for row in decisions or ():
        if row.stage not in STAGES:
            yield classes.STAGE_ORDER_INVALID.at(row.where, f"the stage {row.stage} is unknown")
        # The product is negative if one decision comes earlier by sequence and the other by stage.
        elif any(
            (row.sequence - other.sequence) * (STAGES.index(row.stage) - STAGES.index(other.stage)) < 0
            for other in known_decisions
        ):
            yield classes.STAGE_ORDER_INVALID.at(row.where, f"the stage {row.stage} is out of its order")


def _check_eval_gate(governance: _Governance) -> Iterator[Finding]:
    where, is_present = "governanceProfile/evalGate", governance.profile.eval_gate is not None
    if not governance.changes_policy and not governance.must_judge("evalGate", is_present):
        return
    evaluation = governance.profile.eval_gate or EvalGate()
    if evaluation.passed is not True:
        yield classes.EVAL_GATE_UNMET.at(where, "the evaluation did not pass")
    own_floors, required_floors = evaluation.thresholds or {}, governance.turn.terms.eval_thresholds
    metrics = evaluation.metrics or {}
    for name in sorted(own_floors.keys() | required_floors.keys()):
        floor = max(floors[name] for floors in (own_floors, required_floors) if name in floors)
        if name not in metrics or metrics[name] < floor:
            yield classes.EVAL_GATE_UNMET.at(where, f"{name} is {metrics.get(name)}; at least {floor} is needed")


def _check_lineage(governance: _Governance) -> Iterator[Finding]:
    where, is_present = "governanceProfile/evalEvidence", governance.profile.eval_evidence is not None
    if not governance.changes_policy and not governance.must_judge("evalEvidence", is_present):
        return
    lineage = governance.profile.eval_evidence or EvalEvidence()
    if None in (lineage.dataset_lineage_ref, lineage.grader_config_lineage_ref, lineage.metric_thresholds_ref):
        yield classes.LINEAGE_MISSING.at(where, "a reference to the data set, the grader or the thresholds is missing")
    if lineage.profile_ref not in (None, governance.turn.call.eval_profile_ref):
        message = f"the evaluation ran on {lineage.profile_ref}, not on the benchmark of the call"
        yield classes.LINEAGE_MISSING.at(where, message)


def _check_red_team(governance: _Governance) -> Iterator[Finding]:
    report, where = governance.profile.red_team_gate, "governanceProfile/redTeamGate"
    terms = governance.turn.terms.red_team
    if not governance.changes_policy and not governance.must_judge("redTeamGate", report is not None):
        return
    if report is None:
        yield classes.RED_TEAM_UNMET.at(where, "there was no adversarial regression")
        return
    if report.passed is not True:
        yield classes.RED_TEAM_UNMET.at(where, "the adversarial regression did not pass")
    if report.report_ref is None:
        yield classes.RED_TEAM_UNMET.at(where, "reportRef is missing")
    for plugin in set(terms.required_plugins or ()).difference(report.plugins):
        yield classes.RED_TEAM_UNMET.at(where, f"the plugin {plugin} did not run")
    for strategy in set(terms.required_strategies or ()).difference(report.strategies):
        yield classes.RED_TEAM_UNMET.at(where, f"the strategy {strategy} was not tried")
    if terms.min_probes is not None and (report.probes is None or report.probes < terms.min_probes):
        yield classes.RED_TEAM_UNMET.at(where, f"{report.probes} probes; at least {terms.min_probes} are needed")
    if terms.max_failures is not None and (report.failures is None or report.failures > terms.max_failures):
        yield classes.RED_TEAM_UNMET.at(where, f"{report.failures} failures; at most {terms.max_failures} are allowed")


def _check_self_evolution(governance: _Governance) -> Iterator[Finding]:
    where, is_present = "governanceProfile/selfEvolution", governance.profile.self_evolution is not None
    if not governance.changes_policy_automatically and not governance.must_judge("selfEvolution", is_present):
        return
    bounds = governance.profile.self_evolution or SelfEvolution()
    if bounds.max_attempts is None or bounds.max_attempts < 1:
        yield classes.RETRY_LIMIT_MISSING.at(where, "the attempts are not bounded by a number")
    if bounds.terminal_escalation is None:
        yield classes.ESCALATION_MISSING.at(where, "no owner is named to escalate to")
    if bounds.rollback_ref is None:
        yield classes.ROLLBACK_MISSING.at(where, "no version is named to roll back to")


def _check_trace_mode(governance: _Governance) -> Iterator[Finding]:
    call_mode, profile_mode = governance.turn.call.observability_mode, governance.profile.observability_mode
    constraints = governance.constraints
    if call_mode is not None and call_mode not in TRACE_MODES:
        yield classes.TRACE_MODE.at("callSpec/observabilityMode", f"the mode {call_mode} is unknown")
    if call_mode == "disabled":
        yield from _find_exports(governance)
    is_constrained = bool(constraints.zero_data_retention) or constraints.allowed_observability_modes is not None
    is_present = is_constrained or call_mode is not None or profile_mode is not None
    if not governance.must_judge("observabilityMode", is_present):
        return
    where = "governanceProfile/observabilityMode"
    mode = call_mode if profile_mode is None else profile_mode
    if mode not in TRACE_MODES:
        yield classes.TRACE_MODE.at(where, "the mode is missing" if not mode else f"the mode {mode} is unknown")
        return
    if call_mode not in (None, mode):
        yield classes.TRACE_MODE.at(where, f"the call has {call_mode}, the profile {mode}")
    if constraints.allowed_observability_modes is not None and mode not in constraints.allowed_observability_modes:
        yield classes.TRACE_MODE.at(where, f"the mode {mode} is not allowed")
    if constraints.zero_data_retention and mode == "dashboard":
        yield classes.TRACE_MODE.at(where, "a dashboard retains data")
    if constraints.require_processor_ref and mode != "disabled" and governance.profile.processor_ref is None:
        yield classes.TRACE_MODE.at(where, "the processor is not named")
    if mode == "disabled" and call_mode != "disabled":
        yield from _find_exports(governance)


def _find_exports(governance: _Governance) -> Iterator[Finding]:
    for row in governance.turn.evidence.trace_exports:
        yield classes.TRACE_MODE.at(row.where, "an export while tracing is disabled")


def _check_risk_tier(governance: _Governance) -> Iterator[Finding]:
    call_tier, risk = governance.turn.call.risk_tier, governance.profile.risk_tier
    if call_tier is not None and call_tier not in TIERS:
        yield classes.RISK_PROFILE_MISSING.at("callSpec/riskTier", f"the tier {call_tier} is unknown")
    where = "governanceProfile/riskTier"
    if call_tier == "high" and risk is None and not governance.applies:
        yield classes.RISK_PROFILE_MISSING.at(where, "the tier high has no control profile")
    if not governance.must_judge("riskTier", risk is not None or call_tier is not None):
        return
    if risk is None:
        yield classes.RISK_PROFILE_MISSING.at(where, "the tier has no control profile")
        return
    if risk.tier not in TIERS:
        yield classes.RISK_PROFILE_MISSING.at(where, f"the tier {risk.tier} is unknown")
    if risk.control_profile_bound is not True:
        yield classes.RISK_PROFILE_MISSING.at(where, "the control profile is not bound")
    if call_tier not in (None, risk.tier):
        yield classes.RISK_PROFILE_MISSING.at(where, f"the call has {call_tier}, the profile {risk.tier}")
    if risk.tier in (governance.constraints.human_checkpoint_tiers or ()) and risk.approval_ref is None:
        yield classes.RISK_PROFILE_MISSING.at(where, f"the tier {risk.tier} needs an approval by a human")
