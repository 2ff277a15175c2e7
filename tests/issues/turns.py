"""Turns that carry one mutation of issue memory, and nothing that is not needed for that."""

from __future__ import annotations

import itertools
from typing import Any

from manglecp.harness import MutationReady, replay_turn
from manglecp.harness.canonical_v1 import digest_v1 as digest

__all__ = ["POLICY", "ready", "ready_for", "turn"]

POLICY = digest("the mutation policy")
_numbers = itertools.count(1)


def turn(action: str, *refs: str, call_id: str | None = None) -> dict[str, Any]:
    """The evidence of an agent that looked something up and wants to carry out ``action`` because of it.

    The first of ``refs`` is what the lookup was consumed as; an agent that saw more has more rows.
    """
    call_id = f"turn-{next(_numbers):06}" if call_id is None else call_id
    result = digest({"found": call_id})
    names = [f"g{number}" for number in range(1, len(refs) + 1)]
    return {
        "evidence": {
            "callSpec": {
                "callId": call_id,
                "modelRef": "atlas-coder@2026-02-11",
                "actionMode": "json",
                "executionPattern": "single",
                "normalizerId": "norm/json-sorted@2",
                "mutationPolicyDigest": POLICY,
                "governancePolicyDigest": digest("governance"),
                "toolRenderProtocolDigest": digest("render"),
                "reminderQueuePolicyDigest": digest("queue"),
                "stateViewPolicyDigest": digest("view"),
                "decompositionPolicyDigest": digest("decomposition"),
            },
            "toolRequests": [{"toolCallId": name, "toolName": "issue.show"} for name in names],
            "toolResults": [{"toolCallId": name, "status": "ok", "resultDigest": result} for name in names],
            "toolUse": [
                {"toolCallId": name, "disposition": "consumed", "resultDigest": result, "mutationInputRef": ref}
                for name, ref in zip(names, refs, strict=True)
            ],
            "protocolState": {"stopReason": "end_turn", "continuationAllowed": False},
            "toolRender": [
                {
                    "toolCallId": name,
                    "operatorPayloadDigest": result,
                    "reminderRenderDigest": result,
                    "injectionPoint": "tool_response",
                    "policyDigest": digest("render"),
                }
                for name in names
            ],
            "reminderQueue": [
                {"queueId": "nudges", "reducedDigest": digest("nothing"), "policyDigest": digest("queue")}
            ],
            "stateViews": [{"viewId": "work", "viewDigest": digest("work"), "policyDigest": digest("view")}],
            "mutation": {
                "kind": "dependency" if action.startswith("dep.") else "issue",
                "action": action,
                "instructionRef": "instructions/tidy-up.json",
                "inputRefs": list(refs),
                "capabilityClaims": [
                    "capabilities.change_morphisms",
                    f"capabilities.change_morphisms.{action.replace('.', '_')}",
                ],
            },
            "sessionRefs": ["session://orchard/12"],
        },
        "mutationConstraints": {"activePolicyDigest": POLICY},
    }


def ready(action: str, *refs: str) -> MutationReady:
    """A right to ``action``, fresh."""
    return replay_turn(turn(action, *refs))


def ready_for(action: str, issue: str) -> MutationReady:
    return ready(action, f"issue://{issue}")
