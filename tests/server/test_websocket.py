"""WebSocket over real sockets: frames, pipelining, pings, sizes, and clients that do not read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from manglecp.intent import Identity
from manglecp.server import binding, listener, websocket
from manglecp.server.config import ServerSettings
from manglecp.server.listener import PING_SECONDS
from tests.server.desk import PATIENCE, Tokens, authenticate, cancel, encoded, intent, invoke
from tests.server.house import ClientConnection, house
from tests.server.slow import slow_evaluations

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def flood(writer: asyncio.StreamWriter) -> None:
    """Messages that are refused at once, and answered, for as long as somebody takes them."""
    body = encoded({**intent("i" * 200), "manglecp": "1999"})
    assert 126 <= len(body) <= 65_535  # the length has two bytes
    while True:
        writer.write(b"\x81\xfe" + len(body).to_bytes(2, "big") + b"\0\0\0\0" + body)
        await writer.drain()


async def hear(ws: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        text = await ws.recv()
    assert isinstance(text, str), "text frames only"
    told: dict[str, Any] = json.loads(text)
    return told


async def say(ws: ClientConnection, message: dict[str, Any] | bytes) -> None:
    await ws.send((message if isinstance(message, bytes) else encoded(message)).decode())


async def ask(ws: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
    await say(ws, message)
    while (told := await hear(ws))["type"] in ("progress", "manifest"):
        pass
    return told


@pytest.mark.req("TRANS-02", "TRANS-04", "TRANS-05", "MANI-01", "CONF-13")
async def test_the_manifest_is_the_first_frame_and_each_message_is_one() -> None:
    async with house() as h, h.websocket() as ws:
        manifest = await hear(ws)
        assert (manifest["type"], manifest["id"]) == ("manifest", None)
        assert "endpoints" not in manifest["payload"]
        told = await ask(ws, intent("a"))
        assert (told["type"], told["id"]) == ("intent_response", "a")
        tools = {one["name"]: one["macro_id"] for one in told["payload"]["macro_tools"]}
        await say(ws, invoke("b", tools["t"], {"n": 5}))
        heard = [await hear(ws)]
        while heard[-1]["type"] == "progress":
            heard.append(await hear(ws))
        assert heard[-1]["payload"]["result"] == {"n": 5}
        assert {one["id"] for one in heard} == {"b"}


@pytest.mark.req("TRANS-32", "TRANS-33")
async def test_pipelined_requests_are_all_answered() -> None:
    async with house() as h, h.websocket() as ws:
        await hear(ws)
        for n in range(60):
            await say(ws, intent(f"i-{n}"))
        assert {(await hear(ws))["id"] for _ in range(60)} == {f"i-{n}" for n in range(60)}


@pytest.mark.req("TRANS-36", "TRANS-38")
async def test_a_request_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        async with house() as h, h.websocket() as ws:
            await hear(ws)
            await say(ws, intent("a", "slow"))
            assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE)
            await say(ws, cancel("a"))
            told = await hear(ws)
            assert (told["id"], told["payload"]["code"]) == ("a", "cancelled")
            gate.open.set()
            assert (await ask(ws, intent("b")))["id"] == "b"


@pytest.mark.req("TRANS-04")
async def test_binary_frames_are_not_used() -> None:
    async with house() as h, h.websocket() as ws, h.websocket() as other:
        await hear(ws)
        await ws.send(encoded(intent("a")))
        with pytest.raises(ConnectionClosed) as closed:
            await hear(ws)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1003
        await hear(other)
        assert (await ask(other, intent("b")))["type"] == "intent_response"


@pytest.mark.req("TRANS-05")
async def test_two_messages_in_one_frame_are_none() -> None:
    async with house() as h, h.websocket() as ws:
        await hear(ws)
        await say(ws, encoded(intent("a")) + b"\n" + encoded(intent("b")))
        told = await hear(ws)
        assert (told["id"], told["payload"]["code"]) == (None, "malformed_message")
        assert (await ask(ws, intent("c")))["id"] == "c"


async def test_what_is_too_long_is_refused_and_what_is_much_longer_ends_it() -> None:
    async with house() as h, h.websocket() as ws:
        await hear(ws)
        limit = h.desk.core.pack_settings.limits.max_message_bytes
        await say(ws, b" " * (limit + 1))
        assert (await hear(ws))["payload"]["details"] == {"limit": limit, "actual": limit + 1}
        assert (await ask(ws, intent("c")))["id"] == "c"
        with contextlib.suppress(ConnectionClosed):  # it may end before all of it is sent
            await say(ws, b" " * (4 * limit + 1))
        with pytest.raises(ConnectionClosed) as closed:
            await hear(ws)
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1009


@pytest.mark.req("SEC-13", "SEC-14", "SEC-15", "SEC-17")
async def test_a_client_authenticates_before_it_asks() -> None:
    ann = Identity("ann", frozenset({"look"}), "user")
    async with house(auth=Tokens({"good": ann})) as h, h.websocket() as ws:
        assert (await hear(ws))["payload"]["auth"]["required"] is True
        assert (await ask(ws, intent("a")))["payload"]["code"] == "auth_required"
        assert (await ask(ws, authenticate("b", "bad")))["payload"]["code"] == "auth_invalid"
        told = await ask(ws, authenticate("c", "good"))
        assert (told["type"], told["id"]) == ("authenticate_response", "c")
        assert told["payload"]["identity"] == "ann"
        assert told["payload"]["permissions"] == ["look"]
        assert (await ask(ws, intent("d")))["type"] == "intent_response"
        async with h.websocket(additional_headers={"authorization": "Bearer good"}) as other:
            await hear(other)
            assert (await ask(other, intent("e")))["type"] == "intent_response"
        async with h.websocket() as third:  # nothing is remembered (TRANS-08)
            await hear(third)
            assert (await ask(third, intent("f")))["payload"]["code"] == "auth_required"


async def test_one_address_cannot_hold_all_connections_without_a_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "_UNAUTHENTICATED_SHARE", 512)  # two of 1,024
    async with house(auth=Tokens({"good": Identity("ann", frozenset(), "user")})) as h, h.websocket() as known:
        await ask(known, authenticate("a", "good"))
        async with h.websocket(), h.websocket() as second:
            with pytest.raises(InvalidStatus) as refused:
                await h.websocket()
            body = json.loads(refused.value.response.body or b"")
            assert (body["payload"]["code"], refused.value.response.status_code) == ("rate_limited", 429)
            await ask(second, authenticate("b", "good"))  # does not count any more
            async with h.websocket() as third:
                assert (await hear(third))["type"] == "manifest"
        async with h.websocket() as next_one, h.websocket():  # the others are closed
            assert (await hear(next_one))["type"] == "manifest"
    async with house() as h, h.websocket(), h.websocket(), h.websocket() as anonymous:  # no credential is needed
        assert (await hear(anonymous))["type"] == "manifest"


async def test_connections_are_not_for_those_who_never_say_who_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "AUTHENTICATION_SECONDS", 1.0)
    ann = Identity("ann", frozenset(), "user")
    async with house(auth=Tokens({"good": ann})) as h, h.websocket() as known, h.websocket() as unknown:
        shown = await h.websocket(additional_headers={"authorization": "Bearer good"})
        await hear(shown)
        await hear(known)
        assert (await ask(known, authenticate("a", "good")))["type"] == "authenticate_response"
        await hear(unknown)
        with pytest.raises(ConnectionClosed) as closed:
            await hear(unknown)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
        await asyncio.sleep(1.0)  # nor later
        for one in (known, shown):
            assert (await ask(one, intent("b")))["type"] == "intent_response"
        await shown.close()


@pytest.mark.req("TRANS-09")
async def test_an_idle_connection_is_pinged() -> None:
    assert PING_SECONDS <= 30
    async with house(ping=0.05) as h:
        reader, writer = await h.raw(UPGRADE)
        async with asyncio.timeout(PATIENCE):
            heard = await reader.readuntil(b"\r\n\r\n")
            assert heard.startswith(b"HTTP/1.1 101 ")
            # A ping with four bytes, and the end when no pong comes.
            assert b"\x89\x04" in await reader.read()
            while h.desk.core.sessions:
                await asyncio.sleep(0.01)
        writer.close()


@pytest.mark.req("MANI-33", "MANI-31", "TRANS-06")
async def test_changes_are_told_and_the_end_is_announced() -> None:
    async with house() as h, h.websocket() as ws:
        await hear(ws)
        h.desk.revisions.degrade("disk", "It is full")
        told = await hear(ws)
        assert (told["type"], told["payload"]["status"]) == ("manifest", "degraded")
        ending = asyncio.create_task(h.listener.end(PATIENCE))
        assert (await hear(ws))["payload"]["status"] == "draining"
        with pytest.raises(ConnectionClosed) as closed:
            await hear(ws)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        assert await ending


async def test_a_client_that_does_not_read_loses_its_connection_and_nobody_else_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(binding, "_MAX_UNACKNOWLEDGED_MS", 500)
    settings = ServerSettings(worker=False, outbox_bytes=65_536, send_timeout=0.2, peer_rate=None)
    async with house(settings=settings) as h, h.websocket() as other:
        await hear(other)
        reader, writer = await h.raw(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        flooding = asyncio.create_task(flood(writer))
        async with asyncio.timeout(PATIENCE):
            while len(h.desk.core.sessions) < 2:
                await asyncio.sleep(0.01)
            while len(h.desk.core.sessions) > 1:
                await asyncio.sleep(0.05)
                assert (await ask(other, intent("x")))["type"] == "intent_response"
            # The kernel ends it: closing it would wait for the client to read.
            with pytest.raises(ConnectionError):
                await flooding
        writer.transport.abort()


async def test_everybody_hears_their_answers_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        async with house() as h, h.websocket() as ws:
            await hear(ws)
            for number in range(30):
                await say(ws, intent(f"i-{number}", "slow"))
            async with asyncio.timeout(PATIENCE):
                while len(h.desk.core.pending) < 30:
                    await asyncio.sleep(0.01)
            ending = asyncio.create_task(h.listener.end(0.0))
            told: list[dict[str, Any]] = []
            with contextlib.suppress(ConnectionClosed):
                while True:
                    told.append(await hear(ws))
            assert ws.close_code == 1001
            answers = {one["id"]: one["payload"]["code"] for one in told if one["type"] == "error"}
            assert answers == {f"i-{number}": "server_not_ready" for number in range(30)}
            gate.open.set()
            assert not await ending


async def test_a_server_does_not_wait_for_a_client_that_does_not_read_its_last_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "_LAST_MESSAGES_SECONDS", 0.2)
    # The end does not come from uvicorn's time limit.
    monkeypatch.setattr(listener, "_LINGER_SECONDS", 100 * round(PATIENCE))
    settings = ServerSettings(worker=False, outbox_bytes=65_536, send_timeout=100 * PATIENCE, peer_rate=None)
    async with house(settings=settings) as h:
        reader, writer = await h.raw(UPGRADE, receive_buffer=65_536)
        await reader.readuntil(b"\r\n\r\n")
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        flooding = asyncio.create_task(flood(writer))
        async with asyncio.timeout(PATIENCE):
            while len(h.desk.core.sessions) < 1:
                await asyncio.sleep(0.01)
            session = next(iter(h.desk.core.sessions))
            assert session._outbox is not None
            while session._outbox.has_room.is_set():  # until the server stops reading, because the client does not read
                await asyncio.sleep(0.01)
            (connection,) = h.listener._server.server_state.connections
            served = connection.transport.get_extra_info("socket")
            inherited = served.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert inherited == binding._MAX_UNACKNOWLEDGED_MS
            served.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1_000
            )  # only now: a slow machine needs longer
            await h.listener.end(0.0)
            with pytest.raises(ConnectionError):
                await flooding
        writer.transport.abort()


async def test_whoever_goes_away_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        async with house() as h:
            async with h.websocket() as ws:
                await hear(ws)
                await say(ws, intent("a", "slow"))
                assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE)
                ws.transport.abort()
            async with asyncio.timeout(PATIENCE):
                while h.desk.core.sessions or h.desk.core.pending:
                    await asyncio.sleep(0.01)
            gate.open.set()
