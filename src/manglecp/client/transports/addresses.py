"""Which addresses a client talks to. Where it is sent, a server decides; where it goes, the client does.

Nothing is said in the clear over a network (SEC-34): without TLS only this machine is talked to. And nobody is followed
to another host: whoever can write a redirect or a manifest must not learn a token by it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Collection
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from manglecp.base.text import truncate
from manglecp.client.errors import Refused

__all__ = ["checked", "origin", "resolved", "shown", "unreached"]

_SECURE: Final = frozenset({"https", "wss"})
_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443}
_LONGEST: Final = 200


def checked(url: str, schemes: Collection[str], *, insecure: bool) -> str:
    """The address, if it may be talked to."""
    parts = _split(url)
    if parts.scheme not in schemes or not parts.hostname:
        raise Refused("bad_address", f"{shown(url)} is not an address with {' or '.join(sorted(schemes))}")
    if parts.username is not None or parts.password is not None:
        raise Refused("bad_address", "an address holds no credentials; give them as token")
    if parts.scheme not in _SECURE and not insecure and not _loopback(parts.hostname):
        raise Refused(
            "insecure",
            f"{parts.scheme} is not encrypted, and {truncate(parts.hostname, 100)} is not this machine: "
            f"take {parts.scheme}s, or insecure=True if nobody else is on that network",
        )
    return url


def resolved(base: str, address: str, schemes: Collection[str], *, hosts: Collection[str], insecure: bool) -> str:
    """An address that a server gave, seen from ``base``: on the same host, or on one that the caller named."""
    url = checked(urljoin(base, address), schemes, insecure=insecure)
    here, there = _split(base), _split(url)
    if here.scheme in _SECURE and there.scheme not in _SECURE:
        raise Refused("insecure", f"the server leads from {here.scheme} to {there.scheme}")
    if origin(url)[1:] != origin(base)[1:] and there.hostname not in hosts and not _upgraded(here, there):
        raise Refused("other_host", f"the server leads to another host, {shown(url)}; hosts names those that it may")
    return url


def unreached(url: str, error: Exception) -> str:
    """Why there is no connection, as far as it is known, and what to look at."""
    _, host, port = origin(url)
    where = f"{truncate(host, 100)}:{port}"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate of {where} does not hold: {truncate(cause.verify_message, 200)}"
        if isinstance(cause, ssl.SSLError):
            return f"{where} does not speak TLS as it should; is it an address without?"
        if isinstance(cause, socket.gaierror):
            return f"there is no host {truncate(host, 100)}"
        if isinstance(cause, ConnectionRefusedError):
            return f"nobody listens at {where}: is the server running, and is that its port?"
        cause = cause.__cause__ or cause.__context__
    return f"the connection to {where} failed: {type(error).__name__}"


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port, so that two addresses of one server compare equal."""
    parts = _split(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)


def _upgraded(here: SplitResult, there: SplitResult) -> bool:
    """From http to https on one host, both on their usual ports."""
    return (
        here.hostname == there.hostname
        and here.scheme not in _SECURE
        and there.scheme in _SECURE
        and here.port in (None, 80)
        and there.port in (None, 443)
    )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port, parts.hostname
    except ValueError:
        raise Refused("bad_address", f"{shown(url)} is not an address") from None
    return parts


def _loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def shown(url: str) -> str:
    """Without what may be a secret in it."""
    return truncate(url.split("?")[0].split("#")[0].rsplit("@", 1)[-1], _LONGEST)
