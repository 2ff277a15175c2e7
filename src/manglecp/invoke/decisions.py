"""Decisions about calls that clients have not made yet, but may make later."""

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
    """Return the decision that the admission of this call would make. Raises :class:`WireError`.

    If an intent is given, the tool must first be offered for it, and the arguments must fit the schema of the offer.
    Arguments that are not given have the defaults of the tool.
    """
    call = Call(payload.tool, payload.args, ProofInputs(payload.intent, tuple(payload.facts)))
    offer_decision = decide(domain, call, identity, now_ns, ())
    if payload.intent is None:
        call = call._replace(args={**offer_decision.defaults, **payload.args})
        return decide(domain, call, identity, now_ns, call.facts(domain))
    if offer_decision.definition is None:
        return offer_decision
    if errors := schema_errors(payload.args, offer_decision.definition.input_schema):
        raise refused_arguments(errors)
    call = call._replace(args={**offer_decision.defaults, **payload.args})
    offered_digest = offer_decision.definition.chain_digest
    return decide(domain, call, identity, now_ns, call.facts(domain), offered=offered_digest)


class DecisionService:
    """Decides about calls at the server's clock, and records the decisions."""

    def __init__(
        self,
        domain: Callable[[], Domain],
        clock: Callable[[], int],
        log: DecisionLog,
        permits: PermitService,
        refresh_identity: Callable[[Identity], Identity],
    ) -> None:
        """Decide with the domain that ``domain`` returns, which has the newest facts.

        ``clock`` returns nanoseconds since 1970; ``refresh_identity`` returns an identity with its present rights.
        """
        self._domain = domain
        self._clock = clock
        self._log = log
        self._permits = permits
        self._refresh_identity = refresh_identity

    def decide(self, request: DecideRequest, identity: Identity) -> Decision | Identity:
        """Return the decision, or the identity that reports a permit's outcome. Blocks. Raises :class:`WireError`."""
        payload, identity = request.payload, self._refresh_identity(identity)
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
            permit, record = await self._permits.issue(payload, decision)
            decision_id = record.id
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
