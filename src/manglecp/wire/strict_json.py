"""A strict JSON decoder: UTF-8, RFC 8259, no duplicate keys (OPEN-58), bounded depth.

msgspec keeps the last of two equal keys. To detect them cheaply, the decoded value is encoded again and must have as
many keys as the text. Without white space, ``":`` ends a key or is part of a string; strings have as many of them in
both texts, unless one of the characters was escaped by number.

The number and depth of arrays and objects are counted in the text, before decoding: a decoder's recursion limit depends
on the caller's stack, and building millions of objects takes seconds.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Final, Self, TypeAlias

import msgspec

from manglecp.base.diagnostic import JsonPath
from manglecp.base.text import quote

JSON: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None

_SPACE: Final = b" \t\r\n"
_KEY_END: Final = b'":'
_ESCAPED: Final = re.compile(rb"\\u00(?:2[02]|3[aA])")  # blank, quote, colon; strings have no other raw white space
_NOT_NESTING: Final = bytes(set(range(256)) - set(b'[]{}"'))
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")
_PEELED: Final = 8  # levels removed by one replace each; few messages have more
_decoder: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder()


class Fault(Exception):
    """A JSON value that is refused: message, fix, and a path that grows while the exception leaves the value's parts.

    Text of the value is quoted only through :mod:`manglecp.base.text`, truncated and without control characters.
    """

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.steps: tuple[str | int, ...] = ()

    def inside(self, *steps: str | int) -> Self:
        """Prepend these steps to the path."""
        self.steps = (*steps, *self.steps)
        return self

    @property
    def path(self) -> str:
        return str(JsonPath(self.steps))


@contextmanager
def faults_at(*steps: str | int) -> Iterator[None]:
    """Prepend these steps to the path of a :class:`Fault` that is raised in the block."""
    try:
        yield
    except Fault as fault:
        fault.inside(*steps)
        raise


def decode(data: bytes) -> JSON:
    """Return the JSON value. Raises :class:`Fault`."""
    try:
        decoded: JSON = _decoder.decode(data)
        repeated = None if _as_many_keys(data, decoded) else _repeated(json.loads(data, object_pairs_hook=_Object))
    except UnicodeDecodeError as error:
        raise Fault(f"not UTF-8: byte {error.object[error.start]:#04x}") from None
    except RecursionError:
        raise Fault("nested too deeply") from None
    except ValueError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise Fault(f"not JSON: {reason}", "write one JSON value, such as an object in braces") from None
    if repeated is not None:
        raise repeated
    return decoded


class DuplicateKey(Fault):
    """A duplicate key. ``unique_members`` are the members of the outermost object that are not duplicated."""

    def __init__(self, key: str, unique_members: Mapping[str, Any]) -> None:
        super().__init__(f"an object has the key {quote(key)} twice", "keep one of the two")
        self.unique_members = unique_members


def brackets(data: bytes) -> bytes:
    """Return the brackets outside strings, all of them square: two for each array and object."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    left = data.translate(_SQUARE, _NOT_NESTING)
    left = left.replace(b'""', b"")  # which changes nothing about what is inside a string
    return b"".join(left.split(b'"')[::2])


def deeper_than(limit: int, left: bytes) -> bool:
    """Return whether these :func:`brackets` are nested deeper than ``limit``, which is at least eight."""
    for _ in range(_PEELED):
        left = left.replace(b"[]", b"")
    return max(accumulate(array("b", left.translate(_STEPS))), default=0) + _PEELED > limit


def _as_many_keys(data: bytes, decoded: JSON) -> bool:
    """Return whether the decoded value has all keys of the text; False where counting cannot decide."""
    if b"\\u00" in data and _ESCAPED.search(data):
        return False
    return _key_ends(data) == _key_ends(_encoder.encode(decoded))


def _key_ends(data: bytes) -> int:
    return data.translate(None, _SPACE).count(_KEY_END)


class _Object(dict[str, Any]):
    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        count = Counter(key for key, _ in pairs) if len(self) < len(pairs) else {}
        self.twice = [key for key, times in count.items() if times > 1]


def _repeated(document: Any) -> DuplicateKey | None:
    """Return the outermost duplicate key; None if counting raised a false alarm."""
    path: list[str | int] = []
    open_: list[Iterator[tuple[str | int, Any]]] = []  # one for each step of the path
    value = document
    while True:
        if isinstance(value, _Object) and value.twice:
            whole = document if isinstance(document, _Object) else _Object([])
            unique_members = {key: part for key, part in whole.items() if key not in whole.twice}
            return DuplicateKey(value.twice[0], unique_members).inside(*path)
        open_.append(_parts(value))
        path.append("")
        while open_:
            path[-1], value = next(open_[-1], ("", None))
            if value is not None:
                break
            open_.pop()
            path.pop()
        else:
            return None


def _parts(value: Any) -> Iterator[tuple[str | int, Any]]:
    """Return the arrays and objects in a value, each with the step to it."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return ((step, part) for step, part in inside if isinstance(part, dict | list))
