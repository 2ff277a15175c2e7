"""Bytes to plain JSON, strictly: UTF-8, RFC 8259, bounded nesting, and no key twice in one object (OPEN-58).

The decoder keeps the last of two equal keys without a word. Counting is cheaper than a decoder that remembers: as many
keys as were written must be left in what was decoded.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeAlias

import msgspec

from manglecp.wire.faults import Fault, shown

JSON: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None

_STRING: Final = re.compile(rb'"(?:[^"\\]+|\\.)*"[ \t\r\n]*(:?)', re.DOTALL)
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
    if _STRING.findall(data).count(b":") != _keys(decoded):
        raise Fault(f"an object has the key {shown(_repeated(data))} twice", "keep one of the two")
    return decoded


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


def _repeated(data: bytes) -> str:
    """The first key that stands twice in one object."""
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                found.append(key)
            seen.add(key)

    json.loads(data, object_pairs_hook=look)
    return found[0]
