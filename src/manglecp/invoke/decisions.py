"""Decisions about calls that clients ask for before they call."""

from __future__ import annotations

from collections.abc import Callable

from manglecp.intent import Call, Decision, Domain, Identity, ProofInputs, decide, default_arguments
from manglecp.invoke.decision_log import DecisionLog
from manglecp.mangle import instant_text
from manglecp.wire import refused_arguments, schema_errors
from manglecp.wire.messages import DecidePayload, DecideRequest, DecideResponse, DecideResult


def decide_call(domain: Domain, payload: DecidePayload, identity: Identity, now_ns: int) -> Decision:
    """Decide about a call as its admission would. Raises :class:`WireError`.

    With an intent, the tool is proven first as it would be offered, without the call; its arguments have to fit its
    schema, and get its defaults.
    """
    call = Call(payload.tool, payload.args, ProofInputs(payload.intent, tuple(payload.facts)))
    if payload.intent is None:
        return decide(domain, call, identity, now_ns, call.facts(domain))
    offer = decide(domain, call, identity, now_ns, ())
    if offer.definition is None:
        return offer
    if errors := schema_errors(payload.args, offer.definition.input_schema):
        raise refused_arguments(errors)
    call = call._replace(args={**default_arguments(offer.definition), **payload.args})
    return decide(domain, call, identity, now_ns, call.facts(domain), offered=offer.definition.chain_digest)


class DecisionService:
    """Decides about calls at the server's clock, and records the decisions."""

    def __init__(self, domain: Callable[[], Domain], clock: Callable[[], int], log: DecisionLog) -> None:
        """``domain`` returns the one with the newest facts; ``clock`` nanoseconds since 1970."""
        self._domain = domain
        self._clock = clock
        self._log = log

    def decide(self, request: DecideRequest, identity: Identity) -> Decision:
        """Return the decision; blocks. Raises :class:`WireError`."""
        return decide_call(self._domain(), request.payload, identity, self._clock())

    async def respond(self, request: DecideRequest, decision: Decision) -> DecideResponse:
        """Record the decision, and return the response with its id."""
        decision_id = await self._log.record(decision, "decide")
        result = DecideResult(
            verdict=decision.verdict,
            reasons=decision.public_reasons,
            decided_at=instant_text(decision.at_ns),
            decision=decision_id,
        )
        return DecideResponse(id=request.id, payload=result)
