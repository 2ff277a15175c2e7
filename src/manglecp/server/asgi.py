"""What ASGI looks like from here: the types of its parts, headers as a mapping, and an answer in two events.

Our own listener tells more of a connection than ASGI has words for; an application under another one does without.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, Protocol, TypeAlias, cast

__all__ = ["CONNECTION", "Connection", "Event", "Receive", "Scope", "Send", "connection_of", "headers_of", "respond"]

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]
CONNECTION: Final = "manglecp.connection"
"""The extension under which a scope of HTTP has its :class:`Connection`."""


class Connection(Protocol):
    """What a request came on."""

    def whole_body(self) -> bytes | None:
        """The body, if all of it is there and nothing of it was received. Nothing is left to receive then."""

    def when_gone(self, told: Callable[[], None] | None) -> None:
        """Have ``told`` called when the client closes the connection; None: do not, any more."""

    def answer(self, head: bytes, body: bytes) -> bool:
        """Send all of an answer at once, if that can be: the status line and headers, each with its line break."""


def connection_of(scope: Scope) -> Connection | None:
    """None under a listener that is not ours."""
    extensions = scope.get("extensions")
    return cast("Connection | None", extensions.get(CONNECTION)) if extensions else None


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
