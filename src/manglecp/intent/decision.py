"""Decisions: whether a principal may call a tool with these arguments now.

A client may request a decision; admission, and the gate before the first effect, make the same decision again. Each
time the rules run for the principal as it is now, with the current rules and server facts, at the server's clock. No
earlier verdict and no validity window replaces this evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from manglecp.base.digest import digest, digest_bytes
from manglecp.base.json import escape_token
from manglecp.intent.chain import Rows, safety
from manglecp.intent.composition import COMPOSED, SELECTION, Composer
from manglecp.intent.definition import Definition, Flaw, SafetyData, default_arguments
from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import (
    CLOCK_TOLERANCE_NS,
    IntentEvaluation,
    PolicyRefusal,
    check_policy,
    derive,
    read_facts,
    request_facts,
)
from manglecp.intent.identity import Identity
from manglecp.intent.redaction import unchanged
from manglecp.mangle import INT_MAX, Fact, Key, Result
from manglecp.wire import UPGRADE, Fault, SchemaError, WireError, refused_arguments, schema_errors
from manglecp.wire.messages import Intent, Remedy

Verdict: TypeAlias = Literal["allow", "ask", "deny"]
NOT_PERMITTED: Final = "not permitted"
_INVALID_FACTS: Final = frozenset(  # error codes for stored facts that the current pack revision does not accept
    {"invalid_facts", "unknown_predicate", "arity_mismatch", "type_mismatch", "reserved_predicate", "too_many_facts"}
)


class ProofInputs(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """The client's part of an evaluation: the intent with its parameters, and the session facts."""

    intent: Intent | None = None
    """None for a decision about a call without an intent: policy alone decides."""
    facts: tuple[Any, ...] = ()
    """Fact objects. In an offer their times are absolute: ``now`` was replaced by the time of the first evaluation, so
    that a later proof does not move it."""

    @classmethod
    def of(cls, evaluation: IntentEvaluation, now_ns: int) -> ProofInputs:
        """Return the inputs of an evaluation at the server's time ``now_ns``.

        If the client's clock is ahead, times between ``now_ns`` and the client's evaluation time become ``now_ns``.
        """
        profile, session = evaluation.domain.profile, evaluation.session
        if 0 < evaluation.now - now_ns <= CLOCK_TOLERANCE_NS:
            session = [_by_server_clock(fact, now_ns, evaluation.now) for fact in session]
        return cls(evaluation.request.payload.intent, tuple([profile.write(fact) for fact in session]))

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @cached_property
    def digest(self) -> str:
        return digest_bytes(self.encode())

    @staticmethod
    def decode(data: bytes) -> ProofInputs:
        return _decoder.decode(data)

    def session_facts(self, domain: Domain, now_ns: int) -> list[Fact]:
        """Return the session facts. Raises :class:`WireError` if they do not fit the domain."""
        return domain.profile.read(list(self.facts), now_ns)


_decoder: Final = msgspec.json.Decoder(ProofInputs)


def _by_server_clock(fact: Fact, now: int, client_now: int) -> Fact:
    """Return the fact with times from ``now`` to ``client_now`` moved to ``now``; its interval does not grow."""
    start, end = fact.interval or (now, now)
    shift = max(start - now, 0) if start <= client_now else 0
    if now < end <= client_now:
        end = now
    elif end != INT_MAX:
        end -= shift
    return fact if fact.interval is None else fact._replace(interval=(start - shift, end))


def approval_waiver(identity: Identity, safety: SafetyData) -> str | None:
    """Return a reference to the token setting ``auto_confirm_effects`` if it waives the approval of a tool."""
    if not identity.waives_approval(safety):
        return None
    waived_effects = identity.auto_confirm_effects
    return "auto:" + digest({"identity": identity.name, "credential": identity.credential, "effects": waived_effects})


_TOOL_PREDICATES: Final[tuple[Key, ...]] = (
    *(("prohibited", 2), ("permitted", 1), ("public_reason", 2), ("kernel.may_run", 2)),
    *(("kernel.outdated", 2), ("macro", 2)),
    *(("macro_effect", 2), ("needs_confirmation", 1), ("needs_approval", 2), ("four_eyes", 1), ("macro_param", 3)),
)
_GENERAL_PREDICATES: Final[tuple[Key, ...]] = (
    *(("intent_denied", 1), ("fact_denied", 2), ("effect_denied", 2), ("permitted_only", 0)),
)


@dataclass(frozen=True)
class Judgement:
    """What policy derives about a call of ``tool``."""

    tool: str
    denials: tuple[Fact, ...]
    """The facts that deny the call."""
    rows: Rows
    """The facts that policy derives about the tool, by predicate."""
    redact: Callable[[Any], Any] = unchanged
    """Removes secret settings from reasons."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason of the denials, for operators; the last argument of a denial is its reason."""
        return tuple(dict.fromkeys([self.redact(str(fact.args[-1])) for fact in self.denials])) if self.denials else ()

    @property
    def public_reasons(self) -> tuple[str, ...]:
        rows = (*self.rows.get("public_reason", ()), *self.rows.get("kernel.outdated", ()))
        return tuple(self.redact(str(text)) for _, text in rows)

    @cached_property
    def safety(self) -> SafetyData:
        """The effects of the tool, and the approval that it needs; ``reversible`` and ``idempotent`` are not set."""
        rows = self.rows
        return safety(
            (str(effect) for _, effect in rows.get("macro_effect", ())),
            (),
            needs_confirmation="needs_confirmation" in rows,
            approver_roles=(str(role) for _, role in rows.get("needs_approval", ())),
            four_eyes="four_eyes" in rows,
        )


def judge(domain: Domain, tool: str, rows: Rows, session: Iterable[Fact] = ()) -> Judgement:
    """Return what policy derives about a call of the tool. ``session`` are the client's facts.

    ``rows`` has the facts of :func:`policy_rows`, and may have more predicates. If ``tool`` is empty, only the intent
    and the facts are judged.
    """
    denials = [Fact("intent_denied", row) for row in rows.get("intent_denied", ())]
    if "fact_denied" in rows:
        session_predicates = {fact.predicate for fact in session}
        denials += [Fact("fact_denied", row) for row in rows["fact_denied"] if row[0] in session_predicates]
    denials += [Fact("prohibited", row) for row in rows.get("prohibited", ())]
    denials += [Fact("kernel.outdated", row) for row in rows.get("kernel.outdated", ())]
    if tool and "permitted_only" in rows and "permitted" not in rows:
        denials.append(Fact("prohibited", (tool, NOT_PERMITTED)))
    if "effect_denied" in rows:
        actions = {action for _, action in rows.get("kernel.may_run", ())}
        denials += [Fact("effect_denied", row) for row in rows["effect_denied"] if row[0] in actions]
    return Judgement(tool, tuple(denials), rows, domain.redact)


def policy_rows(result: Result, tool: str) -> Rows:
    """Return what policy derives about the tool, for :func:`judge`."""
    return result.select(tool, _TOOL_PREDICATES, _GENERAL_PREDICATES)


class Call(NamedTuple):
    """A call to decide about."""

    tool: str
    args: Mapping[str, Any]
    """The arguments, with the defaults of the tool as far as they are known."""
    inputs: ProofInputs = ProofInputs()

    def facts(self, domain: Domain) -> list[Fact]:
        """Return the facts about the call that rules read. Raises :class:`WireError` for unusable arguments."""
        if not domain.run_rules.reads_call:
            return []
        try:
            return domain.run_rules.call_facts(self.tool, self.args)
        except Fault as fault:
            path = "".join(f"/{escape_token(str(step))}" for step in fault.steps)
            message = f"Rules read this argument, and it cannot become a fact: {fault.message}"
            raise refused_arguments([SchemaError(path=path, message=message, keyword="x-fact")]) from None


Scope: TypeAlias = Literal["proof", "policy", "undo"]
"""What is decided. ``proof``: whether policy permits the call and, if it has an intent, the tool is proven; ``policy``:
whether policy permits the call of a run under way, or an intent; ``undo``: whether policy denies an undo action."""


@dataclass(frozen=True)
class Decision:
    """The decision about a call at ``at_ns``, in nanoseconds since 1970."""

    domain: Domain
    call: Call
    identity: Identity
    at_ns: int
    result: Result
    judgement: Judgement
    reasons: tuple[str, ...]
    """Why the call is denied, for operators."""
    digest: str
    """The digest of all inputs of the evaluation, except the call."""
    definition: Definition | None = None
    """The definition of the tool, if it is proven for the intent of the call."""
    error: WireError | None = None
    """What the client of a denied call receives."""
    facts: tuple[Fact, ...] = ()
    """The facts about the call and its run."""
    offered: str | None = None
    """The chain digest of the offer that the call uses."""
    scope: Scope = "proof"
    verdict: Verdict = field(init=False)
    deciding: tuple[Fact, ...] = field(init=False)
    """The facts that deny the call, require an approval, or permit it."""
    public_reasons: tuple[str, ...] = field(init=False)
    """Why the call is denied or needs an approval, for the client."""

    def __post_init__(self) -> None:
        verdict: Verdict = "deny" if self.reasons else "allow"
        deciding, rows = self.judgement.denials, self.judgement.rows
        if not self.reasons:
            if "needs_confirmation" in rows and not self.identity.waives_approval(self.judgement.safety):
                verdict = "ask"
            predicates = ("permitted",) if verdict == "allow" else _APPROVALS
            deciding = tuple([Fact(name, row) for name in predicates for row in rows.get(name, ())])
        public_reasons = () if verdict == "allow" else self.judgement.public_reasons
        vars(self).update(verdict=verdict, deciding=deciding, public_reasons=public_reasons)  # the dataclass is frozen

    @property
    def rules(self) -> tuple[str, ...]:
        """The places, as ``file:line``, of the policy clauses that decided."""
        return tuple(
            sorted({place for fact in self.deciding for place in self.domain.clause_places(fact, self.result)})
        )

    @cached_property
    def would_unlock(self) -> tuple[Remedy, ...]:
        """Changes, each evaluated, with which a denied call would not be denied; the first use searches for them."""
        return self.find_remedies(0.1)

    def find_remedies(self, seconds: float) -> tuple[Remedy, ...]:
        from manglecp.intent.remedies import find_remedies  # imported late: few decisions need remedies

        return find_remedies(self, seconds)

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The defaults of the call arguments, also of a tool that is not proven."""
        if self.definition is not None:
            return default_arguments(self.definition)
        return Composer(self.domain, self.result, self.result.changed(COMPOSED)).defaults(self.call.tool)

    def proven(self) -> Definition:
        """Return the definition of the proven tool. Raises :class:`WireError` if the call is denied."""
        if self.error is not None:
            raise self.error
        assert self.definition is not None  # set for a decision about an intent without an error
        return self.definition


_APPROVALS: Final = ("needs_confirmation", "needs_approval", "four_eyes")


def decide(
    domain: Domain,
    call: Call,
    identity: Identity,
    now_ns: int,
    facts: Sequence[Fact],
    *,
    offered: str | None = None,
    scope: Scope = "proof",
) -> Decision:
    """Decide about a call. ``facts`` are those about the call and its run; see :meth:`Call.facts`.

    If the call has an intent, the tool must be proven for it, with the chain digest ``offered`` if one is given. Raises
    :class:`WireError` for facts that do not fit the domain, an exceeded limit, or arguments that do not fit the schema.
    """
    tool, args, inputs = call
    intent, facts = inputs.intent, (*facts, *domain.stale_facts(now_ns))
    try:
        client_facts = read_facts(domain, intent, list(inputs.facts), now_ns)
        session = [fact for fact in client_facts if fact.predicate != UPGRADE]
        client_and_call_facts = [*session, *request_facts(domain, intent, identity), *facts]
        result = derive(domain, client_and_call_facts, now_ns, domain.limits)
    except WireError as refusal:
        raise (_not_proven() if offered is not None and refusal.code in _INVALID_FACTS else refusal) from refusal
    changed_predicates = result.changed(COMPOSED)
    rows = result.select(tool, _TOOL_PREDICATES + SELECTION + changed_predicates, _GENERAL_PREDICATES)
    judgement = judge(domain, tool, rows, session)
    if scope != "proof":
        return judged(domain, call, identity, now_ns, result, judgement, facts, scope)
    reasons = judgement.reasons
    error: WireError | None = None
    definition: Definition | None = None
    if reasons:
        error = _denial(domain, result, identity, inputs, judgement)
    elif intent is None:
        if "macro" not in rows:
            reasons, error = ("no rule defines this tool",), WireError("macro_not_found", "There is no such tool")
    else:
        if "final_selected" in rows:
            definition = _compose(Composer(domain, result, changed_predicates), tool, rows)
        end = None if definition is None else definition.expires_at
        is_expired = end is not None and now_ns >= end
        if definition is None or is_expired or (offered is not None and definition.chain_digest != offered):
            reasons, error, definition = tuple(_absences(result, tool)), _not_proven(), None
        elif offered is None and (errors := schema_errors(args, definition.input_schema)):
            raise refused_arguments(errors)
    inputs_digest = _digest_of_inputs(domain, inputs, identity, now_ns)
    outcome = (judgement, reasons, inputs_digest, definition, error)
    return Decision(domain, call, identity, now_ns, result, *outcome, facts, offered)


def judged(
    domain: Domain,
    call: Call,
    identity: Identity,
    now_ns: int,
    result: Result,
    judgement: Judgement,
    facts: Iterable[Fact],
    scope: Scope,
) -> Decision:
    """Return the decision of a judgement by policy alone."""
    if scope == "undo":
        denials = tuple(fact for fact in judgement.denials if fact.predicate == "effect_denied")
        rows = {name: judgement.rows[name] for name in ("kernel.may_run", "macro_param") if name in judgement.rows}
        judgement = replace(judgement, denials=denials, rows=rows)  # an undo needs no approval
    inputs_digest, used = _digest_of_inputs(domain, call.inputs, identity, now_ns), tuple(facts)
    reasons = judgement.reasons
    return Decision(domain, call, identity, now_ns, result, judgement, reasons, inputs_digest, facts=used, scope=scope)


def refused_intent(refusal: PolicyRefusal) -> Decision:
    """Return the decision with which policy refused an intent or its facts; the decided call has no tool."""
    evaluation = refusal.evaluation
    inputs = ProofInputs.of(evaluation, evaluation.now)
    domain, result = evaluation.domain, evaluation.result
    judgement = judge(domain, "", policy_rows(result, ""), evaluation.session)
    call = Call("", {}, inputs)
    decision = judged(domain, call, evaluation.identity, evaluation.now, result, judgement, (), "policy")
    return replace(decision, error=refusal)


def _digest_of_inputs(domain: Domain, inputs: ProofInputs, identity: Identity, now_ns: int) -> str:
    caller = {"name": identity.name, "permissions": sorted(identity.permissions), "trust": identity.trust}
    content = {"pack": domain.digest, "facts": domain.facts_version, "identity": caller}
    return digest({**content, "inputs": inputs.digest, "now": str(now_ns)})


def _compose(composer: Composer, tool: str, rows: Rows) -> Definition | None:
    """Return the definition of a selected tool; None if the tool or a dependency cannot be composed."""
    try:
        definition = composer.compose(tool, rows)
    except Flaw:
        return None
    return composer.compose_all([tool])[0].get(tool) if definition.requires else definition


def _absences(result: Result, tool: str) -> Iterator[str]:
    """Yield why the rules do not prove a tool, which policy does not deny, in the form in which it was offered."""
    yield from (str(reason) for _, _, reason in result.find(("excluded", 3), tool))
    if result.find(("final_selected", 3), tool):
        yield "the tool is composed differently, cannot be composed, or is no longer valid"
    else:
        yield "no rule offers the tool for this intent"


def _denial(domain: Domain, result: Result, identity: Identity, inputs: ProofInputs, judgement: Judgement) -> WireError:
    try:
        check_policy(domain, result, identity, inputs.facts)
    except WireError as error:  # the intent or a fact is denied
        return error
    # After ``macro_expired`` a client evaluates the intent again. That is useless if the denial depends on the call.
    is_final = domain.run_rules.judges_calls or any(fact.predicate == "effect_denied" for fact in judgement.denials)
    if not judgement.public_reasons:
        return WireError("auth_insufficient", "Policy does not permit this call") if is_final else _not_proven()
    message = "Policy does not permit this call: " + "; ".join(judgement.public_reasons)
    details = {"reasons": list(judgement.public_reasons)}
    return WireError("auth_insufficient" if is_final else "macro_expired", message, details)


def _not_proven() -> WireError:
    return WireError("macro_expired", "The rules do not prove this macro-tool any more; evaluate the intent again")
