"""WebSocket: a session for as long as the connection lasts; one message is one text frame (TRANS-04).

The manifest goes first. While too much is unsent nothing more is read, so a client that does not read slows down only
itself; one that takes nothing at all loses its session, and the kernel ends its connection (``TCP_USER_TIMEOUT``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import MutableMapping
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from manglecp.server.auth import credential_of
from manglecp.server.core import Core
from manglecp.server.middleware import HEADERS, refuse_websocket
from manglecp.server.sessions import Session
from manglecp.server.tracing import join_trace
from manglecp.wire import WireError

__all__ = ["WebSocketEndpoint"]

_GOING_AWAY: Final = 1001
_UNSUPPORTED: Final = 1003
_POLICY: Final = 1008
UNKNOWN_SECONDS: Final = 30.0
"""Within which a client has authenticated, where that is required."""
_REVOKED: Final = "the credential holds no longer"
_LAST_MESSAGES: Final = 5.0
"""Seconds for unsent messages when the server ends."""


class WebSocketEndpoint:
    """An ASGI application for WebSocket connections."""

    def __init__(self, core: Core, *, limit: int = 1_024) -> None:
        """``limit``: connections at the same time; further ones are refused."""
        self._core = core
        self._limit = limit
        self._open = 0
        self._ending = asyncio.Event()
        self._none_open = asyncio.Event()
        self._none_open.set()

    async def end(self) -> None:
        """Close all connections after their unsent messages."""
        self._ending.set()
        await self._none_open.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._open >= self._limit:
            retry_after_ms = self._core.settings.retry_after_ms
            error = WireError("server_not_ready", "Too many connections are open", retry_after_ms=retry_after_ms)
            await refuse_websocket(receive, send, error)
            return
        self._open += 1
        self._none_open.clear()
        try:
            await receive()  # websocket.connect
            await send({"type": "websocket.accept"})
            with join_trace(scope[HEADERS]):  # all requests of the connection belong to the trace of the handshake
                await self._serve(scope, receive, send)
        except OSError:  # the client is gone (TRANS-06)
            return
        finally:
            self._open -= 1
            if not self._open:
                self._none_open.set()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_text(data: bytes) -> None:
            await send({"type": "websocket.send", "text": data.decode()})

        peer = scope["client"][0] if scope.get("client") else None
        session = self._core.session("websocket", peer=peer, send=send_text)
        credential = credential_of(scope[HEADERS], self._core.auth)
        if credential is not None:
            session.present(*credential)
        async with session:
            reading = asyncio.create_task(_read(session, receive))
            gone = asyncio.create_task(session.gone())
            ending = asyncio.create_task(self._ending.wait())
            unknown = asyncio.create_task(_unauthenticated(session))
            revoked = asyncio.create_task(session.revoked())
            tasks = (reading, gone, ending, unknown, revoked)
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if session.lost:
                    return
                if ending.done():
                    reading.cancel()
                    await _say_goodbye(session, send)
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
    """Read until the client disconnects, or return the code to close with if it violates the protocol."""
    code: int | None = 0
    while code == 0:  # no local variable keeps the last message while the next one is awaited
        code = await _take(session, await receive())
    return code


async def _take(session: Session, event: MutableMapping[str, Any]) -> int | None:
    """0 if there may be more to read."""
    if event["type"] == "websocket.disconnect":
        return None
    text = event.get("text")
    if text is None:
        return _UNSUPPORTED
    try:
        await session.receive(text.encode())
    except ConnectionResetError:
        return None
    return 0


async def _unauthenticated(session: Session) -> None:
    """Return if the client has not authenticated in time."""
    await asyncio.sleep(UNKNOWN_SECONDS)
    with contextlib.suppress(WireError):
        await session.identify()
        await asyncio.Event().wait()


async def _say_goodbye(session: Session, send: Send) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LAST_MESSAGES):
            await session.drain()
            await send({"type": "websocket.close", "code": _GOING_AWAY})
