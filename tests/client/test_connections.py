"""One server over time: retries, lost connections, readiness, identity."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from manglecp.client.connection import Credential, RetryPolicy
from manglecp.client.errors import ConnectionLost, RequestRefused, ServerError
from manglecp.wire import WireError, encode
from manglecp.wire.messages import Authenticate, Authenticated, IntentRequest, InvokeRequest
from tests.client.manifests import manifest as example
from tests.client.scripted import FREE, LOSE, NOTHING, PATIENCE, Scripted, done, tool, tools, wrapped, writes

BUSY = WireError("rate_limited", "slowly", retry_after_ms=1_500)
KNOWN = Authenticated(status="authenticated", identity="ada", permissions=("ship",))
KEYS: dict[str, Any] = {"extensions": {"x-request_key": {}}}


class Clock:
    """Remembers how long was waited, and waits no time."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        await asyncio.sleep(0)


# --- retries ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("CLI-06", "CLI-07", "ERR-47")
async def test_who_is_told_to_wait_waits_and_asks_again() -> None:
    clock = Clock()
    server = Scripted(BUSY, WireError("server_not_ready", "booting"), WireError("rate_limited", "no"), tools())
    async with server.client(
        sleep=clock.sleep, retry_policy=RetryPolicy(first_delay_ms=100, jitter=lambda: 0.0)
    ) as client:
        await client.evaluate("go")
    assert clock.waited == [1.5, 0.1, 0.2]


@pytest.mark.req("CLI-08", "WIRE-07")
@pytest.mark.parametrize("trouble", [BUSY, LOSE])
async def test_five_retries_and_no_sixth(trouble: Any) -> None:
    """Whatever the reason; each with an id of its own, and the same payload (OPEN-43)."""
    server = Scripted(trouble)
    async with server.client() as client:
        with pytest.raises((ServerError, ConnectionLost)):
            await client.evaluate("go", {"n": 1})
    assert len(server.intents) == 6
    assert len({one.id for one in server.intents}) == 6
    assert len({str(one.payload) for one in server.intents}) == 1


@pytest.mark.req("CLI-08")
async def test_reasons_are_counted_together() -> None:
    server = Scripted(BUSY, LOSE, BUSY, LOSE, BUSY, LOSE, tools())
    async with server.client() as client:
        with pytest.raises(ConnectionLost):
            await client.evaluate("go")
        assert len(await client.evaluate("go")) == 0


@pytest.mark.req("ERR-48")
@pytest.mark.parametrize("code", ["evaluation_timeout", "invalid_facts", "internal_error", "auth_insufficient"])
async def test_other_errors_are_the_callers(code: str) -> None:
    server = Scripted(WireError(code, "no", retry_after_ms=5))
    async with server.client() as client:
        with pytest.raises(ServerError, match=code):
            await client.evaluate("go")
    assert len(server.intents) == 1


# --- connections that are lost ---------------------------------------------------------------------------------------


@pytest.mark.req("TRANS-07", "TRANS-08", "MANI-34")
async def test_after_a_loss_everything_is_new() -> None:
    """The manifest, the identity, and then the request."""
    server = Scripted(KNOWN, tools(tool()), LOSE, KNOWN, tools(), auth={"required": True, "schemes": ["bearer"]})
    async with server.client(token="s3cret") as client:
        await client.evaluate("go")
        server.manifest = Scripted(server_name="Another", auth={"required": True, "schemes": ["bearer"]}).manifest
        await client.evaluate("go")
        assert client.manifest.server_name == "Another"
    kinds = [type(one) for one in server.received]
    assert kinds == [Authenticate, IntentRequest, IntentRequest, Authenticate, IntentRequest]
    assert len(server.sessions) == 2


async def test_all_that_wait_hear_of_a_loss() -> None:
    server = Scripted(NOTHING, NOTHING, LOSE)
    async with server.client(retry_policy=RetryPolicy(max_retries=0)) as client:
        asking = [client.evaluate("go", {"n": n}) for n in range(3)]
        failed = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), PATIENCE)
    assert [type(one) for one in failed] == [ConnectionLost] * 3


async def test_an_invocation_is_repeated_where_the_server_keeps_keys() -> None:
    server = Scripted(tools(writes()), LOSE, done(), **KEYS)
    async with server.client() as client:
        await client.evaluate("go")
        assert (await client.invoke("t")).result == {"ok": True}
    first, second = server.invocations
    assert first.payload == second.payload
    assert first.payload.request_key


async def test_an_invocation_with_effects_is_not_repeated_blindly() -> None:
    server = Scripted(tools(writes(), tool("r"), writes("i", idempotent=True)), LOSE, done())
    async with server.client() as client:
        await client.evaluate("go")
        with pytest.raises(ConnectionLost):
            await client.invoke("t")
        assert len(server.invocations) == 1
        server.answers = [LOSE, done()]
        await client.invoke("r")
        server.answers = [LOSE, done()]
        await client.invoke("i")
    assert len(server.invocations) == 5


async def test_what_was_never_sent_may_be_sent_later() -> None:
    """A tool with effects, and a connection that was gone before."""
    server = Scripted(tools(writes()), done())
    async with server.client() as client:
        await client.evaluate("go")
        server.transport.lose()
        await _until(lambda: not server.transport.connected)
        server.unreachable = 2
        await client.invoke("t")
        server.transport.lose()
        await _until(lambda: not server.transport.connected)
        server.answers, server.unreachable = [tools()], 5
        await client.evaluate("go")
        server.transport.lose()
        await _until(lambda: not server.transport.connected)
        server.unreachable = 6
        with pytest.raises(ConnectionLost):
            await client.evaluate("go")
    assert len(server.invocations) == 1
    assert len(server.sessions) == 3


async def test_a_closed_client_asks_nothing() -> None:
    server = Scripted(tools())
    async with server.client() as client:
        pass
    with pytest.raises(RequestRefused, match="not_connected"):
        await client.evaluate("go")
    with pytest.raises(RequestRefused, match="not_connected"):
        _ = server.client().manifest
    assert server.received == []


# --- readiness -------------------------------------------------------------------------------------------------------


@pytest.mark.req("CLI-14", "MANI-28", "MANI-33", "MANI-34")
async def test_nothing_is_sent_while_the_server_boots() -> None:
    seen: list[str] = []
    server = Scripted(tools(), status="booting")
    async with server.client(on_manifest=lambda told: seen.append(told.status)) as client:
        asking = asyncio.create_task(client.evaluate("go"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert server.received == []
        await server.push(status="ready", server_version="2")
        assert len(await asyncio.wait_for(asking, PATIENCE)) == 0
        assert client.manifest.server_version == "2"
    assert seen == ["booting", "ready"]


@pytest.mark.req("CLI-14", "MANI-28")
async def test_who_waits_until_the_server_is_ready_has_its_newest_manifest() -> None:
    server = Scripted(tools(), status="booting")
    async with server.client() as client:
        waiting = asyncio.create_task(client.ready())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        await server.push(status="ready", server_version="2")
        assert (await asyncio.wait_for(waiting, PATIENCE)).server_version == "2"
        assert (await client.ready()).server_version == "2"
    assert server.received == []


@pytest.mark.req("CLI-14", "MANI-28")
async def test_who_waits_too_long_for_a_server_that_boots_gives_up() -> None:
    server = Scripted(tools(), status="booting")
    async with server.client(boot_seconds=0.05) as client:
        with pytest.raises(RequestRefused, match="server_not_ready"):
            await client.evaluate("go")
        with pytest.raises(RequestRefused, match="server_not_ready"):
            await client.ready()
    assert server.received == []


@pytest.mark.req("CLI-14", "MANI-31")
async def test_nothing_new_is_sent_while_the_server_drains() -> None:
    """What was sent before may still be answered."""
    server = Scripted(tools(tool()), NOTHING, tools())
    async with server.client(boot_seconds=0.05) as client:
        await client.evaluate("go")
        running = asyncio.create_task(client.invoke("t"))
        asked = await server.until(InvokeRequest)
        await server.push(status="draining")
        await _until(lambda: client.manifest.status == "draining")
        with pytest.raises(RequestRefused, match="draining"):
            await client.evaluate("go")
        await server.sessions[0].send(encode(wrapped(asked, done())))
        assert (await running).result == {"ok": True}
    assert len(server.intents) == 1
    assert len(server.sessions) == 1


@pytest.mark.req("CLI-14", "MANI-31", "TRANS-08")
async def test_where_a_server_drains_another_one_is_looked_for() -> None:
    """At the same address, once what this one was asked is answered."""
    server = Scripted(tools(tool()), NOTHING, tools())
    async with server.client() as client:
        await client.evaluate("go")
        running = asyncio.create_task(client.invoke("t"))
        asked = await server.until(InvokeRequest)
        await server.push(status="draining")
        await _until(lambda: client.manifest.status == "draining")
        server.manifest = example(**FREE)
        waiting = asyncio.create_task(client.evaluate("go"))
        await asyncio.sleep(0)
        await server.sessions[0].send(encode(wrapped(asked, done())))
        assert (await running).result == {"ok": True}
        async with asyncio.timeout(PATIENCE):
            await waiting
    assert (len(server.sessions), len(server.intents)) == (2, 2)


@pytest.mark.req("MANI-30")
async def test_a_degraded_server_is_asked() -> None:
    server = Scripted(tools(), status="degraded")
    async with server.client() as client:
        assert len(await client.evaluate("go")) == 0


# --- identity --------------------------------------------------------------------------------------------------------


@pytest.mark.req("SEC-13")
async def test_the_client_authenticates_before_anything_else() -> None:
    server = Scripted(KNOWN, tools(), auth={"required": True, "schemes": ["api_key", "bearer"]})
    async with server.client(token="s3cret") as client:
        assert client.identity == KNOWN
        await client.evaluate("go")
    first = server.received[0]
    assert isinstance(first, Authenticate)
    assert (first.payload.scheme, first.payload.token) == ("bearer", "s3cret")


@pytest.mark.req("TRANS-35")
async def test_what_depends_on_the_identity_is_sent_after_the_answer_about_it() -> None:
    server = Scripted(NOTHING, tools(), auth={"required": True, "schemes": ["bearer"]})
    client = server.client(token="s3cret")
    connecting = asyncio.create_task(client.connect())
    first = await server.until(Authenticate)
    asking = asyncio.create_task(client.evaluate("go"))
    for _ in range(50):
        await asyncio.sleep(0)
    assert server.received == [first]
    await server.sessions[0].send(encode(wrapped(first, KNOWN)))
    await asyncio.wait_for(asyncio.gather(connecting, asking), PATIENCE)
    await client.close()
    assert [type(one) for one in server.received] == [Authenticate, IntentRequest]


async def test_without_a_token_nothing_is_asked_of_a_server_that_wants_one() -> None:
    server = Scripted(tools(), auth={"required": True, "schemes": ["bearer"]})
    async with server.client() as client:
        with pytest.raises(RequestRefused, match="auth_required"):
            await client.evaluate("go")
    assert server.received == []


async def test_a_token_that_does_not_hold_ends_the_matter() -> None:
    server = Scripted(WireError("auth_invalid", "no"), auth={"required": True, "schemes": ["api_key"]})
    client = server.client(token="s3cret")
    with pytest.raises(ServerError, match="auth_invalid"):
        await client.connect()
    assert not server.transport.connected
    await client.close()
    with pytest.raises(RequestRefused, match="api_key only"):
        await server.client(token="s3cret", scheme="bearer").connect()
    assert len(server.received) == 1


async def test_a_token_is_renewed_once_when_it_is_no_longer_taken() -> None:
    tokens = iter(["old", "new", "newest"])
    server = Scripted(
        KNOWN, WireError("auth_invalid", "expired"), KNOWN, tools(), auth={"required": True, "schemes": ["bearer"]}
    )
    async with server.client(token=lambda: next(tokens)) as client:
        await client.evaluate("go")
    said = [one.payload.token for one in server.received if isinstance(one, Authenticate)]
    assert said == ["old", "new"]


async def test_a_server_that_takes_no_credentials_gets_none() -> None:
    server = Scripted(tools())
    async with server.client(token="s3cret") as client:
        await client.evaluate("go")
    assert [type(one) for one in server.received] == [IntentRequest]


def test_secrets_show_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")

    async def use() -> list[object]:
        server = Scripted(KNOWN, BUSY, LOSE, KNOWN, tools(), auth={"required": True, "schemes": ["bearer"]})
        async with server.client(token="s3cret") as client:
            await client.evaluate("go")
            return [client, server.received[0], client.identity]

    shown = [*asyncio.run(use()), Credential("s3cret")]
    assert caplog.records
    assert "s3cret" not in caplog.text + "".join(map(repr, shown))


async def _until(holds: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0)
