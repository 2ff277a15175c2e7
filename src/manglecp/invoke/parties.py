"""Who takes part in a run, what is known when it begins, and what when it ends. Nothing here does anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from manglecp.harness import MutationReady, ToolRequests
from manglecp.invoke import outcomes
from manglecp.invoke.calls import Call, Effect, Outcome
from manglecp.invoke.turns import GateRefused, Reads, Resumption, Turn
from manglecp.toolhost import PlanPermit, Slots

__all__ = ["Actions", "Ended", "HandedOver", "History", "Permit", "Reason", "Rules", "Watch"]

Reason: TypeAlias = Literal["step_failed", "cancelled", "gate_refused", "needs_decision", "timeout"]
Permit: TypeAlias = MutationReady | ToolRequests | PlanPermit


class HandedOver(Exception):
    """The run was left between two steps, for whoever claims it next."""


class Actions(Protocol):
    """Who runs calls. Whatever becomes of one, it has an outcome."""

    async def __call__(self, call: Call, permit: Permit, slots: Slots, seconds: float) -> tuple[Outcome, Slots]: ...

    def give_up(self, call: Call) -> None:
        """Nobody waits for this read any more."""


class Rules(Protocol):
    """What the pack's rules say while a run is under way."""

    def skips(self, outcomes: Sequence[Outcome]) -> Mapping[int, str]:
        """The steps to leave out, and why."""

    def denied(self, outcomes: Sequence[Outcome]) -> Collection[str]:
        """The actions that policy bars now."""

    def keeps(self, outcome: Outcome) -> Mapping[str, Any]:
        """What of the result of an effect stays for a later run, by name."""


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """Who looks on, and who may say stop."""

    cancelled: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    progress: Callable[[str, int, int], None] = lambda *_: None
    """The action that begins, how many steps are settled, and how many there are."""
    leaving: Callable[[], bool] = lambda: False
    """Is the run to be left to somebody else, as soon as nothing of it is under way?"""
    named: Callable[[str], None] = lambda _: None
    """Told the name of the tool, once it is known to be one."""
    point: Callable[[str], None] = lambda _: None
    """Told of the moments at which a crash would matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a record says about a run that somebody else began."""

    outcomes: tuple[Outcome, ...] = ()
    carried: tuple[Outcome, ...] = ()
    """Those of the effects that the last witness permitted: rows of the turn that comes next."""
    unfinished: tuple[Call, ...] = ()
    """Sent, and not answered as far as is known."""
    attempts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """How often each step (by kind and number) was tried."""
    slots: Slots = field(default_factory=dict)
    cancelled: bool = False
    """Had somebody asked to cancel it?"""
    resumption: Resumption


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How the loop ended. ``turn`` is still open: it is closed on the answer. None if the run has none."""

    outcomes: tuple[Outcome, ...]
    effects: tuple[Effect, ...]
    turn: Turn | None
    reads: Reads
    reason: Reason | None = None
    """None: the chain ran to its end."""
    culprit: Outcome | None = None

    def undecided(self, refused: GateRefused) -> Ended:
        """The same, where the evidence of what happened cannot be closed."""
        return msgspec.structs.replace(self, reason="needs_decision", culprit=outcomes.refused(refused, self.outcomes))

    @property
    def standing(self) -> tuple[Outcome, ...]:
        """What is the case: the steps that are done and were not taken back, in order."""
        undone = {effect.step for effect in self.effects if effect.status == "undone"}
        return tuple(one for one in self.outcomes if one.kind == "do" and one.number not in undone)
