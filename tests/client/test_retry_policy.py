"""When a request is sent again, and how long that takes. No clock is needed for any of it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from manglecp.client.connection import MAX_RETRIES, RetryPolicy, is_retryable
from manglecp.client.errors import ServerError
from manglecp.wire import CODES


@pytest.mark.req("CLI-06", "ERR-49")
@given(st.integers(0, 4), st.integers(0, 60_000), st.floats(0, 1))
def test_nobody_comes_back_before_the_server_says(retries: int, least: int, chance: float) -> None:
    wait = RetryPolicy(jitter=lambda: chance).delay_ms(retries, least)
    assert wait is not None
    assert wait >= least


@pytest.mark.req("CLI-07", "ERR-49")
@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_waits_double(chance: float) -> None:
    waits = [RetryPolicy(first_delay_ms=100, jitter=lambda: chance).delay_ms(n) for n in range(MAX_RETRIES)]
    assert waits == [(50 + 50 * chance) * 2**n for n in range(MAX_RETRIES)]


@pytest.mark.req("CLI-08", "ERR-49")
def test_there_is_no_sixth_retry() -> None:
    assert MAX_RETRIES == 5
    assert RetryPolicy().delay_ms(4) is not None
    assert RetryPolicy().delay_ms(5) is None
    with pytest.raises(ValueError, match="at most 5"):
        RetryPolicy(max_retries=6)
    assert RetryPolicy(max_retries=0).delay_ms(0) is None


@pytest.mark.req("CLI-06")
def test_who_is_told_to_wait_too_long_gives_up() -> None:
    assert RetryPolicy(max_delay_ms=1_000).delay_ms(0, 1_000) is not None
    assert RetryPolicy(max_delay_ms=1_000).delay_ms(0, 1_001) is None


@pytest.mark.req("ERR-47", "ERR-48")
@pytest.mark.parametrize("code", sorted(CODES))
@pytest.mark.parametrize("waiting", [None, 10])
def test_only_where_waiting_helps_the_same_is_sent_again(code: str, waiting: int | None) -> None:
    error = ServerError(code, "no", recoverable=CODES[code].recoverable, retry_after_ms=waiting)
    told = code in ("x-macro_not_yet_valid", "x-unknown_intent") and waiting is not None
    helps = code in ("server_not_ready", "rate_limited") or told
    assert is_retryable(error) is helps


@pytest.mark.req("ERR-48")
def test_what_is_not_recoverable_is_never_sent_again() -> None:
    assert not is_retryable(ServerError("rate_limited", "no", recoverable=False, retry_after_ms=1))
    assert not is_retryable(ServerError("x-strange", "no", recoverable=False, retry_after_ms=1))
    assert is_retryable(ServerError("x-strange", "no", recoverable=True, retry_after_ms=1))
    assert not is_retryable(ServerError("x-strange", "no", recoverable=True))
