"""Who decides: the runner's own selector, an external policy, or one after the other.

===============  =================================  ==============================
mode             asked                              decides
===============  =================================  ==============================
FALLBACK_ONLY    the fallback                       the fallback
SHADOW_POLICY    both; the policy for the log only  the fallback
BLENDED          the policy, then maybe fallback    the policy unless it is INVALID
POLICY_ONLY      the policy                         the policy, INVALID included
===============  =================================  ==============================

Upstream asks both in every mode, so that a policy runs where none was wanted, and answers for a failing policy with the
fallback, even where there is to be none. Here whoever does not decide or compare is not asked, and a failing policy is
an invalid selection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from manglecp.toolhost.runner.execution import settled
from manglecp.toolhost.runner.menu import Menu
from manglecp.toolhost.runner.selection import Kind, Selection

__all__ = ["Choice", "ControlMode", "Selector", "Situation", "choose"]


class ControlMode(StrEnum):
    """One of the rows of the table above."""

    FALLBACK_ONLY = "FALLBACK_ONLY"
    SHADOW_POLICY = "SHADOW_POLICY"
    BLENDED = "BLENDED"
    POLICY_ONLY = "POLICY_ONLY"


@dataclass(frozen=True, slots=True)
class Situation:
    """What a selector is told."""

    goal_digest: str
    state_digest: str
    control_mode: ControlMode
    inputs: Mapping[str, Any]
    menu: Menu
    request_id: str | None = None

    def members(self) -> dict[str, Any]:
        """As a policy reads it; upstream's keys, and the request to trace it by."""
        found = {
            "goal_digest": self.goal_digest,
            "state_digest": self.state_digest,
            "control_mode": self.control_mode.value,
            "inputs": dict(self.inputs),
            "menu": [entry.described() for entry in self.menu.entries],
        }
        return found if self.request_id is None else {**found, "request_id": self.request_id}


class Selector(Protocol):
    """Picks from a menu, now or when awaited. A selector that fails says so with an invalid selection."""

    def __call__(self, situation: Situation, /) -> Selection | Awaitable[Selection]: ...


@dataclass(frozen=True, slots=True)
class Choice:
    """The selection that counts, whose it is, and what each of those who were asked said."""

    chosen: Selection
    source: str
    fallback: Selection | None = None
    policy: Selection | None = None


async def choose(situation: Situation, fallback: Selector, policy: Selector | None) -> Choice:
    """Ask whom the mode names. Without a policy, one that has to answer is INVALID."""
    mode = situation.control_mode
    said_by_policy = said_by_fallback = None
    if mode is not ControlMode.FALLBACK_ONLY:
        said_by_policy = await _ask(policy, situation)
    deciding = said_by_policy if mode in (ControlMode.BLENDED, ControlMode.POLICY_ONLY) else None
    if deciding is None or (mode is ControlMode.BLENDED and deciding.kind is Kind.INVALID):
        said_by_fallback = await _ask(fallback, situation)
        return Choice(said_by_fallback, "fallback", said_by_fallback, said_by_policy)
    return Choice(deciding, "policy", None, said_by_policy)


async def _ask(selector: Selector | None, situation: Situation) -> Selection:
    if selector is None:
        return Selection.invalid("", "there is no policy")
    try:
        return (await settled(selector(situation))).within(situation.menu)
    except Exception as error:  # whatever a selector does, the run goes on and counts it
        return Selection.invalid("", f"the selector raised {type(error).__name__}")
