"""Macro-tools and skills as they travel (seed 003)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from manglecp.wire.messages.envelope import UNSET, Level, Object, Part, Percent, UnsetType, one_of_or_own

SIDE_EFFECTS: Final = (
    "none",
    "filesystem",
    "network",
    "database",
    "browser",
    "process",
    "payments",
    "authentication",
    "destructive",
)
"""The standard categories; others begin with ``x-``."""
SideEffect: TypeAlias = Annotated[str, one_of_or_own(*SIDE_EFFECTS)]
PRESENCE: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "full": (frozenset({"description", "input_schema", "safety"}), frozenset()),
    "condensed": (
        frozenset(),
        frozenset({"input_schema", "output_schema", "context_injection", "safety", "validity"}),
    ),
    "minimal": (
        frozenset(),
        frozenset(
            {"description", "input_schema", "output_schema", "context_injection", "safety", "validity", "metadata"}
        ),
    ),
}
"""By disclosure level, the members that a macro-tool has to have and those that it may not have (seed 003, 2.2). A
client accepts a condensed tool without its line (OPEN-24)."""


class SkillReference(Part, frozen=True, kw_only=True):
    """A skill inside a tool: with its content, or only named."""

    skill_id: str
    inline: bool
    content: str | UnsetType = UNSET


class ContextResource(Part, frozen=True, kw_only=True):
    """Something to read before the tool is used."""

    uri: str
    relevance: str | UnsetType = UNSET
    priority: Percent | UnsetType = UNSET


class ContextInjection(Part, frozen=True, kw_only=True):
    """What goes into the context of a model together with the tool."""

    instructions: str | UnsetType = UNSET
    skills: tuple[SkillReference, ...] | UnsetType = UNSET
    context_resources: tuple[ContextResource, ...] | UnsetType = UNSET


class Safety(Part, frozen=True, kw_only=True):
    """What a person may have to agree to before the tool runs."""

    requires_user_confirmation: bool
    side_effects: tuple[SideEffect, ...]
    reversible: bool | UnsetType = UNSET
    idempotent: bool | UnsetType = UNSET


class Validity(Part, frozen=True, kw_only=True):
    """When the tool can be invoked. A bound that is absent is open."""

    not_before: str | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET


class Metadata(Part, frozen=True, kw_only=True):
    """How the tool came to be in the answer."""

    selection_phase: str | UnsetType = UNSET
    score: int | float | UnsetType = UNSET
    source_rules: tuple[str, ...] | UnsetType = UNSET


class MacroTool(Part, frozen=True, kw_only=True):
    """Which members are set depends on the disclosure level."""

    macro_id: str
    name: str
    description: str | UnsetType = UNSET
    disclosure_level: Level
    input_schema: Object | UnsetType = UNSET
    output_schema: Object | UnsetType = UNSET
    context_injection: ContextInjection | UnsetType = UNSET
    safety: Safety | UnsetType = UNSET
    validity: Validity | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET


class SkillResource(Part, frozen=True, kw_only=True):
    """Something that a skill refers to."""

    uri: str
    type: str | UnsetType = UNSET
    description: str | UnsetType = UNSET


class Skill(Part, frozen=True, kw_only=True):
    """A text that teaches a model how to use tools of this answer."""

    skill_id: str
    name: str
    description: str
    content: str
    content_type: str | UnsetType = UNSET
    resources: tuple[SkillResource, ...] | UnsetType = UNSET


__all__ = [
    "PRESENCE",
    "SIDE_EFFECTS",
    "ContextInjection",
    "ContextResource",
    "MacroTool",
    "Metadata",
    "Safety",
    "Skill",
    "SkillReference",
    "SkillResource",
    "Validity",
]
