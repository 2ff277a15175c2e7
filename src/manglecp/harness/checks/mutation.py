"""Mutation checks: handoff packets, mutations and drift of policy documents.

The handoff contract consists of explicit constraints, which always apply, and of a policy document, which applies only
to a turn with a handoff packet or a transfer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from manglecp.harness import classes
from manglecp.harness.classes import Finding, row_pointer
from manglecp.harness.constraints import DOCUMENTS
from manglecp.harness.turn import Turn


def check_packet(turn: Turn) -> Iterator[Finding]:
    """Check that the target is allowed, and that the packet has everything that the contract requires."""
    packet, terms = turn.evidence.handoff, turn.terms.handoff
    if packet is None:
        return
    if terms.allowed_targets and packet.target not in terms.allowed_targets:
        yield classes.TARGET_DISALLOWED.at("handoff", f"{packet.target} is not an allowed target")
    by_role, role = terms.allowed_targets_by_role, turn.call.orchestration_role
    if by_role and packet.target not in by_role.get(role or "", ()):
        yield classes.TARGET_DISALLOWED.at("handoff", f"{packet.target} is not an allowed target of {role}")
    if terms.require_return_path and packet.return_path_ref is None:
        yield classes.RETURN_PATH_MISSING.at("handoff", "the packet has no return path")
    required_refs = set(terms.required_artifact_refs or ())
    for ref in required_refs.difference(packet.required_artifact_refs):
        yield classes.ARTIFACT_MISSING.at(row_pointer("handoff", ref), "the packet does not carry the artifact")
    if terms.require_artifact_existence:
        existing_refs = {row.ref for row in turn.evidence.artifacts if row.exists and row.digest is not None}
        for ref in required_refs.union(packet.required_artifact_refs) - existing_refs:
            where = row_pointer("artifacts", ref)
            yield classes.ARTIFACT_MISSING.at(where, "the artifact does not exist, or has no digest")
            yield classes.ARTIFACT_MISSING.at("handoff", f"{ref} does not exist, or has no digest")
    packet_members = msgspec.to_builtins(packet)
    for name in terms.required_packet_fields or ():
        if not packet_members.get(name):
            yield classes.ARTIFACT_MISSING.at(row_pointer("handoff", name), "the packet lacks a required field")


def check_missing_packet(turn: Turn) -> Iterator[Finding]:
    """Check that a required packet is present."""
    if turn.evidence.handoff is not None:
        return
    terms, mutation = turn.terms.handoff, turn.evidence.mutation
    is_transfer = mutation is not None and mutation.kind == "transfer"
    targets_by_role = terms.allowed_targets_by_role or {}
    needs_target = is_transfer or terms.allowed_targets or targets_by_role.get(turn.call.orchestration_role or "")
    for failure, is_violated, message in (
        (classes.ARTIFACT_MISSING, terms.required_artifact_refs or terms.required_packet_fields, "requires a packet"),
        (classes.TARGET_DISALLOWED, needs_target, "requires a target"),
        (classes.RETURN_PATH_MISSING, terms.require_return_path, "requires a return path"),
    ):
        # The mutation of a transfer requires the packet, so the row of the mutation gets the finding, too.
        for where in ("handoff", "mutation") if is_transfer else ("handoff",):
            if is_violated:
                yield failure.at(where, f"the handoff {message}, and the packet is missing")


def check_descent(turn: Turn) -> Iterator[Finding]:
    """Check that a turn after a handoff names the handoff, and that the artifacts that the turn lists exist."""
    continuity = turn.evidence.continuity
    if continuity is None or continuity.mode != "descent":
        return
    if continuity.handoff_ref is None:
        yield classes.ARTIFACT_MISSING.at("continuity", "the turn continues from a handoff that it does not name")
    existing_refs = {row.ref for row in turn.evidence.artifacts if row.exists and row.digest is not None}
    for ref in set(continuity.artifact_refs) - existing_refs:
        where = row_pointer("artifacts", ref)
        yield classes.ARTIFACT_MISSING.at(where, "the turn continues from an artifact that does not exist")
        yield classes.ARTIFACT_MISSING.at("continuity", f"{ref} does not exist")


_BASE_CLAIM: Final = "capabilities.change_morphisms"


def check_policy(turn: Turn) -> Iterator[Finding]:
    """Check that the mutation policy of the call is the active one, and that the mutation cites no other policy."""
    mutation, call_digest = turn.evidence.mutation, turn.call.mutation_policy_digest
    active_digest = turn.constraints.mutation_constraints.active_policy_digest
    if active_digest is not None and active_digest != call_digest:
        yield classes.MUTATION_POLICY_MISMATCH.at("callSpec/mutationPolicyDigest", "another mutation policy is active")
    if mutation is None:
        return
    if active_digest is None:
        yield classes.MUTATION_POLICY_MISMATCH.at("mutation", "activePolicyDigest is missing")
    if mutation.policy_digest not in (None, call_digest):
        yield classes.MUTATION_POLICY_MISMATCH.at("mutation", "the mutation cites another policy than the call")


def check_claims(turn: Turn) -> Iterator[Finding]:
    """Check that the mutation claims the required capabilities: by default the base claim and the claim of its action.

    The mutation must also claim the tool of each call that it names, because a claim for an action permits no other
    tool.
    """
    mutation, required_claims = turn.evidence.mutation, turn.terms.required_claims
    if mutation is None:
        return
    action_claims = {_claim_of(call.tool_name) for call in mutation.calls if call.tool_name != mutation.action}
    if required_claims is None:
        action_claims.add(_claim_of(mutation.action or ""))
    needed_claims = {_BASE_CLAIM} if required_claims is None else set(required_claims)
    if f"{_BASE_CLAIM}.all" not in mutation.capability_claims:
        needed_claims |= action_claims
    for claim in needed_claims.difference(mutation.capability_claims):
        yield classes.CLAIM_MISSING.at("mutation", f"{claim} is not claimed")


def _claim_of(action: str) -> str:
    return f"{_BASE_CLAIM}.{action.replace('.', '_')}"


def check_use_evidence(turn: Turn) -> Iterator[Finding]:
    """Check that the evidence names a session or trajectory, and that consumed results or witnesses give each input."""
    mutation, evidence = turn.evidence.mutation, turn.evidence
    if mutation is None:
        return
    if mutation.instruction_ref is None:
        yield classes.USE_EVIDENCE_MISSING.at("mutation", "instructionRef is missing")
    if not mutation.input_refs:
        yield classes.USE_EVIDENCE_MISSING.at("mutation", "inputRefs is empty")
    traced_refs = set(mutation.join_witness_refs)
    for row in evidence.tool_use:
        if row.is_consumed:
            traced_refs.update(row.provenance)
            if not row.provenance:
                message = f"the result {row.tool_call_id} was consumed, and its provenance is missing"
                yield classes.USE_EVIDENCE_MISSING.at(row.where, message)
                yield classes.USE_EVIDENCE_MISSING.at("mutation", message)
    for ref in set(mutation.input_refs) - traced_refs:
        yield classes.USE_EVIDENCE_MISSING.at("mutation", f"no consumed result leads to {ref}")
    if not evidence.session_refs and not evidence.trajectory_refs:
        yield classes.USE_EVIDENCE_MISSING.at("mutation", "sessionRefs and trajectoryRefs are empty")


def check_drift(turn: Turn) -> Iterator[Finding]:
    """Check that every policy document has the digest that the call spec names."""
    for name in turn.documents.drifted_kinds:
        where = row_pointer("policyDocuments", name)
        yield DOCUMENTS[name].drift_class.at(where, "is not the document of the call spec")
