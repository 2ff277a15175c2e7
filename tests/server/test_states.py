"""Booting, ready, degraded, draining; new editions of the pack; what the manifest says of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from manglecp.server.config import ServerSettings
from manglecp.store import Unusable
from tests.server.desk import PATIENCE, RULES, authenticate, desk, intent, invoke, plain_pack
from tests.server.slow import slow_evaluations

OTHER = RULES + '\nmacro("u", "Another."). mandatory("u") :- intent("go"). macro_step("u", 1, "look").'


@pytest.mark.req("MANI-06", "MANI-28", "MANI-29", "MANI-33", "ERR-29")
async def test_while_booting_there_is_a_manifest_and_nothing_else() -> None:
    hold = asyncio.Event()
    async with desk(hold=hold, boot=False) as d, d.client() as client:
        manifest = (await client.until(lambda one: one["type"] == "manifest"))[0]["payload"]
        assert manifest["status"] == "booting"
        assert [one["name"] for one in manifest["intents"]] == ["go", "slow"]
        assert manifest["limits"]["max_message_bytes"] >= 1 << 24
        for message in (intent("a"), invoke("b", "m-1", {})):
            answer = await client.ask(message)
            assert answer["payload"]["code"] == "server_not_ready"
            assert answer["payload"]["recoverable"] is True
            assert answer["payload"]["retry_after_ms"] > 0
        _, reply = await d.post(intent("c"))
        assert (reply.status, reply.retry_after_ms) == (503, 1_000)
        hold.set()
        await d.revisions.wait_until_loaded()
        ready = (await client.until(lambda one: one["type"] == "manifest", 2))[1]
        assert ready["payload"]["status"] == "ready"
        assert (await client.ask(intent("d")))["type"] == "intent_response"


@pytest.mark.req("MANI-31", "ERR-29")
async def test_while_draining_nothing_new_is_taken_and_what_runs_may_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        async with desk() as d, d.client() as client:
            await client.say(intent("a", "slow"))
            assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE)
            draining = asyncio.create_task(d.core.drain(PATIENCE))
            told = (await client.until(lambda one: one["type"] == "manifest", 2))[1]
            assert told["payload"]["status"] == "draining"
            for message in (intent("b"), invoke("c", "m-1", {}), authenticate("d", "x")):
                assert (await client.ask(message))["payload"]["code"] == "server_not_ready"
            assert not draining.done()
            gate.open.set()
            assert await draining
            assert (await client.answer("a"))["type"] == "intent_response"


async def test_whoever_waits_when_the_grace_is_over_is_told_to_ask_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        async with desk() as d, d.client() as client:
            await client.say(intent("a", "slow"))
            assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE)
            assert not await d.core.drain(0.01)
            assert (await client.answer("a"))["payload"]["code"] == "server_not_ready"
            gate.open.set()


@pytest.mark.req("MANI-33", "MANI-35")
async def test_a_new_edition_is_served_and_told() -> None:
    async with desk() as d, d.client() as client:
        before = d.core.manifest(http=True)
        assert d.core.manifest(http=True) is before
        old = await d.tools(client)
        d.packs.append(plain_pack(OTHER))
        assert await d.revisions.reload() == "swapped"
        told = (await client.until(lambda one: one["type"] == "manifest", 2))[1]
        assert told["payload"]["extensions"]["x-pack_digest"] == d.shop.domain.digest
        after = d.core.manifest(http=True)
        assert after.etag != before.etag
        assert after.etag.startswith('"')
        assert set(await d.tools(client)) == {"t", "u", "w"}
        gone = await client.ask(invoke("r", old["t"], {"n": 1}))
        assert gone["type"] == "invoke_response" or gone["payload"]["code"] == "macro_not_found"


async def test_the_same_edition_again_is_no_news() -> None:
    async with desk() as d, d.client() as client:
        tag = d.core.manifest().etag
        assert await d.revisions.reload() == "same"
        assert len(d.shops) == 2
        await client.ask(intent("a"))
        assert [one["type"] for one in client.sent] == ["manifest", "intent_response"]
        assert d.core.manifest().etag == tag


async def test_what_was_asked_of_the_old_edition_is_answered_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        rules = OTHER + '\nmandatory("u") :- intent("slow").'
        both = ("go", "slow")
        old = plain_pack(RULES + '\nmandatory("t") :- intent("slow").', intents=both)
        async with desk(old) as d, d.client() as client:
            await client.say(intent("a", "slow"))
            assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE)
            d.packs.append(plain_pack(rules, intents=both))
            assert await d.revisions.reload() == "swapped"
            assert set(await d.tools(client)) == {"t", "u", "w"}
            gate.open.set()
            assert [one["name"] for one in (await client.answer("a"))["payload"]["macro_tools"]] == ["t"]


@pytest.mark.parametrize("early", [True, False])
async def test_a_reload_under_way_does_not_outlive_the_server(early: bool) -> None:
    """Whether the new revision is open before the old one ends, or after."""
    hold = asyncio.Event()
    hold.set()
    async with desk(hold=hold) as d:
        hold.clear()
        d.packs.append(plain_pack(OTHER))
        reloading = asyncio.create_task(d.revisions.reload())
        await asyncio.sleep(0.01)
        d.revisions.drain()
        if early:
            hold.set()
            assert await reloading == "same"
        closing = asyncio.create_task(d.core.close())
        await asyncio.sleep(0.05)
        hold.set()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(closing, reloading)
        assert len(d.ended) == len(d.shops) == 2


@pytest.mark.req("MANI-06", "MANI-30")
async def test_a_broken_edit_leaves_the_old_edition_and_says_so() -> None:
    async with desk() as d, d.client() as client:
        d.packs.clear()
        assert await d.revisions.reload() == "broken"
        told = (await client.until(lambda one: one["type"] == "manifest", 2))[1]["payload"]
        assert told["status"] == "degraded"
        assert "pack" in told["extensions"]["x-degraded"]
        assert set(await d.tools(client)) == {"t", "w"}
        d.packs.append(plain_pack(OTHER))
        assert await d.revisions.reload() == "swapped"
        told = (await client.until(lambda one: one["type"] == "manifest", 3))[2]["payload"]
        assert told["status"] == "ready"
        assert "x-degraded" not in told["extensions"]


async def test_a_store_that_does_not_answer_degrades_the_server() -> None:
    broken = [True]

    def probe() -> None:
        if broken[0]:
            raise Unusable("it cannot be reached")

    async with desk(settings=ServerSettings(probe_interval=0.01, worker=False), probe=probe) as d, d.client() as client:

        def degraded(one: dict[str, Any]) -> bool:
            return bool(one["type"] == "manifest" and one["payload"]["status"] == "degraded")

        await client.until(degraded)
        assert d.revisions.status == "degraded"
        broken[0] = False
        await client.until(lambda one: one["type"] == "manifest" and one["payload"]["status"] == "ready")


@pytest.mark.req("MANI-01", "MANI-02", "MANI-11", "MANI-25", "MANI-26")
async def test_the_manifest_on_http_says_where_to_ask() -> None:
    async with desk() as d, d.client() as client:
        on_http = json.loads(d.core.manifest(http=True).data)
        in_session = (await client.until(lambda one: one["type"] == "manifest"))[0]
        endpoints = on_http["payload"].pop("endpoints")
        assert endpoints == {
            "intent_eval": "/evaluate",
            "macro_invoke": "/invoke",
            "x-approvals": "/approvals",
            "x-decide": "/decide",
            "x-skills": "/skills",
            "x-facts": "/facts",
        }
        assert on_http == in_session
        assert on_http["id"] is None
        assert on_http["payload"]["auth"] == {"required": False}
        assert "macro_tools" not in json.dumps(on_http)


async def test_an_edition_ends_when_it_is_replaced_and_unused() -> None:
    async with desk() as d:
        with d.revisions.use():
            await d.revisions.reload()
            for _ in range(100):
                await asyncio.sleep(0)
            assert d.ended == []
        async with asyncio.timeout(PATIENCE):
            while not d.ended:
                await asyncio.sleep(0.001)
        assert d.ended == d.shops[:1]
