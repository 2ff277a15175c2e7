"""The loop of a run. Each step builds a menu, selects an action, patches the inputs, executes, and commits the state.

Every decision of a run follows from its request and from the return values of the caller's functions, and all of these
are logged. Therefore a run can be replayed from its log alone (:mod:`.playback`).

An action works on copies; its state and the patched inputs are committed only if it succeeds. Upstream is the Machina
runner.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from manglecp.runner.execution import (
    MAX_OUTPUT_BYTES,
    ActionOutcome,
    Execute,
    StepStatus,
    check_state,
    diff_state,
    resolve,
)
from manglecp.runner.log import END, PatchRefused, RunnerError, Sink, canonical, copy_json
from manglecp.runner.selection import MAX_INPUTS_BYTES, Menu, MenuAction, Selection, SelectionKind, merge_patch
from manglecp.runner.selectors import ControlMode, Selector, Situation, select
from manglecp.toolhost import Slots, digest_state, digest_state_fast, full_state


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a run.

    The loop guard counts how many steps begin with the same menu and the same state. A step after an invalid pick is
    not counted, or the loop guard would end the run before the limit of invalid picks.
    """

    steps: int = 64
    invalid_picks: int = 8  # the most invalid picks of a run; one more ends it
    visits: int = 3  # the most steps with the same menu and state; one more ends the run

    def __post_init__(self) -> None:
        if self.steps < 1 or self.invalid_picks < 0 or self.visits < 1:
            raise ValueError("a budget allows at least one step and one visit, and no negative number of invalid picks")


META_TAG: Final = "tag.meta"  # actions with this tag are on every menu


@dataclass(frozen=True)
class RunRequest:
    """A request for a run. Its menus have only actions with a tag of ``candidate_tags``; empty is no restriction."""

    goal_id: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    candidate_tags: tuple[str, ...] = ()
    control_mode: ControlMode = ControlMode.FALLBACK_ONLY
    request_id: str | None = None

    def __post_init__(self) -> None:
        if not self.goal_id:
            raise RunnerError("goal_id is empty")
        try:
            size = len(canonical(self.goal_id)) + len(canonical(dict(self.inputs)))
        except ValueError as error:
            raise RunnerError(f"the run request cannot be encoded: {error}") from None
        if size > MAX_INPUTS_BYTES:
            raise RunnerError(f"goal_id and inputs have more than {MAX_INPUTS_BYTES} bytes")

    def menu(self, actions: Iterable[MenuAction]) -> Menu:
        """Return the menu of those ``actions`` that have one of the tags."""
        menu = Menu.of(actions)
        return menu.with_tags((*self.candidate_tags, META_TAG)) if self.candidate_tags else menu


START = "run_start"
_MAX_ERROR_LENGTH = 4_000  # characters
_FLAGGED_SLOTS = (0, 2, 6, 7)  # the goal digest shows which of these slots are in use, as in upstream


class EndReason(StrEnum):
    """Why a run ended. Upstream reports an end by its loop guard as ``max_steps``."""

    GOAL_DONE = "goal_done"
    NOOP = "noop"
    ASK_SUP = "ask_sup"
    TOOL_ERROR = "tool_error"
    BREAKER_TRIP = "breaker_trip"
    MAX_STEPS = "max_steps"
    MAX_INVALID = "max_invalid"
    LOOP_GUARD = "loop_guard"

    @property
    def exit_code(self) -> int:
        return 0 if self in (EndReason.GOAL_DONE, EndReason.NOOP, EndReason.ASK_SUP) else 1


@dataclass(frozen=True, slots=True)
class RunResult:
    """``steps`` counts the started steps; inputs and state are those after the last successful action."""

    reason: EndReason
    steps: int
    inputs: dict[str, Any]
    state: Slots

    def members(self) -> dict[str, Any]:
        """Return the logged form: inputs and state as digests."""
        return {
            "reason": self.reason.value,
            "steps": self.steps,
            "inputs_digest": hashlib.sha256(canonical(self.inputs)).hexdigest(),
            "state_digest": digest_state(self.state),
        }


async def run(
    request: RunRequest,
    state: Slots,
    log: Sink,
    *,
    menu: Callable[[Slots], Menu],
    execute: Execute,
    selector: Selector,
    goal_done: Callable[[Slots], bool] = lambda _: False,
    budget: Budget | None = None,
) -> RunResult:
    """Run until the goal is reached, a selector or an action ends the run, or the budget is spent.

    ``menu`` is called with the state at the beginning of each step, ``goal_done`` with the state after each successful
    action. Raises their exceptions, and :class:`RunnerError` if ``state`` is invalid; the log then has no end.
    """
    inputs, initial_state = copy_json(dict(request.inputs)), check_state(state)
    loop = _Loop(request, log, menu, execute, selector, goal_done, budget or Budget(), inputs, initial_state)
    return await loop.run()


@dataclass(slots=True)
class _Loop:
    request: RunRequest
    log: Sink
    menu: Callable[[Slots], Menu]
    execute: Execute
    selector: Selector
    goal_done: Callable[[Slots], bool]
    budget: Budget
    inputs: dict[str, Any]
    state: Slots
    step: int = 0
    invalid_picks: int = 0
    visits: Counter[tuple[str, str]] = field(default_factory=Counter)  # visits by menu digest and state digest

    async def run(self) -> RunResult:
        self._emit(
            START,
            goal_id=self.request.goal_id,
            control_mode=self.request.control_mode.value,
            inputs=self.inputs,
            state=full_state(self.state),
            budget=asdict(self.budget),
        )
        reason = None
        counts_as_visit = True
        while reason is None and self.step < self.budget.steps:
            invalid_picks_before = self.invalid_picks
            reason = await self._step(counts_as_visit)
            counts_as_visit = self.invalid_picks == invalid_picks_before
            self.step += 1
        result = RunResult(reason or EndReason.MAX_STEPS, self.step, self.inputs, self.state)
        self._emit(END, **result.members())
        return result

    async def _step(self, counts_as_visit: bool) -> EndReason | None:
        """Run one step; return the reason if the run ends with it, otherwise None."""
        menu = self.menu(self.state)
        menu_digest, state_digest = menu.digest, digest_state(self.state)
        self._emit("menu_built", menu=menu.members(), menu_digest=menu_digest, state_digest=state_digest)
        self.visits[menu_digest, state_digest] += int(counts_as_visit)
        if self.visits[menu_digest, state_digest] > self.budget.visits:
            self._emit("loop_guard_triggered", menu_digest=menu_digest, state_digest=state_digest)
            return EndReason.LOOP_GUARD
        selection = await self._select(menu, menu_digest, state_digest)
        action = menu.get(selection.sid) if selection.sid is not None else None
        if selection.kind is SelectionKind.NOOP:
            self._emit("noop")
            return EndReason.NOOP
        if selection.kind is SelectionKind.ASK_SUP:
            self._emit("ask_sup")
            return EndReason.ASK_SUP
        if action is None:  # INVALID: select() also replaces a PICK whose SID is not on the menu
            return self._count_invalid_pick(selection.why)
        inputs = self.inputs
        if selection.input_patch_json is not None:
            try:
                merged_inputs = merge_patch(inputs, selection.input_patch_json)
            except PatchRefused as refused:
                return self._count_invalid_pick(str(refused))
            inputs = merged_inputs.inputs
            self._emit("inputs_patched", inputs=inputs, blocked=list(merged_inputs.blocked))
        return await self._act(selection, action, inputs)

    async def _select(self, menu: Menu, menu_digest: str, state_digest: str) -> Selection:
        flags = "".join(f"DS{slot}={int(slot in self.state)};" for slot in _FLAGGED_SLOTS)
        selection = await select(
            self.selector,
            Situation(
                goal_digest=f"{self.request.goal_id}|{menu_digest}|FLAGS:{flags}",
                state_digest=state_digest,
                control_mode=self.request.control_mode,
                inputs=copy_json(self.inputs),
                menu=menu,
                request_id=self.request.request_id,
                slots=dict(self.state),
            ),
        )
        source = "policy" if self.request.control_mode is ControlMode.POLICY_ONLY else "fallback"
        self._emit(f"selector_{source}_raw", **selection.members())
        self._emit("selector_chosen", source=source, **selection.members())
        return selection

    async def _act(self, selection: Selection, action: MenuAction, inputs: dict[str, Any]) -> EndReason | None:
        """Execute the selected action and commit its state; return the reason if the run ends with it."""
        action_members = {"aid": action.aid, "sid": selection.sid, "deterministic": action.deterministic}
        # Logged before the effect: if the log ends with this record, the action may or may not have been executed.
        self._emit("tool_start", **action_members, inputs_digest=hashlib.sha256(canonical(inputs)).hexdigest())
        start_time = time.perf_counter()
        outcome = await self._attempt(action.aid, inputs)
        duration_ms = round((time.perf_counter() - start_time) * 1000)
        action_members |= {"turn": outcome.turn} if outcome.turn else {}
        if outcome.status is not StepStatus.OK:
            failure = {"status": outcome.status.value, "err": outcome.output, "duration_ms": duration_ms}
            self._emit("tool_error", **action_members, **failure)
            if outcome.status is StepStatus.INVALID_PICK:
                return self._count_invalid_pick(f"{action.aid} does not take these inputs")
            if outcome.status is StepStatus.BREAKER_TRIP:
                self._emit("breaker", aid=action.aid)
                return EndReason.BREAKER_TRIP
            return EndReason.TOOL_ERROR
        tx_patch = diff_state(self.state, outcome.state)
        self.inputs, self.state = inputs, outcome.state
        self._emit(
            "tool_ok",
            **action_members,
            output=outcome.output,
            tx_patch=tx_patch,
            state_digest=digest_state(self.state),
            state_digest_fast=digest_state_fast(self.state),
            duration_ms=duration_ms,
        )
        if self.goal_done(dict(self.state)):
            self._emit("goal_done", goal_id=self.request.goal_id)
            return EndReason.GOAL_DONE
        return None

    async def _attempt(self, aid: str, inputs: dict[str, Any]) -> ActionOutcome:
        """Return the outcome of the action; an exception or an invalid outcome becomes a TOOL_ERROR."""
        try:
            outcome = ActionOutcome(*await resolve(self.execute(aid, copy_json(inputs), dict(self.state))))
            output = copy_json(outcome.output)
            if len(canonical(output)) > MAX_OUTPUT_BYTES:
                raise ValueError(f"the output has more than {MAX_OUTPUT_BYTES} bytes")
            return ActionOutcome(StepStatus(outcome.status), output, check_state(outcome.state), str(outcome.turn))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:_MAX_ERROR_LENGTH]
            return ActionOutcome(StepStatus.TOOL_ERROR, text.encode("utf-8", "backslashreplace").decode(), self.state)

    def _count_invalid_pick(self, why: str) -> EndReason | None:
        self.invalid_picks += 1
        self._emit("invalid_pick", why=why, count=self.invalid_picks)
        return None if self.invalid_picks <= self.budget.invalid_picks else EndReason.MAX_INVALID

    def _emit(self, event: str, **payload: Any) -> None:
        self.log.write(event, self.step, payload)
