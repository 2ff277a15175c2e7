"""A carrier that loses its run learns of it, also if the run went to another carrier of the same process.

A process that slept longer than its claims last wakes up to find them lapsed. Its worker may claim such a run again
before the heartbeat renews it: then two tasks of one process take the run for theirs, and only the later one is right.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from manglecp.invoke.invoker import InvokeSettings, Worker
from manglecp.invoke.ownership import OwnershipRegistry
from manglecp.store import Busy, Fenced, RunState, open_store
from manglecp.wire import WireError
from tests.deadlines import patience
from tests.invoke.test_chains import chain, steps
from tests.invoke.test_resuming import begun, the_run
from tests.invoke.workshop import Shop, shop

CLAIM_MS = 30
SHORT = InvokeSettings(claim_ms=CLAIM_MS)


def stop_heartbeat(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(_: object) -> set[str]:
        raise Busy("the store is busy")

    monkeypatch.setattr(shop.invoker._ownership, "_renew", busy)


@asynccontextmanager
async def ending(shop: Shop) -> AsyncIterator[None]:
    """Fail instead of waiting for ever."""
    try:
        async with asyncio.timeout(patience(60)):
            yield
    finally:
        shop.invoker.leave()


async def lapsed() -> None:
    await asyncio.sleep(2 * CLAIM_MS / 1_000)


async def test_a_run_that_is_claimed_again_is_lost_to_its_first_claim() -> None:
    store = open_store(":memory:")
    registry = OwnershipRegistry(store, CLAIM_MS)
    first = registry.add("r", 1, time.monotonic() - 1.0)
    second = registry.add("r", 2, time.monotonic())
    with pytest.raises(Fenced):
        async with asyncio.timeout(patience(60)):
            await first.ensure_owned()
    registry.remove(first)
    assert registry.get("r") is second, "removing a former ownership keeps the current one"
    await second.ensure_owned()
    registry.remove(second)
    assert registry.get("r") is None
    await registry.stop()
    store.close()


async def test_an_invocation_ends_if_this_process_claims_its_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store, reached = open_store(":memory:"), asyncio.Event()

    def point(name: str) -> None:
        if name == "started:s1":
            time.sleep(2 * CLAIM_MS / 1_000)  # asleep between the record of the step and its call
            reached.set()

    async with shop(chain(steps("write")), store=store, settings=SHORT, point=point) as s, ending(s):
        stop_heartbeat(s, monkeypatch)
        asked = asyncio.create_task(s.invoke("t", {"n": 1}, confirm=True, request_key="k"))
        await reached.wait()
        assert await s.invoker.take_over() == the_run(store).run_id
        with pytest.raises(WireError) as refused:
            await asked
        assert refused.value.details is not None
        assert refused.value.details["effects"] == [{"step": 1, "action": "write", "status": "unknown"}]
        assert s.bench.ran == []
    assert the_run(store).state == RunState.NEEDS_DECISION
    store.close()


@pytest.mark.parametrize("stopping", [True, False])
async def test_a_worker_does_not_wait_for_runs_that_it_lost(stopping: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pack, store = chain(steps("look", "write")), open_store(":memory:")
    reached, further = asyncio.Event(), asyncio.Event()
    await begun(pack, store, "accepted")

    async def look(_: object) -> dict[str, int]:
        reached.set()
        await further.wait()
        return {"n": 1}

    async with shop(pack, {"look": look}, store=store, settings=SHORT) as s, ending(s):
        worker = Worker([s.invoker], at_once=1, pause=0.01)
        working = asyncio.create_task(worker.run())
        await reached.wait()
        with monkeypatch.context() as patch:
            stop_heartbeat(s, patch)
            await lapsed()
        other = store.runs.take_over("another process", CLAIM_MS, [s.domain.digest], 5)
        assert other is not None  # and that one dies
        await lapsed()
        if stopping:
            worker.stop()
            further.set()
            await working
            assert the_run(store).state == RunState.RUNNING, "it is left to others"
        else:
            further.set()
            while the_run(store).state == RunState.RUNNING:
                await asyncio.sleep(0.01)
            worker.stop()
            await working
            assert the_run(store).state == RunState.SUCCEEDED, "it is claimed again"
    store.close()
