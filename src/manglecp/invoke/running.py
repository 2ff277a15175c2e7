"""One run: rounds of steps, turns around them, a gate before every effect.

The loop knows four things that can happen: a round of reads, a round of effects behind their gate, a failure that ends
the chain, and a request to stop. In each of them the order is the same: what is about to happen is permitted by a turn,
then recorded if it is an effect, then done, and what came of it is a row of the turn that follows.

A run without effects has no turn: its plan permits its calls. Where the pack brings its own governance, what such a run
does is recorded in one turn, which is judged at its end.

A failure is dealt with as the chain says: go on, stop, or take back what was done, last first. An effect whose outcome
nobody knows ends the loop at once: neither going on nor taking back would be right. Only an action that may be repeated
is tried again first, a few times, each behind a gate of its own, and before anything else is decided: until then it may
have happened.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from manglecp.harness.policy import PolicyPackage
from manglecp.intent import Step
from manglecp.invoke.call_spec import BASE_CLAIM, claim_of
from manglecp.invoke.calls import Call, NoCall, Outcome, call_of, undo_of
from manglecp.invoke.giving_up import GivingUp
from manglecp.invoke.journal import Journal
from manglecp.invoke.large_values import is_large
from manglecp.invoke.outcomes import (
    at_last,
    effects_of,
    in_doubt,
    may_stand,
    no_call,
    refused,
    secret_lost,
    skipped,
    states_of,
    stuck_at,
)
from manglecp.invoke.parties import Actions, Ended, HandedOver, History, Permit, Reason, Rules, Watch
from manglecp.invoke.plan import Plan
from manglecp.invoke.turns import GateRefused, Reads, Turn, Turns
from manglecp.mangle import MangleError
from manglecp.toolhost import Slots, apply_state, state_delta

__all__ = ["Execution"]

T = TypeVar("T")
_Answers: TypeAlias = list[tuple[Outcome, Slots]]
"""Of each call how it ended, and the state after it."""

_ATTEMPTS: Final = 3
"""How often an action that may be repeated is tried while nobody knows what came of it."""


class _Undecided(Exception):
    """Nobody but a person can say how this goes on."""

    def __init__(self, culprit: Outcome) -> None:
        super().__init__(culprit.code)
        self.culprit = culprit


class Execution:
    """One run under way, in one process."""

    def __init__(
        self,
        *,
        run: str,
        plan: Plan,
        args: Mapping[str, Any],
        turns: Turns | None,
        reads: Reads,
        policies: Callable[[], PolicyPackage],
        actions: Actions,
        rules: Rules,
        journal: Journal,
        watch: Watch,
        giving_up: GivingUp,
        seconds: float,
        history: History | None = None,
        events: Callable[[Sequence[Outcome]], list[dict[str, Any]]],
    ) -> None:
        """``turns`` is None if no turn of the run is to be judged, which takes a plan without effects."""
        self._run = run
        self._plan = plan
        self._args = args
        self._all_turns = turns
        self._plan_permit = None if plan.has_effects else plan.permit(run)
        self._policies = policies
        self._actions = actions
        self._rules = rules
        self._journal = journal
        self._watch = watch
        self._giving_up = giving_up
        self._seconds = seconds
        """How long it may take; how long may take, too, to undo a step."""
        self._deadline = time.monotonic() + seconds
        self._history = history
        self._events = events
        self._secrets = plan.secrets
        self.outcomes: list[Outcome] = []
        """How steps ended so far."""
        self._doubted: dict[tuple[str, int], Outcome] = {}
        """By kind and number: sent, nobody knows how it ended, and to be repeated."""
        self._unsaved: list[Outcome] = []
        self._slots: Slots = {}
        self._attempts: dict[tuple[str, int], int] = {}
        if history is not None:
            self.outcomes += history.outcomes
            self._doubted |= {(call.kind, call.number): in_doubt(call) for call in history.unfinished}
            self._slots |= history.slots
            self._attempts |= history.attempts
        self._reads = reads
        self._open_turn: Turn | None = None

    @property
    def _turns(self) -> Turns:
        assert self._all_turns is not None
        return self._all_turns

    @property
    def _turn(self) -> Turn:
        assert self._open_turn is not None
        return self._open_turn

    @property
    def _happened(self) -> bool:
        """Is there an effect, or may there be one?"""
        known = any(effect.status != "undone" for effect in effects_of(self.outcomes))
        return known or bool(self._doubted) or any(one.kind == "undo" for one in self.outcomes)

    async def go(self) -> Ended:
        """Carry it out until it ends, or until only a person can say how it goes on."""
        try:
            if self._all_turns is not None:
                self._open_turn = self._open(first=True)
            return await self._rounds()
        except _Undecided as undecided:
            return self._ended("needs_decision", undecided.culprit)

    def left(self, code: str) -> Ended:
        """How a run stands that nobody carries out until a person has decided; ``code`` says why."""
        assert self._history is not None  # somebody began it
        unknown = list(self._doubted.values())
        self._leave_doubts()
        resumed = self._history.resumption
        self._open_turn = self._turns.open(parallel=self._plan.pattern == "parallel", resumed=resumed)
        stuck = [one for one in unknown if one.call is not None and not one.call.action.idempotent]
        return self._ended("needs_decision", stuck[0] if stuck else stuck_at(self._plan, self.outcomes, code))

    async def _rounds(self) -> Ended:
        if self._doubted:
            await self._make_sure()
        culprit = self._failed()
        if culprit is None and self._history is not None and any(kind == "undo" for kind, _ in self._attempts):
            # Whoever had the run before was taking it back, and nothing had failed.
            return await self._stopped("cancelled" if self._cancelled else "timeout", None)
        while culprit is None:
            if self._cancelled:
                return await self._stopped("cancelled", None)
            together = self._plan.ready({one.number for one in self.outcomes if one.kind == "do"})
            if not together:
                return self._ended(None, None)
            if time.monotonic() >= self._deadline:
                return await self._stopped("timeout", None)
            if self._watch.leaving() and self._can_be_left():
                raise HandedOver
            await self._round(together)
            if self._doubted:
                await self._make_sure()
            culprit = self._failed()
        if culprit.code == "cancelled" and self._cancelled:  # a read that was given up
            return await self._stopped("cancelled", None)
        return await self._stopped("step_failed", culprit)

    @property
    def _cancelled(self) -> bool:
        history = self._history
        asked = self._watch.cancelled.is_set() or self._journal.cancel_asked
        return asked or (history is not None and history.cancelled)

    # --- turns -----------------------------------------------------------------------------------------------------

    def _open(self, *, first: bool = False) -> Turn:
        """The next turn, under the policies that are loaded now."""
        history = self._history if first else None
        resumed = history.resumption if history else None
        parallel = self._plan.pattern == "parallel"
        try:
            turn = self._turns.open(parallel=parallel, resumed=resumed)
        except GateRefused as closed:
            self._undecided_after_effects(closed)
            raise
        if first:
            turn.admit()
        if history is not None:
            self._take_over(turn, history)
        return turn

    def _take_over(self, turn: Turn, history: History) -> None:
        """What is known of effects goes into this turn; what is not, is tried again only if that changes nothing."""
        for outcome in history.carried:
            assert outcome.call is not None  # it was sent
            turn.effects([outcome.call], [outcome])
        unknown = list(zip(history.unfinished, self._doubted.values(), strict=True))
        stuck = [outcome for call, outcome in unknown if not call.action.idempotent]
        if not stuck:
            for call, outcome in unknown:
                turn.retried(call, outcome)
            return
        for call, outcome in unknown:
            turn.effects([call], [outcome])
        self._open_turn = turn
        raise _Undecided(stuck[0])

    def _undecided_after_effects(self, closed: GateRefused) -> None:
        """Before the first effect a refusal is an answer. Afterwards it leaves things as nobody wanted them."""
        if self._happened:
            self._leave_doubts()
            raise _Undecided(refused(closed, self.outcomes)) from closed

    def _said(self, question: Callable[[Sequence[Outcome]], T]) -> T:
        """What rules say about the run so far. Where they fail, the same holds as for a gate."""
        try:
            return question(self.outcomes)
        except MangleError as error:
            if not self._happened:
                raise
            self._leave_doubts()
            raise _Undecided(at_last(self.outcomes, "rules_failed", type(error).__name__)) from error

    # --- rounds ----------------------------------------------------------------------------------------------------

    async def _round(self, together: Sequence[Step]) -> None:
        skips = self._said(self._rules.skips)
        calls: list[Call] = []
        for step in together:
            if step.number in skips:
                self._settle(skipped(step, skips[step.number]))
                continue
            if self._history is not None:
                self._refuse_lost_secrets([step])
            try:
                calls.append(await self._call(step))
            except NoCall as trouble:
                self._settle(no_call(step.number, "do", step.action, trouble))
        if not calls:
            return
        if calls[0].is_effect:
            await self._act(calls)
        else:
            await self._read(calls)

    async def _make_sure(self) -> None:
        """Repeat what may have happened until it is known. Nobody who wants to stop is heard before: what was sent is
        waited for. Where there is no time left for it, a person has to say."""
        while doubted := [one for (kind, _), one in self._doubted.items() if kind == "do"]:
            if time.monotonic() >= self._deadline:
                raise _Undecided(doubted[0])
            steps = [self._plan.step(one.number) for one in doubted]
            if self._history is not None:
                self._refuse_lost_secrets(steps)
            try:
                calls = [await self._call(step) for step in steps]
            except NoCall:  # what an earlier run kept for it has been forgotten since
                raise _Undecided(doubted[0]) from None
            await self._act(calls)

    def _leave_doubts(self) -> None:
        """Nothing more is tried: what may have happened is told as that."""
        self.outcomes.extend(self._doubted.values())
        self._doubted.clear()

    def _refuse_lost_secrets(self, steps: Sequence[Step]) -> None:
        """Whoever had the run before took them along."""
        lost = [step for step in steps if self._needs_secret(step)]
        if lost:
            raise _Undecided(secret_lost(lost[0]))

    def _needs_secret(self, step: Step) -> bool:
        """A secret is not kept: whoever goes on with a run does not have it."""
        return any(one.source == "call" and one.value in self._secrets for one in step.arguments)

    def _can_be_left(self) -> bool:
        """Is all that it still needs on record?"""
        settled = {one.number for one in self.outcomes if one.kind == "do"}
        left = [step for step in self._plan.definition.steps if step.number not in settled]
        return self._plan.has_effects and not any(map(self._needs_secret, left))

    async def _call(self, step: Step) -> Call:
        attempt = self._attempts[("do", step.number)] = self._attempts.get(("do", step.number), 0) + 1
        outputs = {one.number: one.output for one in self.outcomes if one.kind == "do" and one.status == "done"}
        kept = {}
        for one in step.arguments:
            if one.source == "kept":
                kept[one.param] = await self._journal.kept(**one.value)
        given = self._run, step, self._plan.actions[step.action], self._args, outputs, attempt, self._secrets, kept
        if is_large(self._args) or (outputs and is_large(outputs)):
            return await asyncio.to_thread(call_of, *given)
        return call_of(*given)

    async def _read(self, calls: Sequence[Call]) -> None:
        permit = self._plan_permit or self._requested(calls)
        reading = self._giving_up.begin(calls, self._actions.give_up, self._watch.cancelled)
        try:
            answers = await self._together(calls, permit)
        finally:
            self._giving_up.end(reading)
        outcomes = [outcome for outcome, _ in answers]
        if self._plan_permit is None:
            self._turn.answer(outcomes)
        elif self._open_turn is not None:
            self._open_turn.effects(calls, outcomes)
        self._slots = self._merged(answers)
        for outcome in outcomes:
            self._settle(outcome)

    def _requested(self, calls: Sequence[Call]) -> Permit:
        try:
            return self._turn.request(calls)
        except GateRefused as closed:
            self._undecided_after_effects(closed)
            raise

    async def _act(self, calls: Sequence[Call]) -> None:
        """Behind the gate: the record first, then the effect, then the record of what came of it."""
        self._turns.under(self._policies())
        try:
            ready, witness = self._turn.authorize(
                calls,
                claims=self._claims(),
                reads=self._reads,
                events=self._events(self.outcomes),
                states=states_of(self.outcomes),
            )
        except GateRefused as closed:
            self._undecided_after_effects(closed)
            raise
        self._at("gate", calls)
        await self._journal.starting(calls, witness, self._unsaved, self._slots)
        self._unsaved.clear()
        self._at("started", calls)
        answers = await self._together(calls, ready, record=True)
        self._slots = self._merged(answers)
        self._open_turn = self._open()
        unknown = [outcome for outcome, _ in answers if outcome.status == "unknown"]
        again = unknown if all(map(_may_repeat, unknown)) else []
        known = [outcome for outcome, _ in answers if outcome not in again]
        self._turn.effects([call for call, (outcome, _) in zip(calls, answers, strict=True) if outcome in known], known)
        for outcome in again:
            assert outcome.call is not None  # it was sent
            self._turn.retried(outcome.call, outcome)
            self._doubted[outcome.kind, outcome.number] = outcome
        for outcome in known:
            self._doubted.pop((outcome.kind, outcome.number), None)
            self.outcomes.append(outcome)
        if unknown and not again:
            raise _Undecided(next((one for one in unknown if not _may_repeat(one)), unknown[0]))

    def _claims(self) -> list[str]:
        """What the run may do, as policy says now."""
        denied = self._said(self._rules.denied)
        return [BASE_CLAIM, *(claim_of(action) for name, action in self._plan.actions.items() if name not in denied)]

    def _at(self, point: str, calls: Sequence[Call]) -> None:
        for call in calls:
            self._watch.point(f"{point}:{call.group}")

    def _together(self, calls: Sequence[Call], permit: Permit, *, record: bool = False) -> Awaitable[_Answers]:
        return self._one(calls[0], permit, record) if len(calls) == 1 else self._several(calls, permit, record)

    async def _several(self, calls: Sequence[Call], permit: Permit, record: bool) -> _Answers:
        answers = await asyncio.gather(*(self._one(call, permit, record) for call in calls))
        return [one for some in answers for one in some]

    async def _one(self, call: Call, permit: Permit, record: bool) -> _Answers:
        self._watch.progress(call.action.name, len(self.outcomes), len(self._plan.definition.steps))
        seconds = max(self._deadline - time.monotonic(), 0.001)
        outcome, slots = await self._actions(call, permit, self._slots, seconds)
        self._watch.point(f"answered:{call.group}")
        if outcome.status == "unknown" and not _may_repeat(outcome) and not self._is_lasting(call):
            outcome = msgspec.structs.replace(
                outcome, status="failed"
            )  # nothing is left behind: nobody has to look for it
        if record:
            await self._journal.came_to([outcome], slots, self._rules.keeps(outcome))
            self._at("finished", [call])
        return [(outcome, slots)]

    def _is_lasting(self, call: Call) -> bool:
        return call.kind == "undo" or self._plan.step(call.number).lasting

    def _merged(self, answers: _Answers) -> Slots:
        """The state after a round: what each call changed, in the order of the steps."""
        if len(answers) == 1:
            return answers[0][1]
        before = merged = self._slots
        for _, after in answers:
            merged = apply_state(state_delta(before, after), merged)
        return merged

    def _settle(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._unsaved.append(outcome)

    # --- the end ---------------------------------------------------------------------------------------------------

    def _failed(self) -> Outcome | None:
        """The failure that ends the chain: one that would have it undone before one that only stops it."""
        failed = [one for one in self.outcomes if one.status == "failed" and one.kind == "do"]
        if not failed:
            return None
        ending = [one for one in failed if self._plan.step(one.number).on_error != "continue"]
        return min(ending, key=lambda one: self._plan.step(one.number).on_error != "undo", default=None)

    async def _stopped(self, reason: Reason, culprit: Outcome | None) -> Ended:
        asked = culprit is not None and self._plan.step(culprit.number).on_error == "undo"
        if asked or self._plan.definition.safety.reversible:
            if reason == "cancelled" and not self._journal.cancel_asked:
                await self._journal.cancelling()
            await self._undo()
        return self._ended(reason, culprit)

    async def _undo(self) -> None:
        """Take back what can be taken back, last first. Where that fails nothing before it is touched: it may rest on
        what is still there."""
        for done in reversed([one for one in self.outcomes if one.kind == "do" and may_stand(one)]):
            call = done.call
            if call is None or not call.is_effect or not self._plan.step(done.number).lasting:
                continue
            while (undoing := self._undoing(done.number)) is None:
                if not await self._take_back(done, call):
                    return
            if undoing.status != "done":
                return

    def _undoing(self, number: int) -> Outcome | None:
        return next((one for one in self.outcomes if one.kind == "undo" and one.number == number), None)

    async def _take_back(self, done: Outcome, call: Call) -> bool:
        """Try to undo one step; whether it can be tried at all."""
        undo = self._plan.step(done.number).undo
        if undo is None:
            return False
        attempt = self._attempts[("undo", done.number)] = self._attempts.get(("undo", done.number), 0) + 1
        try:
            back = undo_of(self._run, undo, call, done.output, self._plan.actions[undo.action], attempt=attempt)
        except NoCall as trouble:
            self._settle(no_call(done.number, "undo", undo.action, trouble))
            return False
        # The time of the run may be over: that is one of the reasons to be here.
        self._deadline = time.monotonic() + self._seconds
        await self._act([back])
        return True

    def _ended(self, reason: Reason | None, culprit: Outcome | None) -> Ended:
        self._leave_doubts()
        return Ended(
            outcomes=tuple(self.outcomes),
            effects=effects_of(self.outcomes),
            turn=self._open_turn,
            reads=self._reads,
            reason=reason,
            culprit=culprit,
        )


def _may_repeat(outcome: Outcome) -> bool:
    call = outcome.call
    return call is not None and call.action.idempotent and call.attempt < _ATTEMPTS
