"""Clients that mean harm, over real sockets: whatever they send, everybody else is answered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from manglecp.intent import Identity
from manglecp.server import listener
from tests.server.desk import PATIENCE, Tokens, encoded, intent, invoke
from tests.server.house import JSON, House, house

HEAD = b"POST /evaluate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
DEEP = b'{"a":' * 100_000
BOMBS = [
    pytest.param(DEEP, id="deep objects"),
    pytest.param(b"[" * 100_000, id="deep arrays"),
    pytest.param(b'{"type":"' + b"x" * 900_000 + b'"}', id="a long word"),
    pytest.param(b'{"type":"intent_request","id":"\xff"}', id="no UTF-8"),
    pytest.param(b'{"n":NaN}', id="not a number"),
    pytest.param(b'{"n":' + b"9" * 5_000 + b"}", id="a long number"),
    pytest.param(b'{"id":"a","id":"b"}', id="a key twice"),
    pytest.param(b"\xef\xbb\xbf{}", id="a byte order mark"),
    pytest.param(b"null", id="nothing"),
]


async def fine(h: House) -> None:
    answer = await h.http.post("/evaluate", content=encoded(intent("z")), headers=JSON)
    assert (answer.status_code, answer.json()["id"]) == (200, "z")


@pytest.mark.parametrize("bomb", BOMBS)
async def test_bombs_for_the_parser(bomb: bytes) -> None:
    async with house() as h, h.websocket() as ws:
        answer = await h.http.post("/evaluate", content=bomb, headers=JSON)
        assert (answer.status_code, answer.json()["payload"]["code"]) == (400, "malformed_message")
        await ws.recv()
        if bomb.isascii():
            await ws.send(bomb.decode())
            async with asyncio.timeout(PATIENCE):
                assert json.loads(await ws.recv())["payload"]["code"] == "malformed_message"
        await fine(h)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", id="TLS"),
        pytest.param(b"GET\r\n\r\n", id="no request line"),
        pytest.param(b"PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n", id="no host"),
        pytest.param(HEAD + b"content-length: -1\r\n\r\n", id="a negative length"),
        pytest.param(HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab", id="two lengths"),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\nZZ\r\n", id="a broken chunk"),
    ],
)
async def test_bytes_that_are_no_http_end_their_connection_only(sent: bytes) -> None:
    """The HTTP parser answers them, without a message: it knows nothing of the protocol."""
    async with house() as h:
        reader, writer = await h.raw(sent)
        async with asyncio.timeout(PATIENCE):
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        assert not h.desk.core.pending
        await fine(h)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"x: " + b"a" * 1_000, id="many headers"),
        pytest.param(b"a" * 1_000, id="one endless header"),
    ],
)
async def test_headers_without_end_are_refused(line: bytes) -> None:
    ending = b"\r\n" if b":" in line else b""
    async with house() as h:
        reader, writer = await h.raw(HEAD + b"x: ")
        closed = False
        try:
            for _ in range(20_000):  # 20 MB: far more than sockets buffer
                writer.write(line + ending)
                await writer.drain()
                if reader.at_eof():
                    closed = True
                    break
        except ConnectionError:
            closed = True
        assert closed
        writer.close()
        assert not h.desk.core.pending
        await fine(h)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(UPGRADE.replace(b"\r\n\r\n", b"\r\ncontent-length: 3\r\n\r\nabc"), id="with a body"),
        pytest.param(UPGRADE[:-2] + b"x: y\r\n" * 200 + b"\r\n", id="with many headers"),
        pytest.param(UPGRADE.replace(b"13", b"12"), id="of another version"),
        pytest.param(UPGRADE.replace(b"sec-websocket-key", b"x"), id="without a key"),
    ],
)
async def test_a_bad_handshake_begins_no_session(sent: bytes) -> None:
    async with house() as h:
        reader, writer = await h.raw(sent)
        await fine(h)
        assert not h.desk.core.sessions
        writer.close()
        del reader


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\xff\xff\xff\xff", id="a reserved frame"),
        pytest.param(b"\x81\x05hello", id="a frame without its mask"),
        pytest.param(b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", id="an endless frame"),
        pytest.param(b"\x81\x82\0\0\0\0\xff\xfe", id="text that is no UTF-8"),
        pytest.param(b"\x80\x80\0\0\0\0", id="a continuation of nothing"),
        pytest.param(b"\x89\xfe\x01\x00\0\0\0\0" + b"x" * 256, id="a long ping"),
    ],
)
async def test_frames_that_are_none_end_their_connection_only(sent: bytes) -> None:
    async with house() as h, h.websocket() as other:
        await other.recv()
        reader, writer = await h.raw(UPGRADE)
        async with asyncio.timeout(PATIENCE):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(sent)
            heard = await reader.read()
        assert b"\x88" in heard  # it is closed, and told why
        writer.close()
        await other.send(encoded(intent("a")).decode())
        async with asyncio.timeout(PATIENCE):
            assert json.loads(await other.recv())["id"] == "a"
            while len(h.desk.core.sessions) > 1:
                await asyncio.sleep(0.01)


async def test_a_connection_that_nobody_uses_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_KEEP_ALIVE_SECONDS", 0.6)
    async with house() as h:
        reader, writer = await h.raw(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            await reader.readuntil(b"}")
            assert await reader.read() == b""
        writer.close()


async def test_nobody_is_told_of_the_tools_of_others() -> None:
    """A tool that was proven for one client is no tool for another: the same answer as for one that never was."""
    known = {"a": Identity("ann", frozenset(), "user"), "b": Identity("bob", frozenset(), "user")}
    async with house(auth=Tokens(known)) as h:

        async def ask(token: str, path: str, message: dict[str, Any]) -> dict[str, Any]:
            headers = {**JSON, "authorization": f"Bearer {token}"}
            told: dict[str, Any] = (await h.http.post(path, content=encoded(message), headers=headers)).json()
            return told

        mine = await ask("a", "/evaluate", intent("i"))
        [tool] = [one for one in mine["payload"]["macro_tools"] if one["name"] == "t"]
        foreign = await ask("b", "/invoke", invoke("x", tool["macro_id"], {"n": 1}))
        unknown = await ask("b", "/invoke", invoke("x", "m-0000000000000000", {"n": 1}))
        assert foreign["payload"]["code"] == "macro_not_found"
        assert json.dumps(foreign).replace(tool["macro_id"], "m") == json.dumps(unknown).replace(
            "m-0000000000000000", "m"
        )
        assert (await ask("a", "/invoke", invoke("y", tool["macro_id"], {"n": 1})))["type"] == "invoke_response"
