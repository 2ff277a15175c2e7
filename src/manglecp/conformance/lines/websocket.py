"""WebSocket: any text or bytes as one frame."""

from __future__ import annotations

from collections.abc import Mapping

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from manglecp.conformance.lines.line import Closed, Garbled, Transport, Watch
from manglecp.conformance.lines.session import SessionLine

__all__ = ["WebSocketLine"]


class WebSocketLine(SessionLine):
    """A line over one WebSocket connection."""

    transport: Transport = "websocket"

    def __init__(self, url: str, watch: Watch, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(watch)
        self._url = url
        self._headers = dict(headers or {})
        self._connection: ClientConnection | None = None

    async def _connect(self) -> None:
        try:
            self._connection = await connect(
                self._url, additional_headers=self._headers, proxy=None, max_size=None, open_timeout=None
            )
        except (OSError, InvalidHandshake, InvalidURI) as error:
            raise Closed(f"{self._url}: {error}") from None

    async def _read(self) -> bytes:
        assert self._connection is not None
        try:
            frames = [frame async for frame in self._connection.recv_streaming()]
        except ConnectionClosed as error:
            raise Closed(f"the connection was closed: {error}") from None
        if len(frames) != 1:
            raise Garbled("TRANS-05", "one frame for each message", f"a message in {len(frames)} frames")
        if isinstance(frames[0], bytes):
            raise Garbled("TRANS-04", "a text frame", f"a binary frame of {len(frames[0])} bytes")
        return frames[0].encode()

    async def write(self, data: bytes) -> None:
        assert self._connection is not None
        try:
            await self._connection.send(data, text=True)
        except ConnectionClosed as error:
            raise Closed(f"the connection was closed: {error}") from None

    async def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close_timeout = 2.0
            await self._connection.close()
