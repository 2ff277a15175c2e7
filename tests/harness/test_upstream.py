"""The 20 variations of one turn that upstream's vectors are, and the classes that it expects of them.

The rows are our own, written from a description of the vectors, so that no file of upstream is needed here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from manglecp.harness.judgement import judge

Change = Callable[[dict[str, Any], dict[str, Any]], object]


def named(name: str) -> str:
    return f"sha256:{name:0<64}"


BASE: dict[str, Any] = {
    "callSpec": {
        "callId": "call-1",
        "modelRef": "model@1",
        "actionMode": "code",
        "executionPattern": "parallel",
        "normalizerId": "normalizer@1",
        "mutationPolicyDigest": named("a"),
        "governancePolicyDigest": named("b"),
        "toolRenderProtocolDigest": named("c"),
        "reminderQueuePolicyDigest": named("d"),
        "stateViewPolicyDigest": named("e"),
        "decompositionPolicyDigest": named("f"),
    },
    "toolRequests": [{"toolCallId": "1", "toolName": "fs.read"}],
    "toolResults": [{"toolCallId": "1", "status": "ok", "resultDigest": named("1")}],
    "toolUse": [{"toolCallId": "1", "disposition": "consumed"}],
    "toolRender": [
        {
            "toolCallId": "1",
            "operatorPayloadDigest": named("2"),
            "reminderRenderDigest": named("3"),
            "injectionPoint": "tool_response",
            "policyDigest": named("c"),
        }
    ],
    "reminderQueue": [{"queueId": "q", "reducedDigest": named("4"), "policyDigest": named("d")}],
    "stateViews": [{"viewId": "v", "viewDigest": named("5"), "policyDigest": named("e")}],
    "protocolState": {"stopReason": "tool_use", "continuationAllowed": True},
}
PACKET = {"target": "worker", "requiredArtifactRefs": ["a://1"], "returnPathRef": "r://1"}
CLAIM = "profile.doctrine_inf_governance.v0"


def pinned(*, claimed: bool = True, claim: str = CLAIM, pin: bool = True, bound: str = "b") -> Change:
    provenance = {"pinned": pin, "packageRef": "p", "expectedDigest": named("b"), "boundDigest": named(bound)}
    profile = {"claimId": claim, "claimed": claimed, "policyProvenance": provenance}
    return lambda _, turn: turn.update(governanceProfile=profile)


def contract(packet: dict[str, Any], **terms: Any) -> Change:
    return lambda rows, turn: (rows.update(handoff=packet), turn.update(handoffConstraints=terms))


def only_a_stray_result(rows: dict[str, Any], _: dict[str, Any]) -> None:
    rows["toolRequests"] = []
    for kind in ("toolResults", "toolUse", "toolRender"):
        rows[kind][0]["toolCallId"] = "stray"


DECOMPOSITION = {
    "admissible": False,
    "expectedExecutionPattern": "parallel",
    "expectedPolicyDigest": named("f"),
}
OPAQUE = {"toolCallId": "1", "status": "error", "rawError": {"opaque": True}}
GHOST = {"toolCallId": "ghost", "disposition": "consumed"}
VARIATIONS: dict[str, tuple[Change, set[str]]] = {
    "a complete packet": (lambda rows, _: rows.update(handoff=PACKET), set()),
    "governance not claimed": (pinned(claimed=False), set()),
    "governance claimed": (pinned(), set()),
    "another stop reason": (
        lambda rows, _: rows["protocolState"].update(stopReason="odd"),
        {"protocol.stop_reason_unhandled"},
    ),
    "no use": (lambda rows, _: rows.update(toolUse=[]), {"tool.use_missing", "tool.join_incomplete"}),
    "no result": (
        lambda rows, _: rows.update(toolUse=[], toolResults=[]),
        {"tool.result_missing", "tool.join_incomplete"},
    ),
    "a stray result": (only_a_stray_result, {"tool.result_orphan", "tool.join_incomplete"}),
    "a use without result": (
        lambda rows, _: rows["toolUse"].append(GHOST),
        {"tool.use_without_result", "tool.join_incomplete"},
    ),
    "order": (
        lambda _, turn: turn.update(protocolConstraints={"parallelTransportOrderValid": False}),
        {"protocol.parallel_transport_order_invalid"},
    ),
    "truncation": (
        lambda _, turn: turn.update(truncationConstraints={"required": True, "valid": False}),
        {"tool.response_truncation_policy_violation"},
    ),
    "an untyped error": (lambda rows, _: rows.update(toolResults=[OPAQUE]), {"tool.schema_invalid"}),
    "another queue policy": (
        lambda rows, _: rows["reminderQueue"][0].update(policyDigest=named("9")),
        {"context.queue_policy_violation"},
    ),
    "no render": (lambda rows, _: rows.update(toolRender=[]), {"context.injection_point_missing"}),
    "decomposition": (
        lambda _, turn: turn.update(decompositionConstraints=DECOMPOSITION),
        {"coordination.decomposition_policy_violation"},
    ),
    "a missing artifact": (
        contract(PACKET, requiredArtifactRefs=["a://2"]),
        {"handoff.required_artifact_missing"},
    ),
    "no return path": (
        contract({"target": "worker", "requiredArtifactRefs": ["a://1"]}, requireReturnPath=True),
        {"handoff.return_path_missing"},
    ),
    "another target": (contract(PACKET, allowedTargets=["other"]), {"handoff.target_not_allowed"}),
    "another claim": (pinned(claim="profile.doctrine_inf_governance.v1"), {"governance.claim_id_invalid"}),
    "not pinned": (pinned(pin=False), {"governance.policy_package_unpinned"}),
    "another package": (pinned(bound="9"), {"governance.policy_package_mismatch"}),
}


@pytest.mark.req("HARN-04", "HARN-85")
@pytest.mark.parametrize("name", VARIATIONS)
def test_the_classes_are_those_of_upstream(name: str) -> None:
    change, expected = VARIATIONS[name]
    assert len(VARIATIONS) == 20
    turn: dict[str, Any] = {"evidence": copy.deepcopy(BASE)}
    change(turn["evidence"], turn)
    assert set(judge(turn).failure_classes) == expected
