"""Bytes that two implementations agree on, and digests of them.

A digest says ``sha256:`` and the hash of the canonical JSON of a value: object keys in the order of code points, no
spaces, text as UTF-8, escapes only where JSON demands them. Numbers that implementations write in different ways (those
with an exponent, and minus zero) are carried as text. Lone surrogates and numbers that are none have no canonical form
and are refused, and so is what is nested very deep.

Text is trimmed of Unicode white space and, where it is one of a set of words, put into ASCII lower case. Python's own
``strip`` and ``lower`` do more than that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

import msgspec

__all__ = ["Uncanonical", "canonical", "digest", "digest_bytes", "digest_made", "digest_text", "trim", "word"]

# White_Space of Unicode. str.strip() also removes U+001C to U+001F.
_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_DEEPEST: Final = 200
"""Far less than what any parser or encoder of JSON can take, so that what has a form has it everywhere."""
_encode: Final = msgspec.json.Encoder(order="sorted").encode
_UPPER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class Uncanonical(ValueError):
    """A value that has no canonical form. ``path`` leads to it from the value that was to be written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path or '/'}: {reason}")
        self.path = path
        self.reason = reason


def trim(text: str) -> str:
    """Without the white space of Unicode at both ends."""
    return text.strip(_SPACES)


def word(text: str) -> str:
    """A word of a vocabulary: trimmed, ASCII letters in lower case."""
    return text.strip(_SPACES).translate(_UPPER)


def canonical(value: Any) -> bytes:
    """The canonical JSON of a value made of dictionaries, lists, texts, numbers, booleans and None.

    A part that was written before may stand in it as :class:`msgspec.Raw`, and has to be canonical JSON.
    """
    if not _is_plain(value) and _check(value):
        value = _carried(value)
    return _encode(value)


def digest(value: Any) -> str:
    """``sha256:`` and the hash of the canonical JSON."""
    return digest_bytes(canonical(value))


def digest_made(value: Any) -> str:
    """The same of a value that was made here, of whole numbers and of texts that have been read: nothing in it is to
    be refused or carried as text."""
    return "sha256:" + sha256(_encode(value)).hexdigest()


def digest_text(text: str) -> str:
    """The digest of a text itself, not of its JSON."""
    return digest_bytes(text.encode())


def digest_bytes(data: bytes) -> str:
    """The digest of bytes, which may be a canonical form."""
    return "sha256:" + sha256(data).hexdigest()


def _is_plain(value: Any) -> bool:
    """Whether it is sure at a glance that nothing is to be refused or carried. Most values are like that."""
    level = [value]
    for _ in range(_DEEPEST):
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
    """Refuse what has no canonical form; is there a number to be carried as text?

    Without recursion: a stranger decides how deep the value is.
    """
    carry = False
    work: list[tuple[str, Any, int]] = [("", value, 0)]
    while work:
        path, one, depth = work.pop()
        kind = type(one)
        if depth > _DEEPEST:
            raise Uncanonical("", f"nested more than {_DEEPEST} deep")
        if kind is str:
            if not one.isascii() and _SURROGATE.search(one):
                raise Uncanonical(path, "a surrogate stands alone")
        elif kind is dict:
            for key, part in one.items():
                if type(key) is not str:
                    raise Uncanonical(path, "a key is no text")
                if not key.isascii() and _SURROGATE.search(key):
                    raise Uncanonical(path, "a surrogate stands alone in a key")
                if type(part) is not str or not part.isascii():
                    work.append((f"{path}/{_step(key)}", part, depth + 1))
        elif kind is list or kind is tuple:
            work += [(f"{path}/{i}", part, depth + 1) for i, part in enumerate(one)]
        elif kind is float:
            if not math.isfinite(one):
                raise Uncanonical(path, f"{one!r} is no number")
            carry = carry or _is_carried(one)
        elif one is not None and kind is not bool and kind is not int and kind is not msgspec.Raw:
            raise Uncanonical(path, f"a {kind.__name__} is no JSON value")
    return carry


def _step(key: str) -> str:
    """A key as a step of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key


def _is_carried(number: float) -> bool:
    return "e" in repr(number) or (number == 0 and math.copysign(1, number) < 0)


def _carried(value: Any) -> Any:
    """A copy with such numbers as texts. Built from the leaves up, without recursion."""
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
