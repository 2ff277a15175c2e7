"""Host, origin and framing checks of HTTP requests, before all other checks.

The checks protect a local server from web pages of other sites, and a server behind a proxy from smuggled requests. A
page that uses DNS rebinding sends a foreign Host header, and a cross-origin page sends a foreign Origin header.
Programs send no Origin, and an IP address cannot be rebound. Starlette's TrustedHostMiddleware does not parse IPv6
hosts, cannot accept all IP addresses, and refuses without an error message (requirement TRANS-14).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from manglecp.server.binding import is_loopback
from manglecp.server.pending import Reply, error_reply
from manglecp.wire import CodeRow, WireError, malformed

Header = tuple[bytes, bytes]
HEADERS: Final = "manglecp.headers"
"""The key in the ASGI scope under which the middleware puts the headers by name."""
JSON: Final = (b"content-type", b"application/json")
NOT_CACHED: Final = (b"cache-control", b"no-store")
# Errors of HTTP only: status, whether a client may retry, and description.
_MISDIRECTED: Final = CodeRow(421, False, "the request is for another host")
_FOREIGN_ORIGIN: Final = CodeRow(403, False, "pages of this origin may not send requests")
_UPGRADE: Final = CodeRow(426, False, "connections are upgraded to WebSocket only, and only at its path")
_TOO_MANY_HEADERS: Final = CodeRow(431, False, "the request has too many headers")
_MAX_HEADERS: Final = 128
_CLOSE: Final = (b"connection", b"close")
_UPGRADE_HEADERS: Final = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"), _CLOSE)
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY: Final = "*"
_MAX_HOST_LENGTH: Final = 262
"""A name of 253 characters, brackets or a final dot, and a port."""
_CLOSE_SECONDS: Final = 5.0  # time limit for the end of a refused connection


class GuardMiddleware:
    """Applies :class:`Guards` to every request; refuses upgrades to other protocols, and bodies with two lengths.

    The connection is closed after these refusals, and after each response to a request whose body was not read to its
    end: a proxy may see the end of such a request elsewhere, so what follows the request is not executed.
    """

    def __init__(self, app: ASGIApp, guards: Guards) -> None:
        self._app = app
        self._guards = guards

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):  # the event "lifespan"
            await self._app(scope, receive, send)
            return
        is_http = scope["type"] == "http"
        headers = scope[HEADERS] = _join_headers(scope["headers"])
        if is_http and (headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers):
            receive, send = _close_if_unread(receive, send)
        try:
            if len(scope["headers"]) > _MAX_HEADERS:
                text = f"Send at most {_MAX_HEADERS} headers"
                raise WireError("x-headers_too_large", text, row=_TOO_MANY_HEADERS)
            if is_http and b"upgrade" in headers:
                raise WireError("x-upgrade_required", "Connect with a WebSocket, or without Upgrade", row=_UPGRADE)
            if b"transfer-encoding" in headers and b"content-length" in headers:
                raise malformed("A request has Transfer-Encoding or Content-Length, not both", "$")
            self._guards.check(headers.get(b"host"), headers.get(b"origin"), scope["scheme"])
        except WireError as error:
            if scope["type"] == "websocket":
                await refuse_websocket(receive, send, error)
            else:
                await send_error(scope, send, error, *(_UPGRADE_HEADERS if error.row is _UPGRADE else ()))
            return
        await self._app(scope, receive, send)


def _close_if_unread(receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Wrap both callables: a response that starts before the end of the request's body gets ``Connection: close``."""
    last_received: Message = {"more_body": True}  # until the first part arrives, the body has not been read

    async def read() -> Message:
        nonlocal last_received
        last_received = await receive()
        return last_received

    async def respond(event: Message) -> None:
        if last_received.get("more_body") and event["type"] == "http.response.start" and _CLOSE not in event["headers"]:
            event["headers"] = [*event["headers"], _CLOSE]
        await send(event)

    return read, respond


def _join_headers(pairs: Iterable[Header]) -> dict[bytes, bytes]:
    """Return the headers by lower-case name; values of a repeated header are joined."""
    headers: dict[bytes, bytes] = {}
    for name, value in pairs:
        headers[name] = value if name not in headers else headers[name] + b", " + value
    return headers


async def send_response(scope: Scope, send: Send, status: int, body: bytes, headers: Iterable[Header]) -> None:
    """Send a response; to a HEAD request only its headers."""
    has_no_body = status in (204, 304)
    length = [] if has_no_body else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": b"" if has_no_body or scope["method"] == "HEAD" else body})


async def send_error(scope: Scope, send: Send, error: WireError, *headers: Header) -> None:
    """Send the error as an HTTP response."""
    reply = error_reply(error)
    await send_response(scope, send, reply.status, reply.data, (JSON, NOT_CACHED, *retry_after(reply), *headers))


def retry_after(reply: Reply) -> tuple[Header, ...]:
    """Return the header with the seconds until a retry, if the reply has a delay."""
    delay_ms = reply.retry_after_ms
    return () if delay_ms is None else ((b"retry-after", b"%d" % math.ceil(delay_ms / 1_000)),)


async def refuse_websocket(receive: Receive, send: Send, error: WireError) -> None:
    """Refuse the handshake with an HTTP error."""
    reply = error_reply(error)
    await receive()  # websocket.connect
    headers = [JSON, (b"content-length", b"%d" % len(reply.data))]
    await send({"type": "websocket.http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": reply.data})
    # uvicorn logs an error if the application returns before it has received the two events that end the connection.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await receive()
            await receive()


class Guards:
    """The hosts and origins that are accepted."""

    def __init__(
        self,
        listen_host: str = "127.0.0.1",
        *,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        auth_required: bool = False,
    ) -> None:
        """Accept requests from ``origins`` to ``hosts`` and to ``listen_host``, the address that the server listens on.

        ``*`` accepts all. Raises ValueError for the origin ``*`` if authentication is required (TRANS-22).
        """
        if auth_required and _ANY in origins:
            raise ValueError("a server that requires authentication accepts named origins only")
        self.origins = frozenset({_ANY} if _ANY in origins else (origin.lower().rstrip("/") for origin in origins))
        """The origins whose pages may read responses, for CORS."""
        self._hosts = {host.lower() for host in hosts}
        # A server that listens on all interfaces does not know its own addresses, so it accepts all addresses.
        address = _parse_address(listen_host)
        self._accepts_any_address = not listen_host or (address is not None and address.is_unspecified)
        if self._accepts_any_address or is_loopback(listen_host):
            self._hosts |= _LOOPBACK_NAMES
        if not self._accepts_any_address:
            self._hosts.add(listen_host.lower())

    def check(self, host: bytes | None, origin: bytes | None, scheme: str = "http") -> None:
        """Raise WireError for a foreign host or origin.

        ``scheme`` is that of the request; behind trusted proxies, that of the client's request.
        """
        name = None if host is None else _parse_host(host.decode("latin-1"))
        if _ANY not in self._hosts and (name is None or not self._is_own_host(name)):
            raise WireError("x-misdirected_request", "This server does not serve that host", row=_MISDIRECTED)
        if origin is not None and not self._accepts_origin(origin.decode("latin-1").lower(), host, scheme):
            raise WireError("x-origin_refused", "Pages of this origin may not send requests here", row=_FOREIGN_ORIGIN)

    def _is_own_host(self, name: str) -> bool:
        return name in self._hosts or (self._accepts_any_address and _parse_address(name) is not None)

    def _accepts_origin(self, origin: str, host: bytes | None, scheme: str) -> bool:
        if _ANY in self.origins or origin in self.origins:
            return True
        # A page of this server. On a TLS connection an http origin is refused: an attacker on the network could have
        # replaced that page. Without TLS an https origin is accepted: the request may come through an unlisted proxy.
        own_schemes = ("https",) if scheme in ("https", "wss") else ("http", "https")
        origin_scheme, _, origin_host = origin.partition("://")
        return origin_scheme in own_schemes and host is not None and origin_host == host.decode("latin-1").lower()


@lru_cache(64)
def _parse_host(header: str) -> str | None:
    """Return the host name of a Host header without the port; None if it is malformed."""
    if not header or len(header) > _MAX_HOST_LENGTH or any(character in header for character in "/@?#\\ ,"):
        return None
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # the property raises ValueError for an invalid port
        return parts.hostname
    except ValueError:
        return None


def _parse_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
