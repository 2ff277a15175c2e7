"""Canonical JSON (RFC 8785, JCS): the same bytes for the same value, whichever implementation writes them.

Object keys are sorted by UTF-16 code units, there is no white space, text is UTF-8 with the escapes that JSON demands,
and floating-point numbers are written as in ECMAScript. Unlike in the RFC, integers are written with all of their
digits, because a 64-bit id must not be rounded. Lone surrogates, non-finite numbers and values nested deeper than
:data:`_MAX_DEPTH` have no canonical form and are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

_ARRAY_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")  # nine digits suffice: no list here has a billion items
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MAX_DEPTH: Final = 200
"""Far below the limit of any JSON parser or encoder, so that a canonical value is canonical everywhere."""
# value_size() counts every 32 characters of a text as one part: to match a regular expression costs time per character.
_CHARACTERS_PER_PART: Final = 32
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Uncanonical(ValueError):
    """A value has no canonical form; ``path`` is the JSON pointer to the invalid part."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path or '/'}: {reason}")
        self.path = path
        self.reason = reason


def resolve_pointer(document: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer; ``""`` points to the whole document. Raises :class:`LookupError`."""
    value = document
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and _ARRAY_INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            raise LookupError(pointer)
    return value


def canonical(value: Any) -> bytes:
    """Return the canonical JSON of a value of dicts, lists, strings, numbers, booleans and None.

    A :class:`msgspec.Raw` inside the value must hold canonical JSON. Raises :class:`Uncanonical`.
    """
    if is_plain(value):
        return _encode(value)
    check_canonical(value)
    return _write(value)


def is_plain(value: Any) -> bool:
    """Return whether msgspec's encoder certainly writes this dict or list canonically.

    True selects the fast path of :func:`canonical`. False does not mean the contrary: msgspec may write such a value
    canonically, too.
    """
    level = [value]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            if type(container) is dict:
                for key in container:
                    if type(key) is not str or not key.isascii():  # msgspec does not sort by UTF-16 code units
                        return False
                parts: Iterable[Any] = container.values()
            elif type(container) is list:
                parts = container
            else:
                return False
            for part in parts:
                kind = type(part)
                if kind is str:
                    if not part.isascii() and _SURROGATE.search(part):
                        return False
                elif kind is dict or kind is list:
                    below.append(part)
                elif kind is float:
                    # msgspec may write such a number with another exponent than ECMAScript, or as 1.0 instead of 1
                    if not 1e-4 <= part < 1e16 or part.is_integer():
                        return False
                elif kind is not int and kind is not bool and part is not None and kind is not msgspec.Raw:
                    return False
        if not below:
            return True
        level = below
    return False


def check_canonical(value: Any) -> None:
    """Raise :class:`Uncanonical` if the value has no canonical form.

    The check does not recurse, because clients decide how deeply a value is nested.
    """
    pending: list[tuple[str, Any, int]] = [("", value, 0)]  # JSON pointer, value, depth
    while pending:
        path, current, depth = pending.pop()
        kind = type(current)
        if depth > _MAX_DEPTH:
            raise Uncanonical("", f"nested more than {_MAX_DEPTH} deep")  # without the path, which is long
        if kind is str:
            if not current.isascii() and _SURROGATE.search(current):
                raise Uncanonical(path, "a lone surrogate")
        elif kind is dict:
            for key, part in current.items():
                if type(key) is not str:
                    raise Uncanonical(path, "a key is not a string")
                if not key.isascii() and _SURROGATE.search(key):
                    raise Uncanonical(path, "a key holds a lone surrogate")
                if type(part) is not str or not part.isascii():  # an ASCII text needs no check
                    pending.append((f"{path}/{escape_token(key)}", part, depth + 1))
        elif kind is list or kind is tuple:
            pending += [(f"{path}/{index}", part, depth + 1) for index, part in enumerate(current)]
        elif kind is float:
            if not math.isfinite(current):
                raise Uncanonical(path, f"{current!r} is not a number")
        elif current is not None and kind is not bool and kind is not int and kind is not msgspec.Raw:
            raise Uncanonical(path, f"a {kind.__name__} is not a JSON value")


def escape_token(key: str) -> str:
    """Return a key as a token of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _write(value: Any) -> bytes:
    """Return the canonical JSON of a value that passed check_canonical(), which bounds the recursion."""
    kind = type(value)
    if kind is dict:
        # UTF-16 sorts U+E000 to U+FFFF after all characters from U+10000, which start with a surrogate.
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
        return b"{" + b",".join([_encode(key) + b":" + _write(part) for key, part in members]) + b"}"
    if kind is list or kind is tuple:
        return b"[" + b",".join([_write(part) for part in value]) + b"]"
    if kind is float:
        return _format_number(value).encode()
    return _encode(value)


def _format_number(number: float) -> str:
    """Return a finite number as ECMAScript's ``Number::toString`` writes it.

    Python's ``repr`` provides the significant digits. The point and the exponent follow ECMAScript's limits, 21 and -6.
    """
    if number == 0:
        return "0"  # also for minus zero
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The number is 0.DIGITS times ten to the power of ``point``.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    digit_count = len(digits)
    if digit_count <= point <= 21:
        text = digits + "0" * (point - digit_count)
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        text = f"{digits[0]}{'.' if digit_count > 1 else ''}{digits[1:]}e{point - 1:+d}"
    return f"-{text}" if number < 0 else text


def value_size(value: Any, limit: int) -> int:
    """Return the number of parts of a value: inner values, keys, and every 32 characters of a text.

    The count stops above ``limit``.
    """
    count, stack = 0, [value]
    while stack and count <= limit:
        part = stack.pop()
        count += 1
        if isinstance(part, str):
            count += len(part) // _CHARACTERS_PER_PART
        elif part is None or isinstance(part, (int, float)):
            continue  # these types are frequent, and are checked before Mapping, whose check is slow
        elif isinstance(part, list):
            count += max(0, len(part) - limit)  # items beyond the limit are counted, but not visited
            stack += part[:limit]
        elif isinstance(part, (dict, Mapping)):
            stack += part.values()
            stack += part
    return count
