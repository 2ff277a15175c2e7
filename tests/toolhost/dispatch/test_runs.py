"""Runs: one host for a sequence of calls, told the whole state once and then what has changed."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from manglecp.toolhost import state
from manglecp.toolhost.dispatch import Answer, Call, DispatchError, HostCommand, Pool
from manglecp.toolhost.state import Artifact, Slots
from tests.deadlines import patience
from tests.toolhost.dispatch.hosts import QUICK, call, command, error, nothing_left, seen
from tests.toolhost.rights import authorised

PLUGIN = '''
from manglecp.toolhost.actions import action
from manglecp.toolhost.context import Context
from manglecp.toolhost.state import Artifact

calls = 0


@action(effects=["none"])
def put(context: Context, slot: int, text: str, fail: bool = False) -> int:
    """Write a slot; say how often this host was called."""
    global calls
    calls += 1
    context.slots[slot] = Artifact("text", "put", text, len(text))
    if fail:
        raise ValueError("on purpose")
    return calls


@action(effects=["none"])
def look(context: Context) -> dict[str, str]:
    """What is in the slots."""
    return {str(slot): artifact.content_json for slot, artifact in context.slots.items()}
'''


def in_pool(work: Callable[[Pool], Awaitable[None]], host: HostCommand | None = None, size: int = 1) -> None:
    async def main() -> None:
        async with Pool(host or command(), size=size, timeout=20, limits=QUICK) as pool:
            await work(pool)

    with nothing_left():
        asyncio.run(main())


def real(folder: Path) -> HostCommand:
    (folder / "plugin.py").write_text(PLUGIN)
    return HostCommand.for_plugin(str(folder / "plugin.py"), os.environ, sandbox="none")


def put(slot: int, text: str, slots: Slots | None = None, *, fail: bool = False, **members: Any) -> Call:
    inputs = json.dumps({"slot": slot, "text": text, "fail": fail})
    return Call(aid="AID.PLUGIN.PUT.v1", input_json=inputs, tier=0, slots=slots or {}, **members)


def look(slots: Slots | None = None) -> Call:
    return Call(aid="AID.PLUGIN.LOOK.v1", tier=0, slots=slots or {})


def said(result: Answer | DispatchError) -> Any:
    assert isinstance(result, Answer), result
    return json.loads(result.output_json)


def told(result: Answer | DispatchError) -> Any:
    return seen(result)["request"]["ds_state"]


def echo(slots: Slots, **wanted: Any) -> Call:
    return authorised(Call(aid="AID.ECHO.v1", input_json=json.dumps(wanted), tier=1, slots=slots))


@pytest.mark.req("IPC-13")
def test_the_whole_state_first_and_then_what_has_changed() -> None:
    one, two = Artifact("t", "p", "1", 1), Artifact("t", "p", "2", 1)
    wire = {"type": "t", "provenance": "p", "content_json": "2", "size_bytes": 1}

    async def work(pool: Pool) -> None:
        async with pool.run() as run:
            first = await run.call(echo({0: one}))
            assert told(first) == state.full_state({0: one})
            unchanged = {"delta": True, "slots": {}, "removed_slots": [], "base_digest": state.digest_state({0: one})}
            assert told(await run.call(echo({0: one}))) == unchanged
            changed = told(await run.call(echo({1: two})))
            assert changed == {**unchanged, "slots": {"1": wire}, "removed_slots": [0]}
            assert told(await run.call(echo({1: two})))["base_digest"] == state.digest_state({1: two})
        async with pool.run() as run:
            assert told(await run.call(echo({}))) == {"slots": {}}
        assert told(await pool.call(echo({}))) == {"slots": {}}

    in_pool(work)


OK = {"ok": True, "status": "OK", "output_json": "{}", "error": ""}


@pytest.mark.parametrize(
    "reply",
    [
        {"ok": False, "error": "tool not found: X"},
        {"ok": False, "error": "lease_required", "tier": 1},
        {**OK, "ds_state": {}, "idempotent_hit": True},
        {**OK, "ds_state": {"delta": True, "slots": {}, "removed_slots": []}, "idempotent_hit": True},
        {**OK, "ds_state": {"slots": {}}},
        {**OK, "ds_state": {"delta": True, "slots": {"9": {}}}},
        {**OK, "ds_state": {"delta": True, "slots": {}, "base_digest": "0" * 64}},
        OK,
    ],
)
def test_after_an_answer_that_leaves_open_what_the_host_holds_everything_is_said_again(reply: dict[str, Any]) -> None:
    async def work(pool: Pool) -> None:
        async with pool.run() as run:
            await run.call(echo({}))
            await run.call(echo({}, reply=reply))
            assert told(await run.call(echo({}))) == {"slots": {}}
            assert told(await run.call(echo({})))["delta"] is True

    in_pool(work)


def test_a_host_that_holds_another_state_refuses_and_is_told_everything(tmp_path: Path) -> None:
    program = """
import json, sys
log = open(sys.argv[1], "a")
for line in sys.stdin:
    request = json.loads(line)
    drifted = request.get("ds_state", {}).get("delta") is True
    if request["aid"] != "_health":
        print("refused" if drifted else "run", file=log, flush=True)
    empty = {"delta": True, "slots": {}, "removed_slots": []}
    good = {"ok": True, "status": "OK", "output_json": "{}", "error": "", "ds_state": empty}
    print(json.dumps({"ok": False, "error": "state_drift"} if drifted else good), flush=True)
"""
    log = tmp_path / "log"

    async def work(pool: Pool) -> None:
        async with pool.run() as run:
            for _ in range(3):
                assert isinstance(await run.call(call(tier=1)), Answer)

    in_pool(work, HostCommand(argv=(sys.executable, "-I", "-c", program, str(log)), environ={}))
    assert log.read_text().split() == ["run", "refused", "run", "refused", "run"]


def test_the_state_of_a_run_is_right_with_a_real_host(tmp_path: Path) -> None:
    async def work(pool: Pool) -> None:
        async with pool.run() as run:
            slots: Slots = {}
            for number in range(3):
                answer = await run.call(put(number, str(number), slots))
                assert said(answer) == number + 1
                assert isinstance(answer, Answer)
                slots = answer.slots
            assert error(await run.call(put(7, "lost", slots, fail=True))) == ("tool_error", None)
            assert error(await run.call(put(9, "no slot", slots))) == ("tool_error", "bad_output")
            assert said(await run.call(look(slots))) == {"0": "0", "1": "1", "2": "2"}
            del slots[1]
            assert said(await run.call(look(slots))) == {"0": "0", "2": "2"}
            assert said(await run.call(look())) == {}

    in_pool(work, real(tmp_path))


@pytest.mark.req("IPC-14")
def test_two_identities_on_one_host_find_nothing_of_each_other(tmp_path: Path) -> None:
    async def work(pool: Pool) -> None:
        async with pool.run() as run:
            mine = await run.call(put(0, "mine", identity="ann", idempotency_key="k"))
            assert said(mine) == 1
        async with pool.run() as run:
            assert said(await run.call(look())) == {}
            theirs = await run.call(put(0, "mine", identity="bob", idempotency_key="k"))
            assert said(theirs) == 2
            assert isinstance(theirs, Answer)
            assert not theirs.idempotent_hit
        assert said(await pool.call(look())) == {}
        # Nor is somebody else's key in the way of other input.
        assert said(await pool.call(put(0, "other", identity="cy", idempotency_key="k"))) == 3
        again = await pool.call(put(0, "mine", identity="ann", idempotency_key="k"))
        assert isinstance(again, Answer)
        assert again.idempotent_hit
        assert said(again) == 1
        assert error(await pool.call(put(0, "new", identity="ann", idempotency_key="k"))) == ("tool_error", None)
        assert len(set(pool.pids)) == 1

    in_pool(work, real(tmp_path))


def test_a_run_that_loses_its_host_goes_on_with_another(tmp_path: Path) -> None:
    effects = tmp_path / "effects"

    async def work(pool: Pool) -> None:
        one = {0: Artifact("t", "p", "1", 1)}
        async with pool.run() as run:
            first = seen(await run.call(echo(one)))["pid"]
            crashing = echo(one, fault="crash", effect=str(effects))
            assert error(await run.call(crashing)) == ("crash", "outcome_unknown")
            after = await run.call(echo(one))
            assert told(after) == state.full_state(one)
            second = seen(after)["pid"]
            assert second != first
            os.kill(second, signal.SIGKILL)
            async with asyncio.timeout(patience(10)):
                while second in pool.pids or pool.healthy < 1:  # the run holds its place, and gets a host again
                    await asyncio.sleep(0.01)
            assert told(await run.call(echo(one))) == state.full_state(one)
            await run.call(echo(one))
            lost = Call(aid="AID.X.v1", input_json='{"fault": "leave"}', tier=1, idempotent=True, slots=one)
            assert error(await run.call(authorised(lost))) == ("parse_error", "empty_output")
        assert isinstance(await pool.call(call(tier=1)), Answer)

    in_pool(work)
    assert len(effects.read_text().split()) == 1


def test_a_run_has_its_host_to_itself_and_gives_it_back() -> None:
    async def work(pool: Pool) -> None:
        async with pool.run() as run:
            await run.call(call())
            other = asyncio.create_task(pool.call(call()))
            while pool.waiting == 0:
                await asyncio.sleep(0)
            assert isinstance(await run.call(call()), Answer)
            assert not other.done()
        assert isinstance(await other, Answer)
        assert error(await run.call(call())) == ("exception", None)

    in_pool(work)


def test_a_run_makes_one_call_at_a_time() -> None:
    async def work(pool: Pool) -> None:
        async with pool.run() as run:
            await run.call(call())
            first = asyncio.create_task(run.call(call(fault="slow", seconds=0.2)))
            await asyncio.sleep(0)
            assert error(await run.call(call())) == ("exception", None)
        # The run was left while its call was under way; the host is given back when that is over.
        assert isinstance(await first, Answer)
        assert isinstance(await pool.call(call(tier=1)), Answer)

    in_pool(work)


def test_a_cancelled_call_of_a_run_ends_its_host_and_not_the_run() -> None:
    async def work(pool: Pool) -> None:
        async with pool.run() as run:
            await run.call(call())
            for tier, code in ((1, "outcome_unknown"), (0, "cancelled")):
                hanging = call(tier=tier, fault="hang")
                task = asyncio.create_task(run.call(hanging))
                await asyncio.sleep(0.05)
                assert pool.cancel(hanging.call_id)
                assert error(await task) == ("exception", code)
                assert told(await run.call(call(tier=1))) == {"slots": {}}

    in_pool(work)


def test_hosts_of_runs_are_replaced_after_so_many_calls() -> None:
    async def work() -> None:
        async with Pool(command(), size=1, limits=QUICK._replace(calls_per_host=3)) as pool:
            async with pool.run() as run:
                pids = [seen(await run.call(call()))["pid"] for _ in range(5)]
            assert len(set(pids)) == 1
            async with asyncio.timeout(patience(10)):
                while seen(await pool.call(call()))["pid"] == pids[0]:
                    await asyncio.sleep(0.01)

    with nothing_left():
        asyncio.run(work())
