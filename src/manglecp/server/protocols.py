"""uvicorn's protocols, with what they lack for clients that mean harm: an end to slow and to endless beginnings of
requests, a message also for what is no HTTP (TRANS-14), and a way to cut a connection that nobody reads from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import Any, Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from manglecp.server.replies import failure
from manglecp.server.websocket import ABORT, SPLIT
from manglecp.wire.errors import malformed

__all__ = ["HttpProtocol", "WebSocketProtocol"]

HEADER_SECONDS: Final = 20.0
"""In which a request has begun, once there is a connection, or another one on it."""
_LONGEST_HEADERS: Final = 65_536
_HEADER: Final = 32
"""What each header counts besides its letters, so that many short ones are no way around the limit."""


class _Flow(FlowControl):
    """Nothing more is read while there are requests that wait for those before them."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if not self._waiting:
            super().resume_reading()


class HttpProtocol(HttpToolsProtocol):
    """Ends connections whose request does not begin, takes too long to begin, or begins at too great a length."""

    _late: asyncio.TimerHandle | None = None
    _length = 0

    @property
    def write_paused(self) -> bool:
        """Does the client not read what it is sent?"""
        return self.flow.write_paused

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self._expect()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._length = 0
        if self._late is None:
            self._expect()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + _HEADER)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._settle()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """An error message as the body, then the end of the connection."""
        body = failure(malformed("This is no HTTP request", "$"), None).data
        head = (b"HTTP/1.1 400 Bad Request", b"content-type: application/json", b"connection: close")
        self.transport.write(b"\r\n".join((*head, b"content-length: %d" % len(body), b"", body)))
        self.transport.close()

    def _expect(self) -> None:
        self._late = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _settle(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _count(self, length: int) -> None:
        self._length += length
        if self._length > _LONGEST_HEADERS:
            raise ValueError("the request has too many headers")  # the parser stops, and the request is refused


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A client that does not read would keep a connection half closed for ever: its application may cut it.

    A message in several frames is none (TRANS-05): its parts are not kept, and the application is told.
    """

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):  # not if the handshake was refused
            extensions: dict[str, Any] = {**(self.scope["extensions"] or {}), ABORT: self.transport.abort}
            self.scope["extensions"] = extensions

    def connection_lost(self, exc: Exception | None) -> None:
        """Half a frame may be long, and the collector seldom comes by."""
        super().connection_lost(exc)
        self.conn.parser.close()
        self.conn.reader.discard()

    async def send(self, message: Any) -> None:
        """A handshake that is refused is over as well, and no error of the server."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True

    def handle_text(self, event: Frame) -> None:
        """Hand on a message that came in one frame; what is no UTF-8 ends the connection."""
        if not event.fin:
            return
        data, event.data = event.data, b""  # the parser keeps the last frame until the next one comes
        try:
            text = bytes(data).decode()
        except UnicodeDecodeError:
            self.conn.fail(CloseCode.INVALID_DATA)
            self.handle_parser_exception()
            return
        self._hand_over({"type": "websocket.receive", "text": text})

    def handle_bytes(self, event: Frame) -> None:
        """Whatever else comes of it, it ends the connection (TRANS-04)."""
        self._hand_over({"type": "websocket.receive", "bytes": bytes(event.data)})

    def handle_cont(self, event: Frame) -> None:
        """Of a message in several frames, only its end is handed on, without the text."""
        if event.fin:
            self._hand_over({"type": "websocket.receive", SPLIT: True})

    def _hand_over(self, event: Any) -> None:
        if not self.close_sent:  # what comes after our goodbye is read only to reach the client's
            self.queue.put_nowait(event)
            self._pause()

    # Nothing more is read until the application has taken what was, and the client what it was sent: pongs are answers
    # too, and nobody else would count them.

    @property
    def write_paused(self) -> bool:
        """Does the client not read what it is sent?"""
        return not self.writable.is_set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()

    async def receive(self) -> Any:
        """The next event for the application, which makes room for others."""
        event = await self.queue.get()
        self._go_on()
        return event

    def _pause(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def _go_on(self) -> None:
        if self.read_paused and self.queue.empty() and not self.write_paused:
            self.read_paused = False
            self.transport.resume_reading()
