"""The loop of a run: menu, selection, patch, action, commit; until something ends it.

Everything that a run decides follows from what it is given and from what selectors and actions answer, and all of that
goes into the log. So a run can be played again from its log alone (:mod:`.replay`): the same loop, with the answers of
then.

A function of the caller that raises ends the run: the log says so, then the exception goes on its way.

An action works on copies. Its state and the patched inputs are kept only if it succeeded: a patch that led to a refused
call does not linger in the calls after it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from manglecp.toolhost import state as wire
from manglecp.toolhost.runner.budget import Budget, Spending
from manglecp.toolhost.runner.canonical import canonical, copied
from manglecp.toolhost.runner.control import Selector, Situation, choose
from manglecp.toolhost.runner.errors import PatchRefused
from manglecp.toolhost.runner.execution import LARGEST_OUTPUT, Execute, Outcome, settled
from manglecp.toolhost.runner.log import END, Sink
from manglecp.toolhost.runner.menu import Menu, Offer
from manglecp.toolhost.runner.patch import merge
from manglecp.toolhost.runner.request import RunRequest
from manglecp.toolhost.runner.selection import Kind, Selection
from manglecp.toolhost.runner.transaction import difference, received
from manglecp.toolhost.state import Slots
from manglecp.toolhost.status import StepStatus

__all__ = ["START", "EndReason", "Result", "run"]

T = TypeVar("T")
START = "run_start"
_LONGEST_ERROR = 4_000
_FLAGGED = (0, 2, 6, 7)
"""The slots whose presence a selector is told of, as upstream does."""


class EndReason(StrEnum):
    """Why a run ended. Upstream calls the end by its loop guard ``max_steps``."""

    GOAL_DONE = "goal_done"
    NOOP = "noop"
    ASK_SUP = "ask_sup"
    TOOL_ERROR = "tool_error"
    BREAKER_TRIP = "breaker_trip"
    MAX_STEPS = "max_steps"
    MAX_INVALID = "max_invalid"
    LOOP_GUARD = "loop_guard"
    EXCEPTION = "exception"
    """What offers menus or judges goals raised; only in logs, for the caller gets the exception."""

    @property
    def exit_code(self) -> int:
        """That of a process that ended so: 0 where the run ended as it should."""
        return 0 if self in (EndReason.GOAL_DONE, EndReason.NOOP, EndReason.ASK_SUP) else 1


@dataclass(frozen=True, slots=True)
class Result:
    """``steps`` counts those begun; inputs and state are those of the last success."""

    reason: EndReason
    steps: int
    inputs: dict[str, Any]
    state: Slots

    def members(self) -> dict[str, Any]:
        """As it is logged: inputs and state as digests."""
        return {
            "reason": self.reason.value,
            "steps": self.steps,
            "inputs_digest": hashlib.sha256(canonical(self.inputs)).hexdigest(),
            "state_digest": wire.digest(self.state),
        }


async def run(
    request: RunRequest,
    state: Slots,
    log: Sink,
    *,
    menu: Callable[[Slots], Menu],
    execute: Execute,
    fallback: Selector,
    policy: Selector | None = None,
    goal_done: Callable[[Slots], bool] = lambda _: False,
    budget: Budget | None = None,
) -> Result:
    """Go on until the goal is reached, a selector or an action ends it, or the budget is spent."""
    spending = Spending(budget or Budget())
    loop = _Loop(request, log, menu, execute, fallback, policy, goal_done, spending, copied(dict(request.inputs)))
    loop.state = received(state)
    return await loop.run()


class _Raised(Exception):
    """What a function raised that belongs to whoever started the run."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name)
        self.error = error
        self.text = f"{name}: {type(error).__name__}"


def _given(name: str, function: Callable[[Slots], T], state: Slots) -> T:
    try:
        return function(state)
    except Exception as error:
        raise _Raised(name, error) from error


@dataclass(slots=True)
class _Loop:
    request: RunRequest
    log: Sink
    menu: Callable[[Slots], Menu]
    execute: Execute
    fallback: Selector
    policy: Selector | None
    goal_done: Callable[[Slots], bool]
    spending: Spending
    inputs: dict[str, Any]
    state: Slots = field(default_factory=dict)
    step: int = 0

    async def run(self) -> Result:
        budget = self.spending.budget
        self._tell(
            START,
            goal_id=self.request.goal_id,
            control_mode=self.request.control_mode.value,
            has_policy=self.policy is not None,
            inputs=self.inputs,
            state=wire.full(self.state),
            budget={"steps": budget.steps, "invalid_picks": budget.invalid_picks, "visits": budget.visits},
        )
        reason = None
        moved = True
        while reason is None and self.step < budget.steps:
            picks = self.spending.invalid_picks
            try:
                reason = await self._step(moved)
            except _Raised as raised:
                ended = Result(EndReason.EXCEPTION, self.step + 1, self.inputs, self.state)
                self._tell(END, **ended.members(), raised=raised.text)
                raise raised.error from None
            moved = self.spending.invalid_picks == picks
            self.step += 1
        result = Result(reason or EndReason.MAX_STEPS, self.step, self.inputs, self.state)
        self._tell(END, **result.members())
        return result

    async def _step(self, moved: bool) -> EndReason | None:
        """One round; why it was the last one, or None."""
        menu = _given("menu", self.menu, self.state)
        menu_digest, state_digest = menu.digest, wire.digest(self.state)
        self._tell("menu_built", menu=menu.members(), menu_digest=menu_digest, state_digest=state_digest)
        if moved and not self.spending.visit(menu_digest, state_digest):
            self._tell("loop_guard_triggered", menu_digest=menu_digest, state_digest=state_digest)
            return EndReason.LOOP_GUARD
        selection = await self._select(menu, menu_digest, state_digest)
        offer = menu.get(selection.sid) if selection.sid is not None else None
        if selection.kind is Kind.NOOP:
            self._tell("noop")
            return EndReason.NOOP
        if selection.kind is Kind.ASK_SUP:
            self._tell("ask_sup")
            return EndReason.ASK_SUP
        if offer is None:
            return self._invalid_pick(selection.why)
        inputs = self.inputs
        if selection.input_patch_json is not None:
            try:
                merged = merge(inputs, selection.input_patch_json)
            except PatchRefused as refused:
                return self._invalid_pick(str(refused))
            inputs = merged.inputs
            self._tell("inputs_patched", inputs=inputs, blocked=list(merged.blocked))
        return await self._act(selection, offer, inputs)

    async def _select(self, menu: Menu, menu_digest: str, state_digest: str) -> Selection:
        flags = "".join(f"DS{slot}={int(slot in self.state)};" for slot in _FLAGGED)
        choice = await choose(
            Situation(
                goal_digest=f"{self.request.goal_id}|{menu_digest}|FLAGS:{flags}",
                state_digest=state_digest,
                control_mode=self.request.control_mode,
                inputs=copied(self.inputs),
                menu=menu,
                request_id=self.request.request_id,
            ),
            self.fallback,
            self.policy,
        )
        if choice.policy is not None:
            self._tell("selector_policy_raw", **choice.policy.members())
        if choice.fallback is not None:
            self._tell("selector_fallback_raw", **choice.fallback.members())
        self._tell("selector_chosen", source=choice.source, **choice.chosen.members())
        return choice.chosen

    async def _act(self, selection: Selection, offer: Offer, inputs: dict[str, Any]) -> EndReason | None:
        named = {"aid": offer.aid, "sid": selection.sid, "deterministic": offer.deterministic}
        # Before the effect: a log that ends here says that the action may have happened.
        self._tell("tool_start", **named, inputs_digest=hashlib.sha256(canonical(inputs)).hexdigest())
        began = time.perf_counter()
        outcome = await self._attempt(offer.aid, inputs)
        duration_ms = round((time.perf_counter() - began) * 1000)
        if outcome.status is not StepStatus.OK:
            self._tell(
                "tool_error",
                **named,
                status=outcome.status.value,
                err=outcome.output,
                by_action=outcome.by_action,
                duration_ms=duration_ms,
            )
            if outcome.status is StepStatus.INVALID_PICK:
                return self._invalid_pick(f"{offer.aid} does not take these inputs")
            if outcome.status is StepStatus.BREAKER_TRIP:
                self._tell("breaker", aid=offer.aid)
                return EndReason.BREAKER_TRIP
            return EndReason.TOOL_ERROR
        tx_patch = difference(self.state, outcome.state)
        self.inputs, self.state = inputs, outcome.state
        self._tell(
            "tool_ok",
            **named,
            output=outcome.output,
            tx_patch=tx_patch,
            state_digest=wire.digest(self.state),
            state_digest_fast=wire.digest_fast(self.state),
            duration_ms=duration_ms,
        )
        if _given("goal_done", self.goal_done, dict(self.state)):
            self._tell("goal_done", goal_id=self.request.goal_id)
            return EndReason.GOAL_DONE
        return None

    async def _attempt(self, aid: str, inputs: dict[str, Any]) -> Outcome:
        """What the action did. Whatever it raises or returns that is no outcome is its error."""
        try:
            outcome = Outcome(*await settled(self.execute(aid, copied(inputs), dict(self.state))))
            output = copied(outcome.output)
            if len(canonical(output)) > LARGEST_OUTPUT:
                raise ValueError(f"an output of more than {LARGEST_OUTPUT} bytes")
            return Outcome(StepStatus(outcome.status), output, received(outcome.state), bool(outcome.by_action))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
            return Outcome(StepStatus.TOOL_ERROR, text.encode("utf-8", "backslashreplace").decode(), self.state)

    def _invalid_pick(self, why: str) -> EndReason | None:
        within = self.spending.invalid_pick()
        self._tell("invalid_pick", why=why, count=self.spending.invalid_picks)
        return None if within else EndReason.MAX_INVALID

    def _tell(self, event: str, **payload: Any) -> None:
        self.log.write(event, self.step, payload)
