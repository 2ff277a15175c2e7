"""A server in the same process: the same messages as bytes, without a socket between. For tests and embedding.

Anything with ``session(transport, send=…)`` is a server, such as :class:`manglecp.server.core.Core`. What that returns
is entered, takes messages with ``await receive(data)``, and sends everything it has to say, the manifest first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

from manglecp.client.errors import ConnectionLost
from manglecp.client.transports.protocol import MAX_ANSWER_BYTES
from manglecp.client.transports.sessions import SessionTransport

__all__ = ["MemoryTransport", "Server", "ServerSession"]


class ServerSession(Protocol):
    """One session, as a server has it."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def receive(self, data: bytes, /) -> None:
        """Take one message. What there is to answer goes to ``send``, maybe after this returns."""


class Server(Protocol):
    """What has sessions."""

    def session(
        self, transport: Literal["websocket", "stdio"], /, *, send: Callable[[bytes], Awaitable[None]]
    ) -> ServerSession:
        """Open one; the manifest and all answers go to ``send``."""


class MemoryTransport(SessionTransport):
    """``like`` says what the session counts as: standard streams are local trust, a WebSocket is not (TRANS-28)."""

    def __init__(
        self,
        server: Server,
        *,
        like: Literal["websocket", "stdio"] = "stdio",
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        connect_seconds: float = 30.0,
    ) -> None:
        super().__init__(max_answer_bytes=max_answer_bytes, connect_seconds=connect_seconds)
        self._server = server
        self._like: Literal["websocket", "stdio"] = like
        self._opened: ServerSession | None = None
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()

    def lose(self) -> None:
        """End the connection as a broken network would; for tests of what clients do then."""
        self._messages.put_nowait(None)

    async def _open(self) -> None:
        messages: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=64)
        self._messages = messages
        opened = self._server.session(self._like, send=messages.put)
        await opened.__aenter__()
        self._opened = opened

    async def _read(self) -> bytes:
        data = await self._messages.get()
        if data is None:
            raise ConnectionLost("the connection was lost")
        return data

    async def _write(self, data: bytes) -> None:
        if self._opened is None:
            raise ConnectionLost("there is no connection")
        await self._opened.receive(data)

    async def _shut(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.__aexit__(None, None, None)
