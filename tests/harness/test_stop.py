"""When a loop has to stop."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.harness.obstacles import (
    checkpoint_due,
    continuation,
    obstacles_to_continue,
    obstacles_to_start,
    protocol_state,
)

STOP = {"maxTurns": 6, "maxIterations": 3, "requireCheckpoint": True, "checkpointEveryTurns": 2}
PROTOCOL = {
    "handledStopReasons": ["tool_use", "pause_turn", "end_turn"],
    "continuation": {"pause_turn": "resume", "end_turn": "stop"},
}


def reasons(**state: Any) -> list[str]:
    state = {"stop_reason": "tool_use", "turn_index": 1, **state}
    found = obstacles_to_continue(STOP, PROTOCOL, **state)
    assert {one.failure.name for one in found} <= {"protocol.stop_reason_unhandled"}
    return [one.reason for one in found]


@pytest.mark.req("SLICE-07", "HARN-42")
def test_a_turn_past_the_budget_does_not_start() -> None:
    assert obstacles_to_start(STOP, turn_index=6, iteration=3) == ()
    over = obstacles_to_start(STOP, turn_index=7, iteration=4)
    assert [str(one) for one in over] == [
        "protocol.stop_reason_unhandled: turn 7 is past the 6 of the stop policy",
        "protocol.stop_reason_unhandled: iteration 4 is past the 3 of the stop policy",
    ]
    assert obstacles_to_start({}, turn_index=10**6, iteration=10**6) == ()


@pytest.mark.req("SLICE-07", "HARN-42", "FAIL-17")
def test_what_ends_a_loop() -> None:
    assert reasons() == []
    assert reasons(turn_index=5, iteration=3) == []
    assert reasons(turn_index=6, checkpoint_ref="c") == ["turn 6 is the last one"]
    assert reasons(turn_index=2) == ["a checkpoint is due after turn 2"]
    assert reasons(turn_index=2, checkpoint_ref="checkpoint://2") == []
    assert reasons(iteration=4) == ["iteration 4 is past the 3 of the stop policy"]
    assert reasons(stop_reason="End_Turn") == ["the stop reason end_turn permits only to stop"]
    assert reasons(stop_reason="refusal") == ["the stop reason refusal is not handled"]


def test_when_a_checkpoint_is_due() -> None:
    assert [turn for turn in range(1, 7) if checkpoint_due(STOP, turn)] == [2, 4, 6]
    assert checkpoint_due({"requireCheckpoint": True}, 1)
    assert not checkpoint_due({"checkpointEveryTurns": 1}, 1)


@pytest.mark.req("HARN-43")
def test_what_a_stop_reason_permits() -> None:
    assert continuation(PROTOCOL, " PAUSE_TURN ") == "resume"
    assert continuation(PROTOCOL, "tool_use") == "continue"
    assert continuation(PROTOCOL, "max_tokens") is None
    assert continuation({}, "max_tokens") == "continue"


def test_the_row_goes_on_exactly_if_it_may() -> None:
    assert protocol_state(STOP, PROTOCOL, stop_reason="tool_use", turn_index=2, iteration=1) == {
        "stopReason": "tool_use",
        "continuationAllowed": False,
        "turnIndex": 2,
        "iteration": 1,
    }
    assert protocol_state(STOP, PROTOCOL, stop_reason="tool_use", turn_index=2, checkpoint_ref="c") == {
        "stopReason": "tool_use",
        "continuationAllowed": True,
        "turnIndex": 2,
        "checkpointRef": "c",
    }
