"""Retry decisions for a failed turn: whether and how to retry, or where to escalate.

The table of classes gives each of the 42 classes a :class:`.classes.Retry`: *evidence* (complete the same turn and
check it again), *turn* (return the typed failure to the model and spend a new turn) or *never* (blocked until a human
has looked). Of several failures the strictest decides; upstream takes the first class by name that has a rule.

A policy may change the number of attempts and the escalation. It cannot allow a retry of a class that is never retried.
The backoff is a label; the caller has the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from manglecp.harness.classes import CLASSES, Retry

BACKOFFS: Final = ("none", "fixed_short", "exponential_short")


class Next(Enum):
    """The next step after a failure."""

    SAME_TURN = "same_turn"
    """Check the same turn again, with more evidence."""
    NEW_TURN = "new_turn"
    """Spend another turn, with the failure as input."""
    STOP = "stop"


class Escalation(Enum):
    """The action for work that is not retried."""

    ISSUE_DISCOVER = "issue_discover"
    """Create a child of the current issue."""
    MARK_BLOCKED = "mark_blocked"
    """Mark the issue as blocked."""
    STOP = "stop"
    """End without an action."""


ACTIONS: Final = tuple(action.value for action in Escalation)


@dataclass(frozen=True, slots=True)
class Rule:
    """The total number of attempts of a class, and the escalation after the last one."""

    max_attempts: int
    backoff: str
    escalation: Escalation


_RULES: Final = {
    Retry.EVIDENCE: Rule(2, "fixed_short", Escalation.ISSUE_DISCOVER),
    Retry.TURN: Rule(2, "none", Escalation.ISSUE_DISCOVER),
    Retry.NEVER: Rule(1, "none", Escalation.MARK_BLOCKED),
}
_ORDER: Final = (Retry.NEVER, Retry.TURN, Retry.EVIDENCE)
"""Strictest first."""
_STEPS: Final = {Retry.EVIDENCE: Next.SAME_TURN, Retry.TURN: Next.NEW_TURN}


@dataclass(frozen=True, slots=True)
class Decision:
    """The next step, and the remaining attempts."""

    next: Next
    decided_by: str
    """The class whose rule decides."""
    attempts_left: int
    backoff: str
    escalation: Escalation | None
    """Set if there is no retry."""


class RetryPolicy:
    """The rules of the table of classes, with the changes of a policy document."""

    def __init__(self, document: Mapping[str, Any] | None = None) -> None:
        """``document`` is a validated ``retry`` document of a package."""
        self.rules: Final[dict[str, Rule]] = {name: _RULES[one.retry] for name, one in CLASSES.items()}
        for rule in (document or {"rules": ()})["rules"]:
            for name in rule["classes"]:
                if CLASSES[name].retry is Retry.NEVER and rule["maxAttempts"] > 1:
                    raise ValueError(f"{name} is never retried")
                escalation = Escalation(rule["escalationAction"])
                self.rules[name] = Rule(rule["maxAttempts"], rule.get("backoffClass", "none"), escalation)

    def decide(self, failure_classes: Iterable[str], attempt: int) -> Decision:
        """Return the step after attempt number ``attempt`` (from 1) failed with these classes."""
        if attempt < 1:
            raise ValueError(f"attempts are counted from 1, not from {attempt}")
        names = sorted(set(failure_classes), key=self._strictness)
        if not names:
            raise ValueError("nothing failed, so there is nothing to decide")
        left = {name: self.rules[name].max_attempts - attempt for name in names}
        spent = [name for name in names if left[name] <= 0]
        if spent:
            return Decision(Next.STOP, spent[0], 0, "none", self.rules[spent[0]].escalation)
        decisive = names[0]
        step = _STEPS[CLASSES[decisive].retry]
        return Decision(step, decisive, min(left.values()), self.rules[decisive].backoff, None)

    @staticmethod
    def _strictness(name: str) -> tuple[int, str]:
        return _ORDER.index(CLASSES[name].retry), name
