"""The whole way: bytes, a request, an evaluation, definitions, an answer that fits, bytes.

Everything that can be wrong with a request is an error message that answers it. What goes wrong in the server itself is
one too, ``internal_error``, which tells the client nothing but that; the log has the rest.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from manglecp.intent.budget import Fitted, at_first, capped, fit, level_of, levels
from manglecp.intent.composition import Composer
from manglecp.intent.definition import Definition, Flaw
from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import Evaluation, evaluate
from manglecp.intent.identity import ANONYMOUS, Identity
from manglecp.intent.kernel import PREDICATES
from manglecp.intent.proof_hints import Hints, hints_wanted, rule_coverage
from manglecp.intent.tokens import counter
from manglecp.mangle import LimitError, zone
from manglecp.mangle.syntax import Apply, Clause, Equality, Term
from manglecp.wire import WireError, budget_exceeded, encode, invalid_type, receive
from manglecp.wire.messages import (
    UNSET,
    VERSION,
    Derivation,
    Diagnostics,
    IntentRequest,
    IntentResponse,
    IntentResult,
    Level,
    Message,
)

if TYPE_CHECKING:
    from manglecp.intent.domain import Domain


_SPEAKING: Final = frozenset({"mandatory", "relevant", "requires"})
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client is sent, and what the server keeps."""

    response: IntentResponse
    definitions: tuple[Definition, ...]
    """Of the tools in the response, in their order."""
    flaws: tuple[Flaw, ...] = ()
    """Why selected tools are missing: what the rules say about them makes no tool. For whoever runs the server."""


def respond(
    domain: Domain, request: IntentRequest, identity: Identity, clock: Callable[[], int] = time.time_ns
) -> Answer:
    """The answer to a request; a :class:`WireError` if there is none."""
    started = time.perf_counter_ns()
    evaluation = evaluate(domain, request, identity, clock=clock)
    options = request.payload.options
    deadline = _explain_in_time(evaluation) if hints_wanted(options) or options.rule_coverage else math.inf
    disclosed, flaws = _disclosed(evaluation)
    try:
        hints = Hints(evaluation, deadline) if hints_wanted(options) else None
        sources = {} if hints is None else _sources(hints.derivations([one for one, _ in disclosed]))
        fitted = _fitted(evaluation, disclosed, sources)
        definitions = tuple(shown.definition for shown in fitted.shown)
        told = UNSET if hints is None else hints.about(definitions)
        diagnostics = _diagnostics(evaluation, fitted)
    except LimitError as error:
        raise _late(error) from None
    result = IntentResult(
        eval_time_used=evaluation.eval_time_used,
        eval_duration_ms=(time.perf_counter_ns() - started) // 1_000_000,
        macro_tools=fitted.tools,
        proof_hints=told,
        required_skills=fitted.skills,
        diagnostics=diagnostics,
    )
    return Answer(IntentResponse(id=request.id, payload=result), definitions, flaws)


def _explain_in_time(evaluation: Evaluation) -> float:
    """When the time of a request is over: explaining is part of it, and ends then."""
    limit = evaluation.result.model.limits.seconds
    deadline = time.monotonic() + (math.inf if limit is None else max(limit - evaluation.duration_ns / 1e9, 0.0))
    evaluation.result.explain_until(deadline)
    return deadline


def _late(error: LimitError) -> WireError:
    advice = "Ask for fewer explanations, reduce the number of facts, or increase max_compute_ms in constraints."
    milliseconds = round(error.limit * 1_000)
    return budget_exceeded("evaluation_timeout", milliseconds, milliseconds, "ms", advice)


def _disclosed(evaluation: Evaluation) -> tuple[list[tuple[Definition, Level]], tuple[Flaw, ...]]:
    """The tools that are to be shown, best first: by score, preference and upgrade, then the cap (OPEN-21)."""
    payload = evaluation.request.payload
    settings, preference = evaluation.domain.pack.settings.disclosure, payload.options.disclosure_preference
    wanted = [
        one.tool
        for one in evaluation.selected
        # A tool that is left out by its score is composed only to see whether it is one that was asked for.
        if evaluation.upgrades or level_of(one.score, settings, preference) is not None
    ]
    composed, flaws = Composer(evaluation).all(wanted)
    for tool, flaw in flaws.items():
        if evaluation.domain.logged_flaws.get(tool) is None:  # a flaw of the pack is logged once, not per request
            evaluation.domain.logged_flaws.put(tool, True)
            _log.warning("a selected tool is left out: %s", flaw.message)
    shown = levels(composed, settings, preference, evaluation.upgrades)
    most = payload.constraints.max_tools_returned
    kept = capped([one for one in composed if one.tool in shown], most, evaluation.upgrades)
    return [(one, shown[one.tool]) for one in kept], tuple(flaws.values())


def _fitted(
    evaluation: Evaluation, tools: list[tuple[Definition, Level]], sources: dict[str, tuple[str, ...]]
) -> Fitted:
    """What of them goes into the budget (OPEN-22)."""
    pack = evaluation.domain.pack
    settings = pack.settings.disclosure
    counting = counter(settings.tokens)
    explained = [
        (replace(tool, source_rules=sources[tool.macro_id]) if tool.macro_id in sources else tool, level)
        for tool, level in tools
    ]
    first = at_first(explained, pack.skills, counting, settings.inline_skill_tokens)
    budget = evaluation.request.payload.constraints.max_tokens_budget
    return fit(first, pack.skills, counting, budget, evaluation.upgrades)


def _sources(derivations: Iterable[Derivation]) -> dict[str, tuple[str, ...]]:
    """The predicates that a tool's proof goes through, by macro_id; told to whoever asked why (TOOL-20). Those of the
    kernel say little about the tool, and stand there only where the pack has none of its own."""
    chains = {one.macro_id: one.rule_chain for one in derivations}
    return {
        macro_id: tuple(name for name in chain if name not in PREDICATES)
        or tuple(name for name in chain if name in _SPEAKING)
        for macro_id, chain in chains.items()
    }


def _diagnostics(evaluation: Evaluation, fitted: Fitted) -> Diagnostics:
    by = counter(evaluation.domain.pack.settings.disclosure.tokens).by
    changes: dict[str, object] = {"tokens": {"count": fitted.tokens, "by": by}}
    if len(fitted.tools) < len(evaluation.selected):
        changes["tools_proven"] = len(evaluation.selected)
    if evaluation.domain.facts_version:
        changes["facts_version"] = evaluation.domain.facts_version
    if evaluation.request.payload.options.rule_coverage:
        changes["rule_coverage"] = rule_coverage(evaluation)
    return msgspec.structs.replace(evaluation.diagnostics(), **changes)


def answer_bytes(domain: Domain, data: bytes, identity: Identity, clock: Callable[[], int] = time.time_ns) -> bytes:
    """The bytes that answer the bytes of an intent request, whatever they are."""
    message: Message | None = None
    try:
        settings = domain.pack.settings
        message = receive(data, settings.limits.max_message_bytes, structured_facts=settings.structured_facts)
        if not isinstance(message, IntentRequest):
            raise invalid_type(_type(message), ("intent_request",), "is not answered here")
        return encode(respond(domain, message, identity, clock).response)
    except WireError as error:
        return encode(error.answering(error.id if message is None else message.id))
    except Exception:
        _log.exception("an intent request could not be answered")
        failure = WireError("internal_error", "The server failed on this request")
        return encode(failure.answering(None if message is None else message.id))


def _type(message: Message) -> str:
    return str(message.__struct_config__.tag)


# What the first request would otherwise pay for: the vocabulary of the token counter, time zones, generated code.
#
# Measured on the incident example, five fresh processes on two cores: the first request takes 63 to 69 ms without
# this and 0.9 to 1.2 ms after it, and warming up takes 67 to 71 ms. Most of it is the vocabulary, which is loaded
# once for a process. On a busy machine all of these are a few times as long.
#
# A server warms up each domain before it listens. Loading does not do it by itself: whoever checks a pack, asks one
# question from a shell or reads a manifest would pay for what is never used.


SECONDS: Final = 2.0
"""No request is begun later than this."""
_NOBODY: Final = "x-warm-up"
"""An intent that no pack has, for a pack that lists none."""


def warm_up(domain: Domain) -> None:
    """Ask what anybody may ask, and forget the answers. What a request brings ends with it, so no answer changes.

    External predicates are not asked: where a pack has some, rules are not run.
    """
    counter(domain.pack.settings.disclosure.tokens).count(b"warm")
    for name in _zones(domain):
        zone(name)
    if domain.pack.externals:
        return
    begun = monotonic()
    for intent in [one.name for one in domain.pack.settings.intents] or [_NOBODY]:
        if monotonic() - begun < SECONDS:
            answer_bytes(domain, _request(intent), ANONYMOUS)


def _request(intent: str) -> bytes:
    payload = {"intent": {"name": intent}, "facts": []}
    return msgspec.json.encode({"type": "intent_request", "id": _NOBODY, "manglecp": VERSION, "payload": payload})


def _zones(domain: Domain) -> Iterator[str]:
    """Texts that rules hand to functions of time: the names of zones are among them, and others are none."""
    for rule in domain.program.rules:
        for term in _terms(rule.clause):
            if isinstance(term, Apply) and term.function.startswith("fn:time:"):
                yield from (arg for arg in term.args if isinstance(arg, str))


def _terms(clause: Clause) -> Iterator[Term]:
    work: list[Term] = [*clause.head.args, *(let.expression for one in clause.transforms for let in one.lets)]
    for premise in clause.premises:
        work += (premise.left, premise.right) if isinstance(premise, Equality) else premise.atom.args
    while work:
        term = work.pop()
        yield term
        if isinstance(term, Apply):
            work += term.args
