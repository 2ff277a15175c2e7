"""Results of evaluations and invocations, with the requests that led to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from manglecp.base.text import truncate
from manglecp.client.errors import RequestRefused
from manglecp.client.provider_tools import to_anthropic, to_openai
from manglecp.client.working_state import AppliedDelta, FactObject
from manglecp.wire import Violation, messages


@dataclass(frozen=True, slots=True, repr=False)
class Tool:
    """A macro-tool, which executes one or more actions in order, and the request that the server offered it for."""

    definition: messages.MacroTool
    request: messages.IntentPayload

    def __repr__(self) -> str:
        return f"<Tool {self.name} {self.macro_id} {self.level}>"

    @property
    def macro_id(self) -> str:
        return self.definition.macro_id

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def description(self) -> str:
        return "" if self.definition.description is messages.UNSET else self.definition.description

    @property
    def input_schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of the arguments; None if the definition is not full."""
        return None if self.definition.input_schema is messages.UNSET else self.definition.input_schema

    @property
    def level(self) -> messages.Level:
        return self.definition.disclosure_level

    @property
    def effects(self) -> tuple[str, ...] | None:
        """The side effects; None if the definition is not full, so that they are unknown."""
        if self.definition.safety is messages.UNSET:
            return None
        return self.definition.safety.side_effects or ("none",)  # an empty list means none, too

    @property
    def needs_approval(self) -> bool:
        return self.definition.safety is not messages.UNSET and self.definition.safety.requires_user_confirmation

    @property
    def reversible(self) -> bool | None:
        """Whether the effects can be undone; None if that is not known."""
        safety = self.definition.safety
        return None if safety is messages.UNSET or safety.reversible is messages.UNSET else safety.reversible

    @property
    def is_repeatable(self) -> bool:
        """Whether two calls with the same arguments have the effect of one."""
        safety = self.definition.safety
        return self.effects == ("none",) or (safety is not messages.UNSET and safety.idempotent is True)

    @property
    def score(self) -> float | None:
        """The score for ranking tools; None if the server sent none."""
        metadata = self.definition.metadata
        return None if metadata is messages.UNSET or metadata.score is messages.UNSET else metadata.score


@dataclass(frozen=True, slots=True, repr=False)
class EvaluationResult:
    """The tools proven for an intent. ``warnings`` are about facts of predicates that the server does not list."""

    request: messages.IntentPayload
    result: messages.IntentResult
    warnings: tuple[Violation, ...] = ()

    def __repr__(self) -> str:
        return f"<EvaluationResult {self.request.intent.name}: {', '.join(tool.name for tool in self) or 'no tools'}>"

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(Tool(definition, self.request) for definition in self.result.macro_tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.result.macro_tools)

    def __contains__(self, name: object) -> bool:
        return any(name in (tool.name, tool.macro_id) for tool in self.result.macro_tools)

    def __getitem__(self, name: str) -> Tool:
        """Return a tool by name or id. Raises ``KeyError`` with the names of the tools."""
        for tool in self.tools:
            if name in (tool.name, tool.macro_id):
                return tool
        raise unproven_tool_error(name, [tool.name for tool in self.tools])

    def to_anthropic(self) -> list[dict[str, Any]]:
        """Return the tools for the Messages API of Anthropic; they must be in full."""
        return to_anthropic(self.tools)

    def to_openai(self, *, strict: bool = True, chat: bool = False) -> list[dict[str, Any]]:
        """Return the tools for the Responses API of OpenAI, or its Chat Completions API; they must be in full.

        With ``strict``, optional arguments are required and may be null, which the client reads as absent.
        """
        return to_openai(self.tools, strict=strict, chat=chat)


def unproven_tool_error(name: str, proven: Sequence[str]) -> KeyError:
    return KeyError(f"{name} is not one of the proven tools: {', '.join(proven) or 'none'}")


@dataclass(frozen=True, slots=True, repr=False)
class InvocationResult:
    """The result of an invocation. ``applied`` are the changes that its delta made to the working state."""

    tool: Tool
    response: messages.InvokeResult
    applied: AppliedDelta

    def __repr__(self) -> str:
        return f"<InvocationResult {self.tool.name}: {truncate(str(self.result), 200)}>"

    @property
    def result(self) -> dict[str, Any]:
        return self.response.result

    @property
    def summary(self) -> str:
        return self.response.observability.summary

    @property
    def events_omitted(self) -> int:
        """The number of steps without an event in ``response.observability.events``, because there were too many."""
        return self.response.observability.events_omitted or 0

    @property
    def suggestions(self) -> tuple[messages.SuggestedIntent, ...]:
        return self.response.next.suggested_intents

    @property
    def continuation_facts(self) -> tuple[FactObject, ...]:
        return self.response.next.continuation_facts

    def suggestion(self, which: int | str = 0) -> messages.SuggestedIntent:
        """Return a suggested intent by position or name. Raises :class:`RequestRefused`."""
        for position, suggested in enumerate(self.suggestions):
            if which in (position, suggested.name):
                return suggested
        raise RequestRefused("no_suggestion", f"the server did not suggest the intent {which!r}")
