"""Deadlines and cancellations: the haste of one caller costs other calls neither their answers nor their breakers."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from manglecp.toolhost.dispatch.breakers import Breakers, BreakerState
from manglecp.toolhost.dispatch.launch import HostCommand, PoolLimits
from manglecp.toolhost.dispatch.messages import ActionResult, HostCall
from manglecp.toolhost.dispatch.pool import Pool
from tests.deadlines import patience
from tests.toolhost.dispatch.hosts import FAULT_HOST, QUICK, call, command, error, nothing_left, pids_of, running, seen
from tests.toolhost.rights import authorised

CALM = QUICK._replace(health_interval=60)


def hasty(patience: float, *, tier: int = 0, aid: str = "AID.HASTY.v1", **wanted: Any) -> HostCall:
    made = call(aid, tier=tier, **wanted)
    return replace(made, wait_timeout=patience)


def in_pool(
    work: Callable[[Pool], Awaitable[None]],
    *,
    breakers: Breakers | None = None,
    size: int = 1,
    timeout: float = 20,
    limits: PoolLimits = CALM,
) -> None:
    async def main() -> None:
        async with Pool(command(), size=size, timeout=timeout, limits=limits, breakers=breakers) as pool:
            await pool.call(call("AID.WARM.v1"))
            await work(pool)

    with nothing_left():
        asyncio.run(main())


@pytest.mark.req("IPC-28")
@pytest.mark.parametrize("tier", [0, 1])
def test_a_deadline_shorter_than_the_actions_own_says_nothing_about_the_action(tier: int) -> None:
    breakers = Breakers(lambda: 0.0, threshold=1)

    async def work(pool: Pool) -> None:
        assert error(await pool.call(hasty(0.1, tier=tier, fault="hang"))) == ("timeout", "outcome_unknown")
        assert isinstance(await pool.call(hasty(9, tier=tier)), ActionResult)
        own = call("AID.HASTY.v1", tier=tier, timeout=0.1, fault="hang")
        assert error(await pool.call(own)) == ("timeout", "outcome_unknown")
        assert error(await pool.call(hasty(9, tier=tier))) == ("tool_error", "breaker_open")

    in_pool(work, breakers=breakers)


def test_cancelling_a_call_frees_its_host() -> None:
    async def work(pool: Pool) -> None:
        pids = pids_of(pool)
        hanging = call(fault="hang", timeout=20)
        task = asyncio.create_task(pool.call(hanging))
        await asyncio.sleep(0.1)
        assert pool.cancel(hanging.call_id)
        assert error(await task) == ("exception", "cancelled")
        assert not running(pids[0])
        began = time.monotonic()
        assert isinstance(await pool.call(call(tier=1)), ActionResult)
        assert time.monotonic() - began < 10

    in_pool(work)


DEAF = """
import json, signal, sys, time
from dataclasses import replace
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    request = json.loads(line)
    if request["aid"] != "_health":
        effects = Path(request["input_json"])
        for _ in range(1_000):
            with effects.open("a") as file:
                file.write("x")
            time.sleep(0.01)
    print(json.dumps({"ok": True, "status": "OK", "output_json": "{}", "ds_state": {}}), flush=True)
"""


@pytest.mark.parametrize("how", ["cancel", "task", "timeout"])
@pytest.mark.parametrize("tier", [0, 1])
def test_nothing_happens_after_the_caller_has_heard_of_the_loss(how: str, tier: int, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    host = HostCommand(argv=(sys.executable, "-I", "-S", "-c", DEAF), environ={})

    async def main() -> None:
        async with Pool(host, size=1, timeout=20, limits=CALM) as pool:
            while not pids_of(pool):
                await asyncio.sleep(0.01)
            timeout = 0.5 if how == "timeout" else 15.0
            mine = authorised(
                HostCall(aid="A", input_json=str(effects), tier=tier, timeout=timeout, idempotency_key="k")
            )
            task = asyncio.create_task(pool.call(mine))
            while not effects.exists():
                await asyncio.sleep(0.01)
            if how == "cancel":
                pool.cancel(mine.call_id)
            elif how == "task":
                task.cancel()
                await asyncio.sleep(0)
                task.cancel()  # who is impatient hears of it no sooner
            await asyncio.wait([task])
            size = effects.stat().st_size
            assert task.cancelled() == (how == "task")
            await asyncio.sleep(0.1)
            assert effects.stat().st_size == size

    with nothing_left():
        asyncio.run(main())


def test_a_task_that_is_given_up_beside_its_call_is_cancelled() -> None:
    async def work(pool: Pool) -> None:
        deaf = call(tier=1, fault="deaf")
        task = asyncio.create_task(pool.call(deaf))
        await asyncio.sleep(0.1)
        pool.cancel(deaf.call_id)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    in_pool(work)


def test_a_deadline_that_is_over_costs_no_host(tmp_path: Path) -> None:
    effects = tmp_path / "effects"

    async def work(pool: Pool) -> None:
        pids = pids_of(pool)
        assert error(await pool.call(hasty(0, tier=1, effect=str(effects)))) == ("timeout", None)
        result = await pool.call(hasty(1e-9, tier=1, effect=str(effects)))
        assert error(result) == ("timeout", None)
        assert isinstance(await pool.call(call(tier=1)), ActionResult)
        assert pids_of(pool) == pids

    in_pool(work)
    assert not effects.exists()


def test_nobody_prolongs_the_time_of_the_pool() -> None:
    async def work(pool: Pool) -> None:
        for longest in (None, 30.0):
            began = time.monotonic()
            slow = authorised(
                HostCall(aid="A", tier=1, input_json='{"fault":"hang"}', timeout=30.0, wait_timeout=longest)
            )
            assert error(await pool.call(slow)) == ("timeout", "outcome_unknown")
            assert time.monotonic() - began < 15

    in_pool(work, timeout=0.5)


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_call_counts_once_and_the_probe_of_a_breaker_has_one_attempt(attempts: int, tmp_path: Path) -> None:
    now = 0.0
    breakers = Breakers(lambda: now, threshold=2)
    effects = tmp_path / "effects"

    async def work(pool: Pool) -> None:
        nonlocal now

        async def crash() -> tuple[str, str | None]:
            return error(await pool.call(call("A", idempotent=True, fault="crash", effect=str(effects))))

        assert await crash() == ("crash", None)
        assert breakers.of("A").state is BreakerState.CLOSED
        assert await crash() == ("crash", None)
        assert breakers.of("A").state is BreakerState.OPEN
        assert len(effects.read_text().split()) == 2 * attempts
        now = 100.0
        assert await crash() == ("crash", None)
        assert len(effects.read_text().split()) == 2 * attempts + 1
        assert breakers.of("A").state is BreakerState.OPEN

    in_pool(work, breakers=breakers, limits=CALM._replace(attempts=attempts))


def test_a_host_goes_on_until_its_successor_is_up() -> None:
    late = f"import runpy, time; time.sleep(0.7); runpy.run_path({str(FAULT_HOST)!r}, run_name='__main__')"
    host = HostCommand(argv=(sys.executable, "-I", "-S", "-c", late), environ={})

    async def main() -> None:
        async with Pool(host, size=1, timeout=20, limits=CALM._replace(calls_per_host=5)) as pool:
            pids = [seen(await pool.call(call(tier=1)))["pid"]]
            async with asyncio.timeout(patience(20)):
                while len(set(pids)) == 1:
                    pids.append(seen(await pool.call(call(tier=1)))["pid"])
            assert pids.count(pids[0]) > 8

    with nothing_left():
        asyncio.run(main())
