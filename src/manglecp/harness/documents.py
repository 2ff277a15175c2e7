"""Policy documents: what a digest of the call spec points at.

A document counts only if it is the one that the call spec names. Then it supplies constraints that were not given
explicitly, and what was given explicitly replaces it, member by member. One that differs, or that the call spec names
no digest for, has *drifted*: it supplies nothing, and the class that it belongs to is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from manglecp.harness.call_spec import CallSpec
from manglecp.harness.canonical import digest
from manglecp.harness.classes import CLASSES, FailClass
from manglecp.harness.constraints import (
    CompactionTerms,
    DecompositionConstraints,
    HandoffConstraints,
    RedTeamTerms,
    RoleScope,
)
from manglecp.harness.errors import InvalidEvidence
from manglecp.harness.reading import (
    Limits,
    Member,
    Numbers,
    Read,
    Record,
    Text,
    by_name,
    each,
    reader_of,
    texts,
    verbatim_object,
    words,
    words_by_name,
)

__all__ = ["DOCUMENTS", "Documents", "PolicyDocument", "read_documents"]


class CatalogEntry(Record, frozen=True):
    tool_name: Text = None
    schema_digest: Text = None


class ToolCatalog(Record, frozen=True):
    tools: Annotated[tuple[CatalogEntry, ...], Member(each(reader_of(CatalogEntry)))] = ()


class DeferPolicy(Record, frozen=True):
    deferred: Annotated[tuple[str, ...], Member(texts)] = ()


class AllowedCallers(Record, frozen=True):
    tools: Annotated[dict[str, tuple[str, ...]] | None, Member(words_by_name)] = None


class ContextScope(Record, frozen=True):
    roles: Annotated[dict[str, RoleScope] | None, Member(by_name(reader_of(RoleScope), words=True))] = None


class GuardrailStagePolicy(Record, frozen=True):
    required_stages: Annotated[tuple[str, ...] | None, Member(words)] = None


class EvalGatePolicy(Record, frozen=True):
    thresholds: Numbers = None


class MutationPolicy(Record, frozen=True):
    required_capability_claims: Annotated[tuple[str, ...] | None, Member(texts)] = None


class Compared(Record, frozen=True):
    """A document that is compared and supplies nothing."""


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """One kind of document: the field of the call spec that names it, and the class of its drift."""

    field: str
    drift: FailClass
    kind: type[Record]
    read: Read[Any]


def _document(field: str, drift: str, kind: type[Record] = Compared) -> PolicyDocument:
    return PolicyDocument(field, CLASSES[drift], kind, reader_of(kind))


DOCUMENTS: Final = {
    "toolCatalog": _document("tool_catalog_digest", "tool.discovery_mismatch", ToolCatalog),
    "deferPolicy": _document("defer_policy_digest", "tool.discovery_mismatch", DeferPolicy),
    "toolExamples": _document("tool_example_digest", "tool.example_digest_mismatch"),
    "allowedCallers": _document("allowed_callers_digest", "tool.caller_not_allowed", AllowedCallers),
    "toolRenderProtocol": _document("tool_render_protocol_digest", "context.queue_policy_violation"),
    "reminderQueuePolicy": _document("reminder_queue_policy_digest", "context.queue_policy_violation"),
    "stateViewPolicy": _document("state_view_policy_digest", "context.queue_policy_violation"),
    "compactionPolicy": _document("compaction_policy_digest", "runtime.compaction_state_invalid", CompactionTerms),
    "decompositionPolicy": _document(
        "decomposition_policy_digest", "coordination.decomposition_policy_violation", DecompositionConstraints
    ),
    "governancePolicy": _document("governance_policy_digest", "governance.policy_package_mismatch"),
    "guardrailStagePolicy": _document(
        "guardrail_stage_policy_digest", "governance.guardrail_stage_missing", GuardrailStagePolicy
    ),
    "evalGatePolicy": _document("eval_gate_policy_digest", "governance.eval_lineage_missing", EvalGatePolicy),
    "redTeamPolicy": _document("red_team_policy_digest", "governance.redteam_gate_unmet", RedTeamTerms),
    "contextScope": _document("context_scope_digest", "context.scope_violation", ContextScope),
    "handoffContract": _document("handoff_contract_digest", "handoff.target_not_allowed", HandoffConstraints),
    "mutationPolicy": _document("mutation_policy_digest", "mutation.policy_digest_mismatch", MutationPolicy),
}  # fmt: skip
"""Every kind of document that there is."""


def read_documents(value: Any, limits: Limits) -> dict[str, Any]:
    """The documents as they came, by the names of their kinds."""
    if not isinstance(value, dict):
        raise InvalidEvidence("", "an object is expected")
    found = {}
    for name, document in value.items():
        if name not in DOCUMENTS:
            raise InvalidEvidence("", "no document has this name").under(name)
        if document is not None:
            try:
                found[name] = verbatim_object(document, limits)
            except InvalidEvidence as bad:
                raise bad.under(name) from None
    return found


class Documents:
    """The documents of a turn, compared with its call spec."""

    __slots__ = ("_verified", "drifted")

    def __init__(self, documents: Mapping[str, Any], call: CallSpec, limits: Limits) -> None:
        self._verified: dict[str, Any] = {}
        drifted = []
        for name in sorted(documents):
            of_kind = DOCUMENTS[name]
            if digest(documents[name]) != getattr(call, of_kind.field):
                drifted.append(name)
                continue
            try:
                self._verified[name] = of_kind.read(documents[name], limits)
            except InvalidEvidence as bad:
                raise bad.under(name).under("policyDocuments") from None
        self.drifted = tuple(drifted)

    def verified(self, name: str) -> Any:
        """What the document of this kind supplies, or None."""
        return self._verified.get(name)
