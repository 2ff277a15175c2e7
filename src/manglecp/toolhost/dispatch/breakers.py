"""Circuit breakers, one per action, so that a broken action does not block others.

*Closed* admits every call, and opens at the ``threshold``-th consecutive failure. *Open* admits none, and is half-open
``cooldown`` seconds later. *Half-open* admits exactly one call, the probe, which closes the breaker or opens it again.

Each change of the state begins a new period. A call is admitted with a :class:`Permit` of the current period; the
result of a call that was admitted in an earlier period is ignored. After a probe that was abandoned (cancelled, never
sent), another probe is admitted. The clock is passed in and must be monotonic, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

THRESHOLD: Final = 5  # consecutive failures
COOLDOWN: Final = 30.0  # seconds


class BreakerState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class Permit:
    """One admitted call; pass it once to ``succeeded``, ``failed`` or ``abandoned``."""

    period: int
    is_probe: bool = False


class Breaker:
    """The circuit breaker of one action."""

    def __init__(self, clock: Callable[[], float], *, threshold: int = THRESHOLD, cooldown: float = COOLDOWN) -> None:
        self._clock = clock
        self._threshold = threshold
        self._cooldown = cooldown
        self._state = BreakerState.CLOSED
        self._period = 0
        self._failures = 0  # consecutive failures
        self._opened_at = 0.0
        self._probing = False  # whether a probe is running
        self._permit = Permit(0)  # shared by all calls of the period that are not probes

    @property
    def state(self) -> BreakerState:
        """The current state; time alone turns open into half-open."""
        if self._state is BreakerState.OPEN and self._clock() - self._opened_at >= self._cooldown:
            self._enter(BreakerState.HALF_OPEN)
        return self._state

    def admit(self) -> Permit | None:
        """Return a permit for one call; None if the breaker does not admit it."""
        if self._state is BreakerState.CLOSED:
            return self._permit
        if self.state is BreakerState.OPEN or self._probing:
            return None
        self._probing = True
        return Permit(self._period, is_probe=True)

    def retry_after(self) -> float:
        """Return the seconds until the breaker is half-open; 0 if it is not open."""
        return max(0.0, self._opened_at + self._cooldown - self._clock()) if self.state is BreakerState.OPEN else 0.0

    def succeeded(self, permit: Permit) -> None:
        if permit.period != self._period:
            return
        self._failures = 0
        if self._state is BreakerState.HALF_OPEN:
            self._enter(BreakerState.CLOSED)

    def failed(self, permit: Permit) -> None:
        if permit.period != self._period:
            return
        self._failures += 1
        if self._state is BreakerState.HALF_OPEN or self._failures >= self._threshold:
            self._opened_at = self._clock()
            self._enter(BreakerState.OPEN)

    def abandoned(self, permit: Permit) -> None:
        """Record the end of a call that shows neither success nor failure of the action."""
        if permit.period == self._period:
            self._probing = False

    def _enter(self, state: BreakerState) -> None:
        self._state = state
        self._period += 1
        self._failures = 0
        self._probing = False
        self._permit = Permit(self._period)


class Breakers:
    """The breakers of all actions, by action id."""

    def __init__(self, clock: Callable[[], float], *, threshold: int = THRESHOLD, cooldown: float = COOLDOWN) -> None:
        self._create = partial(Breaker, clock, threshold=threshold, cooldown=cooldown)
        self._by_aid: dict[str, Breaker] = {}

    def of(self, aid: str) -> Breaker:
        """Return the breaker of an action, created closed if there is none."""
        breaker = self._by_aid.get(aid)
        if breaker is None:
            breaker = self._by_aid[aid] = self._create()
        return breaker
