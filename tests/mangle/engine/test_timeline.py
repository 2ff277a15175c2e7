"""Facts by time, compared with looking at all of them."""

from __future__ import annotations

from random import Random

import pytest

from manglecp.mangle.engine.views import Timeline
from manglecp.mangle.values import INT_MAX, INT_MIN


@pytest.mark.parametrize("seed", range(40))
def test_during(seed: int) -> None:
    random = Random(seed)
    instants = [INT_MIN, INT_MAX, *range(random.choice((3, 10, 40)))]
    facts = set()
    for number in range(random.choice((0, 1, 2, 3, 7, 8, 9, 50))):
        start, end = sorted((random.choice(instants), random.choice(instants)))
        facts.add((number % 5, start, end))
    timeline = Timeline(facts)
    for first in instants:
        for last in (instant for instant in instants if instant >= first):
            found = timeline.during(first, last)
            assert len(found) == len(set(found))
            assert set(found) == {fact for fact in facts if fact[1] <= last and first <= fact[2]}
