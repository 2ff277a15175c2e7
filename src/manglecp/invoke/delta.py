"""The state delta of a run, and the intents and facts that rules suggest for the next request.

The pack's rules derive the facts; this module encodes them as the manifest declares them. A fact whose predicate is not
published, or whose values do not fit its declaration, is left out and logged: the run has ended and cannot fail.

A delta has a limited number of facts (requirements OBS-05, OPEN-45). Above the limit, the facts of the most frequent
predicates are *rolled up*: one fact ``bulk_asserted(Predicate, Count)`` or ``bulk_retracted`` replaces all facts of a
predicate. If the rules themselves have derived the rollup of a predicate, it is not added again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias, cast

from manglecp.intent import Domain
from manglecp.invoke.progress import clean
from manglecp.invoke.run_rules import RuleRows
from manglecp.mangle import Fact, List, NotPlain, Time, Value, plain_json, row_accepts
from manglecp.wire import PROVENANCE_CATEGORIES, WILDCARD, Category, Fault
from manglecp.wire.messages import UNSET, Next, StateDelta, SuggestedIntent

JsonFact: TypeAlias = dict[str, Any]
"""A fact as in a message: ``pred``, ``args`` and further members."""
MAX_FACTS: Final = 50
MAX_SUGGESTIONS: Final = 10
_ASSERTED: Final = "bulk_asserted"
_RETRACTED: Final = "bulk_retracted"
_SERVER: Final = "server"
_log = logging.getLogger(__name__)


def state_delta(rows: RuleRows, domain: Domain, max_facts: int = MAX_FACTS) -> StateDelta:
    """Return the facts to assert and to retract; rolled up if there are more than ``max_facts`` of either."""
    asserted = list(_assertions(rows, domain))
    retracted = list(_retractions(rows, domain))
    source = {"source_type": "derived"}
    return StateDelta(
        asserts=tuple(_roll_up(asserted, _ASSERTED, max_facts, category="derived", source=source)),
        retract=tuple(_roll_up(retracted, _RETRACTED, max_facts)),
    )


def next_of(rows: RuleRows, domain: Domain, max_facts: int = MAX_FACTS) -> Next:
    """Return suggested intents and the facts for the next request; only those that the manifest publishes."""
    facts = [
        fact
        for predicate, args in rows["continues_with"]
        if (fact := _encode(domain, str(predicate), args)) is not None and fact["pred"] in domain.profile.assertable
    ]
    names = {intent.name for intent in domain.pack.settings.intents}
    suggestions = [
        _suggestion(str(name), params, str(why))
        for name, params, why in rows["suggests"]
        if not names or name in names  # a manifest without intents does not restrict them
    ]
    return Next(suggested_intents=tuple(suggestions[:MAX_SUGGESTIONS]), continuation_facts=tuple(facts[:max_facts]))


def _suggestion(name: str, params: Value, why: str) -> SuggestedIntent:
    try:
        json_params = plain_json(params)
    except NotPlain:
        json_params = None
    return SuggestedIntent(
        name=name, params=json_params if isinstance(json_params, dict) else UNSET, description=clean(why) or UNSET
    )


def _assertions(rows: RuleRows, domain: Domain) -> Iterator[JsonFact]:
    for predicate, args, category in rows["asserts"]:
        yield from _assertion(domain, str(predicate), args, str(category), None)
    for predicate, args, category, start, end in rows["asserts_during"]:
        if isinstance(start, Time) and isinstance(end, Time) and start.ns <= end.ns:
            yield from _assertion(domain, str(predicate), args, str(category), (start.ns, end.ns))
        else:
            _log.warning("%s: a run derived %s for an invalid interval", domain.pack.name, predicate)


def _assertion(
    domain: Domain, predicate: str, args: Value, category: str, interval_ns: tuple[int, int] | None
) -> Iterator[JsonFact]:
    """Yield the fact if it can be encoded; an unknown category counts as ``server``."""
    provenance = cast(Category, category if category in PROVENANCE_CATEGORIES else _SERVER)
    source = {"source_type": "derived" if provenance == "derived" else _SERVER}
    fact = _encode(domain, predicate, args, interval_ns, category=provenance, source=source)
    if fact is not None:
        fact["source"] = fact.pop("source")  # moves the member to the end, as in the specification
        yield fact


def _retractions(rows: RuleRows, domain: Domain) -> Iterator[JsonFact]:
    for predicate, args in rows["retracts"]:
        fact = _encode(domain, str(predicate), args, wildcards=True)
        if fact is not None:
            yield fact


def _encode(
    domain: Domain, predicate: str, args: Value, interval_ns: tuple[int, int] | None = None, **options: Any
) -> JsonFact | None:
    """Return the fact as JSON; None, with a warning, if clients must not see it. ``options`` are for ``write``."""
    if domain.profile.direction(predicate) is None:
        _log.warning("%s: a run derived %s, which the manifest does not publish", domain.pack.name, predicate)
        return None
    arguments = tuple(args.items) if isinstance(args, List) else (args,)  # rules may write one argument without a list
    fact = Fact(predicate, arguments, interval_ns)
    if not _is_acceptable(domain, fact):  # the warning has no values
        _log.warning("%s: a fact of %s that a run derived does not fit its declaration", domain.pack.name, predicate)
        return None
    try:
        return domain.profile.write(fact, **options)
    except (Fault, ValueError, KeyError):
        _log.warning("%s: a fact of %s that a run derived cannot be encoded", domain.pack.name, predicate)
        return None


def _is_acceptable(domain: Domain, fact: Fact) -> bool:
    """Return whether the fact fits its declaration; a wildcard in a retraction fits every type."""
    predicate = domain.program.predicates.get(fact.key)
    if predicate is None or (fact.interval is not None and not predicate.temporal):
        return False
    acceptance = domain.profile.acceptance
    fixed_positions = [position for position, value in enumerate(fact.args) if value != WILDCARD]
    if len(fixed_positions) == len(fact.args):
        return acceptance.accepts(fact.key, fact.args)
    if predicate.decl is None:
        return True
    types = acceptance.types(tuple(fact.args[position] for position in fixed_positions))
    return any(row_accepts(tuple(row[position] for position in fixed_positions), types) for row in predicate.rows)


def _roll_up(facts: Sequence[JsonFact], bulk_predicate: str, max_facts: int, **bulk_fields: Any) -> Iterator[JsonFact]:
    """Yield the facts; roll up whole predicates, the most frequent first, while there are more than ``max_facts``."""
    counts = Counter(fact["pred"] for fact in facts)
    # The predicates for which the rules have derived a rollup.
    derived_bulks = {fact["args"][0] for fact in facts if fact["pred"] == bulk_predicate}
    rolled_up: set[str] = set()
    remaining = len(facts)
    for predicate, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if remaining <= max_facts:
            break
        new_bulks = 0 if predicate in derived_bulks else 1
        if predicate == bulk_predicate or count == new_bulks:
            continue  # one fact is as short as its rollup
        rolled_up.add(predicate)
        remaining -= count - new_bulks
    for fact in facts:
        if fact["pred"] not in rolled_up:
            yield fact
    for predicate in sorted(rolled_up - derived_bulks):
        yield {"pred": bulk_predicate, "args": [predicate, counts[predicate]], **bulk_fields}
