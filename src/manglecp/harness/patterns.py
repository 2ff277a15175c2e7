"""What many texts have in common, so that it can be kept once.

The *names* of a text are digits, hexadecimal and in lower case, two of which are kept as one byte. A *pattern* says how
a text is made of its names: a list of texts that stand in it as they are, and between them of places, each from which
to which digit of the names. A name that stands in several places is among the names once. As JSON:

    ["{\\"id\\":\\"",[0,64],"\\",\\"of\\":[\\"",[64,96],"\\",\\"",[0,64],"\\"]}"]

A pattern is called by the SHA-256 of this JSON. Who reads one that somebody else may have written has it checked first.
"""

from __future__ import annotations

from binascii import Error, hexlify, unhexlify
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate, pairwise, zip_longest
from typing import Final, TypeAlias

import msgspec

__all__ = ["Parts", "Pattern", "expanded", "read_pattern", "write_pattern"]

Parts: TypeAlias = Sequence[str | tuple[int, int]]
"""A pattern that was read."""

_read: Final = msgspec.json.Decoder(list[str | tuple[int, int]]).decode


class Pattern:
    """The pattern of texts that are filled in: which of the values are their names, and of which length."""

    __slots__ = ("_lengths", "_numbers", "digest")

    def __init__(self, pieces: Sequence[bytes], places: Sequence[int], values: Sequence[bytes]) -> None:
        """``places`` are the numbers of the values that stand between the pieces."""
        self._numbers = tuple(dict.fromkeys(places))
        self._lengths = [len(values[number]) for number in self._numbers]
        self.digest = sha256(self.written(pieces, places)).digest()

    def written(self, pieces: Sequence[bytes], places: Sequence[int]) -> bytes:
        """As JSON; the pieces and places are those that it was made of."""
        ends = pairwise(accumulate(self._lengths, initial=0))
        spans = dict(zip(self._numbers, ends, strict=True))
        return write_pattern([piece.decode() for piece in pieces], [spans[number] for number in places])

    def names(self, values: Sequence[bytes]) -> bytes | None:
        """What is kept of the text with these values; None if it cannot be kept like that."""
        found = [values[number] for number in self._numbers]
        if [*map(len, found)] != self._lengths:
            return None
        digits = b"".join(found)
        try:
            names = unhexlify(digits)
        except Error:
            return None
        return names if hexlify(names) == digits else None


def write_pattern(pieces: Sequence[str], spans: Sequence[tuple[int, int]]) -> bytes:
    """There is a piece more than there are places between them."""
    parts = [part for both in zip_longest(pieces, spans) for part in both]
    return msgspec.json.encode(parts[:-1])


def read_pattern(written: bytes, digest: bytes) -> Parts:
    """A :class:`ValueError` if it is not the one that is called so, or none."""
    if sha256(written).digest() != digest:
        raise ValueError("it is another pattern")
    return _read(written)


def expanded(parts: Parts, names: bytes, most: int) -> str:
    """The text with these names; a :class:`ValueError` if it has none, or one of more than ``most`` characters."""
    digits = names.hex()
    length = 0
    for part in parts:
        if isinstance(part, str):
            length += len(part)
        else:
            start, end = part
            if not 0 <= start <= end <= len(digits):
                raise ValueError("a place is not among the names")
            length += end - start
    if length > most:
        raise ValueError("it is too long")
    return "".join([part if isinstance(part, str) else digits[part[0] : part[1]] for part in parts])
