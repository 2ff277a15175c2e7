"""How invocations are carried out here. Everything has a default that suits one server."""

from __future__ import annotations

from dataclasses import dataclass, field

from manglecp.invoke.answering import Caps

__all__ = ["InvokeSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InvokeSettings:
    retention_ms: int = 300_000
    """How long a tool without a validity window is kept after the answer that announced it (INVK-12)."""
    claim_ms: int = 15_000
    """For how long a run belongs to a process that does not say that it is still there."""
    most_takeovers: int = 5
    """A run that changed hands more often without getting on is left to a person."""
    max_execution_ms: int = 600_000
    """The time of a whole run, which is no part of what evaluation may take (OPEN-71)."""
    caps: Caps = field(default_factory=Caps)
