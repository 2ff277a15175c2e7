"""How long a run may go on: steps, invalid picks, and visits to one situation.

The count of invalid picks is cumulative: a policy that errs at every other step is no better than one that errs nine
times in a row. A situation is a menu and a state; whoever comes back to the same one for the fourth time goes round in
a circle. A step after an invalid pick is no new visit, or the guard would end the run before the picks are counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Budget", "Spending"]

STEPS: Final = 64
INVALID_PICKS: Final = 8
"""Tolerated; one more ends the run."""
VISITS: Final = 3
"""To one situation; one more ends the run."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a run may use. ValueError for one that would let nothing happen."""

    steps: int = STEPS
    invalid_picks: int = INVALID_PICKS
    visits: int = VISITS

    def __post_init__(self) -> None:
        if self.steps < 1 or self.invalid_picks < 0 or self.visits < 1:
            raise ValueError("a budget of nothing")


@dataclass(slots=True)
class Spending:
    """What one run has used of its budget."""

    budget: Budget
    invalid_picks: int = 0
    _visits: Counter[tuple[str, str]] = field(default_factory=Counter)

    def invalid_pick(self) -> bool:
        """Count one; is the run still within its budget?"""
        self.invalid_picks += 1
        return self.invalid_picks <= self.budget.invalid_picks

    def visit(self, menu_digest: str, state_digest: str) -> bool:
        """Count one; is the run still within its budget?"""
        situation = (menu_digest, state_digest)
        self._visits[situation] += 1
        return self._visits[situation] <= self.budget.visits
