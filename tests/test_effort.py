"""How much tests try, and how long they wait."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.deadlines import patience
from tests.effort import effort, examples


@pytest.fixture
def soaking() -> Iterator[None]:
    before = settings.get_current_profile_name()
    settings.load_profile("soak")
    yield
    settings.load_profile(before)


@pytest.fixture
def usual() -> Iterator[None]:
    before = settings.get_current_profile_name()
    settings.load_profile("manglecp")
    yield
    settings.load_profile(before)


@pytest.mark.usefixtures("usual")
def test_a_tenth_is_tried() -> None:
    assert [effort(most) for most in (1, 25, 400)] == [1, 2, 40]
    assert [examples(most).max_examples for most in (8, 25, 400)] == [8, 12, 40]


@pytest.mark.usefixtures("soaking")
def test_everything_is_tried_under_soak() -> None:
    assert effort(400) == examples(400).max_examples == 400


def test_limits_grow_with_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.delenv("MANGLECP_TEST_PATIENCE", raising=False)
    for load, factor in ((0.1, 1.0), (6.0, 3.0), (1_000.0, 10.0)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, load, load))
        assert patience(20.0) == 20.0 * factor
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setenv("MANGLECP_TEST_PATIENCE", "4")
    assert patience(20.0) == 80.0
