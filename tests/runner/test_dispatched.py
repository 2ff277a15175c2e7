"""Whole runs with real processes: a policy that picks, hosts that act under leases, a log that is played again."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from manglecp.harness import MutationReady
from manglecp.runner import (
    BrokenLog,
    ControlMode,
    EndReason,
    FirstFit,
    Menu,
    MenuAction,
    PluginExecutor,
    RunRequest,
    StepStatus,
    read_actions,
    replay,
    run,
    verify,
)
from manglecp.toolhost.dispatch.catalogue import read_catalogue
from manglecp.toolhost.dispatch.dispatcher import Dispatcher, ServedPlugin
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.messages import ActionResult
from manglecp.toolhost.state import Artifact
from tests.deadlines import patience
from tests.runner.playing import saying
from tests.runner.workshop import COUNT, NOOP, NOTE, SPOIL, VANISH, Workshop, work_in
from tests.toolhost.rights import right_for


@pytest.mark.req("IPC-04", "IPC-06", "IPC-07")
def test_a_policy_picks_hosts_act_and_the_log_plays_again_without_either(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    code = (
        "import json, sys\n"
        "with open(sys.argv[-1], 'rb') as file: said = json.load(file)\n"
        "sids = {entry['name']: entry['sid'] for entry in said['menu']}\n"
        f"patch = {{'path': {str(file)!r}, 'text': 'once', '_lease_token': 'forged', 'by': 2}}\n"
        "picked = '<PICK><%s><INP>%s</INP><END>' % (sids['note'], json.dumps(patch))\n"
        "print(picked if 'text' not in said['inputs'] else '<PICK><%s><END>' % sids['count'])\n"
    )

    async def task(shop: Workshop) -> None:
        policy = shop.policy(code)
        result = await shop.run(policy, mode=ControlMode.POLICY_ONLY, goal="4", _steering="private")
        assert (result.reason, result.steps) == (EndReason.GOAL_DONE, 3)
        assert result.state == {0: Artifact("number", "count", "4", 1)}
        assert result.inputs == {"path": str(file), "text": "once", "by": 2, "_steering": "private"}
        assert shop.told("inputs_patched")[0]["blocked"] == ["/_lease_token"]
        assert (await shop.again()).result == result
        assert (await replay(shop.log)).result == result
        assert shop.policy_starts == 3

    assert work_in(tmp_path, task).count(("lease_granted", "AID.PLUGIN.NOTE.v1")) == 1
    assert file.read_text() == "once"


def test_a_failing_action_leaves_nothing_in_the_state_of_the_run(tmp_path: Path) -> None:
    async def task(shop: Workshop) -> None:
        result = await shop.run(saying(COUNT, SPOIL))
        assert result.reason is EndReason.TOOL_ERROR
        assert result.state == {0: Artifact("number", "count", "1", 1)}
        (told,) = shop.told("tool_error")
        assert told["status"] == "TOOL_ERROR"
        assert "on purpose" in told["err"]["detail"]
        assert (await shop.again()).result == result
        # Nor does the next run on the same host find anything of it.
        assert (await shop.run(saying(COUNT, NOOP))).state == result.state

    work_in(tmp_path, task)


def test_a_breaker_ends_the_run_and_a_replay_does_not_try_again(tmp_path: Path) -> None:
    async def task(shop: Workshop) -> None:
        crashed = await shop.run(saying(COUNT, VANISH))
        assert (crashed.reason, len(crashed.state)) == (EndReason.TOOL_ERROR, 1)
        assert shop.told("tool_error")[0]["err"]["type"] == "crash"
        assert (await shop.again()).result == crashed
        refused = await shop.run(saying(COUNT, VANISH))
        assert (refused.reason, len(refused.state)) == (EndReason.BREAKER_TRIP, 1)
        (told,) = shop.told("tool_error")
        assert (told["status"], told["err"]["code"]) == ("BREAKER_TRIP", "breaker_open")
        assert (await shop.again()).result == refused

    work_in(tmp_path, task)


def test_inputs_that_an_action_does_not_take_are_an_invalid_pick(tmp_path: Path) -> None:
    async def task(shop: Workshop) -> None:
        wrong = '<PICK><SID0001><INP>{"by":"two"}</INP><END>'
        result = await shop.run(saying(NOTE, wrong, COUNT, NOOP), unknown=1)
        assert result.reason is EndReason.NOOP
        assert [told["status"] for told in shop.told("tool_error")] == ["INVALID_PICK"] * 2
        assert "'path' is missing" in shop.told("tool_error")[0]["err"]["detail"]
        assert shop.told("tool_ok")[0]["output"] == 1
        assert (await shop.again()).result == result

    work_in(tmp_path, task)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import time; time.sleep(600)", "no selection within"),
        ("while True: print('x' * 1000)", "printed more than"),
        ("import os; os.write(1, os.urandom(64) + b'\\xff')", "not UTF-8"),
        ("print('<PICK><SID0001><INP>{\"by\":}</INP><END>')", "the patch is"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
    ],
)
def test_a_run_survives_its_policy(tmp_path: Path, code: str, why: str) -> None:
    async def task(shop: Workshop) -> None:
        policy = shop.policy(code, seconds=0.5 if "sleep" in code else 60)
        alone = await shop.run(policy, mode=ControlMode.POLICY_ONLY)
        assert (alone.reason, alone.state) == (EndReason.MAX_INVALID, {})
        assert why in shop.told("selector_policy_raw")[0]["why"]
        assert "circuit breaker" in shop.told("selector_policy_raw")[-1]["why"]
        assert (await shop.again()).result == alone

    work_in(tmp_path, task)


def test_a_policy_that_hangs_holds_nobody_up_and_ends_with_whoever_asked(tmp_path: Path) -> None:
    async def task(shop: Workshop) -> None:
        note = tmp_path / "pid"
        os.mkfifo(note)
        code = f"import os, time\nwith open({str(note)!r}, 'w') as file: file.write(str(os.getpid()))\ntime.sleep(600)"
        policy = shop.policy(code, seconds=120)
        asked = asyncio.create_task(shop.run(policy, mode=ControlMode.POLICY_ONLY))
        pid = int(await asyncio.to_thread(note.read_text))  # now it hangs
        assert isinstance(await shop.dispatcher.call("AID.PLUGIN.COUNT.v1"), ActionResult)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        async with asyncio.timeout(patience(60)):
            while Path(f"/proc/{pid}").exists():  # the thread that waits for it is about to end it
                await asyncio.sleep(0.01)
        with pytest.raises(BrokenLog, match="end of the run is missing"):
            verify(shop.log)

    work_in(tmp_path, task)


def test_the_heuristic_tries_the_first_action_that_fits_until_none_is_left(tmp_path: Path) -> None:
    async def task(shop: Workshop) -> None:
        whole = shop.menu
        shop.menu = Menu(whole.entries[:2])
        result = await shop.run(FirstFit(), goal="3")
        assert (result.reason, result.steps) == (EndReason.GOAL_DONE, 3)
        shop.menu = Menu(whole.entries[1:2])
        result = await shop.run(FirstFit())
        assert (result.reason, result.steps) == (EndReason.NOOP, 1)
        result = await shop.run(FirstFit(), path=str(tmp_path / "notes"), text="x")
        assert (result.reason, result.steps) == (EndReason.NOOP, 2)

    work_in(tmp_path, task)


def test_what_has_effects_is_never_taken_for_deterministic() -> None:
    tools = [
        {"aid": "AID.A.v1", "name": "a", "tags": ["tag.x"], "side_effects": ["none"], "deterministic": True},
        {"aid": "AID.B.v1", "side_effects": ["filesystem_write"], "deterministic": True},
        {"aid": "AID.C.v1", "name": 1, "tags": "t", "deterministic": True},
        {"aid": "AID.D.v1", "side_effects": ["none"], "inputs_schema": {"type": "object"}},
    ]
    assert read_actions(json.dumps({"ok": True, "tools": tools}).encode()) == [
        MenuAction("AID.A.v1", "a", frozenset({"tag.x"}), deterministic=True),
        MenuAction("AID.B.v1"),
        MenuAction("AID.C.v1"),
        MenuAction("AID.D.v1", inputs_schema={"type": "object"}),
    ]


class Listening(Dispatcher):
    """Has no hosts. Whatever is called answers the same."""

    def __init__(self, tools: list[dict[str, Any]], output_json: str) -> None:
        listing = json.dumps({"ok": True, "tools": tools}).encode()
        super().__init__([ServedPlugin(read_catalogue(listing), HostCommand(argv=(), environ={}))])
        self.output_json = output_json
        self.calls: list[dict[str, Any]] = []

    async def call(self, aid: str, **asked: Any) -> ActionResult:
        self.calls.append(asked)
        return ActionResult(aid, self.output_json, {})


def test_an_action_gets_the_inputs_that_it_knows_and_none_that_steer() -> None:
    closed = {"type": "object", "properties": {"a": {}, "_x": {}}, "additionalProperties": False}
    schemas = [None, {"type": "object", "properties": {"a": {}}}, closed]
    tools = [{"aid": f"AID.A{n}.v1", "inputs_schema": schema} for n, schema in enumerate(schemas)]
    listening = Listening(tools, "{}")
    execute = PluginExecutor(listening, "kim")
    slots = {0: Artifact("number")}
    for tool in tools:
        asyncio.run(execute(str(tool["aid"]), {"a": 1, "b": 2, "_x": 3, "_capabilities": {}}, slots))
    taken = [{"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 1}]
    assert listening.calls == [{"identity": "kim", "slots": slots, "inputs": inputs} for inputs in taken]


def test_an_effect_runs_with_the_right_that_its_caller_gets_for_it(tmp_path: Path) -> None:
    notes, asked = tmp_path / "notes", []

    async def task(shop: Workshop) -> None:
        async def authorise(aid: str, call_id: str, input_json: str) -> MutationReady | None:
            asked.append((aid, json.loads(input_json)["text"]))
            return right_for(aid, call_id, input_json) if "yes" in input_json else None

        refused = StepStatus.TOOL_ERROR, "lease_refused"
        for execute in (PluginExecutor(shop.dispatcher, "kim"), PluginExecutor(shop.dispatcher, "kim", authorise)):
            outcome = await execute("AID.PLUGIN.NOTE.v1", {"path": str(notes), "text": "no"}, {})
            assert (outcome.status, outcome.output["code"]) == refused
            assert (await execute("AID.PLUGIN.COUNT.v1", {}, {})).output == 1
        outcome = await execute("AID.PLUGIN.NOTE.v1", {"path": str(notes), "text": "yes"}, {})
        assert (outcome.status, outcome.output) == (StepStatus.OK, "yes")

    work_in(tmp_path, task)
    assert asked == [("AID.PLUGIN.NOTE.v1", "no"), ("AID.PLUGIN.NOTE.v1", "yes")]
    assert notes.read_text() == "yes"


def test_an_output_that_is_no_json_is_a_failure_of_the_action() -> None:
    told: list[tuple[str, Any]] = []

    class Sink:
        def write(self, event: str, _step: int, payload: Any) -> None:
            told.append((event, payload))

    menu = Menu.of([MenuAction("AID.A.v1")])
    execute = PluginExecutor(Listening([{"aid": "AID.A.v1"}], "{"))
    selector = saying("<PICK><SID0001><END>")
    result = asyncio.run(run(RunRequest("g"), {}, Sink(), menu=lambda _: menu, execute=execute, selector=selector))
    assert result.reason is EndReason.TOOL_ERROR
    assert [payload["status"] for event, payload in told if event == "tool_error"] == [StepStatus.TOOL_ERROR]
