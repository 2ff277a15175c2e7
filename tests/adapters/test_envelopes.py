from __future__ import annotations

import pytest

from manglecp.adapters.conversation import Failure, is_retryable, read_failure, reports_failure
from manglecp.wire import JSON


@pytest.mark.parametrize(
    ("payload", "text", "failure"),
    [
        (None, "It broke.", Failure(None, "It broke.")),
        (None, '{"errorCode": "E1", "errorMessage": "m", "retryable": false}', Failure("E1", "m", False)),
        (None, '{"error": {"type": "timeout", "message": "m"}}', Failure("timeout", "m")),
        (None, '{"error": "it broke", "code": 503}', Failure("503", "it broke")),
        (None, '{"type": "x", "message": "m"}', Failure(None, "m")),
        ({"error_code": "unavailable", "type": "x_error"}, "shown", Failure("unavailable", "shown")),
        ({"error": {"code": -32602, "message": "m"}}, "", Failure("-32602", "m")),
        (None, "", Failure(None, None)),
        (None, '{"broken": ', Failure(None, '{"broken": ')),
    ],
)
def test_what_an_error_says(payload: JSON, text: str, failure: Failure) -> None:
    assert read_failure(payload, text) == failure


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ('{"errorCode": "E1"}', True),
        ('{"isError": true}', True),
        ('{"error": {"code": 1}}', True),
        ('{"error": null, "rows": 3}', False),
        ('{"error": "a column of this name"}', False),
        ("errorCode", False),
    ],
)
def test_results_that_say_of_themselves_that_they_failed(text: str, failed: bool) -> None:
    assert reports_failure(None, text) is failed


def test_the_table() -> None:
    assert is_retryable("Overloaded_Error") is True
    assert is_retryable("-32602") is False
    assert is_retryable("E1") is None
    assert is_retryable(None) is None
