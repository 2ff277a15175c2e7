"""WebSocket over real sockets: the manifest first, text frames, losses, servers that break the rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from manglecp.client.client import Client
from manglecp.client.connection import RetryPolicy
from manglecp.client.errors import ConnectionLost, InvalidResponse, RequestRefused, ServerError
from manglecp.client.transports.websocket import WebSocketTransport
from manglecp.wire import WireError, encode
from manglecp.wire.messages import (
    Authenticate,
    Authenticated,
    Cancel,
    IntentRequest,
    InvokeRequest,
    InvokeResponse,
    ProgressPayload,
)
from tests.client.scripted import LOSE, NOTHING, PATIENCE, Scripted, done, tool, tools


class Listener:
    """A scripted server behind a socket. ``greeting`` is sent in place of the manifest."""

    def __init__(self, *answers: Any, greeting: str | bytes | None = None, **changes: Any) -> None:
        self.script = Scripted(*answers, **changes)
        self.greeting = greeting
        self.frames: list[str | bytes] = []
        self.connections: list[ServerConnection] = []
        self.url = ""

    async def __call__(self, socket: ServerConnection) -> None:
        self.connections.append(socket)
        if self.greeting is not None:
            await socket.send(self.greeting)
            await socket.wait_closed()
            return

        async def send(data: bytes) -> None:
            await socket.send(data.decode())

        session = self.script.session("websocket", send=send)
        self.script.transport.lose = socket.transport.abort  # type: ignore[method-assign]
        try:
            async with session:
                async for frame in socket:
                    self.frames.append(frame)
                    await session.receive(frame.encode() if isinstance(frame, str) else frame)
        except ConnectionClosed:
            pass

    def client(self, **options: Any) -> Client:
        given: dict[str, Any] = {"retry_policy": RetryPolicy(first_delay_ms=1, jitter=lambda: 0.0), **options}
        return Client(self.url, **given)


@asynccontextmanager
async def listening(listener: Listener, **options: Any) -> AsyncIterator[Listener]:
    async with serve(listener, "127.0.0.1", 0, **options) as server:
        listener.url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/ws"
        yield listener


@pytest.mark.req("TRANS-02", "TRANS-03", "TRANS-04", "TRANS-05")
async def test_the_manifest_then_one_text_frame_for_each_message() -> None:
    told: list[ProgressPayload] = []
    begun = ProgressPayload(status="started")
    async with listening(Listener(tools(tool()), [begun, done()])) as there, there.client() as client:
        assert client.manifest.server_name == "Release Desk"
        await client.evaluate("go", facts=[{"pred": "p", "args": ["ü" * 200_000]}])
        await client.invoke("t", {"n": 1}, on_progress=told.append)
    assert [type(frame) for frame in there.frames] == [str, str]
    assert told == [begun]


@pytest.mark.req("TRANS-03")
async def test_nothing_is_sent_before_the_manifest() -> None:
    """Not even by who asks before it is there."""
    came = asyncio.Event()
    go = asyncio.Event()
    frames: list[str | bytes] = []
    script = Scripted(tools())

    async def late(socket: ServerConnection) -> None:
        came.set()
        reading = asyncio.create_task(_collect(socket, frames))
        await go.wait()
        assert frames == []
        await socket.send(encode(script.manifest).decode())
        await reading

    async with serve(late, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        client = Client(url)
        connecting = asyncio.create_task(client.connect())
        asking = asyncio.create_task(client.evaluate("go"))
        await asyncio.wait_for(came.wait(), PATIENCE)
        await asyncio.sleep(0.05)
        go.set()
        await asyncio.wait_for(connecting, PATIENCE)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await client.close()


async def _collect(socket: ServerConnection, frames: list[str | bytes]) -> None:
    async for frame in socket:
        frames.append(frame)


@pytest.mark.req("TRANS-07", "TRANS-08", "SEC-13")
async def test_after_a_loss_the_client_comes_back_as_somebody_new() -> None:
    known = Authenticated(status="authenticated", identity="ada", permissions=())
    auth = {"required": True, "schemes": ["bearer"]}
    script = (known, tools(tool()), LOSE, known, tools())
    async with listening(Listener(*script, auth=auth)) as there, there.client(token="s3cret") as client:
        await client.evaluate("go")
        await client.evaluate("go")
        assert len(there.connections) == 2
        kinds = [type(one) for one in there.script.received]
    assert kinds == [Authenticate, IntentRequest, IntentRequest, Authenticate, IntentRequest]
    request = there.connections[0].request
    assert request is not None
    assert "s3cret" not in str(request.headers) + request.path


@pytest.mark.req("TRANS-06")
async def test_the_server_may_close_at_any_time() -> None:
    async with listening(Listener(tools())) as there, there.client() as client:
        await client.evaluate("go")
        await there.connections[0].close()
        await client.evaluate("go")
    assert len(there.connections) == 2


@pytest.mark.req("TRANS-36")
async def test_who_cancels_the_task_cancels_the_request() -> None:
    async with listening(Listener(tools(tool()), NOTHING)) as there, there.client() as client:
        await client.evaluate("go")
        asking = asyncio.create_task(client.invoke("t"))
        asked = await there.script.until(InvokeRequest)
        asking.cancel()
        cancel = await there.script.until(Cancel)
        assert isinstance(cancel, Cancel)
        assert cancel.payload.request_id == asked.id


@pytest.mark.req("MANI-33", "MANI-34", "CLI-14")
async def test_a_later_manifest_counts() -> None:
    news: asyncio.Queue[str] = asyncio.Queue()
    listener = Listener(tools(), status="booting")
    async with listening(listener) as there, there.client(on_manifest=lambda m: news.put_nowait(m.status)) as client:
        asking = asyncio.create_task(client.evaluate("go"))
        assert await asyncio.wait_for(news.get(), PATIENCE) == "booting"
        await there.script.push(status="degraded")
        assert await asyncio.wait_for(news.get(), PATIENCE) == "degraded"
        await asyncio.wait_for(asking, PATIENCE)


def progress(**payload: Any) -> str:
    return json.dumps({"type": "progress", "id": "x", "manglecp": "2026-02-draft", "payload": payload})


async def test_messages_on_which_nothing_depends_end_no_session() -> None:
    async with listening(Listener(tools())) as there, there.client() as client:
        (connection,) = there.connections
        await connection.send('{"type": "x-news", "id": null, "manglecp": "2026-02-draft", "payload": {}}')
        await connection.send(progress(status="running", detail=5, percent=150))
        assert len(await client.evaluate("go")) == 0
        assert len(there.connections) == 1


async def test_a_response_of_an_unknown_type_is_invalid() -> None:
    async with listening(Listener(NOTHING)) as there, there.client() as client:
        asking = asyncio.create_task(client.evaluate("go"))
        while not there.frames:
            await asyncio.sleep(0.01)
        request = json.loads(there.frames[0])
        await there.connections[0].send(json.dumps({**request, "type": "x-news"}))
        with pytest.raises(InvalidResponse):
            await asyncio.wait_for(asking, PATIENCE)


@pytest.mark.req("TRANS-04")
@pytest.mark.parametrize(
    ("greeting", "error"),
    [
        (encode(Scripted().manifest), InvalidResponse),
        (encode(InvokeResponse(id="x", payload=done())).decode(), InvalidResponse),
        ("hello", InvalidResponse),
        (" " * 70_000, InvalidResponse),
    ],
    ids=["binary", "not a manifest", "not json", "too long"],
)
async def test_servers_that_break_the_rules(greeting: str | bytes, error: type[Exception]) -> None:
    async with listening(Listener(greeting=greeting)) as there:
        with pytest.raises(error):
            await asyncio.wait_for(there.client(max_response_bytes=65_536).connect(), PATIENCE)


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async def silent(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with serve(silent, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        with pytest.raises(ConnectionLost, match="no manifest"):
            await Client(url, connect_seconds=0.3).connect()


async def test_nobody_is_followed_to_another_place() -> None:
    async with listening(Listener(tools())) as there:

        def elsewhere(_socket: ServerConnection, _request: Request) -> Response:
            return Response(HTTPStatus.FOUND, "Found", Headers({"Location": there.url}), b"")

        async with listening(Listener(), process_request=elsewhere) as here:
            with pytest.raises(RequestRefused, match="302"):
                await here.client().connect()
        assert there.connections == []


@pytest.mark.req("CLI-06")
@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (503, encode(WireError("server_not_ready", "full", retry_after_ms=1_234).to_message(None)), ServerError),
        (503, b"full", ConnectionLost),
        (429, b"", ConnectionLost),
        (404, b"nothing here", RequestRefused),
    ],
)
async def test_a_server_that_does_not_open_says_why(status: int, body: bytes, error: type[Exception]) -> None:
    def refuse(_socket: ServerConnection, _request: Request) -> Response:
        return Response(status, "No", Headers({"Content-Length": str(len(body))}), body)

    async with listening(Listener(), process_request=refuse) as here:
        with pytest.raises(error) as raised:
            await here.client().connect()
    if isinstance(raised.value, ServerError):
        assert (raised.value.code, raised.value.retry_after_ms) == ("server_not_ready", 1_234)


async def test_nobody_is_there() -> None:
    async with listening(Listener()) as there:
        pass
    with pytest.raises(ConnectionLost):
        await there.client().connect()
    with pytest.raises(RequestRefused, match="insecure"):
        WebSocketTransport("ws://desk.example")


async def test_errors_and_retries_are_those_of_every_transport() -> None:
    busy = WireError("rate_limited", "slowly", retry_after_ms=1)
    async with listening(Listener(busy, tools(), WireError("internal_error", "no"))) as there, there.client() as client:
        await client.evaluate("go")
        with pytest.raises(ServerError, match="internal_error"):
            await client.evaluate("go")
    assert len(there.script.intents) == 3
