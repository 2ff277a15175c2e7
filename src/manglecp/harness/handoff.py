"""Handing work over: a typed packet, checked against its contract before it leaves.

A packet says to whom, what for, under which constraints, with which artifacts, and which way back. What the next one
needs to know is in it or behind its references; nothing is left to be guessed from a conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from manglecp.base.text import trim
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.obstacles import Lookup, Obstacle, obstacle

__all__ = ["artifact_rows", "handoff_ref", "obstacles_to_hand_over", "packet", "packet_digest"]

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
    """The ``handoff`` row, with its digest."""
    row: dict[str, Any] = {"target": trim(target), "requiredArtifactRefs": sorted({trim(ref) for ref in artifact_refs})}
    if return_path_ref is not None:
        row["returnPathRef"] = trim(return_path_ref)
    if intent is not None:
        row["intent"] = trim(intent)
    if stated := [trim(constraint) for constraint in constraints]:
        row["constraints"] = stated
    return {**row, "packetDigest": packet_digest(row)}


def packet_digest(row: Mapping[str, Any]) -> str:
    """The digest of a packet without any digest that it carries."""
    return digest({name: value for name, value in row.items() if name != "packetDigest"})


def handoff_ref(row: Mapping[str, Any]) -> str:
    """How the session that resumes names the packet it resumes from."""
    return f"handoff://{packet_digest(row)}"


def artifact_rows(row: Mapping[str, Any], lookup: Lookup) -> list[dict[str, Any]]:
    """The ``artifacts`` rows of a packet: what is behind each of its references now."""
    return [_artifact(ref, lookup(ref)) for ref in row["requiredArtifactRefs"]]


def _artifact(ref: str, found: str | None) -> dict[str, Any]:
    return {"ref": ref, "exists": False} if found is None else {"ref": ref, "exists": True, "digest": found}


def obstacles_to_hand_over(
    row: Mapping[str, Any] | None, contract: Mapping[str, Any], *, role: str | None, lookup: Lookup
) -> tuple[Obstacle, ...]:
    """What keeps the packet from being handed over; without a packet, whatever the contract demands of one."""
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
