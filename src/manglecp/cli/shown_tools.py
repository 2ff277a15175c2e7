"""A tool as people are shown it: all of it where the pack is at hand, what the server discloses where it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from manglecp.intent import Definition
from manglecp.mangle import instant_text
from manglecp.wire.messages import UNSET, MacroTool, UnsetType

__all__ = ["ShownTool"]

_UNSAID = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTool:
    """What is not told is ``-`` or empty."""

    name: str
    description: str = ""
    score: int | float | None = None
    phase: str = _UNSAID
    effects: tuple[str, ...] | None = None
    expires: str = _UNSAID
    instructions: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    skills: tuple[str, ...] = ()
    resources: tuple[tuple[str, str], ...] = ()
    """What to read, and why."""
    confirmation: bool = False

    @property
    def properties(self) -> dict[str, Mapping[str, Any]]:
        """The arguments; a schema may be true or anything else that a server takes for one."""
        given = self.input_schema.get("properties")
        if not isinstance(given, Mapping):
            return {}
        return {name: one if isinstance(one, Mapping) else {} for name, one in given.items()}

    @classmethod
    def of_definition(cls, tool: Definition) -> ShownTool:
        """All of it, out of the pack."""
        return cls(
            name=tool.tool,
            description=tool.description,
            score=tool.score,
            phase=tool.phase,
            effects=tool.safety.side_effects,
            expires=_UNSAID if tool.expires_at is None else instant_text(tool.expires_at),
            instructions=tool.instructions,
            input_schema=tool.input_schema,
            skills=tool.skills,
            resources=tuple((one.uri, one.relevance) for one in tool.resources),
            confirmation=tool.safety.requires_user_confirmation,
        )

    @classmethod
    def of_message(cls, tool: MacroTool) -> ShownTool:
        """As much as the server disclosed."""
        safety, validity, metadata = tool.safety, tool.validity, tool.metadata
        context = tool.context_injection
        skills = () if context is UNSET or context.skills is UNSET else context.skills
        resources = () if context is UNSET or context.context_resources is UNSET else context.context_resources
        return cls(
            name=tool.name,
            description=_text(tool.description),
            score=None if metadata is UNSET or metadata.score is UNSET else metadata.score,
            phase=_UNSAID if metadata is UNSET else _text(metadata.selection_phase, _UNSAID),
            effects=None if safety is UNSET else safety.side_effects,
            expires=_UNSAID if validity is UNSET else _text(validity.expires_at, _UNSAID),
            instructions="" if context is UNSET else _text(context.instructions),
            input_schema={} if tool.input_schema is UNSET else tool.input_schema,
            skills=tuple(one.skill_id for one in skills),
            resources=tuple((one.uri, _text(one.relevance)) for one in resources),
            confirmation=safety is not UNSET and safety.requires_user_confirmation,
        )


def _text(said: str | UnsetType, default: str = "") -> str:
    return default if said is UNSET else said
