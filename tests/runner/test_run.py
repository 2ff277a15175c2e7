from __future__ import annotations

import ast
import asyncio
import io
from pathlib import Path
from typing import Any

import pytest

import manglecp.toolhost
from manglecp.runner import (
    ActionOutcome,
    BrokenLog,
    Budget,
    EndReason,
    RunHeader,
    RunLog,
    RunnerError,
    RunRequest,
    StepStatus,
    run,
    verify,
)
from manglecp.toolhost.state import Artifact, Slots
from tests.runner.playing import COUNT, FAIL, MENU, NOOP, ROLL, World, play, saying


def patched(sid: int, patch: str) -> str:
    return f"<PICK><SID{sid:04}><INP>{patch}</INP><END>"


def test_a_run_goes_on_until_its_goal() -> None:
    played = play(None, COUNT, goal_done=lambda state: state[0].content_json == "3")
    assert (played.result.reason, played.result.steps) == (EndReason.GOAL_DONE, 3)
    assert played.result.reason.exit_code == 0
    assert played.events()[:5] == ["run_start", "menu_built", "selector_fallback_raw", "selector_chosen", "tool_start"]
    assert played.events()[-3:] == ["tool_ok", "goal_done", "run_end"]
    assert played.payloads("tool_ok")[1]["tx_patch"][0]["op"] == "replace"


@pytest.mark.req("IPC-04")
@pytest.mark.parametrize(("raw", "reason"), [(NOOP, EndReason.NOOP), ("<ASK_SUP><END>", EndReason.ASK_SUP)])
def test_a_selector_can_end_a_run(raw: str, reason: EndReason) -> None:
    world = World()
    played = play(None, raw, execute=world)
    assert (played.result.reason, played.result.steps, world.calls) == (reason, 1, [])
    assert played.events()[-2] == reason.value


@pytest.mark.req("IPC-06")
def test_a_patch_stays_for_the_steps_after_it_and_reaches_no_private_key() -> None:
    world = World()
    request = RunRequest("g", {"q": 1, "_capabilities": "own"})
    played = play(request, patched(1, '{"q":2,"_capabilities":{},"r":{"__proto__":1}}'), COUNT, NOOP, execute=world)
    assert [inputs for _, inputs in world.calls] == [{"q": 2, "_capabilities": "own", "r": {}}] * 2
    assert request.inputs == {"q": 1, "_capabilities": "own"}
    assert played.payloads("inputs_patched")[0]["blocked"] == ["/_capabilities", "/r/__proto__"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [(StepStatus.TOOL_ERROR, EndReason.TOOL_ERROR), (StepStatus.BREAKER_TRIP, EndReason.BREAKER_TRIP)],
)
def test_a_failure_ends_the_run_and_leaves_nothing_behind(status: StepStatus, reason: EndReason) -> None:
    played = play(None, COUNT, patched(2, '{"bad":1}'), execute=World(status=status))
    assert (played.result.reason, played.result.reason.exit_code) == (reason, 1)
    assert set(played.result.state) == {0}
    assert played.result.inputs == {"q": 1}


def test_an_invalid_pick_is_counted_and_its_patch_does_not_linger() -> None:
    world = World(status=StepStatus.INVALID_PICK)
    played = play(None, patched(2, '{"bad":1}'), COUNT, NOOP, execute=world)
    assert played.result.reason is EndReason.NOOP
    assert world.calls[1] == ("AID.COUNT.v1", {"q": 1})
    assert played.payloads("invalid_pick")[0]["count"] == 1


@pytest.mark.parametrize(
    "raw", ["junk", "<PICK><SID0009><END>", patched(1, '{"a":' + "[" * 40 + "]" * 40 + "}"), patched(2, "{}")]
)
def test_the_ninth_invalid_pick_ends_the_run(raw: str) -> None:
    played = play(None, raw, execute=World(status=StepStatus.INVALID_PICK))
    assert (played.result.reason, played.result.steps) == (EndReason.MAX_INVALID, 9)


def test_invalid_picks_are_counted_over_the_whole_run() -> None:
    played = play(None, *(["junk", COUNT] * 8), "junk")
    assert (played.result.reason, played.result.steps) == (EndReason.MAX_INVALID, 17)


def test_there_are_64_steps() -> None:
    world = World()
    played = play(None, COUNT, execute=world)
    assert (played.result.reason, played.result.steps, len(world.calls)) == (EndReason.MAX_STEPS, 64, 64)


def test_the_fourth_visit_to_one_situation_ends_the_run_under_its_own_name() -> None:
    world = World()
    played = play(
        None, COUNT, execute=lambda aid, inputs, _: ActionOutcome(StepStatus.OK, world(aid, inputs, {}).output, {})
    )
    assert (played.result.reason, played.result.steps, len(world.calls)) == (EndReason.LOOP_GUARD, 4, 3)
    assert played.events()[-2] == "loop_guard_triggered"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        ("OK", {}),
        ("FINE", {}, {}),
        (StepStatus.OK, object(), {}),
        (StepStatus.OK, float("nan"), {}),
        (StepStatus.OK, "\ud800", {}),
        (StepStatus.OK, "x" * 1_048_576, {}),
        (StepStatus.OK, {}, {0: Artifact(content_json="x" * (10 << 20))}),
        (StepStatus.OK, {}, None),
        (StepStatus.OK, {}, {8: Artifact()}),
    ],
)
def test_what_is_no_outcome_is_an_error_of_the_action(answer: Any) -> None:
    assert play(None, COUNT, execute=lambda *_: answer).result.reason is EndReason.TOOL_ERROR


def test_what_an_action_raises_is_its_error() -> None:
    def raising(_aid: str, _inputs: dict[str, Any], _state: Slots) -> ActionOutcome:
        raise RuntimeError("no \ud800 disk")

    assert play(None, COUNT, execute=raising).payloads("tool_error")[0]["err"] == "RuntimeError: no \\ud800 disk"


def test_what_an_action_raises_is_told_in_a_few_words() -> None:
    def raising(_aid: str, _inputs: dict[str, Any], _state: Slots) -> ActionOutcome:
        raise RuntimeError("x" * 1_000_000)

    assert len(play(None, COUNT, execute=raising).payloads("tool_error")[0]["err"]) == 4_000


def test_an_action_is_announced_before_it_runs() -> None:
    seen: list[str] = []

    class Told:
        def write(self, event: str, _step: int, _payload: Any) -> None:
            seen.append(event)

    def execute(_aid: str, _inputs: dict[str, Any], state: Slots) -> ActionOutcome:
        assert seen[-1] == "tool_start"
        return ActionOutcome(StepStatus.OK, {}, state)

    asyncio.run(run(RunRequest("g"), {}, Told(), menu=lambda _: MENU, execute=execute, selector=saying(ROLL, NOOP)))
    assert "tool_ok" in seen


@pytest.mark.parametrize(("goal_id", "inputs"), [("", {}), ("g", {"a": float("nan")}), ("g", {"a": "x" * (1 << 20)})])
def test_a_request_that_cannot_be_logged_is_refused(goal_id: str, inputs: dict[str, Any]) -> None:
    with pytest.raises(RunnerError):
        RunRequest(goal_id, inputs)


def test_a_budget_of_nothing_is_refused() -> None:
    for budget in ({"steps": 0}, {"invalid_picks": -1}, {"visits": 0}):
        with pytest.raises(ValueError, match="budget"):
            Budget(**budget)


@pytest.mark.req("IPC-01")
def test_the_header_belongs_to_the_runner_and_no_message_of_the_toolhost_has_it() -> None:
    room = Path(manglecp.toolhost.__file__).parent
    for file in room.rglob("*.py"):
        names = {node.id for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Name)}
        assert "RunHeader" not in names, file


def test_a_failed_action_is_told_with_what_it_said() -> None:
    assert play(None, FAIL).payloads("tool_error")[0]["err"] == {"error": "as asked"}


@pytest.mark.parametrize("name", ["menu", "goal_done"])
def test_an_exception_of_the_caller_leaves_the_log_without_an_end(name: str) -> None:
    asked = 0

    def fail(_: Slots) -> Any:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise ZeroDivisionError("on purpose")
        return MENU if name == "menu" else False

    stream = io.BytesIO()
    log = RunLog(stream, RunHeader("ab" * 16, "req-1"))
    given: Any = {"menu": lambda _: MENU} | {name: fail}
    loop = run(
        RunRequest("goal.test.v1", {"q": 1}), {}, log, execute=World(), selector=saying(patched(1, '{"q":2}')), **given
    )
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        asyncio.run(loop)
    lines = stream.getvalue().splitlines(keepends=True)
    with pytest.raises(BrokenLog, match="end of the run is missing"):
        verify(lines)
