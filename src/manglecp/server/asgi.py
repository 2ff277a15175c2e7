"""What ASGI looks like from here: the types of its parts, headers as a mapping, and an answer in two events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

__all__ = ["Event", "Receive", "Scope", "Send", "headers_of", "respond"]

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """By their names in small letters. What is given several times is joined, so that it never counts as one."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        found[name] = value if name not in found else found[name] + b", " + value
    return found


async def respond(send: Send, status: int, body: bytes, headers: Iterable[Header], *, head: bool = False) -> None:
    """``head``: say how long the body is, and keep it."""
    length = [] if status in (204, 304) else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": b"" if head or status in (204, 304) else body})
