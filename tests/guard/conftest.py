from __future__ import annotations

from pathlib import Path

import pytest

from tests.guard.hosts import Setup


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    """A configuration without a guard."""
    return Setup(tmp_path)


@pytest.fixture
def shadow(setup: Setup) -> Setup:
    setup.install()
    return setup


@pytest.fixture
def enforced(setup: Setup) -> Setup:
    setup.install("--enforce")
    return setup
