"""Every answer of these tests is checked against contracts 1 to 4; tests may be coroutines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.invoke.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture(scope="session", autouse=True)
def _development() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANGLECP_DEVELOPMENT", "1")
        yield
