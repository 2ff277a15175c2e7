"""A turn that was made under a package."""

from __future__ import annotations

from typing import Any

from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.policy import PolicyPackage


def call_spec(package: PolicyPackage, **more: Any) -> dict[str, Any]:
    return package.call_spec(
        session_id="s1", turn_index=1, model_ref="atlas@2026-02-11", prompt_digest=digest("prompt"), **more
    )


def turn(package: PolicyPackage, *, pinned: str | None, **choices: Any) -> dict[str, Any]:
    """One call that was answered, rendered and consumed, and every guardrail decided."""
    result = digest("result")
    evidence = {
        "callSpec": call_spec(package, **choices),
        "toolRequests": [
            {
                "toolCallId": "c1",
                "toolName": "repo.grep",
                "input": {"pattern": "x"},
                "actionIndex": 0,
                "ordinal": 0,
                "exampleDigest": digest([{"pattern": "def read_package", "path": "src"}]),
            }
        ],
        "toolResults": [
            {
                "toolCallId": "c1",
                "status": "ok",
                "resultDigest": result,
                "sequence": 0,
                "provenance": {"kind": "api", "ref": "api://repo.grep"},
            }
        ],
        "toolUse": [
            {"toolCallId": "c1", "useDisposition": "consumed", "resultDigest": result, "mutationInputRef": "note://c1"}
        ],
        "toolRender": [
            {
                "toolCallId": "c1",
                "operatorPayloadDigest": result,
                "reminderRenderDigest": result,
                "injectionPoint": "tool_response",
                "policyDigest": package.digests["render"],
            }
        ],
        "reminderQueue": [
            {"queueId": "reminders", "reducedDigest": digest([]), "policyDigest": package.digests["queue"]}
        ],
        "stateViews": [
            {"viewId": "open-work", "viewDigest": digest([]), "policyDigest": package.digests["views"]},
        ],
        "guardrailDecisions": [
            {"stage": stage, "guardrailId": "g", "triggered": False, "outcome": "pass", "sequence": sequence}
            for sequence, stage in enumerate(("pre_flight", "input", "output"))
        ],
        "protocolState": {"stopReason": "tool_use", "continuationAllowed": True, "turnIndex": 1},
        "sessionRefs": ["session://s1"],
    }
    return {"evidence": evidence, **package.terms(pinned=pinned, risk_tier=choices.get("risk_tier"))}


MUTATION = {
    "kind": "issue",
    "action": "issue.update",
    "instructionRef": "instructions/1.json",
    "inputRefs": ["note://c1"],
    "capabilityClaims": ["capabilities.change_morphisms", "capabilities.change_morphisms.issue_update"],
}
