"""How work may be split, and how it is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.harness.obstacles import WorkItem, descend, handoff_ref, obstacles_to_decompose, obstacles_to_hand_over

POLICY = {"allowedPatterns": ["single", "parallel", "orchestrator_workers"], "maxFanOut": 3}


def reasons(pattern: str, mode: str, fan_out: int, policy: Any = POLICY, **more: Any) -> list[str]:
    found = obstacles_to_decompose(policy, pattern=pattern, mode=mode, fan_out=fan_out, **more)
    assert {one.failure.name for one in found} <= {"coordination.decomposition_policy_violation"}
    return [one.reason for one in found]


@pytest.mark.req("HARN-30", "FAIL-23")
def test_what_the_policy_admits() -> None:
    assert reasons("parallel", "split", 3) == []
    assert reasons("single", "loop", 1) == []
    assert reasons("swarm", "loop", 1) == ["the pattern swarm is unknown"]
    assert reasons("chain", "loop", 1) == ["the pattern chain is not allowed"]
    assert reasons("parallel", "loop", 2) == ["a loop has one worker, not 2"]
    assert reasons("single", "split", 2) == ["single work is not split"]
    assert reasons("parallel", "split", 4) == ["a fan-out of 4 is over 3"]
    assert reasons("route", "split", 9, policy={}) == []


@pytest.mark.req("SLICE-08")
def test_autonomous_patterns_need_a_measured_trigger() -> None:
    strict = {**POLICY, "requireEscalationTrigger": True}
    assert reasons("orchestrator_workers", "split", 2) == []
    assert reasons("orchestrator_workers", "split", 2, strict) == ["orchestrator_workers needs a measured trigger"]
    assert reasons("orchestrator_workers", "split", 2, strict, escalation_trigger_ref="measure://backlog") == []
    assert reasons("parallel", "split", 2, strict) == []


@pytest.mark.req("SLICE-12", "HARN-05", "HARN-08")
def test_sessions_hand_over_what_the_next_one_needs() -> None:
    items = [
        WorkItem("survey", 3, needs=("artifact://map",), makes=("artifact://survey",)),
        WorkItem("plan", 2, needs=("artifact://survey",), makes=("artifact://plan",)),
        WorkItem("plant", 4, needs=("artifact://plan", "artifact://map")),
    ]
    first, second = descend(items, max_turns=5, target="specialist.soil", return_path_ref="return://main")
    assert [item.ref for item in first.items] == ["survey", "plan"]
    assert (first.turns, first.handoff, first.continuity) == (5, None, {"mode": "fresh"})
    assert second.handoff is not None
    assert second.handoff["requiredArtifactRefs"] == ["artifact://map", "artifact://plan"]
    assert second.handoff["intent"] == "plant"
    assert second.continuity == {
        "mode": "descent",
        "handoffRef": handoff_ref(second.handoff),
        "artifactRefs": ["artifact://map", "artifact://plan"],
    }
    contract = {"allowedTargets": ["specialist.soil"], "requireReturnPath": True, "requiredPacketFields": ["intent"]}
    assert obstacles_to_hand_over(second.handoff, contract, role=None, lookup=lambda _: None) == ()


def test_work_that_no_session_can_do() -> None:
    with pytest.raises(ValueError, match="survey takes 6 turns, and a session has 1 to 5"):
        descend([WorkItem("survey", 6)], max_turns=5, target="a")
    with pytest.raises(ValueError, match="takes 0 turns"):
        descend([WorkItem("survey", 0)], max_turns=5, target="a")
    with pytest.raises(ValueError, match="plan needs artifact://survey before it is made"):
        descend(
            [WorkItem("plan", 1, needs=("artifact://survey",)), WorkItem("survey", 1, makes=("artifact://survey",))],
            max_turns=5,
            target="a",
        )


@given(st.lists(st.integers(1, 7)), st.integers(7, 20))
def test_sessions_are_bounded_and_lose_nothing(turns: list[int], most: int) -> None:
    items = [WorkItem(f"w{number}", count) for number, count in enumerate(turns)]
    sessions = descend(items, max_turns=most, target="a")
    assert [item for session in sessions for item in session.items] == items
    assert all(1 <= session.turns <= most for session in sessions)
    assert [session.ordinal for session in sessions] == list(range(len(sessions)))
    assert all((session.handoff is None) == (session.ordinal == 0) for session in sessions)
    for before, after in pairwise(sessions):
        assert before.turns + after.items[0].turns > most
