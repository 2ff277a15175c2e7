"""Turns under a package: what it demands is demanded, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from manglecp.harness.judgement import judge
from manglecp.harness.policy import observe_package
from manglecp.harness.states import CallSpec
from tests.harness.policy.packages import careful, changed
from tests.harness.policy.turns import MUTATION, turn

EXAMPLES = careful().constraints()["toolConstraints"]["exampleDigests"]
Edit = Callable[[dict[str, Any], dict[str, Any]], object]


def classes(document: dict[str, Any]) -> list[str]:
    return list(judge(document).failure_classes)


def row(evidence: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = evidence[kind][0]
    return found


@pytest.mark.parametrize("role", ["orchestrator", "specialist", None])
def test_a_turn_under_every_document(role: str | None) -> None:
    document = turn(careful(), pinned=careful().digest)
    document["evidence"]["callSpec"]["orchestrationRole"] = role
    assert judge(document).result == "accepted"
    document["evidence"]["mutation"] = MUTATION
    assert judge(document).mutation_ready


def test_the_same_by_steps() -> None:
    document = turn(careful(), pinned=careful().digest)
    evidence = document.pop("evidence")
    closed = (
        CallSpec.open(evidence.pop("callSpec"), document)
        .request(evidence.pop("toolRequests"))
        .answer(evidence.pop("toolResults"))
        .use(evidence.pop("toolUse"))
        .close(evidence.pop("protocolState"), evidence)
    )
    assert closed.authorize(MUTATION).judgement.normalized["evidence"]["mutation"] == MUTATION


def shell(evidence: dict[str, Any], _: dict[str, Any]) -> None:
    """A shell that ran in another sandbox than the one of the package."""
    row(evidence, "toolRequests").update(toolName="shell.run", input={"command": "ls", "workdir": "/srv/repository"})
    row(evidence, "toolRequests").update(toolKind="shell", exampleDigest=EXAMPLES["shell.run"])
    row(evidence, "toolResults")["shell"] = {
        "workdir": "/srv/repository",
        "sandboxRef": "sandbox/container@sha256:0",
        "commandDigest": "sha256:" + "0" * 64,
    }


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda e, _: row(e, "toolRequests").update(toolName="repo.force_push"), "tool.unknown_or_disallowed"),
        (lambda e, _: row(e, "toolRequests").update(input={}), "tool.schema_invalid"),
        (lambda e, _: row(e, "toolResults").pop("provenance"), "tool.schema_invalid"),
        (lambda e, _: row(e, "toolRequests").update(toolName="issues.search", input={"query": "q"}), "tool.discovery_"),
        (lambda e, _: row(e, "toolRequests").update(exampleDigest="sha256:0"), "tool.example_digest_mismatch"),
        (lambda e, _: row(e, "toolRequests").update(callerId="cron"), "tool.caller_not_allowed"),
        (lambda e, _: row(e, "toolResults").update(payloadBytes=10**6), "tool.response_truncation_policy_violation"),
        (lambda e, _: row(e, "toolResults").pop("sequence"), "protocol.parallel_transport_order_invalid"),
        (shell, "runtime.shell_boundary_violation"),
        (lambda e, _: row(e, "toolRender").update(injectionPoint="elsewhere"), "context.injection_point_missing"),
        (lambda e, _: row(e, "toolRender").update(policyDigest="sha256:0"), "context.queue_policy_violation"),
        (lambda e, _: row(e, "reminderQueue").update(queueId="other"), "context.queue_policy_violation"),
        (lambda e, _: row(e, "stateViews").update(viewId="other"), "context.injection_point_missing"),
        (lambda e, _: e["guardrailDecisions"].pop(), "governance.guardrail_stage_missing"),
        (lambda e, _: e["callSpec"].update(executionPattern="evaluator_optimizer"), "coordination.decomposition_"),
        (lambda e, _: e["callSpec"].update(observabilityMode="dashboard"), "governance.trace_mode_violation"),
        (lambda e, _: e["callSpec"].update(riskTier="high"), "governance.risk_tier_profile_missing"),
        (lambda e, _: e["protocolState"].update(stopReason="refusal"), "protocol.stop_reason_unhandled"),
        (lambda e, _: e["protocolState"].update(turnIndex=10), "protocol.stop_reason_unhandled"),
        (lambda e, _: e.update(handoff={"target": "stranger"}), "handoff."),
        (
            lambda e, _: e.update(compaction={"invoked": True, "policyDigest": "sha256:0"}),
            "runtime.compaction_state_invalid",
        ),
        (lambda _, d: d["governanceProfile"]["policyProvenance"].update(pinned=False), "governance.policy_package_unp"),
    ],
)
def test_what_the_package_demands(edit: Edit, expected: str) -> None:
    document = turn(careful(), pinned=careful().digest)
    edit(document["evidence"], document)
    found = classes(document)
    assert found
    assert all(name.startswith(expected) for name in found), found


@pytest.mark.req("SLICE-14", "FAIL-24", "FAIL-25", "HARN-31")
def test_a_package_that_is_not_the_pinned_one() -> None:
    assert classes(turn(careful(), pinned=None)) == ["governance.policy_package_unpinned"]
    other = changed(careful(), stop={"maxTurns": 999})
    assert classes(turn(other, pinned=careful().digest)) == ["governance.policy_package_mismatch"]


@pytest.mark.req("FAIL-25", "FAIL-40", "FAIL-37", "FAIL-33", "FAIL-29", "FAIL-39", "FAIL-06")
@pytest.mark.parametrize("name", sorted(careful().documents()))
def test_a_document_that_was_changed_after_the_call(name: str) -> None:
    document = turn(careful(), pinned=careful().digest)
    document["policyDocuments"][name]["added"] = True
    assert judge(document).result == "rejected"


@pytest.mark.req("FAIL-35")
def test_a_tier_that_a_human_approves() -> None:
    assert classes(turn(careful(), pinned=careful().digest, risk_tier="high")) == [
        "governance.risk_tier_profile_missing"
    ]
    document = turn(careful(), pinned=careful().digest, risk_tier="high")
    document["governanceProfile"]["riskTier"]["approvalRef"] = "approval://1"
    assert judge(document).result == "accepted"


def test_under_observe_turns_close_and_mutate_nothing() -> None:
    document = turn(observe_package(), pinned=None)
    assert judge(document).result == "accepted"
    document["evidence"]["mutation"] = MUTATION
    found = judge(document)
    assert found.failure_classes == ("mutation.policy_digest_mismatch",)
    assert (found.join_closed, found.mutation_ready) == (True, False)
