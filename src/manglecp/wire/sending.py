"""Messages to bytes: UTF-8 without a byte order mark, and the same bytes for the same message.

Objects are written with their keys in order, so that no history of a dictionary shows.
"""

from __future__ import annotations

from typing import Any

import msgspec

from manglecp.wire.messages import Message

__all__ = ["encode"]

_encoder = msgspec.json.Encoder(order="deterministic")


def encode(message: Message) -> bytes:
    """The bytes of a message. Half a surrogate pair, which UTF-8 cannot say, becomes U+FFFD."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _encoder.encode(_repaired(msgspec.to_builtins(message)))


def _repaired(data: Any) -> Any:
    if isinstance(data, str):
        # UTF-16 joins halves that belong together and replaces the others.
        return data.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(data, dict):
        return {_repaired(key): _repaired(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_repaired(item) for item in data]
    return data
