"""Tests of this folder may be coroutines, and have a PostgreSQL and a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.invoke.conftest import pytest_pyfunc_call
from tests.replicas.site import Site, opened
from tests.store.postgres import empty_database, postgres_url

__all__ = ["fresh", "other_url", "postgres_url", "pytest_pyfunc_call", "site"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two replicas behind a proxy, for tests that leave both of them alive."""
    with empty_database() as url, opened(tmp_path_factory.mktemp("site"), url) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path, postgres_url: str) -> Iterator[Site]:
    """The same, for tests that do not."""
    with opened(tmp_path, postgres_url) as made:
        yield made


@pytest.fixture
def other_url() -> Iterator[str]:
    """Another empty database."""
    with empty_database() as url:
        yield url
