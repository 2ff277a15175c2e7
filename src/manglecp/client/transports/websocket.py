"""The WebSocket transport: each text frame is one message, and the manifest is the first.

Frames are not compressed, and their size is limited. The library sends pings to detect a dead connection.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from manglecp.client.errors import ClientError, ConnectionLost, InvalidResponse, RequestRefused, ServerError
from manglecp.client.transports import session
from manglecp.wire.messages import ErrorMessage

_SCHEMES: Final = frozenset({"ws", "wss"})
_PING_SECONDS: Final = 20.0
_CLOSE_SECONDS: Final = 5.0
_MESSAGE_TOO_BIG: Final = 1009  # the close code of RFC 6455


class _ConnectWithoutRedirects(connect):
    """Connect without following redirects, which would expose the credential."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class WebSocketTransport(session.SessionTransport):
    """A transport to ``url``. ``insecure`` permits a connection without TLS to another machine."""

    def __init__(
        self,
        url: str,
        *,
        max_response_bytes: int = session.MAX_RESPONSE_BYTES,
        connect_seconds: float = 30.0,
        insecure: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(max_response_bytes=max_response_bytes, connect_seconds=connect_seconds)
        self._url = session.check_address(url, _SCHEMES, insecure=insecure)
        self._tls = tls
        self.connection: ClientConnection | None = None

    async def open_stream(self) -> None:
        options: dict[str, Any] = {} if self._tls is None else {"ssl": self._tls}
        try:
            self.connection = await _ConnectWithoutRedirects(
                self._url,
                max_size=self.max_response_bytes,
                compression=None,
                proxy=None,
                open_timeout=None,  # connect() limits the time until the manifest
                close_timeout=_CLOSE_SECONDS,
                ping_interval=_PING_SECONDS,
                ping_timeout=_PING_SECONDS,
                **options,
            )
        except (OSError, WebSocketException) as error:
            raise _handshake_error(self._url, error) from None

    async def read_message(self) -> bytes:
        assert self.connection is not None
        try:
            frame = await self.connection.recv()
        except ConnectionClosed as closed:
            if closed.sent is not None and closed.sent.code == _MESSAGE_TOO_BIG:
                raise InvalidResponse(f"the response is longer than {self.max_response_bytes:,} bytes") from None
            raise ConnectionLost("the connection was lost") from None
        if not isinstance(frame, str):
            raise InvalidResponse("the server sent a binary frame")
        return frame.encode()

    async def write_message(self, data: bytes) -> None:
        if self.connection is None:
            raise ConnectionLost("there is no connection")
        try:
            await self.connection.send(data.decode())
        except ConnectionClosed:
            raise ConnectionLost("the connection was lost") from None

    async def close_stream(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()


def _handshake_error(url: str, error: Exception) -> ClientError:
    """Return the exception for a failed handshake: the error in the server's response, if there is one."""
    if isinstance(error, InvalidStatus):
        status, body = error.response.status_code, error.response.body
        with suppress(ClientError):
            message = session.decode_message(bytes(body or b""), session.MAX_RESPONSE_BYTES)
            if isinstance(message, ErrorMessage):
                return ServerError.from_payload(message.payload)
        if status < 500 and status not in (408, 429):
            return RequestRefused(
                "not_manglecp",
                f"there is no WebSocket at {session.display_address(url)}: HTTP {status}; the usual path is /ws",
            )
    return ConnectionLost(session.unreachable_message(url, error))
