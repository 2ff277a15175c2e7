"""Request smuggling: bytes behind a request that a proxy and this server read differently are never executed.

Each case is a request, sent on a raw socket, whose body or trailing bytes look like another request. A front-end that
takes them for the body would let a client slip requests past its checks, so they must not be executed here.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import product

import pytest

from manglecp.intent import Identity
from tests.server.desk import PATIENCE, Tokens, encoded, intent, invoke
from tests.server.house import House, house

HOST = b"host: localhost\r\n"
JSON = b"content-type: application/json\r\n"
UPGRADES = {
    "h2c": b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
    "unknown": b"connection: upgrade\r\nupgrade: foo\r\n",
    "websocket": b"connection: upgrade\r\nupgrade: websocket\r\n",
    "keep-alive": b"connection: keep-alive, Upgrade\r\nupgrade: TLS/1.0\r\n",
    "twice": b"connection: upgrade\r\nupgrade: foo\r\nupgrade: bar\r\n",
    "two connections": b"connection: upgrade\r\nconnection: keep-alive\r\nupgrade: h2c\r\n",
}
FIRST = {
    "POST /evaluate": b"POST /evaluate HTTP/1.1\r\n",
    "GET /ws": b"GET /ws HTTP/1.1\r\n",
    "GET /health": b"GET /health HTTP/1.1\r\n",
    "OPTIONS /invoke": b"OPTIONS /invoke HTTP/1.1\r\n",
}


def hidden(tool: str) -> bytes:
    """The request that must not be executed."""
    body = encoded(invoke("hidden", tool, {"n": 1}))
    return b"POST /invoke HTTP/1.1\r\n" + HOST + JSON + b"content-length: %d\r\n\r\n" % len(body) + body


async def tool(h: House) -> str:
    told = (await h.http.post("/evaluate", json=intent())).json()
    return str(next(one["macro_id"] for one in told["payload"]["macro_tools"] if one["name"] == "t"))


async def outcome(h: House, *parts: bytes) -> bytes:
    """Send the parts with a pause in between; everything that the server answered until it closed or was silent."""
    reader, writer = await h.raw(b"")
    heard = b""
    with contextlib.suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.03)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                while data := await reader.read(65_536):
                    heard += data
    writer.close()
    return heard


def split(first: bytes, rest: bytes) -> list[tuple[bytes, ...]]:
    """In one piece, behind the headers, and in the middle of what is hidden."""
    return [(first + rest,), (first, rest), (first + rest[:9], rest[9:])]


async def nothing_ran(h: House) -> None:
    assert h.desk.shop.bench.ran == []
    assert not [one for one in h.desk.handled if one.type == "invoke_request"]
    async with asyncio.timeout(PATIENCE):
        assert (await h.http.get("/health")).status_code == 200


@pytest.mark.parametrize(("first", "upgrade"), list(product(FIRST, UPGRADES)))
async def test_behind_an_upgrade(first: str, upgrade: str) -> None:
    async with house() as h:
        behind = hidden(await tool(h))
        heads = [
            FIRST[first] + HOST + JSON + UPGRADES[upgrade] + length + b"\r\n"
            for length in (b"", b"content-length: %d\r\n" % len(behind))
        ]
        tries = [outcome(h, *parts) for head in heads for parts in split(head, behind)]
        for heard in await asyncio.gather(*tries):
            assert heard.count(b"HTTP/1.1 ") <= 1
            assert b"hidden" not in heard
        await nothing_ran(h)


CHUNKS = b"0\r\n\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(b"content-length: 5\r\ntransfer-encoding: chunked\r\n", id="length and chunks"),
        pytest.param(b"transfer-encoding: chunked\r\ncontent-length: 5\r\n", id="chunks and length"),
        pytest.param(b"transfer-encoding: xchunked\r\n", id="an unknown coding"),
        pytest.param(b"transfer-encoding: chunked, identity\r\n", id="chunks are not last"),
        pytest.param(b"transfer-encoding : chunked\r\n", id="a space before the colon"),
        pytest.param(b"transfer-encoding:\x0bchunked\r\n", id="a vertical tab"),
        pytest.param(b"content-length: 5\r\ncontent-length: 0\r\n", id="two lengths"),
        pytest.param(b"content-length: +5\r\n", id="a signed length"),
        pytest.param(b"content-length: 0x5\r\n", id="a hexadecimal length"),
        pytest.param(b"content-length: 5, 5\r\n", id="a list of lengths"),
        pytest.param(b"x: y\r\n transfer-encoding: chunked\r\ncontent-length: 5\r\n", id="a folded line"),
    ],
)
async def test_behind_an_ambiguous_length(headers: bytes) -> None:
    async with house() as h:
        behind = hidden(await tool(h))
        head = b"POST /evaluate HTTP/1.1\r\n" + HOST + JSON + headers + b"\r\n" + CHUNKS
        for heard in await asyncio.gather(*(outcome(h, *parts) for parts in split(head, behind))):
            assert b"hidden" not in heard
        await nothing_ran(h)


async def test_behind_a_refusal_that_reads_no_body() -> None:
    """The connection ends where the body was not read."""
    async with house() as h:
        behind = hidden(await tool(h))
        for headers in (b"content-type: text/plain\r\n", JSON + b"content-encoding: gzip\r\n"):
            head = b"POST /evaluate HTTP/1.1\r\n" + HOST + headers + b"content-length: %d\r\n\r\n" % len(behind)
            for parts in split(head, behind):
                heard = await outcome(h, *parts)
                assert heard.startswith(b"HTTP/1.1 415 ")
                assert heard.count(b"HTTP/1.1 ") == 1
        await nothing_ran(h)


CHUNKED = b"POST /evaluate HTTP/1.1\r\n" + HOST + JSON + b"transfer-encoding: chunked\r\n\r\n"


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


async def test_a_trailer_is_not_a_header() -> None:
    """A proxy checks headers; a credential or a client address in a trailer would pass it unseen."""
    ann = Identity("ann", frozenset(), "user")
    async with house(auth=Tokens({"good": ann})) as h:
        trailers = b"0\r\nauthorization: Bearer good\r\nx-forwarded-for: 10.0.0.1\r\n\r\n"
        heard = await outcome(h, CHUNKED + chunk(encoded(intent())) + trailers)
        assert heard.startswith(b"HTTP/1.1 401 "), heard
        headers = CHUNKED.replace(HOST, HOST + b"authorization: Bearer good\r\n")
        heard = await outcome(h, headers + chunk(encoded(intent())) + b"0\r\nx-note: 1\r\n\r\n")
        assert heard.startswith(b"HTTP/1.1 200 "), heard


@pytest.mark.parametrize("rest", [b"0\r\nx-long: ", b"5;extension="])
async def test_trailers_and_chunk_extensions_have_a_limit(rest: bytes) -> None:
    async with house() as h:
        reader, writer = await h.raw(CHUNKED + chunk(encoded(intent())) + rest)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                for _ in range(1_000):
                    writer.write(b"a" * 65_536)
                    await writer.drain()
                pytest.fail("64 MB were taken")
        writer.close()
        assert reader is not None
        async with asyncio.timeout(PATIENCE):
            assert (await h.http.get("/health")).status_code == 200
