"""How many tokens a text costs a model, and who says so.

With the extra ``tokens`` installed the count is exact for the vocabulary that is named (``o200k_base`` or
``cl100k_base``). Without it, it is an estimate from the bytes: pieces of words, digits and signs, about as long as
vocabularies cut them. On JSON and English it is within a tenth of the exact count, on other languages it may be a fifth
too high. Every answer says which of the two it is, so that nobody takes one for the other.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final, Protocol, cast

from manglecp.pack import TokenCounting


class Counter(Protocol):
    @property
    def by(self) -> str:
        """The name of the vocabulary, or ``estimate``."""

    def count(self, text: bytes) -> int: ...


class Estimate:
    """A count without a vocabulary: pieces of about the size of a token."""

    by: Final = "estimate"
    _pieces: Final = re.compile(rb"[A-Za-z]{1,9}|[0-9]{1,3}|[^A-Za-z0-9\s\x80-\xff]{1,4}|[\x80-\xff]{1,4}|\s{16,64}")

    def count(self, text: bytes) -> int:
        return len(self._pieces.findall(text))


class Vocabulary:
    """An exact count. About 25 µs for a kilobyte of JSON."""

    def __init__(self, name: str, tokenizer: Any) -> None:
        self.by = name
        self._tokenizer = tokenizer

    def count(self, text: bytes) -> int:
        return int(self._tokenizer.count(text.decode("utf-8", "replace")))


ESTIMATE: Final = Estimate()
_BEST: Final = "o200k_base"


@cache
def counter(setting: TokenCounting = "auto") -> Counter:
    """Who counts, by the setting of the pack; the estimate where the vocabulary is not installed."""
    if setting == "estimate":
        return ESTIMATE
    name = _BEST if setting == "auto" else setting
    try:
        vocabularies = import_module("rs_bpe.bpe").openai
    except ImportError:
        return ESTIMATE
    return Vocabulary(name, getattr(vocabularies, name)())


# The tokens of an answer, of which most was counted before.
#
# Vocabularies cut a text into words first, and no word goes on from a letter or digit into a quotation mark. So a
# text can be cut there, and the tokens of the parts add up to those of the whole. Answers are cut where one tool ends
# and the next begins, and around the times of a window: what stays the same from one answer to the next is counted
# once.


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
