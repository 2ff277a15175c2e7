"""Limits (D24), relations and models of evaluations, and integrity constraints (D27)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain, islice
from typing import Any, Final, Literal as LiteralType, Protocol, TypeAlias

from manglecp.base.diagnostic import Diagnostic
from manglecp.mangle import printer
from manglecp.mangle.declarations import FunctionalDependency, Predicate
from manglecp.mangle.errors import AnalysisError, EvalError, ValueFault
from manglecp.mangle.externals import Asked
from manglecp.mangle.facts import Args, Fact, Interval, Timed, coalesce, holds_somewhere
from manglecp.mangle.matching import Row, head_interval
from manglecp.mangle.printer import fact_text, value_text
from manglecp.mangle.program import GivenFact, Program, Rule
from manglecp.mangle.syntax import Atom, Key, Literal, Term, Variable
from manglecp.mangle.values import Value

MOST_SKIPPED: Final = 10_000  # limit of skipped derivations (D20); a count of this many means this many or more


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an evaluation, inclusive."""

    derived_facts: int = 10_000_000
    """Distinct derived facts; a temporal fact counts once per derived interval."""
    intervals: int = 1_000
    """Intervals of one fact, after coalescing."""
    parts: int = 50_000_000
    """Elements, entries and sixteens of characters in built columns, see ``built_columns``."""
    rows: int = 10_000_000
    """Rows of one rule before aggregation."""
    merge_steps: int = 1_000_000
    """Values replaced by a merge; bounds a merge without a fixpoint."""
    seconds: float | None = None
    """Wall time of the whole evaluation."""
    call_depth: int = 10_000
    """Depth of nested calls of deferred predicates."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name == "seconds":
                continue
            if type(value) is not int and (type(value) is not float or field.name != "seconds"):
                raise ValueError(f"the limit {field.name} is no {type(value).__name__}")


@dataclass(slots=True)
class Statistics:
    """Counts of an evaluation, the same on every machine."""

    given: int = 0
    derived: int = 0
    strata: int = 0
    rounds: int = 0
    skipped_inverted: int = 0


class Relation:
    """The facts of one predicate. A plain fact has the interval None."""

    __slots__ = ("facts", "finished")

    def __init__(self) -> None:
        self.facts: dict[Args, set[Interval | None]] = {}
        self.finished: dict[Args, tuple[Interval | None, ...]] | None = None

    def add(self, args: Args, interval: Interval | None) -> bool:
        """Add a fact; return whether it is new."""
        known = self.facts.setdefault(args, set())
        if interval in known:
            return False
        known.add(interval)
        return True

    def finish(self) -> Mapping[Args, tuple[Interval | None, ...]]:
        """Coalesce; no facts are added afterwards."""
        self.finished = {}
        for args, intervals in self.facts.items():
            timed = [i for i in intervals if i is not None]
            self.finished[args] = coalesce(timed) if timed else (None,)
        return self.finished

    def __iter__(self) -> Iterator[Timed]:
        source: Mapping[Args, Iterable[Interval | None]] = self.facts if self.finished is None else self.finished
        return ((args, interval) for args, intervals in source.items() for interval in intervals)

    def __len__(self) -> int:
        return sum(map(len, self.facts.values()))


class Facts(Protocol):
    def __iter__(self) -> Iterator[Timed]: ...

    def __len__(self) -> int: ...


class Index(Protocol):
    """Facts of one predicate by the values at some positions."""

    def get(self, wanted: Args, default: Facts, /) -> Facts: ...


Origin: TypeAlias = LiteralType["given", "server", "session", "external"]
"""The source of a given fact: program, base, request, or external predicate."""


FactRow: TypeAlias = tuple[Any, ...]
Finder: TypeAlias = Callable[[Key, Value], list[FactRow]]


class EvaluatedModel(ABC):
    """The model of one evaluation. An external predicate holds for the inputs it was called with."""

    relations: Mapping[Key, Facts]  # facts without duplicates, temporal ones coalesced

    def __init__(self, program: Program, now: int, limits: Limits, asked: Asked) -> None:
        self.program = program
        self.now = now
        self.limits = limits
        self._asked = asked

    @abstractmethod
    def stored_as_derived(self, key: Key) -> Iterable[Timed]:
        """Return the facts of a relation before coalescing."""

    def outside_origin(self, fact: Fact) -> Origin | None:  # noqa: ARG002
        """Return the origin of a fact that is not in the program."""
        return None

    @abstractmethod
    def with_facts(self, added: Iterable[Fact], limits: Limits) -> EvaluatedModel:
        """Return a model with facts added, evaluated within other limits. External predicates are not called again."""

    def rows(self, key: Key) -> list[FactRow]:
        """Return all facts of a predicate, unordered; temporal ones end with their two instants."""
        return [args if at is None else (*args, *at) for args, at in self.relations.get(key, ())]

    def finder(self, column: int = 0) -> Finder:
        """Return a function that finds the rows of a predicate with a value in this column."""
        return lambda key, value: [row for row in self.rows(key) if row[column] == value]

    def changed(self, keys: Iterable[Key]) -> tuple[Key, ...]:
        """Return those of the predicates whose facts the request changed."""
        return tuple(keys)

    def rules_fired(self) -> int | None:
        """Return the number of rules that derive at least one fact; None if the caller has to count."""
        return None

    def facts(self, key: Key) -> Iterable[Timed]:
        """Return the facts of a predicate, including results of an external one."""
        return self._with_answers(key, self.relations.get(key, ()))

    def derived(self, key: Key) -> Iterable[Timed]:
        """Return the facts before coalescing."""
        return self._with_answers(key, self.stored_as_derived(key))

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index | None:  # noqa: ARG002
        """Return an index of the facts, or with ``raw`` of those before coalescing; None if the model has none."""
        return None

    def kept_heads(self, rule: Rule) -> dict[int, int] | None:  # noqa: ARG002
        """Return a cache of derived facts per rule id that is valid for every request, or None."""
        return None

    def _with_answers(self, key: Key, stored: Iterable[Timed]) -> Iterable[Timed]:
        if key not in self._asked:
            return stored
        answers = self._asked[key].values()
        return dict.fromkeys(chain(stored, ((args, None) for rows in answers for args in rows)))

    @cached_property
    def _stated(self) -> frozenset[Fact]:
        return frozenset(program_facts(self.program, self.now))

    def origin(self, fact: Fact) -> Origin | None:
        """Return the origin of a given fact, with the interval as given; None if it was not given."""
        if fact in self._stated:
            return "given"
        return self.outside_origin(fact) or ("external" if self._answered(fact) else None)

    def _answered(self, fact: Fact) -> bool:
        if fact.key not in self._asked:
            return False
        inputs = tuple(fact.args[i] for i in self.program.predicates[fact.key].inputs())
        return fact.args in self._asked[fact.key].get(inputs, ())


def program_facts(program: Program, now: int) -> Iterator[Fact]:
    """Yield the facts of the program at the evaluation time ``now``."""
    for fact in program.facts:
        yield Fact(fact.key[0], *stated(fact, program.predicates[fact.key], now))


def stated(fact: GivenFact, predicate: Predicate, now: int) -> Timed:
    """Evaluate a fact of the program. Only one that depends on the time can fail: others were evaluated at load."""
    try:
        args = fact.values(now)
    except ValueFault as fault:
        shown = printer.clause(fact.clause)
        raise AnalysisError([Diagnostic("analysis", str(fault), fact.clause.head.span, shown)]) from None
    if not predicate.temporal:
        return args, None
    annotation = fact.clause.annotation
    assert annotation is not None  # checked at load
    interval = head_interval(annotation, {}, now)
    if not holds_somewhere(*interval):
        shown = printer.clause(fact.clause)
        raise EvalError([Diagnostic("eval", "the interval ends before it starts", annotation.span, shown)])
    return args, interval


MOST_VIOLATIONS: Final = 50


def violations(
    predicate: Predicate, facts: Iterable[Timed], holds: Callable[[Atom, Row], bool]
) -> Iterable[Diagnostic]:
    """Return the violations of one predicate. ``holds`` tests whether an atom has a match."""
    if not predicate.fundeps and not predicate.inclusion:
        return ()
    ordered = sorted(facts, key=lambda fact: fact_text(predicate.name, *fact))
    return islice(_violations(predicate, ordered, holds), MOST_VIOLATIONS)


def _violations(predicate: Predicate, facts: list[Timed], holds: Callable[[Atom, Row], bool]) -> Iterator[Diagnostic]:
    for dependency in predicate.fundeps:
        yield from _contradictions(predicate, dependency, facts)
    for atom in predicate.inclusion:
        yield from _lone_facts(predicate, atom, facts, holds)


def _contradictions(predicate: Predicate, dependency: FunctionalDependency, facts: list[Timed]) -> Iterator[Diagnostic]:
    """Facts with one key and two values; temporal facts only where they hold at the same instant."""
    by_key: dict[Args, list[Timed]] = {}
    for args, interval in facts:
        others = by_key.setdefault(tuple(args[c] for c in dependency.source), [])
        for other, at in others:
            if any(args[c] != other[c] for c in dependency.target) and _overlap(interval, at):
                both = f"{fact_text(predicate.name, other, at)} and {fact_text(predicate.name, args, interval)}"
                yield _violation(predicate, f"functional dependency violated by {both}")
                break
        others.append((args, interval))


def _overlap(left: Interval | None, right: Interval | None) -> bool:
    return left is None or right is None or (left[0] <= right[1] and right[0] <= left[1])


def _lone_facts(
    predicate: Predicate, atom: Atom, facts: list[Timed], holds: Callable[[Atom, Row], bool]
) -> Iterator[Diagnostic]:
    assert predicate.decl is not None  # inclusions come from declarations
    names = [arg.name if isinstance(arg, Variable) else "_" for arg in predicate.decl.atom.args]
    for args, interval in facts:
        row = {name: value for name, value in zip(names, args, strict=True) if name != "_"}
        if not holds(atom, row):
            fact = fact_text(predicate.name, args, interval)
            yield _violation(predicate, f"inclusion violated: {fact} needs {_filled_in(atom, row)}")


def _filled_in(atom: Atom, row: Row) -> str:
    def write(term: Term) -> str:
        if isinstance(term, Variable):
            return value_text(row[term.name]) if term.name in row else "_"
        return printer.term(term)

    return printer.premise(Literal(atom), write)


def _violation(predicate: Predicate, message: str) -> Diagnostic:
    return Diagnostic("eval", message, None if predicate.decl is None else predicate.decl.span)
