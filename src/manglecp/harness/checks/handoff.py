"""Handing over: to whom, with what, and is there a way back?

The contract is the constraints in force: explicit ones bind always, those of a verified document bind who hands over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from manglecp.harness.classes import CLASSES
from manglecp.harness.findings import Finding, place
from manglecp.harness.turn import Turn

__all__ = ["CHECKS"]

_ARTIFACT: Final = CLASSES["handoff.required_artifact_missing"]
_TARGET: Final = CLASSES["handoff.target_not_allowed"]
_RETURN: Final = CLASSES["handoff.return_path_missing"]

_PACKET_FIELDS: Final = {
    "target": "target",
    "requiredArtifactRefs": "required_artifact_refs",
    "returnPathRef": "return_path_ref",
    "intent": "intent",
    "constraints": "constraints",
    "packetDigest": "packet_digest",
}


def _existing(turn: Turn) -> set[str]:
    """The artifacts that are there: said to exist, and with a digest to know them by."""
    return {row.ref for row in turn.evidence.artifacts if row.exists and row.digest is not None}


def contract(turn: Turn) -> Iterator[Finding]:
    """The contract is the pinned one."""
    if turn.terms.handoff.expected_contract_digest not in (None, turn.call.handoff_contract_digest):
        yield Finding(_TARGET, "callSpec/handoffContractDigest", "another contract is expected")


def packet(turn: Turn) -> Iterator[Finding]:
    """The packet goes to an admitted target and carries everything that the contract demands."""
    found, terms = turn.evidence.handoff, turn.terms.handoff
    if found is None:
        return
    if terms.allowed_targets and found.target not in terms.allowed_targets:
        yield Finding(_TARGET, "handoff", f"{found.target} is no admitted target")
    by_role, role = terms.allowed_targets_by_role, turn.call.orchestration_role
    if by_role and found.target not in by_role.get(role or "", ()):
        yield Finding(_TARGET, "handoff", f"{found.target} is no admitted target of {role}")
    if terms.require_return_path and found.return_path_ref is None:
        yield Finding(_RETURN, "handoff", "the packet has no return path")
    wanted = set(terms.required_artifact_refs or ())
    for ref in wanted.difference(found.required_artifact_refs):
        yield Finding(_ARTIFACT, place("handoff", ref), "the packet does not carry the artifact")
    if terms.require_artifact_existence:
        for ref in wanted.union(found.required_artifact_refs) - _existing(turn):
            yield Finding(_ARTIFACT, place("artifacts", ref), "the artifact does not exist, or has no digest")
            yield Finding(_ARTIFACT, "handoff", f"{ref} does not exist, or has no digest")
    for name in terms.required_packet_fields or ():
        if name not in _PACKET_FIELDS or not getattr(found, _PACKET_FIELDS[name]):
            yield Finding(_ARTIFACT, place("handoff", name), "the packet lacks a demanded field")


def no_packet(turn: Turn) -> Iterator[Finding]:
    """What is demanded of a packet is not met by having none."""
    if turn.evidence.handoff is not None:
        return
    intent = turn.evidence.mutation
    transfer = intent is not None and intent.kind == "transfer"
    for finding in _demanded(turn, transfer):
        yield finding
        if transfer:  # without it the contract of a document would demand nothing
            yield replace(finding, where="mutation")


def _demanded(turn: Turn, transfer: bool) -> Iterator[Finding]:
    terms = turn.terms.handoff
    if terms.required_artifact_refs or terms.required_packet_fields:
        yield Finding(_ARTIFACT, "handoff", "the contract demands a packet, and there is none")
    if terms.allowed_targets or (terms.allowed_targets_by_role or {}).get(turn.call.orchestration_role or ""):
        yield Finding(_TARGET, "handoff", "the contract names targets, and there is no packet")
    if terms.require_return_path:
        yield Finding(_RETURN, "handoff", "the contract demands a return path, and there is no packet")
    if transfer:
        yield Finding(_TARGET, "handoff", "a transfer without a packet")


def descent(turn: Turn) -> Iterator[Finding]:
    """A turn that goes on from a handoff names it, and the artifacts that it lists are there."""
    continuity = turn.evidence.continuity
    if continuity is None or continuity.mode != "descent":
        return
    if continuity.handoff_ref is None:
        yield Finding(_ARTIFACT, "continuity", "the turn goes on from a handoff that it does not name")
    known = {row.ref for row in turn.evidence.artifacts if row.digest is not None}
    for ref in set(continuity.artifact_refs) - known:
        yield Finding(_ARTIFACT, place("artifacts", ref), "the turn goes on from an artifact that is not there")
        yield Finding(_ARTIFACT, "continuity", f"{ref} is not there")


CHECKS: Final = (contract, packet, no_packet, descent)
