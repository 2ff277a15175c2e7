"""What was answered under an idempotency key, for a minute.

An entry belongs to an action and a key (a host has one plugin) and remembers which input it was for: the same key with
other input is a conflict, never somebody else's answer. Only successes are kept: a failure may be tried again. The
oldest entry makes room for the newest, and the time of an entry does not start again when it is used (OPEN-63).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

__all__ = ["MAX_ENTRIES", "TTL", "Cache", "Entry"]

TTL: Final = 60.0
MAX_ENTRIES: Final = 1024


class Entry(NamedTuple):
    """An answer that was given, the difference that its call made to the state included."""

    input_digest: str
    expires: float
    answer: dict[str, Any]


class Cache:
    """The entries, oldest first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[tuple[str, str], Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, aid: str, key: str) -> Entry | None:
        """What was kept for this action under this key, while it counts."""
        entry = self._entries.get((aid, key))
        return entry if entry is not None and entry.expires > self._clock() else None

    def keep(self, aid: str, key: str, input_digest: str, answer: dict[str, Any]) -> None:
        """Remember an answer."""
        self._entries.pop((aid, key), None)  # so that a key that is used again after its time counts as new
        if len(self._entries) >= MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        self._entries[aid, key] = Entry(input_digest, self._clock() + TTL, answer)
