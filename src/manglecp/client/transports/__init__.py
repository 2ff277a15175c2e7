"""Transports to a server: its address, its command or the object selects one."""

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
    """A session in this process."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def receive(self, data: bytes, /) -> None:
        """Handle one message. Responses go to ``send``, possibly after this returns."""


class SessionFactory(Protocol):
    """An object that opens sessions."""

    def session(
        self, transport: Literal["websocket", "stdio"], /, *, send: Callable[[bytes], Awaitable[None]]
    ) -> ServerSession:
        """Open a session; the manifest and all responses go to ``send``."""


class MemoryTransport(SessionTransport):
    """A session of a server in this process; ``like`` is the transport that it counts as (TRANS-28)."""

    def __init__(
        self,
        server: SessionFactory,
        *,
        like: Literal["websocket", "stdio"] = "stdio",
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        connect_seconds: float = 30.0,
    ) -> None:
        super().__init__(max_response_bytes=max_response_bytes, connect_seconds=connect_seconds)
        self._server = server
        self._like: Literal["websocket", "stdio"] = like
        self._opened: ServerSession | None = None
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()

    def lose(self) -> None:
        """End the connection as a broken network would; for tests."""
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


Target: TypeAlias = str | Sequence[str | Path] | SessionFactory | Transport
"""A URL (http, https, ws, wss), the command of a server on standard streams, a server in this process, a transport."""


def transport_to(target: Target, **options: Any) -> Transport:
    """Return a transport with these options: all but HTTP take ``connect_seconds``, all take ``max_response_bytes``."""
    if isinstance(target, str):
        return _network_transport(target, options)
    if isinstance(target, Sequence):
        from manglecp.client.transports.stdio import StdioTransport

        return StdioTransport([str(word) for word in target], **options)
    if hasattr(target, "session") and callable(target.session):
        return MemoryTransport(target, **options)
    if not hasattr(target, "request") or options:
        raise TypeError("the target is a URL, a command, an object with sessions, or a transport without options")
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
