from __future__ import annotations

from typing import Any

import pytest

from manglecp.harness.canonical_v1 import digest_v1 as digest
from tests.harness.checks.cases import accepts, raises
from tests.harness.evidence import ABSENT, MUTATION, PROFILE, changed, classes, judged, turn

CLAIM_ID = "governance.claim_id_invalid"
UNPINNED = "governance.policy_package_unpinned"
PACKAGE = "governance.policy_package_mismatch"
MISSING = "governance.guardrail_stage_missing"
ORDER = "governance.guardrail_stage_order_invalid"
EVAL = "governance.eval_gate_unmet"
LINEAGE = "governance.eval_lineage_missing"
RED_TEAM = "governance.redteam_gate_unmet"
RETRY = "governance.self_evolution_retry_missing"
ESCALATION = "governance.self_evolution_escalation_missing"
ROLLBACK = "governance.self_evolution_rollback_missing"
TRACE = "governance.trace_mode_violation"
RISK = "governance.risk_tier_profile_missing"

STAGES = ["pre_flight", "input", "output"]


def decided(*stages: str) -> list[dict[str, Any]]:
    return [{"stage": stage, "sequence": index} for index, stage in enumerate(stages)]


EVALUATED = {"passed": True, "metrics": {"recall": 0.9}}
TRACED = {"datasetLineageRef": "d", "graderConfigLineageRef": "g", "metricThresholdsRef": "t"}
ATTACKED = {"passed": True, "plugins": ["p"], "strategies": ["s"], "probes": 9, "failures": 0, "reportRef": "r"}
BOUNDED = {"maxAttempts": 1, "terminalEscalation": "owner", "rollbackRef": "v1"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        accepts("claimed"),
        accepts("claimed without an id", governanceProfile__claimId=" "),
        raises("another id", CLAIM_ID, governanceProfile__claimId="profile.doctrine_inf_governance.v1"),
        raises("another id unclaimed", CLAIM_ID, governanceProfile={"claimId": "x", "claimed": False}),
        raises("another id ends it", CLAIM_ID, governanceProfile__claimId="x", governanceProfile__evalGate={},
               governanceProfile__policyProvenance=None, call__riskTier="x"),
        raises("no provenance", UNPINNED, governanceProfile__policyProvenance=None),
        raises("not pinned", UNPINNED, governanceProfile__policyProvenance__pinned="yes"),
        raises("no package", UNPINNED, governanceProfile__policyProvenance__packageRef=""),
        raises("nothing expected", UNPINNED, governanceProfile__policyProvenance__expectedDigest=None),
        raises("nothing bound", UNPINNED, governanceProfile__policyProvenance__boundDigest=None),
        raises("another bound", PACKAGE, governanceProfile__policyProvenance__boundDigest="sha256:q"),
        raises("another bound than the call's", PACKAGE, governanceConstraints={"bindGovernanceDigest": True}),
        accepts("bound to the call's", governanceConstraints={"bindGovernanceDigest": True},
                call__governancePolicyDigest="sha256:p"),
        raises("demanded", UNPINNED, governanceProfile=None,
               governanceConstraints={"requiredControls": ["policyProvenance"]}),
        raises("present behind the gate", UNPINNED, governanceConstraints={},
               governanceProfile={"policyProvenance": {"pinned": False}}),
        accepts("not claimed", governanceProfile={"claimed": False, "policyProvenance": {"pinned": False}}),
        accepts("not claimed in so many words", governanceProfile={"policyProvenance": {"pinned": False}}),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-31", "SLICE-14")
def test_package(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes({**turn(), "governanceProfile": PROFILE}, changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        accepts("all decided", evidence__guardrailDecisions=decided(*STAGES)),
        accepts("several per stage", evidence__guardrailDecisions=decided("pre_flight", *STAGES, "output")),
        accepts("nothing given"),
        accepts("an empty list demands nothing", evidence__guardrailDecisions=[]),
        raises("one missing", MISSING, evidence__guardrailDecisions=decided("pre_flight", "input")),
        raises("demanded", MISSING, governanceConstraints={"requiredControls": ["guardrailStages"]}),
        raises("demanded by stages", MISSING, governanceConstraints={"requiredGuardrailStages": ["input"]}),
        raises("a stage of one's own demanded", MISSING, governanceConstraints={"requiredGuardrailStages": ["audit"]},
               evidence__guardrailDecisions=decided(*STAGES)),
        accepts("demanded and decided", governanceConstraints={"requiredGuardrailStages": ["Input"]},
                evidence__guardrailDecisions=decided("input")),
        accepts("declared", governanceProfile__guardrailStages=STAGES),
        raises("declared and not decided", MISSING, governanceProfile__guardrailStages=STAGES,
               evidence__guardrailDecisions=[]),
        raises("decided and not declared", MISSING, governanceProfile__guardrailStages=["pre_flight", "input"],
               evidence__guardrailDecisions=decided(*STAGES)),
        raises("declared in another order", ORDER, governanceProfile__guardrailStages=STAGES[::-1]),
        raises("more declared than required", ORDER, governanceProfile__guardrailStages=STAGES,
               governanceConstraints={"requiredGuardrailStages": ["input"]}),
        raises("out of order", ORDER, evidence__guardrailDecisions=decided("input", "pre_flight", "output")),
        raises("one out of order", ORDER, evidence__guardrailDecisions=decided(*STAGES, "input")),
        accepts("at once", evidence__guardrailDecisions=[{"stage": stage, "sequence": 1} for stage in STAGES]),
        raises("stage not known", ORDER, evidence__guardrailDecisions=decided(*STAGES, "aftermath")),
        raises("stage not known and one missing", MISSING, evidence__guardrailDecisions=decided("input", "aftermath")),
        accepts("gate closed", governanceProfile=None, evidence__guardrailDecisions=decided("output", "input")),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-32", "HARN-50", "HARN-58", "HARN-71", "SLICE-13")
def test_stages(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes({**turn(), "governanceProfile": PROFILE}, changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        accepts("passed", governanceProfile__evalGate=EVALUATED),
        raises("not passed", EVAL, governanceProfile__evalGate={"passed": False}),
        raises("passed in words", EVAL, governanceProfile__evalGate={"passed": "yes"}),
        raises("demanded", EVAL, governanceConstraints={"requiredControls": ["evalGate"]}),
        accepts("thresholds demand nothing", governanceConstraints={"evalThresholds": {"recall": 1}}),
        raises("under its own floor", EVAL,
               governanceProfile__evalGate={**EVALUATED, "thresholds": {"recall": 0.95}}),
        accepts("at its floor", governanceProfile__evalGate={**EVALUATED, "thresholds": {"recall": 0.9}}),
        raises("under the floor in force", EVAL, governanceProfile__evalGate=EVALUATED,
               governanceConstraints={"evalThresholds": {"recall": 0.95}}),
        raises("the higher floor counts", EVAL, governanceConstraints={"evalThresholds": {"recall": 0.95}},
               governanceProfile__evalGate={**EVALUATED, "thresholds": {"recall": 0.1}}),
        raises("the higher floor counts otherwise", EVAL, governanceConstraints={"evalThresholds": {"recall": 0.1}},
               governanceProfile__evalGate={**EVALUATED, "thresholds": {"recall": 0.95}}),
        raises("not measured", EVAL, governanceProfile__evalGate={"passed": True},
               governanceConstraints={"evalThresholds": {"recall": 0}}),
        accepts("gate closed", governanceProfile__claimed=False, governanceProfile__evalGate={}),
        accepts("traced", governanceProfile__evalEvidence=TRACED),
        raises("no data set", LINEAGE, governanceProfile__evalEvidence={**TRACED, "datasetLineageRef": ""}),
        raises("no grader", LINEAGE, governanceProfile__evalEvidence={**TRACED, "graderConfigLineageRef": ""}),
        raises("no thresholds", LINEAGE, governanceProfile__evalEvidence={**TRACED, "metricThresholdsRef": ""}),
        raises("lineage demanded", LINEAGE, governanceConstraints={"requiredControls": ["evalEvidence"]}),
        raises("another benchmark", LINEAGE, governanceProfile__evalEvidence={**TRACED, "profileRef": "b"},
               call__evalProfileRef="c"),
        raises("a benchmark the call does not name", LINEAGE,
               governanceProfile__evalEvidence={**TRACED, "profileRef": "b"}),
        accepts("the benchmark", governanceProfile__evalEvidence={**TRACED, "profileRef": "b"},
                call__evalProfileRef="b"),
        accepts("no benchmark", governanceProfile__evalEvidence=TRACED, call__evalProfileRef="b"),
        accepts("attacked", governanceProfile__redTeamGate=ATTACKED),
        accepts("attacked under another name", governanceProfile__adversarialGate=ATTACKED),
        raises("failed under another name", RED_TEAM, governanceProfile__adversarialGate={}),
        raises("not withstood", RED_TEAM, governanceProfile__redTeamGate={**ATTACKED, "passed": False}),
        raises("no report", RED_TEAM, governanceProfile__redTeamGate={**ATTACKED, "reportRef": " "}),
        raises("red team demanded", RED_TEAM, governanceConstraints={"requiredControls": ["redTeamGate"]}),
        accepts("red team terms demand nothing", governanceConstraints={"redTeam": {"minProbes": 9}}),
        raises("plugin missing", RED_TEAM, governanceProfile__redTeamGate=ATTACKED,
               governanceConstraints={"redTeam": {"requiredPlugins": ["p", "q"]}}),
        raises("strategy missing", RED_TEAM, governanceProfile__redTeamGate=ATTACKED,
               governanceConstraints={"redTeam": {"requiredStrategies": ["s", "t"]}}),
        raises("too few probes", RED_TEAM, governanceProfile__redTeamGate=ATTACKED,
               governanceConstraints={"redTeam": {"minProbes": 10}}),
        raises("probes not counted", RED_TEAM, governanceProfile__redTeamGate={**ATTACKED, "probes": None},
               governanceConstraints={"redTeam": {"minProbes": 0}}),
        raises("too many failures", RED_TEAM, governanceProfile__redTeamGate={**ATTACKED, "failures": 2},
               governanceConstraints={"redTeam": {"maxFailures": 1}}),
        raises("failures not counted", RED_TEAM, governanceProfile__redTeamGate={**ATTACKED, "failures": None},
               governanceConstraints={"redTeam": {"maxFailures": 1}}),
        accepts("enough", governanceProfile__redTeamGate=ATTACKED, governanceConstraints={"redTeam": {
            "requiredPlugins": ["p"], "requiredStrategies": ["s"], "minProbes": 9, "maxFailures": 0}}),
        accepts("bounded", governanceProfile__selfEvolution=BOUNDED),
        raises("no attempts", RETRY, governanceProfile__selfEvolution={**BOUNDED, "maxAttempts": 0}),
        raises("true is no number", RETRY, governanceProfile__selfEvolution={**BOUNDED, "maxAttempts": True}),
        raises("nobody to escalate to", ESCALATION,
               governanceProfile__selfEvolution={**BOUNDED, "terminalEscalation": ""}),
        raises("nothing to return to", ROLLBACK, governanceProfile__selfEvolution={**BOUNDED, "rollbackRef": ""}),
        raises("bounds demanded", RETRY, ESCALATION, ROLLBACK,
               governanceConstraints={"requiredControls": ["selfEvolution"]}),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-20", "HARN-33", "HARN-34")
def test_gates_forbid_only_the_mutation(changes: dict[str, Any], expected: set[str]) -> None:
    found = judged({**turn(), "governanceProfile": PROFILE}, changes)
    assert set(found.failure_classes) == expected
    assert found.join_closed


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        accepts("mode of the call", call__observabilityMode="dashboard"),
        accepts("mode of the profile", governanceProfile__observabilityMode="Disabled"),
        raises("mode of the call not known", TRACE, governanceProfile=None, call__observabilityMode="loud"),
        raises("mode of the profile not known", TRACE, governanceProfile__observabilityMode="loud"),
        raises("mode of the profile blank", TRACE, governanceProfile__observabilityMode=" "),
        raises("mode of the profile a number", TRACE, governanceProfile__observabilityMode=5),
        raises("mode demanded", TRACE, governanceConstraints={"requiredControls": ["observabilityMode"]}),
        raises("mode demanded by retention", TRACE, governanceConstraints={"zeroDataRetention": True}),
        raises("mode demanded by a list", TRACE, governanceConstraints={"allowedObservabilityModes": ["disabled"]}),
        accepts("mode not demanded by a processor", governanceConstraints={"requireProcessorRef": True}),
        raises("modes disagree", TRACE, governanceProfile__observabilityMode="disabled",
               call__observabilityMode="dashboard"),
        accepts("modes agree", governanceProfile__observabilityMode="disabled", call__observabilityMode="disabled"),
        raises("mode not admitted", TRACE, call__observabilityMode="dashboard",
               governanceConstraints={"allowedObservabilityModes": ["disabled"]}),
        raises("dashboard retains", TRACE, call__observabilityMode="dashboard",
               governanceConstraints={"zeroDataRetention": True}),
        accepts("processor does not retain", call__observabilityMode="internal_processor",
                governanceConstraints={"zeroDataRetention": True}),
        raises("processor unnamed", TRACE, call__observabilityMode="internal_processor",
               governanceConstraints={"requireProcessorRef": True}),
        raises("processor of a dashboard unnamed", TRACE, call__observabilityMode="dashboard",
               governanceConstraints={"requireProcessorRef": True}),
        accepts("processor named", call__observabilityMode="internal_processor",
                governanceProfile__processorRef="otel", governanceConstraints={"requireProcessorRef": True}),
        accepts("no processor where nothing is traced", call__observabilityMode="disabled",
                governanceConstraints={"requireProcessorRef": True}),
        raises("export while disabled", TRACE, call__observabilityMode="disabled",
               evidence__traceExports=[{"sink": "s"}]),
        raises("export to nowhere while disabled", TRACE, call__observabilityMode="disabled",
               evidence__traceExports=[{}]),
        accepts("export", call__observabilityMode="dashboard", evidence__traceExports=[{"sink": "s"}]),
        accepts("gate closed", governanceProfile={"observabilityMode": "loud"}),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-35", "SLICE-16")
def test_trace_mode(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes({**turn(), "governanceProfile": PROFILE}, changes) == expected


@pytest.mark.req("FAIL-34")
def test_each_export_is_pointed_at() -> None:
    changes = {"evidence.callSpec.observabilityMode": "disabled", "evidence.traceExports": [{"sink": "s"}, {}]}
    found = judged({**turn(), "governanceProfile": PROFILE}, changes).findings
    assert [finding.where for finding in found] == ["traceExports/", "traceExports/s"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        accepts("bound", governanceProfile__riskTier={"tier": "Low", "controlProfileBound": True}),
        raises("tier of the call not known", RISK, governanceProfile=None, call__riskTier="extreme"),
        raises("tier of the profile not known", RISK,
               governanceProfile__riskTier={"tier": "x", "controlProfileBound": True}),
        raises("no tier", RISK, governanceProfile__riskTier={"controlProfileBound": True}),
        raises("not bound", RISK, governanceProfile__riskTier={"tier": "low"}),
        raises("tier of the call without profile", RISK, call__riskTier="low"),
        accepts("tier of the call behind a closed gate", governanceProfile=None, call__riskTier="low"),
        raises("demanded", RISK, governanceConstraints={"requiredControls": ["riskTier"]}),
        raises("tiers disagree", RISK, call__riskTier="high",
               governanceProfile__riskTier={"tier": "low", "controlProfileBound": True}),
        raises("no approval", RISK, governanceProfile__riskTier={"tier": "high", "controlProfileBound": True},
               governanceConstraints={"humanCheckpointTiers": ["High"]}),
        accepts("approved", governanceConstraints={"humanCheckpointTiers": ["high"]}, governanceProfile__riskTier={
            "tier": "high", "controlProfileBound": True, "approvalRef": "a"}),
        accepts("approval of another tier", governanceConstraints={"humanCheckpointTiers": ["high"]},
                governanceProfile__riskTier={"tier": "low", "controlProfileBound": True}),
        accepts("tiers demand nothing", governanceConstraints={"humanCheckpointTiers": ["high"]}),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-36")
def test_risk_tier(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes({**turn(), "governanceProfile": PROFILE}, changes) == expected


PROMOTION = {
    **MUTATION,
    "evidence.mutation.kind": "Governance_Policy",
    "governanceProfile": {"evalGate": EVALUATED, "evalEvidence": TRACED, "redTeamGate": ATTACKED},
}


@pytest.mark.req("HARN-77", "SLICE-15")
def test_a_promotion_needs_its_gates_without_any_claim() -> None:
    promotion = changed(turn(), PROMOTION)
    assert judged(promotion).mutation_ready
    assert classes(promotion, {"governanceProfile": None}) == {EVAL, LINEAGE, RED_TEAM}
    assert classes(promotion, {"evidence.mutation.automated": True}) == {RETRY, ESCALATION, ROLLBACK}
    assert (
        classes(promotion, {"evidence.mutation.automated": True, "governanceProfile.selfEvolution": BOUNDED}) == set()
    )
    assert classes(promotion, {"evidence.mutation.kind": "issue", "evidence.mutation.automated": True,
                               "governanceProfile": ABSENT}) == set()  # fmt: skip


@pytest.mark.req("FAIL-26", "FAIL-27")
def test_a_verified_document_makes_stages_mandatory() -> None:
    document = {"requiredStages": ["output", "input"]}
    under = changed(turn(), {
        "policyDocuments.guardrailStagePolicy": document,
        "evidence.callSpec.guardrailStagePolicyDigest": digest(document),
    })  # fmt: skip
    assert classes(under) == {MISSING}
    assert classes(under, {"evidence.guardrailDecisions": decided("input", "output")}) == set()
    assert classes(under, {"evidence.guardrailDecisions": decided("output", "input")}) == {ORDER}


@pytest.mark.req("FAIL-26", "FAIL-34", "FAIL-35")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        raises("exports while disabled", TRACE, governanceProfile=None, call__observabilityMode="disabled",
               evidence__traceExports=[{"sink": "s"}]),
        accepts("disabled without exports", governanceProfile=None, call__observabilityMode="disabled"),
        accepts("exports to a dashboard", governanceProfile=None, call__observabilityMode="dashboard",
                evidence__traceExports=[{"sink": "s"}]),
        raises("a high tier without profile", RISK, governanceProfile=None, call__riskTier="high"),
        accepts("a moderate tier without profile", governanceProfile=None, call__riskTier="moderate"),
        raises("a guardrail digest without decisions", MISSING, governanceProfile=None,
               call__guardrailStagePolicyDigest="sha256:g"),
        raises("a guardrail digest with one decision", MISSING, governanceProfile=None,
               call__guardrailStagePolicyDigest="sha256:g", evidence__guardrailDecisions=decided("input")),
        accepts("a guardrail digest with all decisions", governanceProfile=None,
                call__guardrailStagePolicyDigest="sha256:g", evidence__guardrailDecisions=decided(*STAGES)),
    ],
)  # fmt: skip
def test_what_the_call_binds_is_judged_without_a_claim(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(), changes) == expected
