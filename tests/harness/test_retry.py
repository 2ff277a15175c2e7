"""What follows a failed turn."""

from __future__ import annotations

import itertools

import pytest

from manglecp.harness.classes import CLASSES, Escalation, NextStep, RetryDecision, RetryKind, RetryPolicy

POLICY = RetryPolicy()
NEXT = {RetryKind.EVIDENCE: NextStep.SAME_TURN, RetryKind.TURN: NextStep.NEW_TURN, RetryKind.NEVER: NextStep.STOP}


@pytest.mark.req("HARN-06", "FAIL-01")
@pytest.mark.parametrize("name", CLASSES)
def test_every_class_has_a_rule(name: str) -> None:
    retry = CLASSES[name].retry
    first, second = POLICY.decide([name], 1), POLICY.decide([name], 2)
    assert first.next is NEXT[retry]
    assert first.decided_by == second.decided_by == name
    assert second.next is NextStep.STOP
    if retry is RetryKind.NEVER:
        assert first.escalation is second.escalation is Escalation.MARK_BLOCKED
    else:
        assert (first.escalation, first.attempts_left) == (None, 1)
        assert second.escalation is Escalation.ISSUE_DISCOVER


def test_waiting_is_a_label() -> None:
    assert POLICY.decide(["tool.result_missing"], 1).backoff == "fixed_short"
    assert POLICY.decide(["tool.schema_invalid"], 1).backoff == "none"


def test_the_strictest_decides_in_any_order() -> None:
    names = ["tool.result_missing", "tool.schema_invalid", "governance.eval_gate_unmet"]
    for order in itertools.permutations(names):
        assert POLICY.decide(order, 1).escalation is Escalation.MARK_BLOCKED
    for order in itertools.permutations(names[:2]):
        assert POLICY.decide(order, 1) == RetryDecision(NextStep.NEW_TURN, "tool.schema_invalid", 1, "none", None)


def rules(*given: tuple[str, int, str]) -> dict[str, object]:
    return {
        "rules": [
            {"ruleId": f"r{number}", "classes": [name], "maxAttempts": attempts, "escalationAction": action}
            for number, (name, attempts, action) in enumerate(given)
        ]
    }


def test_a_policy_changes_how_often_and_what_follows() -> None:
    policy = RetryPolicy(rules(("tool.result_missing", 4, "stop")))
    assert policy.decide(["tool.result_missing"], 3).attempts_left == 1
    assert policy.decide(["tool.result_missing"], 4).escalation is Escalation.STOP
    assert policy.decide(["tool.use_missing"], 2).next is NextStep.STOP


def test_a_spent_class_stops_the_others() -> None:
    policy = RetryPolicy(rules(("tool.result_missing", 1, "stop")))
    decision = policy.decide(["tool.result_missing", "tool.schema_invalid"], 1)
    assert (decision.next, decision.decided_by) == (NextStep.STOP, "tool.result_missing")


def test_no_policy_has_a_class_retried_that_is_never_retried() -> None:
    with pytest.raises(ValueError, match="is never retried"):
        RetryPolicy(rules(("handoff.target_not_allowed", 2, "stop")))


def test_what_cannot_be_decided() -> None:
    with pytest.raises(ValueError, match="no failure class"):
        POLICY.decide([], 1)
    with pytest.raises(ValueError, match="counted from 1"):
        POLICY.decide(["tool.result_missing"], 0)
