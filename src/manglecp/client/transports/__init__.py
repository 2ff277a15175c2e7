"""Transports to a server: :func:`transport_to` returns the transport to a target, :class:`MemoryTransport` is one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

from manglecp.base.extras import missing_extra
from manglecp.client.errors import ConnectionLost, RequestRefused
from manglecp.client.transports.session import MAX_RESPONSE_BYTES, SessionTransport, Transport


class ServerSession(Protocol):
    """One session of a server that runs in this process."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def receive(self, data: bytes, /) -> None:
        """Handle one message. The session passes the response to its ``send``, possibly after this method returns."""


class SessionFactory(Protocol):
    """A server that runs in this process."""

    def session(
        self, transport: Literal["websocket", "stdio"], /, *, send: Callable[[bytes], Awaitable[None]]
    ) -> ServerSession:
        """Return a session, which calls ``send`` with the manifest and all responses."""


class MemoryTransport(SessionTransport):
    """A transport to a server in this process. The server treats the session as one over the transport ``like``."""

    def __init__(
        self,
        server: SessionFactory,
        *,
        like: Literal["websocket", "stdio"] = "stdio",
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        connect_seconds: float = 30.0,
    ) -> None:
        super().__init__(max_response_bytes=max_response_bytes, connect_seconds=connect_seconds)
        self.server = server
        self.is_identified = hasattr(server, "identity")
        """Whether the program that runs the server has authenticated the principal, so that no credential is sent."""
        self._like: Literal["websocket", "stdio"] = like
        self._session: ServerSession | None = None
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()  # None: the connection is lost

    def lose(self) -> None:
        """End the connection as a broken network would; for tests."""
        self._messages.put_nowait(None)

    async def open_stream(self) -> None:
        self._messages = asyncio.Queue(maxsize=64)  # a full queue makes the server wait
        session = self.server.session(self._like, send=self._messages.put)
        await session.__aenter__()
        self._session = session

    async def read_message(self) -> bytes:
        data = await self._messages.get()
        if data is None:
            raise ConnectionLost("the connection was lost")
        return data

    async def write_message(self, data: bytes) -> None:
        if self._session is None:
            raise ConnectionLost("there is no connection")
        await self._session.receive(data)

    async def close_stream(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.__aexit__(None, None, None)


Target: TypeAlias = str | Sequence[str | Path] | SessionFactory | Transport
"""A URL (http, https, ws, wss), a command that starts a server on standard streams, a server object, or a transport."""


def transport_to(target: Target, **options: Any) -> Transport:
    """Return a transport; ``options`` are keyword arguments of its class, such as ``connect_seconds``."""
    if isinstance(target, str):
        return _network_transport(target, options)
    if isinstance(target, Sequence):
        from manglecp.client.transports.stdio import StdioTransport

        return StdioTransport([str(word) for word in target], **options)
    if hasattr(target, "session") and callable(target.session):
        return MemoryTransport(cast(SessionFactory, target), **options)
    if not hasattr(target, "request") or options:
        raise TypeError("the target is a URL, a command, a server object, or a transport, which takes no options")
    return cast(Transport, target)


def _network_transport(url: str, options: dict[str, Any]) -> Transport:
    scheme = urlsplit(url).scheme.lower()
    try:
        if scheme in ("http", "https"):
            from manglecp.client.transports.http import HttpTransport

            return HttpTransport(url, **options)
        if scheme in ("ws", "wss"):
            from manglecp.client.transports.websocket import WebSocketTransport

            return WebSocketTransport(url, **options)
    except ModuleNotFoundError as missing:
        raise RequestRefused("not_installed", missing_extra(missing.name, "client")) from None
    raise ValueError("a server is a URL with http, https, ws or wss, or a command as a list of words")
