"""What a run consists of, as its parts tell each other. Immutable; nothing here does anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from manglecp.intent import Step, Undo
from manglecp.pack import ActionDescription

__all__ = ["EVENT_STATUS", "Call", "Effect", "EffectStatus", "Outcome", "Status"]

Status: TypeAlias = Literal["done", "failed", "skipped", "unknown"]
"""``unknown``: the request left, no answer came, and the effect may have happened."""

EffectStatus: TypeAlias = Literal["done", "undone", "unknown"]

EVENT_STATUS: Final[Mapping[Status, Literal["success", "failure", "skipped"]]] = {
    "done": "success",
    "failed": "failure",
    "unknown": "failure",
    "skipped": "skipped",
}
"""How a step's end is told to clients (OBS-02) and to rules (``step_status``)."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at one step, or at undoing one: exactly what is hashed, permitted and sent."""

    run: str
    step: Step | Undo
    number: int
    kind: Literal["do", "undo"] = "do"
    attempt: int = 1
    action: ActionDescription
    input_json: str
    """The canonical bytes of the input, as text."""
    input_digest: str
    """``sha256:<hex>`` of those bytes."""
    sources: tuple[int, ...] = ()
    """The steps that its arguments come from."""
    secret: bool = False
    """Does the input hold a value that must never be stored?"""
    group: str = ""
    """What the harness calls the calls that belong together: one sequential step. Made of the others, as the next."""
    call_id: str = ""
    """The same for the same attempt, in whichever process."""

    def __post_init__(self) -> None:
        group = f"{'s' if self.kind == 'do' else 'u'}{self.number}"
        msgspec.structs.force_setattr(self, "group", group)
        msgspec.structs.force_setattr(self, "call_id", f"{self.run}/{group}/{self.attempt}")

    @property
    def is_effect(self) -> bool:
        """Does it do more than read?"""
        return self.action.tier > 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one step ended, as far as it is known now."""

    call: Call | None
    """None for a step that was skipped before there was a call."""
    number: int
    kind: Literal["do", "undo"] = "do"
    action: str
    """Its name in the pack."""
    status: Status
    output: Any = None
    """What the action returned, as JSON values; only if it is done."""
    output_digest: str | None = None
    """``sha256:<hex>`` of the bytes that the host returned."""
    code: str | None = None
    """The toolhost's own code, or ``argument_missing``, ``bad_output``, ``cancelled``, ``operator``."""
    detail: str | None = None
    """For logs and operators. Clients get a text of ours."""
    why: str | None = None
    """Why it was skipped, in the words of the pack's rule."""
    duration_ms: int = 0
    happened: bool = False
    """Did its effect happen although it failed, because what it returned is of no use?"""
    by: str | None = None
    """The operator who decided how it ended, where one had to."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """An effect that happened, or may have: a row of ``details.effects``."""

    step: int
    action: str
    status: EffectStatus
    lasting: bool = True
    """Does it leave anything behind, as far as the pack says?"""
