"""Reads under way, and somebody who does not want them any more."""

from __future__ import annotations

import asyncio

from manglecp.invoke.calls import Call
from manglecp.invoke.giving_up import GivingUp
from tests.invoke.turns import call

LONG = 60.0


class Host:
    """Notes what is given up."""

    def __init__(self) -> None:
        self.given_up: list[str] = []
        self.told = asyncio.Event()

    def give_up(self, call: Call) -> None:
        self.given_up.append(call.call_id)
        self.told.set()


async def test_reads_under_way_are_given_up_together() -> None:
    giving_up, host, stop = GivingUp(), Host(), asyncio.Event()
    calls = [call("read", 1), call("look", 2)]
    reading = giving_up.begin(calls, host.give_up, stop)
    await asyncio.sleep(0.1)
    assert host.given_up == []
    stop.set()
    await asyncio.wait_for(host.told.wait(), LONG)
    assert host.given_up == [one.call_id for one in calls]
    giving_up.end(reading)


async def test_somebody_may_have_said_stop_before() -> None:
    giving_up, host, stop = GivingUp(), Host(), asyncio.Event()
    stop.set()
    reading = giving_up.begin([call("read", 1)], host.give_up, stop)
    await asyncio.wait_for(host.told.wait(), LONG)
    giving_up.end(reading)


async def test_what_is_over_is_not_given_up() -> None:
    """Neither what was done in no time, nor what somebody has listened to; and the next read is heard."""
    giving_up, host, stop = GivingUp(), Host(), asyncio.Event()
    giving_up.end(giving_up.begin([call("read", 1)], host.give_up, stop))
    slow = giving_up.begin([call("read", 2)], host.give_up, stop)
    await asyncio.sleep(0.1)
    giving_up.end(slow)
    await asyncio.sleep(0.1)
    stop.set()
    reading = giving_up.begin([call("read", 3)], host.give_up, stop)
    await asyncio.wait_for(host.told.wait(), LONG)
    assert host.given_up == [call("read", 3).call_id]
    giving_up.end(reading)
    await asyncio.sleep(0.1)
    assert asyncio.all_tasks() == {asyncio.current_task()}
