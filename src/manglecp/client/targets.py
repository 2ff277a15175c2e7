"""From what a caller names to the transport that leads there. Libraries are imported when an address needs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

from manglecp.client.errors import Refused
from manglecp.client.transports.memory import MemoryTransport, Server
from manglecp.client.transports.protocol import Transport

__all__ = ["Target", "transport_to"]

Target: TypeAlias = str | Sequence[str | Path] | Server | Transport
"""A URL (http, https, ws, wss), the command of a server on standard streams, a server in this process, a transport."""


def transport_to(target: Target, **options: Any) -> Transport:
    """``options`` are those of the transport: all but HTTP take ``connect_seconds``, all take ``max_answer_bytes``."""
    if isinstance(target, str):
        return _over_a_network(target, options)
    if isinstance(target, Sequence):
        from manglecp.client.transports.stdio import StdioTransport

        return StdioTransport([str(word) for word in target], **options)
    if hasattr(target, "session") and callable(target.session):
        return MemoryTransport(target, **options)
    if not hasattr(target, "request") or options:
        raise TypeError("a server is an address, a command, an object with sessions, or a transport with its options")
    return cast(Transport, target)


def _over_a_network(url: str, options: dict[str, Any]) -> Transport:
    scheme = urlsplit(url).scheme.lower()
    try:
        if scheme in ("http", "https"):
            from manglecp.client.transports.http import HttpTransport

            return HttpTransport(url, **options)
        if scheme in ("ws", "wss"):
            from manglecp.client.transports.websocket import WebSocketTransport

            return WebSocketTransport(url, **options)
    except ModuleNotFoundError as missing:
        raise Refused("not_installed", f"{missing.name} is missing: pip install 'manglecp[client]'") from None
    raise ValueError("a server has an address with http, https, ws or wss, or is a command as a list of words")
