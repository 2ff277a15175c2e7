from typing import get_args

import pytest

from manglecp.runner import StepStatus
from manglecp.toolhost.dispatch.messages import Status


@pytest.mark.req("IPC-21")
def test_the_runner_and_dispatch_have_the_same_four_statuses() -> None:
    assert get_args(Status) == tuple(StepStatus) == ("OK", "TOOL_ERROR", "INVALID_PICK", "BREAKER_TRIP")
