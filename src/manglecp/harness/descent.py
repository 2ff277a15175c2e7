"""Splitting work: what the decomposition policy admits, and sessions that are bounded and handed from one to the next.

A long piece of work is not one long session that has to be compacted on the way. It *descends*: items that fit the turn
budget make one session; its artifacts and a packet start the next one. Which items go together depends on nothing but
their order and their size, so the same work is always split in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from manglecp.harness.handoff import handoff_ref, packet
from manglecp.harness.obstacles import Obstacle, obstacle

__all__ = ["PATTERNS", "BoundedSession", "WorkItem", "descend", "obstacles_to_decompose"]

PATTERNS: Final = ("single", "chain", "route", "parallel", "orchestrator_workers", "evaluator_optimizer")
AUTONOMOUS: Final = ("orchestrator_workers", "evaluator_optimizer")
"""Patterns in which the model decides how long it goes on."""
_UNDIVIDED: Final = ("single", "chain", "evaluator_optimizer")
_CLASS: Final = "coordination.decomposition_policy_violation"


def obstacles_to_decompose(
    policy: Mapping[str, Any], *, pattern: str, mode: str, fan_out: int, escalation_trigger_ref: str | None = None
) -> tuple[Obstacle, ...]:
    """What the decomposition policy holds against splitting (``split``) or repeating (``loop``) work this way."""
    return tuple(_decomposition(policy, pattern, mode, fan_out, escalation_trigger_ref))


def _decomposition(
    policy: Mapping[str, Any], pattern: str, mode: str, fan_out: int, trigger: str | None
) -> Iterator[Obstacle]:
    if pattern not in PATTERNS:
        yield obstacle(_CLASS, f"the pattern {pattern} is unknown")
    elif pattern not in policy.get("allowedPatterns", PATTERNS):
        yield obstacle(_CLASS, f"the pattern {pattern} is not allowed")
    if mode == "loop" and fan_out > 1:
        yield obstacle(_CLASS, f"a loop has one worker, not {fan_out}")
    if mode == "split" and pattern in _UNDIVIDED:
        yield obstacle(_CLASS, f"{pattern} work is not split")
    if fan_out > policy.get("maxFanOut", fan_out):
        yield obstacle(_CLASS, f"a fan-out of {fan_out} is over {policy['maxFanOut']}")
    if pattern in AUTONOMOUS and policy.get("requireEscalationTrigger") and not trigger:
        yield obstacle(_CLASS, f"{pattern} needs a measured trigger")


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A piece of work: how many turns it may take, what it needs and what it leaves behind."""

    ref: str
    turns: int
    needs: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundedSession:
    """Items that fit one session, and what the session starts from."""

    ordinal: int
    items: tuple[WorkItem, ...]
    turns: int
    handoff: Mapping[str, Any] | None
    """The packet that the session before it hands over; None for the first one."""
    continuity: Mapping[str, Any]
    """The ``continuity`` row of its first turn."""


def descend(
    items: Iterable[WorkItem], *, max_turns: int, target: str, return_path_ref: str | None = None
) -> tuple[BoundedSession, ...]:
    """Sessions of at most ``max_turns`` turns, in the order of the items.

    Each session is handed what its items need of what earlier ones make. An item that needs what only a later one
    makes, or more turns than there are, is a :class:`ValueError`: no session could do it.
    """
    groups = _groups(list(items), max_turns)
    origin = {ref: number for number, group in enumerate(groups) for item in group for ref in item.makes}
    sessions: list[BoundedSession] = []
    for number, group in enumerate(groups):
        inherited = _inherited(number, group, origin)
        row = None
        continuity: dict[str, Any] = {"mode": "fresh"}
        if number:
            row = packet(
                target,
                artifact_refs=inherited,
                return_path_ref=return_path_ref,
                intent=", ".join(item.ref for item in group),
                constraints=[f"at most {max_turns} turns"],
            )
            continuity = {"mode": "descent", "handoffRef": handoff_ref(row), "artifactRefs": inherited}
        sessions.append(BoundedSession(number, group, sum(item.turns for item in group), row, continuity))
    return tuple(sessions)


def _groups(items: Sequence[WorkItem], max_turns: int) -> list[tuple[WorkItem, ...]]:
    groups: list[list[WorkItem]] = []
    made: set[str] = set()
    later = {ref for item in items for ref in item.makes}
    left = 0
    for item in items:
        if not 1 <= item.turns <= max_turns:
            raise ValueError(f"{item.ref} takes {item.turns} turns, and a session has 1 to {max_turns}")
        unmade = [ref for ref in item.needs if ref in later and ref not in made]
        if unmade:
            raise ValueError(f"{item.ref} needs {', '.join(unmade)} before it is made")
        if item.turns > left:
            groups.append([])
            left = max_turns
        groups[-1].append(item)
        left -= item.turns
        made.update(item.makes)
    return [tuple(group) for group in groups]


def _inherited(number: int, group: Iterable[WorkItem], origin: Mapping[str, int]) -> list[str]:
    """What a session needs and did not make itself; what no item makes was there before."""
    return sorted({ref for item in group for ref in item.needs if origin.get(ref, -1) != number})
