"""Decisions about calls that clients ask for before they call."""

from __future__ import annotations

from collections.abc import Callable

from manglecp.intent import Call, Decision, Domain, Identity, ProofInputs, decide
from manglecp.invoke.admission import add_remedies
from manglecp.invoke.decision_log import DecisionLog
from manglecp.invoke.permits import PermitService
from manglecp.mangle import instant_text
from manglecp.wire import refused_arguments, schema_errors
from manglecp.wire.messages import UNSET, DecidePayload, DecideRequest, DecideResponse, DecideResult, Permit, UnsetType


def decide_call(domain: Domain, payload: DecidePayload, identity: Identity, now_ns: int) -> Decision:
    """Decide about a call as its admission would. Raises :class:`WireError`.

    The arguments get the defaults of the tool. With an intent, the tool is proven first as it would be offered, without
    the call, and the arguments have to fit its schema.
    """
    call = Call(payload.tool, payload.args, ProofInputs(payload.intent, tuple(payload.facts)))
    offer = decide(domain, call, identity, now_ns, ())
    if payload.intent is None:
        call = call._replace(args={**offer.defaults, **payload.args})
        return decide(domain, call, identity, now_ns, call.facts(domain))
    if offer.definition is None:
        return offer
    if errors := schema_errors(payload.args, offer.definition.input_schema):
        raise refused_arguments(errors)
    call = call._replace(args={**offer.defaults, **payload.args})
    return decide(domain, call, identity, now_ns, call.facts(domain), offered=offer.definition.chain_digest)


class DecisionService:
    """Decides about calls at the server's clock, and records the decisions."""

    def __init__(
        self,
        domain: Callable[[], Domain],
        clock: Callable[[], int],
        log: DecisionLog,
        permits: PermitService,
        current: Callable[[Identity], Identity],
    ) -> None:
        """``domain``: with the newest facts; ``clock``: nanoseconds since 1970; ``current``: with present rights."""
        self._domain = domain
        self._clock = clock
        self._log = log
        self._permits = permits
        self._current = current

    def decide(self, request: DecideRequest, identity: Identity) -> Decision | Identity:
        """Return the decision, or the identity that reports the outcome of a permit; blocks. Raises WireError."""
        payload, identity = request.payload, self._current(identity)
        if payload.report is not None:
            return identity
        decision = decide_call(self._domain(), payload, identity, self._clock())
        add_remedies(decision, decision.would_unlock)
        return decision

    async def respond(self, request: DecideRequest, decision: Decision | Identity) -> DecideResponse:
        """Record the decision, permit or outcome, and return the response with its id. Raises :class:`WireError`."""
        payload = request.payload
        if isinstance(decision, Identity):
            assert payload.report is not None
            return DecideResponse(id=request.id, payload=await self._permits.report(payload, payload.report, decision))
        permit: Permit | UnsetType = UNSET
        if payload.permit:
            permit, decision_id = await self._permits.issue(payload, decision)
        else:
            decision_id = await self._log.record(decision, "decide")
        result = DecideResult(
            verdict=decision.verdict,
            reasons=decision.public_reasons,
            would_unlock=decision.would_unlock,
            decided_at=instant_text(decision.at_ns),
            decision=decision_id,
            permit=permit,
        )
        return DecideResponse(id=request.id, payload=result)
