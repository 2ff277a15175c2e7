from __future__ import annotations

from manglecp.harness.policy import observe_package, package_of
from tests.adapters.checking import exchanges, lines, log, message, tool_result, tool_use, turns, verdicts

LOG = log("anthropic-exchanges.jsonl")


def test_without_a_policy_turns_observe() -> None:
    package = observe_package()
    document = turns(LOG)[0]
    spec = document["evidence"]["callSpec"]
    assert spec["governancePolicyDigest"] == package.digest
    assert spec["mutationPolicyDigest"] == package.digests["mutation"]
    assert document == turns(LOG, policy=package)[0]


def test_fields_of_a_mapping_replace_those_of_observe() -> None:
    document = turns(LOG, policy={"stateViewPolicyDigest": "sha256:mine", "riskTier": "low"})[0]
    assert document["evidence"]["callSpec"]["stateViewPolicyDigest"] == "sha256:mine"
    assert document["evidence"]["stateViews"][0]["policyDigest"] == "sha256:mine"
    assert verdicts(LOG, policy={"stateViewPolicyDigest": "sha256:mine"}) == [()] * 4


def test_constraints_of_a_mapping() -> None:
    policy = {"toolConstraints": {"allowedTools": ["search_logs"]}}
    assert verdicts(LOG, policy=policy)[0] == ("tool.unknown_or_disallowed",)


def test_a_package_pins_what_the_log_would_say() -> None:
    base = observe_package()
    tools = {"catalogId": "mine", "tools": [{"toolName": "read", "inputSchema": {"type": "object"}}]}
    package = package_of({"name": "mine", "version": "1"}, {**base.contents, "tools": tools})
    good = exchanges(message(tool_use("toolu_1")), [tool_result("toolu_1")])
    offered = [{"name": "read", "input_schema": {"type": "object"}}]
    changed = [{"name": "read", "input_schema": {"type": "object", "required": ["path"]}}]
    assert verdicts(lines(good), policy=package) == [()]
    assert verdicts(
        lines(exchanges(message(tool_use("toolu_1")), [tool_result("toolu_1")], tools=offered)), policy=package
    ) == [()]
    drifted = exchanges(message(tool_use("toolu_1")), [tool_result("toolu_1")], tools=changed)
    assert verdicts(lines(drifted), policy=package) == [("tool.schema_invalid",)]
