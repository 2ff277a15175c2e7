"""Mutation checks: handoff packets, mutation intents and drift of policy documents.

The handoff contract is the constraints in force: explicit ones always bind, those of a verified document only a turn
that hands over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from manglecp.harness.classes import CLASSES, Finding, row_pointer
from manglecp.harness.constraints import DOCUMENTS
from manglecp.harness.evidence import Mutation
from manglecp.harness.turn import Turn

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


def check_contract(turn: Turn) -> Iterator[Finding]:
    if turn.terms.handoff.expected_contract_digest not in (None, turn.call.handoff_contract_digest):
        yield Finding(_TARGET, "callSpec/handoffContractDigest", "another contract is expected")


def check_packet(turn: Turn) -> Iterator[Finding]:
    """Check that the target is allowed and the packet carries everything the contract requires."""
    packet, terms = turn.evidence.handoff, turn.terms.handoff
    if packet is None:
        return
    if terms.allowed_targets and packet.target not in terms.allowed_targets:
        yield Finding(_TARGET, "handoff", f"{packet.target} is not an admitted target")
    by_role, role = terms.allowed_targets_by_role, turn.call.orchestration_role
    if by_role and packet.target not in by_role.get(role or "", ()):
        yield Finding(_TARGET, "handoff", f"{packet.target} is not an admitted target of {role}")
    if terms.require_return_path and packet.return_path_ref is None:
        yield Finding(_RETURN, "handoff", "the packet has no return path")
    required = set(terms.required_artifact_refs or ())
    for ref in required.difference(packet.required_artifact_refs):
        yield Finding(_ARTIFACT, row_pointer("handoff", ref), "the packet does not carry the artifact")
    if terms.require_artifact_existence:
        existing = {row.ref for row in turn.evidence.artifacts if row.exists and row.digest is not None}
        for ref in required.union(packet.required_artifact_refs) - existing:
            yield Finding(_ARTIFACT, row_pointer("artifacts", ref), "the artifact does not exist, or has no digest")
            yield Finding(_ARTIFACT, "handoff", f"{ref} does not exist, or has no digest")
    for name in terms.required_packet_fields or ():
        if name not in _PACKET_FIELDS or not getattr(packet, _PACKET_FIELDS[name]):
            yield Finding(_ARTIFACT, row_pointer("handoff", name), "the packet lacks a required field")


def check_missing_packet(turn: Turn) -> Iterator[Finding]:
    """Check that a required packet is present."""
    if turn.evidence.handoff is not None:
        return
    intent = turn.evidence.mutation
    transfer = intent is not None and intent.kind == "transfer"
    for finding in _find_missing(turn, transfer):
        yield finding
        if transfer:  # removing the mutation would remove the requirement
            yield replace(finding, where="mutation")


def _find_missing(turn: Turn, transfer: bool) -> Iterator[Finding]:
    terms = turn.terms.handoff
    if terms.required_artifact_refs or terms.required_packet_fields:
        yield Finding(_ARTIFACT, "handoff", "the contract requires a packet, and it is missing")
    if terms.allowed_targets or (terms.allowed_targets_by_role or {}).get(turn.call.orchestration_role or ""):
        yield Finding(_TARGET, "handoff", "the contract names targets, and the packet is missing")
    if terms.require_return_path:
        yield Finding(_RETURN, "handoff", "the contract requires a return path, and the packet is missing")
    if transfer:
        yield Finding(_TARGET, "handoff", "the transfer has no packet")


def check_descent(turn: Turn) -> Iterator[Finding]:
    """Check that a turn that resumes from a handoff names it, and its listed artifacts exist."""
    continuity = turn.evidence.continuity
    if continuity is None or continuity.mode != "descent":
        return
    if continuity.handoff_ref is None:
        yield Finding(_ARTIFACT, "continuity", "the turn continues from a handoff that it does not name")
    existing = {row.ref for row in turn.evidence.artifacts if row.digest is not None}
    for ref in set(continuity.artifact_refs) - existing:
        yield Finding(
            _ARTIFACT, row_pointer("artifacts", ref), "the turn continues from an artifact that does not exist"
        )
        yield Finding(_ARTIFACT, "continuity", f"{ref} does not exist")


_POLICY: Final = CLASSES["mutation.policy_digest_mismatch"]
_CLAIM: Final = CLASSES["mutation.capability_claim_missing"]
_EVIDENCE: Final = CLASSES["mutation.use_evidence_missing"]

_BASE: Final = "capabilities.change_morphisms"


def check_policy(turn: Turn) -> Iterator[Finding]:
    """Check that the policy of the call is the active one, and the intent cites no other."""
    intent, pinned = turn.evidence.mutation, turn.call.mutation_policy_digest
    active = turn.constraints.mutation_constraints.active_policy_digest
    if active is not None and active != pinned:
        yield Finding(_POLICY, "callSpec/mutationPolicyDigest", "another mutation policy is active")
    if intent is None:
        return
    if active is None:
        yield Finding(_POLICY, "mutation", "activePolicyDigest is missing")
    if intent.policy_digest not in (None, pinned):
        yield Finding(_POLICY, "mutation", "the intent cites another policy than the call")


def check_claims(turn: Turn) -> Iterator[Finding]:
    """Check that the intent claims every capability it needs: the base, and the action or all actions.

    The tool of a named call counts as an action of the intent, or a right to one would be a right to any.
    """
    intent, required = turn.evidence.mutation, turn.terms.required_claims
    if intent is None:
        return
    for tool in {call.tool_name for call in intent.calls} - {intent.action}:
        if not _claims(intent, tool):
            yield Finding(
                _CLAIM, "mutation", f"{_BASE}.{_snake(tool)} is not claimed, and the mutation names a call of that tool"
            )
    if required is not None:
        for claim in set(required).difference(intent.capability_claims):
            yield Finding(_CLAIM, "mutation", f"{claim} is not claimed")
        return
    if _BASE not in intent.capability_claims:
        yield Finding(_CLAIM, "mutation", f"{_BASE} is not claimed")
    action = intent.action or ""
    if not _claims(intent, action):
        yield Finding(_CLAIM, "mutation", f"{_BASE}.{_snake(action)} is not claimed")


def _claims(intent: Mutation, action: str) -> bool:
    return f"{_BASE}.all" in intent.capability_claims or f"{_BASE}.{_snake(action)}" in intent.capability_claims


def _snake(action: str) -> str:
    return action.replace(".", "_")


def check_use_evidence(turn: Turn) -> Iterator[Finding]:
    """Check that every input leads to a consumed result or an earlier join, and the turn to a session or trajectory."""
    intent, evidence = turn.evidence.mutation, turn.evidence
    if intent is None:
        return
    if intent.instruction_ref is None:
        yield Finding(_EVIDENCE, "mutation", "instructionRef is missing")
    if not intent.input_refs:
        yield Finding(_EVIDENCE, "mutation", "inputRefs is empty")
    covered = set(intent.join_witness_refs)
    for row in evidence.tool_use:
        if row.consumed:
            covered.update(row.provenance)
            if not row.provenance:
                where = row_pointer("toolUse", row.tool_call_id)
                yield Finding(_EVIDENCE, where, "the result was consumed, and its provenance is missing")
                yield Finding(_EVIDENCE, "mutation", f"the consumed result {row.tool_call_id} has no provenance")
    for ref in set(intent.input_refs) - covered:
        yield Finding(_EVIDENCE, "mutation", f"no consumed result leads to {ref}")
    if not evidence.session_refs and not evidence.trajectory_refs:
        yield Finding(_EVIDENCE, "mutation", "sessionRefs and trajectoryRefs are empty")


def check_drift(turn: Turn) -> Iterator[Finding]:
    """Check that every policy document has the digest of the call spec."""
    for name in turn.drifted:
        drift, where = CLASSES[DOCUMENTS[name].drift], row_pointer("policyDocuments", name)
        yield Finding(drift, where, "is not the document of the call spec")
