"""The driver of a run, and its response: the result object of the run, or an error with the effects that stand.

The result has the members that ``macro_result`` facts declare. Without such facts, the result is the output of the last
step that is done; an output that is not an object becomes the member ``value``. The result is validated against the
output schema, and secrets are removed. The evidence of the last turn contains exactly the response that the client will
receive. When that turn is closed, the response is recorded, then sent. A repeated request gets the same bytes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from manglecp.base.cache import LruCache
from manglecp.base.json import resolve_pointer
from manglecp.harness import Witness
from manglecp.intent import Definition, Domain, Identity, OfferService, scrub_json, secret_values, unchanged
from manglecp.invoke.admission import AdmittedRun
from manglecp.invoke.calls import StepOutcome
from manglecp.invoke.decision_log import DecisionLog, add_decision_id
from manglecp.invoke.delta import next_of, state_delta
from manglecp.invoke.errors import (
    FailureContext,
    bad_result_error,
    cancellation_error,
    decision_error,
    failure_error,
    gate_error,
)
from manglecp.invoke.evidence import ChainTerms, RunTerms, UsedSteps
from manglecp.invoke.executor import ChainResult, RunExecutor, step_states
from manglecp.invoke.gate import GateRefused, Turns
from manglecp.invoke.journal import EndState, Journal
from manglecp.invoke.ownership import OwnershipRegistry
from manglecp.invoke.plan import Plan
from manglecp.invoke.preview import PreviewRunner
from manglecp.invoke.progress import RunObserver, RunReports, event_rows, events_of, run_redactor, summary_of
from manglecp.invoke.run_rules import RunRules
from manglecp.mangle import MangleError
from manglecp.pack import Invocation, Profile, default_governance
from manglecp.toolhost import Dispatcher
from manglecp.wire import SchemaError, WireError, schema_errors
from manglecp.wire.messages import UNSET, ErrorPayload, Event, InvokeResult, Next, Observability, StateDelta

_log = logging.getLogger(__name__)
_MAX_CHAINS: Final = 256
"""The number of cached :class:`ChainTerms`."""
RunResponse = InvokeResult | WireError
P = TypeVar("P", bound=msgspec.Struct)
_NO_DELTA: Final = StateDelta()
_NOTHING_NEXT: Final = Next()


class RunDriver:
    """Executes the runs of one pack revision."""

    def __init__(
        self,
        offers: OfferService,
        dispatcher: Dispatcher,
        ownership: OwnershipRegistry,
        *,
        previews: PreviewRunner,
        refresh_identity: Callable[[Identity], Identity],
        request_approval: Callable[[AdmittedRun, Definition], Awaitable[WireError]],
        log: DecisionLog,
        clock: Callable[[], int],
        sandbox: Profile,
        point: Callable[[str], object],
    ) -> None:
        """``sandbox`` is the profile of the hosts; ``clock`` returns nanoseconds since 1970; ``log`` records decisions.

        ``refresh_identity`` returns an identity with the rights that its credential has now; ``request_approval``
        stores a request for an approval of a run, and returns the error for its requester. ``point`` is called with a
        name wherever a crash would matter: tests crash there.
        """
        self._offers = offers
        self._previews = previews
        self._refresh_identity = refresh_identity
        self._request_approval = request_approval
        self._log = log
        self._clock = clock
        self._dispatcher = dispatcher
        self._ownership = ownership
        self._sandbox: Profile = sandbox
        self._point = point
        self._limits = offers.domain.pack.settings.invocation
        self._secret_settings = secret_values(offers.domain.pack)
        package = offers.domain.pack.governance
        pinned_digest = offers.domain.pack.settings.governance_digest or package.digest
        self._has_default_policy = package.digest == pinned_digest == default_governance().digest
        self._chains: LruCache[tuple[Any, ...], ChainTerms] = LruCache(_MAX_CHAINS)
        self.successor: RunDriver | None = None
        """The driver of the current pack revision; None while this driver is the current one."""

    async def drive(self, run: AdmittedRun, observer: RunObserver) -> RunResponse:
        """Execute a run, record its end and return the response.

        Raises :class:`Released` if the run was released to another process, and the journal's exceptions.
        """
        started_at = time.monotonic()
        journal = run.journal
        rules, redact = self._rules(run), self._redactor(run)
        await rules.prepare()
        executor = self._executor(run, rules, observer, redact)
        try:
            chain_result = await executor.run()
        except GateRefused as refused:
            context = FailureContext(run_id=run.admission.run, state_delta=msgspec.to_builtins(StateDelta()))
            return await self._end(journal, "failed", None, gate_error(refused, context), executor.outcomes)
        except WireError as error:
            return await self._end(journal, "failed", None, error, executor.outcomes)
        except MangleError:
            _log.exception("the rules of %s failed during run %s", self._offers.domain.pack.name, run.admission.run)
            failure = WireError("evaluation_failed", "The rules of this server failed on this run")
            return await self._end(journal, "failed", None, failure, executor.outcomes)
        executor.reports.finalize()
        builder = self._builder(run, rules, redact)
        response = builder.build(chain_result, round((time.monotonic() - started_at) * 1_000))
        self._point("closing")
        return await self._close(chain_result, builder, response, journal)

    def park(self, run: AdmittedRun, code: str) -> RunResponse:
        """Return the response of a run that waits for an operator's decision; ``code`` is the reason."""
        rules, redact = self._rules(run), self._redactor(run)
        chain_result = self._executor(run, rules, RunObserver(), redact).park(code)
        return self._builder(run, rules, redact).build(chain_result, 0)

    def _rules(self, run: AdmittedRun) -> RunRules:
        return RunRules(self._offers, run, self._clock, self._refresh_identity, self._request_approval, self._log)

    def _redactor(self, run: AdmittedRun) -> Callable[[Any], Any]:
        return run_redactor(run.plan, run.args, self._secret_settings)

    def _builder(self, run: AdmittedRun, rules: RunRules, redact: Callable[[Any], Any]) -> ResponseBuilder:
        return ResponseBuilder(run.admission.run, self._offers.domain, run.plan, rules, redact)

    def _terms(self, plan: Plan) -> ChainTerms:
        """Return the cached terms, which chains with the same actions, number of gates and pattern share."""
        key = (*sorted(plan.actions), plan.gates, plan.pattern)
        terms = self._chains.get(key)
        if terms is None:
            domain = self._offers.domain
            pack = domain.pack
            terms = ChainTerms(
                model_ref=f"rules:{pack.name}@{pack.settings.version}+{domain.digest}",
                package=pack.governance,
                pinned=pack.settings.governance_digest or pack.governance.digest,
                actions=plan.actions,
                plugin_digest=f"sha256:{pack.actions_file.sha256 if pack.actions_file else None}",
                gates=plan.gates,
                sandbox=self._sandbox,
                pattern=plan.pattern,
            )
            self._chains.put(key, terms)
        return terms

    def _executor(
        self, run: AdmittedRun, rules: RunRules, observer: RunObserver, redact: Callable[[Any], Any]
    ) -> RunExecutor:
        turns, used_steps = None, UsedSteps()  # a run without effects under the shipped policy package has no turns
        if run.plan.has_effects or not self._has_default_policy:
            index, admission = self._offers.domain.run_rules, run.admission
            turns = Turns(RunTerms(admission.run, admission.digest, admission.approval, self._terms(run.plan)))
            read_by_rules = {*index.extractors, *index.keepers}  # actions whose outputs rules read
            extracted_steps = {step.number for step in run.plan.definition.steps if step.action in read_by_rules}
            used_steps = UsedSteps(run.plan.read_by_steps, run.plan.result_steps | extracted_steps)
        return RunExecutor(
            run,
            turns=turns,
            used=used_steps,
            dispatcher=self._dispatcher,
            ownership=self._ownership.get(run.admission.run) if run.plan.has_effects else None,
            rules=rules,
            current_rules=lambda: rules if self.successor is None else self.successor._rules(run),
            previews=self._previews,
            observer=observer,
            reports=RunReports(run.admission.run, len(run.plan.definition.steps), observer.on_progress, redact),
            time_limit=self._limits.max_execution_ms / 1_000,
            event_rows=lambda outcomes: event_rows(events_of(outcomes, self._limits.max_events)),
        )

    async def _close(
        self, chain_result: ChainResult, builder: ResponseBuilder, response: RunResponse, journal: Journal
    ) -> RunResponse:
        """Close the last turn, record the response and return it. If the turn cannot be closed, return an error."""
        undecided = chain_result.reason == "needs_decision"
        if undecided and journal.denial is not None and isinstance(response, WireError):
            add_decision_id(response, journal.denial)
        try:
            witness = None
            if chain_result.turn is not None:
                witness = chain_result.turn.finish(
                    used=chain_result.used,
                    events=event_rows(builder.events(chain_result)),
                    states=step_states(chain_result.outcomes),
                    paused=undecided,
                )
        except GateRefused as refused:
            if not chain_result.effects:
                refusal = gate_error(refused, builder.failure_context(chain_result))
                return await self._end(journal, "failed", None, refusal, chain_result.outcomes)
            undecided, witness = True, None
            chain_result = chain_result.with_refusal(refused)
            response = builder.build(chain_result, 0)
        if undecided:
            assert chain_result.culprit is not None
            await journal.record_undecided(chain_result.culprit, witness, encode_response(response))
            return response
        state: EndState = "succeeded" if isinstance(response, InvokeResult) else "failed"
        if chain_result.reason == "cancelled":
            state = "cancelled"
        return await self._end(journal, state, witness, response, chain_result.outcomes)

    async def _end(
        self,
        journal: Journal,
        state: EndState,
        witness: Witness | None,
        response: RunResponse,
        outcomes: Sequence[StepOutcome],
    ) -> RunResponse:
        may_be_retried = isinstance(response, WireError) and response.row.recoverable
        await journal.record_end(state, witness, encode_response(response), outcomes, lasting=not may_be_retried)
        self._point("ended")
        return response


def result_of(definition: Definition, outcomes: Sequence[StepOutcome]) -> dict[str, Any]:
    """Return the result object. Members without a value are left out; the output schema states which are required."""
    outputs = {step.number: step.output for step in outcomes if step.kind == "do" and step.status == "done"}
    if not definition.results:
        last = outputs[max(outputs)] if outputs else {}
        return last if isinstance(last, dict) else {"value": last}
    result: dict[str, Any] = {}
    for key, number, pointer in definition.results:
        if number in outputs:
            with suppress(LookupError):
                result[key] = resolve_pointer(outputs[number], pointer)
    return result


class _StoredResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    result: InvokeResult | None = None
    error: ErrorPayload | None = None


_decoder = msgspec.json.Decoder(_StoredResponse)


def encode_response(response: RunResponse) -> bytes:
    if isinstance(response, InvokeResult):
        return msgspec.json.encode(_StoredResponse(result=response))
    return msgspec.json.encode(_StoredResponse(error=response.payload()))


def decode_response(stored: bytes) -> RunResponse:
    """Return the stored result or error of a run."""
    response = _decoder.decode(stored)
    if response.result is not None:
        return response.result
    error = response.error
    assert error is not None  # a stored response has a result or an error
    details = None if error.details is UNSET else error.details
    return WireError(error.code, error.message, details, retry_after_ms=error.retry_after_ms)


class ResponseBuilder(msgspec.Struct, frozen=True):
    """Builds the response of one run."""

    run: str
    domain: Domain
    plan: Plan
    rules: RunRules
    redact: Callable[[Any], Any]
    """Replaces secret settings and arguments in a JSON value."""

    def events(self, chain_result: ChainResult) -> tuple[Event, ...]:
        return events_of(chain_result.outcomes, self._limits.max_events)

    def build(self, chain_result: ChainResult, duration_ms: int) -> RunResponse:
        """Return the result, or an error with the effects that stand."""
        if chain_result.reason is not None:
            return self._failure(chain_result)
        definition = self.plan.definition
        result = result_of(definition, chain_result.outcomes)
        if definition.output_schema is not None and (errors := schema_errors(result, definition.output_schema)):
            return bad_result_error(self._redact_errors(errors), self.failure_context(chain_result))
        try:
            rows = self.rules.after(chain_result, failed=False)
        except MangleError:
            # Effects may have happened, but the delta that describes them to the client is not known.
            _log.exception("the rules of %s failed after run %s", self.domain.pack.name, self.run)
            return failure_error(None, self.failure_context(chain_result, _NO_DELTA), "after_run_rules")
        summaries, events = [str(text) for (text,) in rows["summary"]], self.events(chain_result)
        observability = Observability(
            summary=summary_of(summaries, chain_result.outcomes, definition.tool),
            events=events,
            events_omitted=len(chain_result.outcomes) - len(events) or UNSET,
            duration_ms=duration_ms,
        )
        redact = self.redact
        delta, next_request = _NO_DELTA, _NOTHING_NEXT
        if any(rows.values()):
            # Texts that look like credentials are scrubbed from facts; only the result may contain them.
            def clean(value: Any) -> Any:
                return redact(scrub_json(value))

            limit = self._limits.max_delta_facts
            delta = _transform(state_delta(rows, self.domain, limit), clean)
            next_request = _transform(next_of(rows, self.domain, limit), clean)
        return InvokeResult(
            result=result if redact is unchanged else redact(result),
            state_delta=delta,
            observability=observability if redact is unchanged else _transform(observability, redact),
            next=next_request,
        )

    @property
    def _limits(self) -> Invocation:
        return self.domain.pack.settings.invocation

    def _failure(self, chain_result: ChainResult) -> WireError:
        context = self.failure_context(chain_result)
        if chain_result.reason == "cancelled":
            return cancellation_error(context)
        if chain_result.reason == "needs_decision":
            assert chain_result.culprit is not None  # a needed decision is about this step
            return decision_error(chain_result.culprit, context)
        return failure_error(chain_result.culprit, context, chain_result.reason or "step_failed")

    def failure_context(self, chain_result: ChainResult, delta: StateDelta | None = None) -> FailureContext:
        """Return the context of an error. ``delta`` defaults to the delta of the effects that stand."""
        events = self.events(chain_result)
        if delta is None:
            delta = self._standing_delta(chain_result) if chain_result.effects else _NO_DELTA
        return FailureContext(
            run_id=self.run,
            effects=chain_result.effects,
            state_delta=self.redact(scrub_json(msgspec.to_builtins(delta))),
            events=tuple(self.redact(event_rows(events))),
            events_omitted=len(chain_result.outcomes) - len(events),
            effect_sent=any(step.call is not None and step.call.is_effect for step in chain_result.outcomes),
        )

    def _standing_delta(self, chain_result: ChainResult) -> StateDelta:
        """Return the delta of the steps that were not undone; empty if the rules fail."""
        try:
            return state_delta(self.rules.after(chain_result, failed=True), self.domain, self._limits.max_delta_facts)
        except MangleError:
            return _NO_DELTA

    def _redact_errors(self, errors: Sequence[SchemaError]) -> list[SchemaError]:
        """Return the errors with redacted messages and paths: an action chooses the names of members."""
        return msgspec.convert(self.redact(msgspec.to_builtins(list(errors))), list[SchemaError])


def _transform(part: P, transform: Callable[[Any], Any]) -> P:
    """Return a part of a message after a transformation of its JSON form."""
    return msgspec.convert(transform(msgspec.to_builtins(part)), type(part))
