"""Who is behind a proxy: which address a request came from, and over which scheme.

Everybody can write ``X-Forwarded-For``. It is believed only from proxies that whoever runs the server has named, and
read from its right end, where the nearest of them wrote: the first address that is no such proxy is the client, and
what stands left of it is the client's own invention. ``Forwarded`` and ``X-Forwarded-Host`` are never looked at.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final

from manglecp.server.asgi import Scope, headers_of

__all__ = ["Network", "Proxies", "network_of"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_FOR: Final = b"x-forwarded-for"
_PROTO: Final = b"x-forwarded-proto"
_SECURE: Final = {b"https": True, b"wss": True, b"http": False, b"ws": False}
_SCHEMES: Final = {("http", True): "https", ("https", False): "http", ("ws", True): "wss", ("wss", False): "ws"}


def network_of(text: str) -> Network:
    """An address or a network; a ValueError says what is wrong with it."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"{text!r} is no address such as 10.0.0.7 and no network such as 10.0.0.0/8") from None
    if network.prefixlen == 0:
        raise ValueError(f"{text} is everybody, and nobody would be who they are")
    return network


class Proxies:
    """Those that are believed."""

    def __init__(self, trusted: Iterable[Network]) -> None:
        self._trusted = tuple(trusted)

    def seen_through(self, scope: Scope) -> Scope:
        """The request as it reached the outermost proxy; as it is if it came through none."""
        client = scope.get("client")
        nearest = None if not client else _address(client[0])
        if nearest is None or not self._trusts(nearest):
            return scope
        headers = headers_of(scope)
        there = self._client(nearest, headers)
        return {**scope, "client": (str(there), 0), "scheme": _scheme(str(scope.get("scheme", "http")), headers)}

    def _client(self, nearest: _Address, headers: Mapping[bytes, bytes]) -> _Address:
        found = nearest
        for part in reversed(headers.get(_FOR, b"").split(b",")):
            address = _address(part.decode("latin-1").strip())
            if address is None:  # whoever wrote that is as far as anybody knows
                return found
            found = address
            if not self._trusts(found):
                break
        return found

    def _trusts(self, address: _Address) -> bool:
        return any(address in network for network in self._trusted)


def _scheme(scheme: str, headers: Mapping[bytes, bytes]) -> str:
    said = headers.get(_PROTO, b"").rpartition(b",")[2].strip().lower()
    return _SCHEMES.get((scheme, _SECURE.get(said)), scheme)  # type: ignore[arg-type]


def _address(text: str) -> _Address | None:
    """With or without a port; an IPv4 address in the clothes of an IPv6 one is an IPv4 address."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return address
