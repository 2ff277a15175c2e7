"""When a loop has to stop: turn budgets, iterations, checkpoints, stop reasons.

Policies are documents as the CallSpec holds them inline: ``stopPolicy`` and ``protocolStatePolicy``. Turns and
iterations are counted from 1. A checkpoint is due in a turn if the policy requires one and either names no rhythm or
the turn's number is a multiple of it.

A loop asks :func:`obstacles_to_start` before a turn and lets :func:`protocol_state` write how it ended: what cannot go
on is recorded as not going on, and then a spent budget is an end and not a failure. An unhandled stop reason is one in
any case: nobody has said what it means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from manglecp.base.text import normalize_word
from manglecp.harness.obstacles import Obstacle, obstacle

__all__ = [
    "checkpoint_due",
    "continuation",
    "obstacles_to_continue",
    "obstacles_to_start",
    "protocol_state",
]

HANDLED_STOP_REASONS: Final = ("tool_use", "pause_turn", "max_tokens", "end_turn")
"""Those handled where no policy says otherwise."""
_CLASS: Final = "protocol.stop_reason_unhandled"

Policy = Mapping[str, Any]


def checkpoint_due(stop_policy: Policy, turn_index: int) -> bool:
    """Whether a human has to have seen this turn before the next one."""
    if not stop_policy.get("requireCheckpoint"):
        return False
    rhythm = stop_policy.get("checkpointEveryTurns")
    return rhythm is None or turn_index % rhythm == 0


def continuation(protocol_policy: Policy, stop_reason: str) -> str | None:
    """What the reason permits: ``continue``, ``resume``, ``extend`` or ``stop``; None if it is not handled.

    A handled reason that is not mapped permits to continue.
    """
    reason = normalize_word(stop_reason)
    if reason not in map(normalize_word, protocol_policy.get("handledStopReasons", HANDLED_STOP_REASONS)):
        return None
    mapped: Mapping[str, str] = protocol_policy.get("continuation", {})
    return next((what for name, what in mapped.items() if normalize_word(name) == reason), "continue")


def obstacles_to_start(stop_policy: Policy, *, turn_index: int, iteration: int | None = None) -> tuple[Obstacle, ...]:
    """What forbids the turn itself."""
    return tuple(_over_budget(stop_policy, turn_index, iteration))


def obstacles_to_continue(
    stop_policy: Policy,
    protocol_policy: Policy,
    *,
    stop_reason: str,
    turn_index: int,
    iteration: int | None = None,
    checkpoint_ref: str | None = None,
) -> tuple[Obstacle, ...]:
    """What forbids another turn after this one."""
    found = list(_over_budget(stop_policy, turn_index, iteration))
    permitted = continuation(protocol_policy, stop_reason)
    if permitted is None:
        found.append(obstacle(_CLASS, f"the stop reason {normalize_word(stop_reason)} is not handled"))
    elif permitted == "stop":
        found.append(obstacle(_CLASS, f"the stop reason {normalize_word(stop_reason)} permits only to stop"))
    if stop_policy.get("maxTurns") == turn_index:
        found.append(obstacle(_CLASS, f"turn {turn_index} is the last one"))
    if checkpoint_due(stop_policy, turn_index) and not checkpoint_ref:
        found.append(obstacle(_CLASS, f"a checkpoint is due after turn {turn_index}"))
    return tuple(found)


def protocol_state(
    stop_policy: Policy,
    protocol_policy: Policy,
    *,
    stop_reason: str,
    turn_index: int,
    iteration: int | None = None,
    checkpoint_ref: str | None = None,
) -> dict[str, Any]:
    """The ``protocolState`` row of a turn that goes on exactly if it may."""
    barred = obstacles_to_continue(
        stop_policy,
        protocol_policy,
        stop_reason=stop_reason,
        turn_index=turn_index,
        iteration=iteration,
        checkpoint_ref=checkpoint_ref,
    )
    row: dict[str, Any] = {"stopReason": stop_reason, "continuationAllowed": not barred, "turnIndex": turn_index}
    if iteration is not None:
        row["iteration"] = iteration
    if checkpoint_ref is not None:
        row["checkpointRef"] = checkpoint_ref
    return row


def _over_budget(stop_policy: Policy, turn_index: int, iteration: int | None) -> Iterator[Obstacle]:
    turns, iterations = stop_policy.get("maxTurns"), stop_policy.get("maxIterations")
    if turns is not None and turn_index > turns:
        yield obstacle(_CLASS, f"turn {turn_index} is past the {turns} of the stop policy")
    if iterations is not None and iteration is not None and iteration > iterations:
        yield obstacle(_CLASS, f"iteration {iteration} is past the {iterations} of the stop policy")
