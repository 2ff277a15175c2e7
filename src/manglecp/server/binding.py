"""Where a server listens, and what has to be so before it does. Needs nothing that takes long to load.

What everybody can reach asks who they are, unless that is waived in so many words (OPEN-03).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket

__all__ = ["ListenOptions", "ServeError", "bind", "check_exposure", "is_loopback"]

_BACKLOG: Final = 2_048
_UNREAD_MS: Final = 40_000
"""How long data may stay unread by a client before its connection is ended."""


class ServeError(Exception):
    """What cannot be served like this, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """Where, by which names, and with which certificate."""

    host: str = "127.0.0.1"
    port: int = 8_000
    hosts: Sequence[str] = ()
    """Names that clients know the server by."""
    origins: Sequence[str] = ()
    """Whose web pages may ask."""
    certificate: Path | None = None
    key: Path | None = None
    """Of the certificate, if it is in a file of its own."""
    open_demo: bool = False
    """Everybody may ask who can reach the address."""
    max_age: int | None = None
    """Seconds that the manifest may be kept."""


def is_loopback(host: str) -> bool:
    """Can only this machine reach what listens there?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(listening: ListenOptions, *, auth: bool) -> None:
    """Nothing is open to everybody by mistake."""
    if not auth and not is_loopback(listening.host) and not listening.open_demo:
        raise ServeError(
            f"{listening.host} can be reached by others, and nobody is asked for a credential; "
            "give --tokens or --jwt-issuer, or --open-demo if everybody may ask"
        )
    if auth and "*" in listening.origins:
        raise ServeError("a server that asks for credentials lets in named origins only, not *")


def bind(host: str, port: int) -> socket.socket:
    """A socket that several processes may listen on."""
    import socket  # who is only asked whether it may listen has no use for it

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named by its protocol: an event loop sends small answers at once only on a socket that it knows to be TCP.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Connections inherit it: the kernel ends those whose client does not read what it was sent.
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
        made.bind((host, port))
        made.listen(_BACKLOG)
        made.set_inheritable(True)
    except OSError:
        made.close()
        raise
    return made
