"""Where results reappear: the evidence that a result was used.

A result counts as used if something of it stands in a later reply, in words of the model or in arguments of a call:

* 24 characters in a row, a dozen of them letters or digits (else any table or indentation would do);
* an id: a word of 6 to 64 letters, digits, ``_`` and ``-`` with at least one letter and one digit, or the id of the
  call itself.

Results are long and replies are short. So of a result sixteen characters at every ninth place go into an index, and of
a reply the sixteen at every place are looked up: 24 characters in a row always hold one of the former. What is not
watched any longer stays in the index until that is most of it; then the index is made anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

__all__ = ["Span", "Traces"]

SHORTEST: Final = 24
LONGEST: Final = 120
_GRAM: Final = 16
_STRIDE: Final = SHORTEST - _GRAM + 1
_ALNUM: Final = 12
_SHORTEST_ID: Final = 6
_LONGEST_ID: Final = 64
_PATIENCE: Final = 16
_HOLDERS: Final = 32  # of one piece; headings and licences stand everywhere
_DIGIT: Final = re.compile(r"[0-9]")
_LETTER: Final = re.compile(r"[A-Za-z]")
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{6,}")


class Span(NamedTuple):
    """What reappeared, and in which turn."""

    text: str
    turn: int


class _Index:
    """From pieces of text to the results that hold them. Most pieces are held by one, and those cost the least."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._shared: dict[str, list[int]] = {}
        """Of pieces that several results hold, the results; but for the last one."""

    def add(self, key: int, pieces: Iterable[str]) -> None:
        fresh = dict.fromkeys(pieces, key)
        for piece in fresh.keys() & self._last.keys():
            holders = self._shared.setdefault(piece, [])
            if len(holders) < _HOLDERS:
                holders.append(self._last[piece])
        self._last |= fresh

    def __contains__(self, piece: str) -> bool:
        return piece in self._last

    def holders(self, piece: str) -> list[int]:
        last = self._last.get(piece)
        return [] if last is None else [*self._shared.get(piece, ()), last]

    def found(self, text: str) -> list[int]:
        """Where pieces stand in a text."""
        known = self._last
        return [at for at in range(len(text) - _GRAM + 1) if text[at : at + _GRAM] in known]


class _Result(NamedTuple):
    text: str
    ids: set[str]


class Traces:
    """The results of a thread that nobody has been seen to use yet."""

    def __init__(self, searched: int) -> None:
        self._searched = searched
        self._watched: dict[int, _Result] = {}
        self._dropped = 0
        self._grams, self._ids = _Index(), _Index()

    def add(self, key: int, call_id: str, texts: Iterable[str]) -> None:
        """Watch for a result; ``key`` is what it is called when it is found."""
        text = "\n".join(texts)[: self._searched]
        self._watched[key] = result = _Result(text, _ids(text))
        if len(call_id) >= _SHORTEST_ID:
            result.ids.add(call_id)
        self._put(key, result)

    def drop(self, key: int) -> None:
        """Stop watching."""
        if self._watched.pop(key, None) is None:
            return
        self._dropped += 1
        if self._dropped > 2 * len(self._watched) + _PATIENCE:
            self._grams, self._ids, self._dropped = _Index(), _Index(), 0
            for left, result in self._watched.items():
                self._put(left, result)

    def search(self, text: str) -> Iterator[tuple[int, str]]:
        """The results that reappear in a text of a reply and what of them does; they are not watched any longer."""
        if not self._watched:
            return
        found: dict[int, str] = {}
        for at in self._grams.found(text):
            for key in self._grams.holders(text[at : at + _GRAM]):
                if key in self._watched and key not in found:
                    run = _common(self._watched[key].text, text, at)
                    if run is not None:
                        found[key] = run
        for word in _WORD.findall(text):
            if word in self._ids:
                found |= {key: word for key in self._ids.holders(word) if key in self._watched and key not in found}
        for key, run in found.items():
            self.drop(key)
            yield key, run

    def _put(self, key: int, result: _Result) -> None:
        text = result.text
        self._grams.add(key, [text[at : at + _GRAM] for at in range(0, len(text) - _GRAM + 1, _STRIDE)])
        self._ids.add(key, result.ids)


def _ids(text: str) -> set[str]:
    return {
        word
        for word in _WORD.findall(text)
        if not word.isalpha() and len(word) <= _LONGEST_ID and _DIGIT.search(word) and _LETTER.search(word)
    }


def _common(result: str, reply: str, at: int) -> str | None:
    """The run that two texts have in common around a piece of the reply, if there is a long enough one."""
    piece = reply[at : at + _GRAM]
    start = result.find(piece)
    for _ in range(_HOLDERS):
        if start < 0:
            return None
        run = _run(result, start, reply, at)
        if len(run) >= SHORTEST and sum(map(str.isalnum, run)) >= _ALNUM:
            return run
        start = result.find(piece, start + 1)
    return None


def _run(result: str, start: int, reply: str, at: int) -> str:
    before = 0
    most = min(start, at, LONGEST - _GRAM)
    while before < most and result[start - before - 1] == reply[at - before - 1]:
        before += 1
    after = _GRAM
    most = min(len(result) - start, len(reply) - at, LONGEST - before)
    while after < most and result[start + after] == reply[at + after]:
        after += 1
    return result[start - before : start + after]
