"""WebSocket: a session for as long as the connection lasts; one message is one text frame (requirement TRANS-04).

The manifest is sent first. While too many bytes are unsent, no messages are read, so that a slow client delays only
itself. The session of a client that stops reading is closed, and the kernel ends its connection (``TCP_USER_TIMEOUT``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from typing import Final

from starlette.types import Receive, Scope, Send

from manglecp.server.auth import credential_of
from manglecp.server.core import Core
from manglecp.server.middleware import HEADERS, refuse_websocket
from manglecp.server.sessions import Session
from manglecp.server.tracing import use_trace_context
from manglecp.wire import WireError

_GOING_AWAY: Final = 1001  # a close code of RFC 6455, as are the next two
_UNSUPPORTED_DATA: Final = 1003
_POLICY_VIOLATION: Final = 1008
AUTHENTICATION_SECONDS: Final = 30.0
"""The time limit for authentication, on servers that require it."""
_UNAUTHENTICATED_SHARE: Final = 8
_REVOKED: Final = "the credential is no longer valid"
_LAST_MESSAGES_SECONDS: Final = 5.0
"""The time limit for unsent messages when the server ends."""


class WebSocketEndpoint:
    """An ASGI application for WebSocket connections."""

    def __init__(self, core: Core, *, limit: int = 1_024) -> None:
        """Accept at most ``limit`` connections at the same time; of one address, an eighth that are unauthenticated."""
        self._core = core
        self._limit = limit
        self._open_count = 0
        self._sessions: defaultdict[str, set[Session]] = defaultdict(set)  # the open sessions of each address
        self._end_requested = asyncio.Event()
        self._all_closed = asyncio.Event()
        self._all_closed.set()

    async def end(self) -> None:
        """Close all connections after their unsent messages."""
        self._end_requested.set()
        await self._all_closed.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        retry_after_ms = self._core.settings.retry_after_ms
        if self._open_count >= self._limit:
            error = WireError("server_not_ready", "Too many connections are open", retry_after_ms=retry_after_ms)
            await refuse_websocket(receive, send, error)
            return
        sessions = self._sessions.get(_address(scope), ())
        if sum(session.identity is None for session in sessions) >= self._limit // _UNAUTHENTICATED_SHARE:
            text = "Too many connections from your address have not authenticated"
            await refuse_websocket(receive, send, WireError("rate_limited", text, retry_after_ms=retry_after_ms))
            return
        self._open_count += 1
        self._all_closed.clear()
        try:
            await receive()  # websocket.connect
            await send({"type": "websocket.accept"})
            with use_trace_context(scope[HEADERS]):  # all requests of the connection belong to the handshake's trace
                await self._serve(scope, receive, send)
        except OSError:  # the client is gone (TRANS-06)
            return
        finally:
            self._open_count -= 1
            if not self._open_count:
                self._all_closed.set()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_text(data: bytes) -> None:
            await send({"type": "websocket.send", "text": data.decode()})

        address = _address(scope)
        session = self._core.session("websocket", peer=address or None, send=send_text)
        credential = credential_of(scope[HEADERS], self._core.auth)
        if credential is not None:
            session.set_credential(*credential)
        self._sessions[address].add(session)
        try:
            await self._run(session, receive, send)
        finally:
            self._sessions[address].discard(session)
            if not self._sessions[address]:
                del self._sessions[address]

    async def _run(self, session: Session, receive: Receive, send: Send) -> None:
        async with session:
            read_task = asyncio.create_task(_read(session, receive))
            lost_task = asyncio.create_task(session.lost.wait())
            end_task = asyncio.create_task(self._end_requested.wait())
            timeout_task = asyncio.create_task(_time_out_authentication(session))
            revoked_task = asyncio.create_task(session.revoked.wait())
            tasks = (read_task, lost_task, end_task, timeout_task, revoked_task)
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if session.lost.is_set():
                    return
                if end_task.done():
                    read_task.cancel()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_LAST_MESSAGES_SECONDS):
                            await session.drain()
                            await send({"type": "websocket.close", "code": _GOING_AWAY})
                elif revoked_task.done():
                    await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": _REVOKED})
                elif timeout_task.done():
                    await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
                elif (code := read_task.result()) is not None:
                    await send({"type": "websocket.close", "code": code})
            finally:
                for task in tasks:
                    task.cancel()


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""


async def _read(session: Session, receive: Receive) -> int | None:
    """Pass messages to the session until the client disconnects; return a close code if it violates the protocol."""
    while (event := await receive())["type"] != "websocket.disconnect":
        text = event.get("text")
        if text is None:
            return _UNSUPPORTED_DATA
        data = text.encode()
        del event, text  # else the variables would keep the message in memory until the next one
        try:
            await session.receive(data)
        except ConnectionResetError:
            return None
        del data
    return None


async def _time_out_authentication(session: Session) -> None:
    """Return after the time limit if the client has not authenticated; otherwise wait until the task is cancelled."""
    await asyncio.sleep(AUTHENTICATION_SECONDS)
    with contextlib.suppress(WireError):
        await session.identify()
        await asyncio.Event().wait()  # waits until the cancellation
