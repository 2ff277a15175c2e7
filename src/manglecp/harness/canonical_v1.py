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
    return _encode(value if _is_plain(value) else _rewrite(value))


def digest_v1(value: Any) -> str:
    """Return ``sha256:`` and the hash of the canonical JSON of a value. Raises :class:`Uncanonical`."""
    return digest_bytes(canonical(value))


def _is_plain(value: Any) -> bool:
    """Return whether the value needs neither rejection nor rewriting. A fast path: most values are plain."""
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


def _rewrite(value: Any) -> Any:
    """Return a copy in which numbers that implementations write differently are text. Raises :class:`Uncanonical`.

    Iterative: the depth of the value is an untrusted input.
    """
    root: list[Any] = [value]
    work: list[tuple[Any, Any, str, int]] = [(root, 0, "", 0)]
    while work:
        holder, place, path, depth = work.pop()
        one = holder[place]
        kind = type(one)
        if depth > _MAX_DEPTH:
            raise Uncanonical("", f"nested more than {_MAX_DEPTH} deep")
        if kind is str:
            if not one.isascii() and _SURROGATE.search(one):
                raise Uncanonical(path, "a lone surrogate")
        elif kind is dict:
            holder[place] = copy = dict(one)
            for key, part in one.items():
                if type(key) is not str:
                    raise Uncanonical(path, "a key is not a string")
                if not key.isascii() and _SURROGATE.search(key):
                    raise Uncanonical(path, "a key holds a lone surrogate")
                if type(part) is not str or not part.isascii():
                    step = key.replace("~", "~0").replace("/", "~1")
                    work.append((copy, key, f"{path}/{step}", depth + 1))
        elif kind is list or kind is tuple:
            holder[place] = items = list(one)
            work += [(items, i, f"{path}/{i}", depth + 1) for i in range(len(items))]
        elif kind is float:
            if not math.isfinite(one):
                raise Uncanonical(path, f"{one!r} is not a number")
            if "e" in repr(one) or (one == 0 and math.copysign(1, one) < 0):
                holder[place] = repr(one)
        elif one is not None and kind is not bool and kind is not int and kind is not msgspec.Raw:
            raise Uncanonical(path, f"a {kind.__name__} is not a JSON value")
    return root[0]
