"""Host, origin and upgrade checks: they keep web pages of other sites away from a server on this machine.

A page whose name was pointed at this machine (DNS rebinding) has a Host that is not ours; a page that sends requests
across origins has an Origin that is not ours. Both are refused before anything else. Programs send no Origin, and an IP
address cannot be rebound. Starlette's TrustedHostMiddleware is not used: it does not parse IPv6 hosts, has no "any IP
address", and refuses without a message (TRANS-14).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from manglecp.server.binding import is_loopback
from manglecp.server.pending import failure
from manglecp.wire import Code, WireError

__all__ = ["HEADERS", "GuardMiddleware", "Guards", "headers_of", "refuse_websocket", "send_response"]

Header = tuple[bytes, bytes]
HEADERS: Final = "manglecp.headers"
"""The key of the scope under which the guard leaves the headers as a mapping."""
JSON: Final = (b"content-type", b"application/json")
NOT_CACHED: Final = (b"cache-control", b"no-store")
_MISDIRECTED: Final = Code(421, False, "the request is for another host")
_FOREIGN: Final = Code(403, False, "pages of this origin may not ask")
_UPGRADE: Final = Code(426, False, "only WebSockets are spoken besides HTTP/1.1, and only at their path")
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY: Final = "*"
_LONGEST_HOST: Final = 262
"""A name of 253 characters, in brackets or with a dot at its end, and a port."""
_CLOSE_SECONDS: Final = 5.0
_SECURE: Final = frozenset({"https", "wss"})


class GuardMiddleware:
    """Applies :class:`Guards` to every request and connection, and refuses to upgrade to other protocols.

    The HTTP parser takes what follows a request with ``Upgrade`` for another protocol: it does not read the body, and
    would read the bytes behind it as a new request. So the connection is closed after the refusal.
    """

    def __init__(self, app: ASGIApp, guards: Guards) -> None:
        self._app = app
        self._guards = guards

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = scope[HEADERS] = headers_of(scope)
        try:
            if scope["type"] == "http" and b"upgrade" in headers:
                raise WireError("x-upgrade_required", "Connect with a WebSocket, or without Upgrade", row=_UPGRADE)
            self._guards.check(headers.get(b"host"), headers.get(b"origin"), scope["scheme"])
        except WireError as error:
            if scope["type"] == "websocket":
                await refuse_websocket(receive, send, error)
            elif error.row is _UPGRADE:
                await send_error(scope, send, error, (b"upgrade", b"websocket"), (b"connection", b"upgrade, close"))
            else:
                await send_error(scope, send, error)
            return
        await self._app(scope, receive, send)


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Headers by their lower-case names. Repeated ones are joined, so that two values never pass for one."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        found[name] = value if name not in found else found[name] + b", " + value
    return found


async def send_response(scope: Scope, send: Send, status: int, body: bytes, headers: Iterable[Header]) -> None:
    """Send a whole response; of a HEAD request only the headers."""
    empty = status in (204, 304)
    length = [] if empty else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": b"" if empty or scope["method"] == "HEAD" else body})


async def send_error(scope: Scope, send: Send, error: WireError, *headers: Header) -> None:
    reply = failure(error, None)
    await send_response(scope, send, reply.status, reply.data, (JSON, NOT_CACHED, *headers))


async def refuse_websocket(receive: Receive, send: Send, error: WireError) -> None:
    """Answer the handshake with an HTTP error."""
    reply = failure(error, None)
    await receive()  # websocket.connect
    headers = [JSON, (b"content-length", b"%d" % len(reply.data))]
    await send({"type": "websocket.http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": reply.data})
    # uvicorn logs an error if the application returns before the connection is closed: the second event says that.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await receive()
            await receive()


class Guards:
    """The hosts and origins that are accepted."""

    def __init__(
        self,
        bound: str = "127.0.0.1",
        *,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        auth: bool = False,
    ) -> None:
        """``bound`` is the address of the server, ``hosts`` further names of it, ``origins`` those whose pages may send
        requests. ``*`` accepts all; not as an origin where ``auth`` is required (TRANS-22)."""
        if auth and _ANY in origins:
            raise ValueError("a server that requires authentication lets in named origins only")
        self._any_host = _ANY in hosts
        self._any_origin = _ANY in origins
        self._hosts = {one.lower() for one in hosts}
        self._numbers = False
        """Accept every IP address: a server that listens on all interfaces does not know which are its own."""
        if is_loopback(bound):
            self._hosts |= _LOOPBACK_NAMES | {bound}
        elif not bound or ((number := _number(bound)) is not None and number.is_unspecified):
            self._numbers = True
            self._hosts |= _LOOPBACK_NAMES
        else:
            self._hosts.add(bound.lower())
        self._origins = {one.lower().rstrip("/") for one in origins}

    def check(self, host: bytes | None, origin: bytes | None, scheme: str = "http") -> None:
        """Raise if the request is refused. ``scheme`` is that of the request, behind trusted proxies the client's."""
        named = None if host is None else _host(host.decode("latin-1"))
        if not self._any_host and (named is None or not self._is_ours(named)):
            raise WireError("x-misdirected_request", "This server does not answer for that host", row=_MISDIRECTED)
        if origin is not None and not self._may_ask(origin.decode("latin-1").lower(), host, scheme):
            raise WireError("x-origin_refused", "Pages of this origin may not ask this server", row=_FOREIGN)

    @property
    def origins(self) -> frozenset[str]:
        """The origins whose pages may read responses, for CORS."""
        return frozenset({_ANY}) if self._any_origin else frozenset(self._origins)

    def _is_ours(self, name: str) -> bool:
        return name in self._hosts or (self._numbers and _number(name) is not None)

    def _may_ask(self, origin: str, host: bytes | None, scheme: str) -> bool:
        if self._any_origin or origin in self._origins:
            return True
        # A page that came from this server itself. One without TLS may be anybody's who stands between; one with it
        # may have come through a proxy that this server was not told of.
        own = ("https",) if scheme in _SECURE else ("http", "https")
        kind, _, rest = origin.partition("://")
        return kind in own and host is not None and rest == host.decode("latin-1").lower()


@lru_cache(maxsize=256)
def _host(text: str) -> str | None:
    """The name in a Host header, without its port; None if it is none. Clients send the same one again and again."""
    if not text or len(text) > _LONGEST_HOST or any(sign in text for sign in "/@?#\\ ,"):
        return None
    try:
        parts = urlsplit(f"//{text}")
        _ = parts.port  # a ValueError if it is no number
        return parts.hostname
    except ValueError:
        return None


def _number(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
