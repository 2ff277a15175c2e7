"""A macro-tool as the rules proved it, independent of the disclosure level.

The server keeps definitions; a client sees renderings of them. An invocation runs the chain of the definition with its
frozen values; a client can change neither the chain nor the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["skeleton", "flesh", "dependency"]  # selected as mandatory, as relevant, or for another tool


class Flaw(Exception):
    """The derived facts about a tool do not make a valid definition."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class AmbiguousFlaw(Flaw):
    """Rules give two values where a definition has one. Callers see the reason: their facts may be the cause."""


@dataclass(frozen=True, slots=True)
class Argument:
    """Where a parameter of an action gets its value from."""

    param: str
    source: Literal["value", "call", "step", "kept", "preview"]
    value: Any = None
    """Frozen JSON (``value``), the name of a call argument (``call``), a JSON Pointer into a result (``step``), the run
    and name of a value of an earlier run (``kept``), or a result member of the action's preview (``preview``)."""
    step: int | None = None  # the number of the step whose result has the value (``step``)


@dataclass(frozen=True, slots=True)
class Undo:
    """The compensation of a step: its ``call`` arguments are inputs, its ``step`` arguments results of that step."""

    action: str
    arguments: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True)
class ChainStep:
    """A step of a chain: an action, its arguments, and the reaction to an error."""

    number: int
    action: str
    arguments: tuple[Argument, ...] = ()
    after: tuple[int, ...] = ()  # steps that must finish first, if the chain is a partial order
    on_error: Literal["stop", "continue", "undo"] = "stop"
    undo: Undo | None = None
    lasting: bool = True  # whether the step has an effect that an undo would have to revert


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetyData:
    """The effects of a tool, and the approval that it needs."""

    requires_user_confirmation: bool
    side_effects: tuple[str, ...]
    reversible: bool = False
    idempotent: bool = False
    approver_roles: tuple[str, ...] = ()
    """The permissions that an approver needs in addition to ``approve``."""
    four_eyes: bool = False
    """Whether the approver must be another principal than the requester."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that is useful for a tool."""

    uri: str
    relevance: str  # why the resource is useful
    priority: int  # 0 to 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A macro-tool as derived from the rules."""

    tool: str
    macro_id: str
    chain_digest: str  # the digest of everything that determines execution; ``macro_id`` has its first digits
    description: str
    summary: str
    steps: tuple[ChainStep, ...]
    ordered: bool = True  # whether steps run in the order of their numbers; otherwise ``after`` is the partial order
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    results: tuple[tuple[str, int, str], ...] = ()
    """Members of the result object: key, step, JSON Pointer; empty means the result of the last step."""
    safety: SafetyData
    not_before: int | None = None  # nanoseconds since 1970, like ``expires_at``; both are None without a window
    expires_at: int | None = None
    instructions: str = ""
    skills: tuple[str, ...] = ()
    resources: tuple[Resource, ...] = ()
    score: int = 0  # 0 to 100
    phase: Phase = "flesh"
    source_rules: tuple[str, ...] = ()  # predicates in the tool's proof, if the request asks for proof hints
    requires: tuple[str, ...] = ()  # direct dependencies among the tools of the same response


def default_arguments(definition: Definition) -> Mapping[str, Any]:
    """Return the defaults of call arguments, by name."""
    return schema_defaults(definition.input_schema.get("properties", {}))


def schema_defaults(schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the defaults of parameters, by name."""
    return {
        name: schema["default"]
        for name, schema in schemas.items()
        if isinstance(schema, dict) and "default" in schema  # true and false are schemas, too
    }
