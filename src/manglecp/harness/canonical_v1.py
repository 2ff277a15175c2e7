"""The canonical JSON and digests of harness v1, an external format; golden values fix its bytes.

Everything that this project defines uses :mod:`manglecp.base.json` instead. Object keys are sorted by code point,
without white space, text is UTF-8 with the escapes that JSON requires. Numbers that implementations write differently
(exponents, minus zero) are written as text. Lone surrogates, non-finite numbers and values nested deeper than
:data:`_MAX_DEPTH` have no canonical form.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from manglecp.base.digest import digest_bytes
from manglecp.base.json import Uncanonical

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MAX_DEPTH: Final = 200
"""Far below the limit of any JSON parser or encoder, so that a canonical value is canonical everywhere."""
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def canonical(value: Any) -> bytes:
    """Return the canonical JSON of a value of dicts, lists, strings, numbers, booleans and None.

    A :class:`msgspec.Raw` in it must hold canonical JSON. Raises :class:`Uncanonical`.
    """
    if not _is_plain(value) and _check(value):
        value = _carried(value)
    return _encode(value)


def digest_v1(value: Any) -> str:
    """Return ``sha256:`` and the hash of the canonical JSON of a value. Raises :class:`Uncanonical`."""
    return digest_bytes(canonical(value))


def _is_plain(value: Any) -> bool:
    """Return whether nothing can need refusing or rewriting. A fast path: most values are plain."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for one in level:
            if type(one) is dict:
                for key in one:
                    if type(key) is not str or not key.isascii():
                        return False
                parts: Iterable[Any] = one.values()
            elif type(one) is list:
                parts = one
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
                    if not 1e-4 <= part < 1e16:  # these are written without an exponent
                        return False
                elif kind is not int and kind is not bool and part is not None and kind is not msgspec.Raw:
                    return False
        if not below:
            return True
        level = below
    return False


def _check(value: Any) -> bool:
    """Return whether a number must be written as text. Raises :class:`Uncanonical`.

    Iterative: the depth of the value is an untrusted input.
    """
    carry = False
    work: list[tuple[str, Any, int]] = [("", value, 0)]
    while work:
        path, one, depth = work.pop()
        kind = type(one)
        if depth > _MAX_DEPTH:
            raise Uncanonical("", f"nested more than {_MAX_DEPTH} deep")
        if kind is str:
            if not one.isascii() and _SURROGATE.search(one):
                raise Uncanonical(path, "a lone surrogate")
        elif kind is dict:
            for key, part in one.items():
                if type(key) is not str:
                    raise Uncanonical(path, "a key is not a string")
                if not key.isascii() and _SURROGATE.search(key):
                    raise Uncanonical(path, "a key holds a lone surrogate")
                if type(part) is not str or not part.isascii():
                    work.append((f"{path}/{_step(key)}", part, depth + 1))
        elif kind is list or kind is tuple:
            work += [(f"{path}/{i}", part, depth + 1) for i, part in enumerate(one)]
        elif kind is float:
            if not math.isfinite(one):
                raise Uncanonical(path, f"{one!r} is not a number")
            carry = carry or _is_carried(one)
        elif one is not None and kind is not bool and kind is not int and kind is not msgspec.Raw:
            raise Uncanonical(path, f"a {kind.__name__} is not a JSON value")
    return carry


def _step(key: str) -> str:
    """Escape a key as a JSON pointer token."""
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key


def _is_carried(number: float) -> bool:
    return "e" in repr(number) or (number == 0 and math.copysign(1, number) < 0)


def _carried(value: Any) -> Any:
    """Return a copy with such numbers as text."""
    root: list[Any] = [value]
    work: list[tuple[Any, Any]] = [(root, 0)]
    while work:
        holder, place = work.pop()
        one = holder[place]
        if type(one) is float and _is_carried(one):
            holder[place] = repr(one)
        elif type(one) is dict:
            holder[place] = copy = dict(one)
            work += [(copy, key) for key in copy]
        elif type(one) is list or type(one) is tuple:
            holder[place] = items = list(one)
            work += [(items, number) for number in range(len(items))]
    return root[0]
