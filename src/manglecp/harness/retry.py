"""Retry decisions for a failed turn: whether and how to retry, or where to escalate.

The table of classes gives each of the 42 classes a :class:`.classes.Retry`: *evidence* (complete the same turn and
check it again), *turn* (return the typed failure to the model and spend a new turn) or *never* (blocked until a human
has looked). Of several failures the strictest decides; upstream takes the first class by name that has a rule.

A policy may change the number of attempts and the escalation. It cannot allow a retry of a class that is never retried.
The backoff is a label; the caller has the clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from manglecp.base.text import trim
from manglecp.harness.canonical_v1 import canonical
from manglecp.harness.classes import CLASSES, Retry

BACKOFFS: Final = ("none", "fixed_short", "exponential_short")


class Next(Enum):
    """What happens next."""

    SAME_TURN = "same_turn"
    """Check the same turn again, with more evidence."""
    NEW_TURN = "new_turn"
    """Spend another turn, with the failure as its input."""
    STOP = "stop"


class Escalation(Enum):
    """What is done about work that is not tried again."""

    ISSUE_DISCOVER = "issue_discover"
    """Record a new issue below the one that was worked on."""
    MARK_BLOCKED = "mark_blocked"
    """Mark the issue as blocked."""
    STOP = "stop"
    """Nothing but to end."""


ACTIONS: Final = tuple(action.value for action in Escalation)


@dataclass(frozen=True, slots=True)
class Rule:
    """How often a class may be tried, in all, and what follows the last attempt."""

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
    """What to do next, and what is left of the attempts."""

    next: Next
    decided_by: str
    """The class whose rule it is."""
    attempts_left: int
    backoff: str
    escalation: Escalation | None
    """Given when it is not tried again."""


class RetryPolicy:
    """The rules in force: those of the table of classes, as a policy document changes them."""

    def __init__(self, document: Mapping[str, Any] | None = None) -> None:
        """``document`` is a ``retry`` document of a package, read and checked there."""
        self.document: Final[dict[str, Any]] = dict(document or {"rules": []})
        self.rules: Final[dict[str, Rule]] = {name: _RULES[one.retry] for name, one in CLASSES.items()}
        for rule in self.document["rules"]:
            for name in rule["classes"]:
                if CLASSES[name].retry is Retry.NEVER and rule["maxAttempts"] > 1:
                    raise ValueError(f"{name} is never retried")
                escalation = Escalation(rule["escalationAction"])
                self.rules[name] = Rule(rule["maxAttempts"], rule.get("backoffClass", "none"), escalation)

    @property
    def digest(self) -> str:
        """In the form of upstream's policy files."""
        return "pol1_" + hashlib.sha256(canonical(self.document)).hexdigest()

    def decide(self, failure_classes: Iterable[str], attempt: int) -> Decision:
        """What follows the ``attempt``-th attempt, counted from 1, that failed with these classes."""
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


class EscalationError(ValueError):
    """It is not clear which issue an escalation is about."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def escalation_issue(active: Sequence[str | None], session_issue: str | None, ready: Sequence[str]) -> str:
    """The issue that an escalation is about: the active one, else the session's, else the only one that is ready.

    ``active`` are all the places where an active issue may be named; two that disagree are refused, not ranked.
    """
    named = {trim(name) for name in active if name and trim(name)}
    if len(named) > 1:
        raise EscalationError("escalation_issue_context_ambiguous", f"several issues are active: {sorted(named)}")
    if named:
        return named.pop()
    if session_issue and trim(session_issue):
        return trim(session_issue)
    if len(set(ready)) == 1:
        return ready[0]
    if ready:
        raise EscalationError("escalation_issue_context_ambiguous", f"{len(set(ready))} issues are ready")
    raise EscalationError("escalation_issue_context_unbound", "no issue is active, of the session, or ready")
