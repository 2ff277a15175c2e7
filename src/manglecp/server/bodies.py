"""The body of a request, counted while it arrives.

What is a little too long is read to its end and thrown away, so that the client hears the answer and not only that its
connection broke. Nothing is read for ever: neither bytes nor seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from manglecp.server.asgi import Connection, Event, Receive
from manglecp.wire import WireError, malformed, too_large

__all__ = ["Gone", "read_body", "whole_body"]

_PATIENCE: Final = 4
"""Times the limit."""


class Gone(Exception):
    """The client went away before it had said everything."""


def whole_body(connection: Connection | None, most: int) -> bytes | None:
    """If it is there, as it is nearly always; None if it has to be read. Raises ``message_too_large``."""
    there = None if connection is None else connection.whole_body()
    return None if there is None else _short(there, most)


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], most: int, seconds: float) -> bytes:
    """Raises ``message_too_large``, or ``malformed_message`` for one that does not come."""
    announced = _length(headers)
    if announced is not None and announced > _PATIENCE * most:
        raise too_large(announced, most)
    first = await _event(receive, seconds)
    if not first.get("more_body", False):
        return _short(bytes(first.get("body", b"")), most)
    try:
        async with asyncio.timeout(seconds):
            return await _rest(receive, bytearray(first.get("body", b"")), most)
    except TimeoutError:
        raise _late(seconds) from None


def _short(body: bytes, most: int) -> bytes:
    if len(body) > most:
        raise too_large(len(body), most)
    return body


async def _rest(receive: Receive, body: bytearray, most: int) -> bytes:
    length, more = len(body), True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise Gone
        part = event.get("body", b"")
        length += len(part)
        if length <= most:
            body += part
        else:
            body.clear()
            if length > _PATIENCE * most:
                break
        more = event.get("more_body", False)
    if length > most:
        raise too_large(length, most)
    return bytes(body)


async def _event(receive: Receive, seconds: float) -> Event:
    try:
        async with asyncio.timeout(seconds):
            event = await receive()
    except TimeoutError:
        raise _late(seconds) from None
    if event["type"] == "http.disconnect":
        raise Gone
    return event


def _late(seconds: float) -> WireError:
    return malformed(f"The message did not arrive within {seconds:g} seconds", "$")


def _length(headers: Mapping[bytes, bytes]) -> int | None:
    try:
        return int(headers[b"content-length"])
    except (KeyError, ValueError):
        return None
