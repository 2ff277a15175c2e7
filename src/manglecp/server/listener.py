"""A uvicorn server on a socket of the caller, with public options of uvicorn and without its signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from websockets.server import ServerProtocol

from manglecp.server.app import App
from manglecp.server.tls import Tls

PING_SECONDS: Final = 20.0
"""Idle connections need a ping at least every 30 seconds (requirement TRANS-09)."""
_KEEP_ALIVE_SECONDS: Final = 75
"""Idle connections are closed after this time. Proxies close theirs earlier, so no proxy uses a closing connection."""
_MAX_HEADER_BYTES: Final = 64 << 10  # limit of an incomplete header section, trailer or chunk extension
_WATCH_SECONDS: Final = 1.0  # the pause between two checks of all connections
_MAX_BUFFER_BYTES: Final = 64 << 20  # limit of the unsent bytes of a connection
_LINGER_SECONDS: Final = 10  # time limit for connections to close after the last reply
_HANDSHAKE_REFUSAL: Final = (
    b"HTTP/1.1 426 Upgrade Required\r\nupgrade: websocket\r\nconnection: upgrade, close\r\ncontent-length: 0\r\n\r\n"
)


def _is_server_error(record: logging.LogRecord) -> bool:
    """Return False for a text frame that is not UTF-8, a mistake of a client that uvicorn logs as an error."""
    return not (record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError))


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals: the caller handles them, because it drains first."""
        yield


class Listener:
    """Serves an application on a socket, from :meth:`begin` until :meth:`end`."""

    def __init__(
        self, app: App, listen_socket: socket.socket, *, tls: Tls | None = None, ping_seconds: float = PING_SECONDS
    ) -> None:
        self._app = app
        self._socket = listen_socket
        self.address: tuple[str, int] = listen_socket.getsockname()[:2]
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http="h11",  # httptools would read the body of a request with Upgrade as the next request
            h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
            ws="websockets-sansio",
            # A message slightly over the limit gets an error; a much longer one closes the connection (code 1009).
            ws_max_size=4 * app.core.pack_settings.limits.max_message_bytes,
            ws_ping_interval=ping_seconds,
            ws_ping_timeout=ping_seconds,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_LINGER_SECONDS,
            ssl_certfile=None if tls is None else tls.certificate,
            ssl_context_factory=None if tls is None else lambda *_: tls.context(),
        )
        logging.getLogger("uvicorn.error").addFilter(_is_server_error)
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None
        self._watch_task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start the server, and return when it accepts connections."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        self._watch_task = asyncio.create_task(self._watch_connections())
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise RuntimeError("the server did not start")
            await asyncio.sleep(0.001)

    async def end(self, grace: float | None = None) -> bool:
        """Drain, then close the socket. Returns whether all requests ended within ``grace`` seconds."""
        drained = await self._app.drain(grace)
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        if self._watch_task is not None:
            self._watch_task.cancel()
        return drained

    async def _watch_connections(self) -> None:
        """Abort connections with too many unsent bytes, and respond to handshakes that uvicorn does not respond to."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            for connection in tuple(self._server.server_state.connections):
                transport: asyncio.WriteTransport = connection.transport
                # Of WebSockets only. uvicorn does not respond to a handshake with a body or long headers.
                handshake = getattr(connection, "conn", None)
                if transport.get_write_buffer_size() > _MAX_BUFFER_BYTES:
                    transport.abort()
                elif isinstance(handshake, ServerProtocol) and handshake.handshake_exc and not transport.is_closing():
                    transport.write(b"".join(handshake.data_to_send()) or _HANDSHAKE_REFUSAL)
                    transport.close()
