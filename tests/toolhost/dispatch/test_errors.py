"""The error is a plain dict of the contract's shape."""

import pytest

from manglecp.toolhost.dispatch.messages import failure


@pytest.mark.req("IPC-27")
def test_an_error_has_the_members_of_the_contract_and_no_others_unless_they_say_something() -> None:
    assert failure("AID.X.v1", "crash", "why") == {"error": True, "aid": "AID.X.v1", "type": "crash", "detail": "why"}
    refined = failure("AID.X.v1", "tool_error", "why", code="breaker_open", status="BREAKER_TRIP")
    assert refined["code"] == "breaker_open"
    assert refined["status"] == "BREAKER_TRIP"
