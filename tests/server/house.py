"""A server on a real socket: the desk's message core behind a listener on a port of its own."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from manglecp.server.app import App
from manglecp.server.auth_config import ResourceMetadata
from manglecp.server.binding import bind
from manglecp.server.listener import Listener
from manglecp.server.metrics import Metrics
from manglecp.server.middleware import Guards
from manglecp.server.tls import Tls
from tests.server.desk import PATIENCE, Desk, desk

JSON = {"content-type": "application/json"}


@dataclass
class House:
    desk: Desk
    listener: Listener
    http: httpx.AsyncClient
    url: str

    @property
    def port(self) -> int:
        return self.listener.address[1]

    def websocket(self, path: str = "/ws", **more: Any) -> connect:
        return connect(f"ws://127.0.0.1:{self.port}{path}", proxy=None, max_size=None, **more)

    async def raw(
        self, data: bytes, *, receive_buffer: int | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that has sent ``data``. ``receive_buffer`` limits what the kernel takes for a client that does
        not read."""
        made = socket.socket()
        if receive_buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=made)
        writer.write(data)
        await writer.drain()
        return reader, writer


@asynccontextmanager
async def house(
    *args: Any,
    guards: Guards | None = None,
    metrics: Metrics | None = None,
    metadata: ResourceMetadata | None = None,
    max_age: int | None = None,
    tls: Tls | None = None,
    trusting: ssl.SSLContext | None = None,
    ping: float = 20.0,
    **more: Any,
) -> AsyncIterator[House]:
    """Takes what :func:`desk` takes as well."""
    async with desk(*args, **more) as d:
        app = App(d.core, guards, metrics=metrics, metadata=metadata, max_age=max_age)
        listener = Listener(app, bind("127.0.0.1", 0), tls=tls, ping_seconds=ping)
        await listener.begin()
        url = f"{'http' if tls is None else 'https'}://127.0.0.1:{listener.address[1]}"
        verify = True if trusting is None else trusting
        try:
            async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False, verify=verify) as http:
                yield House(d, listener, http, url)
        finally:
            async with asyncio.timeout(PATIENCE):
                await listener.end(0.0)


__all__ = ["JSON", "ClientConnection", "House", "house"]
