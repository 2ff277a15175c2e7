"""Which Host and Origin are let in: what keeps web pages of others away from a server on this machine.

A browser sends the name that it was given. A page whose name has been pointed at this machine (DNS rebinding) comes
with a Host that is not ours, and a page that simply asks across origins comes with an Origin that is not ours. Both are
refused before anything else is looked at. Programs send no Origin, and a number cannot be pointed anywhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from manglecp.server.binding import is_loopback
from manglecp.wire import Code, WireError

__all__ = ["Guards"]

Headers = Mapping[bytes, bytes]

_MISDIRECTED: Final = Code(421, False, "the request is for another host")
_FOREIGN: Final = Code(403, False, "pages of this origin may not ask")
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY: Final = "*"
_LONGEST_HOST: Final = 262
"""A name of 253 characters, in brackets or with a dot at its end, and a port."""
_SECURE: Final = frozenset({"https", "wss"})
_METHODS: Final = b"GET, HEAD, POST, OPTIONS"
_EXPOSED: Final = (b"access-control-expose-headers", b"ETag, Retry-After, WWW-Authenticate")
_HEADERS: Final = b"Accept, Authorization, Content-Type, If-None-Match, X-MangleCP-API-Key"


class Guards:
    """Says of each request whether its Host and Origin are let in."""

    def __init__(
        self,
        bound: str = "127.0.0.1",
        *,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        auth: bool = False,
    ) -> None:
        """``bound`` is where the server listens, ``hosts`` the names it is known by besides, ``origins`` those whose
        pages may ask. ``*`` lets in everybody; not as an origin where ``auth`` is required (TRANS-22)."""
        if auth and _ANY in origins:
            raise ValueError("a server that requires authentication lets in named origins only")
        self._any_host = _ANY in hosts
        self._any_origin = _ANY in origins
        self._hosts = {one.lower() for one in hosts}
        self._numbers = False
        """Is every number good as a host? Whoever listens everywhere does not know which are theirs."""
        if is_loopback(bound):
            self._hosts |= _LOOPBACK_NAMES | {bound}
        elif _is_wildcard(bound):
            self._numbers = True
            self._hosts |= _LOOPBACK_NAMES
        else:
            self._hosts.add(bound.lower())
        self._origins = {one.lower().rstrip("/") for one in origins}

    def check(self, host: bytes | None, origin: bytes | None, scheme: str = "http") -> None:
        """Raises what the client is told. ``scheme`` is that of the request, as far as it is known here."""
        named = None if host is None else _host(host.decode("latin-1"))
        if not self._any_host and (named is None or not self._is_ours(named)):
            raise WireError("x-misdirected_request", "This server does not answer for that host", row=_MISDIRECTED)
        if origin is not None and not self._may_ask(origin.decode("latin-1").lower(), host, scheme):
            raise WireError("x-origin_refused", "Pages of this origin may not ask this server", row=_FOREIGN)

    def cors(self, origin: bytes | None) -> list[tuple[bytes, bytes]]:
        """The headers that let a page read the answer; for an origin that passed the check."""
        if origin is None:
            return []
        if self._any_origin:
            return [(b"access-control-allow-origin", b"*"), _EXPOSED]
        if origin.decode("latin-1").lower() in self._origins:
            return [(b"access-control-allow-origin", origin), (b"vary", b"Origin"), _EXPOSED]
        return []

    @staticmethod
    def preflight() -> list[tuple[bytes, bytes]]:
        """The headers that answer a browser which asks before it sends."""
        return [
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", _HEADERS),
            (b"access-control-max-age", b"600"),
        ]

    def _is_ours(self, name: str) -> bool:
        return name in self._hosts or (self._numbers and _is_number(name))

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


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
