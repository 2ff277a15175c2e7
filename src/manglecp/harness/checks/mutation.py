"""Mutation checks: handoff packets, mutation intents and drift of policy documents.

The handoff contract consists of explicit constraints, which always apply, and of a policy document, which applies only
to a turn that hands over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec

from manglecp.harness import classes
from manglecp.harness.classes import Finding, row_pointer
from manglecp.harness.constraints import DOCUMENTS
from manglecp.harness.evidence import Mutation
from manglecp.harness.turn import Turn


def check_contract(turn: Turn) -> Iterator[Finding]:
    if turn.terms.handoff.expected_contract_digest not in (None, turn.call.handoff_contract_digest):
        yield classes.TARGET.at("callSpec/handoffContractDigest", "another contract is expected")


def check_packet(turn: Turn) -> Iterator[Finding]:
    """Check that the target is allowed, and that the packet has everything that the contract requires."""
    packet, terms = turn.evidence.handoff, turn.terms.handoff
    if packet is None:
        return
    if terms.allowed_targets and packet.target not in terms.allowed_targets:
        yield classes.TARGET.at("handoff", f"{packet.target} is not an admitted target")
    by_role, role = terms.allowed_targets_by_role, turn.call.orchestration_role
    if by_role and packet.target not in by_role.get(role or "", ()):
        yield classes.TARGET.at("handoff", f"{packet.target} is not an admitted target of {role}")
    if terms.require_return_path and packet.return_path_ref is None:
        yield classes.RETURN.at("handoff", "the packet has no return path")
    required_refs = set(terms.required_artifact_refs or ())
    for ref in required_refs.difference(packet.required_artifact_refs):
        yield classes.ARTIFACT.at(row_pointer("handoff", ref), "the packet does not carry the artifact")
    if terms.require_artifact_existence:
        existing = {row.ref for row in turn.evidence.artifacts if row.exists and row.digest is not None}
        for ref in required_refs.union(packet.required_artifact_refs) - existing:
            yield classes.ARTIFACT.at(row_pointer("artifacts", ref), "the artifact does not exist, or has no digest")
            yield classes.ARTIFACT.at("handoff", f"{ref} does not exist, or has no digest")
    present = msgspec.to_builtins(packet)
    for name in terms.required_packet_fields or ():
        if not present.get(name):
            yield classes.ARTIFACT.at(row_pointer("handoff", name), "the packet lacks a required field")


def check_missing_packet(turn: Turn) -> Iterator[Finding]:
    """Check that a required packet is present."""
    if turn.evidence.handoff is not None:
        return
    intent = turn.evidence.mutation
    is_transfer = intent is not None and intent.kind == "transfer"
    for finding in _find_missing_packet(turn, is_transfer):
        yield finding
        if is_transfer:  # the mutation requires the packet, so its row gets the finding, too
            yield replace(finding, where="mutation")


def _find_missing_packet(turn: Turn, is_transfer: bool) -> Iterator[Finding]:
    terms = turn.terms.handoff
    if terms.required_artifact_refs or terms.required_packet_fields:
        yield classes.ARTIFACT.at("handoff", "the contract requires a packet, and it is missing")
    if terms.allowed_targets or (terms.allowed_targets_by_role or {}).get(turn.call.orchestration_role or ""):
        yield classes.TARGET.at("handoff", "the contract names targets, and the packet is missing")
    if terms.require_return_path:
        yield classes.RETURN.at("handoff", "the contract requires a return path, and the packet is missing")
    if is_transfer:
        yield classes.TARGET.at("handoff", "the transfer has no packet")


def check_descent(turn: Turn) -> Iterator[Finding]:
    """Check that a turn that continues from a handoff names it, and that the artifacts it lists exist."""
    continuity = turn.evidence.continuity
    if continuity is None or continuity.mode != "descent":
        return
    if continuity.handoff_ref is None:
        yield classes.ARTIFACT.at("continuity", "the turn continues from a handoff that it does not name")
    existing = {row.ref for row in turn.evidence.artifacts if row.exists and row.digest is not None}
    for ref in set(continuity.artifact_refs) - existing:
        yield classes.ARTIFACT.at(
            row_pointer("artifacts", ref), "the turn continues from an artifact that does not exist"
        )
        yield classes.ARTIFACT.at("continuity", f"{ref} does not exist")


_BASE_CLAIM: Final = "capabilities.change_morphisms"


def check_policy(turn: Turn) -> Iterator[Finding]:
    """Check that the mutation policy of the call is the active one, and that the intent cites no other."""
    intent, pinned = turn.evidence.mutation, turn.call.mutation_policy_digest
    active = turn.constraints.mutation_constraints.active_policy_digest
    if active is not None and active != pinned:
        yield classes.POLICY.at("callSpec/mutationPolicyDigest", "another mutation policy is active")
    if intent is None:
        return
    if active is None:
        yield classes.POLICY.at("mutation", "activePolicyDigest is missing")
    if intent.policy_digest not in (None, pinned):
        yield classes.POLICY.at("mutation", "the intent cites another policy than the call")


def check_claims(turn: Turn) -> Iterator[Finding]:
    """Check that the intent claims the required capabilities; by default the base claim and that of its action.

    It must also claim the tool of each call that it names: a claim for one action must not permit any tool.
    """
    intent, required = turn.evidence.mutation, turn.terms.required_claims
    if intent is None:
        return
    for tool in {call.tool_name for call in intent.calls} - {intent.action}:
        if not _claims(intent, tool):
            message = f"{_claim_of(tool)} is not claimed, and the mutation names a call of that tool"
            yield classes.CLAIM.at("mutation", message)
    if required is not None:
        for claim in set(required).difference(intent.capability_claims):
            yield classes.CLAIM.at("mutation", f"{claim} is not claimed")
        return
    if _BASE_CLAIM not in intent.capability_claims:
        yield classes.CLAIM.at("mutation", f"{_BASE_CLAIM} is not claimed")
    action = intent.action or ""
    if not _claims(intent, action):
        yield classes.CLAIM.at("mutation", f"{_claim_of(action)} is not claimed")


def _claims(intent: Mutation, action: str) -> bool:
    return f"{_BASE_CLAIM}.all" in intent.capability_claims or _claim_of(action) in intent.capability_claims


def _claim_of(action: str) -> str:
    return f"{_BASE_CLAIM}.{action.replace('.', '_')}"


def check_use_evidence(turn: Turn) -> Iterator[Finding]:
    """Check that a session or trajectory is named, and that each input is of a consumed result or a cited witness."""
    intent, evidence = turn.evidence.mutation, turn.evidence
    if intent is None:
        return
    if intent.instruction_ref is None:
        yield classes.EVIDENCE.at("mutation", "instructionRef is missing")
    if not intent.input_refs:
        yield classes.EVIDENCE.at("mutation", "inputRefs is empty")
    traced = set(intent.join_witness_refs)
    for row in evidence.tool_use:
        if row.consumed:
            traced.update(row.provenance)
            if not row.provenance:
                where = row_pointer("toolUse", row.tool_call_id)
                yield classes.EVIDENCE.at(where, "the result was consumed, and its provenance is missing")
                yield classes.EVIDENCE.at("mutation", f"the consumed result {row.tool_call_id} has no provenance")
    for ref in set(intent.input_refs) - traced:
        yield classes.EVIDENCE.at("mutation", f"no consumed result leads to {ref}")
    if not evidence.session_refs and not evidence.trajectory_refs:
        yield classes.EVIDENCE.at("mutation", "sessionRefs and trajectoryRefs are empty")


def check_drift(turn: Turn) -> Iterator[Finding]:
    """Check that every policy document has the digest that the call spec names."""
    for name in turn.drifted:
        drift_class, where = classes.CLASSES[DOCUMENTS[name].drift_class], row_pointer("policyDocuments", name)
        yield drift_class.at(where, "is not the document of the call spec")
