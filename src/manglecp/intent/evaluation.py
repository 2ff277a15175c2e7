"""Evaluate a request: check it, run the rules within its limits, read the selected tools.

Constraints, time and facts are checked first; a request that fails a check is not evaluated (EVAL-09). Denials by
policy are derived in the same run and read before anything else. Every evaluation starts from the immutable base.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from manglecp import wire
from manglecp.base.diagnostic import Diagnostic
from manglecp.base.text import quote
from manglecp.intent.action_tools import GENERAL_INTENT
from manglecp.intent.definition import Phase
from manglecp.intent.domain import Domain, EffectiveLimits, engine_limits
from manglecp.intent.identity import Identity
from manglecp.intent.redaction import EXPLAIN_POLICY
from manglecp.mangle import Fact, LimitError, MangleError, Result
from manglecp.wire.messages import Constraints, Diagnostics, Intent, IntentRequest

CLOCK_TOLERANCE_NS: Final = 60_000_000_000  # an evaluation time further from the server's clock is hypothetical
MAX_WHY_NOT_NAMES: Final = 16  # limit of names in x-why_not
PHASES: Final = 6  # phases of the kernel's rules, all of which every evaluation runs
# Matches possible values in a message of the engine: text in quotes or brackets, "the KIND VALUE", and numbers.
_VALUE: Final = re.compile(r"""['"`\[{(].*|(?<=\bthe )(?:[a-z0-9]+) [^a-z ].*|(?<= )-?\d.*""", re.DOTALL)
_log = logging.getLogger(__name__)


class Selected(NamedTuple):
    """A tool that the rules selected, from ``final_selected``."""

    tool: str
    score: int
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentEvaluation:
    """A request, its result, and the selected tools."""

    domain: Domain
    request: IntentRequest
    identity: Identity
    result: Result
    now: int  # evaluation time in nanoseconds since 1970
    session: list[Fact]  # the client's facts
    selected: tuple[Selected, ...]  # sorted by score, the highest first, then by name
    upgrades: frozenset[str] = frozenset()  # macro ids that the client wants in full
    duration_ns: int = 0

    def diagnostics(self) -> Diagnostics:
        """Return the counts; informational only (EVAL-29)."""
        return Diagnostics(
            facts_evaluated=self.result.statistics.given,
            facts_derived=max(0, self.result.statistics.derived - self.domain.base.derived),  # without the base
            rules_fired=self.result.rules_fired(),
            phases_completed=PHASES,
        )


class PolicyRefusal(wire.WireError):
    """Policy refuses the intent or a fact of a request."""

    def __init__(self, error: wire.WireError, evaluation: IntentEvaluation) -> None:
        super().__init__(error.code, error.message, error.details)
        self.evaluation = evaluation


def evaluate(
    domain: Domain, request: IntentRequest, identity: Identity, *, clock: Callable[[], int] = time.time_ns
) -> IntentEvaluation:
    """Evaluate a request at its own evaluation time, or without one at the time of the clock. Raises WireError.

    A denial by policy raises :class:`PolicyRefusal`.
    """
    payload = request.payload
    if (count := len(set(payload.options.why_not))) > MAX_WHY_NOT_NAMES:
        message = f"x-why_not names {count} tools, and at most {MAX_WHY_NOT_NAMES} are answered"
        raise wire.malformed(message, "$.payload.options.x-why_not", "ask in several requests")
    _check_intent(domain, payload.intent.name, identity)
    now = wire.read_eval_time(payload.eval_time, clock)
    started_at = time.perf_counter_ns()
    limits = _effective_limits(domain.limits, payload.constraints)
    client_facts = read_facts(domain, payload.intent, payload.facts, now)
    session = [fact for fact in client_facts if fact.predicate != wire.UPGRADE]
    request_inputs = [*session, *request_facts(domain, payload.intent, identity), *domain.stale_facts(now)]
    result = derive(domain, request_inputs, now, limits)
    selected_tools = [Selected(*cast("tuple[str, int, Phase]", row)) for row in result.rows(("final_selected", 3))]
    evaluation = IntentEvaluation(
        domain=domain,
        request=request,
        identity=identity,
        result=result,
        now=now,
        session=session,
        selected=tuple(sorted(selected_tools, key=lambda tool: (-tool.score, tool.tool))),
        upgrades=frozenset(str(fact.args[0]) for fact in client_facts if fact.predicate == wire.UPGRADE),
        duration_ns=time.perf_counter_ns() - started_at,
    )
    try:
        check_policy(domain, result, identity, payload.facts)
    except wire.WireError as error:
        raise PolicyRefusal(error, evaluation) from None
    return evaluation


def _check_intent(domain: Domain, name: str, identity: Identity) -> None:
    """Raise WireError for an intent that pack.toml does not list and no rule can match.

    Intents that only rules name are suggested only to callers with ``explain_policy``.
    """
    in_manifest = {intent.name for intent in domain.pack.settings.intents}
    if name in in_manifest or not domain.intents.isdisjoint((name, None)):
        return
    visible = in_manifest.union(filter(None, domain.intents)) if EXPLAIN_POLICY in identity.permissions else in_manifest
    fallback = "The manifest lists the intents of this server."
    if visible == {GENERAL_INTENT.name}:
        fallback = f"Did you mean '{GENERAL_INTENT.name}'?"
    suggestion = wire.did_you_mean(name, visible) or fallback
    message = f"No rule of this server can match the intent {quote(name)}"
    raise wire.WireError("x-unknown_intent", message, {"path": "$.payload.intent.name", "suggestion": suggestion})


def read_facts(domain: Domain, intent: Intent | None, facts: list[Any], now: int) -> list[Fact]:
    """Return the client's facts for an intent, upgrades included. Raises WireError.

    The parameters of the intent count as facts towards the limit, whether a rule reads them or not.
    """
    limit = domain.pack.settings.limits.max_facts_per_request
    param_count = 0 if intent is None else len(intent.params or ())
    if param_count and len(facts) + param_count > limit:
        raise wire.too_many_facts(len(facts) + param_count, limit)
    required_predicates = () if intent is None else domain.required.get(intent.name, ())
    if not facts and not required_predicates:
        return []
    return domain.profile.read(facts, now, limit=limit, required=required_predicates)


def _effective_limits(server: EffectiveLimits, constraints: Constraints) -> EffectiveLimits:
    return EffectiveLimits(
        _stricter(constraints.max_facts_created, server.facts),
        _stricter(constraints.max_intervals_per_atom, server.intervals),
        _stricter(constraints.max_compute_ms, server.milliseconds),
    )


def _stricter(client: int | None, server: int) -> int:
    return server if client is None else min(client, server)


def request_facts(domain: Domain, intent: Intent | None, identity: Identity) -> Iterator[Fact]:
    """Yield the facts about the intent and the caller. A parameter that no rule reads is no fact.

    Raises WireError for a parameter that a rule reads and a fact cannot hold.
    """
    if intent is not None:
        yield Fact("intent", (intent.name,))
    for key, value in ((intent and intent.params) or {}).items():
        if value is None or (domain.read_params is not None and key not in domain.read_params):
            continue  # null counts as absent
        try:
            yield Fact("intent_param", (key, wire.to_value(wire.wrap_unusual(value))))
        except wire.Fault as fault:
            raise wire.malformed(
                fault.message, fault.inside("payload", "intent", "params", key).path, fault.fix
            ) from None
    yield Fact("client", (identity.name,))
    yield Fact("client_trust", (identity.trust,))
    for permission in sorted(identity.permissions):
        yield Fact("client_permission", (permission,))


def derive(domain: Domain, facts: Sequence[Fact], now: int, limits: EffectiveLimits) -> Result:
    """Run the rules with facts of a request. Raises WireError."""
    if limits.milliseconds == 0:
        raise _timeout(0)
    try:
        return domain.base.evaluate(facts, now=now, check=False, limits=engine_limits(domain.base.derived, limits))
    except LimitError as error:
        raise _limit_error(error, limits) from None
    except MangleError as error:
        # Rules and their places are internal: the log and the cause of the error have them, the client does not. The
        # timeout of an external predicate is internal too: no limit of the client would give the predicate more time.
        for diagnostic in error.diagnostics:
            _log.error("the rules of %s failed: %s", domain.pack.name, _log_text(diagnostic))
        raise wire.WireError("evaluation_failed", "The rules of this server failed on this request") from error


def _log_text(diagnostic: Diagnostic) -> str:
    """Format place, cause and rule. Values of facts must not get into the log, so the cause ends at the first value."""
    cause = _VALUE.sub("…", diagnostic.message)
    location = "" if diagnostic.span is None else f"{diagnostic.span.source.name}:{diagnostic.span.line}: "
    rule = "" if diagnostic.clause is None else f", in {diagnostic.clause}"
    return " ".join(f"{location}{cause}{rule}".split())


def _limit_error(error: LimitError, limits: EffectiveLimits) -> wire.WireError:
    if error.unit == "seconds":
        return _timeout(limits.milliseconds)
    if error.unit.startswith("intervals"):
        advice = "Send fewer or wider intervals, or increase max_intervals_per_atom in constraints."
        count = limits.intervals
        return wire.budget_exceeded("interval_limit_exceeded", count, count, "intervals_per_atom", advice)
    if error.unit == "derived facts":
        advice = "Reduce the number of facts in the request, or increase max_facts_created in constraints."
        count = limits.facts
        return wire.budget_exceeded("derivation_limit_exceeded", count, count, "derived_facts", advice)
    unit = error.unit.replace(" ", "_")
    advice = "Reduce the number or the size of the facts in the request."
    return wire.budget_exceeded("derivation_limit_exceeded", error.limit, error.limit, unit, advice)


def _timeout(milliseconds: int) -> wire.WireError:
    advice = "Reduce the number of facts in the request, or increase max_compute_ms in constraints."
    return wire.budget_exceeded("evaluation_timeout", milliseconds, milliseconds, "ms", advice)


def check_policy(domain: Domain, result: Result, identity: Identity, facts: Sequence[Any]) -> None:
    """Raise WireError if policy denies the intent or a fact of the request.

    The error has the first reason that is also the text of a ``public_reason``. Other reasons are for operators, and
    for callers with ``explain_policy``.
    """
    intent_denials, fact_denials = result.rows(("intent_denied", 1)), result.rows(("fact_denied", 2))
    if not intent_denials and not fact_denials:
        return
    public = {text for _, text in result.rows(("public_reason", 2))}
    if EXPLAIN_POLICY in identity.permissions:
        public.update(row[-1] for row in (*intent_denials, *fact_denials))
    if intent_denials:
        code = "auth_required" if identity.anonymous else "auth_insufficient"
        shown_reasons = (domain.redact(str(reason)) for (reason,) in intent_denials if reason in public)
        raise wire.WireError(code, next(shown_reasons, "Policy does not permit this intent"))
    reasons: dict[str, str] = {}
    for predicate, reason in sorted(fact_denials, key=lambda row: row[1] not in public):
        text = domain.redact(str(reason)) if reason in public else "policy does not permit such a fact"
        reasons.setdefault(str(predicate), text)
    violations = [
        wire.Violation(fact_index=index, predicate=name, issue="policy_violation", message=reasons[name])
        for index, fact in enumerate(facts if reasons else ())
        if (name := fact["pred"]) in reasons
    ]
    if violations:
        raise wire.refused_facts(violations)
