"""The state of calls on one warm host: each has its own slots and keys, and nothing of another call."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError, HostCall
from manglecp.toolhost.dispatch.pool import Pool
from manglecp.toolhost.state import Slots
from tests.toolhost.dispatch.hosts import QUICK, command, error, nothing_left, pids_of

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


def put(slot: int, text: str, slots: Slots | None = None, *, fail: bool = False, **members: Any) -> HostCall:
    inputs = json.dumps({"slot": slot, "text": text, "fail": fail})
    return HostCall(aid="AID.PLUGIN.PUT.v1", input_json=inputs, tier=0, slots=slots or {}, **members)


def look(slots: Slots | None = None) -> HostCall:
    return HostCall(aid="AID.PLUGIN.LOOK.v1", tier=0, slots=slots or {})


def said(result: ActionResult | DispatchError) -> Any:
    assert isinstance(result, ActionResult), result
    return json.loads(result.output_json)


def test_a_call_has_the_state_that_it_brings(tmp_path: Path) -> None:
    async def work(pool: Pool) -> None:
        slots: Slots = {}
        for number in range(3):
            answer = await pool.call(put(number, str(number), slots))
            assert said(answer) == number + 1
            assert isinstance(answer, ActionResult)
            slots = answer.slots
        assert error(await pool.call(put(7, "lost", slots, fail=True))) == ("tool_error", None)
        assert error(await pool.call(put(256, "no slot", slots))) == ("tool_error", "bad_output")
        assert said(await pool.call(look(slots))) == {"0": "0", "1": "1", "2": "2"}
        del slots[1]
        assert said(await pool.call(look(slots))) == {"0": "0", "2": "2"}
        assert said(await pool.call(look())) == {}

    in_pool(work, real(tmp_path))


@pytest.mark.req("IPC-14")
def test_two_identities_on_one_host_find_nothing_of_each_other(tmp_path: Path) -> None:
    async def work(pool: Pool) -> None:
        mine = await pool.call(put(0, "mine", identity="ann", idempotency_key="k"))
        assert said(mine) == 1
        assert said(await pool.call(look())) == {}
        theirs = await pool.call(put(0, "mine", identity="bob", idempotency_key="k"))
        assert said(theirs) == 2
        assert isinstance(theirs, ActionResult)
        assert not theirs.idempotent_hit
        assert said(await pool.call(look())) == {}
        # Nor is somebody else's key in the way of other input.
        assert said(await pool.call(put(0, "other", identity="cy", idempotency_key="k"))) == 3
        again = await pool.call(put(0, "mine", identity="ann", idempotency_key="k"))
        assert isinstance(again, ActionResult)
        assert again.idempotent_hit
        assert said(again) == 1
        assert error(await pool.call(put(0, "new", identity="ann", idempotency_key="k"))) == ("tool_error", None)
        assert len(set(pids_of(pool))) == 1

    in_pool(work, real(tmp_path))
