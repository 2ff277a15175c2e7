"""Destinations of connections, written ``HOST:PORT``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

MAX_DESTINATIONS: Final = 64
"""The most destinations of one host process."""
PARAM: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")
"""In the egress of a pack: the name, in braces, of the parameter whose value is the destination."""
_FORM: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+)):([1-9][0-9]{0,4})")
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?!.{{254}}){_LABEL}(?:\.{_LABEL})*")
_NUMBER: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")  # as last label, read as IPv4 by the C library
_MAX_PORT: Final = 65_535


class Destination(NamedTuple):
    host: str
    """A name in lower case, or the canonical text of an IP address."""
    port: int
    is_address: bool

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_destination(text: str) -> Destination:
    """Parse ``api.github.com:443``, ``10.0.0.7:5432`` or ``[2001:db8::7]:443``. Raises ValueError with the fix."""
    if len(text) > 300:
        raise ValueError(f"{text[:80]!r}… is not HOST:PORT")
    if "*" in text:
        raise ValueError(f"{text!r} has a wildcard: name each destination as HOST:PORT")
    if "/" in text:
        raise ValueError(f"{text!r} is not HOST:PORT: leave out the scheme and the path, such as api.github.com:443")
    if not text.isascii():
        raise ValueError(f"{text!r} is not ASCII: write the name as it is in the DNS, which begins with xn--")
    match = _FORM.fullmatch(text)
    if match is None or int(match[3]) > _MAX_PORT:
        if ":" not in text:
            raise ValueError(f"{text!r} has no port: write {text}:443")
        raise ValueError(f"{text!r} is not HOST:PORT, such as api.github.com:443 or [2001:db8::7]:443")
    host, port = (match[1] or match[2]).lower(), int(match[3])
    if match[1] is not None or _NUMBER.fullmatch(host.rpartition(".")[2]):
        return Destination(_canonical_address(host, text), port, is_address=True)
    if host.endswith("."):
        raise ValueError(f"{text!r}: leave out the dot at the end of the name")
    if not _NAME.fullmatch(host):
        raise ValueError(f"{text!r}: {host!r} is not the name of a host")
    return Destination(host, port, is_address=False)


def _canonical_address(host: str, text: str) -> str:
    from ipaddress import IPv6Address, ip_address  # late: slow to import

    try:
        address = ip_address(host)
    except ValueError:
        raise ValueError(f"{text!r}: {host!r} is not an IP address in its usual form, such as 10.0.0.7") from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError(f"{text!r}: write the IPv4 address {address.ipv4_mapped}")
    return str(address)


def canonical_destinations(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the destinations in canonical form, sorted and without repetition. Raises ValueError."""
    destinations = tuple(sorted({str(parse_destination(text)) for text in texts}))
    if len(destinations) > MAX_DESTINATIONS:
        raise ValueError(f"{len(destinations)} destinations are named, and {MAX_DESTINATIONS} are allowed")
    return destinations
