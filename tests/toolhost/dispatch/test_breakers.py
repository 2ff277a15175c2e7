"""The breaker as a table: what happens, and what the breaker admits afterwards (threat 21)."""

import pytest

from manglecp.toolhost.dispatch.breakers import Breaker, Breakers, BreakerState, Permit

CLOSED, OPEN, HALF_OPEN = BreakerState

# Threshold 3, cooldown 10. "call" admits a call; "ok", "bad" and "none" report the oldest open one; a number passes.
TABLE: list[tuple[str, BreakerState, bool]] = [
    ("", CLOSED, True),
    ("call bad call bad", CLOSED, True),
    ("call bad call bad call bad", OPEN, False),
    ("call bad call bad call ok call bad call bad", CLOSED, True),
    ("call call call bad bad bad", OPEN, False),
    ("call bad call bad call bad 9.9", OPEN, False),
    ("call bad call bad call bad 10", HALF_OPEN, True),
    ("call bad call bad call bad 10 call", HALF_OPEN, False),
    ("call bad call bad call bad 10 call 100", HALF_OPEN, False),
    ("call bad call bad call bad 10 call ok", CLOSED, True),
    ("call bad call bad call bad 10 call bad", OPEN, False),
    ("call bad call bad call bad 10 call bad 9.9", OPEN, False),
    ("call bad call bad call bad 10 call bad 10", HALF_OPEN, True),
    ("call bad call bad call bad 10 call none", HALF_OPEN, True),
    ("call bad call bad call bad 10 call ok call bad call bad", CLOSED, True),
    # Calls from before the breaker opened report late: they are no probes.
    ("call call call call bad bad bad ok", OPEN, False),
    ("call call call call bad bad bad bad 9.9", OPEN, False),
    ("call call call call bad bad bad 10 ok", HALF_OPEN, True),
    ("call call call call bad bad bad 10 bad", HALF_OPEN, True),
    ("call call call call bad bad bad 10 call none", HALF_OPEN, False),
]


@pytest.mark.parametrize(("events", "state", "admits"), TABLE)
def test_the_table(events: str, state: BreakerState, admits: bool) -> None:
    now = 1_000.0
    breaker = Breaker(lambda: now, threshold=3, cooldown=10)
    permits: list[Permit] = []
    for event in events.split():
        match event:
            case "call":
                permit = breaker.admit()
                assert permit is not None
                permits.append(permit)
            case "ok":
                breaker.succeeded(permits.pop(0))
            case "bad":
                breaker.failed(permits.pop(0))
            case "none":
                breaker.abandoned(permits.pop(0))
            case seconds:
                now += float(seconds)
    assert breaker.state is state
    assert (breaker.admit() is not None) is admits


def test_half_open_admits_exactly_one_of_many() -> None:
    now = 0.0
    breaker = Breaker(lambda: now, threshold=1, cooldown=10)
    permit = breaker.admit()
    assert permit is not None
    breaker.failed(permit)
    assert breaker.retry_after() == 10
    now = 10.0
    assert breaker.retry_after() == 0
    assert [breaker.admit() is not None for _ in range(100)].count(True) == 1


def test_each_action_has_a_breaker_of_its_own() -> None:
    breakers = Breakers(lambda: 0.0, threshold=1)
    permit = breakers.of("AID.A.v1").admit()
    assert permit is not None
    breakers.of("AID.A.v1").failed(permit)
    assert breakers.of("AID.A.v1").admit() is None
    assert breakers.of("AID.B.v1").admit() is not None
