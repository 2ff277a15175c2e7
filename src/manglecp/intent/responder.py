"""Responses to intent requests: evaluate, compose, fit into the budget, encode.

Every invalid request gets an error message. A failure of the server becomes ``internal_error`` without details; the
log has them.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final

import msgspec

from manglecp.intent.budget import FittedResponse, cap_tools, fit, initial_views, level_of, levels
from manglecp.intent.composition import Composer
from manglecp.intent.definition import Definition, Flaw
from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import CLOCK_TOLERANCE_NS, IntentEvaluation, evaluate
from manglecp.intent.identity import ANONYMOUS, Identity
from manglecp.intent.kernel import PREDICATES
from manglecp.intent.proof_hints import Hints, hints_wanted, rule_coverage
from manglecp.intent.redaction import EXPLAIN_POLICY
from manglecp.intent.tokens import counter
from manglecp.mangle import LimitError, instant_text, zone
from manglecp.mangle.syntax import Apply, subterms
from manglecp.pack import Pack
from manglecp.wire import WireError, budget_exceeded, encode, invalid_type, messages, receive

_SELECTING: Final = frozenset({"mandatory", "relevant", "requires"})
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ToolSelection:
    """The response for the client, and the definitions that the server keeps."""

    response: messages.IntentResponse
    evaluation: IntentEvaluation
    definitions: tuple[Definition, ...]  # definitions of the tools in the response, in the same order
    flaws: tuple[Flaw, ...] = ()  # why selected tools are missing; for the operator


def respond(
    domain: Domain, request: messages.IntentRequest, identity: Identity, clock: Callable[[], int] = time.time_ns
) -> ToolSelection:
    """Evaluate a request and return the response. Raises :class:`WireError`."""
    started_at = time.perf_counter_ns()
    evaluation = evaluate(domain, request, identity, clock=clock)
    options = request.payload.options
    deadline = _limit_explanations(evaluation) if hints_wanted(options) or _wants_coverage(evaluation) else math.inf
    disclosed, flaws = _disclose(evaluation)
    try:
        hints = Hints(evaluation, deadline) if hints_wanted(options) else None
        sources = {} if hints is None else _source_rules(hints.derivations([definition for definition, _ in disclosed]))
        fitted = _fit(evaluation, disclosed, sources)
        definitions = tuple(view.definition for view in fitted.views)
        proof_hints = messages.UNSET if hints is None else hints.about(definitions)
        diagnostics = _diagnostics(evaluation, fitted)
    except LimitError as error:
        advice = "Ask for fewer explanations, reduce the number of facts, or increase max_compute_ms in constraints."
        milliseconds = round(error.limit * 1_000)
        raise budget_exceeded("evaluation_timeout", milliseconds, milliseconds, "ms", advice) from None
    result = messages.IntentResult(
        eval_time_used=instant_text(evaluation.now),
        hypothetical=abs(evaluation.now - clock()) > CLOCK_TOLERANCE_NS or messages.UNSET,
        eval_duration_ms=(time.perf_counter_ns() - started_at) // 1_000_000,
        macro_tools=fitted.tools,
        proof_hints=proof_hints,
        required_skills=fitted.skills,
        diagnostics=diagnostics,
    )
    return ToolSelection(messages.IntentResponse(id=request.id, payload=result), evaluation, definitions, flaws)


def _wants_coverage(evaluation: IntentEvaluation) -> bool:
    """Return whether the response has the rule coverage: requested, and permitted to this client (OPEN-50)."""
    is_permitted = evaluation.domain.pack.settings.rule_coverage or EXPLAIN_POLICY in evaluation.identity.permissions
    return evaluation.request.payload.options.rule_coverage and is_permitted


def _limit_explanations(evaluation: IntentEvaluation) -> float:
    """Give explanations the compute time that the evaluation left, and return their deadline (monotonic)."""
    limit = evaluation.result.model.limits.seconds
    deadline = monotonic() + (math.inf if limit is None else max(limit - evaluation.duration_ns / 1e9, 0.0))
    evaluation.result.explainer.set_deadline(deadline)
    return deadline


def _disclose(evaluation: IntentEvaluation) -> tuple[list[tuple[Definition, messages.Level]], tuple[Flaw, ...]]:
    """Return the disclosed tools with their levels, best first, at most as many as the request allows; and the flaws.

    Score, preference and upgrades determine the level, then the tools are capped (OPEN-21).
    """
    payload = evaluation.request.payload
    settings, preference = evaluation.domain.pack.settings.disclosure, payload.options.disclosure_preference
    names = [
        selected.tool
        for selected in evaluation.selected
        # A tool below the thresholds may be an upgraded one: only a composition computes its macro id.
        if evaluation.upgrades or level_of(selected.score, settings, preference) is not None
    ]
    definitions, flaws = Composer(evaluation.domain, evaluation.result).compose_all(names)
    for tool, flaw in flaws.items():
        if evaluation.domain.logged_flaws.get(tool) is None:  # a flaw of the pack is logged once, not per request
            evaluation.domain.logged_flaws.put(tool, True)
            _log.warning("a selected tool is left out: %s", flaw.message)
    composed_tools = list(definitions.values())
    level_by_name = levels(composed_tools, settings, preference, evaluation.upgrades)
    leveled_tools = [definition for definition in composed_tools if definition.tool in level_by_name]
    capped_tools = cap_tools(leveled_tools, payload.constraints.max_tools_returned, evaluation.upgrades)
    return [(definition, level_by_name[definition.tool]) for definition in capped_tools], tuple(flaws.values())


def _fit(
    evaluation: IntentEvaluation, tools: list[tuple[Definition, messages.Level]], sources: dict[str, tuple[str, ...]]
) -> FittedResponse:
    pack = evaluation.domain.pack
    settings = pack.settings.disclosure
    token_counter = counter(settings.tokens)
    explained_tools = [
        (replace(tool, source_rules=sources[tool.macro_id]) if tool.macro_id in sources else tool, level)
        for tool, level in tools
    ]
    views = [
        view.changed(waived=evaluation.identity.waives_approval(view.definition.safety))
        for view in initial_views(explained_tools, pack.skills, token_counter, settings.inline_skill_tokens)
    ]
    budget = evaluation.request.payload.constraints.max_tokens_budget
    return fit(views, pack.skills, token_counter, budget, evaluation.upgrades)


def _source_rules(derivations: Iterable[messages.Derivation]) -> dict[str, tuple[str, ...]]:
    """Return, by macro id, the predicates of the pack in the proof of a tool (TOOL-20), or else those that select."""
    return {
        derivation.macro_id: tuple(name for name in derivation.rule_chain if name not in PREDICATES)
        or tuple(name for name in derivation.rule_chain if name in _SELECTING)
        for derivation in derivations
    }


def _diagnostics(evaluation: IntentEvaluation, fitted: FittedResponse) -> messages.Diagnostics:
    counting_method = counter(evaluation.domain.pack.settings.disclosure.tokens).by
    changes: dict[str, object] = {"tokens": {"count": fitted.tokens, "by": counting_method}}
    if len(fitted.tools) < len(evaluation.selected):
        changes["tools_proven"] = len(evaluation.selected)
    if evaluation.domain.facts_version:
        changes["facts_version"] = evaluation.domain.facts_version
    if _wants_coverage(evaluation):
        changes["rule_coverage"] = rule_coverage(evaluation)
    return msgspec.structs.replace(evaluation.diagnostics(), **changes)


def answer_bytes(domain: Domain, data: bytes, identity: Identity, clock: Callable[[], int] = time.time_ns) -> bytes:
    """Return the encoded response to an encoded intent request, valid or not."""
    message: messages.Message | None = None
    try:
        settings = domain.pack.settings
        message = receive(data, settings.limits.max_message_bytes, structured_facts=settings.structured_facts)
        if not isinstance(message, messages.IntentRequest):
            raise invalid_type(str(message.__struct_config__.tag), ("intent_request",), "is not answered here")
        return encode(respond(domain, message, identity, clock).response)
    except WireError as error:
        return encode(error.to_message(error.id if message is None else message.id))
    except Exception:
        _log.exception("an intent request failed in the server")
        failure = WireError("internal_error", "The server failed on this request")
        return encode(failure.to_message(None if message is None else message.id))


# Warming up loads the token vocabulary, time zones and generated code. The first request of the incident example takes
# 63 to 69 ms without a warm-up, and 0.9 to 1.2 ms after one. A server warms up before it listens. Loading a domain does
# not warm up, because a check of a pack needs no warm-up.
MAX_WARM_UP_SECONDS: Final = 2.0  # after this time, no further intent is evaluated
_WARM_UP: Final = "x-warm-up"


def request_message(kind: str, payload: Mapping[str, Any], pack: Pack, request_id: str) -> Any:
    """Build a request for a caller in this process; decode it with all checks of a server. Raises WireError.

    ``kind`` is the type of the message, such as ``intent_request``.
    """
    envelope = {"type": kind, "id": request_id, "manglecp": messages.VERSION, "payload": payload}
    data = json.dumps(envelope, ensure_ascii=False).encode(errors="surrogatepass")  # msgspec writes no surrogates
    limit, structured = pack.settings.limits.max_message_bytes, pack.settings.structured_facts
    return receive(data, limit, structured_facts=structured)


def warm_up(domain: Domain) -> None:
    """Evaluate every listed intent once, unless the pack has external predicates, and discard the responses."""
    counter(domain.pack.settings.disclosure.tokens).count(b"warm")
    for name in _zone_names(domain):
        zone(name)
    if domain.pack.externals:
        return
    started_at = monotonic()
    # Without intents in pack.toml, an intent that rules name; without such an intent, any name.
    for name in [intent.name for intent in domain.pack.settings.intents] or [
        min(filter(None, domain.intents), default=_WARM_UP)
    ]:
        if monotonic() - started_at < MAX_WARM_UP_SECONDS:
            payload = {"intent": {"name": name}, "facts": []}
            request = {"type": "intent_request", "id": _WARM_UP, "manglecp": messages.VERSION, "payload": payload}
            answer_bytes(domain, msgspec.json.encode(request), ANONYMOUS)


def _zone_names(domain: Domain) -> Iterator[str]:
    """Yield the texts in arguments of time functions: zones, and formats, which :func:`zone` ignores."""
    for rule in domain.program.rules:
        for term in subterms(*rule.clause.terms):
            if isinstance(term, Apply) and term.function.startswith("fn:time:"):
                yield from (arg for arg in term.args if isinstance(arg, str))
