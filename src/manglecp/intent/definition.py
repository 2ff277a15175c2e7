"""A macro-tool as the rules proved it: everything about it, whatever of it is disclosed.

The server keeps definitions; a client sees renderings of them. Invocation runs the chain that stands here, with the
values that stand here, and nothing that a client says can change either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["skeleton", "flesh", "dependency"]


class Flaw(Exception):
    """Why what the rules say about a tool does not make one, as a sentence, and what would fix it."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Argument:
    """Where a parameter of an action gets its value from."""

    param: str
    source: Literal["value", "call", "step", "kept"]
    value: Any = None
    """Frozen JSON (``value``), the name of a call argument (``call``), a JSON Pointer into a result (``step``), or
    which run kept it under which name (``kept``)."""
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """How a step is compensated; ``call`` arguments name inputs of the step, ``step`` pointers its output."""

    action: str
    arguments: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One call of an action, and what has to happen before it and when it fails."""

    number: int
    action: str
    arguments: tuple[Argument, ...] = ()
    after: tuple[int, ...] = ()
    """Steps that have to be finished first, where the chain is a partial order."""
    on_error: Literal["stop", "continue", "undo"] = "stop"
    undo: Undo | None = None
    lasting: bool = True
    """Does it leave anything that would have to be taken back?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetyData:
    """What a client has to know before it invokes: consent, effects, whether it can be taken back or repeated."""

    requires_user_confirmation: bool
    side_effects: tuple[str, ...]
    reversible: bool = False
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that a client should read before it uses the tool."""

    uri: str
    relevance: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """All that an answer, an invocation or an explanation needs of a tool."""

    tool: str
    macro_id: str
    description: str
    summary: str
    """One line."""
    steps: tuple[Step, ...]
    ordered: bool = True
    """Do the steps run in the order of their numbers? Otherwise ``after`` says what waits for what."""
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    results: tuple[tuple[str, int, str], ...] = ()
    """Members of the result object: key, step, JSON Pointer; empty means the result of the last step."""
    safety: SafetyData
    not_before: int | None = None
    """Nanoseconds since 1970; both None for a tool without a window."""
    expires_at: int | None = None
    instructions: str = ""
    skills: tuple[str, ...] = ()
    resources: tuple[Resource, ...] = ()
    score: int = 0
    phase: Phase = "flesh"
    source_rules: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    """The tools of the same answer that this one depends on, directly."""
