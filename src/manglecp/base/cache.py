"""A bounded cache."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """A thread-safe mapping that evicts the least recently used entry beyond ``max_entries``. Values are not None."""

    def __init__(self, max_entries: int) -> None:
        if max_entries < 1:
            raise ValueError("a cache holds at least one entry")
        self._max_entries: Final = max_entries
        self._entries: Final[OrderedDict[K, V]] = OrderedDict()
        self._lock: Final = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value of a key and mark the entry as recently used; None if there is no entry."""
        with self._lock:
            value = self._entries.get(key)
            if value is not None:
                self._entries.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        """Set the value of a key, evicting the least recently used entry if the cache is full."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            if len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)

    def discard(self, key: K) -> None:
        with self._lock:
            self._entries.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
