"""Decisions: whether a principal may call a tool with these arguments now.

A client may request a decision; admission and the gate before the first effect make the same one. Each runs the rules
again: for the principal as it is now, with the current rules and server facts, at the server's clock. No earlier
verdict and no validity window replaces it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from manglecp.base.digest import digest, digest_bytes
from manglecp.base.json import escape_token
from manglecp.intent.chain import safety
from manglecp.intent.composition import Composer
from manglecp.intent.definition import Definition, SafetyData
from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import CLOCK_TOLERANCE_NS, IntentEvaluation, Lookup, check_policy, evaluate_at
from manglecp.intent.identity import Identity
from manglecp.mangle import Fact
from manglecp.wire import UPGRADE, Fault, SchemaError, WireError, refused_arguments, schema_errors
from manglecp.wire.messages import Intent, IntentPayload, IntentRequest

Verdict: TypeAlias = Literal["allow", "ask", "deny"]
NOT_PERMITTED: Final = "not permitted"
_INVALID_FACTS: Final = frozenset(  # codes of errors: another pack revision does not accept the stored facts
    {"invalid_facts", "unknown_predicate", "arity_mismatch", "type_mismatch", "reserved_predicate", "too_many_facts"}
)


class ProofInputs(msgspec.Struct, frozen=True, omit_defaults=True):
    """The client's part of an evaluation: the intent with its parameters, and the session facts."""

    intent: Intent | None = None
    """None for a decision about a call without an intent: policy alone decides."""
    facts: tuple[Any, ...] = ()
    """Fact objects with absolute times: ``now`` became the evaluation time, and must not become a later one."""

    @classmethod
    def of(cls, evaluation: IntentEvaluation, now_ns: int) -> ProofInputs:
        """Return the inputs of an evaluation at the server's time ``now_ns``.

        If the client's clock is ahead, ``now`` in its facts is the server's time: decisions are made by that clock.
        """
        payload, profile, session = evaluation.request.payload, evaluation.domain.profile, evaluation.session
        if 0 < evaluation.now - now_ns <= CLOCK_TOLERANCE_NS:
            with suppress(WireError):  # an interval may have become empty
                session = [fact for fact in profile.read(payload.facts, now_ns) if fact.predicate != UPGRADE]
        return cls(payload.intent, tuple([profile.write(fact) for fact in session]))

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @staticmethod
    def decode(data: bytes) -> ProofInputs:
        return _decoder.decode(data)

    def session_facts(self, domain: Domain) -> list[Fact]:
        """Return the session facts. Raises :class:`WireError` if they do not fit the domain."""
        return domain.profile.read(list(self.facts), 0)  # no fact refers to ``now``, so the evaluation time is unused


_decoder: Final = msgspec.json.Decoder(ProofInputs)


def approval_waiver(identity: Identity, safety: SafetyData) -> str | None:
    """Return a reference to the token setting ``auto_confirm_effects`` if it waives the approval of a tool."""
    if not identity.waives_approval(safety):
        return None
    waived = identity.auto_confirm_effects
    return "auto:" + digest({"identity": identity.name, "credential": identity.credential, "effects": waived})


@dataclass(frozen=True, slots=True)
class Judgement:
    """What policy derives about a call."""

    denials: tuple[Fact, ...]
    """The facts that deny the call."""
    public_reasons: tuple[str, ...]
    safety: SafetyData
    """The effects of the tool, and the approval that it needs; ``reversible`` and ``idempotent`` are not set."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason of the denials, for operators; the last argument of a denial is its reason."""
        return tuple(dict.fromkeys(str(fact.args[-1]) for fact in self.denials))


def judge(lookup: Lookup, tool: str, stated: Collection[str] = ()) -> Judgement:
    """Return what policy derives about a call of ``tool``. ``stated`` are the predicates of the client's facts."""
    denials = [Fact("intent_denied", row) for row in lookup.all("intent_denied", 1)]
    denials += [Fact("fact_denied", row) for row in lookup.all("fact_denied", 2) if row[0] in stated]
    denials += [Fact("prohibited", row) for row in lookup.rows("prohibited", 2, tool)]
    if lookup.all("permitted_only", 0) and not lookup.rows("permitted", 1, tool):
        denials.append(Fact("prohibited", (tool, NOT_PERMITTED)))
    for _, action in lookup.rows("kernel.may_run", 2, tool):
        denials += [Fact("effect_denied", row) for row in lookup.rows("effect_denied", 2, action)]
    needs = safety(
        (str(effect) for _, effect in lookup.rows("macro_effect", 2, tool)),
        (),
        needs_confirmation=bool(lookup.rows("needs_confirmation", 1, tool)),
        approver_roles=(str(role) for _, role in lookup.rows("needs_approval", 2, tool)),
        four_eyes=bool(lookup.rows("four_eyes", 1, tool)),
    )
    return Judgement(tuple(denials), tuple(str(text) for _, text in lookup.rows("public_reason", 2, tool)), needs)


class Call(NamedTuple):
    """A call to decide about."""

    tool: str
    args: Mapping[str, Any]
    """With the defaults of the tool, as far as they are known."""
    inputs: ProofInputs = ProofInputs()

    def facts(self, domain: Domain) -> list[Fact]:
        """Return the facts that policy may judge the call by. Raises :class:`WireError`."""
        try:
            return domain.run_rules.call_facts(self.tool, self.args)
        except Fault as fault:
            path = "".join(f"/{escape_token(str(step))}" for step in fault.steps)
            message = f"Rules read this argument, and it cannot become a fact: {fault.message}"
            raise refused_arguments([SchemaError(path=path, message=message, keyword="x-fact")]) from None


class Decision(NamedTuple):
    """The decision about a call at ``at_ns`` (since 1970)."""

    tool: str
    verdict: Verdict
    reasons: tuple[str, ...]
    """Why it is denied, for operators."""
    public_reasons: tuple[str, ...]
    """Why it is denied or needs an approval, for the client."""
    rules: tuple[str, ...]
    """The places of the policy rules and facts that decided, as ``file:line``."""
    at_ns: int
    digest: str
    """Of all inputs of the evaluation, except the call."""
    definition: Definition | None = None
    """Of the tool, if it is proven for the intent of the call."""
    error: WireError | None = None
    """What the client of a denied call receives."""

    def proven(self) -> Definition:
        """Return the definition of the proven tool. Raises :class:`WireError` if the call is denied."""
        if self.error is not None:
            raise self.error
        assert self.definition is not None  # the call had an intent
        return self.definition


def decide(
    domain: Domain,
    call: Call,
    identity: Identity,
    now_ns: int,
    facts: Sequence[Fact],
    *,
    offered: Definition | None = None,
) -> Decision:
    """Decide about a call. ``facts`` are those about the call and its run; see :meth:`Call.facts`.

    With an intent the tool must be proven for it, and with the same chain as ``offered``. Raises :class:`WireError` for
    facts that do not fit the domain, an exceeded limit, and arguments that do not fit the schema of the tool.
    """
    intent, tool = call.inputs.intent, call.tool
    request = IntentRequest(id="", payload=IntentPayload(intent=intent or _NO_INTENT, facts=list(call.inputs.facts)))
    try:
        evaluation = evaluate_at(now_ns, domain, request, identity, facts)
    except WireError as refusal:
        raise (_not_proven() if offered is not None and refusal.code in _INVALID_FACTS else refusal) from refusal
    judgement = judge(evaluation.lookup, tool, {fact.predicate for fact in evaluation.session})
    reasons = judgement.reasons
    error: WireError | None = None
    definition: Definition | None = None
    if reasons:
        error = _denied(evaluation, judgement)
    elif intent is None:
        if not evaluation.lookup.rows("macro", 2, tool):
            reasons, error = ("no rule defines this tool",), WireError("macro_not_found", "There is no such tool")
    else:
        definition = _compose(evaluation, tool)
        if definition is None or (offered is not None and definition.chain_digest != offered.chain_digest):
            reasons, error = tuple(_absences(evaluation, tool)), _not_proven()
            definition = None
        elif offered is None and (errors := schema_errors(call.args, definition.input_schema)):
            raise refused_arguments(errors)
    needs = judgement.safety
    asks = needs.requires_user_confirmation and not identity.waives_approval(needs)
    verdict: Verdict = "deny" if reasons else "ask" if asks else "allow"
    return Decision(
        tool=tool,
        verdict=verdict,
        reasons=reasons,
        public_reasons=() if verdict == "allow" else judgement.public_reasons,
        rules=_rules(evaluation, tool, judgement, verdict),
        at_ns=now_ns,
        digest=_digest(domain, call.inputs, identity, now_ns),
        definition=definition,
        error=error,
    )


_NO_INTENT: Final = Intent(name="")


def _compose(evaluation: IntentEvaluation, tool: str) -> Definition | None:
    """Return the definition of the tool; None if it is not selected, or it or a dependency cannot be composed."""
    if not any(selected.tool == tool for selected in evaluation.selected):
        return None
    definitions, _ = Composer(evaluation).compose_all([tool])  # of the tool and its dependencies
    return next((definition for definition in definitions if definition.tool == tool), None)


def _absences(evaluation: IntentEvaluation, tool: str) -> Iterator[str]:
    """Yield why a tool that policy does not deny is not proven for the intent as it was offered."""
    yield from (str(reason) for _, _, reason in evaluation.lookup.rows("excluded", 3, tool))
    if any(selected.tool == tool for selected in evaluation.selected):
        yield "the tool is composed differently, or cannot be composed"
    else:
        yield "no rule offers the tool for this intent"


def _denied(evaluation: IntentEvaluation, judgement: Judgement) -> WireError:
    try:
        check_policy(evaluation)
    except WireError as error:  # the intent or a fact is denied
        return error
    # The same tool is offered again where policy judges only the call, so a new evaluation would not help.
    is_final = evaluation.domain.run_rules.judges_calls or any(
        fact.predicate == "effect_denied" for fact in judgement.denials
    )
    if not judgement.public_reasons:
        return WireError("auth_insufficient", "Policy does not permit this call") if is_final else _not_proven()
    message = "Policy does not permit this call: " + "; ".join(judgement.public_reasons)
    details = {"reasons": list(judgement.public_reasons)}
    return WireError("auth_insufficient" if is_final else "macro_expired", message, details)


def _not_proven() -> WireError:
    return WireError("macro_expired", "The rules do not prove this macro-tool any more; evaluate the intent again")


def _rules(evaluation: IntentEvaluation, tool: str, judgement: Judgement, verdict: Verdict) -> tuple[str, ...]:
    """Return the places of the clauses of the denials, of the need for an approval, or of the permission."""
    if verdict == "deny":
        facts: Sequence[Fact] = judgement.denials
    else:
        predicates = _APPROVALS if verdict == "ask" else {"permitted": 1}
        rows = ((name, evaluation.lookup.rows(name, arity, tool)) for name, arity in predicates.items())
        facts = [Fact(name, row) for name, found in rows for row in found]
    places = {place for fact in facts for place in evaluation.domain.clause_places(fact, evaluation.result)}
    return tuple(sorted(places))


_APPROVALS: Final = {"needs_confirmation": 1, "needs_approval": 2, "four_eyes": 1}


def _digest(domain: Domain, inputs: ProofInputs, identity: Identity, now_ns: int) -> str:
    return digest(
        {
            "pack": domain.digest,
            "facts": domain.facts_version,
            "identity": {"name": identity.name, "permissions": sorted(identity.permissions), "trust": identity.trust},
            "inputs": digest_bytes(inputs.encode()),
            "now": str(now_ns),
        }
    )
