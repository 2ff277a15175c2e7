"""Chaos: many calls through a pool while its hosts are made to fail in every way, by the calls and from outside.

Must hold: every call has exactly one result, and that is its own; no effect of an action that must not be repeated
happens twice, and one that was answered happened; the pool recovers; no process, also none that a host started, and no
descriptor is left. A fifth of the calls belong to runs, which hold their hosts; some are given up, some have callers
who wait for less than they take, and some are said twice under one key. A tenth goes through a dispatcher to our own
host.
"""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from manglecp.toolhost.dispatch.breakers import Breakers
from manglecp.toolhost.dispatch.catalogue import Listing, list_plugin
from manglecp.toolhost.dispatch.dispatcher import CallOptions, Dispatcher, ServedPlugin
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError, HostCall
from manglecp.toolhost.dispatch.pool import Pool
from tests.deadlines import patience
from tests.toolhost.dispatch.hosts import (
    QUICK,
    call,
    command,
    healthy_hosts,
    members,
    nothing_left,
    pids_of,
    running,
    seen,
)
from tests.toolhost.rights import asking, authorised

pytestmark = pytest.mark.no_cover

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


def _calls(count: int, chance: random.Random, effects: Path) -> list[HostCall]:
    every = [*FAULTS, *SLOW_FAULTS]
    calls = []
    for number in range(count):
        roll = chance.random()
        fault = chance.choice(SLOW_FAULTS if roll < 0.01 else FAULTS) if roll < 0.12 else ""
        if number % 15 == 0 and number // 15 < len(every):  # each at least once, however few calls there are
            fault = every[number // 15]
        made = call(
            f"AID.CHAOS.N{chance.randrange(50)}.v1",
            tier=chance.choice((0, 0, 1, 2)),
            idempotent=chance.random() < 0.5,
            timeout=_TIMEOUTS.get(fault, 60),
            fault=fault,
            effect=str(effects),
        )
        if chance.random() < 0.05:
            made = replace(made, wait_timeout=chance.uniform(0.0, 0.3))
        elif chance.random() < 0.05:
            made = replace(made, idempotency_key=str(number))
            calls.append(authorised(replace(made, call_id=f"again-{number}", authority=None)))
        calls.append(made)
    return calls


def _parts(calls: list[HostCall], chance: random.Random) -> list[list[HostCall]]:
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
        if pids_of(pool):
            os.kill(chance.choice(pids_of(pool)), chance.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)))


async def _give_up(pool: Pool, calls: list[HostCall], chance: random.Random) -> None:
    """Cancel calls, whether they wait, run or are over."""
    while True:
        await asyncio.sleep(chance.uniform(0.01, 0.1))
        for each in chance.sample(calls, 8):
            pool.cancel(each.call_id)


async def _run(
    calls: list[HostCall], chance: random.Random
) -> tuple[dict[str, ActionResult | DispatchError], list[int]]:
    results: dict[str, ActionResult | DispatchError] = {}
    pids: set[int] = set()
    line = asyncio.Semaphore(64)

    async def some(several: list[HostCall]) -> None:
        for each in several:
            pids.update(pids_of(pool))
            result = await pool.call(each)
            assert each.call_id not in results, "answered twice"
            results[each.call_id] = result

    async def one(several: list[HostCall]) -> None:
        async with line:
            await some(several)

    # A breaker that never opens: here every call is to reach a host.
    breakers = Breakers(time.monotonic, threshold=1_000_000)
    limits = QUICK._replace(calls_per_host=100, health_timeout=1.0)
    async with Pool(command(), size=4, limits=limits, breakers=breakers) as pool:
        tormentors = [asyncio.create_task(each) for each in (_torment(pool, chance), _give_up(pool, calls, chance))]
        await asyncio.gather(*map(one, _parts(calls, chance)))
        for tormentor in tormentors:
            tormentor.cancel()
        async with asyncio.timeout(patience(20)):  # a host that was stopped last has to be found first
            while True:
                probes = [pool.call(call(tier=1, fault="slow", seconds=0.2, timeout=10)) for _ in range(4)]
                answers = await asyncio.gather(*probes)
                if (
                    len({seen(answer)["pid"] for answer in answers if isinstance(answer, ActionResult)})
                    == healthy_hosts(pool)
                    == 4
                ):
                    break
        pids.update(pids_of(pool))
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
        if isinstance(result, ActionResult):
            answered = seen(result)["request"]["call_id"]
            assert answered == each.call_id or (result.idempotent_hit and answered in _said_with(each, calls))
            assert happened[answered] >= 1
        else:
            given_up = result["type"] == "exception" and result.get("code") in ("cancelled", "outcome_unknown")
            assert result["type"] in KINDS or given_up, result
            assert result["aid"] == each.aid
        if each.tier:  # below, nothing happens, and neighbours of a call that ends its host are repeated
            together = sum(happened[call_id] for call_id in _said_with(each, calls)) if each.idempotency_key else times
            assert (times if each.idempotent else together) <= 1
        if times and each.tier and not each.idempotent and not isinstance(result, ActionResult):
            assert result.get("code") in ("outcome_unknown", "oversize"), result
    healthy = sum(isinstance(result, ActionResult) for result in results.values())
    assert healthy > count // 4  # on a loaded machine many come too late


def _said_with(one: HostCall, calls: list[HostCall]) -> list[str]:
    """The calls under the key of this one, itself among them."""
    return [each.call_id for each in calls if (each.aid, each.idempotency_key) == (one.aid, one.idempotency_key)]


PLUGIN = '''
import os
import time

from manglecp.toolhost.actions import action


@action(effects=["filesystem"])
def mark(path: str, name: str, end: bool = False) -> str:
    """Write a name to a file, and maybe never say so."""
    with open(path, "a") as file:
        file.write(name + "\\n")
    if end:
        os._exit(3)
    return name


@action(effects=["none"])
def wait(name: str, seconds: float, end: bool = False) -> str:
    """Do nothing, for a while."""
    time.sleep(seconds)
    if end:
        os._exit(3)
    return name
'''


async def _dispatch(count: int, chance: random.Random, folder: Path) -> dict[str, ActionResult | DispatchError]:
    plugin, effects = folder / "plugin.py", folder / "marks"
    plugin.write_text(PLUGIN)
    listing = list_plugin(str(plugin), os.environ, sandbox="none")
    assert isinstance(listing, Listing)
    host = listing.command(os.environ, sandbox="none")
    assert isinstance(host, HostCommand)
    breakers = Breakers(time.monotonic, threshold=1_000_000)
    results: dict[str, ActionResult | DispatchError] = {}
    line = asyncio.Semaphore(16)

    async def one(dispatcher: Dispatcher, number: int) -> None:
        name, end, roll = str(number), chance.random() < 0.05, chance.random()
        asked: CallOptions = {"call_id": name}
        if chance.random() < 0.1:
            asked["timeout"] = chance.uniform(0.0, 0.1)
        if chance.random() < 0.2:
            asked["idempotency_key"] = name
        if roll < 0.5:
            asked["inputs"] = {"path": str(effects), "name": name, "end": end}
        else:
            asked["inputs"] = {"name": name, "seconds": chance.choice((0.0, 0.0, 0.05)), "end": end}
        async with line:
            if chance.random() < 0.1:
                asyncio.get_running_loop().call_later(chance.uniform(0, 0.05), dispatcher.cancel, name)
            aid = f"AID.PLUGIN.{'MARK' if roll < 0.5 else 'WAIT'}.v1"
            results[name] = await dispatcher.call(aid, **(asking(aid, **asked) if roll < 0.5 else asked))

    async with Dispatcher(
        [ServedPlugin(listing.catalogue, host)], size=2, limits=QUICK, breakers=breakers
    ) as dispatcher:
        await asyncio.gather(*(one(dispatcher, number) for number in range(count)))
        after = [dispatcher.call("AID.PLUGIN.WAIT.v1", inputs={"name": "x", "seconds": 0}) for _ in range(8)]
        assert all(isinstance(result, ActionResult) for result in await asyncio.gather(*after))
    return results


def _dispatched(count: int, seed: int, folder: Path) -> None:
    with nothing_left():
        results = asyncio.run(_dispatch(count, random.Random(seed), folder))
    happened = Counter((folder / "marks").read_text().split())
    assert results.keys() == {str(number) for number in range(count)}
    assert max(happened.values()) == 1
    for name, result in results.items():
        if isinstance(result, ActionResult):
            assert json.loads(result.output_json) == name
            assert happened[name] == (result.aid == "AID.PLUGIN.MARK.v1")
        elif happened[name]:
            assert result.get("code") == "outcome_unknown", result
    assert sum(isinstance(result, ActionResult) for result in results.values()) > count // 2


def test_100_calls(tmp_path: Path) -> None:
    _chaos(100, 5, tmp_path)


def test_calls_through_a_dispatcher(tmp_path: Path) -> None:
    _dispatched(60, 7, tmp_path)


@pytest.mark.soak
def test_10_000_calls(tmp_path: Path) -> None:
    _chaos(9_000, 6, tmp_path)
    _dispatched(1_000, 8, tmp_path)
