"""A definition as a client sees it, at one level of detail.

The presence table of the specification (TOOL-05 to TOOL-07), member by member:

    full        macro_id, name, description, input_schema, safety, metadata; output_schema, context_injection and
                validity where there is something to say
    condensed   macro_id, name, one line of description
    minimal     macro_id, name

What is false or empty by default is not written: an answer is as small as it can be without saying less. That arguments
which a schema does not name are refused holds for every tool, so no schema says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from manglecp.base.text import escape_invisible
from manglecp.intent.context import summary, uri
from manglecp.intent.definition import Definition
from manglecp.mangle import instant_text
from manglecp.pack import SkillText
from manglecp.wire.messages import (
    UNSET,
    ContextInjection,
    ContextResource,
    Level,
    MacroTool,
    Metadata,
    Safety,
    Skill,
    SkillReference,
    SkillResource,
    UnsetType,
    Validity,
)

__all__ = ["Shown", "render", "required_skills", "skill"]

Skills = Mapping[str, SkillText]


@dataclass(frozen=True, slots=True)
class Shown:
    """A tool and how much of it is shown."""

    definition: Definition
    level: Level
    inline: frozenset[str] = frozenset()
    """Skills whose text stands in the tool; others are referred to."""
    resources: int = 0
    """How many, best first."""

    def changed(self, **changes: object) -> Shown:
        """A copy in which these members are others."""
        return replace(self, **changes)  # type: ignore[arg-type]  # members of this class

    @property
    def referenced(self) -> tuple[str, ...]:
        """Skills that are referred to."""
        if self.level != "full":
            return ()
        return tuple(skill for skill in self.definition.skills if skill not in self.inline)


def render(tool: Shown, skills: Skills) -> MacroTool:
    """``skills`` are those of the pack."""
    definition = tool.definition
    if tool.level == "minimal":
        return MacroTool(macro_id=definition.macro_id, name=definition.tool, disclosure_level="minimal")
    if tool.level == "condensed":
        return MacroTool(
            macro_id=definition.macro_id,
            name=definition.tool,
            description=definition.summary,
            disclosure_level="condensed",
        )
    return MacroTool(
        macro_id=definition.macro_id,
        name=definition.tool,
        description=definition.description,
        disclosure_level="full",
        input_schema={key: part for key, part in definition.input_schema.items() if key != "additionalProperties"},
        output_schema=UNSET if definition.output_schema is None else dict(definition.output_schema),
        context_injection=_context(tool, skills),
        safety=_safety(definition),
        validity=_validity(definition),
        metadata=Metadata(
            selection_phase=definition.phase,
            score=definition.score,
            source_rules=definition.source_rules or UNSET,
        ),
    )


def _context(tool: Shown, skills: Skills) -> ContextInjection | UnsetType:
    definition = tool.definition
    resources = definition.resources[: tool.resources]
    if not (definition.instructions or definition.skills or resources):
        return UNSET
    return ContextInjection(
        instructions=definition.instructions or UNSET,
        skills=tuple(_reference(one, tool, skills) for one in definition.skills) or UNSET,
        context_resources=tuple(
            ContextResource(uri=one.uri, relevance=one.relevance or UNSET, priority=one.priority) for one in resources
        )
        or UNSET,
    )


def _reference(skill_id: str, tool: Shown, skills: Skills) -> SkillReference:
    if skill_id in tool.inline:
        return SkillReference(skill_id=skill_id, inline=True, content=_told(skills[skill_id].content))
    return SkillReference(skill_id=skill_id, inline=False)


def _safety(definition: Definition) -> Safety:
    data = definition.safety
    told = data.reversible or data.idempotent  # both are false when absent (TOOL-12)
    return Safety(
        requires_user_confirmation=data.requires_user_confirmation,
        side_effects=data.side_effects,
        reversible=data.reversible if told else UNSET,
        idempotent=data.idempotent if told else UNSET,
    )


def _validity(definition: Definition) -> Validity | UnsetType:
    if definition.not_before is None and definition.expires_at is None:
        return UNSET
    return Validity(
        not_before=UNSET if definition.not_before is None else instant_text(definition.not_before),
        expires_at=UNSET if definition.expires_at is None else instant_text(definition.expires_at),
    )


# --- skills ----------------------------------------------------------------------------------------------------------


def required_skills(tools: Sequence[Shown], skills: Skills) -> tuple[Skill, ...]:
    """Every skill that a shown tool refers to, once (SKILL-07)."""
    wanted: Iterable[str] = sorted({one for tool in tools for one in tool.referenced})
    return tuple(skill(skills[one]) for one in wanted)


def skill(text: SkillText) -> Skill:
    """A skill that is referred to: its description, and a summary in place of its text (SKILL-08)."""
    return Skill(
        skill_id=text.skill_id,
        name=escape_invisible(text.name),
        description=escape_invisible(text.description),
        content=_outline(text.content),
        content_type=UNSET if text.content_type == "text/markdown" else text.content_type,
        resources=tuple(found for one in text.resources if (found := _resource(one)) is not None) or UNSET,
    )


@lru_cache(maxsize=1024)
def _told(content: str) -> str:
    """A skill's text as it is shown. It stands in the pack, and is the same for every request."""
    return escape_invisible(content.strip())


@lru_cache(maxsize=1024)
def _outline(content: str) -> str:
    return escape_invisible(summary(content))


def _resource(resource: Mapping[str, str]) -> SkillResource | None:
    """None for what is no address that anyone should open."""
    address = uri(escape_invisible(resource["uri"]))
    if address is None:
        return None
    return SkillResource(
        uri=address,
        type=resource.get("type", UNSET),
        description=escape_invisible(resource["description"]) if "description" in resource else UNSET,
    )
