"""The tokens of an answer, of which most was counted before.

Vocabularies cut a text into words first, and no word goes on from a letter or digit into a quotation mark. So a text
can be cut there, and the tokens of the parts add up to those of the whole. Answers are cut where one tool ends and the
next begins, and around the times of a window: what stays the same from one answer to the next is counted once.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Final, cast

from manglecp.intent.tokens import Counter

__all__ = ["count"]

_PLACE: Final = re.compile(rb'"(?:,"name":|:"[0-9]{4}-|,"expires_at":|\},"metadata":)')
_WORD: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_SHORTEST: Final = 64
"""Shorter parts are counted faster than they are found; most of them are times."""
_LONGEST: Final = 8192
"""Clients have a say in texts, and so in what is remembered."""


def count(text: bytes, counter: Counter) -> int:
    """As ``counter.count(text)``."""
    return sum([_count(part, counter) for part in _parts(text)])


def _parts(text: bytes) -> Iterator[bytes]:
    start = 0
    for found in _PLACE.finditer(text):
        place = found.start()
        if place and text[place - 1] in _WORD:
            yield text[start:place]
            start = place
    yield text[start:]


def _count(part: bytes, counter: Counter) -> int:
    if _SHORTEST <= len(part) <= _LONGEST:
        return _known(part, cast(Hashable, counter))
    return counter.count(part)


@lru_cache(maxsize=1024)
def _known(part: bytes, counter: Hashable) -> int:
    return cast(Counter, counter).count(part)
