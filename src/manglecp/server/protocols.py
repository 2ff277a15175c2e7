"""uvicorn's protocols, with what they lack for clients that mean harm: an end to slow and to endless beginnings of
requests, a message also for what is no HTTP (TRANS-14), and a way to cut a connection that nobody reads from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sized
from functools import lru_cache, partial
from typing import Any, Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from manglecp.server.asgi import CONNECTION
from manglecp.server.replies import failure
from manglecp.server.steps import go
from manglecp.server.websocket import ABORT, SPLIT
from manglecp.wire import malformed

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
    """A connection with a deadline: for the request that begins, or for the next one to come.

    Deadlines are set and met all the time, and hardly ever pass. So there is one timer for a connection, which is not
    touched by that: it looks once in a while whether a deadline has passed, and at the next one in time.
    """

    _deadline: float | None = None
    _passed: Callable[[], None]
    """What is done about it."""
    _idle = False
    """Has everything been answered, so that it is the deadline of the next request?"""
    _timer: asyncio.TimerHandle | None = None
    _length = 0
    _begun: RequestResponseCycle | None = None
    """The request whose headers are in the data that is being parsed."""
    told: Callable[[], None] | None = None
    """Who hears of it when the client closes the connection."""

    @property
    def write_paused(self) -> bool:
        """Does the client not read what it is sent?"""
        return self.flow.write_paused

    # --- its life ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self._within(HEADER_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._let_go()
        told, self.told = self.told, None
        if told is not None:
            told()

    def handle_websocket_upgrade(self) -> None:
        """From here on the connection is another protocol's, and nobody may be waiting for an answer on it."""
        before: RequestResponseCycle | None = self.cycle
        if before is not None and not before.response_complete:
            self.send_400_response("")
            return
        super().handle_websocket_upgrade()
        self.parser = None  # type: ignore[assignment]  # as when a connection is lost
        self._let_go()

    def _let_go(self) -> None:
        """Of what holds on to this: the collector of circles seldom comes by."""
        self._deadline, self._passed = None, _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.cycle is not None:
            self.cycle.scope["extensions"] = {}
            self.cycle = None  # type: ignore[assignment]  # as before the first request

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._length = 0
        if self._deadline is None:
            self._within(HEADER_SECONDS, self.transport.abort)

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + _HEADER)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._deadline = None
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """An error message as the body, then the end of the connection."""
        _refuse(self.transport, "This is no HTTP request")

    def on_response_complete(self) -> None:
        """As uvicorn has it, but for its timers."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._begin_task(*self.pipeline.pop())
        else:
            self._idle = True
            self._within(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        """Something has come; it is to be a request."""
        if self._idle:
            self._idle = False
            self._within(HEADER_SECONDS, self.transport.abort)

    # --- requests ----------------------------------------------------------------------------------------------------

    # Most requests are there as a whole when something of them is. Such a one needs no task to wait for the rest of it,
    # and is answered without one, if it can be.

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        begun, self._begun = self._begun, None
        if begun is None or self.transport.is_closing():  # what came behind it was none, and that was told
            return
        if begun.more_body:
            self._begin_task(begun, self.app)
        else:
            app: Any = self.app  # it is ours
            steps = app.steps(begun.scope, begun.receive, begun.send, _Exchange(self, begun))
            go(steps, partial(self._go_on, begun))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """While data is parsed: the request comes after none that is not answered."""
        if app is self.app:
            self._begun = cycle
        else:  # it is refused
            super()._start_asgi_task(cycle, app)

    def _begin_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        exchange: Any = _Exchange(self, cycle)  # for ASGI that is no extension
        cycle.scope["extensions"] = {CONNECTION: exchange}
        super()._start_asgi_task(cycle, app)

    def _go_on(self, cycle: RequestResponseCycle, rest: Coroutine[Any, Any, None]) -> None:
        super()._start_asgi_task(cycle, lambda *_: rest)

    # --- deadlines ---------------------------------------------------------------------------------------------------

    def _within(self, seconds: float, passed: Callable[[], None]) -> None:
        self._deadline, self._passed = self.loop.time() + seconds, passed
        if self._timer is None:
            self._look_in(seconds)

    def _look_in(self, seconds: float) -> None:
        # No deadline is nearer than this when it is set.
        self._timer = self.loop.call_later(min(seconds, HEADER_SECONDS), self._look)

    def _look(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        left = self._deadline - self.loop.time()
        if left > 0:
            self._look_in(left)
        else:
            self._passed()

    def _count(self, length: int) -> None:
        self._length += length
        if self._length > _LONGEST_HEADERS:
            raise ValueError("the request has too many headers")  # the parser stops, and the request is refused


class _Exchange:
    """One request and its answer (:class:`manglecp.server.asgi.Connection`)."""

    __slots__ = ("_cycle", "_protocol")

    def __init__(self, protocol: HttpProtocol, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle = cycle

    def whole_body(self) -> bytes | None:
        cycle = self._cycle
        if cycle.more_body or cycle.waiting_for_100_continue or cycle.disconnected:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        cycle.flow.resume_reading()
        return body

    def when_gone(self, told: Callable[[], None] | None) -> None:
        self._protocol.told = told  # of several requests one is answered at a time
        if told is not None and self._protocol.transport.is_closing():
            told()

    def answer(self, head: bytes, body: bytes) -> bool:
        cycle = self._cycle
        if cycle.response_started or cycle.disconnected or cycle.flow.write_paused:
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
        cycle.transport.write(b"".join((head, _lines(*cycle.default_headers), end, body)))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True


def _refuse(transport: asyncio.Transport, why: str) -> None:
    body = failure(malformed(why, "$"), None).data
    head = (b"HTTP/1.1 400 Bad Request", b"content-type: application/json", b"connection: close")
    transport.write(b"\r\n".join((*head, b"content-length: %d" % len(body), b"", body)))
    transport.close()


def _nothing() -> None:
    """No deadline can pass."""


@lru_cache(maxsize=4)
def _lines(*headers: tuple[bytes, bytes]) -> bytes:
    """Those that every answer has. They change once in a second."""
    return b"".join(b"%s: %s\r\n" % header for header in headers)


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A client that does not read would keep a connection half closed for ever: its application may cut it.

    A message in several frames is none (TRANS-05): its parts are not kept, and the application is told.
    """

    def data_received(self, data: bytes) -> None:
        """A handshake that cannot be read is refused, and the connection closed: nobody else would do either."""
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.close_sent:
            self.close_sent = True
            _refuse(self.transport, "This is no WebSocket handshake")

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
