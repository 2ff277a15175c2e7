"""Obstacles: the failure classes that a step would raise, computed before the step is taken.

:mod:`.checks` judge what happened. These functions use the same classes and triggers beforehand: may the loop start or
continue (turn budget, iterations, checkpoints, stop reasons), is a compaction or a resumption valid, is a handoff
packet complete, may work be split. Turns and iterations count from 1.

Continuation defaults to *descent*: a session ends with a handoff packet, and the next one starts from the packet and
its artifacts. Compaction, a summary that replaces the context, is the fallback. :func:`descend` splits work by the
order and size of its items only, so the same work is always split the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from manglecp.base.text import normalize_word, trim
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.classes import CLASSES, FailClass

# --- obstacles --------------------------------------------------------------------------------------------------------

Lookup: TypeAlias = Callable[[str], str | None]
"""Returns the digest of the artifact under a reference; None if it does not exist."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A class that would be raised, and the reason."""

    failure: FailClass
    reason: str

    def __str__(self) -> str:
        return f"{self.failure.name}: {self.reason}"


def obstacle(failure_class: str, reason: str) -> Obstacle:
    return Obstacle(CLASSES[failure_class], reason)


# --- stop policy ------------------------------------------------------------------------------------------------------

HANDLED_STOP_REASONS: Final = ("tool_use", "pause_turn", "max_tokens", "end_turn")
"""The default if the policy lists none."""
_CLASS: Final = "protocol.stop_reason_unhandled"

Policy = Mapping[str, Any]


def checkpoint_due(stop_policy: Policy, turn_index: int) -> bool:
    """Return whether a human has to review this turn before the next one."""
    if not stop_policy.get("requireCheckpoint"):
        return False
    rhythm = stop_policy.get("checkpointEveryTurns")
    return rhythm is None or turn_index % rhythm == 0


def continuation(protocol_policy: Policy, stop_reason: str) -> str | None:
    """Return ``continue``, ``resume``, ``extend`` or ``stop``; None if the reason is not handled.

    A handled reason that is not mapped permits to continue.
    """
    reason = normalize_word(stop_reason)
    if reason not in map(normalize_word, protocol_policy.get("handledStopReasons", HANDLED_STOP_REASONS)):
        return None
    mapped: Mapping[str, str] = protocol_policy.get("continuation", {})
    return next((what for name, what in mapped.items() if normalize_word(name) == reason), "continue")


def obstacles_to_start(stop_policy: Policy, *, turn_index: int, iteration: int | None = None) -> tuple[Obstacle, ...]:
    """Return the obstacles to this turn."""
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
    """Return the obstacles to another turn after this one."""
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
    """Return the ``protocolState`` row; it continues only if no obstacle forbids it."""
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


# --- continuity -------------------------------------------------------------------------------------------------------

_INVALID: Final = "runtime.compaction_state_invalid"


def obstacles_to_compact(
    compaction: Mapping[str, Any],
    policy: Mapping[str, Any] | None,
    *,
    policy_digest: str | None,
    requested: Iterable[str] = (),
) -> tuple[Obstacle, ...]:
    """Return the problems of a ``compaction`` row. ``requested`` are the call ids of the turn.

    ``policy`` and ``policy_digest`` are those that the turn is bound to, or None.
    """
    return tuple(_compaction(compaction, policy, policy_digest, frozenset(requested)))


def _compaction(
    compaction: Mapping[str, Any],
    policy: Mapping[str, Any] | None,
    policy_digest: str | None,
    requested: frozenset[str],
) -> Iterator[Obstacle]:
    if not compaction.get("invoked", True):
        return
    if policy_digest is None:
        yield obstacle(_INVALID, "the call names no compaction policy")
    elif compaction.get("policyDigest") != policy_digest:
        yield obstacle(_INVALID, "the context was compacted under another policy")
    if policy is not None and not policy.get("enabled"):
        yield obstacle(_INVALID, "the policy does not allow compaction")
    carried = compaction.get("carryForwardRefs", ())
    for ref in (policy or {}).get("requiredCarryForwardRefs", ()):
        if ref not in carried:
            yield obstacle(_INVALID, f"{ref} was not carried forward")
    for name in ("summaryDigest", "continuityRef"):
        if not trim(compaction.get(name) or ""):
            yield obstacle(_INVALID, f"{name} is missing")
    for call in sorted(requested.intersection(compaction.get("droppedToolCallIds", ()))):
        yield obstacle(_INVALID, f"the call {call} was requested and dropped")


def obstacles_to_resume(
    continuity: Mapping[str, Any], compaction: Mapping[str, Any] | None, *, lookup: Lookup
) -> tuple[Obstacle, ...]:
    """Return the obstacles to starting from what the ``continuity`` row names."""
    return tuple(_resume(continuity, compaction, lookup))


def _resume(continuity: Mapping[str, Any], compaction: Mapping[str, Any] | None, lookup: Lookup) -> Iterator[Obstacle]:
    mode = continuity.get("mode", "fresh")
    if mode == "compaction" and not (compaction or {"invoked": False}).get("invoked", True):
        yield obstacle(_INVALID, "the turn resumes from a compaction that there is no record of")
    if mode == "descent":
        if not trim(continuity.get("handoffRef") or ""):
            yield obstacle("handoff.required_artifact_missing", "a descent resumes from a handoff, and none is named")
        for ref in continuity.get("artifactRefs", ()):
            if lookup(ref) is None:
                yield obstacle("handoff.required_artifact_missing", f"{ref} is not there to resume from")


# --- handoff ----------------------------------------------------------------------------------------------------------

_MISSING: Final = "handoff.required_artifact_missing"
_NOT_ALLOWED: Final = "handoff.target_not_allowed"


def packet(
    target: str,
    *,
    artifact_refs: Iterable[str] = (),
    return_path_ref: str | None = None,
    intent: str | None = None,
    constraints: Iterable[str] = (),
) -> dict[str, Any]:
    row: dict[str, Any] = {"target": trim(target), "requiredArtifactRefs": sorted({trim(ref) for ref in artifact_refs})}
    if return_path_ref is not None:
        row["returnPathRef"] = trim(return_path_ref)
    if intent is not None:
        row["intent"] = trim(intent)
    if stated := [trim(constraint) for constraint in constraints]:
        row["constraints"] = stated
    return {**row, "packetDigest": packet_digest(row)}


def packet_digest(row: Mapping[str, Any]) -> str:
    """Return the digest of a packet without its ``packetDigest``."""
    return digest({name: value for name, value in row.items() if name != "packetDigest"})


def handoff_ref(row: Mapping[str, Any]) -> str:
    """Return the reference by which the resuming session names the packet."""
    return f"handoff://{packet_digest(row)}"


def artifact_rows(row: Mapping[str, Any], lookup: Lookup) -> list[dict[str, Any]]:
    """Return the ``artifacts`` rows of a packet, with the current digests."""
    return [_artifact(ref, lookup(ref)) for ref in row["requiredArtifactRefs"]]


def _artifact(ref: str, found: str | None) -> dict[str, Any]:
    return {"ref": ref, "exists": False} if found is None else {"ref": ref, "exists": True, "digest": found}


def obstacles_to_hand_over(
    row: Mapping[str, Any] | None, contract: Mapping[str, Any], *, role: str | None, lookup: Lookup
) -> tuple[Obstacle, ...]:
    """Return the violations of the contract; without a packet, everything the contract demands of one."""
    given = row or {}
    return (*_artifacts(given, contract, lookup), *_target(given, contract, role), *_return_path(given, contract))


def _artifacts(row: Mapping[str, Any], contract: Mapping[str, Any], lookup: Lookup) -> Iterator[Obstacle]:
    demanded = set(contract.get("requiredArtifactRefs", ()))
    carried = set(row.get("requiredArtifactRefs", ()))
    for ref in sorted(demanded - carried):
        yield obstacle(_MISSING, f"the packet does not carry {ref}")
    for ref in sorted(carried) if contract.get("requireArtifactExistence") else ():
        if lookup(ref) is None:
            yield obstacle(_MISSING, f"{ref} is carried and does not exist")
    for name in contract.get("requiredPacketFields", ()):
        if not row.get(name):
            yield obstacle(_MISSING, f"the packet has no {name}")


def _target(row: Mapping[str, Any], contract: Mapping[str, Any], role: str | None) -> Iterator[Obstacle]:
    everyone = contract.get("allowedTargets", ())
    by_role: Mapping[str, Any] = contract.get("allowedTargetsByRole", {})
    of_role = by_role.get(role or "", ())
    target = row.get("target")
    if target is None:
        if everyone or of_role:
            yield obstacle(_NOT_ALLOWED, "the contract names targets and there is no packet")
        return
    if everyone and target not in everyone:
        yield obstacle(_NOT_ALLOWED, f"{target} is not an allowed target")
    if by_role and target not in of_role:
        yield obstacle(_NOT_ALLOWED, f"{target} is not an allowed target of {role or 'nobody'}")


def _return_path(row: Mapping[str, Any], contract: Mapping[str, Any]) -> Iterator[Obstacle]:
    if contract.get("requireReturnPath") and not trim(row.get("returnPathRef") or ""):
        yield obstacle("handoff.return_path_missing", "the contract demands a way back")


# --- descent ----------------------------------------------------------------------------------------------------------

PATTERNS: Final = ("single", "chain", "route", "parallel", "orchestrator_workers", "evaluator_optimizer")
AUTONOMOUS: Final = ("orchestrator_workers", "evaluator_optimizer")
"""Patterns in which the model decides when to stop."""
UNDIVIDED: Final = ("single", "chain", "evaluator_optimizer")
_DECOMPOSITION: Final = "coordination.decomposition_policy_violation"


def obstacles_to_decompose(
    policy: Mapping[str, Any], *, pattern: str, mode: str, fan_out: int, escalation_trigger_ref: str | None = None
) -> tuple[Obstacle, ...]:
    """Return the violations of the decomposition policy by a ``split`` or ``loop``."""
    return tuple(_decomposition(policy, pattern, mode, fan_out, escalation_trigger_ref))


def _decomposition(
    policy: Mapping[str, Any], pattern: str, mode: str, fan_out: int, trigger: str | None
) -> Iterator[Obstacle]:
    if pattern not in PATTERNS:
        yield obstacle(_DECOMPOSITION, f"the pattern {pattern} is unknown")
    elif pattern not in policy.get("allowedPatterns", PATTERNS):
        yield obstacle(_DECOMPOSITION, f"the pattern {pattern} is not allowed")
    if mode == "loop" and fan_out > 1:
        yield obstacle(_DECOMPOSITION, f"a loop has one worker, not {fan_out}")
    if mode == "split" and pattern in UNDIVIDED:
        yield obstacle(_DECOMPOSITION, f"{pattern} work is not split")
    if fan_out > policy.get("maxFanOut", fan_out):
        yield obstacle(_DECOMPOSITION, f"a fan-out of {fan_out} is over {policy['maxFanOut']}")
    if pattern in AUTONOMOUS and policy.get("requireEscalationTrigger") and not trigger:
        yield obstacle(_DECOMPOSITION, f"{pattern} needs a measured trigger")


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A piece of work: its turn budget, inputs and outputs."""

    ref: str
    turns: int
    needs: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundedSession:
    """The items of one session, and its starting point."""

    ordinal: int
    items: tuple[WorkItem, ...]
    turns: int
    handoff: Mapping[str, Any] | None
    """The packet of the previous session; None for the first one."""
    continuity: Mapping[str, Any]
    """The ``continuity`` row of its first turn."""


def descend(
    items: Iterable[WorkItem], *, max_turns: int, target: str, return_path_ref: str | None = None
) -> tuple[BoundedSession, ...]:
    """Return sessions of at most ``max_turns`` turns, in the order of the items.

    Each session gets the outputs of earlier ones that its items need. Raises :class:`ValueError` if an item needs the
    output of a later one, or more than ``max_turns`` turns.
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
    """Return the inputs that the session does not make itself, including those no item makes."""
    return sorted({ref for item in group for ref in item.needs if origin.get(ref, -1) != number})
