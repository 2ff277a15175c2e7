"""Going on from what was before: by descent, or, where that cannot be, by compaction.

Descent is the default: a session ends with a handoff packet, and the next one starts from the packet and the artifacts
behind it. Compaction, a summary in place of the context, is the fallback; what the policy wants carried has to be
carried, and no call that was requested may be dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from manglecp.base.text import trim
from manglecp.harness.obstacles import Lookup, Obstacle, obstacle

__all__ = ["obstacles_to_compact", "obstacles_to_resume"]

_INVALID: Final = "runtime.compaction_state_invalid"


def obstacles_to_compact(
    compaction: Mapping[str, Any],
    policy: Mapping[str, Any] | None,
    *,
    policy_digest: str | None,
    requested: Iterable[str] = (),
) -> tuple[Obstacle, ...]:
    """What is wrong with a ``compaction`` row. ``requested`` are the ids of the calls of the turn.

    ``policy`` and ``policy_digest`` are those that the turn is bound to, None if it is bound to none.
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
    """What keeps a turn from starting as the continuation that its ``continuity`` row claims."""
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
