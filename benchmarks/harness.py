"""Judge turns: from a parsed document to the verdict with all its digests.

Budget: 3,000 verdicts on a five-call turn per second on one core. The other rows measure the parts: policies and
documents, arguments against schemas, a turn with many findings, and the verification of a witness.

A server advances its turns state by state. Budget: 1.2 ms for a turn of four requests under a policy package with all
kinds of documents, including its witness.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _table import best, print_table
from _turns import ServerTurn

from manglecp.harness import judge, verify, witness_of
from manglecp.harness.canonical_v1 import digest_v1 as digest

CALLS = [f"toolu_01A09q90qw90lq91781{i}" for i in range(5)]
TURNS = 1_000


def turn() -> dict[str, Any]:
    """Return a turn of five calls with results, uses and rendering."""
    call_spec = {
        "callId": "turn-0001",
        "modelRef": "model@2026-02-11",
        "actionMode": "json",
        "executionPattern": "single",
        "normalizerId": "norm@2",
        **{
            name: digest(name)
            for name in (
                "mutationPolicyDigest",
                "governancePolicyDigest",
                "toolRenderProtocolDigest",
                "reminderQueuePolicyDigest",
                "stateViewPolicyDigest",
                "decompositionPolicyDigest",
            )
        },
    }
    return {
        "evidence": {
            "callSpec": call_spec,
            "toolRequests": [{"toolCallId": call, "toolName": "repo.grep"} for call in CALLS],
            "toolResults": [{"toolCallId": call, "status": "ok", "resultDigest": digest(call)} for call in CALLS],
            "toolUse": [
                {"toolCallId": call, "disposition": "consumed", "resultDigest": digest(call)} for call in CALLS
            ],
            "toolRender": [
                {
                    "toolCallId": call,
                    "operatorPayloadDigest": digest([call]),
                    "reminderRenderDigest": digest([call, call]),
                    "injectionPoint": "tool_response",
                    "policyDigest": call_spec["toolRenderProtocolDigest"],
                }
                for call in CALLS
            ],
            "reminderQueue": [
                {
                    "queueId": "system",
                    "reducedDigest": digest("reduced"),
                    "policyDigest": call_spec["reminderQueuePolicyDigest"],
                }
            ],
            "stateViews": [
                {
                    "viewId": "messages",
                    "viewDigest": digest("messages"),
                    "policyDigest": call_spec["stateViewPolicyDigest"],
                }
            ],
            "protocolState": {"stopReason": "tool_use", "continuationAllowed": True},
        }
    }


def governed() -> dict[str, Any]:
    """Return the turn under policies: allow-list, catalogue, stages, transport, truncation, a mutation with claims."""
    document = turn()
    evidence = document["evidence"]
    call_spec = evidence["callSpec"]
    catalog = {"tools": [{"toolName": name, "schemaDigest": digest(name)} for name in ("repo.grep", "repo.patch")]}
    stages = {"requiredStages": ["pre_flight", "input", "output"]}
    call_spec |= {
        "toolCatalogDigest": digest(catalog),
        "guardrailStagePolicyDigest": digest(stages),
        "toolPolicy": {"allowedTools": [{"toolName": "repo.grep"}]},
        "toolTransportPolicy": {"parallelToolCalls": True, "ordering": "strict"},
        "toolResponseTruncationPolicy": {"maxBytes": 8192, "marker": "[...]", "strategy": "middle"},
        "stopPolicy": {"maxTurns": 50},
    }
    for index, call in enumerate(CALLS):
        evidence["toolRequests"][index] |= {"callGroupId": "g", "ordinal": index, "toolKind": "function"}
        evidence["toolResults"][index] |= {"sequence": index, "payloadBytes": 4000}
        evidence["toolUse"][index]["mutationInputRef"] = f"note://{call}"
    evidence |= {
        "guardrailDecisions": [
            {"stage": stage, "sequence": index, "outcome": "pass"}
            for index, stage in enumerate(stages["requiredStages"])
        ],
        "mutation": {
            "kind": "issue",
            "action": "issue.update",
            "inputRefs": [f"note://{call}" for call in CALLS],
            "instructionRef": "instruction://1",
            "capabilityClaims": ["capabilities.change_morphisms", "capabilities.change_morphisms.issue_update"],
        },
        "sessionRefs": ["session://1"],
    }
    return document | {
        "policyDocuments": {"toolCatalog": catalog, "guardrailStagePolicy": stages},
        "mutationConstraints": {"activePolicyDigest": call_spec["mutationPolicyDigest"]},
    }


def with_arguments() -> dict[str, Any]:
    """Return the turn with arguments that are validated against the schema of their tool."""
    document = governed()
    schema = {
        "type": "object",
        "required": ["pattern"],
        "properties": {"pattern": {"type": "string"}, "path": {"type": "string"}},
        "additionalProperties": False,
    }
    document["evidence"]["callSpec"]["toolPolicy"] = {
        "allowedTools": [{"toolName": "repo.grep", "inputSchema": schema}]
    }
    for row in document["evidence"]["toolRequests"]:
        row["input"] = {"pattern": "fn main", "path": "src/"}
    return document


def wrong() -> dict[str, Any]:
    """Return the turn without uses, rendering and permissions, and with all sizes over their limits."""
    document = governed()
    document["evidence"] |= {"toolUse": [], "toolRender": []}
    for row in document["evidence"]["toolResults"]:
        row["payloadBytes"] = 9000
    return document | {"toolConstraints": {"allowedTools": []}}


def judged(document: dict[str, Any]) -> None:
    """Compute the verdict with its digests."""
    _ = judge(document).witness_id


def server_turn(turn: ServerTurn) -> None:
    """Open a turn, add three requests, results and uses, close it, and compute its witness."""
    witness_of(turn.closed().judgement)


def right_to_a_call(turn: ServerTurn) -> None:
    """Close the turn and authorise one call, without the witness."""
    turn.authorised("repo.apply_patch", "run-1/s9/1", digest("patch"))


def main() -> None:
    witness = witness_of(judge(governed()))
    measured: list[tuple[str, str, Callable[[Any], object], Any]] = [
        ("five calls", "3,000", judged, turn()),
        ("five calls under policies, ready to mutate", "3,000", judged, governed()),
        ("the same with arguments against a schema", "", judged, with_arguments()),
        ("the same with 25 findings", "", judged, wrong()),
        ("verification of its witness", "", verify, witness),
        ("four calls under a whole package, judged once", "", judged, ServerTurn(1).document()),
        ("the same, state by state", "833", server_turn, ServerTurn(1)),
        ("the same with the authorisation of a call", "", right_to_a_call, ServerTurn(1)),
    ]
    rows = []
    for name, budget, check, document in measured:

        def run(check: Callable[[Any], object] = check, document: Any = document) -> None:
            for _ in range(TURNS):
                check(document)

        seconds = best(run) / TURNS
        rows.append((name, f"{seconds * 1e6:.0f}", f"{1 / seconds:,.0f}", budget))
    print_table(("measurement", "µs", "per second", "budget"), rows)


if __name__ == "__main__":
    main()
