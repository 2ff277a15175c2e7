from __future__ import annotations

from typing import Any

import pytest

from manglecp.harness.classes import CLASSES, TurnState
from manglecp.harness.judgement import judge
from manglecp.harness.readers import InvalidEvidence
from tests.harness.evidence import MUTATION, VECTORS, changed, judged, open_findings, turn


@pytest.mark.req("HARN-01", "HARN-76")
def test_join_and_mutation_follow_from_what_the_classes_block() -> None:
    for vector in VECTORS.values():
        found = judge(vector["input"])
        blocked = {CLASSES[name].blocks for name in found.failure_classes}
        assert found.join_closed is all(state is TurnState.MUTATION_READY for state in blocked)
        assert found.mutation_ready <= found.join_closed


def test_the_answer_of_the_command() -> None:
    found = judged(changed(turn(), MUTATION))
    assert found.as_json() == {
        "result": "accepted",
        "failureClasses": [],
        "joinClosed": True,
        "mutationReady": True,
        "digests": found.digests,
        "witnessId": found.witness_id,
        "findings": [],
    }


def until(*names: str) -> dict[str, Any]:
    document = turn()
    kept = {"callSpec", *names}
    document["evidence"] = {name: rows for name, rows in document["evidence"].items() if name in kept}
    return document


@pytest.mark.req("HARN-01", "HARN-50")
def test_a_turn_under_way_owes_nothing_of_later_states() -> None:
    assert not open_findings(until(), TurnState.CALL_SPEC)
    assert not open_findings(until("toolRequests"), TurnState.TOOL_REQUESTS)
    assert not open_findings(until("toolRequests", "toolResults"), TurnState.TOOL_RESULTS)
    assert not open_findings(until("toolRequests", "toolResults", "toolUse"), TurnState.TOOL_USE)


def test_branches_may_still_come() -> None:
    """Until the turn has ended there can be too many of them, and not too few."""
    under_way = until("toolRequests")
    expected = "evidence.callSpec.parallelPolicy.expectedBranches"
    assert not open_findings(changed(under_way, {expected: 2}), TurnState.TOOL_REQUESTS)
    assert not open_findings(changed(under_way, {expected: 1}), TurnState.TOOL_REQUESTS)
    assert open_findings(changed(under_way, {expected: 0}), TurnState.TOOL_REQUESTS)
    assert judged(turn(), {expected: 2}).failure_classes == ("tool.parallel_policy_violation",)


def test_a_stop_policy_waits_for_the_stop() -> None:
    stop = {"evidence.callSpec.stopPolicy": {"maxTurns": 0, "requireCheckpoint": True}}
    assert not open_findings(changed(until("toolRequests"), stop), TurnState.TOOL_USE)


@pytest.mark.parametrize(
    ("state", "changes", "names"),
    [
        (TurnState.CALL_SPEC, {"evidence.callSpec.riskTier": "x"}, ["governance.risk_tier_profile_missing"]),
        (TurnState.CALL_SPEC, {"evidence.callSpec.actionMode": "x"}, []),
        (TurnState.TOOL_REQUESTS, {"evidence.callSpec.actionMode": "x"}, ["tool.schema_invalid"]),
        (TurnState.TOOL_REQUESTS, {"toolConstraints.allowedTools": []}, ["tool.unknown_or_disallowed"]),
        (TurnState.TOOL_REQUESTS, {"evidence.toolResults": [{"toolCallId": "z"}]}, []),
    ],
)
def test_what_blocks_a_state_blocks_it_early(state: TurnState, changes: dict[str, Any], names: list[str]) -> None:
    found = open_findings(changed(until("toolRequests"), changes), state)
    assert [finding.failure.name for finding in found] == names


def test_a_turn_that_ended_says_how() -> None:
    with pytest.raises(InvalidEvidence) as caught:
        judge(until("toolRequests"))
    assert caught.value.path == "/evidence/protocolState"
