"""Case 21: breakers that flap, race for the probe, or are given a clock that jumps."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from manglecp.toolhost import ActionResult
from manglecp.toolhost.dispatch.breakers import Breaker, Breakers, BreakerState, Permit
from tests.adversarial._hosted import Hosted, effects, hosting
from tests.toolhost.dispatch.hosts import error

THRESHOLD, COOLDOWN = 3, 10.0
EVENTS = st.lists(
    st.sampled_from(["admit", "ok", "bad", "none"]) | st.sampled_from([0.1, 5.0, 9.9, 10.0, 11.0]), max_size=80
)


@given(EVENTS)
def test_no_flapping_lets_more_through_than_it_may(events: list[str | float]) -> None:
    """While open, nobody; while half-open, one; and it opens no later than at the third failure in a row."""
    now = 0.0
    breaker = Breaker(lambda: now, threshold=THRESHOLD, cooldown=COOLDOWN)
    permits: list[Permit] = []
    probe: Permit | None = None
    opened = failures = 0.0
    for event in events:
        if isinstance(event, float):
            now += event
            continue
        before = breaker.state
        if event == "admit":
            permit = breaker.admit()
            if before is BreakerState.OPEN:
                assert permit is None
                assert now - opened < COOLDOWN
            elif before is BreakerState.HALF_OPEN:
                assert now - opened >= COOLDOWN
                assert (permit is None) == (probe in permits), "one at a time"
                probe = permit or probe
            else:
                assert permit is not None
            permits += [permit] if permit else []
            continue
        if not permits:
            continue
        permit = permits.pop(0)
        late = permit.period != breaker._period
        {"ok": breaker.succeeded, "bad": breaker.failed, "none": breaker.abandoned}[event](permit)
        if late:
            assert breaker.state is before, "who reports from an earlier period moves nothing"
            continue
        failures = 0 if event == "ok" else failures + (event == "bad")
        if event == "bad" and before is BreakerState.HALF_OPEN:
            assert breaker.state is BreakerState.OPEN
        if before is BreakerState.CLOSED:
            assert (breaker.state is BreakerState.OPEN) == (event == "bad" and failures == THRESHOLD)
        if breaker.state is BreakerState.OPEN and before is not BreakerState.OPEN:
            opened = now
        if breaker.state is not before:
            failures = 0


def test_of_many_who_race_for_the_probe_one_reaches_the_host(tmp_path: Path) -> None:
    file = tmp_path / "effects"
    now = 0.0

    async def work(hosted: Hosted) -> None:
        nonlocal now
        for _ in range(2):
            assert error(await hosted.call("note_and", path=str(file), how="kill"))[0] == "crash"
        for round_ in (1, 2):
            now += COOLDOWN
            racing = [hosted.call("note_and", path=str(file), how="kill") for _ in range(10)]
            codes = sorted(str(error(result)[1]) for result in await asyncio.gather(*racing))
            assert codes == ["breaker_open"] * 9 + ["outcome_unknown"]
            assert len(effects(file)) == 2 + round_
        now += COOLDOWN
        assert isinstance(await hosted.call("note_and", path=str(file), how="nothing"), ActionResult)
        calls = [hosted.call("note_and", path=str(file), how="nothing") for _ in range(10)]
        assert all(isinstance(result, ActionResult) for result in await asyncio.gather(*calls))

    hosting(work, tmp_path, size=2, breakers=Breakers(lambda: now, threshold=2, cooldown=COOLDOWN))


def test_what_the_breaker_refuses_says_so_and_never_reaches_the_host(tmp_path: Path) -> None:
    file = tmp_path / "effects"

    async def work(hosted: Hosted) -> None:
        await hosted.call("note_and", path=str(file), how="kill")
        refused = await hosted.call("note_and", path=str(file), how="nothing")
        assert isinstance(refused, dict)
        assert (refused["type"], refused.get("code"), refused.get("status")) == (
            "tool_error",
            "breaker_open",
            "BREAKER_TRIP",
        )

    hosting(work, tmp_path, breakers=Breakers(lambda: 0.0, threshold=1))
    assert effects(file) == ["kill"]


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_clock_that_is_set_opens_and_closes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """The pool's own breakers, on the clock that it takes itself."""
    real = time.time()

    async def work(hosted: Hosted) -> None:
        for _ in range(5):
            await hosted.call("note_and", path=str(tmp_path / "effects"), how="kill")
        monkeypatch.setattr(time, "time", lambda: real + jump)
        refused = await hosted.call("note_and", path=str(tmp_path / "effects"), how="nothing")
        assert error(refused) == ("tool_error", "breaker_open")

    hosting(work, tmp_path)
    assert len(effects(tmp_path / "effects")) == 5
