"""The address of a server, and the checks before it listens. The module imports little, so that it loads fast.

A server that other machines can reach requires authentication, unless the operator waives it (decision OPEN-03).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket

_BACKLOG: Final = 2_048  # connections that wait to be accepted
_MAX_UNACKNOWLEDGED_MS: Final = 40_000
"""The kernel ends a connection whose client does not acknowledge data for this long."""


class ServeError(Exception):
    """The server cannot start with these options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """The address, names and certificate of a server."""

    host: str = "127.0.0.1"
    port: int = 8_000
    hosts: Sequence[str] = ()
    """Names of the server that clients may send in the Host header, in addition to ``host``."""
    origins: Sequence[str] = ()
    """Origins whose web pages may send requests."""
    certificate: Path | None = None
    key: Path | None = None
    """The file of the private key; None if the file of the certificate has it."""
    open_demo: bool = False
    """Whether other machines may send requests without authentication."""
    max_age: int | None = None
    """The number of seconds that clients may cache the manifest."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(listen_options: ListenOptions, *, auth_required: bool) -> None:
    """Raise ServeError for options that would expose the server to clients or web pages that are not trusted."""
    if not auth_required and not is_loopback(listen_options.host) and not listen_options.open_demo:
        raise ServeError(
            f"other machines can reach {listen_options.host}, and no credential is required; "
            "pass --tokens or --jwt-issuer, or --open-demo to serve all clients"
        )
    if auth_required and "*" in listen_options.origins:
        raise ServeError("a server that requires credentials accepts named origins only, not *")


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket that several processes may share. Raises OSError."""
    import socket  # imported late: a check of options needs no socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only on a socket whose protocol is TCP explicitly.
    listen_socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listen_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux has this option; accepted connections inherit it
            listen_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _MAX_UNACKNOWLEDGED_MS)
        listen_socket.bind((host, port))
        listen_socket.listen(_BACKLOG)
        listen_socket.set_inheritable(True)
    except OSError:
        listen_socket.close()
        raise
    return listen_socket
