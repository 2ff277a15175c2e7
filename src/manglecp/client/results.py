"""What a client gets back: the answer as it came, and what is needed to go on from there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from manglecp.client.errors import Refused
from manglecp.client.working_state import Applied, FactObject
from manglecp.wire import Violation
from manglecp.wire.messages import (
    UNSET,
    Constraints,
    IntentResult,
    InvokeResult,
    Level,
    MacroTool,
    Options,
    SuggestedIntent,
    Time,
)


@dataclass(frozen=True, slots=True)
class Asked:
    """The request of an evaluation, to repeat it."""

    intent: str
    params: dict[str, Any] | None = None
    facts: tuple[FactObject, ...] = ()
    eval_time: Time | None = None
    constraints: Constraints = field(default_factory=Constraints)
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class Tool:
    """A macro-tool, and the question that it answers."""

    definition: MacroTool
    asked: Asked = field(repr=False)

    @property
    def macro_id(self) -> str:
        """What the server knows the tool by, for as long as the tool is valid."""
        return self.definition.macro_id

    @property
    def name(self) -> str:
        """For people and models; two servers may each have one of that name."""
        return self.definition.name

    @property
    def description(self) -> str:
        """Empty where the tool is shown without one."""
        return "" if self.definition.description is UNSET else self.definition.description

    @property
    def level(self) -> Level:
        """How much of the tool the server shows."""
        return self.definition.disclosure_level

    @property
    def effects(self) -> tuple[str, ...] | None:
        """What it changes; None if the tool is not shown in full."""
        if self.definition.safety is UNSET:
            return None
        return self.definition.safety.side_effects or ("none",)  # OPEN-25

    @property
    def needs_consent(self) -> bool:
        """Whether a person has to approve it."""
        return self.definition.safety is not UNSET and self.definition.safety.requires_user_confirmation

    @property
    def repeatable(self) -> bool:
        """Whether it is idempotent."""
        return self.effects == ("none",) or (
            self.definition.safety is not UNSET and self.definition.safety.idempotent is True
        )

    @property
    def score(self) -> float | None:
        """A hint for ranking and nothing else (OPEN-57)."""
        metadata = self.definition.metadata
        return None if metadata is UNSET or metadata.score is UNSET else metadata.score


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The tools that fit an intent. ``warnings`` are about facts whose predicate the server does not list."""

    asked: Asked
    result: IntentResult
    warnings: tuple[Violation, ...] = ()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """In the order of the server, each with the question that brought it."""
        return tuple(Tool(definition, self.asked) for definition in self.result.macro_tools)

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
        raise unproven(name, [tool.name for tool in self.tools])


def unproven(name: str, proven: Sequence[str]) -> KeyError:
    return KeyError(f"{name} is not among the tools that were proven: {', '.join(proven) or 'none'}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an invocation. ``applied`` is what it changed in the working state."""

    tool: Tool
    answer: InvokeResult
    applied: Applied

    @property
    def result(self) -> dict[str, Any]:
        """What the tool returned."""
        return self.answer.result

    @property
    def summary(self) -> str:
        """What happened, in one sentence of the server."""
        return self.answer.observability.summary

    @property
    def suggestions(self) -> tuple[SuggestedIntent, ...]:
        """Intents that may come next; :meth:`Client.follow` takes one."""
        return self.answer.next.suggested_intents

    @property
    def continuation_facts(self) -> tuple[FactObject, ...]:
        """Facts to send with the next intent."""
        return self.answer.next.continuation_facts

    def suggestion(self, which: int | str = 0) -> SuggestedIntent:
        """By position or name."""
        for place, found in enumerate(self.suggestions):
            if which in (place, found.name):
                return found
        raise Refused("no_suggestion", f"the server suggests no intent {which!r}")
