"""When to leave a failing policy alone.

After so many failures in a row the policy is not started any more for a while; then it gets one try. A success clears
the count, a failure of that try begins the pause again. The clock is monotonic: setting the time of day ends no pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["COOLDOWN", "FAILURES", "PolicyBreaker"]

FAILURES: Final = 5
COOLDOWN: Final = 30.0
"""Seconds."""


@dataclass(slots=True)
class PolicyBreaker:
    failures: int = FAILURES
    cooldown: float = COOLDOWN
    clock: Callable[[], float] = time.monotonic
    _in_a_row: int = 0
    _until: float | None = None

    def allows(self) -> bool:
        """May the policy be started now?"""
        return self._until is None or self.clock() >= self._until

    def failed(self) -> None:
        self._in_a_row += 1
        if self._in_a_row >= self.failures:
            self._until = self.clock() + self.cooldown

    def succeeded(self) -> None:
        self._in_a_row = 0
        self._until = None
