"""The execution of one run: rounds of calls, driven by one table of states.

A round of effects is authorised by a turn, then recorded, then sent; its outcomes are rows of the turn that follows. A
run without effects has no turn: its admitted plan permits its calls. On a failure the
chain continues, stops, or is undone, last effect first, as it declares. An effect with an unknown outcome ends the run
at once, because neither continuing nor undoing would be right; only an idempotent action is repeated, through the gate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, Literal, TypeAlias

import msgspec

from manglecp.base.digest import digest
from manglecp.harness import MutationReady, Witness
from manglecp.intent import ChainStep
from manglecp.invoke.admission import AdmittedRun, History
from manglecp.invoke.calls import (
    ActionCall,
    ActionRunner,
    Effect,
    EffectStatus,
    Permit,
    Status,
    StepOutcome,
    SubjectChanged,
    UncallableStep,
    build_call,
    build_undo_call,
    is_large,
    run_in_thread_if,
)
from manglecp.invoke.evidence import BASE_CLAIM, Reads, claim_of
from manglecp.invoke.gate import GateRefused, Turn, Turns
from manglecp.invoke.preview import PreviewFailed, PreviewRunner
from manglecp.invoke.progress import RunObserver
from manglecp.invoke.run_rules import RunRules
from manglecp.mangle import MangleError
from manglecp.toolhost import Slots, apply_state, state_delta


class ExecutorState(Enum):
    OPENING = auto()  # the first turn is opened, with the history of a resumed run
    SELECTING = auto()  # the next round is chosen
    READING = auto()  # calls of tier 0 are under way
    AUTHORIZING = auto()  # the gate judges the turn before a round of effects
    ACTING = auto()  # effects are on record as started, and under way
    UNDOING = auto()  # the next effect to undo is chosen
    ENDED = auto()
    RELEASED = auto()  # left to another process between two rounds


class ExecutorEvent(Enum):
    OPENED = auto()
    READS = auto()  # the next round reads
    EFFECTS = auto()  # the next round has effects
    SKIPPED = auto()  # no step of the round has a call
    SETTLED = auto()  # the outcomes of a round are recorded
    UNDONE = auto()  # the outcome of an undo is recorded
    AUTHORIZED = auto()
    STOP = auto()  # a failure, a cancellation or the deadline ends the chain
    RELEASE = auto()
    FINISHED = auto()
    UNDECIDED = auto()  # an operator has to decide about an outcome


TRANSITIONS: Final[Mapping[ExecutorState, Mapping[ExecutorEvent, ExecutorState]]] = {
    ExecutorState.OPENING: {
        ExecutorEvent.OPENED: ExecutorState.SELECTING,
        ExecutorEvent.UNDECIDED: ExecutorState.ENDED,
    },
    ExecutorState.SELECTING: {
        ExecutorEvent.READS: ExecutorState.READING,
        ExecutorEvent.EFFECTS: ExecutorState.AUTHORIZING,
        ExecutorEvent.SKIPPED: ExecutorState.SELECTING,
        ExecutorEvent.STOP: ExecutorState.UNDOING,
        ExecutorEvent.RELEASE: ExecutorState.RELEASED,
        ExecutorEvent.FINISHED: ExecutorState.ENDED,
        ExecutorEvent.UNDECIDED: ExecutorState.ENDED,
    },
    ExecutorState.READING: {
        ExecutorEvent.SETTLED: ExecutorState.SELECTING,
        ExecutorEvent.UNDECIDED: ExecutorState.ENDED,
    },
    ExecutorState.AUTHORIZING: {
        ExecutorEvent.AUTHORIZED: ExecutorState.ACTING,
        ExecutorEvent.UNDECIDED: ExecutorState.ENDED,
    },
    ExecutorState.ACTING: {
        ExecutorEvent.SETTLED: ExecutorState.SELECTING,
        ExecutorEvent.UNDONE: ExecutorState.UNDOING,
        ExecutorEvent.UNDECIDED: ExecutorState.ENDED,
    },
    ExecutorState.UNDOING: {
        ExecutorEvent.EFFECTS: ExecutorState.AUTHORIZING,
        ExecutorEvent.FINISHED: ExecutorState.ENDED,
        ExecutorEvent.UNDECIDED: ExecutorState.ENDED,
    },
}
"""A missing entry is a programming error. A refused gate before any effect leaves the machine as an exception."""

StopReason: TypeAlias = Literal["step_failed", "cancelled", "gate_refused", "needs_decision", "timeout"]
_Results: TypeAlias = list[tuple[StepOutcome, Slots]]
"""The outcome of each call, and the state slots after it."""

_UNWATCHED_SECONDS: Final = 0.02
"""After this long, a cancellation reaches reads that are under way."""
_MAX_ATTEMPTS: Final = 3
"""Of an idempotent action whose outcome is unknown."""


class Released(Exception):
    """The run was released between two rounds, for another worker."""


class _Undecided(Exception):
    """An operator has to decide about an outcome."""

    def __init__(self, culprit: StepOutcome) -> None:
        super().__init__(culprit.code)
        self.culprit = culprit


class ChainResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a chain ended. ``turn`` is still open: it is closed on the response. None for a run without turns."""

    outcomes: tuple[StepOutcome, ...]
    effects: tuple[Effect, ...]
    turn: Turn | None
    reads: Reads
    reason: StopReason | None = None
    """None: the chain ran to its end."""
    culprit: StepOutcome | None = None

    def undecided(self, refused: GateRefused) -> ChainResult:
        """Return the same for a run whose last turn cannot be closed after effects."""
        culprit = _at_last(self.outcomes, "gate_refused", ", ".join(refused.classes))
        return msgspec.structs.replace(self, reason="needs_decision", culprit=culprit)

    @property
    def standing(self) -> tuple[StepOutcome, ...]:
        """The steps that were not undone, in order."""
        undone = {effect.step for effect in self.effects if effect.status == "undone"}
        return tuple(one for one in self.outcomes if one.kind == "do" and one.number not in undone)


class RunExecutor:
    def __init__(
        self,
        run: AdmittedRun,
        *,
        turns: Turns | None,
        reads: Reads,
        actions: ActionRunner,
        rules: RunRules,
        previews: PreviewRunner,
        observer: RunObserver,
        seconds: float,
        events: Callable[[Sequence[StepOutcome]], list[dict[str, Any]]],
    ) -> None:
        """Pass None as ``turns`` only for a plan without effects: no turn of the run is judged then."""
        self._run_id = run.admission.run
        self._plan = run.plan
        self._args = run.args
        self._journal = run.journal
        self._history = run.history
        self._turns = turns
        self._permit = None if run.plan.has_effects else run.plan.permit(self._run_id)
        self._reads = reads
        self._actions = actions
        self._rules = rules
        self._previews = previews
        self._identity = run.identity.name
        self._approved = {} if run.subject is None else run.subject.results
        """The approved results of previews, by step."""
        self._observer = observer
        self._events = events
        self._seconds = seconds
        """The time limit of the run; each undo has as long again."""
        self._deadline = time.monotonic() + seconds
        self.state = ExecutorState.OPENING
        self.outcomes: list[StepOutcome] = []
        self._unknown: dict[tuple[str, int], StepOutcome] = {}
        """By kind and number: effects that were sent, whose outcome is unknown, and which are repeated."""
        self._unsaved: list[StepOutcome] = []
        self._slots: Slots = {}
        self._attempts: dict[tuple[str, int], int] = {}
        if run.history is not None:
            self.outcomes += run.history.outcomes
            self._unknown |= {(call.kind, call.number): _lost(call) for call in run.history.unfinished}
            self._slots |= run.history.slots
            self._attempts |= run.history.attempts
        self._cancelling: asyncio.Task[None] | None = None
        self._turn: Turn | None = None
        self._calls: Sequence[ActionCall] = ()
        self._authority: tuple[MutationReady, Witness] | None = None
        self._reason: StopReason | None = None
        self._culprit: StepOutcome | None = None

    async def run(self) -> ChainResult:
        """Execute the chain and return how it ended. After an effect a refused gate and failed rules need an operator.

        Raises :class:`Released` if it was released, :class:`GateRefused` or :class:`MangleError` before the first
        effect, and the journal's exceptions.
        """
        handlers = {
            ExecutorState.OPENING: self._open,
            ExecutorState.SELECTING: self._select,
            ExecutorState.READING: self._read,
            ExecutorState.AUTHORIZING: self._authorize,
            ExecutorState.ACTING: self._act,
            ExecutorState.UNDOING: self._undo,
        }
        while (handler := handlers.get(self.state)) is not None:
            try:
                event = await handler()
            except _Undecided as undecided:
                event = self._give_up(undecided.culprit)
            except (GateRefused, MangleError) as error:
                if not self._has_effects:  # before the first effect a refusal is a response
                    raise
                event = self._give_up(self._failed_at_last(error))
            self.state = TRANSITIONS[self.state][event]
        if self.state is ExecutorState.RELEASED:
            raise Released
        return self._result()

    def park(self, code: str) -> ChainResult:
        """Return the state of a run that waits for an operator; ``code`` is the reason."""
        assert self._history is not None  # another process began it
        assert self._turns is not None
        unknown = list(self._unknown.values())
        self._give_up_unknown()
        self._turn = self._turns.open(parallel=self._plan.pattern == "parallel", resumed=self._history.resumption)
        stuck = [one for one in unknown if one.call is not None and not one.call.action.idempotent]
        self._reason, self._culprit = "needs_decision", stuck[0] if stuck else self._stuck(code)
        return self._result()

    # --- states ------------------------------------------------------------------------------------------------------

    async def _open(self) -> ExecutorEvent:
        if self._turns is not None:
            self._turn = self._open_turn(first=True)
        return ExecutorEvent.OPENED

    async def _select(self) -> ExecutorEvent:
        if self._unknown and (repeated := await self._repeat()):
            self._calls = repeated
            return ExecutorEvent.EFFECTS
        culprit = self._failure()
        if culprit is not None:
            if culprit.code == "cancelled" and self._cancelled:  # a read that was cancelled
                return self._stop("cancelled")
            return self._stop("step_failed", culprit)
        if self._cancelled:
            return self._stop("cancelled")
        if any(kind == "undo" for kind, _ in self._attempts):  # an earlier process was undoing the run
            return self._stop("timeout")
        steps = self._plan.ready({one.number for one in self.outcomes if one.kind == "do"})
        if not steps:
            return ExecutorEvent.FINISHED
        if time.monotonic() >= self._deadline:
            return self._stop("timeout")
        if self._observer.leaving() and self._can_be_released():
            return ExecutorEvent.RELEASE
        self._calls = await self._round(steps)
        if not self._calls:
            return ExecutorEvent.SKIPPED
        return ExecutorEvent.EFFECTS if self._calls[0].is_effect else ExecutorEvent.READS

    async def _read(self) -> ExecutorEvent:
        calls = self._calls
        permit: Permit | None = self._permit
        if permit is None:
            assert self._turn is not None
            permit = self._turn.request(calls)
        # Most reads end before a task that waits for a cancellation would have paid off.
        timer = asyncio.get_running_loop().call_later(_UNWATCHED_SECONDS, self._watch_cancellation, calls)
        try:
            results = await self._dispatch(calls, permit)
        finally:
            timer.cancel()
            if self._cancelling is not None:
                self._cancelling.cancel()
                self._cancelling = None
        outcomes = [outcome for outcome, _ in results]
        if self._turn is not None and self._permit is None:
            self._turn.record_outcomes(outcomes)
        elif self._turn is not None:  # permitted by the plan, and judged at the end
            self._turn.record_effects(calls, outcomes)
        self._slots = self._merged(results)
        for outcome in outcomes:
            self._settle(outcome)
        return ExecutorEvent.SETTLED

    async def _authorize(self) -> ExecutorEvent:
        assert self._turn is not None
        if not self._has_effects:
            await self._rules.prove(self.outcomes)
        denied = self._rules.denied(self.outcomes, undo=self._calls[0].kind == "undo")
        granted = [claim_of(action) for name, action in self._plan.actions.items() if name not in denied]
        self._authority = self._turn.authorize(
            self._calls,
            claims=[BASE_CLAIM, *granted],
            reads=self._reads,
            events=self._events(self.outcomes),
            states=step_states(self.outcomes),
        )
        self._reach("gate")
        return ExecutorEvent.AUTHORIZED

    async def _act(self) -> ExecutorEvent:
        assert self._authority is not None
        calls, (ready, witness), self._authority = self._calls, self._authority, None
        await self._journal.record_start(calls, witness, self._unsaved, self._slots)
        self._unsaved.clear()
        self._reach("started")
        results = await self._dispatch(calls, ready)
        self._slots = self._merged(results)
        unknown = [outcome for outcome, _ in results if outcome.status == "unknown"]
        repeated = unknown if all(map(_is_repeatable, unknown)) else []
        known = [outcome for outcome, _ in results if outcome not in repeated]
        for outcome in known:
            self._unknown.pop((outcome.kind, outcome.number), None)
            self.outcomes.append(outcome)
        self._unknown |= {(outcome.kind, outcome.number): outcome for outcome in repeated}
        self._turn = turn = self._open_turn()
        turn.record_effects([outcome.call for outcome in known if outcome.call is not None], known)
        for outcome in repeated:
            assert outcome.call is not None  # it was sent
            turn.record_retry(outcome.call, outcome)
        if unknown and not repeated:
            raise _Undecided(next((one for one in unknown if not _is_repeatable(one)), unknown[0]))
        return ExecutorEvent.UNDONE if calls[0].kind == "undo" else ExecutorEvent.SETTLED

    async def _undo(self) -> ExecutorEvent:
        culprit = self._culprit
        undo_declared = culprit is not None and self._plan.step(culprit.number).on_error == "undo"
        if not self._plan.has_effects or not (undo_declared or self._plan.definition.safety.reversible):
            return ExecutorEvent.FINISHED
        if self._reason == "cancelled" and not self._journal.cancel_requested:
            await self._journal.record_cancellation()
        done = self._next_to_undo()
        undo = None if done is None else self._plan.step(done.number).undo
        if done is None or done.call is None or undo is None:
            return ExecutorEvent.FINISHED
        attempt = self._count_attempt("undo", done.number)
        try:
            call = build_undo_call(
                self._run_id, undo, done.call, done.output, self._plan.actions[undo.action], attempt=attempt
            )
        except UncallableStep as error:
            self._settle(_uncallable(done.number, "undo", undo.action, error))
            return ExecutorEvent.FINISHED
        # The run's own deadline may have passed, which is one reason for an undo.
        self._deadline = time.monotonic() + self._seconds
        self._calls = [call]
        return ExecutorEvent.EFFECTS

    def _stop(self, reason: StopReason, culprit: StepOutcome | None = None) -> ExecutorEvent:
        self._reason, self._culprit = reason, culprit
        return ExecutorEvent.STOP

    # --- selection ---------------------------------------------------------------------------------------------------

    @property
    def _cancelled(self) -> bool:
        requested = self._observer.cancelled.is_set() or self._journal.cancel_requested
        return requested or (self._history is not None and self._history.cancelled)

    async def _round(self, steps: Sequence[ChainStep]) -> list[ActionCall]:
        """Return the calls of a round; steps that the rules skip, or that cannot be called, are settled."""
        skips = self._rules.skips(self.outcomes)
        calls: list[ActionCall] = []
        for step in steps:
            if step.number in skips:
                self._settle(
                    StepOutcome(
                        call=None, number=step.number, action=step.action, status="skipped", why=skips[step.number]
                    )
                )
                continue
            self._require_secrets([step])
            try:
                calls.append(await self._call(step))
            except UncallableStep as error:
                self._settle(_uncallable(step.number, "do", step.action, error))
        return calls

    async def _repeat(self) -> list[ActionCall]:
        """Return the calls that repeat effects with an unknown outcome. A cancellation waits until it is known."""
        unknown = [one for (kind, _), one in self._unknown.items() if kind == "do"]
        if unknown and time.monotonic() >= self._deadline:
            raise _Undecided(unknown[0])
        steps = [self._plan.step(one.number) for one in unknown]
        self._require_secrets(steps)
        try:
            return [await self._call(step) for step in steps]
        except UncallableStep:  # a value that an earlier run kept has been deleted since, or the subject has changed
            raise _Undecided(unknown[0]) from None

    async def _call(self, step: ChainStep) -> ActionCall:
        attempt = self._count_attempt("do", step.number)
        outputs = {one.number: one.output for one in self.outcomes if one.kind == "do" and one.status == "done"}
        kept = {one.param: await self._journal.read_kept(**one.value) for one in step.arguments if one.source == "kept"}
        arguments = self._run_id, step, self._plan.actions[step.action], self._args, outputs, attempt
        approved = self._approved.get(step.number)
        call = await run_in_thread_if(
            is_large(self._args) or (bool(outputs) and is_large(outputs)),
            build_call,
            *arguments,
            self._plan.secrets,
            kept,
            approved,
        )
        if step.number in self._approved:
            await self._check_subject(call, approved)
        return call

    async def _check_subject(self, call: ActionCall, approved: Any) -> None:
        """Raise :class:`SubjectChanged` if the preview of an approved call has another result now."""
        try:
            result = await self._previews.run(call.action, msgspec.json.decode(call.input_json), self._identity)
        except PreviewFailed as error:
            raise SubjectChanged(f"its preview failed: {error}") from None
        if digest(result) != digest(approved):
            raise SubjectChanged("its preview has another result than the approved one")

    def _count_attempt(self, kind: str, number: int) -> int:
        attempt = self._attempts[kind, number] = self._attempts.get((kind, number), 0) + 1
        return attempt

    def _failure(self) -> StepOutcome | None:
        """Return the failure that ends the chain: one to be undone rather than one that only stops it."""
        failed = [one for one in self.outcomes if one.status == "failed" and one.kind == "do"]
        ending = [one for one in failed if self._plan.step(one.number).on_error != "continue"]
        return min(ending, key=lambda one: self._plan.step(one.number).on_error != "undo", default=None)

    def _next_to_undo(self) -> StepOutcome | None:
        """Return the last effect that stands; None if the undo of a later effect, which may depend on it, failed."""
        for done in reversed([one for one in self.outcomes if one.kind == "do" and _may_stand(one)]):
            if done.call is None or not done.call.is_effect or not self._plan.step(done.number).lasting:
                continue
            undone = next((one for one in self.outcomes if one.kind == "undo" and one.number == done.number), None)
            if undone is None:
                return done
            if undone.status != "done":
                return None
        return None

    def _require_secrets(self, steps: Sequence[ChainStep]) -> None:
        """Secret arguments are never stored: a process that resumes a run does not have them."""
        if self._history is None:
            return
        for step in steps:
            if self._needs_secret(step):
                raise _Undecided(
                    StepOutcome(call=None, number=step.number, action=step.action, status="failed", code="secret_lost")
                )

    def _needs_secret(self, step: ChainStep) -> bool:
        return any(one.source == "call" and one.value in self._plan.secrets for one in step.arguments)

    def _can_be_released(self) -> bool:
        """Return whether the journal has all that the rest of the run needs."""
        settled = {one.number for one in self.outcomes if one.kind == "do"}
        left = [step for step in self._plan.definition.steps if step.number not in settled]
        return self._plan.has_effects and not any(map(self._needs_secret, left))

    # --- turns -------------------------------------------------------------------------------------------------------

    def _open_turn(self, *, first: bool = False) -> Turn:
        """Open the next turn, under the policies that are loaded now."""
        assert self._turns is not None
        history = self._history if first else None
        resumed = history.resumption if history else None
        turn = self._turns.open(parallel=self._plan.pattern == "parallel", resumed=resumed)
        if first:
            turn.admit()
        if history is not None:
            self._resume(turn, history)
        return turn

    def _resume(self, turn: Turn, history: History) -> None:
        """Record the history in the turn. Raises if an effect with an unknown outcome cannot be repeated."""
        for outcome in history.carried:
            assert outcome.call is not None  # it was sent
            turn.record_effects([outcome.call], [outcome])
        unknown = list(zip(history.unfinished, self._unknown.values(), strict=True))
        stuck = [outcome for call, outcome in unknown if not call.action.idempotent]
        for call, outcome in unknown:
            if stuck:
                turn.record_effects([call], [outcome])
            else:
                turn.record_retry(call, outcome)
        if stuck:
            self._turn = turn
            raise _Undecided(stuck[0])

    def _give_up(self, culprit: StepOutcome) -> ExecutorEvent:
        self._reason, self._culprit = "needs_decision", culprit
        return ExecutorEvent.UNDECIDED

    def _failed_at_last(self, error: GateRefused | MangleError) -> StepOutcome:
        """Return a failure after the last step; effects that would have been repeated count as unknown."""
        self._give_up_unknown()
        if isinstance(error, GateRefused):
            return _at_last(self.outcomes, "gate_refused", ", ".join(error.classes))
        return _at_last(self.outcomes, "rules_failed", type(error).__name__)

    @property
    def _has_effects(self) -> bool:
        standing = any(effect.status != "undone" for effect in effects_of(self.outcomes))
        return standing or bool(self._unknown) or any(one.kind == "undo" for one in self.outcomes)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def _dispatch(self, calls: Sequence[ActionCall], permit: Permit) -> _Results:
        if len(calls) == 1:
            return [await self._dispatch_one(calls[0], permit)]
        # All calls end before an error is raised: an effect must not go on after its run was released.
        results = await asyncio.gather(*(self._dispatch_one(call, permit) for call in calls), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]

    async def _dispatch_one(self, call: ActionCall, permit: Permit) -> tuple[StepOutcome, Slots]:
        self._observer.progress(call.action.name, len(self.outcomes), len(self._plan.definition.steps))
        seconds = max(self._deadline - time.monotonic(), 0.001)
        outcome, slots = await self._actions.call(call, permit, self._slots, seconds)
        self._observer.point(f"answered:{call.group}")
        lasting = call.kind == "undo" or self._plan.step(call.number).lasting
        if outcome.status == "unknown" and not lasting and not _is_repeatable(outcome):
            outcome = msgspec.structs.replace(outcome, status="failed")  # no lasting effect to decide about
        if call.is_effect:
            await self._journal.record_outcomes([outcome], slots, self._rules.kept_values(outcome))
            self._observer.point(f"finished:{call.group}")
        return outcome, slots

    def _watch_cancellation(self, calls: Sequence[ActionCall]) -> None:
        self._cancelling = asyncio.create_task(self._cancel_reads(calls))

    async def _cancel_reads(self, calls: Sequence[ActionCall]) -> None:
        """Cancel reads when the caller cancels the run. Effects that were sent are waited for."""
        await self._observer.cancelled.wait()
        for call in calls:
            self._actions.cancel(call)

    def _merged(self, results: _Results) -> Slots:
        """Return the state slots after a round: the changes of each call, in the order of the steps."""
        if len(results) == 1:
            return results[0][1]
        before = merged = self._slots
        for _, after in results:
            merged = apply_state(state_delta(before, after), merged)
        return merged

    def _reach(self, point: str) -> None:
        for call in self._calls:
            self._observer.point(f"{point}:{call.group}")

    # --- outcomes ----------------------------------------------------------------------------------------------------

    def _settle(self, outcome: StepOutcome) -> None:
        self.outcomes.append(outcome)
        self._unsaved.append(outcome)

    def _give_up_unknown(self) -> None:
        """Count effects that would have been repeated as unknown."""
        self.outcomes.extend(self._unknown.values())
        self._unknown.clear()

    def _stuck(self, code: str) -> StepOutcome:
        """Return a failure of the next step, or of the last one if all are settled."""
        ready = self._plan.ready({one.number for one in self.outcomes if one.kind == "do"})
        step = next(iter(ready), self._plan.definition.steps[-1])
        return StepOutcome(call=None, number=step.number, action=step.action, status="failed", code=code)

    def _result(self) -> ChainResult:
        self._give_up_unknown()
        return ChainResult(
            outcomes=tuple(self.outcomes),
            effects=effects_of(self.outcomes),
            turn=self._turn,
            reads=self._reads,
            reason=self._reason,
            culprit=self._culprit,
        )


def effects_of(outcomes: Sequence[StepOutcome]) -> tuple[Effect, ...]:
    """Return the effects that happened, or may have, in order."""
    undone: dict[int, Status] = {one.number: one.status for one in outcomes if one.kind == "undo"}
    return tuple(
        Effect(
            step=one.number,
            action=one.action,
            status=_effect_status(one, undone.get(one.number)),
            lasting=not isinstance(one.call.step, ChainStep) or one.call.step.lasting,
        )
        for one in outcomes
        if one.kind != "undo" and one.call is not None and one.call.is_effect and _may_stand(one)
    )


def step_states(outcomes: Sequence[StepOutcome]) -> dict[str, str]:
    """Return the status of each step, for the state view of a turn."""
    return {f"{one.kind} {one.number}": one.status for one in outcomes}


def _effect_status(outcome: StepOutcome, undo: Status | None) -> EffectStatus:
    if undo == "done":
        return "undone"
    return "unknown" if "unknown" in (outcome.status, undo) else "done"


def _may_stand(outcome: StepOutcome) -> bool:
    return outcome.status in ("done", "unknown") or outcome.happened


def _is_repeatable(outcome: StepOutcome) -> bool:
    call = outcome.call
    return call is not None and call.action.idempotent and call.attempt < _MAX_ATTEMPTS


def _uncallable(number: int, kind: Literal["do", "undo"], action: str, error: UncallableStep) -> StepOutcome:
    return StepOutcome(
        call=None, number=number, kind=kind, action=action, status="failed", code=error.code, detail=str(error)
    )


def _lost(call: ActionCall) -> StepOutcome:
    """Return the unknown outcome of a call without a recorded outcome."""
    return StepOutcome(
        call=call,
        number=call.number,
        kind=call.kind,
        action=call.action.name,
        status="unknown",
        code="outcome_unknown",
        detail="the process that sent it was lost before its outcome was on record",
    )


def _at_last(outcomes: Sequence[StepOutcome], code: str, detail: str) -> StepOutcome:
    """Return a failure after the last step."""
    last = outcomes[-1]
    return StepOutcome(
        call=None, number=last.number, kind=last.kind, action=last.action, status="failed", code=code, detail=detail
    )
