"""Carrying out a run that was accepted, from its first step to the answer that is written down.

The last turn is closed on exactly what will be told; the end of the run is written down; then it may be told.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from manglecp.harness.policy.package import PolicyPackage
from manglecp.harness.witness import Witness
from manglecp.intent.domain import Domain
from manglecp.invoke.accepting import Accepted
from manglecp.invoke.answering import Answering
from manglecp.invoke.answers import Answer, encoded
from manglecp.invoke.claims import Claims
from manglecp.invoke.dispatching import Dispatched
from manglecp.invoke.giving_up import GivingUp
from manglecp.invoke.journal import EndState, Journal
from manglecp.invoke.observing import event_rows
from manglecp.invoke.outcomes import states_of
from manglecp.invoke.parties import Ended, Watch
from manglecp.invoke.refusals import Told, gate_refused
from manglecp.invoke.run_rules import RunRules, Spoken
from manglecp.invoke.running import Execution
from manglecp.invoke.turns import GateRefused, RunTerms, Turns
from manglecp.mangle.errors import MangleError
from manglecp.pack.model import Profile
from manglecp.toolhost.dispatch import Dispatcher
from manglecp.wire.errors import WireError
from manglecp.wire.messages.invocation import InvokeResult, StateDelta

__all__ = ["CarryingOut"]

_log = logging.getLogger(__name__)


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
        self._giving_up = GivingUp()

    async def answer(self, accepted: Accepted, watch: Watch) -> Answer:
        """What is to be told of the run, once that it is over is on record."""
        started = time.monotonic()
        definition, journal = accepted.proven.definition, accepted.journal
        rules, answering = self._told_by(accepted)
        await rules.prepare()
        try:
            ended = await self._execution(accepted, rules, watch).go()
        except GateRefused as refused:
            nothing = Told(run_id=accepted.admission.run, state_delta=msgspec.to_builtins(StateDelta()))
            return await self._over(journal, "failed", None, gate_refused(refused, nothing))
        except MangleError:
            _log.exception("the rules of %s failed during run %s", self._newest().pack.name, accepted.admission.run)
            failure = WireError("evaluation_failed", "The rules of this server failed on this run")
            return await self._over(journal, "failed", None, failure)
        watch.progress("", len(definition.steps), len(definition.steps))
        answer = answering.answer(ended, round((time.monotonic() - started) * 1_000))
        self._point("closing")
        return await self._close(ended, answering, answer, journal)

    def set_aside(self, accepted: Accepted, code: str) -> Answer:
        """What is to be told of a run that nobody carries out until a person has decided."""
        rules, answering = self._told_by(accepted)
        return answering.answer(self._execution(accepted, rules, Watch()).left(code), 0)

    def _told_by(self, accepted: Accepted) -> tuple[RunRules, Answering]:
        """What rules say about the run, and what is said to whoever asked for it."""
        definition = accepted.proven.definition
        run = accepted.admission.run
        rules = RunRules(
            self._newest, self._spoken, accepted.identity, run, definition.tool, accepted.args, accepted.now_ns
        )
        return rules, Answering(
            run=accepted.admission.run,
            domain=self._newest(),
            plan=accepted.plan,
            args=accepted.args,
            rules=rules,
        )

    def _execution(self, accepted: Accepted, rules: RunRules, watch: Watch) -> Execution:
        domain, plan = self._newest(), accepted.plan
        pack = domain.pack
        package = self._policies()
        terms = RunTerms(
            run=accepted.admission.run,
            model_ref=f"rules:{pack.name}@{pack.settings.version}+{domain.digest}",
            package=package,
            pinned=pack.settings.governance_digest or package.digest,
            actions=plan.actions,
            admission_digest=accepted.admission.digest,
            plugin_digest=f"sha256:{pack.plugin_sha256}",
            gates=plan.gates,
            risk_tier=plan.risk_tier,
            approval=accepted.admission.approval,
            sandbox=self._sandbox,
            pattern=plan.pattern,
        )
        return Execution(
            run=accepted.admission.run,
            plan=plan,
            args=accepted.args,
            turns=Turns(terms),
            policies=self._policies,
            actions=Dispatched(self._dispatcher, accepted.identity.name, self._claims.of(accepted.admission.run)),
            rules=rules,
            journal=accepted.journal,
            watch=watch,
            giving_up=self._giving_up,
            seconds=self._limits.max_execution_ms / 1_000,
            history=accepted.history,
            events=lambda outcomes: event_rows(outcomes, self._limits.max_events),
        )

    async def _close(self, ended: Ended, answering: Answering, answer: Answer, journal: Journal) -> Answer:
        """Close the last turn, then write the end down, then it may be told."""
        undecided = ended.reason == "needs_decision"
        try:
            witness = self._finished(ended, paused=undecided)
        except GateRefused as refused:
            if not ended.effects:
                return await self._over(journal, "failed", None, gate_refused(refused, answering.told(ended)))
            undecided, witness = True, None
            ended = ended.undecided(refused)
            answer = answering.answer(ended, 0)
        if undecided:
            assert ended.culprit is not None
            await journal.undecided(ended.culprit, witness, encoded(answer))
            return answer
        return await self._over(journal, _end_state(ended, answer), witness, answer)

    def _finished(self, ended: Ended, *, paused: bool) -> Witness | None:
        """The witness of the last turn; None if policies let none be opened."""
        if ended.turn is None:
            return None
        return ended.turn.finish(
            reads=ended.reads,
            events=event_rows(ended.outcomes, self._limits.max_events),
            states=states_of(ended.outcomes),
            paused=paused,
        )

    async def _over(self, journal: Journal, end: EndState, witness: Witness | None, answer: Answer) -> Answer:
        lasting = not (isinstance(answer, WireError) and answer.row.recoverable)
        await journal.ended(end, witness, encoded(answer), lasting=lasting)
        self._point("ended")
        return answer


def _end_state(ended: Ended, answer: Answer) -> EndState:
    if ended.reason == "cancelled":
        return "cancelled"
    return "succeeded" if isinstance(answer, InvokeResult) else "failed"
