"""Chaos: many calls through a pool while its hosts are made to fail in every way, by the calls and from outside.

Must hold: every call has exactly one result, and that is its own; no effect of an action that must not be repeated
happens twice, and one that was answered happened; the pool recovers; no process, also none that a host started, and no
descriptor is left. A fifth of the calls belong to runs, which hold their hosts.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from manglecp.toolhost.dispatch import Answer, Call, DispatchError, Pool, Run
from manglecp.toolhost.dispatch.breakers import Breakers
from tests.toolhost.dispatch.hosts import QUICK, call, command, members, nothing_left, running, seen

FAULTS = [
    "crash",
    "leave",
    "killed",
    "flood",
    "stderr",
    "half",
    "noise",
    "binary",
    "empty",
    "oversize",
    "twice",
    "close",
]
SLOW_FAULTS = ["hang", "deaf", "stop", "child"]
_TIMEOUTS = dict.fromkeys(SLOW_FAULTS, 0.4) | {"child": 2.0}
"""Seconds. Most of them may also pass while the call waits for a host; a child should be there to be left behind."""
KINDS = {"timeout", "crash", "parse_error"}


def _calls(count: int, chance: random.Random, effects: Path) -> list[Call]:
    every = [*FAULTS, *SLOW_FAULTS]
    calls = []
    for number in range(count):
        roll = chance.random()
        fault = chance.choice(SLOW_FAULTS if roll < 0.01 else FAULTS) if roll < 0.12 else ""
        if number % 15 == 0 and number // 15 < len(every):  # each at least once, however few calls there are
            fault = every[number // 15]
        calls.append(
            call(
                f"AID.CHAOS.N{chance.randrange(50)}.v1",
                tier=chance.choice((0, 0, 1, 2)),
                idempotent=chance.random() < 0.5,
                timeout=_TIMEOUTS.get(fault, 60),
                fault=fault,
                effect=str(effects),
            )
        )
    return calls


def _parts(calls: list[Call], chance: random.Random) -> list[list[Call]]:
    """Single calls, and runs of four."""
    parts = []
    at = 0
    while at < len(calls):
        size = 4 if chance.random() < 0.06 else 1
        parts.append(calls[at : at + size])
        at += size
    return parts


async def _torment(pool: Pool, chance: random.Random) -> None:
    """Kill, stop and terminate hosts that did nothing wrong."""
    while True:
        await asyncio.sleep(chance.uniform(0.02, 0.2))
        if pool.pids:
            os.kill(chance.choice(pool.pids), chance.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)))


async def _run(calls: list[Call], chance: random.Random) -> tuple[dict[str, Answer | DispatchError], list[int]]:
    results: dict[str, Answer | DispatchError] = {}
    pids: set[int] = set()
    line = asyncio.Semaphore(64)

    async def some(caller: Pool | Run, several: list[Call]) -> None:
        for each in several:
            pids.update(pool.pids)
            result = await caller.call(each)
            assert each.call_id not in results, "answered twice"
            results[each.call_id] = result

    async def one(several: list[Call]) -> None:
        async with line:
            if len(several) == 1:
                await some(pool, several)
            else:
                async with pool.run() as run:
                    await some(run, several)

    # A breaker that never opens: here every call is to reach a host.
    breakers = Breakers(time.monotonic, threshold=1_000_000)
    limits = QUICK._replace(calls_per_host=100, health_timeout=1.0)
    async with Pool(command(), size=4, limits=limits, breakers=breakers) as pool:
        tormentor = asyncio.create_task(_torment(pool, chance))
        await asyncio.gather(*map(one, _parts(calls, chance)))
        tormentor.cancel()
        async with asyncio.timeout(20):  # a host that was stopped last has to be found first
            while True:
                probes = [pool.call(call(tier=1, fault="slow", seconds=0.2, timeout=10)) for _ in range(4)]
                answers = await asyncio.gather(*probes)
                if len({seen(answer)["pid"] for answer in answers if isinstance(answer, Answer)}) == pool.healthy == 4:
                    break
        pids.update(pool.pids)
    return results, sorted(pids)


def _chaos(count: int, seed: int, folder: Path) -> None:
    chance = random.Random(seed)
    effects = folder / "effects"
    effects.touch()
    calls = _calls(count, chance, effects)
    with nothing_left():
        results, pids = asyncio.run(_run(calls, chance))
    assert not [pid for pid in pids if running(pid) or members(pid)]
    happened = Counter(effects.read_text().split())
    assert happened.keys() <= {each.call_id for each in calls}
    assert results.keys() == {each.call_id for each in calls}
    for each in calls:
        result = results[each.call_id]
        times = happened[each.call_id]
        if isinstance(result, Answer):
            assert seen(result)["request"]["call_id"] == each.call_id
            assert times >= 1
        else:
            assert result["type"] in KINDS, result
            assert result["aid"] == each.aid
        if each.tier:  # below, nothing happens, and neighbours of a call that ends its host are repeated
            assert times <= (3 if each.idempotent else 1)
        if times and each.tier and not each.idempotent and not isinstance(result, Answer):
            assert result.get("code") in ("outcome_unknown", "oversize"), result
    healthy = sum(isinstance(result, Answer) for result in results.values())
    assert healthy > count // 2


def test_300_calls(tmp_path: Path) -> None:
    _chaos(300, 5, tmp_path)


@pytest.mark.soak
def test_10_000_calls(tmp_path: Path) -> None:
    _chaos(10_000, 6, tmp_path)
