"""A server that goes while runs are under way: it does not wait for ever, and nothing is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from manglecp.invoke import InvokeSettings
from manglecp.server.config import ServerSettings
from manglecp.store import Run, RunState
from tests.invoke.test_leaving import Slow
from tests.invoke.workshop import shop
from tests.server.desk import PATIENCE, Desk, desk, encoded, intent, invoke, plain_pack
from tests.server.house import JSON
from tests.server.test_serve import process

RULES = """
macro("w", "Writes twice."). mandatory("w") :- intent("go"). macro_step("w", 1, "write"). macro_step("w", 2, "write").
"""
PACK = plain_pack(RULES)


def the_run(d: Desk) -> Run:
    with d.shop.store.read_transaction() as tx:
        [run] = d.shop.store.runs.list(tx)
    return run


@pytest.mark.parametrize("shared", [False, True])
async def test_a_run_that_ends_in_time_is_answered(shared: bool) -> None:
    """Where others might go on with it but nobody does, it ends here."""
    slow = Slow()
    at_once = InvokeSettings(handover_ms=1)
    async with desk(PACK, {"write": slow}, shared=shared, invoking=at_once) as d, d.client() as client:
        tools = await d.tools(client)
        await client.say(invoke("a", tools["w"], {"n": 1}))
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        draining = asyncio.create_task(d.core.drain(PATIENCE))
        await client.until(lambda one: one["type"] == "manifest" and one["payload"]["status"] == "draining")
        slow.go_on.set()
        assert await draining
        assert (await client.answer("a"))["type"] == "invoke_response"
        assert (the_run(d).fence, the_run(d).state) == (2 if shared else 1, RunState.SUCCEEDED)


async def test_a_run_that_another_process_goes_on_with_is_answered_here() -> None:
    slow = Slow()
    patient = InvokeSettings(handover_ms=60_000)
    async with desk(PACK, {"write": slow}, shared=True, invoking=patient) as d, d.client() as client:
        tools = await d.tools(client)
        await client.say(invoke("a", tools["w"], {"n": 1}))
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        draining = asyncio.create_task(d.core.drain(PATIENCE))
        await client.until(lambda one: one["type"] == "manifest" and one["payload"]["status"] == "draining")
        slow.go_on.set()
        async with shop(PACK, store=d.shop.store) as other, asyncio.timeout(PATIENCE):
            while await other.invoker.take_over() is None:
                await asyncio.sleep(0.01)
            assert await draining
            assert (await client.answer("a"))["type"] == "invoke_response"
            assert (slow.calls, len(other.bench.ran)) == (1, 1)


@pytest.mark.parametrize(("key", "code"), [(None, "execution_failed"), ("k", "server_not_ready")])
async def test_nobody_waits_longer_than_the_drain_may_last(key: str | None, code: str) -> None:
    slow, more = Slow(), {} if key is None else {"x-request_key": key}
    async with desk(PACK, {"write": slow}) as d, d.client() as client:
        tools = await d.tools(client)
        await client.say(invoke("a", tools["w"], {"n": 1}, **more))
        await asyncio.wait_for(slow.begun.wait(), PATIENCE)
        assert not await d.core.drain(0.01)
        told = (await client.answer("a"))["payload"]
        assert (told["code"], told["recoverable"]) == (code, key is not None)
        assert key is not None or told["details"]["run_id"] == the_run(d).run_id
        assert the_run(d).state == RunState.RUNNING
        # Leaving the desk ends the server, for which nothing is left to wait.


async def test_a_run_that_was_taken_over_is_not_waited_for_either() -> None:
    """Nobody asked for it here; still the server goes in time."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def write(given: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        await go_on.wait()
        return given

    first = Slow()
    settings = ServerSettings(worker_pause=0.01, grace_period=0.05)
    async with desk(PACK, {"write": write}, settings=settings) as d:
        async with shop(PACK, {"write": first}, store=d.shop.store, settings=InvokeSettings(claim_ms=50)) as gone:
            asking = asyncio.create_task(gone.refused("w", {"n": 1}))
            await asyncio.wait_for(first.begun.wait(), PATIENCE)
            gone.invoker.hand_over()
            first.go_on.set()
            await asyncio.wait_for(begun.wait(), PATIENCE)  # the desk's server has it
            gone.invoker.leave()
            assert (await asyncio.wait_for(asking, PATIENCE)).code == "execution_failed"
        async with asyncio.timeout(PATIENCE):
            await d.revisions.end()
        assert the_run(d).state == RunState.RUNNING


ACTIONS = """
import os, time
from manglecp import action

@action(effects=["filesystem"], idempotent=True, timeout=300)
def write(n: int) -> dict:
    \"\"\"Once the gate is there.\"\"\"
    open("begun", "w").close()
    while not os.path.exists("gate"):
        time.sleep(0.02)
    return {"n": n}
"""


@pytest.mark.no_cover
def test_a_signal_ends_a_server_in_time_and_the_next_one_goes_on(tmp_path: Path) -> None:
    folder, work = tmp_path / "pack", tmp_path / "work"
    work.mkdir()
    (folder / "rules").mkdir(parents=True)
    (folder / "pack.toml").write_text('[pack]\nname = "slow"\n\n[[intents]]\nname = "go"\ndescription = "Go"\n')
    (folder / "actions.py").write_text(ACTIONS)
    (folder / "rules" / "a.mg").write_text(RULES)
    config = tmp_path / "server.toml"
    config.write_text("[worker]\nclaim_ms = 2000\n")
    store = ("--store", str(tmp_path / "store.db"))
    args = ("serve", str(folder), "--http", "127.0.0.1:0", *store, "--workspace", str(work), "--degrade")
    limits = ("--drain-seconds", "1", "--config", str(config))

    def post(url: str, path: str, message: dict[str, Any]) -> dict[str, Any]:
        answer = httpx.post(f"{url}{path}", content=encoded(message), headers=JSON, timeout=PATIENCE, trust_env=False)
        told: dict[str, Any] = answer.json()["payload"]
        return told

    with process(tmp_path, *args, *limits) as p, ThreadPoolExecutor(1) as pool:
        url = p.url()
        [tool] = post(url, "/evaluate", intent("a"))["macro_tools"]
        request = invoke("b", tool["macro_id"], {"n": 1}, **{"x-request_key": "k"})
        asking = pool.submit(post, url, "/invoke", request)
        p.until((work / "begun").exists)
        began = time.monotonic()
        assert p.end() == 0
        assert time.monotonic() - began < 30.0  # it would have waited for five minutes
        assert asking.result(PATIENCE)["code"] == "server_not_ready"
        assert "did not end in time" in p.said()
    listed = [sys.executable, "-m", "manglecp", "runs", "list", "--json", *store]
    assert b"running" in subprocess.run(listed, capture_output=True, check=True, timeout=PATIENCE).stdout
    (work / "gate").touch()
    with process(tmp_path, *args, *limits) as p:
        assert post(p.url(), "/invoke", {**request, "id": "c"})["result"]["n"] == 1
        assert p.end() == 0
