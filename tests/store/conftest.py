"""Where a store can be."""

from __future__ import annotations

import pytest

from tests.invoke.conftest import pytest_pyfunc_call
from tests.store.postgres import postgres_url

__all__ = ["postgres_url", "pytest_pyfunc_call", "store_where"]


@pytest.fixture(params=["file", "memory", "postgresql"])
def store_where(request: pytest.FixtureRequest) -> str:
    """Where an empty store can be opened, as text for ``open_store``."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    if request.param == "memory":
        return ":memory:"
    return str(request.getfixturevalue("tmp_path") / "store.sqlite3")
