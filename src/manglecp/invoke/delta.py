"""The state delta of a run, and the intents and facts that rules suggest for the next request.

The pack's rules derive the facts; this module encodes them as the manifest declares them. A fact whose predicate is not
published, or whose values do not fit its declaration, is left out and logged: the run has ended, and a delta is advice.

A delta has a limited number of facts (OBS-05, OPEN-45). Above it, the predicates with the most facts become one
``bulk_assertions(Predicate, Count)`` or ``bulk_retracted`` each, unless the pack has derived such a fact itself.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from manglecp.intent import Domain
from manglecp.invoke.progress import clean
from manglecp.invoke.run_rules import RuleRows
from manglecp.mangle import Fact, List, NotPlain, Time, Value, plain, row_accepts
from manglecp.wire import PROVENANCE_CATEGORIES, WILDCARD, Category, Fault
from manglecp.wire.messages import UNSET, Next, StateDelta, SuggestedIntent

MAX_FACTS: Final = 50
MAX_SUGGESTIONS: Final = 10
_ASSERTED: Final = "bulk_asserted"
_RETRACTED: Final = "bulk_retracted"
_SERVER: Final = "server"
_log = logging.getLogger(__name__)


def state_delta(rows: RuleRows, domain: Domain, most: int = MAX_FACTS) -> StateDelta:
    """Return the facts to assert and to retract, at most ``most`` of each."""
    asserted = list(_assertions(rows, domain))
    retracted = list(_retractions(rows, domain))
    return StateDelta(
        asserts=tuple(_rolled_up(asserted, _ASSERTED, most, category="derived", source={"source_type": "derived"})),
        retract=tuple(_rolled_up(retracted, _RETRACTED, most)),
    )


def next_of(rows: RuleRows, domain: Domain, most: int = MAX_FACTS) -> Next:
    """Return the suggested intents, of those in the manifest, and the facts for the next request."""
    facts = [
        one
        for predicate, args in rows["continues_with"]
        if (one := _encode(domain, str(predicate), args)) is not None and one["pred"] in domain.profile.readable
    ]
    known = {intent.name for intent in domain.pack.settings.intents}
    suggested = [
        _suggestion(str(name), params, str(why)) for name, params, why in rows["suggests"] if not known or name in known
    ]
    return Next(suggested_intents=tuple(suggested[:MAX_SUGGESTIONS]), continuation_facts=tuple(facts[:most]))


def _suggestion(name: str, params: Value, why: str) -> SuggestedIntent:
    try:
        given = plain(params)
    except NotPlain:
        given = None
    return SuggestedIntent(
        name=name, params=given if isinstance(given, dict) else UNSET, description=clean(why) or UNSET
    )


def _assertions(rows: RuleRows, domain: Domain) -> Iterator[dict[str, Any]]:
    for predicate, args, category in rows["asserts"]:
        yield from _assertion(domain, str(predicate), args, str(category), None)
    for predicate, args, category, start, end in rows["asserts_during"]:
        if isinstance(start, Time) and isinstance(end, Time) and start.ns <= end.ns:
            yield from _assertion(domain, str(predicate), args, str(category), (start.ns, end.ns))
        else:
            _log.warning("%s: a run derived %s for an invalid interval", domain.pack.name, predicate)


def _assertion(
    domain: Domain, predicate: str, args: Value, category: str, between: tuple[int, int] | None
) -> Iterator[dict[str, Any]]:
    kind = cast(Category, category if category in PROVENANCE_CATEGORIES else _SERVER)
    source = {"source_type": "derived" if kind == "derived" else _SERVER}
    written = _encode(domain, predicate, args, between, category=kind, source=source)
    if written is not None:
        written["source"] = written.pop("source")  # last, as the specification shows it
        yield written


def _retractions(rows: RuleRows, domain: Domain) -> Iterator[dict[str, Any]]:
    for predicate, args in rows["retracts"]:
        written = _encode(domain, str(predicate), args, wildcards=True)
        if written is not None:
            yield written


def _encode(
    domain: Domain, predicate: str, args: Value, between: tuple[int, int] | None = None, **how: Any
) -> dict[str, Any] | None:
    if domain.profile.direction(predicate) is None:
        _log.warning("%s: a run derived %s, which the manifest does not publish", domain.pack.name, predicate)
        return None
    fact = Fact(predicate, tuple(args.items) if isinstance(args, List) else (args,), between)
    if not _is_acceptable(domain, fact):  # the values are not logged
        _log.warning("%s: a fact of %s that a run derived does not fit its declaration", domain.pack.name, predicate)
        return None
    try:
        return domain.profile.write(fact, **how)
    except (Fault, ValueError, KeyError):
        _log.warning("%s: a fact of %s that a run derived cannot be encoded", domain.pack.name, predicate)
        return None


def _is_acceptable(domain: Domain, fact: Fact) -> bool:
    """Return whether a client could send the fact; of a pattern, only the arguments without a wildcard are checked."""
    declared = domain.program.predicates.get(fact.key)
    if declared is None or (fact.interval is not None and not declared.temporal):
        return False
    acceptance = domain.profile.acceptance
    given = [number for number, value in enumerate(fact.args) if value != WILDCARD]
    if len(given) == len(fact.args):
        return acceptance.accepts(fact.key, fact.args)
    if declared.decl is None:
        return True
    types = acceptance.types(tuple(fact.args[number] for number in given))
    return any(row_accepts(tuple(row[number] for number in given), types) for row in declared.rows)


def _rolled_up(facts: Sequence[dict[str, Any]], bulk: str, most: int, **about: Any) -> Iterator[dict[str, Any]]:
    """Yield at most ``most`` facts: predicates are rolled up whole, those with the most facts first."""
    counts = Counter(fact["pred"] for fact in facts)
    own = {fact["args"][0] for fact in facts if fact["pred"] == bulk}
    rolled: set[str] = set()
    listed = len(facts)
    for predicate, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if listed <= most:
            break
        if predicate == bulk or (count == 1 and predicate not in own):
            continue  # a rollup would not be shorter
        rolled.add(predicate)
        listed -= count - (predicate not in own)
    for fact in facts:
        if fact["pred"] not in rolled:
            yield fact
    for predicate in sorted(rolled - own):
        fact = {"pred": bulk, "args": [predicate, counts[predicate]]}
        yield {**fact, **about}
