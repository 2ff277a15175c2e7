"""Invocations and the tasks of their callers: runs with effects or a key go on without them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from manglecp.wire.messages import InvokeResponse
from tests.deadlines import patience
from tests.invoke.chains import chain, steps
from tests.invoke.test_request_keys import Held
from tests.invoke.workshop import ME, Shop, invocation, shop

PATIENCE = patience(60.0)


async def begun(s: Shop, held: Held, key: str | None = None) -> asyncio.Task[InvokeResponse]:
    tool = (await s.tools())["t"]
    task = asyncio.create_task(s.invoker.invoke(invocation(tool, {"n": 1}, request_key=key), ME))
    await asyncio.wait_for(held.begun.wait(), PATIENCE)
    return task


async def gone(task: asyncio.Task[InvokeResponse]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_run_with_effects_goes_on_without_its_caller() -> None:
    held = Held()
    async with asyncio.timeout(PATIENCE):
        async with shop(chain(steps("write")), {"write": held}) as s:
            await gone(await begun(s, held))
            asyncio.get_running_loop().call_soon(held.go_on.set)
        assert len(s.bench.ran) == 1  # the invoker has waited for it


async def test_a_read_ends_with_its_caller() -> None:
    """The invoker does not wait for it: the action is never released."""
    held = Held()
    async with asyncio.timeout(PATIENCE), shop(chain(steps("look")), {"look": held}) as s:
        await gone(await begun(s, held))


async def test_with_a_key_it_goes_on_and_is_found_again() -> None:
    held = Held()
    async with asyncio.timeout(PATIENCE), shop(chain(steps("look")), {"look": held}) as s:
        await gone(await begun(s, held, "k"))
        again = await begun(s, held, "k")
        held.go_on.set()
        assert isinstance(await again, InvokeResponse)
        assert len(s.bench.calls) == 1
