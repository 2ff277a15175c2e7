"""Streamable HTTP in front of a command that speaks MCP on standard streams: ``http_adapter.py COMMAND ...``.

The conformance suite and other HTTP clients reach the guard through it. It forwards messages without a change except
request ids, which all clients of a process share. In the era with sessions each session has a process of its own; in
revision 2026-07-28 all requests share one, so that a subscription sees what another request changes.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final

import uvicorn
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    InboundLadderRejection,
    classify_inbound_request,
    find_duplicated_routing_header,
)
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

_SESSION: Final = "mcp-session-id"
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_LISTEN: Final = "subscriptions/listen"
_HEADER_MISMATCH: Final = -32020
_LINE_LIMIT: Final = 16_777_216
_Message = dict[str, Any]


class Link:
    """A process, and the requests that wait for its responses."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._open: dict[int, tuple[_Message, asyncio.Queue[_Message | None]]] = {}
        self._last_id = 0
        self.unrequested: asyncio.Queue[_Message | None] = asyncio.Queue()
        """Messages of the server that belong to no open request."""
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: list[str]) -> Link:
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=_LINE_LIMIT))

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), 5)
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._reading

    def send(self, message: _Message) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def exchange(self, request: _Message) -> AsyncGenerator[_Message]:
        """Send a request, and yield what the server sends for it, with its response as the last message."""
        self._last_id += 1
        number = self._last_id
        queue: asyncio.Queue[_Message | None] = asyncio.Queue()
        self._open[number] = request, queue
        try:
            self.send(_with_ids(request, number, number))
            while (message := await queue.get()) is not None:
                yield message
                if "method" not in message:
                    return
        finally:
            del self._open[number]
            if request["method"] == _LISTEN:
                params = {"requestId": number}
                self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            message = json.loads(line)
            params = message.get("params") or {}
            subscription = (params.get("_meta") or {}).get(_SUBSCRIPTION)
            number = message.get("id") if "method" not in message else params.get("progressToken", subscription)
            if number not in self._open:  # a request of the server, or a log message
                ordinary = [one for one, (request, _) in self._open.items() if request["method"] != _LISTEN]
                if ordinary:
                    self._open[ordinary[-1]][1].put_nowait(message)
                else:
                    self.unrequested.put_nowait(message)
                continue
            request, queue = self._open[number]
            queue.put_nowait(_with_ids(message, request["id"], _meta(request).get("progressToken")))
        for _, queue in self._open.values():
            queue.put_nowait(None)
        self.unrequested.put_nowait(None)


def _meta(message: _Message) -> _Message:
    part = message.get("params", message.get("result"))
    meta = part.get("_meta") if isinstance(part, dict) else None
    return meta if isinstance(meta, dict) else {}


def _with_ids(message: _Message, request_id: Any, token: Any) -> _Message:
    """Return a copy with another id of the request that it is, answers, or belongs to."""
    copy: _Message = json.loads(json.dumps(message))
    if "id" in copy:
        copy["id"] = request_id
    if "progressToken" in (params := copy.get("params") or {}):
        params["progressToken"] = token
    for name, value in (("progressToken", token), (_SUBSCRIPTION, request_id)):
        if name in _meta(copy):
            _meta(copy)[name] = value
    return copy


class Adapter:
    """The endpoint."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._sessions: dict[str, Link] = {}
        self._shared: Link | None = None

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self._shared = await Link.start(self._command)
        yield
        await asyncio.gather(*(link.close() for link in (self._shared, *self._sessions.values())))

    async def handle(self, request: Request) -> Response:
        message = None
        if request.method == "POST":
            try:
                message = json.loads(await request.body())
            except ValueError:
                return _error(None, -32700, "Parse error", 400)
            if not isinstance(message, dict):
                return _error(None, -32600, "Send one message", 400)
        version = request.headers.get("mcp-protocol-version", "")
        if message is not None and version >= "2026":  # an unknown version is refused by the modern branch
            return await self._handle_modern(request, message)
        return await self._handle_legacy(request, message)

    async def _handle_modern(self, request: Request, message: _Message) -> Response:
        assert self._shared is not None
        if "method" not in message or "id" not in message:
            return Response(status_code=202)
        if find_duplicated_routing_header(request.headers.items()) is not None:
            return _error(message["id"], _HEADER_MISMATCH, "a header appears more than once", 400)
        verdict = classify_inbound_request(message, headers=dict(request.headers))
        if isinstance(verdict, InboundLadderRejection):
            status = ERROR_CODE_HTTP_STATUS.get(verdict.code, 200)
            return _error(message["id"], verdict.code, verdict.message, status, verdict.data)
        return await _respond(self._shared, message, ERROR_CODE_HTTP_STATUS)

    async def _handle_legacy(self, request: Request, message: _Message | None) -> Response:
        session = request.headers.get(_SESSION)
        if message is not None and message.get("method") == "initialize":
            session, link = uuid.uuid4().hex, await Link.start(self._command)
            self._sessions[session] = link
        elif session is None:
            return _error(None, -32600, "a session is needed", 400)
        elif session not in self._sessions:
            return _error(None, -32600, "there is no such session", 404)
        link = self._sessions[session]
        if request.method == "DELETE":
            await self._sessions.pop(session).close()
            return Response(status_code=204)
        if message is None:
            return StreamingResponse(_unrequested(link), media_type="text/event-stream")
        if "method" not in message or "id" not in message:
            link.send(message)
            return Response(status_code=202)
        response = await _respond(link, message, {})
        response.headers[_SESSION] = session
        return response


async def _respond(link: Link, request: _Message, statuses: Mapping[int, int]) -> Response:
    """Return the response as JSON, or as a stream if other messages come first."""
    messages = link.exchange(request)
    first = await anext(messages, None)
    if first is None:
        return _error(request["id"], -32603, "the process has ended", 500)
    if "method" not in first:
        await messages.aclose()
        return JSONResponse(first, statuses.get(first["error"]["code"], 200) if "error" in first else 200)

    async def stream() -> AsyncIterator[str]:
        async with aclosing(messages):
            yield _event(first)
            async for message in messages:
                yield _event(message)

    return StreamingResponse(stream(), media_type="text/event-stream")


async def _unrequested(link: Link) -> AsyncIterator[str]:
    yield ": open\n\n"
    while (message := await link.unrequested.get()) is not None:
        yield _event(message)


def _event(message: _Message) -> str:
    return f"event: message\ndata: {json.dumps(message)}\n\n"


def _error(request_id: Any, code: int, text: str, status: int, data: Any = None) -> Response:
    error = {"code": code, "message": text, **({} if data is None else {"data": data})}
    return JSONResponse({"jsonrpc": "2.0", "id": request_id, "error": error}, status)


def main(command: list[str]) -> None:
    adapter = Adapter(command)
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    routes = [Route("/mcp", adapter.handle, methods=["GET", "POST", "DELETE"])]
    app = Starlette(routes=routes, middleware=[hosts], lifespan=adapter.lifespan)
    config = uvicorn.Config(app, http="h11", log_level="warning", timeout_graceful_shutdown=1)
    with socket.create_server(("127.0.0.1", 0)) as listen_socket:
        sys.stderr.write(f"serving at http://127.0.0.1:{listen_socket.getsockname()[1]}/mcp\n")
        uvicorn.Server(config).run([listen_socket])


if __name__ == "__main__":
    main(sys.argv[1:])
