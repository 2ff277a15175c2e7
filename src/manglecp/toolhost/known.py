"""What a generator is known to have said, by part, and what another pass changes about it.

A fact may be given by several parts; it is there as long as one of them gives it. A change is worked out first and
counts when it is taken: whoever cannot use it leaves everything as it was.

The version of what is known is a sum over its facts, so that it is brought up to date with them and does not depend on
order. It tells two states apart; it is no seal against somebody who looks for two states with one sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from manglecp.mangle import Fact

__all__ = ["Change", "Known"]

_NONE: Final[frozenset[Fact]] = frozenset()
_MODULUS: Final = 1 << 128


class Change(NamedTuple):
    """From what is known to what another pass gave."""

    added: tuple[Fact, ...]
    removed: tuple[Fact, ...]
    parts: Mapping[str, frozenset[Fact]]
    """Those that are different now; an empty one is gone."""
    counts: Mapping[Fact, int]
    """By how many parts more, or fewer, a fact is given."""
    sum: int
    """Over all that is known with it."""

    @property
    def empty(self) -> bool:
        """Did the other pass say the same?"""
        return not (self.added or self.removed)


class Known:
    """What one generator said."""

    def __init__(self) -> None:
        self._parts: dict[str, frozenset[Fact]] = {}
        self._counts: dict[Fact, int] = {}
        self.sum = 0

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._counts)

    def change(self, given: Mapping[str, Iterable[Fact]], *, whole: bool) -> Change:
        """What is different if these parts are there; ``whole``: and no others."""
        parts: dict[str, frozenset[Fact]] = {}
        counts: dict[Fact, int] = {}
        gone = [name for name in self._parts if name not in given] if whole else []
        for name, facts in (*given.items(), *((name, _NONE) for name in gone)):
            before = self._parts.get(name, _NONE)
            now = frozenset(facts)
            if now == before:
                continue
            parts[name] = now
            for fact in now - before:
                counts[fact] = counts.get(fact, 0) + 1
            for fact in before - now:
                counts[fact] = counts.get(fact, 0) - 1
        known = self._counts
        added = tuple(fact for fact, more in counts.items() if more > 0 and fact not in known)
        removed = tuple(fact for fact, more in counts.items() if more < 0 and known[fact] + more == 0)
        gained = sum(map(_number, added)) - sum(map(_number, removed))
        return Change(added, removed, parts, counts, (self.sum + gained) % _MODULUS)

    def take(self, change: Change) -> None:
        """From now on this is known. The change has to be the last that was asked for."""
        self.sum = change.sum
        for name, facts in change.parts.items():
            if facts:
                self._parts[name] = facts
            else:
                self._parts.pop(name, None)
        for fact, more in change.counts.items():
            count = self._counts.get(fact, 0) + more
            if count:
                self._counts[fact] = count
            else:
                self._counts.pop(fact, None)


def _number(fact: Fact) -> int:
    return int.from_bytes(hashlib.blake2b(fact.text.encode(), digest_size=16).digest(), "big")
