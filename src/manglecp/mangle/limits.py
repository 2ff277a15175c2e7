"""How much an evaluation may use (D24)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

MOST_SKIPPED: Final = 10_000
"""How many derivations without an instant are told apart (D20); a count of this many means this many or more."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an evaluation may do. What is exactly at a limit passes."""

    derived_facts: int = 10_000_000
    """Distinct derived facts; a temporal fact counts once per interval as derived."""
    intervals: int = 1_000
    """Intervals of one fact, after joining those that touch."""
    parts: int = 50_000_000
    """Elements, entries and sixteens of characters in the columns that rules build, see :mod:`building`."""
    rows: int = 10_000_000
    """Rows that one rule holds at once before it aggregates them."""
    merge_steps: int = 1_000_000
    """Values replaced by a merge; a merge that never settles ends here."""
    seconds: float | None = None
    """Wall time of the whole evaluation."""
    call_depth: int = 10_000
    """How deep deferred predicates may call each other."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name == "seconds":
                continue
            if type(value) is not int and (type(value) is not float or field.name != "seconds"):
                raise ValueError(f"the limit {field.name} is no {type(value).__name__}")
