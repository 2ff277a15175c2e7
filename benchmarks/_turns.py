"""A server's turn under the policy package ``examples/policies/careful``, with four requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from manglecp.harness import CallSpec, JoinClosed, MutationReady, TurnBuilder
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.policy.package import read_package

FOLDER = Path(__file__).parents[1] / "examples" / "policies" / "careful"
PACKAGE = read_package({file.name: file.read_bytes() for file in FOLDER.iterdir() if file.suffix == ".toml"})
TOOL = "repo.read"
CALLS = [f"run-1/s{number}/1" for number in range(4)]
_BASE = "capabilities.change_morphisms"


class ServerTurn:
    """The evidence of one turn, and its transitions."""

    def __init__(self, number: int) -> None:
        self.spec = PACKAGE.call_spec(
            session_id="run://1",
            turn_index=number,
            model_ref="rules:pack@1",
            prompt_digest=digest("admission"),
            execution_pattern="chain",
            risk_tier="moderate",
        )
        self.terms = PACKAGE.terms(pinned=PACKAGE.digest, risk_tier="moderate")
        self.template = TurnBuilder.open(self.spec, self.terms)
        (pin,) = [tool for tool in self.spec["toolPolicy"]["allowedTools"] if tool["toolName"] == TOOL]
        self.requests: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] = []
        self.uses: list[dict[str, Any]] = []
        renders: list[dict[str, Any]] = []
        for index, call in enumerate(CALLS):
            result = digest(["result", call])
            self.requests.append(
                {
                    "toolCallId": call,
                    "toolName": TOOL,
                    "schemaDigest": pin["schemaDigest"],
                    "inputDigest": digest(call),
                    "schemaValid": True,
                    "actionIndex": index,
                    "ordinal": index,
                    "callGroupId": f"s{index}",
                }
            )
            self.results.append(
                {
                    "toolCallId": call,
                    "status": "ok",
                    "resultDigest": result,
                    "payloadBytes": 100,
                    "sequence": index,
                    "provenance": {"kind": "runtime_route", "ref": "toolhost/plugin"},
                }
            )
            self.uses.append(
                {
                    "toolCallId": call,
                    "disposition": "consumed",
                    "resultDigest": result,
                    "mutationInputRef": f"run://1/s{index}",
                }
            )
            renders.append(
                {
                    "toolCallId": call,
                    "operatorPayloadDigest": result,
                    "reminderRenderDigest": result,
                    "injectionPoint": "tool_response",
                    "policyDigest": PACKAGE.digests["render"],
                }
            )
        stages = [
            {
                "stage": stage,
                "guardrailId": f"server.{stage}",
                "triggered": False,
                "outcome": "pass",
                "sequence": sequence,
            }
            for sequence, stage in enumerate(("pre_flight", "input", "output"))
        ]
        self.before = {"guardrailDecisions": stages[:2]}
        self.protocol = {"stopReason": "tool_use", "continuationAllowed": True, "turnIndex": 1}
        self.shown = {
            "toolRender": renders,
            "reminderQueue": [
                {"queueId": "reminders", "reducedDigest": digest([]), "policyDigest": PACKAGE.digests["queue"]}
            ],
            "stateViews": [{"viewId": "open-work", "viewDigest": digest({}), "policyDigest": PACKAGE.digests["views"]}],
            "guardrailDecisions": stages[2:],
            "sessionRefs": ["run://1"],
            "trajectoryRefs": ["run://1/1"],
        }

    def closed(self) -> JoinClosed:
        """Return the turn after open, three requests, results, use and close."""
        turn = CallSpec.of(self.template.with_call_id(self.spec["callId"]))
        state = turn.request(self.requests[:2], self.before)
        state = state.request(self.requests[2:3]).request(self.requests[3:])
        return state.answer(self.results).use(self.uses).close(self.protocol, self.shown)

    def authorised(self, aid: str, call_id: str, input_digest: str) -> MutationReady:
        """Return the closed turn with the authorisation of one call."""
        mutation = {
            "kind": "effect",
            "action": aid,
            "inputRefs": ["run://1/s0"],
            "instructionRef": "instr1_1",
            "capabilityClaims": [_BASE, f"{_BASE}.{aid.replace('.', '_')}"],
            "calls": [{"toolCallId": call_id, "toolName": aid, "inputDigest": input_digest}],
        }
        return self.closed().authorize(mutation)

    def document(self) -> dict[str, Any]:
        """Return the turn as one document."""
        evidence = {
            "callSpec": self.spec,
            "toolRequests": self.requests,
            "toolResults": self.results,
            "toolUse": self.uses,
            "protocolState": self.protocol,
            **self.shown,
            "guardrailDecisions": self.before["guardrailDecisions"] + self.shown["guardrailDecisions"],
        }
        return {**self.terms, "evidence": evidence}
