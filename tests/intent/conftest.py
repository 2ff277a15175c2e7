"""Every answer of these tests is checked against contracts 1 to 4; tests may be coroutines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from manglecp.intent.evaluation import IntentEvaluation
from tests.intent.contracts import verify
from tests.invoke.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture(scope="session", autouse=True)
def _checked_evaluations() -> Iterator[None]:
    make = IntentEvaluation.__init__

    def make_and_verify(self: IntentEvaluation, **members: Any) -> None:
        make(self, **members)
        verify(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IntentEvaluation, "__init__", make_and_verify)
        yield
