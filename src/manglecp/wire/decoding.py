"""Bytes to plain JSON, strictly: UTF-8, RFC 8259, bounded nesting, and no key twice in one object (OPEN-58).

The decoder keeps the last of two equal keys without a word. Counting is cheaper than a decoder that remembers: what was
decoded, written again, must have as many keys as the text had. Without white space a quote and a colon end a key or
stand in a string; a string has as many of them in both texts, unless one of those characters was escaped by number.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeAlias

import msgspec

from manglecp.wire.faults import Fault, shown

JSON: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None

_SPACE: Final = b" \t\r\n"
_KEY_END: Final = b'":'
_ESCAPED: Final = re.compile(rb"\\u00(?:2[02]|3[aA])")
"""A blank, a quote or a colon by number; other blanks stand in no string as they are."""
_decoder: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder()


def decode(data: bytes) -> JSON:
    """The JSON value that the bytes say, or a :class:`Fault`."""
    try:
        decoded: JSON = _decoder.decode(data)
        repeated = None if _as_many_keys(data, decoded) else _repeated(data)
    except UnicodeDecodeError as error:
        raise Fault(f"not UTF-8: byte {error.object[error.start]:#04x}") from None
    except RecursionError:
        raise Fault("nested too deeply") from None
    except ValueError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise Fault(f"not JSON: {reason}", "write one JSON value, such as an object in braces") from None
    if repeated is not None:
        raise Fault(f"an object has the key {shown(repeated)} twice", "keep one of the two")
    return decoded


def _as_many_keys(data: bytes, decoded: JSON) -> bool:
    """Are all keys of the text left? False if counting does not settle it."""
    if b"\\u00" in data and _ESCAPED.search(data):
        return False
    return _key_ends(data) == _key_ends(_encoder.encode(decoded))


def _key_ends(data: bytes) -> int:
    return data.translate(None, _SPACE).count(_KEY_END)


def _repeated(data: bytes) -> str | None:
    """The first key that stands twice in one object. Counting only says that it is worth looking."""
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                found.append(key)
            seen.add(key)

    json.loads(data, object_pairs_hook=look)
    return found[0] if found else None
