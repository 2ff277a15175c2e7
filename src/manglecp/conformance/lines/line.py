"""What checks ask of a way to a server, and how an answer is read: strictly, for whoever made it is being tested."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, Protocol

__all__ = ["Answer", "Closed", "End", "Garbled", "Line", "Transport", "Watch", "read_message"]

Transport = Literal["http", "websocket", "stdio"]
End = Literal["evaluate", "invoke"]
_BOM: Final = b"\xef\xbb\xbf"


class Closed(Exception):
    """The server is not there, or went away."""


class Garbled(Exception):
    """What came is no message. ``row`` is the requirement that says so."""

    def __init__(self, row: str, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}, seen {seen}")
        self.row, self.expected, self.seen = row, expected, seen


@dataclass(frozen=True, slots=True)
class Answer:
    """A message of the server, and how it came."""

    message: dict[str, Any]
    data: bytes
    status: int | None = None
    """On HTTP only, as are the headers."""
    headers: Mapping[str, str] = field(default_factory=dict)
    progress: tuple[dict[str, Any], ...] = ()
    """What came before it for the same request."""

    @property
    def type(self) -> Any:
        """What the message says; any JSON at all."""
        return self.message.get("type")

    @property
    def payload(self) -> dict[str, Any]:
        """Empty if it is no object."""
        payload = self.message.get("payload")
        return payload if isinstance(payload, dict) else {}

    @property
    def code(self) -> Any:
        """Of an error; None for other messages."""
        return self.payload.get("code") if self.type == "error" else None

    @property
    def details(self) -> dict[str, Any]:
        """Of an error; empty if there are none."""
        details = self.payload.get("details")
        return details if isinstance(details, dict) else {}

    def __str__(self) -> str:
        if self.type == "error":
            where = "" if self.status is None else f" with status {self.status}"
            return f"error {self.code}{where} ({self.payload.get('message')}), id {self.message.get('id')!r}"
        return f"{self.type}, id {self.message.get('id')!r}"


Watch = Callable[[Answer], None]
"""Sees every message that the server sends."""


class Line(Protocol):
    """One way to one server. Where it ends, whoever waits gets :class:`Closed`."""

    transport: Transport

    async def open(self) -> Answer:
        """Connect; the manifest."""

    async def ask(self, data: bytes, end: End = "evaluate") -> Answer:
        """Send these bytes, and the terminal message that follows. Nothing else may be under way."""

    async def close(self) -> None:
        """End the connection, and a process that was started for it."""


def read_message(data: bytes) -> dict[str, Any]:
    """One JSON object as RFC 8259 has it."""
    if data.startswith(_BOM):
        raise Garbled("WIRE-24", "UTF-8 without a byte order mark", "a byte order mark")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Garbled("WIRE-24", "UTF-8", f"{error.reason} at byte {error.start}") from None
    try:
        message = json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise Garbled("WIRE-16", "JSON", f"{error}: {text[:200]!r}") from None
    if not isinstance(message, dict):
        raise Garbled("WIRE-01", "a JSON object", text[:200])
    return message


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _constant(name: str) -> NoReturn:
    raise Garbled("WIRE-18", "JSON numbers", name)
