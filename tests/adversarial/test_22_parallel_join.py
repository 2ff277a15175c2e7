"""Case 22: parallel branches that do not come together yield the exact class, and never a right."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.harness import InvalidEvidence, MutationReady, TurnBlocked, replay_turn
from tests.harness.evidence import ABSENT, MUTATION, changed, classes, turn

PARALLEL: dict[str, Any] = {
    **MUTATION,
    "evidence.callSpec.executionPattern": "parallel",
    "evidence.callSpec.toolTransportPolicy": {"parallelToolCalls": True, "ordering": "strict"},
    **{
        f"evidence.toolRequests.{i}.{member}": value
        for i in range(3)
        for member, value in (("branchId", f"b{i}"), ("ordinal", i))
    },
    **{f"evidence.toolRequests.{i}.callGroupId": "g" for i in range(3)},
    **{f"evidence.toolResults.{i}.sequence": i for i in range(3)},
    **{f"evidence.toolUse.{i}.summaryRef": "note://a" for i in range(3)},
    "evidence.branchJoins": [{"branchId": f"b{i}", "joinClosed": True} for i in range(3)],
}
INCOMPLETE = "tool.join_incomplete"
DENIED = {"toolCallId": "b", "status": "denied", "sequence": 1}
TYPED = {"errorCode": "E", "retryable": False, "errorMessage": "no"}


def joined() -> dict[str, Any]:
    return changed(turn("a", "b", "c"), PARALLEL)


def test_three_branches_that_come_together_yield_a_right() -> None:
    assert classes(joined()) == set()
    assert isinstance(replay_turn(joined()), MutationReady)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"evidence.toolResults.2": ABSENT},
            {"tool.result_missing", "tool.use_without_result", INCOMPLETE},
        ),
        (
            {"evidence.toolResults.2": ABSENT, "evidence.toolUse.2": ABSENT},
            {"tool.result_missing", INCOMPLETE},
        ),
        ({"evidence.toolUse.2": ABSENT}, {"tool.use_missing", INCOMPLETE}),
        (
            {"evidence.toolRequests.2": ABSENT, "evidence.branchJoins.2": ABSENT},
            {"tool.result_orphan", INCOMPLETE},
        ),
        (
            {"evidence.toolResults.0.sequence": 1, "evidence.toolResults.1.sequence": 0},
            {"protocol.parallel_transport_order_invalid"},
        ),
        ({"evidence.toolResults.0.sequence": ABSENT}, {"protocol.parallel_transport_order_invalid"}),
        ({"evidence.branchJoins.1.joinClosed": False}, {INCOMPLETE}),
        ({"evidence.toolResults.1": {"toolCallId": "b", "status": "error", "sequence": 1}}, {"tool.schema_invalid"}),
        ({"evidence.toolResults.1": DENIED}, {"tool.schema_invalid"}),
        ({"evidence.callSpec.parallelPolicy": "forbid"}, {"tool.parallel_policy_violation"}),
        ({"evidence.callSpec.parallelPolicy": {"allowed": True, "maxBranches": 2}}, {"tool.parallel_policy_violation"}),
    ],
)
def test_the_exact_class_and_no_right(changes: dict[str, Any], expected: set[str]) -> None:
    cited = {f"evidence.toolUse.{i}.resultDigest": ABSENT for i in range(3) if f"evidence.toolUse.{i}" not in changes}
    document = changed(changed(joined(), cited), changes)
    assert expected <= classes(document)
    assert all(name in expected or name.startswith("mutation.") for name in classes(document))
    with pytest.raises(TurnBlocked):
        replay_turn(document)


def test_a_branch_that_failed_properly_is_a_result() -> None:
    document = changed(
        joined(), {"evidence.toolResults.1": {**DENIED, **TYPED}, "evidence.toolUse.1.resultDigest": ABSENT}
    )
    assert classes(document) == set()


def test_a_second_different_answer_is_no_evidence() -> None:
    document = changed(joined(), {"evidence.toolResults.3": {"toolCallId": "a", "status": "ok", "resultDigest": "x"}})
    with pytest.raises(InvalidEvidence):
        replay_turn(document)
