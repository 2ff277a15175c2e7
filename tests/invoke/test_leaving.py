"""A process that goes while runs are under way: they are handed over between two steps, or left as they are."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from manglecp.invoke.invoker import InvokeSettings
from manglecp.store import NewEntry, Run, RunState, Store, open_store
from manglecp.wire import WireError
from manglecp.wire.messages import InvokeResult
from tests.deadlines import patience
from tests.invoke.chains import chain, effect, steps
from tests.invoke.workshop import ME, Shop, shop

PATIENCE = patience(60.0)
TWO = chain(steps("write", "erase"), actions=(effect("again", idempotent=True),))
LONG = InvokeSettings(handover_ms=60_000)
SHORT = InvokeSettings(handover_ms=1)


class Slow:
    """The first call waits in the midst."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.calls = 0

    async def __call__(self, given: dict[str, Any]) -> dict[str, Any]:
        self.calls += 1
        if self.calls == 1:
            self.begun.set()
            await self.go_on.wait()
        return given


async def answered(s: Shop, **more: Any) -> InvokeResult | WireError:
    try:
        return await s.invoke("t", {"n": 1}, confirm=True, **more)
    except WireError as error:
        return error


def the_run(store: Store) -> Run:
    with store.read_transaction() as tx:
        [run] = store.runs.list(tx)
    return run


async def until_released(store: Store) -> None:
    async with asyncio.timeout(PATIENCE):
        while the_run(store).owner is not None:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_run_is_handed_over_before_its_next_step_and_ends_elsewhere(key: str | None) -> None:
    store, slow = open_store(":memory:"), Slow()
    more = {} if key is None else {"request_key": key}
    async with (
        shop(TWO, {"write": slow, "erase": lambda given: given}, store=store, settings=LONG) as here,
        shop(TWO, {"write": slow, "erase": lambda given: given}, store=store) as there,
    ):
        asking = asyncio.create_task(answered(here, **more))
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        here.invoker.hand_over()
        assert await there.invoker.take_over() is None  # an effect is under way: it is not given away
        slow.go_on.set()
        await until_released(store)
        assert await there.invoker.take_over() is not None
        answer = await asyncio.wait_for(asking, PATIENCE)
        assert isinstance(answer, InvokeResult)
        assert [name for name, _ in here.bench.ran] == ["write"]
        assert [name for name, _ in there.bench.ran] == ["erase"]
        assert the_run(store).takeovers == 0  # it got on
        here.ledger()
    store.close()


async def test_a_run_that_nobody_wants_ends_here() -> None:
    store, slow = open_store(":memory:"), Slow()
    told: list[Any] = []
    async with shop(TWO, {"write": slow, "erase": lambda given: given}, store=store, settings=SHORT) as here:
        asking = asyncio.create_task(answered(here, progress=told.append))
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        here.invoker.hand_over()
        slow.go_on.set()
        assert isinstance(await asyncio.wait_for(asking, PATIENCE), InvokeResult)
        assert [name for name, _ in here.bench.ran] == ["write", "erase"]
        assert the_run(store).fence == 2  # it was free for others
        assert told[-1].status == "finalizing"
    store.close()


async def test_what_nobody_else_could_end_is_not_handed_over() -> None:
    """A secret is on no record; and a run without effects is on none at all."""
    store, slow = open_store(":memory:"), Slow()
    hidden = {"n": {"type": "integer"}, "code": {"type": "string", "writeOnly": True}}
    pack = chain(steps("write", "open"), actions=(effect("open", params=hidden),))
    async with shop(pack, {"write": slow, "open": lambda given: given}, store=store, settings=LONG) as here:
        asking = asyncio.create_task(here.invoke("t", {"n": 1, "code": "4711"}, confirm=True))
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        here.invoker.hand_over()
        slow.go_on.set()
        await asyncio.wait_for(asking, PATIENCE)
        assert the_run(store).fence == 1
    slow = Slow()
    async with shop(chain(steps("look", "look")), {"look": slow}, settings=LONG) as here:
        asking = asyncio.create_task(here.invoke("t", {"n": 1}))
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        here.invoker.hand_over()
        slow.go_on.set()
        await asyncio.wait_for(asking, PATIENCE)
        assert slow.calls == 2
    store.close()


@pytest.mark.req("ERR-28")
async def test_whoever_waits_when_the_time_is_up_is_told_how_to_go_on() -> None:
    """With effects and without a key nobody is to repeat it; in all other cases somebody may."""
    for tool, more, code in (
        ("write", {}, "execution_failed"),
        ("write", {"request_key": "k"}, "server_not_ready"),
        ("look", {}, "server_not_ready"),
    ):
        store, slow = open_store(":memory:"), Slow()
        async with shop(chain(steps(tool, "look")), {tool: slow, "look": slow}, store=store) as here:
            asking = asyncio.create_task(answered(here, **more))
            await asyncio.wait_for(slow.begun.wait(), PATIENCE)
            here.invoker.leave()
            answer = await asyncio.wait_for(asking, PATIENCE)
            assert isinstance(answer, WireError)
            assert (answer.code, slow.calls) == (code, 1)
            if code == "execution_failed":
                run = the_run(store)
                assert answer.details == {"reason": "interrupted", "run_id": run.run_id}
                # What was under way may still be: nobody gets the run before this process is gone.
                assert (run.state, run.owner is None) == (RunState.RUNNING, False)
            else:
                assert answer.retry_after_ms
            # Whoever comes now is not kept waiting either.
            late = await asyncio.wait_for(answered(here, **more), PATIENCE)
            assert isinstance(late, WireError)
            assert late.code == code
        store.close()


async def test_a_run_that_was_left_is_gone_on_with() -> None:
    """The effect that was under way may be repeated: the next process does so, and the key gets its answer."""
    store, slow = open_store(":memory:"), Slow()
    pack = chain(steps("again", "erase"), actions=(effect("again", idempotent=True),))
    brief = InvokeSettings(claim_ms=50)
    async with shop(pack, {"again": slow}, store=store, settings=brief) as here:
        asking = asyncio.create_task(answered(here, request_key="k"))
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        here.invoker.leave()
        assert isinstance(await asyncio.wait_for(asking, PATIENCE), WireError)
    async with shop(pack, {"again": slow, "erase": lambda given: given}, store=store, settings=brief) as there:
        async with asyncio.timeout(PATIENCE):
            while await there.invoker.take_over() is None:
                await asyncio.sleep(0.01)
        assert isinstance(await answered(there, request_key="k"), InvokeResult)
        assert [name for name, _ in there.bench.ran] == ["again", "erase"]
        there.ledger()
    store.close()


async def test_runs_of_others_are_given_back_and_own_ones_end_where_there_is_nobody_else() -> None:
    store, slow = open_store(":memory:"), Slow()
    brief = InvokeSettings(claim_ms=50)
    async with shop(TWO, {"write": slow}, store=store, settings=brief) as gone:
        asking = asyncio.create_task(answered(gone))
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        gone.invoker.hand_over()
        slow.go_on.set()
        await until_released(store)
        gone.invoker.leave()
        await asyncio.wait_for(asking, PATIENCE)
    work = {"write": lambda given: given, "erase": lambda given: given}
    async with shop(TWO, work, store=store, settings=LONG) as here:
        here.invoker.hand_over(awaited=False)
        assert await here.invoker.take_over() is not None
        assert (the_run(store).state, the_run(store).owner) == (RunState.RUNNING, None)
        assert isinstance(await answered(here, identity=ME, request_key="own"), InvokeResult)
        assert [name for name, _ in here.bench.ran] == ["write", "erase"]
    store.close()


async def test_others_are_served_while_what_nobody_waits_for_ends(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.sqlite3")
    held, go, went_on = threading.Event(), threading.Event(), []

    def hold() -> None:
        with store.write_transaction():
            held.set()
            went_on.append(go.wait(PATIENCE / 4))

    async def opened_and_ended() -> asyncio.Task[None]:
        async with shop(TWO, store=store):
            writing = asyncio.create_task(store.writer.append([NewEntry("audit", {})]))
            await asyncio.sleep(0)
            return writing

    holder = threading.Thread(target=hold)
    holder.start()
    assert await asyncio.to_thread(held.wait, PATIENCE)
    ending = asyncio.create_task(opened_and_ended())
    await asyncio.wait([ending], timeout=0.5)
    assert not ending.done()
    go.set()
    writing = await asyncio.wait_for(ending, PATIENCE)
    await asyncio.wait_for(writing, PATIENCE)
    holder.join()
    assert went_on == [True]
    store.close()
