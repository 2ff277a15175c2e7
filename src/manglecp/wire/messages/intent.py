"""``intent_request`` and ``intent_response`` (companion, section 6; seed 004, sections 5 and 6)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from manglecp.wire.messages.envelope import (
    UNSET,
    Count,
    FactObject,
    FactObjects,
    Message,
    Name,
    Object,
    Part,
    RequestId,
    Time,
    UnsetType,
)
from manglecp.wire.messages.tools import MacroTool, Skill


class Intent(Part, frozen=True, kw_only=True):
    """What the client wants to come about; `params` describe the outcome and are no arguments of a tool."""

    name: Annotated[Name, Meta(pattern=r"[^\s\x1c-\x1f\x85\ufeff]")]  # not only what some language takes for blanks
    params: Object | None = None


class Constraints(Part, frozen=True, kw_only=True):
    """Limits of this request; the stricter of these and the server's apply. Null counts as absent."""

    max_facts_created: Count | None = None
    max_intervals_per_atom: Count | None = None
    max_compute_ms: Count | None = None
    max_tools_returned: Count | None = None
    max_tokens_budget: Count | None = None


class Options(Part, frozen=True, kw_only=True, rename={"why_not": "x-why_not", "rule_coverage": "x-rule_coverage"}):
    """What the answer should hold besides the tools, and how much of each tool."""

    include_proof_hints: bool = False
    disclosure_preference: Literal["full", "condensed", "minimal", "adaptive"] = "adaptive"
    why_not: tuple[str, ...] = ()
    rule_coverage: bool = False


class IntentPayload(Part, frozen=True, kw_only=True):
    """Only `intent` has to be there. Null counts as absent."""

    intent: Intent
    facts: FactObjects = []  # noqa: RUF012 - msgspec copies it
    eval_time: Time | None = None
    constraints: Constraints = Constraints()
    options: Options = Options()


class IntentRequest(Message, frozen=True, kw_only=True, tag="intent_request"):
    """Which tools fit this intent, given these facts?"""

    id: RequestId
    payload: IntentPayload


# --- the answer ------------------------------------------------------------------------------------------------------


class ProofTree(Part, frozen=True, kw_only=True):
    """A fact, and the facts that it follows from."""

    fact: str
    type: Literal["server", "session", "derived", "external", "absent"]
    children: tuple[ProofTree, ...] = ()


class Derivation(Part, frozen=True, kw_only=True):
    """Why a tool is in the answer."""

    macro_id: str
    selected_by: Literal["skeleton", "flesh", "dependency"]
    score: int | float
    supporting_facts: tuple[FactObject, ...]
    rule_chain: tuple[str, ...]
    tree: ProofTree | UnsetType = UNSET


class Exclusion(Part, frozen=True, kw_only=True):
    """A tool that spoke to the intent and is not in the answer, and why."""

    candidate: str
    excluded_by: str
    reason: str


class UnmatchedFact(Part, frozen=True, kw_only=True):
    """A fact of the request that no rule could use."""

    pred: str
    reason: str


class WhyNot(Part, frozen=True, kw_only=True):
    """What stops a tool that was asked about, and which facts would bring it."""

    tool: str
    known: bool
    blocked_by: tuple[str, ...] = ()
    would_unlock: tuple[tuple[FactObject, ...], ...] = ()
    complete: bool = True


class ProofHints(Part, frozen=True, kw_only=True, rename={"why_not": "x-why_not"}):
    """Why the answer is what it is, as far as the client may know."""

    derivations: tuple[Derivation, ...]
    excluded: tuple[Exclusion, ...]
    unmatched_facts: tuple[UnmatchedFact, ...]
    why_not: tuple[WhyNot, ...] | UnsetType = UNSET


class DormantRule(Part, frozen=True, kw_only=True):
    """A rule that did not fire for this request, and what it missed."""

    rule: str
    missing_predicates: tuple[str, ...]
    status: Literal["partially_alive", "dead"]


class RuleCoverage(Part, frozen=True, kw_only=True):
    """What became of the rules, for whoever writes the pack."""

    total_rules: Count
    rules_fired: Count
    rules_dormant: Count
    rules_inapplicable: Count
    dormant_details: tuple[DormantRule, ...]


class Diagnostics(
    Part,
    frozen=True,
    kw_only=True,
    rename={"tokens": "x-tokens", "tools_proven": "x-tools_proven", "facts_version": "x-facts_version"},
):
    """Figures about the evaluation, for people: no client depends on them."""

    facts_evaluated: Count
    facts_derived: Count
    rules_fired: Count
    phases_completed: Count | None
    rule_coverage: RuleCoverage | UnsetType = UNSET
    tokens: Object | UnsetType = UNSET
    """``{"count": N, "by": "estimate" | "o200k_base"}``: what the tools and skills of this answer cost."""
    tools_proven: Count | UnsetType = UNSET
    """If not all of them are shown."""
    facts_version: str | UnsetType = UNSET
    """Of what the server has found out and answers by; other facts have another one."""


class IntentResult(Part, frozen=True, kw_only=True):
    """The tools that were proven for the intent, as of `eval_time_used`."""

    eval_time_used: str
    eval_duration_ms: Count = 0
    macro_tools: tuple[MacroTool, ...]
    proof_hints: ProofHints | UnsetType = UNSET
    required_skills: tuple[Skill, ...] | UnsetType = UNSET
    diagnostics: Diagnostics | UnsetType = UNSET


class IntentResponse(Message, frozen=True, kw_only=True, tag="intent_response"):
    """The answer to an `intent_request`."""

    id: RequestId
    payload: IntentResult


__all__ = [
    "Constraints",
    "Derivation",
    "Diagnostics",
    "DormantRule",
    "Exclusion",
    "Intent",
    "IntentPayload",
    "IntentRequest",
    "IntentResponse",
    "IntentResult",
    "Options",
    "ProofHints",
    "ProofTree",
    "RuleCoverage",
    "UnmatchedFact",
    "WhyNot",
]
