"""Concurrent hosts: several calls of async actions in one process, each with exactly one result of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from manglecp.toolhost import ActionResult, DispatchError, HostCall
from manglecp.toolhost.dispatch import process
from manglecp.toolhost.dispatch.breakers import BreakerState
from manglecp.toolhost.dispatch.launch import HostCommand, PoolLimits
from manglecp.toolhost.dispatch.pool import Pool
from tests.deadlines import patience
from tests.toolhost.dispatch.hosts import QUICK, error, nothing_left, pids_of
from tests.toolhost.rights import authorised

PLUGIN = '''
import asyncio
import contextvars
import os
import threading
import time

from manglecp import ActionError, Context, action, lifespan
from manglecp.toolhost import Artifact

HERE = contextvars.ContextVar("here", default="")
GATES = {}


@lifespan
async def opened():
    yield {"started": 0, "tasks": set()}


def append(path, text):
    with open(path, "a") as file:
        file.write(text + "\\n")


@action(effects=["none"], concurrency=8)
async def meet(context: Context[dict], name: str, count: int) -> str:
    """Return when ``count`` calls have come here."""
    HERE.set(name)
    context.progress(1, 2, name)
    context.log(name)
    context.state["started"] += 1
    event = GATES.setdefault(count, asyncio.Event())
    if context.state["started"] >= count:
        event.set()
    await event.wait()
    assert HERE.get() == name
    return name


@action(effects=["none"], concurrency=8)
async def nap(seconds: float, name: str = "") -> str:
    await asyncio.sleep(seconds)
    return name


@action(effects=["filesystem"], concurrency=8)
async def note(path: str, seconds: float, name: str = "") -> str:
    append(path, f"begun {name}")
    try:
        await asyncio.sleep(seconds)
    finally:
        append(path, f"ended {name}")
    return name


@action(effects=["filesystem"], concurrency=8)
async def in_thread(path: str, seconds: float) -> None:
    def work():
        time.sleep(seconds)
        append(path, "from the thread")

    await asyncio.to_thread(work)


@action(effects=["filesystem"], concurrency=8)
async def leave_task(path: str, context: Context[dict]) -> str:
    async def later():
        try:
            await asyncio.sleep(60)
        finally:
            append(path, "cancelled")

    context.state["tasks"].add(asyncio.create_task(later()))
    await asyncio.sleep(0)
    return "left"


@action(effects=["none"], concurrency=8)
async def stubborn() -> None:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@action(effects=["none"], concurrency=8)
async def block(seconds: float) -> None:
    time.sleep(seconds)


@action(effects=["none"], concurrency=8, timeout=0.3)
async def brief() -> None:
    await asyncio.sleep(60)


@action(effects=["none"], concurrency=8)
async def fail(how: str) -> None:
    await asyncio.sleep(0)
    if how == "exit":
        raise SystemExit(3)
    if how == "task":
        async def ends():
            raise SystemExit(4)
        await asyncio.create_task(ends())
    if how == "stop":
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
    if how == "cancel":
        raise asyncio.CancelledError
    if how == "die":
        os._exit(9)
    if how == "error":
        raise ActionError("on purpose", code="x-purpose")


@action(effects=["none"], concurrency=8)
async def slots(context: Context[dict], number: int) -> list[int]:
    context.slots[number] = Artifact(str(number))
    await asyncio.sleep(0.05)
    return sorted(context.slots)
'''
CALLS = 8


class Served:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def call(
        self,
        action: str,
        /,
        *,
        tier: int = 0,
        idempotent: bool = False,
        slots: Any = None,
        members: Any = None,
        **inputs: Any,
    ) -> ActionResult | DispatchError:
        wanted = HostCall(
            aid=f"AID.PLUGIN.{action.upper()}.v1",
            input_json=json.dumps(inputs),
            tier=tier,
            idempotent=idempotent,
            slots=slots or {},
            **{"timeout": patience(20), **(members or {})},
        )
        return await self.pool.call(authorised(wanted))

    async def output(self, action: str, /, **members: Any) -> Any:
        result = await self.call(action, **members)
        assert isinstance(result, ActionResult), result
        return json.loads(result.output_json)


def serve(
    folder: Path,
    work: Callable[[Served], Awaitable[None]],
    *,
    size: int = 1,
    limits: PoolLimits = QUICK,
    plugin: str = PLUGIN,
) -> None:
    (folder / "plugin.py").write_text(plugin)

    async def main() -> None:
        command = HostCommand.for_plugin(str(folder / "plugin.py"), os.environ, sandbox="none", concurrency=CALLS)
        async with Pool(command, size=size, timeout=patience(30), limits=limits) as pool:
            served = Served(pool)
            await served.output("nap", seconds=0)  # a host is up
            await work(served)

    with nothing_left():
        asyncio.run(main())


async def written(path: Path, text: str) -> None:
    async with asyncio.timeout(patience(10)):
        while not path.exists() or text not in path.read_text():
            await asyncio.sleep(0.01)


def test_calls_run_together_and_keep_their_own_result_reports_and_variables(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        heard: dict[str, list[str]] = {f"c{number}": [] for number in range(CALLS)}

        def hear(name: str) -> Callable[[dict[str, Any]], None]:
            return lambda report: heard[name].append(report["message"])

        calls = [
            served.output("meet", name=name, count=CALLS, members={"call_id": name, "on_report": hear(name)})
            for name in heard
        ]
        assert await asyncio.gather(*calls) == list(heard)
        assert heard == {name: [name, name] for name in heard}
        assert len(pids_of(served.pool)) == 1

    serve(tmp_path, work)


def test_no_host_gets_more_calls_than_it_declares(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        path = tmp_path / "notes"
        calls = [served.call("note", tier=1, path=str(path), seconds=0.05, name=str(n)) for n in range(3 * CALLS)]
        assert all(isinstance(result, ActionResult) for result in await asyncio.gather(*calls))
        running = most = 0
        for line in path.read_text().splitlines():
            running += 1 if line.startswith("begun") else -1
            most = max(most, running)
        assert most == CALLS

    serve(tmp_path, work)


def test_slots_of_concurrent_calls_do_not_mix(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        results = await asyncio.gather(*(served.output("slots", number=n) for n in range(CALLS)))
        assert results == [[n] for n in range(CALLS)]

    serve(tmp_path, work)


def test_a_late_or_cancelled_call_leaves_the_others_and_the_host_alone(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        path = tmp_path / "notes"
        others = [asyncio.create_task(served.output("nap", seconds=1.0, name=str(n))) for n in range(3)]
        await asyncio.sleep(0)
        late = asyncio.create_task(
            served.call("note", tier=1, path=str(path), seconds=60, members={"call_id": "late", "timeout": 0.3})
        )
        stopped = asyncio.create_task(
            served.call("note", tier=1, path=str(path), seconds=60, name="stopped", members={"call_id": "stopped"})
        )
        await written(path, "begun stopped")
        before = pids_of(served.pool)
        assert served.pool.cancel("stopped")
        assert error(await stopped) == ("exception", "outcome_unknown")
        assert "ended stopped" in path.read_text()  # the call is over before its caller gets the result
        assert error(await late) == ("timeout", "outcome_unknown")
        assert path.read_text().count("ended") == 2
        assert await asyncio.gather(*others) == ["0", "1", "2"]
        assert pids_of(served.pool) == before

    serve(tmp_path, work)


def test_the_thread_of_a_cancelled_call_has_ended_when_its_caller_gets_the_result(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        path = tmp_path / "notes"
        result = await served.call("in_thread", tier=1, path=str(path), seconds=0.6, members={"timeout": 0.2})
        assert error(result) == ("timeout", "outcome_unknown")
        seen = path.exists()  # the thread has ended, or its host is dead
        await asyncio.sleep(1.0)
        assert path.exists() == seen

    serve(tmp_path, work)


def test_tasks_that_a_call_leaves_are_cancelled_and_those_of_others_are_not(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        path = tmp_path / "notes"
        other = asyncio.create_task(served.output("nap", seconds=0.5, name="other"))
        await asyncio.sleep(0.1)
        assert await served.output("leave_task", tier=1, path=str(path)) == "left"
        assert path.read_text() == "cancelled\n"
        assert await other == "other"

    serve(tmp_path, work)


@pytest.mark.parametrize("culprit", ["stubborn", "block"])
def test_a_call_that_does_not_react_costs_its_host_and_is_the_only_suspect(
    tmp_path: Path, culprit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "CANCEL_GRACE", 0.3)

    async def work(served: Served) -> None:
        path = tmp_path / "notes"
        others = [
            asyncio.create_task(served.output("nap", idempotent=True, seconds=1.0, name="again")),
            asyncio.create_task(served.call("note", tier=1, path=str(path), seconds=60, name="once")),
        ]
        await written(path, "begun once")
        inputs = {"seconds": 60} if culprit == "block" else {}
        result = await served.call(culprit, idempotent=True, members={"timeout": 0.3}, **inputs)
        assert error(result) == ("timeout", None)
        repeated, lost = await asyncio.gather(*others)
        assert repeated == "again"  # of tier 0 and idempotent: another host has served it
        assert error(lost) == ("crash", "outcome_unknown")
        assert "another call did not react" in lost["detail"]
        assert path.read_text().count("begun") == 1
        failures = {aid: breaker._failures for aid, breaker in served.pool._breakers._by_aid.items()}
        assert failures[f"AID.PLUGIN.{culprit.upper()}.v1"] == 1
        assert failures["AID.PLUGIN.NOTE.v1"] == failures["AID.PLUGIN.NAP.v1"] == 0

    serve(tmp_path, work)


@pytest.mark.parametrize("how", ["exit", "task", "stop", "cancel", "error"])
def test_an_exception_ends_one_call(tmp_path: Path, how: str) -> None:
    async def work(served: Served) -> None:
        other = asyncio.create_task(served.output("nap", seconds=0.3, name="other"))
        await asyncio.sleep(0.1)
        before = pids_of(served.pool)
        result = await served.call("fail", how=how)
        assert how == "stop" or error(result)[0] == "tool_error"
        assert await other == "other"
        assert pids_of(served.pool) == before

    serve(tmp_path, work)


def test_each_call_of_a_host_that_dies_gets_one_result(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        path = tmp_path / "notes"
        notes = [
            asyncio.create_task(served.call("note", tier=1, path=str(path), seconds=60, name=str(n))) for n in range(4)
        ]
        naps = [asyncio.create_task(served.output("nap", idempotent=True, seconds=0.3, name=str(n))) for n in range(3)]
        await written(path, "begun 3")
        os.kill(pids_of(served.pool)[0], 9)
        assert [error(result) for result in await asyncio.gather(*notes)] == [("crash", "outcome_unknown")] * 4
        assert await asyncio.gather(*naps) == ["0", "1", "2"]
        assert path.read_text().count("begun") == 4

    serve(tmp_path, work)


def test_a_pool_that_is_closed_loses_each_running_call_once(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        path = tmp_path / "notes"
        notes = [
            asyncio.create_task(served.call("note", tier=1, path=str(path), seconds=60, name=str(n))) for n in range(4)
        ]
        await written(path, "begun 3")
        await served.pool.close()
        assert [error(result)[1] for result in await asyncio.gather(*notes)] == ["outcome_unknown"] * 4

    serve(tmp_path, work)


def test_two_calls_with_one_key_have_one_effect(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        path = tmp_path / "notes"
        keyed = {"idempotency_key": "k"}
        calls = [served.call("note", tier=1, path=str(path), seconds=0.2, members=keyed) for _ in range(4)]
        results = await asyncio.gather(*calls)
        assert [result.idempotent_hit for result in results if isinstance(result, ActionResult)].count(True) == 3
        assert path.read_text() == "begun \nended \n"

    serve(tmp_path, work)


def test_a_host_is_replaced_between_calls_and_none_is_lost(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        pids: set[int] = set()
        while len(pids) < 2:  # the successor takes a moment
            calls = (served.output("nap", seconds=0.02, name=str(n)) for n in range(2 * CALLS))
            assert await asyncio.gather(*calls) == [str(n) for n in range(2 * CALLS)]
            pids |= set(pids_of(served.pool))

    serve(tmp_path, work, limits=QUICK._replace(calls_per_host=20))


def test_a_storm_of_cancellations(tmp_path: Path) -> None:
    """Every call has one result, its own; those that are not cancelled succeed, and the breakers stay closed."""
    chance = random.Random(7)

    async def work(served: Served) -> None:
        async def one(number: int) -> str:
            call_id = f"call-{number}"
            name = chance.choice(["nap", "nap", "brief"])
            inputs: dict[str, Any] = (
                {} if name == "brief" else {"seconds": chance.choice([0.0, 0.05, 60.0]), "name": call_id}
            )
            task = asyncio.create_task(
                served.call(name, idempotent=True, members={"call_id": call_id, "wait_timeout": patience(5)}, **inputs)
            )
            if inputs.get("seconds", 60.0) == 60.0:
                await asyncio.sleep(chance.random() * 0.2)
                served.pool.cancel(call_id) if chance.random() < 0.7 else task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                result = await task
                if isinstance(result, ActionResult):
                    assert json.loads(result.output_json) == call_id
                    return "done"
                return str(result.get("code"))
            return "cancelled"

        before = pids_of(served.pool)
        results = await asyncio.gather(*(one(number) for number in range(150)))
        assert set(results) == {"done", "cancelled"}
        assert pids_of(served.pool) == before
        assert await served.output("nap", seconds=0, name="after") == "after"
        states = {breaker.state for breaker in served.pool._breakers._by_aid.values()}
        assert states == {BreakerState.CLOSED}

    serve(tmp_path, work, limits=QUICK._replace(health_timeout=patience(10)))


def conversation(folder: Path, *lines: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the answers of a concurrent host to these lines, written at once."""
    (folder / "plugin.py").write_text(PLUGIN)
    command = [
        sys.executable,
        "-I",
        "-m",
        "manglecp.toolhost.host",
        "--serve",
        str(folder / "plugin.py"),
        "--concurrent",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        host.stdin.flush()
        expected = [line for line in lines if line["aid"] != "_cancel"]
        answers = [json.loads(host.stdout.readline()) for _ in expected]
        host.stdin.close()
        assert host.stdout.read() == b""
        assert host.wait(patience(10)) == 0
    return answers


def test_a_call_that_is_cancelled_before_it_begins_is_answered(tmp_path: Path) -> None:
    answers = conversation(
        tmp_path,
        {"aid": "AID.PLUGIN.NAP.v1", "call_id": "hasty", "inputs": {"seconds": 60}},
        {"aid": "_cancel", "call_id": "hasty"},
        {"aid": "_cancel", "call_id": "none"},
        {"aid": "_health"},
        {"aid": "AID.PLUGIN.NAP.v1", "call_id": "last", "inputs": {"seconds": 0.2}},
    )
    by_call = {answer.get("call_id"): answer for answer in answers}
    assert by_call["hasty"]["error"] == "CancelledError"
    assert by_call[None]["error"] == "tool not found: _health"
    assert by_call["last"]["status"] == "OK"
