"""From an admitted run to its recorded response.

The last turn is closed on exactly the response that the client will receive; then the response is recorded, then sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from manglecp.base.cache import LruCache
from manglecp.harness import Witness
from manglecp.intent import Definition, Identity, OfferService, secret_values
from manglecp.invoke.admission import AdmittedRun
from manglecp.invoke.calls import StepOutcome
from manglecp.invoke.decision_log import DecisionLog, add_decision_id
from manglecp.invoke.errors import FailureContext, gate_error
from manglecp.invoke.evidence import ChainTerms, Reads, RunTerms
from manglecp.invoke.executor import ChainResult, RunExecutor, step_states
from manglecp.invoke.gate import GateRefused, Turns
from manglecp.invoke.journal import EndState, Journal
from manglecp.invoke.ownership import OwnershipRegistry
from manglecp.invoke.plan import Plan
from manglecp.invoke.preview import PreviewRunner
from manglecp.invoke.progress import RunObserver, RunReports, event_rows, events_of, run_redactor
from manglecp.invoke.results import ResponseBuilder, RunResponse, encode_response
from manglecp.invoke.run_rules import RunRules
from manglecp.mangle import MangleError
from manglecp.pack import Profile, default_governance
from manglecp.toolhost import Dispatcher
from manglecp.wire import WireError
from manglecp.wire.messages import Event, InvokeResult, StateDelta

_log = logging.getLogger(__name__)
_MAX_CHAINS: Final = 256
"""The number of cached :class:`ChainTerms`."""


class RunDriver:
    """Executes the runs of one pack revision."""

    def __init__(
        self,
        offers: OfferService,
        dispatcher: Dispatcher,
        ownership: OwnershipRegistry,
        *,
        previews: PreviewRunner,
        current: Callable[[Identity], Identity],
        request_approval: Callable[[AdmittedRun, Definition], Awaitable[WireError]],
        log: DecisionLog,
        clock: Callable[[], int],
        sandbox: Profile,
        point: Callable[[str], object],
    ) -> None:
        """``sandbox`` is the profile of the hosts; ``clock`` returns nanoseconds since 1970; ``log`` records decisions.

        ``current`` returns an identity with the rights that its credential has now; ``request_approval`` stores a
        request for an approval of a run, and returns the error for its requester. ``point`` is for tests, which crash
        there: it is called with a name wherever a crash would matter.
        """
        self._offers = offers
        self._previews = previews
        self._current = current
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
        pinned = offers.domain.pack.settings.governance_digest or package.digest
        self._has_default_policy = package.digest == pinned == default_governance().digest
        self._chains: LruCache[tuple[Any, ...], ChainTerms] = LruCache(_MAX_CHAINS)
        self.successor: RunDriver | None = None
        """The driver of the current pack revision, once that has replaced this one."""

    async def drive(self, run: AdmittedRun, observer: RunObserver) -> RunResponse:
        """Execute a run, record its end and return the response.

        Raises :class:`Released` if the run was released to another process, and the journal's exceptions.
        """
        started = time.monotonic()
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
        events = builder.events(chain_result)
        response = builder.build(chain_result, events, round((time.monotonic() - started) * 1_000))
        self._point("closing")
        return await self._close(chain_result, events, builder, response, journal)

    def park(self, run: AdmittedRun, code: str) -> RunResponse:
        """Return the response of a run that waits for an operator's decision; ``code`` is the reason."""
        rules, redact = self._rules(run), self._redactor(run)
        chain_result = self._executor(run, rules, RunObserver(), redact).park(code)
        builder = self._builder(run, rules, redact)
        return builder.build(chain_result, builder.events(chain_result), 0)

    def _rules(self, run: AdmittedRun) -> RunRules:
        return RunRules(self._offers, run, self._clock, self._current, self._request_approval, self._log)

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
        turns, reads = None, Reads()  # of a run without effects under the shipped policy package
        if run.plan.has_effects or not self._has_default_policy:
            index, admission = self._offers.domain.run_rules, run.admission
            turns = Turns(RunTerms(admission.run, admission.digest, admission.approval, self._terms(run.plan)))
            read_by_rules = {*index.extractors, *index.keepers}  # actions whose outputs rules read
            extracted = {step.number for step in run.plan.definition.steps if step.action in read_by_rules}
            reads = Reads(run.plan.read_by_steps, run.plan.result_steps | extracted)
        return RunExecutor(
            run,
            turns=turns,
            reads=reads,
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
        self,
        chain_result: ChainResult,
        events: tuple[Event, ...],
        builder: ResponseBuilder,
        response: RunResponse,
        journal: Journal,
    ) -> RunResponse:
        """Close the last turn and record the response; return it, or the one for a turn that cannot be closed."""
        undecided = chain_result.reason == "needs_decision"
        if undecided and journal.denial is not None and isinstance(response, WireError):
            add_decision_id(response, journal.denial)
        try:
            witness = None
            if chain_result.turn is not None:
                witness = chain_result.turn.finish(
                    reads=chain_result.reads,
                    events=event_rows(events),
                    states=step_states(chain_result.outcomes),
                    paused=undecided,
                )
        except GateRefused as refused:
            if not chain_result.effects:
                refusal = gate_error(refused, builder.failure_context(chain_result, events))
                return await self._end(journal, "failed", None, refusal, chain_result.outcomes)
            undecided, witness = True, None
            chain_result = chain_result.with_refusal(refused)
            response = builder.build(chain_result, events, 0)
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
