"""What changed, as facts: the state delta, and what the next request should bring.

The pack's rules say which facts; this module writes them as the manifest declares them. A fact that no client could
understand, because its predicate is not published or its values do not fit, is left out and logged: a delta is advice,
and the run it is about has happened.

There is a cap on how many facts a delta lists (OBS-05, OPEN-45). Above it the predicates with the most facts are rolled
up into one ``bulk_asserted(Predicate, Count)`` or ``bulk_retracted`` each, unless the pack has rolled them up itself.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from manglecp.intent import Domain
from manglecp.invoke.progress import clean
from manglecp.mangle import Fact, List, NotPlain, Time, Value, plain, row_accepts
from manglecp.wire import PROVENANCE_CATEGORIES, WILDCARD, Category, Fault
from manglecp.wire.messages import UNSET, Next, StateDelta, SuggestedIntent

MAX_FACTS: Final = 50
MAX_SUGGESTIONS: Final = 10
_ASSERTED: Final = "bulk_asserted"
_RETRACTED: Final = "bulk_retracted"
_SERVER: Final = "server"
_log = logging.getLogger(__name__)

RuleRows = Mapping[str, Sequence[tuple[Value, ...]]]


def state_delta(said: RuleRows, domain: Domain, most: int = MAX_FACTS) -> StateDelta:
    """What to assert and to retract. More than ``most`` of either are rolled up."""
    asserted = list(_asserted(said, domain))
    retracted = list(_retracted(said, domain))
    return StateDelta(
        asserts=tuple(_rolled_up(asserted, _ASSERTED, most, category="derived", source={"source_type": "derived"})),
        retract=tuple(_rolled_up(retracted, _RETRACTED, most)),
    )


def next_of(said: RuleRows, domain: Domain, most: int = MAX_FACTS) -> Next:
    """The intents that rules suggest, of those that the manifest has, and the facts to go on with."""
    facts = [
        one
        for predicate, args in said["continues_with"]
        if (one := _written(domain, str(predicate), args)) is not None and one["pred"] in domain.profile.readable
    ]
    known = {intent.name for intent in domain.pack.settings.intents}
    suggested = [
        _suggestion(str(name), params, str(why)) for name, params, why in said["suggests"] if not known or name in known
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


# --- facts -----------------------------------------------------------------------------------------------------------


def _asserted(said: RuleRows, domain: Domain) -> Iterator[dict[str, Any]]:
    for predicate, args, category in said["asserts"]:
        yield from _stated(domain, str(predicate), args, str(category), None)
    for predicate, args, category, start, end in said["asserts_during"]:
        if isinstance(start, Time) and isinstance(end, Time) and start.ns <= end.ns:
            yield from _stated(domain, str(predicate), args, str(category), (start.ns, end.ns))
        else:
            _log.warning("%s: a run says %s for a time that is none", domain.pack.name, predicate)


def _stated(
    domain: Domain, predicate: str, args: Value, category: str, between: tuple[int, int] | None
) -> Iterator[dict[str, Any]]:
    kind = cast(Category, category if category in PROVENANCE_CATEGORIES else _SERVER)
    source = {"source_type": "derived" if kind == "derived" else _SERVER}
    written = _written(domain, predicate, args, between, category=kind, source=source)
    if written is not None:
        written["source"] = written.pop("source")  # last, as the specification shows it
        yield written


def _retracted(said: RuleRows, domain: Domain) -> Iterator[dict[str, Any]]:
    for predicate, args in said["retracts"]:
        written = _written(domain, str(predicate), args, wildcards=True)
        if written is not None:
            yield written


def _written(
    domain: Domain, predicate: str, args: Value, between: tuple[int, int] | None = None, **how: Any
) -> dict[str, Any] | None:
    if domain.profile.direction(predicate) is None:
        _log.warning("%s: a run says %s, which the manifest does not publish", domain.pack.name, predicate)
        return None
    fact = Fact(predicate, tuple(args.items) if isinstance(args, List) else (args,), between)
    if not _fits(domain, fact):  # the values are not logged
        _log.warning("%s: what a run says about %s does not fit its declaration", domain.pack.name, predicate)
        return None
    try:
        return domain.profile.write(fact, **how)
    except (Fault, ValueError, KeyError):
        _log.warning("%s: what a run says about %s cannot be written", domain.pack.name, predicate)
        return None


def _fits(domain: Domain, fact: Fact) -> bool:
    """Could a client send it back? A pattern is held against as much as it says."""
    declared = domain.program.predicates.get(fact.key)
    if declared is None or (fact.interval is not None and not declared.temporal):
        return False
    acceptance = domain.profile.acceptance
    said = [number for number, value in enumerate(fact.args) if value != WILDCARD]
    if len(said) == len(fact.args):
        return acceptance.accepts(fact.key, fact.args)
    if declared.decl is None:
        return True
    types = acceptance.types(tuple(fact.args[number] for number in said))
    return any(row_accepts(tuple(row[number] for number in said), types) for row in declared.rows)


# --- the cap ---------------------------------------------------------------------------------------------------------


def _rolled_up(facts: Sequence[dict[str, Any]], bulk: str, most: int, **about: Any) -> Iterator[dict[str, Any]]:
    """At most so many facts, whole predicates rolled up, the largest first."""
    counts = Counter(fact["pred"] for fact in facts)
    own = {fact["args"][0] for fact in facts if fact["pred"] == bulk}
    rolled: set[str] = set()
    listed = len(facts)
    for predicate, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if listed <= most:
            break
        if predicate == bulk or (count == 1 and predicate not in own):
            continue  # nothing would be gained
        rolled.add(predicate)
        listed -= count - (predicate not in own)
    for fact in facts:
        if fact["pred"] not in rolled:
            yield fact
    for predicate in sorted(rolled - own):
        fact = {"pred": bulk, "args": [predicate, counts[predicate]]}
        yield {**fact, **about}
