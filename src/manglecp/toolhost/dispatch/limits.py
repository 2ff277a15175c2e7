"""How much of everything a pool has: calls at a time, calls that wait, attempts, and the life of a host."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

__all__ = ["Limits"]

_MOST: Final = sys.maxsize


class Limits(NamedTuple):
    """The numbers of one pool."""

    pipelined: int = 32
    """Calls of tier 0 that one host has at a time."""
    queued: int = 1_024
    """Calls that may wait for a host."""
    attempts: int = 3
    """Hosts that one call is given to, at most."""
    calls_per_host: int = 10_000
    """Calls after which a host is replaced."""
    growth: int = 268_435_456
    """Bytes that a host may have gained since its first answer before it is replaced."""
    health_interval: float = 5.0
    """Seconds between two examinations of a host."""
    health_timeout: float = 5.0
    start_timeout: float = 20.0
    backoff: float = 0.05
    """Seconds before a failed start is repeated; doubled each time."""
    max_backoff: float = 5.0
    rest: float = 30.0
    """Seconds that a run may keep its host without calling it. Its next call gets another one."""

    def check(self) -> None:
        """ValueError for numbers that no pool can have; it says which."""
        for name in ("pipelined", "attempts", "calls_per_host"):
            _check(name, getattr(self, name), whole=True, least=1)
        _check("queued", self.queued, whole=True, least=0)
        _check("growth", self.growth, whole=True, least=-sys.maxsize)
        for name in ("health_interval", "health_timeout", "start_timeout", "backoff", "max_backoff", "rest"):
            _check(name, getattr(self, name), whole=False, least=0.001)


def _check(name: str, value: object, *, whole: bool, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not least <= value <= _MOST:
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"limits: {name} is {value!r}, and has to be {kind} of at least {least}")
