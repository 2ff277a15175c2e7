"""The facts profile: the facts that a program accepts from clients, and sends to clients.

A profile has only the predicates that the program's declarations publish. Every fact that a client sends is a session
fact, whatever its ``source`` is. A client may send back, unchanged, every fact that it received.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from manglecp.base.gc_pause import gc_paused
from manglecp.mangle import Fact, FactAcceptor, Key, Predicate
from manglecp.mangle.types import STRING
from manglecp.wire.clauses import RefusedClause
from manglecp.wire.errors import Violation, refused_facts, too_many_facts
from manglecp.wire.fact_checker import FactChecker
from manglecp.wire.facts import Category, write_fact
from manglecp.wire.messages import Direction, PredicateSchema
from manglecp.wire.predicates import UPGRADE, PublishedPredicate, Schema, Schemas, published_predicates
from manglecp.wire.shapes import Shape

MAX_VIOLATIONS: Final = 1_000
"""The check ends after this number of violations, which bounds the size of the error."""

_MANY_FACTS: Final = 500  # while more facts are read, the garbage collector is paused
_UPGRADE: Final = PublishedPredicate(Schema(UPGRADE, (Shape(STRING),), ("macro_id",)), "input", ("string",))


class Profile:
    """The published predicates of one program. Immutable; created once for all requests."""

    def __init__(self, predicates: Mapping[Key, Predicate], entries: Iterable[PublishedPredicate]) -> None:
        self._schemas = Schemas(predicates)
        self.acceptance = FactAcceptor(predicates)
        self._published = tuple(entries)
        self._vocabulary: dict[str, dict[int, PublishedPredicate]] = {UPGRADE: {1: _UPGRADE}}
        for entry in self._published:
            self._vocabulary.setdefault(entry.schema.predicate, {})[entry.schema.arity] = entry
        self.assertable: frozenset[str] = frozenset(  # names of predicates whose facts clients may assert
            name for name, by_arity in self._vocabulary.items() if any(entry.assertable for entry in by_arity.values())
        )

    @classmethod
    def of(cls, predicates: Mapping[Key, Predicate], kernel: Collection[str] = ()) -> Profile:
        """Return the profile of a program with these predicates; the predicates ``kernel`` are not published."""
        return cls(predicates, published_predicates(predicates, kernel))

    def schemas(self) -> tuple[PredicateSchema, ...]:
        """Return the entries of the manifest, by name."""
        return tuple(entry.manifest_entry() for entry in self._published)

    def direction(self, name: str) -> Direction | None:
        """Return the direction of the predicates with this name.

        None means that no such predicate is published, ``both`` that the direction depends on the arity.
        """
        directions = {entry.direction for entry in self._vocabulary.get(name, {}).values()}
        return directions.pop() if len(directions) == 1 else "both" if directions else None

    def read(
        self, facts: list[Any], now: int, *, limit: int | None = None, required: Collection[str] = ()
    ) -> list[Fact]:
        """Return the facts of a request without duplicates, in order. Raises a ``WireError`` with all violations.

        ``now`` is the evaluation time in nanoseconds, ``limit`` the maximal number of facts; each predicate in
        ``required`` must have at least one fact.
        """
        if limit is not None and len(facts) > limit:
            raise too_many_facts(len(facts), limit)
        if not facts and not required:
            return []
        with gc_paused(len(facts) > _MANY_FACTS):
            accepted, violations = self.check(facts, now)
        missing = _find_missing(facts, required)
        if violations or missing:
            error = refused_facts(violations, missing)
            if len(violations) >= MAX_VIOLATIONS:
                error.message = f"at least {error.message}"
            raise error
        return list(dict.fromkeys(accepted))

    def check(self, facts: Iterable[Any], now: int) -> tuple[list[Fact], list[Violation]]:
        """Return the valid facts, and the violations of the invalid facts. Stops after ``MAX_VIOLATIONS``."""
        checker = FactChecker(self._vocabulary, self.acceptance.accepts, now)
        accepted = []
        for index, data in enumerate(facts):
            fact = checker.check(index, data)
            if fact is not None:
                accepted.append(fact)
            elif len(checker.violations) >= MAX_VIOLATIONS:
                break
        return accepted, checker.violations

    def write(
        self,
        fact: Fact,
        *,
        category: Category | None = None,
        source: Mapping[str, Any] | None = None,
        wildcards: bool = False,
    ) -> dict[str, Any]:
        """Return the fact object. With ``wildcards`` the name ``/_`` becomes null, which matches any value."""
        if fact.predicate == UPGRADE:  # a predicate of the protocol, which no program declares
            written: dict[str, Any] = {"pred": UPGRADE, "args": list(fact.args)}
        else:
            written = write_fact(fact, self._schemas, wildcards=wildcards)
        if source is not None:
            written["source"] = dict(source)
        if category is not None:
            written["category"] = category
        return written


def _find_missing(facts: Iterable[Any], required: Iterable[str]) -> list[str]:
    """Return the required predicates without facts. An invalid fact counts as present: its violation is reported."""
    distinct = list(dict.fromkeys(required))
    present = {name for fact in facts if type(name := _predicate_of(fact)) is str} if distinct else ()
    return [name for name in distinct if name not in present]


def _predicate_of(fact: Any) -> Any:
    return fact.predicate if isinstance(fact, RefusedClause) else fact.get("pred") if isinstance(fact, dict) else None
