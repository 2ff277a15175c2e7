"""The execution of one run: rounds of calls, driven by one table of states.

A round of effects is authorised by a turn (see :mod:`manglecp.invoke.gate`), then recorded, then sent; its outcomes
are rows of the turn that follows. The calls of a run without effects are permitted by its admitted plan. On a failure
the chain continues, stops, or is undone, last effect first, as the failed step declares. An effect with an unknown
outcome is repeated, through the gate, if its action is idempotent. Otherwise the run waits for an operator's decision,
because both continuing and undoing could be wrong.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import IntEnum, auto
from typing import Any, Final, Literal, TypeAlias

import msgspec

from manglecp.base.digest import digest
from manglecp.harness import MutationReady, Witness
from manglecp.intent import ChainStep
from manglecp.invoke.admission import AdmittedRun, History
from manglecp.invoke.calls import (
    MAX_INLINE_TEXT,
    ActionCall,
    CallResult,
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
    outcome_of_error,
    outcome_of_result,
)
from manglecp.invoke.evidence import BASE_CLAIM, UsedSteps, claim_of
from manglecp.invoke.gate import GateRefused, Resumption, Turn, Turns
from manglecp.invoke.ownership import Ownership
from manglecp.invoke.preview import ApprovalSubject, PreviewFailed, PreviewRunner
from manglecp.invoke.progress import RunObserver, RunReports, do_nothing
from manglecp.invoke.run_rules import RunRules
from manglecp.mangle import MangleError
from manglecp.toolhost import ActionResult, Dispatcher, Slots, apply_state, state_delta


class ExecutorState(IntEnum):
    OPENING = auto()  # the first turn is opened; a resumed run adds its history
    SELECTING = auto()  # the next round is chosen
    READING = auto()  # calls of tier 0 are under way
    AUTHORIZING = auto()  # the gate judges the current turn, before a round of effects
    ACTING = auto()  # effects are on record as started, and under way
    UNDOING = auto()  # the next effect to undo is chosen
    ENDED = auto()
    RELEASED = auto()  # another process may continue


class ExecutorEvent(IntEnum):
    OPENED = auto()
    READS = auto()  # the next round reads
    EFFECTS = auto()  # the next round has effects
    SKIPPED = auto()  # no step of the round has a call
    SETTLED = auto()  # the outcomes of a round are recorded
    UNDONE = auto()  # the outcome of an undo is recorded, whether it succeeded or failed
    AUTHORIZED = auto()
    STOP = auto()  # a failure, a cancellation or the deadline ends the chain
    RELEASE = auto()
    FINISHED = auto()
    UNDECIDED = auto()  # an operator has to decide about an outcome


_State, _Event = ExecutorState, ExecutorEvent
TRANSITIONS: Final[Mapping[ExecutorState, Mapping[ExecutorEvent, ExecutorState]]] = {
    _State.OPENING: {_Event.OPENED: _State.SELECTING, _Event.UNDECIDED: _State.ENDED},
    _State.SELECTING: {
        _Event.READS: _State.READING,
        _Event.EFFECTS: _State.AUTHORIZING,
        _Event.SKIPPED: _State.SELECTING,
        _Event.STOP: _State.UNDOING,
        _Event.RELEASE: _State.RELEASED,
        _Event.FINISHED: _State.ENDED,
        _Event.UNDECIDED: _State.ENDED,
    },
    _State.READING: {_Event.SETTLED: _State.SELECTING, _Event.UNDECIDED: _State.ENDED},
    _State.AUTHORIZING: {_Event.AUTHORIZED: _State.ACTING, _Event.UNDECIDED: _State.ENDED},
    _State.ACTING: {_Event.SETTLED: _State.SELECTING, _Event.UNDONE: _State.UNDOING, _Event.UNDECIDED: _State.ENDED},
    _State.UNDOING: {_Event.EFFECTS: _State.AUTHORIZING, _Event.FINISHED: _State.ENDED, _Event.UNDECIDED: _State.ENDED},
}
"""The next state, by state and event. Other events are programming errors; a refused first effect is an exception."""

StopReason: TypeAlias = Literal["step_failed", "cancelled", "gate_refused", "needs_decision", "timeout"]
_MAX_ATTEMPTS: Final = 3
"""How often an idempotent action is called until its outcome is known."""


class Released(Exception):
    """The run was released between two rounds, for another worker."""


class _Undecided(Exception):
    """An operator has to decide about an outcome."""

    def __init__(self, culprit: StepOutcome) -> None:
        super().__init__(culprit.code)
        self.culprit = culprit


class ChainResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a chain ended."""

    outcomes: tuple[StepOutcome, ...]
    effects: tuple[Effect, ...]
    turn: Turn | None
    """The last turn, which the caller closes with the response as evidence. None for a run without turns."""
    used: UsedSteps
    reason: StopReason | None = None
    """None if the chain ran to its end."""
    culprit: StepOutcome | None = None
    """The step that failed, or that an operator has to decide about."""

    def with_refusal(self, refused: GateRefused) -> ChainResult:
        """Return a copy that needs a decision: the gate refused to close the last turn after effects."""
        culprit = _failure_at_last_step(self.outcomes, "gate_refused", ", ".join(refused.classes))
        return msgspec.structs.replace(self, reason="needs_decision", culprit=culprit)

    @property
    def standing(self) -> tuple[StepOutcome, ...]:
        """The steps that were not undone, in order."""
        undone = {effect.step for effect in self.effects if effect.status == "undone"}
        return tuple(step for step in self.outcomes if step.kind == "do" and step.number not in undone)


class RunExecutor:
    """Executes the chain of one run, and undoes effects after a failure."""

    def __init__(
        self,
        run: AdmittedRun,
        *,
        turns: Turns | None,
        used: UsedSteps,
        dispatcher: Dispatcher,
        ownership: Ownership | None,
        rules: RunRules,
        current_rules: Callable[[], RunRules],
        previews: PreviewRunner,
        observer: RunObserver,
        reports: RunReports,
        time_limit: float,
        event_rows: Callable[[Sequence[StepOutcome]], list[dict[str, Any]]],
    ) -> None:
        """Pass None as ``turns`` only for a plan without effects: the run then has no turns.

        ``ownership`` is that of the run; None for a run without effects.

        ``rules`` belong to the pack revision that admitted the run; ``current_rules`` returns the rules of the current
        revision, which judge effects. ``time_limit``, in seconds, applies to the run and again to each undo.
        ``event_rows`` returns the events of outcomes, as rows of a turn.
        """
        self._run_id = run.admission.run
        self._plan = run.plan
        self._args = run.args
        self._journal = run.journal
        self._history = run.history
        self._turns = turns
        self._permit = None if run.plan.has_effects else run.plan.permit(self._run_id)
        """The permit for all calls of a plan without effects; None if turns permit the calls."""
        self._used_steps = used
        self._dispatcher = dispatcher
        self._ownership = ownership
        self._rules = rules
        self._current_rules = current_rules
        self._previews = previews
        self._identity = run.identity.name
        self._subject = run.subject or ApprovalSubject()
        self._observer = observer
        self.reports = reports
        self._event_rows = event_rows
        self._time_limit = time_limit
        self._deadline = time.monotonic() + time_limit
        self.state = ExecutorState.OPENING
        self.outcomes: list[StepOutcome] = []
        self._unknown_outcomes: dict[tuple[str, int], StepOutcome] = {}
        """The unknown outcomes of effects that will be repeated, by kind and number of the step."""
        self._unsaved_outcomes: list[StepOutcome] = []
        """The outcomes that the journal does not have yet."""
        self._slots: Slots = {}
        self._attempts: dict[tuple[str, int], int] = {}
        """The number of calls so far, by kind and number of the step."""
        if run.history is not None:
            self.outcomes += run.history.outcomes
            self._unknown_outcomes |= {(call.kind, call.number): _lost_outcome(call) for call in run.history.unfinished}
            self._slots |= run.history.slots
            self._attempts |= run.history.attempts
        self._turn: Turn | None = None
        self._calls: Sequence[ActionCall] = ()
        """The calls of the current round."""
        self._authority: tuple[MutationReady, Witness] | None = None
        """The authorisation of ``_calls``, and the witness of the turn that gave it."""
        self._reason: StopReason | None = None
        self._culprit: StepOutcome | None = None

    async def run(self) -> ChainResult:
        """Execute the chain and return how it ended.

        Raises :class:`Released` if the run was released; :class:`WireError`, :class:`GateRefused` or
        :class:`MangleError` if the first effect is refused or rules fail before it; and the journal's exceptions. After
        an effect, a refused gate and failed rules do not raise: the run then waits for an operator's decision.
        """
        while (handler := _HANDLERS.get(self.state)) is not None:
            try:
                event = await handler(self)
            except _Undecided as undecided:
                event = self._need_decision(undecided.culprit)
            except (GateRefused, MangleError) as error:
                if not self._had_effects:  # no effect to decide about: the error becomes the response
                    raise
                event = self._need_decision(self._failure_after_effects(error))
            self.state = TRANSITIONS[self.state][event]
        if self.state is ExecutorState.RELEASED:
            raise Released
        return self._result()

    def park(self, code: str) -> ChainResult:
        """Return the result of a run that waits for an operator's decision; ``code`` is the reason."""
        assert self._history is not None  # only a run that another process began is parked here
        not_repeatable = [call for call in self._history.unfinished if not call.action.idempotent]
        self._finalize_unknown()
        self._turn = self._open_turn(self._history.resumption)
        culprit = _lost_outcome(not_repeatable[0]) if not_repeatable else self._failure_of_next_step(code)
        self._need_decision(culprit)
        return self._result()

    # --- states ------------------------------------------------------------------------------------------------------

    async def _open(self) -> ExecutorEvent:
        if self._turns is not None:
            history = self._history
            self._turn = self._open_turn(None if history is None else history.resumption)
            self._turn.admit()
            if history is not None:
                self._record_history(self._turn, history)
        return ExecutorEvent.OPENED

    async def _select(self) -> ExecutorEvent:
        if self._unknown_outcomes and (repeated_calls := await self._build_repeated_calls()):
            self._calls = repeated_calls
            return ExecutorEvent.EFFECTS
        culprit = self._find_ending_failure()
        if culprit is not None:
            if culprit.code == "cancelled" and self._cancelled:  # the cancellation of a read
                return self._stop("cancelled")
            return self._stop("step_failed", culprit)
        if self._cancelled:
            return self._stop("cancelled")
        if self._history is not None and any(kind == "undo" for kind, _ in self._attempts):
            # An earlier process began to undo the run. No failure or cancellation was found, so it was the deadline.
            return self._stop("timeout")
        steps = self._plan.ready(self._settled_steps)
        if not steps:
            return ExecutorEvent.FINISHED
        if time.monotonic() >= self._deadline:
            return self._stop("timeout")
        if self._observer.leaving() and self._can_be_released():
            return ExecutorEvent.RELEASE
        self._calls = await self._build_calls(steps)
        if self._cancelled:  # a cancellation while the calls were built
            return self._stop("cancelled")
        if not self._calls:
            return ExecutorEvent.SKIPPED
        return ExecutorEvent.EFFECTS if self._calls[0].is_effect else ExecutorEvent.READS

    async def _read(self) -> ExecutorEvent:
        calls = self._calls
        permit: Permit | None = self._permit
        if permit is None:
            assert self._turn is not None
            permit = self._turn.request(calls)
        self._observer.on_stop = self._cancel_reads
        try:
            results = await self._dispatch(calls, permit)
        finally:
            self._observer.on_stop = do_nothing
        outcomes = [result.outcome for result in results]
        if self._turn is not None:
            if self._permit is None:
                self._turn.record_outcomes(outcomes)
            else:  # the plan permitted the calls, so the turn does not have their requests yet
                self._turn.record_calls(calls, outcomes)
        self._slots = self._merge_slots(results)
        for outcome in outcomes:
            self._settle(outcome)
        return ExecutorEvent.SETTLED

    async def _authorize(self) -> ExecutorEvent:
        assert self._turn is not None
        denied_actions: Collection[str] = ()
        if self._had_effects:
            denied_actions = self._current_rules().denied(self.outcomes, undo=self._calls[0].kind == "undo")
        else:
            await self._current_rules().prove(self.outcomes)
        granted_claims = [claim_of(action) for name, action in self._plan.actions.items() if name not in denied_actions]
        self._authority = self._turn.authorize(
            self._calls,
            claims=[BASE_CLAIM, *granted_claims],
            used=self._used_steps,
            events=self._event_rows(self.outcomes),
            states=step_states(self.outcomes),
        )
        self._pass_point("gate")
        return ExecutorEvent.AUTHORIZED

    async def _act(self) -> ExecutorEvent:
        assert self._authority is not None
        calls, (ready, witness) = self._calls, self._authority
        self._authority = None  # an authorisation is used once
        await self._journal.record_start(calls, witness, self._unsaved_outcomes, self._slots)
        self._unsaved_outcomes.clear()
        self._pass_point("started")
        results = await self._dispatch(calls, ready)
        self._slots = self._merge_slots(results)
        outcomes = [result.outcome for result in results]
        unknown = [outcome for outcome in outcomes if outcome.status == "unknown"]
        not_repeatable = [outcome for outcome in unknown if not _is_repeatable(outcome)]
        repeated_outcomes = [] if not_repeatable else unknown  # no call is repeated if one of them cannot be
        final = [outcome for outcome in outcomes if outcome not in repeated_outcomes]
        for outcome in final:
            self._unknown_outcomes.pop((outcome.kind, outcome.number), None)
            self.outcomes.append(outcome)
        self._unknown_outcomes |= {(outcome.kind, outcome.number): outcome for outcome in repeated_outcomes}
        self._turn = turn = self._open_turn()
        turn.record_calls([outcome.call for outcome in final if outcome.call is not None], final)
        for outcome in repeated_outcomes:
            assert outcome.call is not None  # only a call that was sent has an unknown outcome
            turn.record_retry(outcome.call, outcome)
        if not_repeatable:
            raise _Undecided(not_repeatable[0])
        return ExecutorEvent.UNDONE if calls[0].kind == "undo" else ExecutorEvent.SETTLED

    async def _undo(self) -> ExecutorEvent:
        culprit = self._culprit
        declares_undo = culprit is not None and self._plan.step(culprit.number).on_error == "undo"
        needs_undo = declares_undo or self._plan.definition.safety.reversible
        if not self._plan.has_effects or not needs_undo:
            return ExecutorEvent.FINISHED
        if self._reason == "cancelled" and not self._journal.cancel_requested:
            await self._journal.record_cancellation()
        target = self._next_to_undo()
        undo = None if target is None else self._plan.step(target.number).undo
        if target is None or target.call is None or undo is None:
            return ExecutorEvent.FINISHED
        attempt = self._count_attempt("undo", target.number)
        try:
            call = build_undo_call(
                self._run_id, undo, target.call, target.output, self._plan.actions[undo.action], attempt=attempt
            )
        except UncallableStep as error:
            self._settle(_failure_at(target.number, "undo", undo.action, error.code, str(error)))
            return ExecutorEvent.FINISHED  # the earlier effects are not undone either: see _next_to_undo
        # Each undo has a time limit of its own: the run may be undone because its deadline has passed.
        self._deadline = time.monotonic() + self._time_limit
        self._calls = [call]
        return ExecutorEvent.EFFECTS

    def _stop(self, reason: StopReason, culprit: StepOutcome | None = None) -> ExecutorEvent:
        self._reason, self._culprit = reason, culprit
        return ExecutorEvent.STOP

    # --- selection ---------------------------------------------------------------------------------------------------

    @property
    def _cancelled(self) -> bool:
        observer, history = self._observer, self._history
        is_abandoned = observer.disconnected and not self._had_effects
        is_requested = is_abandoned or observer.cancelled or self._journal.cancel_requested
        return is_requested or (history is not None and history.cancelled)

    @property
    def _settled_steps(self) -> set[int]:
        return {outcome.number for outcome in self.outcomes if outcome.kind == "do"}

    async def _build_calls(self, steps: Sequence[ChainStep]) -> list[ActionCall]:
        """Return the calls of a round; settle the steps that the rules skip, or that cannot be called."""
        skips = self._rules.skips(self.outcomes)
        calls: list[ActionCall] = []
        for step in steps:
            if step.number in skips:
                self._settle(_uncalled_outcome(step, "skipped", why=skips[step.number]))
                continue
            self._require_secrets([step])
            try:
                calls.append(await self._build_call(step))
            except UncallableStep as error:
                self._settle(_uncalled_outcome(step, "failed", code=error.code, detail=str(error)))
        return calls

    async def _build_repeated_calls(self) -> list[ActionCall]:
        """Return the calls that repeat steps with an unknown outcome (:meth:`_undo` repeats undos).

        Raises :class:`_Undecided` if a step cannot be repeated.
        """
        unknown = [outcome for (kind, _), outcome in self._unknown_outcomes.items() if kind == "do"]
        if unknown and time.monotonic() >= self._deadline:
            raise _Undecided(unknown[0])
        steps = [self._plan.step(outcome.number) for outcome in unknown]
        self._require_secrets(steps)
        try:
            return [await self._build_call(step) for step in steps]
        except UncallableStep:  # since the first attempt, a kept value was deleted or the approved subject has changed
            raise _Undecided(unknown[0]) from None

    async def _build_call(self, step: ChainStep) -> ActionCall:
        attempt = self._count_attempt("do", step.number)
        outputs = {each.number: each.output for each in self.outcomes if each.kind == "do" and each.status == "done"}
        kept = await self._journal.read_kept(step.arguments)
        preview = self._subject.results.get(step.number)
        action, secrets = self._plan.action(step), self._plan.secrets
        build_arguments = self._run_id, step, action, self._args, outputs, attempt, secrets, kept, preview
        if is_large(self._args) or (outputs and is_large(outputs)):
            call = await asyncio.to_thread(build_call, *build_arguments)
        else:
            call = build_call(*build_arguments)
        if step.number in self._subject.values:
            self._subject.check_values(call)
        if step.number in self._subject.results:
            await self._check_subject(call, preview)
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

    def _find_ending_failure(self) -> StepOutcome | None:
        """Return the failure that ends the chain: the first that declares an undo, else the first that stops it."""
        failures = [outcome for outcome in self.outcomes if outcome.status == "failed" and outcome.kind == "do"]
        if not failures:
            return None
        undo_failures = [outcome for outcome in failures if self._plan.step(outcome.number).on_error == "undo"]
        stop_failures = [outcome for outcome in failures if self._plan.step(outcome.number).on_error == "stop"]
        return next(iter(undo_failures + stop_failures), None)

    def _next_to_undo(self) -> StepOutcome | None:
        """Return the last effect that was not undone; None if all effects were undone, or if an undo failed.

        An effect whose undo failed may depend on earlier effects, so these are not undone either.
        """
        undos = {outcome.number: outcome for outcome in self.outcomes if outcome.kind == "undo"}
        for effect in reversed([outcome for outcome in self.outcomes if outcome.kind == "do" and _may_stand(outcome)]):
            if effect.call is None or not effect.call.is_effect or not self._plan.step(effect.number).lasting:
                continue
            if effect.number not in undos:
                return effect
            if undos[effect.number].status != "done":
                return None
        return None

    def _require_secrets(self, steps: Sequence[ChainStep]) -> None:
        """Raise :class:`_Undecided` if the run is resumed and a step takes a secret argument, which is not stored."""
        for step in steps:
            if self._history is not None and self._needs_secret(step):
                raise _Undecided(_uncalled_outcome(step, "failed", code="secret_lost"))

    def _needs_secret(self, step: ChainStep) -> bool:
        return any(argument.source == "call" and argument.value in self._plan.secrets for argument in step.arguments)

    def _can_be_released(self) -> bool:
        """Return whether another process could continue: the journal exists and no remaining step needs a secret."""
        remaining = [step for step in self._plan.definition.steps if step.number not in self._settled_steps]
        return self._plan.has_effects and not any(map(self._needs_secret, remaining))

    # --- turns -------------------------------------------------------------------------------------------------------

    def _open_turn(self, resumed: Resumption | None = None) -> Turn:
        assert self._turns is not None
        return self._turns.open(parallel=self._plan.pattern == "parallel", resumed=resumed)

    def _record_history(self, turn: Turn, history: History) -> None:
        """Record the history in the turn. Raises :class:`_Undecided` if a lost call must not be repeated."""
        for outcome in history.carried:
            assert outcome.call is not None  # restore_history carries only outcomes of calls
            turn.record_calls([outcome.call], [outcome])
        not_repeatable = [call for call in history.unfinished if not call.action.idempotent]
        for call in history.unfinished:
            outcome = self._unknown_outcomes[call.kind, call.number]
            if not_repeatable:
                turn.record_calls([call], [outcome])
            else:
                turn.record_retry(call, outcome)
        if not_repeatable:
            raise _Undecided(_lost_outcome(not_repeatable[0]))

    def _need_decision(self, culprit: StepOutcome) -> ExecutorEvent:
        self._reason, self._culprit = "needs_decision", culprit
        return ExecutorEvent.UNDECIDED

    def _failure_after_effects(self, error: GateRefused | MangleError) -> StepOutcome:
        self._finalize_unknown()
        if isinstance(error, GateRefused):
            return _failure_at_last_step(self.outcomes, "gate_refused", ", ".join(error.classes))
        return _failure_at_last_step(self.outcomes, "rules_failed", type(error).__name__)

    @property
    def _had_effects(self) -> bool:
        """Whether an effect happened, or may have, even if it was undone."""
        return bool(self._unknown_outcomes or effects_of(self.outcomes))

    # --- calls -------------------------------------------------------------------------------------------------------

    async def _dispatch(self, calls: Sequence[ActionCall], permit: Permit) -> list[CallResult]:
        """Send the calls in parallel, and record the outcomes of effects."""
        if len(calls) == 1:
            return [await self._dispatch_one(calls[0], permit)]
        # All calls end before an error is raised: no effect may continue after its run was released.
        results = await asyncio.gather(*(self._dispatch_one(call, permit) for call in calls), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]

    async def _dispatch_one(self, call: ActionCall, permit: Permit) -> CallResult:
        """Send a call. Raises :class:`Fenced` if this process does not own the run any more."""
        on_report = self.reports.begin(call, len(self.outcomes))
        ownership, slots, is_effect = self._ownership, self._slots, call.is_effect
        if ownership is not None:
            await ownership.ensure_owned()
        started_at = time.monotonic()
        response = await self._dispatcher.call(
            call.action.aid,
            identity=self._identity,
            slots=slots,
            input_json=call.input_json,
            call_id=call.call_id,
            timeout=max(self._deadline - started_at, 0.001),
            authority=permit,
            not_after=None if ownership is None else ownership.expires_at,
            # Reads may be repeated, so they need no idempotency key.
            idempotency_key=f"{call.run}/{call.group}" if is_effect else None,
            on_report=on_report,
        )
        duration_ms = round((time.monotonic() - started_at) * 1_000)
        if not isinstance(response, ActionResult):
            outcome = outcome_of_error(call, response, duration_ms)
        elif len(response.output_json) > MAX_INLINE_TEXT:
            outcome = await asyncio.to_thread(outcome_of_result, call, response, duration_ms)
            slots = response.slots
        else:
            outcome, slots = outcome_of_result(call, response, duration_ms), response.slots
        self.reports.end(call)
        outcome = self._rules.check_output(self.reports.log_failure(outcome))
        self._observer.point(f"answered:{call.group}")
        is_lasting = call.kind == "undo" or self._plan.step(call.number).lasting
        if outcome.status == "unknown" and not is_lasting and not _is_repeatable(outcome):
            outcome = msgspec.structs.replace(outcome, status="failed")  # the call has no effect to decide about
        if is_effect:
            await self._journal.record_outcomes([outcome], slots, self._rules.kept_values(outcome))
            self._observer.point(f"finished:{call.group}")
        return CallResult(outcome, slots)

    def _cancel_reads(self) -> None:
        """Fail the reads under way if the run is cancelled; their actions may continue until the hosts notice.

        Effects are not cancelled once they were sent.
        """
        if self._cancelled:
            for call in self._calls:
                self._dispatcher.cancel(call.call_id)

    def _merge_slots(self, results: Sequence[CallResult]) -> Slots:
        """Return the state slots after a round: the changes of each call, in the order of the steps."""
        if len(results) == 1:
            return results[0].slots
        before = merged = self._slots
        for result in results:
            merged = apply_state(state_delta(before, result.slots), merged)
        return merged

    def _pass_point(self, point: str) -> None:
        """Notify the observer for each call, because tests simulate a crash at these points."""
        for call in self._calls:
            self._observer.point(f"{point}:{call.group}")

    def _settle(self, outcome: StepOutcome) -> None:
        """Add an outcome that is written to the journal with the start of the next effects."""
        self.outcomes.append(outcome)
        self._unsaved_outcomes.append(outcome)

    def _finalize_unknown(self) -> None:
        """Make the unknown outcomes final: their calls are not repeated."""
        self.outcomes.extend(self._unknown_outcomes.values())
        self._unknown_outcomes.clear()

    def _failure_of_next_step(self, code: str) -> StepOutcome:
        """Return a failure of the next step, or of the last step if all steps are settled."""
        step = next(iter(self._plan.ready(self._settled_steps)), self._plan.definition.steps[-1])
        return _uncalled_outcome(step, "failed", code=code)

    def _result(self) -> ChainResult:
        self._finalize_unknown()
        return ChainResult(
            outcomes=tuple(self.outcomes),
            effects=effects_of(self.outcomes),
            turn=self._turn,
            used=self._used_steps,
            reason=self._reason,
            culprit=self._culprit,
        )


_HANDLERS: Final[Mapping[ExecutorState, Callable[[RunExecutor], Awaitable[ExecutorEvent]]]] = {
    ExecutorState.OPENING: RunExecutor._open,
    ExecutorState.SELECTING: RunExecutor._select,
    ExecutorState.READING: RunExecutor._read,
    ExecutorState.AUTHORIZING: RunExecutor._authorize,
    ExecutorState.ACTING: RunExecutor._act,
    ExecutorState.UNDOING: RunExecutor._undo,
}


def effects_of(outcomes: Sequence[StepOutcome]) -> tuple[Effect, ...]:
    """Return the effects that happened, or may have, in order."""
    undo_status: dict[int, Status] = {step.number: step.status for step in outcomes if step.kind == "undo"}
    return tuple(
        Effect(
            step=step.number,
            action=step.action,
            status=_effect_status(step, undo_status.get(step.number)),
            lasting=not isinstance(step.call.step, ChainStep) or step.call.step.lasting,
        )
        for step in outcomes
        if step.kind != "undo" and step.call is not None and step.call.is_effect and _may_stand(step)
    )


def step_states(outcomes: Sequence[StepOutcome]) -> dict[str, str]:
    """Return the status of each step and of each undo, for the state view of a turn."""
    return {f"{outcome.kind} {outcome.number}": outcome.status for outcome in outcomes}


def _effect_status(outcome: StepOutcome, undo_status: Status | None) -> EffectStatus:
    if undo_status == "done":
        return "undone"
    return "unknown" if "unknown" in (outcome.status, undo_status) else "done"


def _may_stand(outcome: StepOutcome) -> bool:
    """Return whether the effect of a call happened, or may have."""
    return outcome.status in ("done", "unknown") or outcome.happened


def _is_repeatable(outcome: StepOutcome) -> bool:
    call = outcome.call
    return call is not None and call.action.idempotent and call.attempt < _MAX_ATTEMPTS


def _uncalled_outcome(step: ChainStep, status: Status, **fields: Any) -> StepOutcome:
    return StepOutcome(call=None, number=step.number, action=step.action, status=status, **fields)


def _lost_outcome(call: ActionCall) -> StepOutcome:
    """Return the unknown outcome of a call that another process sent."""
    return StepOutcome(
        call=call,
        number=call.number,
        kind=call.kind,
        action=call.action.name,
        status="unknown",
        code="outcome_unknown",
        detail="the process that sent it was lost before its outcome was on record",
    )


def _failure_at_last_step(outcomes: Sequence[StepOutcome], code: str, detail: str) -> StepOutcome:
    """Return a failure of the run, between two rounds or at its end, as a failure of the last step."""
    last = outcomes[-1]
    return _failure_at(last.number, last.kind, last.action, code, detail)


def _failure_at(number: int, kind: Literal["do", "undo"], action: str, code: str, detail: str) -> StepOutcome:
    return StepOutcome(call=None, number=number, kind=kind, action=action, status="failed", code=code, detail=detail)
