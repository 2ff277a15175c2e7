"""Mutations: does the turn carry the change that it wants to make?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from manglecp.harness.classes import CLASSES
from manglecp.harness.findings import Finding, place
from manglecp.harness.rows import Mutation
from manglecp.harness.turn import Turn

__all__ = ["CHECKS"]

_POLICY: Final = CLASSES["mutation.policy_digest_mismatch"]
_CLAIM: Final = CLASSES["mutation.capability_claim_missing"]
_EVIDENCE: Final = CLASSES["mutation.use_evidence_missing"]

_BASE: Final = "capabilities.change_morphisms"


def policy(turn: Turn) -> Iterator[Finding]:
    """The policy of the call is the active one, and the intent cites no other."""
    intent, pinned = turn.evidence.mutation, turn.call.mutation_policy_digest
    active = turn.constraints.mutation_constraints.active_policy_digest
    if active is not None and active != pinned:
        yield Finding(_POLICY, "callSpec/mutationPolicyDigest", "another mutation policy is active")
    if intent is None:
        return
    if active is None:
        yield Finding(_POLICY, "mutation", "nothing says which mutation policy is active")
    if intent.policy_digest not in (None, pinned):
        yield Finding(_POLICY, "mutation", "the intent cites another policy than the call")


def claims(turn: Turn) -> Iterator[Finding]:
    """The intent claims every capability that it needs: the base, and the action or all actions.

    What a call is of is an action of the intent as well, or a right to one would be a right to any.
    """
    intent, demanded = turn.evidence.mutation, turn.terms.required_claims
    if intent is None:
        return
    for tool in {call.tool_name for call in intent.calls} - {intent.action}:
        if not _claims(intent, tool):
            yield Finding(_CLAIM, "mutation", f"{_BASE}.{_snake(tool)} is not claimed, and it names a call of that")
    if demanded is not None:
        for claim in set(demanded).difference(intent.capability_claims):
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


def use_evidence(turn: Turn) -> Iterator[Finding]:
    """Every input is traced to a consumed result or an earlier join, and the turn to its session or trajectory."""
    intent, evidence = turn.evidence.mutation, turn.evidence
    if intent is None:
        return
    if intent.instruction_ref is None:
        yield Finding(_EVIDENCE, "mutation", "no instruction asks for it")
    if not intent.input_refs:
        yield Finding(_EVIDENCE, "mutation", "it rests on nothing")
    covered = set(intent.join_witness_refs)
    for row in evidence.tool_use:
        if row.consumed:
            covered.update(row.provenance)
            if not row.provenance:
                where = place("toolUse", row.tool_call_id)
                yield Finding(_EVIDENCE, where, "the result was consumed, and nothing says by what")
                yield Finding(_EVIDENCE, "mutation", f"nothing says by what {row.tool_call_id} was consumed")
    for ref in set(intent.input_refs) - covered:
        yield Finding(_EVIDENCE, "mutation", f"no consumed result leads to {ref}")
    if not evidence.session_refs and not evidence.trajectory_refs:
        yield Finding(_EVIDENCE, "mutation", "the turn belongs to no session and no trajectory")


CHECKS: Final = (policy, claims, use_evidence)
