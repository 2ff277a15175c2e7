"""Frozen facts after many changes equal a plain set, and their indexes those of a plain set."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from manglecp.mangle.engine import views
from manglecp.mangle.engine.views import FrozenFacts, build_index

FACTS = st.frozensets(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=12)
CHANGES = st.lists(st.tuples(FACTS, FACTS, st.sampled_from([(), (0,), (1,), (0, 1)])), max_size=12)


@pytest.mark.parametrize("max_patch", [0, 3, 2_048])
@given(start=st.frozensets(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=100), changes=CHANGES)
def test_changes(
    max_patch: int,
    start: frozenset[tuple[int, int]],
    changes: list[tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]], tuple[int, ...]]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "_MAX_PATCH", max_patch)
        frozen, plain = FrozenFacts(start), set(start)
        for added, removed, columns in changes:
            earlier, before = frozen, set(plain)
            frozen, plain = frozen.with_changes(added, removed), (plain - removed) | added
            assert (set(frozen.facts), len(frozen.facts)) == (plain, len(plain))
            assert set(earlier.facts) == before
            for fact in added | removed | start:
                assert (fact in frozen.facts) == (fact in plain)
            assert added - frozen.facts == set()
            assert frozen.facts - removed == plain - removed
            if columns:
                index, expected = frozen.index(columns), build_index(plain, columns)
                assert (set(index), len(index), bool(index)) == (set(expected), len(expected), bool(expected))
                for key in {*expected, 99}:
                    assert (key in index) == (key in expected)
                    assert Counter(index.get(key, ())) == Counter(expected.get(key, ()))
