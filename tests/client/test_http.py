"""HTTP: discovery, addresses, headers, answers that are not what they should be, and closing to cancel."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import msgspec
import pytest

from manglecp.client.client import Client
from manglecp.client.connection import RetryPolicy
from manglecp.client.errors import ConnectionLost, InvalidResponse, RequestRefused, ResponseTimeout, ServerError
from manglecp.client.transports.http import HttpTransport
from manglecp.wire import WireError, encode, receive
from manglecp.wire.messages import ClientMessage, IntentResponse, Message
from tests.client.manifests import manifest as example
from tests.client.scripted import FREE, PATIENCE, done, tool, tools, wrapped, writes

HOME = "https://desk.example"
WELL_KNOWN = "/.well-known/manglecp/manifest.json"
ENDPOINTS = {"intent_eval": "/api/evaluate", "macro_invoke": "../../api/invoke"}
FOREIGN = IntentResponse(id="somebody else's", payload=tools())
Responder = Callable[[httpx.Request], httpx.Response]


class Site:
    """A host on an imagined network. ``pages`` are responses by path; ``answers`` are given to requests in turn."""

    def __init__(self, *answers: Any, **changes: Any) -> None:
        self.answers = list(answers)
        self.manifest = example(**{**FREE, "endpoints": ENDPOINTS, **changes})
        self.pages: dict[str, Responder] = {WELL_KNOWN: lambda _: self.told()}
        self.requests: list[httpx.Request] = []
        self.said: list[ClientMessage] = []

    def told(self) -> httpx.Response:
        return self.respond(self.manifest)

    def respond(self, message: Message, status: int = 200, **headers: str) -> httpx.Response:
        return httpx.Response(status, content=encode(message), headers={"Content-Type": "application/json", **headers})

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return _streamed(self.answer(request))

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path in self.pages:
            return self.pages[request.url.path](request)
        if request.url.path not in ("/api/evaluate", "/api/invoke"):
            return httpx.Response(404)
        message = receive(request.content, 1 << 24)
        self.said.append(message)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, httpx.Response):
            return answer
        if isinstance(answer, Exception) and not isinstance(answer, WireError):
            raise answer
        status = answer.row.status if isinstance(answer, WireError) else 200
        return self.respond(wrapped(message, answer), status)

    def client(self, url: str = HOME, **options: Any) -> Client:
        network = httpx.MockTransport(self)
        client: dict[str, Any] = {"sleep": _no_sleep, "retry_policy": RetryPolicy(jitter=lambda: 0.0)}
        return Client(url, network=network, **{**client, **options})


def _streamed(response: httpx.Response) -> httpx.Response:
    """As it comes from a network: not read yet."""
    if not response.is_stream_consumed:
        return response
    return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(response.content))


async def _no_sleep(_seconds: float) -> None:
    await asyncio.sleep(0)


# --- discovery -------------------------------------------------------------------------------------------------------


@pytest.mark.req("TRANS-12", "TRANS-13", "TRANS-29")
@pytest.mark.parametrize("url", [HOME, f"{HOME}/", f"{HOME}/some/page", f"{HOME}{WELL_KNOWN}"])
async def test_from_an_address_to_the_endpoints(url: str) -> None:
    site = Site(tools(tool()), done())
    async with site.client(url) as client:
        await client.evaluate("go")
        await client.invoke("t", {"n": 1})
    asked = [(one.method, one.url.path) for one in site.requests]
    assert asked == [("GET", WELL_KNOWN), ("POST", "/api/evaluate"), ("POST", "/api/invoke")]
    for request in site.requests[1:]:
        assert request.headers["content-type"] == "application/json"
        assert "application/json" in request.headers["accept"]
        assert request.headers["accept-encoding"] == "identity"


@pytest.mark.req("TRANS-12")
@pytest.mark.parametrize(
    ("address", "path"),
    [("/a", "/a"), ("a", "/.well-known/manglecp/a"), ("../x/a", "/.well-known/x/a"), (f"{HOME}:443/a", "/a")],
)
async def test_addresses_are_relative_to_the_manifest(address: str, path: str) -> None:
    site = Site(tools(), endpoints={"intent_eval": address, "macro_invoke": "/api/invoke"})
    site.pages[path] = lambda request: site.respond(wrapped(receive(request.content, 1 << 24), tools()))
    async with site.client() as client:
        await client.evaluate("go")
    assert site.requests[-1].url.path == path


@pytest.mark.req("TRANS-29")
async def test_a_host_without_a_manifest_does_not_speak_this() -> None:
    site = Site()
    site.pages = {}
    with pytest.raises(RequestRefused, match="not_manglecp"):
        await site.client().connect()


@pytest.mark.req("MANI-11")
async def test_a_manifest_says_where_to_ask() -> None:
    site = Site()
    data = msgspec.json.decode(encode(site.manifest))
    del data["payload"]["endpoints"]
    json = {"Content-Type": "application/json"}
    site.pages[WELL_KNOWN] = lambda _: httpx.Response(200, content=msgspec.json.encode(data), headers=json)
    with pytest.raises(InvalidResponse, match="no endpoints"):
        await site.client().connect()


async def test_a_manifest_that_is_known_is_not_sent_again() -> None:
    site = Site(tools())
    tags: list[str | None] = []

    def page(request: httpx.Request) -> httpx.Response:
        tags.append(request.headers.get("if-none-match"))
        return httpx.Response(304) if tags[-1] else site.respond(site.manifest, ETag='"1"')

    site.pages[WELL_KNOWN] = page
    async with site.client() as client:
        before = client.manifest
        assert await client.refresh() == before
    assert tags == [None, '"1"']


# --- readiness -------------------------------------------------------------------------------------------------------


@pytest.mark.req("MANI-28", "MANI-32", "CLI-14")
async def test_a_manifest_that_says_booting_is_read_again() -> None:
    site = Site(tools(), status="booting")
    reads = 0

    def page(_: httpx.Request) -> httpx.Response:
        nonlocal reads
        reads += 1
        assert site.said == []
        if reads == 4:
            site.manifest = example(**{**FREE, "endpoints": ENDPOINTS})
        return site.told()

    site.pages[WELL_KNOWN] = page
    async with site.client() as client:
        await client.evaluate("go")
    assert reads == 4


@pytest.mark.req("CLI-14", "MANI-31", "ERR-47")
async def test_a_server_that_is_not_ready_is_looked_at_again() -> None:
    site = Site(WireError("server_not_ready", "draining", retry_after_ms=10), tools())
    async with site.client(boot_seconds=0.05) as client:
        site.manifest = example(**{**FREE, "endpoints": ENDPOINTS, "status": "draining"})
        with pytest.raises(RequestRefused, match="draining"):
            await client.evaluate("go")
        assert len(site.said) == 1
        site.manifest = example(**{**FREE, "endpoints": ENDPOINTS})
        await client.evaluate("go")


# --- who asks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "schemes", "header"),
    [
        (None, ["bearer", "api_key"], ("authorization", "Bearer s3cret")),
        ("oauth2", ["oauth2"], ("authorization", "Bearer s3cret")),
        ("api_key", ["bearer", "api_key"], ("x-manglecp-api-key", "s3cret")),
        (None, ["api_key"], ("x-manglecp-api-key", "s3cret")),
    ],
)
async def test_every_request_says_who_asks(scheme: Any, schemes: list[str], header: tuple[str, str]) -> None:
    site = Site(tools(), auth={"required": True, "schemes": schemes})
    async with site.client(token="s3cret", scheme=scheme) as client:
        await client.evaluate("go")
    discovery, request = site.requests
    assert request.headers[header[0]] == header[1]
    assert "s3cret" not in str(discovery.headers.raw), "the manifest is for everybody"


@pytest.mark.parametrize("token", ["s3 cret", "s3cret\r\nX-Evil: 1", "s3crét", ""])
async def test_a_token_that_no_header_can_hold_is_not_sent(token: str) -> None:
    site = Site(tools(), auth={"required": True, "schemes": ["bearer"]})
    async with site.client(token=token) as client:
        with pytest.raises(RequestRefused, match="bad_token") as refused:
            await client.evaluate("go")
    assert "s3" not in str(refused.value)
    assert site.said == []


async def test_a_token_is_renewed_once() -> None:
    tokens = iter(["old", "new", "newest"])
    site = Site(WireError("auth_invalid", "expired"), tools(), auth={"required": True, "schemes": ["bearer"]})

    async def token() -> str:
        return next(tokens)

    async with site.client(token=token) as client:
        await client.evaluate("go")
        assert [one.headers["authorization"] for one in site.requests[1:]] == ["Bearer old", "Bearer new"]
        site.answers = [WireError("auth_invalid", "no")]
        with pytest.raises(ServerError, match="auth_invalid"):
            await client.evaluate("go")


# --- where a server leads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["https://evil.example/a", "//evil.example/a", "http://desk.example/a", "https://desk.example:444/a"]
)
@pytest.mark.parametrize("way", ["endpoint", "redirect", "redirected request"])
async def test_nobody_is_followed_to_another_host(address: str, way: str) -> None:
    site = Site(httpx.Response(307, headers={"Location": address}), auth={"required": True, "schemes": ["bearer"]})
    if way == "endpoint":
        site.manifest = example(**{**FREE, "endpoints": {"intent_eval": address, "macro_invoke": "/api/invoke"}})
    elif way == "redirect":
        site.pages[WELL_KNOWN] = lambda _: httpx.Response(302, headers={"Location": address})
    client = site.client(token="s3cret")

    async def ask() -> None:
        await client.connect()
        await client.evaluate("go")

    with pytest.raises(RequestRefused) as refused:
        await ask()
    assert refused.value.code in ("other_host", "insecure")
    assert {(one.url.scheme, one.url.host, one.url.port) for one in site.requests} == {("https", "desk.example", None)}
    await client.close()


async def test_a_host_that_the_caller_names_may_be_led_to() -> None:
    site = Site(tools(), endpoints={"intent_eval": "https://api.example/api/evaluate", "macro_invoke": "/api/invoke"})
    async with site.client(hosts=["api.example"]) as client:
        await client.evaluate("go")
    assert site.requests[-1].url.host == "api.example"


@pytest.mark.req("TRANS-12")
async def test_redirects_on_the_same_host_are_followed_a_few_times() -> None:
    site = Site(tools(), endpoints={"intent_eval": "evaluate", "macro_invoke": "/api/invoke"})
    site.pages[WELL_KNOWN] = lambda _: httpx.Response(301, headers={"Location": "/v1/m.json"})
    site.pages["/v1/m.json"] = lambda _: site.told()
    site.pages["/v1/evaluate"] = lambda _: httpx.Response(308, headers={"Location": "/api/evaluate"})
    async with site.client() as client:
        await client.evaluate("go")
        site.pages["/v1/evaluate"] = lambda _: httpx.Response(302, headers={"Location": "/api/evaluate"})
        with pytest.raises(RequestRefused, match="redirected"):
            await client.evaluate("go")
    site.pages[WELL_KNOWN] = lambda _: httpx.Response(302, headers={"Location": WELL_KNOWN})
    before = len(site.requests)
    with pytest.raises(RequestRefused, match="redirected"):
        await site.client().connect()
    assert len(site.requests) - before == 4


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://desk.example", "insecure"),
        ("http://127.0.0.1.example", "insecure"),
        ("https://ada:s3cret@desk.example", "bad_address"),
        ("https:///path", "bad_address"),
        ("https://desk.example:port", "bad_address"),
    ],
)
def test_addresses_that_are_not_talked_to(url: str, code: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        HttpTransport(url)
    assert refused.value.code == code
    assert "s3cret" not in str(refused.value)


async def test_an_address_that_is_none_is_not_followed() -> None:
    site = Site(endpoints={"intent_eval": "https://desk.example/\x00", "macro_invoke": "/api/invoke"})
    async with site.client() as client:
        with pytest.raises(RequestRefused, match="bad_address"):
            await client.evaluate("go")


async def test_from_http_to_https_is_followed_and_back_is_not() -> None:
    site = Site(tools())
    site.pages[WELL_KNOWN] = lambda request: (
        site.told() if request.url.scheme == "https" else httpx.Response(301, headers={"Location": HOME + WELL_KNOWN})
    )
    async with site.client("http://desk.example", insecure=True) as client:
        await client.evaluate("go")
    assert site.requests[-1].url.scheme == "https"


async def test_nobody_is_led_from_tls_to_none() -> None:
    """Not even on the same host and port, and not even where networks without TLS may be used."""
    site = Site(endpoints={"intent_eval": "http://desk.example:8443/api/evaluate", "macro_invoke": "/api/invoke"})
    with pytest.raises(RequestRefused, match="from https to http"):
        await site.client("https://desk.example:8443", insecure=True).connect()


def test_addresses_that_are_talked_to() -> None:
    for url in ("http://localhost:1", "http://127.0.0.1", "http://[::1]:8", HOME):
        HttpTransport(url)
    HttpTransport("http://desk.example", insecure=True)
    with pytest.raises(ValueError, match="http, https, ws or wss"):
        Client("ftp://desk.example")


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("CLI-06", "CLI-08")
async def test_retries_are_those_of_every_transport() -> None:
    site = Site(WireError("rate_limited", "slowly", retry_after_ms=5))
    async with site.client() as client:
        with pytest.raises(ServerError, match="rate_limited"):
            await client.evaluate("go")
    assert len(site.said) == 6
    assert len({one.id for one in site.said}) == 6


@pytest.mark.req("CLI-06")
async def test_something_between_may_ask_to_wait() -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    site = Site(httpx.Response(429, headers={"Retry-After": "7"}), httpx.Response(429), tools())
    async with site.client(sleep=sleep) as client:
        await client.evaluate("go")
    assert waited[0] >= 7


@pytest.mark.parametrize(
    "trouble", [httpx.Response(502, text="bad gateway"), httpx.Response(504), httpx.ReadError("reset")]
)
async def test_a_server_that_is_not_reached_is_asked_again(trouble: Any) -> None:
    site = Site(trouble, tools(writes()), trouble, done())
    async with site.client() as client:
        await client.evaluate("go")
        with pytest.raises(ConnectionLost):
            await client.invoke("t")
    assert len(site.said) == 3, "an effect is not repeated blindly"


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json={"type": "hello"}),
        httpx.Response(500, text="oops"),
        httpx.Response(404, json={"detail": "Not Found"}),
        httpx.Response(200, content=encode(FOREIGN), headers={"Content-Type": "application/json"}),
    ],
)
async def test_what_is_no_answer_is_not_used(response: httpx.Response) -> None:
    site = Site(response)
    async with site.client() as client:
        with pytest.raises(InvalidResponse):
            await client.evaluate("go")
    assert len(site.said) == 1


async def test_an_answer_that_is_too_long_is_not_read_to_its_end() -> None:
    sent = 0

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal sent
            while True:
                sent += 1
                yield b" " * 1_000

    site = Site(httpx.Response(200, stream=Endless(), headers={"Content-Type": "application/json"}))
    async with site.client(max_response_bytes=50_000) as client:
        with pytest.raises(InvalidResponse, match="50,000"):
            await client.evaluate("go")
    assert sent == 51


async def test_what_was_compressed_is_not_taken() -> None:
    packed = gzip.compress(b" " * 10_000_000)
    told = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    site = Site(httpx.Response(200, stream=httpx.ByteStream(packed), headers=told))
    async with site.client() as client:
        with pytest.raises(InvalidResponse, match="compressed"):
            await client.evaluate("go")


async def test_an_error_without_an_id_is_an_answer() -> None:
    error = WireError("malformed_message", "what?").to_message(None)
    site = Site(httpx.Response(400, content=encode(error), headers={"Content-Type": "application/json"}))
    async with site.client() as client:
        with pytest.raises(ServerError, match="malformed_message"):
            await client.evaluate("go")


# --- a real socket ---------------------------------------------------------------------------------------------------


class Slow:
    """Answers the manifest, and nothing else; knows when somebody hangs up."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.closed = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"POST"):
            self.asked.set()
            while await reader.read(4_096):
                pass
            self.closed.set()
        else:
            body = encode(example(**{**FREE, "endpoints": ENDPOINTS}))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        writer.close()


@pytest.mark.req("TRANS-40")
@pytest.mark.parametrize("why", ["cancelled", "too late"])
async def test_to_cancel_is_to_close_the_connection(why: str) -> None:
    slow = Slow()
    server = await asyncio.start_server(slow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Client(f"http://127.0.0.1:{port}", response_seconds=None if why == "cancelled" else 0.5) as client:
        asking = asyncio.create_task(client.evaluate("go"))
        await asyncio.wait_for(slow.asked.wait(), PATIENCE)
        if why == "cancelled":
            asking.cancel()
        with pytest.raises((asyncio.CancelledError, ResponseTimeout)):
            await asking
        await asyncio.wait_for(slow.closed.wait(), PATIENCE)
    server.close()
    await server.wait_closed()


async def test_nobody_is_there() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionLost):
        await Client(f"http://127.0.0.1:{port}").connect()
