"""What was answered under an idempotency key, for a minute.

An entry belongs to an action and a key (a host has one plugin) and remembers which input it was for: the same key with
other input is a conflict, never somebody else's answer. Only successes are kept: a failure may be tried again. The
oldest entries make room for the newest, in number and in bytes, and the time of an entry does not start again when it
is used (OPEN-63). The newest stays however large it is: to forget it would be to run its action twice.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

__all__ = ["MAX_BYTES", "MAX_ENTRIES", "TTL", "Cache", "Entry"]

TTL: Final = 60.0
MAX_ENTRIES: Final = 1024
MAX_BYTES: Final = 64 * 1024 * 1024


class Entry(NamedTuple):
    """An answer that was given, the difference that its call made to the state included."""

    input_digest: str
    expires: float
    answer: dict[str, Any]
    size: int


class Cache:
    """The entries, oldest first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[tuple[str, str], Entry] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, aid: str, key: str) -> Entry | None:
        """What was kept for this action under this key, while it counts."""
        entry = self._entries.get((aid, key))
        return entry if entry is not None and entry.expires > self._clock() else None

    def keep(self, aid: str, key: str, input_digest: str, answer: dict[str, Any]) -> None:
        """Remember an answer."""
        now, size = self._clock(), _size(key) + _size(answer)
        if (aid, key) in self._entries:  # so that a key that is used again after its time counts as new
            self._drop((aid, key))
        while self._entries:
            oldest = next(iter(self._entries))
            if (
                self._entries[oldest].expires > now
                and len(self._entries) < MAX_ENTRIES
                and self._size + size <= MAX_BYTES
            ):
                break
            self._drop(oldest)
        self._entries[aid, key] = Entry(input_digest, now + TTL, answer, size)
        self._size += size

    def _drop(self, name: tuple[str, str]) -> None:
        self._size -= self._entries.pop(name).size


def _size(value: object) -> int:
    """About how many bytes an answer takes."""
    if isinstance(value, dict):
        return sum(_size(name) + _size(member) for name, member in value.items())
    return sys.getsizeof(value)
