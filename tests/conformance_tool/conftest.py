"""Tests of this folder may be coroutines, and share servers."""

from collections.abc import Iterator

import pytest

from tests.conformance_tool.workshop import Workshop, workshop
from tests.invoke.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with workshop(tmp_path_factory.mktemp("workshop")) as made:
        yield made
