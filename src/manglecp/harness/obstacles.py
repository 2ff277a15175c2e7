"""What would keep a turn from closing, said before the turn is made.

A check judges what happened (:mod:`.checks`). A loop also wants to know beforehand: may I go on, is the packet whole,
may I split this work. The answers use the same classes and the same triggers, so that a loop which heeds them does not
meet the class afterwards, and one which does not heed them does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from manglecp.harness.classes import CLASSES, FailClass

__all__ = ["Lookup", "Obstacle", "obstacle"]

Lookup: TypeAlias = Callable[[str], str | None]
"""The digest of the artifact under a reference, None if it is not there. Whoever has a store passes it in."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A class that would be raised, and why."""

    failure: FailClass
    reason: str

    def __str__(self) -> str:
        return f"{self.failure.name}: {self.reason}"


def obstacle(failure_class: str, reason: str) -> Obstacle:
    """Of the class with this name, which has to be one of the table."""
    return Obstacle(CLASSES[failure_class], reason)
