"""JSON of the standard library for many short texts: what it prepares for each of them is prepared once.

``JSONEncoder.encode`` makes an encoder in C for every text, and ``JSONDecoder.decode`` looks for spaces around each.
For the few hundred bytes of a request that takes about as long as the rest. What is read and written is the same, and
so is what is refused; except that nobody looks whether a value that is written contains itself. So what an action made
is not written here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json import encoder as implementation
from typing import Any, Final

__all__ = ["reader", "writer"]

_SPACES: Final = frozenset(" \t\n\r")


def reader(**options: Any) -> Callable[[str], Any]:
    """As ``JSONDecoder(**options).decode``."""
    decoder = json.JSONDecoder(**options)
    whole, first = decoder.decode, decoder.raw_decode

    def read(text: str) -> Any:
        if not text or text[0] in _SPACES or text[-1] in _SPACES:
            return whole(text)
        value, end = first(text)
        return value if end == len(text) else whole(text)  # which says what is wrong

    return read


def writer(*, ensure_ascii: bool = True) -> Callable[[dict[str, Any]], str]:
    """As ``JSONEncoder.encode`` for objects, without spaces and without numbers that are none."""
    encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=ensure_ascii)
    make = getattr(implementation, "c_make_encoder", None)
    if make is None:  # an interpreter without it
        return encoder.encode
    text = implementation.encode_basestring_ascii if ensure_ascii else implementation.encode_basestring
    pieces = make(None, encoder.default, text, None, ":", ",", False, False, False)
    return lambda value: "".join(pieces(value, 0))
