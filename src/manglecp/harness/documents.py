"""Policy documents: what a digest of the call spec points at.

A document counts only if it is the one that the call spec names. Then it supplies constraints that were not given
explicitly, and what was given explicitly replaces it, member by member. One that differs, or that the call spec names
no digest for, has *drifted*: it supplies nothing, and the class that it belongs to is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from manglecp.harness.call_spec import CallSpec
from manglecp.harness.canonical_v1 import digest_v1 as digest
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

__all__ = ["DOCUMENTS", "Documents", "PolicyDocument", "read_document", "read_documents", "supplied"]


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
    return {name: read_document(name, found, limits) for name, found in value.items() if _is_there(name, found)}


def _is_there(name: str, document: Any) -> bool:
    if name not in DOCUMENTS:
        raise InvalidEvidence("", "no document has this name").under(name)
    return document is not None


def read_document(name: str, document: Any, limits: Limits) -> Any:
    """One document as it came."""
    try:
        return verbatim_object(document, limits)
    except InvalidEvidence as bad:
        raise bad.under(name) from None


def supplied(name: str, document: Any, limits: Limits) -> Any:
    """What a document supplies that is the one that its turn names."""
    try:
        return DOCUMENTS[name].read(document, limits)
    except InvalidEvidence as bad:
        raise bad.under(name).under("policyDocuments") from None


class Documents:
    """The documents of a turn, compared with its call spec."""

    __slots__ = ("_verified", "drifted")

    def __init__(self, digests: Mapping[str, str], call: CallSpec, read: Callable[[str], Any]) -> None:
        """``read`` gives what a document supplies, by its name; who reads one twice may keep it."""
        self._verified: dict[str, Any] = {}
        drifted = []
        for name in sorted(digests):
            if digests[name] != getattr(call, DOCUMENTS[name].field):
                drifted.append(name)
            else:
                self._verified[name] = read(name)
        self.drifted = tuple(drifted)

    @classmethod
    def compared(cls, documents: Mapping[str, Any], call: CallSpec, limits: Limits) -> Documents:
        """Digested and read here."""
        digests = {name: digest(document) for name, document in documents.items()}
        return cls(digests, call, lambda name: supplied(name, documents[name], limits))

    def verified(self, name: str) -> Any:
        """What the document of this kind supplies, or None."""
        return self._verified.get(name)
