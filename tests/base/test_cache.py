"""The bounded cache."""

import pytest

from manglecp.base.cache import LruCache


def test_the_least_recently_used_entry_is_evicted() -> None:
    cache: LruCache[str, int] = LruCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
    assert len(cache) == 2


def test_an_update_counts_as_use() -> None:
    cache: LruCache[str, int] = LruCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.put("a", 3)
    cache.put("c", 4)
    assert (cache.get("a"), cache.get("b")) == (3, None)


def test_entries_can_be_removed() -> None:
    cache: LruCache[str, int] = LruCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.discard("a")
    cache.discard("a")
    assert cache.get("a") is None
    cache.clear()
    assert len(cache) == 0


def test_an_empty_cache_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        LruCache(0)
