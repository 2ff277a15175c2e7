"""A strict JSON decoder: UTF-8, RFC 8259, no duplicate keys, bounded depth.

msgspec silently keeps the last of two equal keys. To detect duplicates cheaply, the decoded value is encoded again.
Every key ends in ``":``, so a duplicate was lost if the result has fewer ``":`` than the text without white space. A
``":`` inside a string counts in both, unless an escape such as ``\\u003a`` hides it: such a text is parsed twice.

The number and depth of arrays and objects are counted in the text, before decoding: a decoder's recursion limit depends
on the caller's stack, and building millions of objects takes seconds.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import Any, Final, Self, TypeAlias

import msgspec

from manglecp.base.diagnostic import JsonPath
from manglecp.base.text import quote

JSON: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None

_SPACE: Final = b" \t\r\n"
_KEY_END: Final = b'":'
_ESCAPED: Final = re.compile(rb"\\u00(?:2[02]|3[aA])")  # a blank, a quote or a colon as an escape
_NEITHER_BRACKETS_NOR_QUOTES: Final = bytes(set(range(256)) - set(b'[]{}"'))
_BRACES_TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_BRACKETS_TO_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")  # 1 and -1 as signed bytes
_PEELED_LEVELS: Final = 8  # nesting levels that replace() removes one by one; few messages have more levels
_MEMBER_START: Final = re.compile(r'[ \t\r\n]*([{,])[ \t\r\n]*(?=")')
_COLON: Final = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_decoder: Final = msgspec.json.Decoder()
_lenient_decoder: Final = json.JSONDecoder()
_encoder: Final = msgspec.json.Encoder()


class Fault(Exception):
    """A JSON value is refused. Each caller up the stack prepends its steps to the path.

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
        duplicate = None if _has_all_keys(data, decoded) else _find_duplicate(data)
    except UnicodeDecodeError as error:
        raise Fault(f"not UTF-8: byte {error.object[error.start]:#04x}") from None
    except RecursionError:
        raise Fault("nested too deeply") from None
    except ValueError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise Fault(f"not JSON: {reason}", "write one JSON value, such as an object in braces") from None
    if duplicate is not None:
        raise duplicate
    return decoded


class DuplicateKey(Fault):
    """A key occurs twice. ``unique_members`` are the members of the outermost object whose keys occur once."""

    def __init__(self, key: str, unique_members: Mapping[str, Any]) -> None:
        super().__init__(f"an object has the key {quote(key)} twice", "keep one of the two")
        self.unique_members = unique_members


def leading_members(data: bytes) -> dict[str, Any]:
    """Return the members of an object up to the first invalid member; ``{}`` if a key occurs twice."""
    text, members, position = data.decode(errors="surrogateescape"), dict[str, Any](), 0
    with suppress(ValueError, RecursionError):
        while (start := _MEMBER_START.match(text, position)) and start[1] == ("," if members else "{"):
            key, position = _lenient_decoder.raw_decode(text, start.end())
            if key in members:
                return {}
            colon = _COLON.match(text, position)
            if colon is None:
                break
            members[key], position = _lenient_decoder.raw_decode(text, colon.end())
    return members


def brackets(data: bytes) -> bytes:
    """Return the outline of a JSON text: ``[`` and ``]`` for each array and each object, without anything else."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    outline = data.translate(_BRACES_TO_SQUARE, _NEITHER_BRACKETS_NOR_QUOTES)
    outline = outline.replace(b'""', b"")  # a bracket in a string still has an odd number of quotes before it
    return b"".join(outline.split(b'"')[::2])


def is_deeper_than(limit: int, outline: bytes) -> bool:
    """Return whether the :func:`brackets` of a text are nested deeper than ``limit`` (at least ``_PEELED_LEVELS``)."""
    for _ in range(_PEELED_LEVELS):
        outline = outline.replace(b"[]", b"")
    return max(accumulate(array("b", outline.translate(_BRACKETS_TO_STEPS))), default=0) + _PEELED_LEVELS > limit


def _has_all_keys(data: bytes, decoded: JSON) -> bool:
    """Return whether the decoded value has all keys of the text; False if the counts do not show that."""
    if b"\\u00" in data and _ESCAPED.search(data):
        return False
    return _count_key_ends(data) == _count_key_ends(_encoder.encode(decoded))


def _count_key_ends(data: bytes) -> int:
    return data.translate(None, _SPACE).count(_KEY_END)


class _Object(dict[str, Any]):
    """A JSON object with its ``duplicates``, the keys that the text has more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs) if len(self) < len(pairs) else {}
        self.duplicates = [key for key, count in counts.items() if count > 1]


def _find_duplicate(data: bytes) -> DuplicateKey | None:
    """Return the first duplicate key, in an object before the objects inside it; None without duplicate keys."""
    document = json.loads(data, object_pairs_hook=_Object)
    duplicated = document.duplicates if isinstance(document, _Object) else []
    members = document.items() if isinstance(document, _Object) else ()
    return _search(document, {key: value for key, value in members if key not in duplicated})


def _search(value: Any, unique_members: Mapping[str, Any]) -> DuplicateKey | None:
    if isinstance(value, _Object) and value.duplicates:
        return DuplicateKey(value.duplicates[0], unique_members)
    for step, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(part, dict | list) and (duplicate := _search(part, unique_members)) is not None:
            return duplicate.inside(step)
    return None
