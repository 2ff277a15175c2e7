"""What is in force: explicit constraints, and verified documents where a constraint was not given.

An explicit member replaces that of a document; it does not intersect with it. Inline policies of the call spec are no
documents: they and the constraints both apply, and the checks ask both.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from manglecp.harness.constraints import (
    CompactionTerms,
    Constraints,
    DecompositionConstraints,
    HandoffConstraints,
    RedTeamTerms,
    RoleScope,
)
from manglecp.harness.documents import Documents
from manglecp.harness.reading import Record

__all__ = ["STAGES", "Terms"]

STAGES: Final = ("pre_flight", "input", "output")
"""The stages of guardrails, in their order."""

R = TypeVar("R", bound=Record)


class Terms:
    """The constraints of a turn with what its documents add to them."""

    __slots__ = (
        "allowed_callers",
        "catalog_tools",
        "compaction",
        "decomposition",
        "deferred_tools",
        "eval_thresholds",
        "handoff",
        "red_team",
        "required_claims",
        "required_stages",
        "role_scopes",
        "stages_by_document",
    )

    catalog_tools: tuple[str, ...] | None
    deferred_tools: tuple[str, ...]
    allowed_callers: dict[str, tuple[str, ...]]
    role_scopes: dict[str, RoleScope] | None
    compaction: CompactionTerms
    decomposition: DecompositionConstraints
    handoff: HandoffConstraints
    required_stages: tuple[str, ...]
    """In their order."""
    stages_by_document: bool
    eval_thresholds: dict[str, float]
    red_team: RedTeamTerms
    required_claims: tuple[str, ...] | None

    def __init__(self, constraints: Constraints, documents: Documents, handing_over: bool) -> None:
        tool, governance = constraints.tool_constraints, constraints.governance_constraints
        verified = documents.verified

        self.catalog_tools = tool.catalog_tools
        catalog = verified("toolCatalog")
        if catalog is not None and self.catalog_tools is None:
            self.catalog_tools = tuple(entry.tool_name for entry in catalog.tools)
        self.deferred_tools = _first(tool.deferred_tools, verified("deferPolicy"), "deferred") or ()
        self.allowed_callers = _first(tool.allowed_callers, verified("allowedCallers"), "tools") or {}
        self.role_scopes = _first(constraints.context_constraints.role_scopes, verified("contextScope"), "roles")
        self.compaction = (
            constraints.runtime_constraints.compaction or verified("compactionPolicy") or CompactionTerms()
        )
        self.decomposition = _merged(constraints.decomposition_constraints, verified("decompositionPolicy"))
        # A contract binds who hands over. Constraints are demands, and bind in any case.
        self.handoff = _merged(constraints.handoff_constraints, verified("handoffContract") if handing_over else None)
        stage_policy = verified("guardrailStagePolicy")
        stages = _first(governance and governance.required_guardrail_stages, stage_policy, "required_stages")
        self.required_stages = STAGES if stages is None else _in_order(stages)
        self.stages_by_document = stage_policy is not None
        self.eval_thresholds = (
            _first(governance and governance.eval_thresholds, verified("evalGatePolicy"), "thresholds") or {}
        )
        self.red_team = (governance and governance.red_team) or verified("redTeamPolicy") or RedTeamTerms()
        self.required_claims = _first(
            constraints.mutation_constraints.required_capability_claims,
            verified("mutationPolicy"),
            "required_capability_claims",
        )


def _first(explicit: Any, document: Any, member: str) -> Any:
    """The explicit value, or that of the verified document."""
    return explicit if explicit is not None or document is None else getattr(document, member)


def _merged(explicit: R, document: R | None) -> R:
    """The explicit members, and those of the verified document for the rest."""
    if document is None:
        return explicit
    names = explicit.__struct_fields__
    return type(explicit)(*(_first(getattr(explicit, name), document, name) for name in names))


def _in_order(stages: tuple[str, ...]) -> tuple[str, ...]:
    known = tuple(stage for stage in STAGES if stage in stages)
    return known + tuple(stage for stage in stages if stage not in STAGES)
