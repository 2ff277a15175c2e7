"""Turns to judge: the vectors, a turn that is accepted, and ways to change it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from manglecp.harness.classes import Finding, TurnState
from manglecp.harness.judgement import Judgement, find_blocking, judge
from manglecp.harness.turn import read_turn

VECTORS: Final = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(Path("tests/conformance/harness").glob("*.json"))
}
ABSENT: Final = object()
"""As the value of a change: the member is taken away."""

ROWS: Final = {
    "tool.schema_invalid": "FAIL-02",
    "tool.unknown_or_disallowed": "FAIL-03",
    "tool.discovery_mismatch": "FAIL-04",
    "tool.discovery_unresolved": "FAIL-05",
    "tool.example_digest_mismatch": "FAIL-06",
    "tool.caller_not_allowed": "FAIL-07",
    "tool.result_missing": "FAIL-08",
    "tool.result_orphan": "FAIL-09",
    "tool.join_incomplete": "FAIL-10",
    "tool.use_missing": "FAIL-11",
    "tool.use_unknown_result": "FAIL-12",
    "tool.use_without_result": "FAIL-13",
    "tool.parallel_policy_violation": "FAIL-14",
    "tool.programmatic_caller_edge_invalid": "FAIL-15",
    "tool.response_truncation_policy_violation": "FAIL-16",
    "protocol.stop_reason_unhandled": "FAIL-17",
    "protocol.parallel_transport_order_invalid": "FAIL-18",
    "runtime.shell_boundary_violation": "FAIL-19",
    "runtime.compaction_state_invalid": "FAIL-20",
    "context.queue_policy_violation": "FAIL-21",
    "context.injection_point_missing": "FAIL-22",
    "coordination.decomposition_policy_violation": "FAIL-23",
    "governance.policy_package_unpinned": "FAIL-24",
    "governance.policy_package_mismatch": "FAIL-25",
    "governance.guardrail_stage_missing": "FAIL-26",
    "governance.guardrail_stage_order_invalid": "FAIL-27",
    "governance.eval_gate_unmet": "FAIL-28",
    "governance.eval_lineage_missing": "FAIL-29",
    "governance.self_evolution_retry_missing": "FAIL-30",
    "governance.self_evolution_escalation_missing": "FAIL-31",
    "governance.self_evolution_rollback_missing": "FAIL-32",
    "governance.redteam_gate_unmet": "FAIL-33",
    "governance.trace_mode_violation": "FAIL-34",
    "governance.risk_tier_profile_missing": "FAIL-35",
    "handoff.required_artifact_missing": "FAIL-36",
    "handoff.target_not_allowed": "FAIL-37",
    "handoff.return_path_missing": "FAIL-38",
    "context.scope_violation": "FAIL-39",
    "mutation.policy_digest_mismatch": "FAIL-40",
    "mutation.capability_claim_missing": "FAIL-41",
    "mutation.use_evidence_missing": "FAIL-42",
    "governance.claim_id_invalid": "FAIL-43",
}
"""The row of the register of each class."""

_CALL_SPEC: Final = {
    "callId": "turn-1",
    "modelRef": "model@1",
    "actionMode": "json",
    "executionPattern": "single",
    "normalizerId": "norm@1",
    "mutationPolicyDigest": "sha256:mutation",
    "governancePolicyDigest": "sha256:governance",
    "toolRenderProtocolDigest": "sha256:render",
    "reminderQueuePolicyDigest": "sha256:queue",
    "stateViewPolicyDigest": "sha256:view",
    "decompositionPolicyDigest": "sha256:decomposition",
}


def turn(*calls: str, **evidence: Any) -> dict[str, Any]:
    """A turn that is accepted: every call answered, observed, rendered; the loop goes on."""
    names = calls or ("a",)
    return {
        "evidence": {
            "callSpec": dict(_CALL_SPEC),
            "toolRequests": [{"toolCallId": name, "toolName": "grep"} for name in names],
            "toolResults": [
                {"toolCallId": name, "status": "ok", "resultDigest": f"sha256:result-{name}"} for name in names
            ],
            "toolUse": [
                {"toolCallId": name, "disposition": "consumed", "resultDigest": f"sha256:result-{name}"}
                for name in names
            ],
            "toolRender": [
                {
                    "toolCallId": name,
                    "operatorPayloadDigest": "sha256:operator",
                    "reminderRenderDigest": "sha256:reminder",
                    "injectionPoint": "tool_response",
                    "policyDigest": "sha256:render",
                }
                for name in names
            ],
            "reminderQueue": [{"queueId": "q", "reducedDigest": "sha256:reduced", "policyDigest": "sha256:queue"}],
            "stateViews": [{"viewId": "v", "viewDigest": "sha256:state", "policyDigest": "sha256:view"}],
            "protocolState": {"stopReason": "tool_use", "continuationAllowed": True},
            **evidence,
        }
    }


MUTATION: Final = {
    "evidence.toolUse.0.summaryRef": "note://a",
    "evidence.mutation": {
        "kind": "issue",
        "action": "issue.update",
        "inputRefs": ["note://a"],
        "instructionRef": "instruction://1",
        "capabilityClaims": ["capabilities.change_morphisms", "capabilities.change_morphisms.issue_update"],
    },
    "evidence.sessionRefs": ["session://1"],
    "mutationConstraints": {"activePolicyDigest": "sha256:mutation"},
}
"""Changes that make a turn ready to mutate."""

PROFILE: Final = {
    "claimId": "profile.doctrine_inf_governance.v0",
    "claimed": True,
    "policyProvenance": {"pinned": True, "packageRef": "p@1", "expectedDigest": "sha256:p", "boundDigest": "sha256:p"},
}
"""A governance profile that claims nothing but its package."""


def changed(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with other values at dotted paths. Objects on the way are made; an index one past the end appends."""
    result: dict[str, Any] = copy.deepcopy(dict(document))
    for path, value in changes.items():
        *way, last = path.split(".")
        place: Any = result
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
        if isinstance(place, list):
            index = int(last)
            place[index : index + 1] = [] if value is ABSENT else [copy.deepcopy(value)]
        elif value is ABSENT:
            place.pop(last, None)
        else:
            place[last] = copy.deepcopy(value)
    return result


def classes(document: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> set[str]:
    return set(judged(document, changes).failure_classes)


def judged(document: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Judgement:
    return judge(changed(document, changes or {}))


def open_findings(document: Mapping[str, Any], upto: TurnState) -> Sequence[Finding]:
    """Return the findings that block a state of an open turn, read as a whole."""
    return find_blocking(read_turn(document, under_way=True), upto)
