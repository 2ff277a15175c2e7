"""Request smuggling: bytes behind a request that a proxy and this server read differently are never executed.

Each case is a request, sent on a raw socket, whose body or trailing bytes look like another request. A front-end that
takes them for the body would let a client slip requests past its checks, so they must not be executed here. The last
tests send them through nginx, with the configuration of the manual.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from manglecp.intent import Identity
from manglecp.server import listener
from manglecp.server.app import App
from manglecp.server.config import ServerSettings, parse_network
from manglecp.server.metrics import Metrics
from tests.replicas.proxies import has_nginx, proxy
from tests.server.certificates import certificate
from tests.server.desk import PATIENCE, Tokens, encoded, intent, invoke
from tests.server.house import House, house

HOST = b"host: localhost\r\n"
JSON = b"content-type: application/json\r\n"
KEY = b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
UPGRADES = {
    "h2c": b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
    "unknown": b"connection: upgrade\r\nupgrade: x\r\n",
    "websocket": b"connection: upgrade\r\nupgrade: websocket\r\n",
    "capitals": b"Connection: UPGRADE\r\nUPGRADE: WebSocket\r\n" + KEY,
    "keep-alive": b"connection: keep-alive, Upgrade\r\nupgrade: TLS/1.0\r\n",
    "twice": b"connection: upgrade\r\nupgrade: foo\r\nupgrade: bar\r\n",
    "websocket last": b"connection: upgrade\r\nupgrade: foo\r\nupgrade: websocket\r\n" + KEY,
    "websocket first": b"connection: upgrade\r\nupgrade: websocket, foo\r\n" + KEY,
    "two connections": b"connection: upgrade\r\nconnection: keep-alive\r\nupgrade: h2c\r\n",
    "no connection": b"upgrade: websocket\r\n" + KEY,
    "empty": b"connection: upgrade\r\nupgrade:\r\n",
}
REFUSED = (b"", b"426")
"""The reset of a connection may overtake the response."""
OTHERWISE = (b"101", b"400", b"404", b"405")
"""What the libraries and the path say to requests that claim to be a WebSocket handshake, and what one gets that is."""
FIRST = (
    b"POST /evaluate HTTP/1.1\r\n",
    b"POST /ws HTTP/1.1\r\n",
    b"GET /ws HTTP/1.1\r\n",
    b"GET /health HTTP/1.1\r\n",
    b"DELETE /evaluate HTTP/1.1\r\n",
)
CHUNKS = b"0\r\n\r\n"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that the application was given."""
    paths: list[str] = []
    call = App.__call__

    async def counted(self: App, scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["path"])
        await call(self, scope, receive, send)

    monkeypatch.setattr(App, "__call__", counted)
    monkeypatch.setattr(listener, "_WATCH_SECONDS", 0.02)
    return paths


def post(path: bytes, body: bytes, headers: bytes = b"") -> bytes:
    length = b"content-length: %d\r\n\r\n" % len(body)
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + JSON + headers + length + body


def hidden(tool: str) -> bytes:
    """The request that must not be executed."""
    return post(b"/invoke", encoded(invoke("hidden", tool, {"n": 1})), b"x-forwarded-for: 10.0.0.1\r\n")


async def tool(h: House) -> str:
    told = (await h.http.post("/evaluate", json=intent())).json()
    return str(next(one["macro_id"] for one in told["payload"]["macro_tools"] if one["name"] == "t"))


async def outcome(h: House, *parts: bytes, silence: float = 0.3) -> tuple[bytes, bool]:
    """Send the parts with a pause in between; what the server answered until it closed or was silent, and if it closed.

    The bytes that arrive behind a response may reset the connection.
    """
    reader, writer = await h.raw(b"")
    heard, closed = b"", True
    with contextlib.suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.03)
    with contextlib.suppress(ConnectionError):
        try:
            async with asyncio.timeout(silence):
                while data := await reader.read(65_536):
                    heard += data
        except TimeoutError:
            closed = False
    writer.close()
    return heard, closed


def split(first: bytes, rest: bytes) -> list[tuple[bytes, ...]]:
    """In one piece, behind the headers, and in the middle of what is hidden."""
    return [(first + rest,), (first, rest), (first + rest[:9], rest[9:])]


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


async def nothing_ran(h: House) -> None:
    assert h.desk.shop.bench.ran == []
    assert not [one for one in h.desk.handled if one.type == "invoke_request"]
    async with asyncio.timeout(PATIENCE):
        assert (await h.http.get("/health")).status_code == 200


def hiding(head: bytes, behind: bytes) -> list[tuple[bytes, ...]]:
    """The request in a body, behind a body, and behind nothing."""
    chunked = head + b"transfer-encoding: chunked\r\n\r\n"
    return [
        *split(head + b"\r\n", behind),
        *split(head + b"content-length: 0\r\n\r\n", behind),
        *split(head + b"content-length: 2\r\n\r\n", b"{}" + behind + behind),
        *split(head + b"content-length: %d\r\n\r\n" % len(behind), behind),
        *split(chunked, chunk(behind) + CHUNKS + behind),
        *split(chunked, CHUNKS + behind),
    ]


@pytest.mark.parametrize("upgrade", UPGRADES)
async def test_behind_an_upgrade(upgrade: str, asked: list[str]) -> None:
    async with house(ping=0.5) as h:  # whoever was accepted is closed by it
        behind = hidden(await tool(h))
        tries = [parts for first in FIRST for parts in hiding(first + HOST + JSON + UPGRADES[upgrade], behind)]
        del asked[:]
        heard = await asyncio.gather(*(outcome(h, *parts, silence=PATIENCE) for parts in tries))
        for parts, (response, closed) in zip(tries, heard, strict=True):
            assert closed, parts
            assert response.count(b"HTTP/1.1 ") <= 1, response
            claimed = b"websocket" in UPGRADES[upgrade].lower()
            assert response[9:12] in (REFUSED + OTHERWISE if claimed else REFUSED), (parts, response)
            assert b"close" in response.lower() or response[9:12] in (b"", b"101")
        assert any(response for response, _ in heard)
        assert len(asked) <= len(tries)
        assert "/invoke" not in asked
        await nothing_ran(h)


@pytest.mark.parametrize("upgrade", [b"x", b"h2c", b"websocket"])
async def test_a_request_behind_a_long_body(upgrade: bytes, asked: list[str]) -> None:
    """What a parser that stops at the headers takes for empty lines is longer than one read."""
    async with house() as h:
        body = b"\r\n" * 300_000 + hidden(await tool(h))
        del asked[:]
        heard, closed = await outcome(
            h,
            post(b"/evaluate", body, b"connection: upgrade\r\nupgrade: " + upgrade + b"\r\n")
            + b"GET /health HTTP/1.1\r\n"
            + HOST
            + b"\r\n",
            silence=PATIENCE,
        )
        assert closed
        assert heard.count(b"HTTP/1.1 ") <= 1, heard  # the reset of the connection may overtake the answer
        assert asked in (["/evaluate"], [])
        await nothing_ran(h)


async def test_the_refusal_of_an_upgrade() -> None:
    async with house() as h:
        for headers in (b"", b"content-length: 2\r\n"):
            first = b"POST /evaluate HTTP/1.1\r\n" + HOST + headers + UPGRADES["h2c"] + b"\r\n"
            heard, closed = await outcome(h, first + b"{}", silence=PATIENCE)
            head, _, body = heard.partition(b"\r\n\r\n")
            assert closed
            assert head.startswith(b"HTTP/1.1 426 ")
            assert json.loads(body)["payload"]["code"] == "x-upgrade_required"
        async with h.websocket() as ws:
            assert json.loads(await ws.recv())["type"] == "manifest"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param(b"GET /ws HTTP/1.1\r\ncontent-length: 3\r\n", b"426", id="a body"),
        pytest.param(b"GET /ws HTTP/1.1\r\ntransfer-encoding: chunked\r\n", b"426", id="chunks"),
        pytest.param(b"GET /ws HTTP/1.1\r\nx: " + b"a" * 9_000 + b"\r\n", b"431", id="a long header"),
        pytest.param(b"GET /ws?" + b"a" * 9_000 + b" HTTP/1.1\r\n", b"414", id="a long address"),
    ],
)
async def test_a_handshake_that_is_none_is_answered(head: bytes, status: bytes, asked: list[str]) -> None:
    """The libraries would leave the connection open without a word."""
    async with house() as h:
        heard, closed = await outcome(h, head + HOST + UPGRADES["capitals"] + b"\r\nabc", silence=PATIENCE)
        assert (heard[9:12], closed) == (status, True)
        assert not h.desk.core.sessions
        assert not asked


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(b"content-length: 5\r\ntransfer-encoding: chunked\r\n", id="length and chunks"),
        pytest.param(b"transfer-encoding: chunked\r\ncontent-length: 5\r\n", id="chunks and length"),
        pytest.param(b"transfer-encoding: chunked\r\ncontent-length: 900\r\n", id="chunks and a long length"),
        pytest.param(b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", id="chunks twice"),
        pytest.param(b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", id="two codings"),
        pytest.param(b"transfer-encoding: xchunked\r\n", id="an unknown coding"),
        pytest.param(b"transfer-encoding: gzip, chunked\r\n", id="a list of codings"),
        pytest.param(b"transfer-encoding: chunked, identity\r\n", id="chunks are not last"),
        pytest.param(b"transfer-encoding : chunked\r\n", id="a space before the colon"),
        pytest.param(b"transfer-encoding\t: chunked\r\n", id="a tab before the colon"),
        pytest.param(b"transfer-encoding:\x0bchunked\r\n", id="a vertical tab"),
        pytest.param(b"transfer-encoding: chunked\x00\r\n", id="NUL"),
        pytest.param(b"x: y\rtransfer-encoding: chunked\r\ncontent-length: 900\r\n", id="a bare CR"),
        pytest.param(b"x: y\ntransfer-encoding: chunked\ncontent-length: 5\r\n", id="bare LF"),
        pytest.param(b"content-length: 5\r\ncontent-length: 0\r\n", id="two lengths"),
        pytest.param(b"content-length: 5, 0\r\n", id="a list of two lengths"),
        pytest.param(b"content-length: +5\r\n", id="a signed length"),
        pytest.param(b"content-length: -5\r\n", id="a negative length"),
        pytest.param(b"content-length: 0x5\r\n", id="a hexadecimal length"),
        pytest.param(b"content-length: 5 5\r\n", id="a length with a space"),
        pytest.param(b"content-length: \xb2\r\n", id="a digit that is not ASCII"),
        pytest.param(b"content-length:\r\n", id="no length"),
    ],
)
async def test_behind_an_ambiguous_length(headers: bytes) -> None:
    async with house() as h:
        behind = hidden(await tool(h))
        head = b"POST /evaluate HTTP/1.1\r\n" + HOST + JSON + headers + b"\r\n" + CHUNKS
        tries = split(head, behind)
        for heard, closed in await asyncio.gather(*(outcome(h, *parts, silence=PATIENCE) for parts in tries)):
            assert (heard[9:12] or b"400", closed) == (b"400", True)
            assert heard.count(b"HTTP/1.1 ") <= 1
        await nothing_ran(h)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(b"content-length: %d, %d\r\n", id="a list of lengths"),
        pytest.param(b"content-length: %d\r\ncontent-length: %d\r\n", id="two lengths"),
        pytest.param(b"x: y\r\n transfer-encoding: chunked\r\ncontent-length: %d\r\nx-%d: z\r\n", id="a folded line"),
        pytest.param(b"transfer-encoding:\r\n chunked\r\nx-%d-%d: z\r\n", id="a folded coding"),
    ],
)
async def test_in_a_body_whose_length_is_said_strangely(headers: bytes, asked: list[str]) -> None:
    """RFC 9112 lets servers read these: a length that is repeated is that length, and a folded line is one line."""
    async with house() as h:
        body = hidden(await tool(h))
        if headers.startswith(b"transfer-encoding"):
            body = chunk(body) + CHUNKS
        del asked[:]
        head = b"POST /evaluate HTTP/1.1\r\n" + HOST + JSON + headers % (len(body), len(body)) + b"\r\n"
        for parts in split(head, body):
            heard, _ = await outcome(h, *parts)
            assert heard.startswith(b"HTTP/1.1 400 ")  # the body is no message
            assert heard.count(b"HTTP/1.1 ") == 1
        assert asked == ["/evaluate"] * 3
        await nothing_ran(h)


@pytest.mark.parametrize(
    ("line", "headers", "status"),
    [
        pytest.param(b"POST /evaluate", b"content-type: text/plain\r\n", b"415", id="another media type"),
        pytest.param(b"POST /evaluate", JSON + b"content-encoding: gzip\r\n", b"415", id="compressed"),
        pytest.param(b"POST /nowhere", JSON, b"404", id="no such path"),
        pytest.param(b"PUT /evaluate", JSON, b"405", id="another method"),
        pytest.param(b"GET /health", JSON, b"200", id="a body that nobody reads"),
        pytest.param(b"OPTIONS /evaluate", JSON, b"204", id="OPTIONS"),
        pytest.param(b"POST /evaluate", JSON + b"origin: https://elsewhere.example\r\n", b"403", id="another origin"),
        pytest.param(b"POST /evaluate", JSON + b"x: y\r\n" * 200, b"431", id="many headers"),
    ],
)
async def test_behind_a_response_to_a_body_that_was_not_read(
    line: bytes, headers: bytes, status: bytes, asked: list[str]
) -> None:
    """The connection ends there."""
    async with house() as h:
        behind = hidden(await tool(h))
        first = line + b" HTTP/1.1\r\n" + HOST + headers
        chunks = chunk(behind) + CHUNKS + behind
        del asked[:]
        tries = [
            *split(first + b"content-length: %d\r\n\r\n" % len(behind), behind + behind),
            *split(first + b"transfer-encoding: chunked\r\n\r\n", chunks),
        ]
        for parts in tries:
            heard, closed = await outcome(h, *parts, silence=PATIENCE)
            assert (heard[9:12], closed) == (status, True)
            assert heard.count(b"HTTP/1.1 ") == 1
        assert len(asked) == len(tries)
        await nothing_ran(h)


CHUNKED = b"POST /evaluate HTTP/1.1\r\n" + HOST + JSON + b"transfer-encoding: chunked\r\n\r\n"


async def test_a_trailer_is_not_a_header() -> None:
    """A proxy checks headers; a credential or a client address in a trailer would pass it unseen."""
    ann = Identity("ann", frozenset(), "user")
    async with house(auth=Tokens({"good": ann})) as h:
        trailers = b"0\r\nauthorization: Bearer good\r\nx-forwarded-for: 10.0.0.1\r\n\r\n"
        heard, _ = await outcome(h, CHUNKED + chunk(encoded(intent())) + trailers)
        assert heard.startswith(b"HTTP/1.1 401 "), heard
        headers = CHUNKED.replace(HOST, HOST + b"authorization: Bearer good\r\n")
        heard, _ = await outcome(h, headers + chunk(encoded(intent())) + b"0\r\nx-note: 1\r\n\r\n")
        assert heard.startswith(b"HTTP/1.1 200 "), heard


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"0\r\nx-long: ", id="trailers"),
        pytest.param(b"5;extension=", id="chunk extensions"),
    ],
)
async def test_trailers_and_chunk_extensions_have_a_limit(rest: bytes) -> None:
    async with house() as h:
        _, writer = await h.raw(CHUNKED + chunk(encoded(intent())) + rest)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                for _ in range(1_000):
                    writer.write(b"a" * 65_536)
                    await writer.drain()
                pytest.fail("64 MB were taken")
        writer.close()
        async with asyncio.timeout(PATIENCE):
            assert (await h.http.get("/health")).status_code == 200


# --- through nginx ----------------------------------------------------------------------------------------------------

REQUIRED = os.environ.get("MANGLECP_REQUIRE_NGINX") == "1"
with_nginx = pytest.mark.skipif(not (has_nginx() or REQUIRED), reason="there is no nginx")
EVERYWHERE = """
    proxy_set_header Upgrade           $http_upgrade;
    proxy_set_header Connection        upgrade;
"""


class Front:
    """nginx before a server, which is both of its replicas, so that all clients share the connections to it."""

    def __init__(self, h: House, port: int, trusting: ssl.SSLContext) -> None:
        self.h = h
        self.port = port
        self.trusting = trusting

    async def send(self, *parts: bytes) -> bytes:
        """What a client hears that sends the parts and then waits until the proxy closes the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trusting)
        heard = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            for part in parts:
                writer.write(part)
                await writer.drain()
            async with asyncio.timeout(1.0):
                while data := await reader.read(65_536):
                    heard += data
        writer.transport.abort()
        return heard


@asynccontextmanager
async def front(folder: Path, *changes: tuple[str, str]) -> AsyncIterator[Front]:
    chain, key = certificate(folder)
    trusting = ssl.create_default_context(cafile=str(chain))
    settings = ServerSettings(worker=False, trusted_proxies=(parse_network("127.0.0.1"),))
    async with house(settings=settings, metrics=Metrics()) as h:
        assert (await h.http.get("/metrics")).status_code == 200
        with proxy(folder / "nginx", [h.port, h.port], chain, key, changes=changes) as port:
            yield Front(h, port, trusting)


async def neighbour(f: Front, name: str, times: int) -> None:
    """Another client of the proxy, which must hear the answers to its own questions and nothing else."""
    async with httpx.AsyncClient(
        base_url=f"https://127.0.0.1:{f.port}", verify=f.trusting, timeout=PATIENCE, trust_env=False
    ) as http:
        for n in range(times):
            answer = await http.post("/evaluate", json=intent(f"{name}-{n}"))
            assert (answer.status_code, answer.json()["id"]) == (200, f"{name}-{n}")


@with_nginx
@pytest.mark.parametrize("upgrade", [b"x", b"h2c", b"websocket"])
@pytest.mark.parametrize("everywhere", [False, True], ids=["as in the manual", "with Upgrade everywhere"])
async def test_through_nginx(tmp_path: Path, everywhere: bool, upgrade: bytes, asked: list[str]) -> None:
    """A client hides requests in bodies while others use the same connections to the server.

    The server does not rely on the proxy: the same holds where ``Upgrade`` is forwarded for every path.
    """
    given = '\n    proxy_set_header Connection        "";\n'
    async with front(tmp_path, *([(given, EVERYWHERE)] if everywhere else [])) as f:
        secret = b"GET /metrics HTTP/1.1\r\n" + HOST + b"x-forwarded-for: 10.0.0.1\r\n\r\n"
        behind = secret + hidden(await tool(f.h)) + secret
        host = b"host: 127.0.0.1:%d\r\n" % f.port
        connection = b"connection: upgrade\r\nupgrade: " + upgrade + b"\r\n"
        tries = [
            post(path, body, connection).replace(HOST, host, 1)
            for path in (b"/evaluate", b"/ws", b"/nowhere")
            for body in (behind, b"\r\n" * 300_000 + behind)
        ]
        del asked[:]
        heard, _, _ = await asyncio.gather(
            asyncio.gather(*(f.send(one) for one in tries * 2)), neighbour(f, "ann", 60), neighbour(f, "bob", 60)
        )
        await neighbour(f, "cid", 20)
        for one in heard:
            assert one.count(b"HTTP/1.1 ") <= 1, one
            assert b"manglecp_" not in one
            assert b"hidden" not in one
        assert "/metrics" not in asked
        assert "/invoke" not in asked
        await nothing_ran(f.h)


@with_nginx
async def test_nginx_hides_what_is_about_one_replica(tmp_path: Path, asked: list[str]) -> None:
    async with front(tmp_path) as f:
        host = b" HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nconnection: close\r\n\r\n" % f.port
        absolute = b"http://127.0.0.1:%d/metrics" % f.port
        ways = [b"/metrics", b"//metrics", b"/x/../metrics", b"/%6detrics", b"/metrics?a", b"/metrics/", b"/metrics%2f"]
        ways += [b"/metrics%3fa", b"/metrics;a", b"/METRICS", b"/metrics%0a", b"/./metrics", b"/metrics%20", absolute]
        del asked[:]
        for way in [*ways, b"/health", b"/ready"]:
            assert (await f.send(b"GET " + way + host))[9:12] == b"404", way
        assert not {"/metrics", "/metrics\n", "/health", "/ready"} & set(asked)


@with_nginx
async def test_websockets_through_nginx(tmp_path: Path) -> None:
    async with front(tmp_path) as f:
        url = f"wss://127.0.0.1:{f.port}"
        async with connect(f"{url}/ws", proxy=None, ssl=f.trusting) as ws, asyncio.timeout(PATIENCE):
            assert json.loads(await ws.recv())["type"] == "manifest"
            await ws.send(encoded(intent("a")).decode())
            assert json.loads(await ws.recv())["id"] == "a"
