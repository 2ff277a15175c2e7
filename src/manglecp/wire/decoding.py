"""Bytes to plain JSON, strictly: UTF-8, RFC 8259, bounded nesting, and no key twice in one object (OPEN-58).

The decoder keeps the last of two equal keys without a word. Counting is cheaper than a decoder that remembers: as many
keys as were written must be left in what was decoded. Strings are looked at only where a cheaper count does not settle
it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeAlias

import msgspec

from manglecp.wire.faults import Fault, shown

JSON: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None

_STRING: Final = re.compile(rb'"(?:[^"\\]+|\\.)*"[ \t\r\n]*(:?)', re.DOTALL)
_SPACED: Final = re.compile(rb'"[ \t\r\n]+:')
_decoder: Final = msgspec.json.Decoder()


def decode(data: bytes) -> JSON:
    """The JSON value that the bytes say, or a :class:`Fault`."""
    try:
        decoded: JSON = _decoder.decode(data)
    except UnicodeDecodeError as error:
        raise Fault(f"not UTF-8: byte {error.object[error.start]:#04x}") from None
    except RecursionError:
        raise Fault("nested too deeply") from None
    except ValueError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise Fault(f"not JSON: {reason}", "write one JSON value, such as an object in braces") from None
    keys = _keys(decoded)
    if _at_most(data) != keys and _STRING.findall(data).count(b":") != keys:
        repeated = _repeated(data)
        if repeated is not None:
            raise Fault(f"an object has the key {shown(repeated)} twice", "keep one of the two")
    return decoded


def _at_most(data: bytes) -> int | None:
    """How many keys the text can have written at most; None if that cannot be counted without looking at every string.

    A quote and a colon end a key, or stand where a string begins with a colon, or the quote is escaped and in a string.
    """
    if rb'\\":' in data or _SPACED.search(data):
        return None
    return data.count(b'":') - data.count(rb"\":")


def _keys(data: JSON) -> int:
    """How many keys all objects have together."""
    count = 0
    nested: list[Any] = [data]
    for item in nested:  # it grows on the way
        if type(item) is dict:
            count += len(item)
            nested += [value for value in item.values() if type(value) is dict or type(value) is list]
        elif type(item) is list:
            nested += [value for value in item if type(value) is dict or type(value) is list]
    return count


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
