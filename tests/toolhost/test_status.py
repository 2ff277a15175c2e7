from typing import get_args

import pytest

from manglecp.toolhost.dispatch import errors
from manglecp.toolhost.runner import StepStatus
from manglecp.toolhost.status import Status


@pytest.mark.req("IPC-21")
def test_there_are_four_words_and_everybody_has_the_same() -> None:
    assert get_args(Status) == tuple(StepStatus) == ("OK", "TOOL_ERROR", "INVALID_PICK", "BREAKER_TRIP")
    assert errors.Status is Status
