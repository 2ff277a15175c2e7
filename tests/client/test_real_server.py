"""The client and the server of this project, over each way they can meet in one process."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from manglecp.client.approval import ApprovalRequest
from manglecp.client.client import Client
from manglecp.client.connection import RetryPolicy
from manglecp.client.errors import ConnectionLost, RequestRefused, ServerError
from manglecp.client.transports import MemoryTransport
from manglecp.intent import Identity
from manglecp.pack import Pack
from manglecp.server import Tls
from tests.invoke.chains import chain, steps
from tests.server.certificates import certificate
from tests.server.desk import PATIENCE, Tokens
from tests.server.house import House, house

ROOT = Path(__file__).resolve().parents[2]
WAYS = ("memory", "websocket", "http")
ADA = Identity("ada", frozenset({"explain_policy"}), "user")
EVE = Identity("eve", frozenset({"approve"}), "user")
BOTH = Tokens({"s3cret": ADA, "approver": EVE})
CHAIN = (
    steps("look", "write"),
    'asserts("done", [N], "server") :- ran("t"), run_arg("n", N).',
    'retracts("done", [/_]) :- ran("t").',
    'suggests("later", ["n": N], "Because of it.") :- ran("t"), run_arg("n", N).',
    'continues_with("held", [N, "on"]) :- ran("t"), run_arg("n", N).',
    'macro("u", "Later."). macro_step("u", 1, "look"). mandatory("u") :- intent("later"), done(N), held(N, "on").',
)


@asynccontextmanager
async def meeting(way: str, pack: Pack, **options: Any) -> AsyncIterator[tuple[House, Client]]:
    work, auth = options.pop("work", None), options.pop("auth", None)
    async with house(pack, work, auth=auth) as h, Client(target(way, h), **options) as client:
        yield h, client


@pytest.mark.req("CLI-01", "NEXT-03", "NEXT-05", "NEXT-06", "TRANS-01")
@pytest.mark.parametrize("way", WAYS)
async def test_from_an_intent_to_the_next(way: str) -> None:
    told: list[str] = []
    async with meeting(way, chain(*CHAIN), on_progress=lambda p: told.append(p.status)) as (h, client):
        client.state.add([{"pred": "done", "args": [0]}])
        found = await client.evaluate("go")
        with pytest.raises(RequestRefused, match="schema_validation_failed"):
            await client.invoke(found["t"], {"n": "one"})
        outcome = await client.invoke(found["t"], {"n": 7})
        assert [(one["pred"], one["args"]) for one in client.state] == [("done", [7])]
        assert len(await client.evaluate("later")) == 0, "the server keeps nothing of what went before"
        further = await client.follow(outcome)
        assert [one.name for one in further] == ["u"]
        assert [name for name, _ in h.desk.shop.bench.ran] == ["look", "write"]
    assert bool(told) == (way != "http")


@pytest.mark.req("SEC-34")
@pytest.mark.parametrize("scheme", ["https", "wss"])
async def test_whom_the_system_trusts_is_trusted(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = certificate(tmp_path)
    async with house(chain(*CHAIN), tls=Tls(*made), trusting=ssl.create_default_context(cafile=made[0])) as h:
        url = f"{scheme}://localhost:{h.port}/ws"
        with pytest.raises(ConnectionLost, match="self-signed certificate"):
            async with Client(url, retry_policy=RetryPolicy(max_retries=0)):
                pass
        monkeypatch.setenv("SSL_CERT_FILE", str(made[0]))
        async with Client(url) as client:
            assert "t" in await client.evaluate("go")


def target(way: str, h: House) -> Any:
    return {"memory": MemoryTransport(h.desk.core, like="websocket"), "http": h.url}.get(
        way, f"ws://127.0.0.1:{h.port}/ws"
    )


@pytest.mark.req("CLI-05", "SEC-22")
@pytest.mark.parametrize("way", WAYS)
async def test_a_person_approves_with_another_credential(way: str) -> None:
    texts: list[str] = []
    pack = chain(steps("write"), 'needs_confirmation("t").')
    async with meeting(way, pack, auth=BOTH, token="s3cret") as (h, client):
        async with Client(target(way, h), token="approver") as approver:

            async def approve(request: ApprovalRequest) -> bool:
                assert request.approval is not None
                shown = await approver.approval(request.approval)
                assert (shown.requester, shown.state) == ("ada", "pending")
                texts.append(str(shown.text))
                return (await approver.approve(shown.id)).state == "approved"

            await client.evaluate("go")
            await client.invoke("t", {"n": 1}, on_confirm=approve)
            assert len(h.desk.shop.bench.ran) == 1
            with pytest.raises(RequestRefused, match="confirmation_declined"):
                await client.invoke("t", {"n": 2}, on_confirm=lambda _: None)
            with pytest.raises(ServerError, match="confirmation_invalid"):
                await client.invoke("t", {"n": 2}, approval="v1.forged")
            with pytest.raises(ServerError, match="needs the permission approve"):
                await client.invoke("t", {"n": 2}, on_confirm=lambda one: _approve(client, one))
            (left,) = await approver.approvals()
            await approver.deny(left.id)
            with pytest.raises(ServerError, match="the approver denied this call"):
                await client.invoke("t", {"n": 2}, approval=left.id)
        assert len(h.desk.shop.bench.ran) == 1
    assert len(texts) == 1
    assert "1. write(n = 1)" in texts[0]


async def _approve(client: Client, request: ApprovalRequest) -> bool:
    assert request.approval is not None
    return (await client.approve(request.approval)).state == "approved"


@pytest.mark.parametrize("way", WAYS)
async def test_a_client_waits_for_the_decision(way: str) -> None:
    pack = chain(steps("write"), 'needs_confirmation("t").')
    async with meeting(way, pack, auth=BOTH, token="s3cret", sleep=lambda _: asyncio.sleep(0.02)) as (h, client):
        await client.evaluate("go")
        running = asyncio.create_task(client.invoke("t", {"n": 1}, wait_for_approval=PATIENCE))
        async with Client(target(way, h), token="approver") as approver:
            while not (waiting := await approver.approvals()):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert not running.done()
            await approver.approve(waiting[0].id)
        await asyncio.wait_for(running, PATIENCE)
        assert len(h.desk.shop.bench.ran) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_who_asks_is_known(way: str) -> None:
    auth = Tokens({"s3cret": ADA})
    rules = ('macro_step("t", 1, "look").',)
    pack = chain(*rules, when='mandatory("t") :- intent("go"), client("ada").')
    async with meeting(way, pack, auth=auth, token="s3cret", scheme="api_key") as (_, client):
        assert [one.name for one in await client.evaluate("go")] == ["t"]
        assert (client.identity is None) == (way == "http")
    with pytest.raises((ServerError, RequestRefused)):
        async with meeting(way, pack, auth=auth, token="wrong") as (_, client):
            await client.evaluate("go")


@pytest.mark.req("TRANS-36", "TRANS-38", "TRANS-40")
@pytest.mark.parametrize("way", WAYS)
async def test_a_run_that_is_cancelled_stops(way: str) -> None:
    begun = asyncio.Event()

    async def look(given: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        await asyncio.sleep(600)
        return given

    async with meeting(way, chain(steps("look", "write")), work={"look": look}) as (h, client):
        await client.evaluate("go")
        running = asyncio.create_task(client.invoke("t", {"n": 1}))
        await asyncio.wait_for(begun.wait(), PATIENCE)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        async with asyncio.timeout(PATIENCE):
            while not any(one.code == "cancelled" for one in h.desk.handled):
                await asyncio.sleep(0.01)
        assert [name for name, _ in h.desk.shop.bench.ran] in ([], ["look"])


@pytest.mark.req("MANI-33", "MANI-34")
@pytest.mark.parametrize("way", ["memory", "websocket"])
async def test_a_reload_brings_a_new_manifest(way: str) -> None:
    news: asyncio.Queue[Any] = asyncio.Queue()
    async with meeting(way, chain(steps("look")), on_manifest=news.put_nowait) as (h, client):
        first = await asyncio.wait_for(news.get(), PATIENCE)
        before = await client.evaluate("go")
        h.desk.packs.append(chain(steps("look", "look")))
        await h.desk.revisions.reload()
        second = await asyncio.wait_for(news.get(), PATIENCE)
        assert first.extensions["x-pack_digest"] != second.extensions["x-pack_digest"]
        with pytest.raises(ServerError, match="macro_expired"):
            await client.invoke(before["t"], {"n": 1})


async def test_an_invocation_survives_a_lost_connection_and_happens_once() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def write(given: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        await go.wait()
        return given

    async with house(chain(steps("write")), {"write": write}) as h:
        transport = MemoryTransport(h.desk.core)
        async with Client(transport) as client:
            await client.evaluate("go")
            running = asyncio.create_task(client.invoke("t", {"n": 1}))
            await asyncio.wait_for(begun.wait(), PATIENCE)
            transport.lose()
            async with asyncio.timeout(PATIENCE):
                while transport.connected:
                    await asyncio.sleep(0)
            go.set()
            outcome = await asyncio.wait_for(running, PATIENCE)
            assert outcome.result == {"n": 1}
        assert len(h.desk.shop.bench.ran) == 1


@pytest.mark.req("TRANS-25", "TRANS-31", "MANI-28", "CLI-14")
async def test_a_server_that_is_started_boots_answers_and_ends(tmp_path: Path) -> None:
    """The manifest comes before the pack is loaded; the client waits for the next one."""
    recorded = json.loads((ROOT / "examples" / "incident" / "recorded" / "diagnose_error.json").read_bytes())
    words = [
        "serve",
        str(ROOT / "examples" / "incident"),
        "--stdio",
        "--degrade",
        "--store",
        str(tmp_path / "store.db"),
    ]
    async with Client([sys.executable, "-m", "manglecp", *words], connect_seconds=PATIENCE) as client:
        found = await asyncio.wait_for(client.evaluate("diagnose_error", facts=recorded["payload"]["facts"]), PATIENCE)
        assert client.manifest.status != "booting"
        assert "list_failures" in found
        assert (await client.upgrade("list_failures")).level == "full"
