"""WebSocket: a session for as long as the connection lasts; one text frame is one message (TRANS-04, TRANS-05).

The manifest goes first. Nothing more is read while too much is unsent, so a client that does not read slows down itself
and nobody else; one that takes nothing at all loses its connection. Pings are the protocol's business.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from manglecp.server.asgi import Event, Receive, Scope, Send, headers_of
from manglecp.server.core import Core
from manglecp.server.credentials import present
from manglecp.server.guards import Guards
from manglecp.server.replies import failure
from manglecp.server.sessions import Session
from manglecp.server.steps import run
from manglecp.server.tracing import joined
from manglecp.wire import Code, WireError, malformed

__all__ = ["ABORT", "SPLIT", "WebSocket"]

ABORT: Final = "manglecp.abort"
"""The extension of the scope that cuts a connection whose client does not read."""
SPLIT: Final = "manglecp.split"
"""Stands in an event instead of a message that came in several frames (TRANS-05)."""
_GOING_AWAY: Final = 1001
_UNSUPPORTED: Final = 1003
_POLICY: Final = 1008
UNKNOWN_SECONDS: Final = 30.0
"""After which a client has said who it is, where that is asked: connections are not for those who only hold them."""
_REVOKED: Final = "the credential holds no longer"
_NOT_FOUND: Final = Code(404, False, "there is no WebSocket at this path")
_LAST_WORDS: Final = 5.0
"""Seconds for what is unsent when the server goes."""


class WebSocket:
    """An ASGI application for WebSocket connections."""

    def __init__(self, core: Core, guards: Guards, *, most: int = 1_024) -> None:
        """``most`` connections at once; others are told to come back later."""
        self._core = core
        self._guards = guards
        self._most = most
        self._open = 0
        self._ending = asyncio.Event()
        self._none_open = asyncio.Event()
        self._none_open.set()
        base = core.settings.base
        self._paths = {f"{base}/ws", f"{base}/", base or "/"}

    async def end(self) -> None:
        """Close all connections, once what there is to say is said."""
        self._ending.set()
        await self._none_open.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # the request to connect
        headers = headers_of(scope)
        try:
            self._guards.check(headers.get(b"host"), headers.get(b"origin"), scope["scheme"])
            if scope["path"] not in self._paths:
                raise WireError("x-not_found", "There is no WebSocket at this path", row=_NOT_FOUND)
            if self._open >= self._most:
                waiting = self._core.settings.retry_after_ms
                raise WireError("server_not_ready", "Too many connections are open", retry_after_ms=waiting)
        except WireError as error:
            await _refuse(send, error)
            return
        self._open += 1
        self._none_open.clear()
        try:
            await send({"type": "websocket.accept"})
            with joined(headers):  # everything that is asked here belongs to the trace of whoever connected
                await self._serve(scope, headers, receive, send)
        except OSError:  # the client is gone, which is its right at any time (TRANS-06)
            return
        finally:
            self._open -= 1
            if not self._open:
                self._none_open.set()

    async def _serve(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        async def say(data: bytes) -> None:
            await send({"type": "websocket.send", "text": data.decode()})

        peer = scope["client"][0] if scope.get("client") else None
        session = self._core.session("websocket", peer=peer, send=say)
        present(session, headers, self._core.auth)
        async with session:
            reading = asyncio.create_task(_read(session, receive))
            gone = asyncio.create_task(session.gone())
            ending = asyncio.create_task(self._ending.wait())
            unknown = asyncio.create_task(_unknown(session))
            revoked = asyncio.create_task(session.unknown())
            tasks = (reading, gone, ending, unknown, revoked)
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if session.lost:
                    _abort(scope)
                elif ending.done():
                    reading.cancel()
                    if not await _take_leave(session, send):
                        _abort(scope)
                elif revoked.done():
                    await send({"type": "websocket.close", "code": _POLICY, "reason": _REVOKED})
                elif unknown.done():
                    await send({"type": "websocket.close", "code": _POLICY})
                elif (code := reading.result()) is not None:
                    await send({"type": "websocket.close", "code": code})
            finally:
                for task in tasks:
                    task.cancel()


async def _read(session: Session, receive: Receive) -> int | None:
    """Until the client goes; or the code to close with, if it does what it must not."""
    code: int | None = 0
    while code == 0:  # whoever waits for the next message does not hold on to the last
        code = await _take(session, await receive())
    return code


async def _take(session: Session, event: Event) -> int | None:
    """0 if there may be more to read."""
    if event["type"] == "websocket.disconnect":
        return None
    text = event.get("text")
    if text is None and SPLIT not in event:
        return _UNSUPPORTED
    try:
        await session.receive(_split() if text is None else text.encode())
    except ConnectionResetError:
        return None
    return 0


def _split() -> WireError:
    return malformed("The message came in several frames", "$", "Send every message as one text frame.")


async def _unknown(session: Session) -> None:
    """Ends if it is not known in time who the client is."""
    await asyncio.sleep(UNKNOWN_SECONDS)
    with contextlib.suppress(WireError):
        await run(session.who())
        await asyncio.Event().wait()


async def _take_leave(session: Session, send: Send) -> bool:
    """Did the client take what there was to say?"""
    try:
        async with asyncio.timeout(_LAST_WORDS):
            await session.drain()
            await send({"type": "websocket.close", "code": _GOING_AWAY})
    except TimeoutError:
        return False
    return not session.lost


def _abort(scope: Scope) -> None:
    abort = scope.get("extensions", {}).get(ABORT)
    if abort is not None:
        abort()


async def _refuse(send: Send, error: WireError) -> None:
    reply = failure(error, None)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(reply.data))]
    await send({"type": "websocket.http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": reply.data})
