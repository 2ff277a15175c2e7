"""What a transport sends back: the bytes of a terminal message, and what it has to know about them."""

from __future__ import annotations

import msgspec

from manglecp.wire import WireError, encode
from manglecp.wire.messages import Message

__all__ = ["Reply", "failure", "success"]


class Reply(msgspec.Struct, frozen=True):
    """A terminal message, ready to be sent."""

    data: bytes
    status: int = 200
    """Of HTTP."""
    code: str | None = None
    """Of the error, if it is one."""
    retry_after_ms: int | None = None


def success(message: Message) -> Reply:
    """The reply that holds this message."""
    return Reply(encode(message))


def failure(error: WireError, request: str | None) -> Reply:
    """The error is over with it: where it came from would hold on to the message until the collector comes by."""
    error.__traceback__ = error.__context__ = None
    waiting = error.retry_after_ms if error.row.recoverable else None
    return Reply(encode(error.answering(request)), error.row.status, error.code, waiting)
