"""The canonical JSON and digests of harness v1, a format of upstream; tests compare the bytes with recorded bytes.

The formats of this project use :mod:`manglecp.base.json` instead. Object keys are sorted by code point, there is no
white space, text is UTF-8 with the escapes that JSON requires. Numbers that implementations write differently
(exponents, minus zero) are written as text. A value that has no canonical form in :mod:`manglecp.base.json` has none
here.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from manglecp.base.digest import digest_bytes
from manglecp.base.json import check_canonical, is_plain

_encode: Final = msgspec.json.Encoder(order="sorted").encode


def canonical(value: Any) -> bytes:
    """Return the canonical JSON of a value of dicts, lists, strings, numbers, booleans and None.

    A :class:`msgspec.Raw` inside ``value`` must hold canonical JSON. Raises :class:`~manglecp.base.json.Uncanonical`.
    """
    if is_plain(value):
        return _encode(value)
    check_canonical(value)
    return _encode(_rewrite(value))


def digest_v1(value: Any) -> str:
    """Return the digest of the canonical JSON. Raises :class:`~manglecp.base.json.Uncanonical`."""
    return digest_bytes(canonical(value))


def _rewrite(value: Any) -> Any:
    """Return a copy in which numbers that implementations write differently are text. The depth is bounded."""
    kind = type(value)
    if kind is dict:
        return {key: _rewrite(part) for key, part in value.items()}
    if kind is list or kind is tuple:
        return [_rewrite(part) for part in value]
    if kind is float and ("e" in repr(value) or (value == 0 and math.copysign(1, value) < 0)):
        return repr(value)
    return value
