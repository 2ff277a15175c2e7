"""A request key stands for one run of one identity: repeating a request never repeats what it did."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from manglecp.intent import Identity
from manglecp.store import Run, Store, open_store
from manglecp.wire import WireError
from tests.deadlines import patience
from tests.intent.packs import NOW
from tests.invoke.chains import chain, steps
from tests.invoke.workshop import ME, Fails, Stop, shop

OTHER = Identity("somebody", frozenset(), "user")
LASTING = 'valid_for("t", D) :- D = fn:duration:parse("10s").'
KINDS = pytest.mark.parametrize("action", ["look", "write"])
"""Of a chain without effects and of one with."""


@KINDS
async def test_the_same_request_at_the_same_time_runs_once(action: str) -> None:
    go = asyncio.Event()

    async def wait(given: dict[str, Any]) -> dict[str, Any]:
        await go.wait()
        return given

    async with shop(chain(steps(action)), {action: wait}) as s:
        mine = (await s.tools())["t"]

        def ask(**more: Any) -> Any:
            return s.invoke(mine, {"n": 1}, evaluate=False, request_key="k", **more)

        asked = [asyncio.create_task(ask()) for _ in range(6)]
        async with asyncio.timeout(patience(60)):
            while not s.bench.ran:
                await asyncio.sleep(0)
            conflict = asyncio.create_task(s.refused(mine, {"n": 2}, evaluate=False, request_key="k"))
            await asyncio.wait([conflict], timeout=5)
            answered = conflict.done()  # while the other one runs
            go.set()
            answers = await asyncio.gather(*asked)
            refused = await conflict
        assert answered
        assert len(s.bench.ran) == 1
        assert all(answer == answers[0] for answer in answers)
        assert await ask() == answers[0]
        assert len(s.bench.ran) == 1
    assert (refused.code, refused.row.status, refused.row.recoverable) == ("x-request_key_conflict", 409, False)


@KINDS
async def test_two_servers_on_one_file_give_one_answer(action: str, tmp_path: Path) -> None:
    stores = [open_store(tmp_path / "store.sqlite3") for _ in range(2)]
    meeting = asyncio.Barrier(2)

    async def meet(given: dict[str, Any]) -> dict[str, Any]:
        if action == "look":  # both run it, and the one that ends first is the one that counts
            async with asyncio.timeout(patience(60)):
                await meeting.wait()
        return given

    work = {action: meet}
    made = chain(steps(action), 'asserts("done", [1], "server") :- ran("t").')
    try:
        async with shop(made, work, store=stores[0]) as one, shop(made, work, store=stores[1]) as two:
            mine = (await one.tools())["t"]
            asked = (s.invoke(mine, {"n": 1}, evaluate=False, request_key="k") for s in (one, two))
            answers = await asyncio.gather(*asked)
            assert answers[0] == answers[1]
            if action == "write":
                assert len(one.bench.ran) + len(two.bench.ran) == 1
            for s in (one, two):
                error = await s.refused(mine, {"n": 9}, evaluate=False, request_key="k")
                assert error.code == "x-request_key_conflict"
    finally:
        for store in stores:
            store.close()


@KINDS
async def test_what_is_compared_are_tool_and_arguments(action: str) -> None:
    other = f'macro("u", "Other."). mandatory("u"). macro_step("u", 1, "{action}").'
    async with shop(chain(steps(action), other)) as s:
        await s.invoke("t", {"n": 1}, request_key="k")
        assert (await s.refused("t", {"n": 2}, request_key="k")).code == "x-request_key_conflict"
        assert (await s.refused("u", {"n": 1}, request_key="k")).code == "x-request_key_conflict"
        await s.invoke("t", {"n": 1}, request_key="k", eval_time="2026-01-01T00:00:00Z")
        await s.invoke("t", {"n": 1}, request_key="K")
        assert len(s.bench.ran) == 2


@KINDS
async def test_a_key_of_another_identity_is_another_key(action: str) -> None:
    async with shop(chain(steps(action))) as s:
        await s.invoke("t", {"n": 1}, request_key="k")
        answer = await s.invoke("t", {"n": 2}, request_key="k", identity=OTHER)
        assert answer.result == {"n": 2}
        assert len(s.bench.ran) == 2


@KINDS
async def test_an_answer_is_repeated_after_the_tool_expired(action: str) -> None:
    clock = [NOW]
    async with shop(chain(steps(action), LASTING), clock=lambda: clock[0]) as s:
        mine = (await s.tools())["t"]
        first = await s.invoke(mine, {"n": 1}, evaluate=False, request_key="k")
        clock[0] += 3_600 * 10**9
        assert await s.invoke(mine, {"n": 1}, evaluate=False, request_key="k") == first
        assert (await s.refused(mine, {"n": 1}, evaluate=False, request_key="l")).code == "macro_not_found"


@KINDS
async def test_a_failure_is_repeated_and_a_refusal_is_not(action: str) -> None:
    outcomes: list[Any] = [Fails()]

    def work(given: dict[str, Any]) -> dict[str, Any]:
        if outcomes:
            raise outcomes.pop()
        return given

    async with shop(chain(steps(action)), {action: work}) as s:
        assert (await s.refused("t", {"n": "?"}, request_key="k")).code == "schema_validation_failed"
        first = await s.refused("t", {"n": 1}, request_key="k")
        again = await s.refused("t", {"n": 1}, request_key="k")
        assert (first.code, first.message, first.details) == (again.code, again.message, again.details)
        assert len(s.bench.ran) == 1
        assert (await s.invoke("t", {"n": 1}, request_key="another")).result == {"n": 1}


async def test_a_confirmed_run_is_repeated_without_another_token() -> None:
    async with shop(chain(steps("write"), 'needs_confirmation("t").')) as s:
        first = await s.invoke("t", {"n": 1}, request_key="k", confirm=True)
        assert await s.invoke("t", {"n": 1}, request_key="k") == first
        assert len(s.bench.ran) == 1


@pytest.mark.parametrize(("length", "fits"), [(0, False), (1, True), (128, True), (129, False)])
async def test_how_long_a_key_is(length: int, fits: bool) -> None:
    async with shop(chain(steps("look"))) as s:
        if fits:
            await s.invoke("t", {"n": 1}, request_key="ü" * length)
        else:
            assert (await s.refused("t", {"n": 1}, request_key="ü" * length)).code == "malformed_message"
        assert len(s.bench.ran) == fits


async def test_whoever_goes_away_finds_the_answer_later() -> None:
    go = asyncio.Event()

    async def wait(given: dict[str, Any]) -> dict[str, Any]:
        await go.wait()
        return given

    async with shop(chain(steps("write")), {"write": wait}) as s:
        mine = (await s.tools())["t"]
        asked = asyncio.create_task(s.invoke(mine, {"n": 1}, evaluate=False, request_key="k"))
        async with asyncio.timeout(patience(60)):
            while not s.bench.ran:
                await asyncio.sleep(0)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            go.set()
            answer = await s.invoke(mine, {"n": 1}, evaluate=False, request_key="k")
        assert answer.result == {"n": 1}
        assert len(s.bench.ran) == 1


@KINDS
async def test_an_answer_that_invites_to_try_again_frees_the_key(action: str) -> None:
    busy = True

    def work(given: dict[str, Any]) -> dict[str, Any]:
        if busy:
            raise Fails("exception", "queue_full")
        return given

    async with shop(chain(steps(action)), {action: work}) as s:
        refused = await s.refused("t", {"n": 1}, confirm=True, request_key="k")
        busy = False
        answer = await s.invoke("t", {"n": 1}, confirm=True, request_key="k")
    assert (refused.code, refused.row.recoverable) == ("rate_limited", True)
    assert answer.result == {"n": 1}


# --- cancelling by a key ---------------------------------------------------------------------------------------------


class Held:
    """An effect that waits in the midst; another step would follow."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, given: dict[str, Any]) -> dict[str, Any]:
        self.begun.set()
        await self.go_on.wait()
        return given


@pytest.mark.parametrize("where", ["here", "there", "attached here", "attached there"])
async def test_a_run_is_cancelled_by_its_key_wherever_it_is_carried_out(where: str) -> None:
    """By whoever names the key, or who asked for the same and gives up."""
    store, held = open_store(":memory:"), Held()
    two = chain(steps("write", "erase"))
    async with shop(two, {"write": held}, store=store) as here, shop(two, store=store) as there:
        asking = asyncio.create_task(here.refused("t", {"n": 1}, confirm=True, request_key="k"))
        await asyncio.wait_for(held.begun.wait(), 60)
        one = here if where.endswith("here") else there
        await one.invoker.cancel(OTHER, "k")  # another's key of the same name
        await one.invoker.cancel(ME, "unknown")
        stop, attached = Stop(), None
        if where.startswith("attached"):
            again = one.refused("t", {"n": 1}, confirm=True, request_key="k", cancel=stop)
            attached = asyncio.create_task(again)
            stop.set()
        else:
            await one.invoker.cancel(ME, "k")
        if one is there:
            async with asyncio.timeout(patience(60)):
                while not runs(store)[0].cancel:
                    await asyncio.sleep(0.01)
        elif attached is not None:
            await asyncio.wait([attached], timeout=0.1)
        held.go_on.set()
        assert (await asyncio.wait_for(asking, 60)).code == "cancelled"
        assert attached is None or (await asyncio.wait_for(attached, 60)).code == "cancelled"
        assert [name for name, _ in here.bench.ran] == ["write"]
        await one.invoker.cancel(ME, "k")  # what is over stays as it is
        assert (await there.refused("t", {"n": 1}, confirm=True, request_key="k")).code == "cancelled"
    store.close()


def runs(store: Store) -> Sequence[Run]:
    with store.read_transaction() as tx:
        return store.runs.list(tx)


@pytest.mark.parametrize("key", ["", "k" * 129, "k\0"])
async def test_what_is_no_key_cancels_nothing(key: str) -> None:
    async with shop(chain(steps("look"))) as s:
        with pytest.raises(WireError, match="1 to 128 characters"):
            await s.invoker.cancel(ME, key)
