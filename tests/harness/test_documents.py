from __future__ import annotations

from typing import Any

import pytest

from manglecp.harness.call_spec import CallSpec
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.constraints import DOCUMENTS
from manglecp.harness.readers import InvalidEvidence
from tests.harness.evidence import MUTATION, PROFILE, changed, classes, turn

DRIFT = {
    "toolCatalog": "tool.discovery_mismatch",
    "deferPolicy": "tool.discovery_mismatch",
    "toolExamples": "tool.example_digest_mismatch",
    "allowedCallers": "tool.caller_not_allowed",
    "toolRenderProtocol": "context.queue_policy_violation",
    "reminderQueuePolicy": "context.queue_policy_violation",
    "stateViewPolicy": "context.queue_policy_violation",
    "compactionPolicy": "runtime.compaction_state_invalid",
    "decompositionPolicy": "coordination.decomposition_policy_violation",
    "governancePolicy": "governance.policy_package_mismatch",
    "guardrailStagePolicy": "governance.guardrail_stage_missing",
    "evalGatePolicy": "governance.eval_lineage_missing",
    "redTeamPolicy": "governance.redteam_gate_unmet",
    "contextScope": "context.scope_violation",
    "handoffContract": "handoff.target_not_allowed",
    "mutationPolicy": "mutation.policy_digest_mismatch",
}


def field(name: str) -> str:
    index = CallSpec.__struct_fields__.index(DOCUMENTS[name].digest_field)
    return CallSpec.__struct_encode_fields__[index]


def under(name: str, document: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Changes that put a verified document in force."""
    return {f"policyDocuments.{name}": document, f"evidence.callSpec.{field(name)}": digest(document), **more}


@pytest.mark.req("HARN-15", "HARN-16", "HARN-17", "HARN-18")
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_that_differs_raises_its_class(name: str) -> None:
    assert DRIFT.keys() == DOCUMENTS.keys()
    assert classes(turn(), {f"policyDocuments.{name}": {"edited": True}}) == {DRIFT[name]}
    assert classes(turn(), {f"policyDocuments.{name}": None}) == set()


@pytest.mark.parametrize("name", sorted(DOCUMENTS.keys() - {"guardrailStagePolicy"}))
def test_the_document_of_the_call_is_fine(name: str) -> None:
    """Those that the rows of the turn are bound to have to be bound there too."""
    document = {"of": name}
    bound: dict[str, dict[str, Any]] = {
        "toolRenderProtocol": {"evidence.toolRender.0.policyDigest": digest(document)},
        "reminderQueuePolicy": {"evidence.reminderQueue.0.policyDigest": digest(document)},
        "stateViewPolicy": {"evidence.stateViews.0.policyDigest": digest(document)},
        "toolCatalog": {"toolConstraints.catalogTools": ["grep"]},
    }
    assert classes(turn(), under(name, document) | bound.get(name, {})) == set()


PACKET = {"target": "soil"}
FOR_ALL = {"evidence.callSpec.orchestrationRole": "specialist", "evidence.contextAccess": [{"ref": "a/1"}]}
PROMOTION = {
    **MUTATION,
    "evidence.mutation.kind": "governance_policy",
    "governanceProfile": {
        **PROFILE,
        "evalGate": {"passed": True, "metrics": {"f1": 0.5}},
        "evalEvidence": {"datasetLineageRef": "d", "graderConfigLineageRef": "g", "metricThresholdsRef": "t"},
        "redTeamGate": {"passed": True, "reportRef": "r", "probes": 1, "failures": 1},
    },
}
COMPACTED = {"evidence.compaction": {"policyDigest": digest({"requiredCarryForwardRefs": ["goal"]}),
                                     "summaryDigest": "s", "continuityRef": "c"}}  # fmt: skip
TABLE: list[tuple[str, dict[str, Any], dict[str, Any], str, str, Any]] = [
    # document, its content, what else there is, the class it raises, and the explicit member that replaces it
    ("toolCatalog", {"tools": [{"toolName": "sed"}]}, {}, "tool.unknown_or_disallowed", "toolConstraints.catalogTools",
     ["grep"]),
    ("deferPolicy", {"deferred": ["grep"]}, {}, "tool.discovery_unresolved", "toolConstraints.deferredTools", []),
    ("allowedCallers", {"tools": {"grep": []}}, {}, "tool.caller_not_allowed", "toolConstraints.allowedCallers", {}),
    ("contextScope", {"roles": {"specialist": {"read": ["b/"]}}}, FOR_ALL, "context.scope_violation",
     "contextConstraints.roleScopes", {"specialist": {"read": ["a/"]}}),
    ("compactionPolicy", {"requiredCarryForwardRefs": ["goal"]}, COMPACTED, "runtime.compaction_state_invalid",
     "runtimeConstraints.compaction", {"requiredCarryForwardRefs": []}),
    ("decompositionPolicy", {"allowedPatterns": ["chain"]}, {}, "coordination.decomposition_policy_violation",
     "decompositionConstraints.allowedPatterns", ["single"]),
    ("guardrailStagePolicy", {"requiredStages": ["input"]},
     {"evidence.guardrailDecisions": [{"stage": "output", "sequence": 1}]}, "governance.guardrail_stage_missing",
     "governanceConstraints.requiredGuardrailStages", ["output"]),
    ("evalGatePolicy", {"thresholds": {"f1": 0.9}}, PROMOTION, "governance.eval_gate_unmet",
     "governanceConstraints.evalThresholds", {"f1": 0.1}),
    ("redTeamPolicy", {"minProbes": 9}, PROMOTION, "governance.redteam_gate_unmet",
     "governanceConstraints.redTeam", {"minProbes": 1}),
    ("handoffContract", {"allowedTargets": ["water"]}, {"evidence.handoff": PACKET}, "handoff.target_not_allowed",
     "handoffConstraints.allowedTargets", ["soil"]),
    ("mutationPolicy", {"requiredCapabilityClaims": ["x"]},
     {**MUTATION, "mutationConstraints.activePolicyDigest": digest({"requiredCapabilityClaims": ["x"]})},
     "mutation.capability_claim_missing", "mutationConstraints.requiredCapabilityClaims", []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "document", "more", "raised", "member", "explicit"), TABLE, ids=[t[0] for t in TABLE])
def test_a_verified_document_supplies_what_was_not_given(
    name: str, document: dict[str, Any], more: dict[str, Any], raised: str, member: str, explicit: Any
) -> None:
    """And what was given replaces it."""
    start = changed(turn(), more)
    assert classes(start, under(name, document)) == {raised}
    assert classes(start, under(name, document, **{member: explicit})) == set()


def test_members_are_replaced_one_by_one() -> None:
    document = {"allowedTargets": ["water"], "requireReturnPath": True}
    explicit = {"handoffConstraints": {"allowedTargets": ["soil"]}, "evidence.handoff": PACKET}
    assert classes(turn(), under("handoffContract", document, **explicit)) == {"handoff.return_path_missing"}


def test_a_verified_document_has_to_be_readable() -> None:
    with pytest.raises(InvalidEvidence) as caught:
        classes(turn(), under("deferPolicy", {"deferred": ["sed", ["grep"]]}))
    assert caught.value.path == "/policyDocuments/deferPolicy/deferred/1"


def test_a_drifted_document_supplies_nothing() -> None:
    changes = {"policyDocuments.deferPolicy": {"deferred": ["grep"]}, "evidence.callSpec.deferPolicyDigest": "x"}
    assert classes(turn(), changes) == {"tool.discovery_mismatch"}


@pytest.mark.req("HARN-51")
def test_a_contract_binds_who_hands_over() -> None:
    contract = under("handoffContract", {"requireReturnPath": True})
    assert classes(turn(), contract) == set()
    assert classes(turn(), {**contract, "evidence.handoff": PACKET}) == {"handoff.return_path_missing"}
    assert classes(turn(), {**contract, **MUTATION}) == set()
    transfer = {**MUTATION, "evidence.mutation.kind": "transfer"}
    assert classes(turn(), {**contract, **transfer}) == {"handoff.return_path_missing", "handoff.target_not_allowed"}


def test_a_verified_mutation_policy_does_not_make_itself_active() -> None:
    changes = {**MUTATION, "mutationConstraints": {}}
    assert classes(turn(), changes | under("mutationPolicy", {})) == {"mutation.policy_digest_mismatch"}
