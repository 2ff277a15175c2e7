from __future__ import annotations

from typing import Any

import pytest

from manglecp.runner import (
    BrokenLog,
    Budget,
    ControlMode,
    EndReason,
    RunHeader,
    RunLog,
    RunRequest,
    StepStatus,
    verify,
)
from tests.runner.playing import COUNT, FAIL, NOOP, ROLL, Played, World, _rolled, play, played_again, saying

PATCH = '<PICK><SID0001><INP>{"z":{"b":1,"a":1.5e300},"_queue":1}</INP><END>'
RUNS = {
    "goal": lambda: play(None, COUNT, ROLL, PATCH, COUNT, goal_done=lambda state: state[0].content_json == "3"),
    "noop": lambda: play(None, ROLL, ROLL, "junk", NOOP, key=b"k"),
    "ask": lambda: play(None, "<ASK_SUP><END>"),
    "error": lambda: play(None, COUNT, FAIL),
    "invalid": lambda: play(None, FAIL, execute=World(status=StepStatus.INVALID_PICK)),
    "breaker": lambda: play(None, FAIL, execute=World(status=StepStatus.BREAKER_TRIP)),
    "steps": lambda: play(None, COUNT, budget=Budget(steps=5)),
    "policy": lambda: play(
        RunRequest("g", {}, control_mode=ControlMode.POLICY_ONLY), policy=saying(ROLL, "junk", PATCH, NOOP)
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_log_replays_to_the_same_result(name: str) -> None:
    played = RUNS[name]()
    rolled = len(_rolled)
    replayed = played_again(played.lines)
    assert replayed.divergence is None
    assert replayed.result == played.result
    assert len(_rolled) == rolled  # no action was started


def test_a_tampered_log_is_not_played() -> None:
    lines = play(None, COUNT, NOOP).lines
    with pytest.raises(BrokenLog):
        played_again(lines[:-1])
    with pytest.raises(BrokenLog):
        played_again(lines, key=b"k")


def rewritten(played: Played, tmp_path: Any, event: str, **members: Any) -> Any:
    """The log with other members in a record, and a chain that fits: what a forger without a key can do."""
    verified = verify(played.lines)
    file = tmp_path / "forged.jsonl"
    with RunLog.create(file, RunHeader(verified.header.run_id, verified.header.request_id)) as log:
        for record in verified.records:
            payload = {**record.payload, **members} if record.event == event else dict(record.payload)
            payload.pop("records", None)
            log.write(record.event, record.step, payload)
    return file


@pytest.mark.parametrize(
    ("event", "members"),
    [
        ("tool_ok", {"state_digest": "0" * 64}),
        ("tool_ok", {"tx_patch": []}),
        ("tool_ok", {"tx_patch": None}),
        ("menu_built", {"menu_digest": "0" * 64}),
        ("selector_chosen", {"sid": "SID0003"}),
        ("selector_fallback_raw", {"kind": "PERHAPS"}),
        ("selector_fallback_raw", {"kind": "NOOP", "sid": None}),
        ("run_end", {"reason": EndReason.GOAL_DONE.value}),
        ("run_start", {"inputs": {"q": 2}}),
    ],
)
def test_a_forged_log_diverges(tmp_path: Any, event: str, members: dict[str, Any]) -> None:
    replayed = played_again(rewritten(play(None, ROLL, COUNT, NOOP), tmp_path, event, **members))
    assert replayed.result is None
    assert replayed.divergence is not None


@pytest.mark.parametrize(
    ("event", "members"),
    [
        ("run_start", {"state": {"slots": {"x": {}}}}),
        ("run_start", {"control_mode": "NONE"}),
        ("run_start", {"budget": {"steps": 64, "more": 1}}),
        ("run_start", {"inputs": 5}),
        ("menu_built", {"menu": [{}]}),
        ("menu_built", {"menu": 5}),
    ],
)
def test_a_log_that_no_run_has_written_is_refused(tmp_path: Any, event: str, members: dict[str, Any]) -> None:
    with pytest.raises(BrokenLog):
        played_again(rewritten(play(None, ROLL, COUNT, NOOP), tmp_path, event, **members))


def test_a_log_begins_with_its_run(tmp_path: Any) -> None:
    with RunLog.create(tmp_path / "log", RunHeader.new()) as log:
        log.write("run_end", 0, {})
    with pytest.raises(BrokenLog):
        played_again(tmp_path / "log")
