"""How runs are carried out here. What belongs to the pack stands in its ``[invocation]``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["InvokeSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InvokeSettings:
    """For one server; the defaults suit processes that share a store."""

    claim_ms: int = 15_000
    """For how long a run belongs to a process that does not say that it is still there."""
    most_takeovers: int = 5
    """A run that changed hands more often without getting on is left to a person."""
    handover_ms: int = 3_000
    """How long others have to claim a run that this process would rather leave to them, before it goes on itself."""
