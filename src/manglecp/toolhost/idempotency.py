"""Idempotency keys, for dispatch and for hosts: the canonical form of inputs, and a cache of answers.

A lease is bound to the exact bytes of the input (:func:`.leases.input_digest`). Inputs under one idempotency key are
compared as values: the order of members and white space do not count, but ``1`` and ``1.0`` differ. An object with a
repeated member name has no canonical form.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable
from hashlib import sha256
from typing import Any, Final, Generic, NamedTuple, TypeVar

TTL: Final = 60.0  # seconds
MAX_ENTRIES: Final = 1_024
MAX_BYTES: Final = 67_108_864
V = TypeVar("V")


def unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members as a dict; raises ValueError for a repeated name. An ``object_pairs_hook`` of :mod:`json`."""
    by_name = dict(members)
    if len(by_name) != len(members):
        raise ValueError("a name is given twice")
    return by_name


_decode: Final = json.JSONDecoder(object_pairs_hook=unique).decode
_encode: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False).encode


def canonical_digest(input_json: str) -> str:
    """Return the SHA-256 of the canonical form of the input, or of its text if it has no canonical form."""
    try:
        text = _encode(_decode(input_json))
    except (ValueError, RecursionError):
        text = input_json
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Entry(NamedTuple):
    expires: float  # on the clock of the cache
    size: int  # bytes
    value: Any


class AnswerCache(Generic[V]):
    """A cache of answers by key with expiry; the oldest are evicted beyond a number of entries or bytes.

    A hit does not extend the expiry. The newest answer is stored whatever its size, because without it a repeated call
    would run the action again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[Hashable, _Entry] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Hashable) -> V | None:
        entry = self._entries.get(key)
        return None if entry is None or entry.expires <= self._clock() else entry.value

    def keep(self, key: Hashable, value: V, size: int = 0, *, seconds: float = TTL) -> None:
        """Store an answer of ``size`` bytes for ``seconds``; evict expired answers, and others if the cache is full."""
        now = self._clock()
        self._drop(key)  # first, so that a key that is stored again becomes the newest entry
        while self._entries:
            oldest = next(iter(self._entries))
            is_full = len(self._entries) >= MAX_ENTRIES or self._size + size > MAX_BYTES
            if not is_full and self._entries[oldest].expires > now:
                break
            self._drop(oldest)
        self._entries[key] = _Entry(now + seconds, size, value)
        self._size += size

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= entry.size
