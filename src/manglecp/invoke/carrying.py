"""Carrying out a run that was accepted, from its first step to the answer that is written down.

The last turn is closed on exactly what will be told; the end of the run is written down; then it may be told.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.harness import Witness
from manglecp.harness.policy import PolicyPackage
from manglecp.intent import Domain, secret_values
from manglecp.invoke.accepting import Accepted
from manglecp.invoke.actions import ActionRunner
from manglecp.invoke.calls import Outcome
from manglecp.invoke.claims import Claims
from manglecp.invoke.errors import Told, gate_refused
from manglecp.invoke.events import event_rows, events_of
from manglecp.invoke.executor import ChainResult, RunExecutor, step_states
from manglecp.invoke.journal import EndState, Journal
from manglecp.invoke.plan import Plan
from manglecp.invoke.progress import RunObserver
from manglecp.invoke.results import Answer, Answering, encoded
from manglecp.invoke.run_rules import RunRules, Spoken
from manglecp.invoke.turns import ChainTerms, GateRefused, Reads, RunTerms, Turns
from manglecp.mangle import MangleError
from manglecp.pack import Profile, default_governance
from manglecp.toolhost import Dispatcher
from manglecp.wire import WireError
from manglecp.wire.messages import Event, InvokeResult, StateDelta

__all__ = ["CarryingOut"]

_log = logging.getLogger(__name__)
_CHAINS: Final = 1_024
"""How many are remembered. More are worked out again."""


class _Chain(NamedTuple):
    """What all runs of a plan have in common, under the same policies."""

    terms: ChainTerms
    reads: Reads
    """The steps whose results later steps or the answer use."""
    is_judged: bool
    """Whether runs have turns: those with effects, and all under a package that is not the shipped default."""


class CarryingOut:
    """The runs of one edition of a pack."""

    def __init__(
        self,
        newest: Callable[[], Domain],
        dispatcher: Dispatcher,
        claims: Claims,
        *,
        policies: Callable[[], PolicyPackage],
        sandbox: Profile,
        point: Callable[[str], None],
    ) -> None:
        """``newest`` gives the domain with what the pack knows at that moment."""
        self._newest = newest
        domain = newest()
        self._dispatcher = dispatcher
        self._claims = claims
        self._policies = policies
        self._sandbox: Profile = sandbox
        self._point = point
        self._limits = domain.pack.settings.invocation
        self._spoken = Spoken.of(domain)
        self._hidden = secret_values(domain.pack)
        self._chains: dict[Plan, _Chain] = {}

    async def answer(self, accepted: Accepted, watch: RunObserver) -> Answer:
        """What is to be told of the run, once that it is over is on record."""
        started = time.monotonic()
        steps, journal = len(accepted.plan.definition.steps), accepted.journal
        rules = self._rules(accepted)
        if self._spoken.arguments:
            await rules.prepare()
        execution = self._execution(accepted, rules, watch)
        try:
            ended = await execution.run()
        except GateRefused as refused:
            nothing = Told(run_id=accepted.admission.run, state_delta=msgspec.to_builtins(StateDelta()))
            return await self._over(journal, "failed", None, gate_refused(refused, nothing), execution.outcomes)
        except MangleError:
            _log.exception("the rules of %s failed during run %s", self._newest().pack.name, accepted.admission.run)
            failure = WireError("evaluation_failed", "The rules of this server failed on this run")
            return await self._over(journal, "failed", None, failure, execution.outcomes)
        watch.progress("", steps, steps)
        answering = self._answering(accepted, rules)
        events = answering.events(ended)
        answer = answering.answer(ended, events, round((time.monotonic() - started) * 1_000))
        self._point("closing")
        return await self._close(ended, events, answering, answer, journal)

    def set_aside(self, accepted: Accepted, code: str) -> Answer:
        """What is to be told of a run that nobody carries out until a person has decided."""
        rules = self._rules(accepted)
        ended = self._execution(accepted, rules, RunObserver()).park(code)
        answering = self._answering(accepted, rules)
        return answering.answer(ended, answering.events(ended), 0)

    def _rules(self, accepted: Accepted) -> RunRules:
        """What rules say about the run."""
        run, tool = accepted.admission.run, accepted.plan.definition.tool
        return RunRules(self._newest, self._spoken, accepted.identity, run, tool, accepted.args, accepted.now_ns)

    def _answering(self, accepted: Accepted, rules: RunRules) -> Answering:
        """What is said to whoever asked for it."""
        return Answering(accepted.admission.run, self._newest(), accepted.plan, accepted.args, rules, self._hidden)

    def _chain(self, plan: Plan) -> _Chain:
        """What all runs of a plan have in common, from memory while the same policies are loaded."""
        package = self._policies()
        known = self._chains.get(plan)
        if known is not None and known.terms.package is package:
            return known
        domain = self._newest()
        pack = domain.pack
        terms = ChainTerms(
            model_ref=f"rules:{pack.name}@{pack.settings.version}+{domain.digest}",
            package=package,
            pinned=pack.settings.governance_digest or package.digest,
            actions=plan.actions,
            plugin_digest=f"sha256:{pack.plugin_sha256}",
            gates=plan.gates,
            risk_tier=plan.risk_tier,
            sandbox=self._sandbox,
            pattern=plan.pattern,
        )
        extracted = {step.number for step in plan.definition.steps if self._spoken.reads(step.action)}
        if len(self._chains) >= _CHAINS:
            self._chains.clear()
        shipped = package.digest == terms.pinned == default_governance().digest
        reads = Reads(plan.read_by_steps, plan.told | extracted)
        found = self._chains[plan] = _Chain(terms, reads, plan.has_effects or not shipped)
        return found

    def _execution(self, accepted: Accepted, rules: RunRules, watch: RunObserver) -> RunExecutor:
        admission, run = accepted.admission, accepted.admission.run
        chain = self._chain(accepted.plan)
        terms = RunTerms(run, admission.digest, admission.approval, chain.terms) if chain.is_judged else None
        return RunExecutor(
            accepted,
            turns=None if terms is None else Turns(terms),
            reads=chain.reads,
            policies=self._policies,
            actions=ActionRunner(self._dispatcher, accepted.identity.name, self._claims.of(run)),
            rules=rules,
            observer=watch,
            seconds=self._limits.max_execution_ms / 1_000,
            events=self._events,
        )

    def _events(self, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
        return event_rows(events_of(outcomes, self._limits.max_events))

    async def _close(
        self, ended: ChainResult, events: tuple[Event, ...], answering: Answering, answer: Answer, journal: Journal
    ) -> Answer:
        """Close the last turn, then write the end down, then it may be told."""
        undecided = ended.reason == "needs_decision"
        try:
            witness = self._finished(ended, events, paused=undecided)
        except GateRefused as refused:
            if not ended.effects:
                refusal = gate_refused(refused, answering.told(ended, events))
                return await self._over(journal, "failed", None, refusal, ended.outcomes)
            undecided, witness = True, None
            ended = ended.undecided(refused)
            answer = answering.answer(ended, events, 0)
        if undecided:
            assert ended.culprit is not None
            await journal.undecided(ended.culprit, witness, encoded(answer))
            return answer
        return await self._over(journal, _end_state(ended, answer), witness, answer, ended.outcomes)

    def _finished(self, ended: ChainResult, events: tuple[Event, ...], *, paused: bool) -> Witness | None:
        """The witness of the last turn; None if the run has none."""
        if ended.turn is None:
            return None
        return ended.turn.finish(
            reads=ended.reads,
            events=event_rows(events),
            states=step_states(ended.outcomes),
            paused=paused,
        )

    async def _over(
        self,
        journal: Journal,
        end: EndState,
        witness: Witness | None,
        answer: Answer,
        outcomes: Sequence[Outcome] = (),
    ) -> Answer:
        lasting = not (isinstance(answer, WireError) and answer.row.recoverable)
        await journal.ended(end, witness, encoded(answer), outcomes, lasting=lasting)
        self._point("ended")
        return answer


def _end_state(ended: ChainResult, answer: Answer) -> EndState:
    if ended.reason == "cancelled":
        return "cancelled"
    return "succeeded" if isinstance(answer, InvokeResult) else "failed"
