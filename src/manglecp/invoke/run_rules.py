"""The pack's rules about a run: which steps to skip, which effects to deny, and what to derive at its end.

The kernel asserts the caller, the call arguments, the status of each step, and the values that extractors (``extract``)
find in outputs. No other part of an output becomes a fact. Rules also see the proof inputs of the offer (intent,
parameters, session facts), the principal as it is now, and the newest server facts, always at the server's clock.

The rules are not evaluated for a question that no rule of the pack answers (:class:`.RunRuleIndex`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec

from manglecp.base.diagnostic import Diagnostic
from manglecp.intent import (
    AFTER_RUN_ARITIES,
    Call,
    Definition,
    Identity,
    OfferService,
    SafetyData,
    Scope,
    approval_waiver,
    decide,
    engine_limits,
    find_values,
    judge,
    judged,
    policy_rows,
    request_facts,
)
from manglecp.invoke.admission import AdmittedRun, credential_not_valid
from manglecp.invoke.calls import EVENT_STATUS, StepOutcome, is_large
from manglecp.invoke.decision_log import DecisionLog, add_decision_id
from manglecp.mangle import EvalError, Fact, Result, Value
from manglecp.wire import Fault, WireError

if TYPE_CHECKING:
    from manglecp.invoke.executor import ChainResult

RuleRows: TypeAlias = Mapping[str, Sequence[tuple[Value, ...]]]
"""The arguments of derived facts, by predicate."""
NO_ROWS: Final[RuleRows] = dict.fromkeys(AFTER_RUN_ARITIES, ())


class RunRules:
    """The rules of one pack revision about one run, which this or an earlier revision admitted."""

    def __init__(
        self,
        offers: OfferService,
        run: AdmittedRun,
        clock: Callable[[], int],
        refresh_identity: Callable[[Identity], Identity],
        request_approval: Callable[[AdmittedRun, Definition], Awaitable[WireError]],
        log: DecisionLog,
    ) -> None:
        """``offers`` belong to the revision; ``clock`` returns nanoseconds since 1970; ``log`` records decisions.

        ``refresh_identity`` returns an identity with the rights that its credential has now; ``request_approval``
        stores a request for an approval of the run, and returns the error for its requester.
        """
        self._offers = offers
        self._index = offers.domain.run_rules
        self._run = run
        self._clock = clock
        self._refresh_identity = refresh_identity
        self._request_approval = request_approval
        self._log = log

    async def prepare(self) -> None:
        """Convert large arguments to facts in a thread, since the evaluations run on the event loop."""
        if self._index.reads_arguments and is_large(self._run.args):
            await asyncio.to_thread(lambda: self._run_facts)  # fills the cached property

    def kept_values(self, outcome: StepOutcome) -> Mapping[str, Any]:
        """Return the values of a step's output that a later run may use, by name."""
        if outcome.kind != "do" or outcome.status != "done":
            return {}
        values = find_values(self._index.keepers, outcome.action, outcome.output)
        return {name: value for name, value in values if value is not None}

    def check_output(self, outcome: StepOutcome) -> StepOutcome:
        """Return the outcome; as failed if extractors find a value in its output that no fact can hold."""
        if outcome.action not in self._index.extractors:
            return outcome
        try:
            list(self._step_facts([outcome]))  # raises if no fact can hold a value
        except EvalError as error:
            happened = outcome.call is not None and outcome.call.is_effect
            failure: dict[str, Any] = {"status": "failed", "code": "bad_output", "detail": str(error)}
            return msgspec.structs.replace(outcome, **failure, output=None, output_digest=None, happened=happened)
        return outcome

    def skips(self, outcomes: Sequence[StepOutcome]) -> Mapping[int, str]:
        """Return the numbers of the steps to skip, each with the first of its reasons."""
        if not self._index.has_skip_rules:
            return {}
        skips: dict[int, str] = {}
        for number, reason in self._evaluate(self._facts(outcomes), self._clock()).rows(("skip_step", 2)):
            skips.setdefault(cast(int, number), str(reason))
        return skips

    async def prove(self, outcomes: Sequence[StepOutcome]) -> None:
        """Prove the tool of the run again, before its first effect, and check that the run has the necessary approval.

        A proven tool has no action that policy denies. Raises :class:`WireError` and :class:`EvalError`.
        """
        if (identity := self._identity).revoked:
            raise credential_not_valid()
        run, facts = self._run, self._facts(outcomes)
        call = Call(run.plan.definition.tool, run.args, run.inputs)
        domain, offered = self._offers.domain, run.plan.definition
        decision = await asyncio.to_thread(
            decide, domain, call, identity, self._clock(), facts, offered=offered.chain_digest
        )
        record = self._log.build(decision, "effect", run.admission.run)
        run.journal.decisions.append(record)
        definition = decision.proven()
        if not self._is_approved(definition.safety):
            raise add_decision_id(await self._request_approval(run, definition), record.id)

    def denied(self, outcomes: Sequence[StepOutcome], *, undo: bool = False) -> Collection[str]:
        """Return the names of the actions that policy denies now, after the first effect.

        All actions are denied if policy denies the tool or the intent, or requires an approval that the run does not
        have, or if the principal's credential is not valid any more. An ``undo`` reverts what was permitted, so only
        a denial of single actions counts.
        """
        if undo and not self._index.has_effect_rules:
            return ()
        every_action = set(self._run.plan.actions)
        if self._identity.revoked and not undo:
            return every_action
        run, now_ns = self._run, self._clock()
        facts = [*self._facts(outcomes), *self._offers.domain.stale_facts(now_ns)]
        try:
            result = self._evaluate(facts, now_ns)
        except WireError:  # the session facts fit the revision that admitted the run, but not this one
            return every_action
        tool = run.plan.definition.tool
        judgement = judge(self._offers.domain, tool, policy_rows(result, tool), self._session_facts)
        call = Call(tool, run.args, run.inputs)
        scope: Scope = "undo" if undo else "policy"
        decision = judged(self._offers.domain, call, self._identity, now_ns, result, judgement, facts, scope)
        record = self._log.build(decision, "undo" if undo else "effect", run.admission.run)
        run.journal.decisions.append(record)
        if decision.verdict == "deny":
            run.journal.denial = record.id
        if undo:
            return {str(action) for action, _ in result.rows(("effect_denied", 2))}
        is_denied = any(denial.predicate != "effect_denied" for denial in judgement.denials)
        if is_denied or not self._is_approved(judgement.safety):
            return every_action
        return {str(denial.args[0]) for denial in judgement.denials}

    def _is_approved(self, safety: SafetyData) -> bool:
        """Return whether the run has the approval that the tool needs now, or needs none."""
        approvers = self._run.approvers
        return (
            not safety.requires_user_confirmation
            or (approvers is not None and approvers.satisfy(safety))
            or approval_waiver(self._identity, safety) is not None
        )

    def after(self, chain_result: ChainResult, *, failed: bool) -> RuleRows:
        """Return what the rules derive at the end of a run from its steps that were not undone.

        For a failed run, only rows that depend on a step: a rule that only reads that the tool was called would assert
        an effect that did not happen.
        """
        if not self._index.has_after_rules:
            return NO_ROWS
        rows = self._evaluate_end(chain_result.standing)
        if not failed:
            return rows
        without_steps = self._evaluate_end(())
        return {name: [row for row in derived if row not in without_steps[name]] for name, derived in rows.items()}

    def _evaluate_end(self, standing: Sequence[StepOutcome]) -> RuleRows:
        # An effect that happened counts as done even if its output was unusable.
        steps = [
            msgspec.structs.replace(step, status="done", output=None) if step.happened else step for step in standing
        ]
        ran = Fact("ran", (self._run.plan.definition.tool,))
        result = self._evaluate([ran, *self._facts(steps)], self._clock())
        return {name: result.rows((name, arity)) for name, arity in AFTER_RUN_ARITIES.items()}

    @property
    def _identity(self) -> Identity:
        return self._refresh_identity(self._run.identity)

    def _evaluate(self, facts: Iterable[Fact], now_ns: int) -> Result:
        """Evaluate the rules with these facts about the call and its run."""
        domain = self._offers.domain
        caller_facts = request_facts(domain, self._run.inputs.intent, self._identity)
        limits = engine_limits(domain.base.derived, domain.limits)
        input_facts = [*self._session_facts, *caller_facts, *domain.stale_facts(now_ns), *facts]
        return domain.base.evaluate(input_facts, now=now_ns, check=False, limits=limits)

    def _facts(self, outcomes: Sequence[StepOutcome]) -> list[Fact]:
        """Return the facts about the call and its run."""
        return [*self._run_facts, *self._step_facts(outcomes)]

    @cached_property
    def _session_facts(self) -> list[Fact]:
        return self._run.inputs.session_facts(self._offers.domain, self._clock())

    @cached_property
    def _run_facts(self) -> list[Fact]:
        run_id = Fact("run_id", (self._run.admission.run,))
        try:
            return [run_id, *self._index.call_facts(self._run.plan.definition.tool, self._run.args)]
        except Fault as fault:  # admission refuses such arguments, but a later revision may read more of them
            raise _fact_error("an argument", fault) from None

    def _step_facts(self, outcomes: Sequence[StepOutcome]) -> Iterator[Fact]:
        for step in outcomes:
            if step.kind != "do":
                continue
            yield Fact("step_status", (step.number, step.action, EVENT_STATUS[step.status]))
            if step.status != "done" or step.happened:  # a step that ``happened`` has no usable output
                continue
            try:
                for key, value in self._index.step_values(step.action, step.output):
                    yield Fact("step_value", (step.number, key, value))
            except Fault as fault:
                raise _fact_error(f"a value of the output of {step.action}", fault) from None


def _fact_error(subject: str, fault: Fault) -> EvalError:
    """Return the error for a value that no fact can hold: rules that read it must not decide without it."""
    return EvalError([Diagnostic("eval", f"{subject} cannot become a fact: {fault.message}", fix=fault.fix)])
