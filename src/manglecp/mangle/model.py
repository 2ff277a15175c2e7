"""Limits, statistics, relations and given facts of an evaluation, and its integrity constraints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain, islice
from typing import Final, Literal as LiteralType, Protocol, TypeAlias

from manglecp.base.diagnostic import Diagnostic
from manglecp.mangle import printer
from manglecp.mangle.declarations import FunctionalDependency, Predicate
from manglecp.mangle.errors import AnalysisError, EvalError, LimitError, ValueFault
from manglecp.mangle.facts import Args, Fact, Interval, TimedArgs, coalesce, is_nonempty_interval
from manglecp.mangle.matching import Row, head_interval
from manglecp.mangle.printer import fact_text, term_with_values
from manglecp.mangle.program import GivenFact, Program
from manglecp.mangle.syntax import Atom, Literal


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an evaluation, inclusive."""

    derived_facts: int = 10_000_000
    """Distinct derived facts; a temporal fact counts once per derived interval."""
    intervals: int = 1_000
    """Intervals of one fact, after coalescing."""
    parts: int = 50_000_000
    """Total size of the values that rules build (``program.built_columns``), measured by ``values.part_size``."""
    rows: int = 10_000_000
    """Rows of one rule before aggregation."""
    merge_steps: int = 1_000_000
    """Values that merges replace. The limit stops a merge without a fixpoint."""
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
                raise ValueError(f"the limit {field.name} is not a number: {type(value).__name__}")


@dataclass(slots=True)
class Statistics:
    """Counts of an evaluation, the same on every machine."""

    given: int = 0  # facts
    derived: int = 0  # facts
    strata: int = 0
    rounds: int = 0  # rounds of rule application, over all strata


class Relation:
    """The facts of one predicate. A plain fact has the interval None."""

    __slots__ = ("coalesced", "facts")

    def __init__(self) -> None:
        self.facts: dict[Args, set[Interval | None]] = {}  # the uncoalesced intervals, by arguments
        self.coalesced: dict[Args, tuple[Interval | None, ...]] | None = None  # set by finish()

    def add(self, args: Args, interval: Interval | None) -> bool:
        """Add a fact; return whether it is new."""
        intervals = self.facts.setdefault(args, set())
        if interval in intervals:
            return False
        intervals.add(interval)
        return True

    def finish(self) -> Mapping[Args, tuple[Interval | None, ...]]:
        """Coalesce and return the intervals of each fact; call it after the last :meth:`add`."""
        self.coalesced = {}
        for args, intervals in self.facts.items():
            timed = [i for i in intervals if i is not None]
            self.coalesced[args] = coalesce(timed) if timed else (None,)
        return self.coalesced

    def __iter__(self) -> Iterator[TimedArgs]:
        source: Mapping[Args, Iterable[Interval | None]] = self.facts if self.coalesced is None else self.coalesced
        return ((args, interval) for args, intervals in source.items() for interval in intervals)

    def __len__(self) -> int:
        return sum(map(len, self.facts.values()))  # intervals before coalescing


def check_intervals(predicate: str, intervals: Mapping[Args, Collection[Interval | None]], limit: int) -> None:
    """Raise LimitError if a temporal fact has more intervals, after coalescing, than ``limit``."""
    counts = {
        args: len(coalesce([interval for interval in fact_intervals if interval is not None]))
        for args, fact_intervals in intervals.items()
        if len(fact_intervals) > limit
    }
    exceeding = sorted((fact_text(predicate, args), count) for args, count in counts.items() if count > limit)
    if exceeding:
        fact, count = exceeding[0]
        raise LimitError(limit, count, f"intervals of {fact}")


class Facts(Protocol):
    """Facts of one predicate, with their number."""

    def __iter__(self) -> Iterator[TimedArgs]: ...

    def __len__(self) -> int: ...


class Index(Protocol):
    """Facts of one predicate by the values at some positions."""

    def get(self, values: Args, default: Facts, /) -> Facts: ...


Origin: TypeAlias = LiteralType["given", "server", "session", "external"]
"""The source of a given fact: the program, the base, the request, or an external predicate."""


def program_facts(program: Program, now: int) -> Iterator[Fact]:
    """Yield the facts of the program at the evaluation time ``now``."""
    for fact in program.facts:
        yield Fact(fact.key[0], *evaluate_given(fact, program.predicates[fact.key], now))


def evaluate_given(fact: GivenFact, predicate: Predicate, now: int) -> TimedArgs:
    """Return the arguments and the interval of a fact of the program.

    Raises AnalysisError if an argument that depends on ``now`` has no value, EvalError if the interval is inverted.
    """
    try:
        args = fact.values(now)
    except ValueFault as fault:
        clause_text = printer.clause(fact.clause)
        raise AnalysisError([Diagnostic("analysis", str(fault), fact.clause.head.span, clause_text)]) from None
    if not predicate.temporal:
        return args, None
    annotation = fact.clause.annotation
    assert annotation is not None  # checked at load
    interval = head_interval(annotation, {}, now)
    if not is_nonempty_interval(*interval):
        clause_text = printer.clause(fact.clause)
        raise EvalError([Diagnostic("eval", "the interval ends before it starts", annotation.span, clause_text)])
    return args, interval


MAX_VIOLATIONS: Final = 50  # diagnostics per predicate


def violations(
    predicate: Predicate, facts: Iterable[TimedArgs], holds: Callable[[Atom, Row], bool]
) -> Iterable[Diagnostic]:
    """Return diagnostics of the violated constraints of one predicate. ``holds`` tests whether an atom has a match."""
    if not predicate.fundeps and not predicate.inclusion:
        return ()
    facts_by_text = sorted(facts, key=lambda fact: fact_text(predicate.name, *fact))
    conflicts = (_conflicts(predicate, dependency, facts_by_text) for dependency in predicate.fundeps)
    dangling_facts = (_dangling_facts(predicate, atom, facts_by_text, holds) for atom in predicate.inclusion)
    return islice(chain.from_iterable(chain(conflicts, dangling_facts)), MAX_VIOLATIONS)


def _conflicts(predicate: Predicate, dependency: FunctionalDependency, facts: list[TimedArgs]) -> Iterator[Diagnostic]:
    """Report facts with the same key and different values; temporal facts only if their intervals overlap."""
    by_key: dict[Args, list[TimedArgs]] = {}
    for args, interval in facts:
        earlier_facts = by_key.setdefault(tuple(args[column] for column in dependency.source), [])
        for earlier_args, earlier_interval in earlier_facts:
            hold_together = interval is None or earlier_interval is None or _overlap(interval, earlier_interval)
            if hold_together and any(args[column] != earlier_args[column] for column in dependency.target):
                earlier = fact_text(predicate.name, earlier_args, earlier_interval)
                later = fact_text(predicate.name, args, interval)
                yield _violation(predicate, f"functional dependency violated by {earlier} and {later}")
                break
        earlier_facts.append((args, interval))


def _overlap(left: Interval, right: Interval) -> bool:
    return left[0] <= right[1] and right[0] <= left[1]


def _dangling_facts(
    predicate: Predicate, atom: Atom, facts: list[TimedArgs], holds: Callable[[Atom, Row], bool]
) -> Iterator[Diagnostic]:
    for args, interval in facts:
        row = predicate.row(args)
        if not holds(atom, row):
            fact = fact_text(predicate.name, args, interval)
            needed = printer.premise(Literal(atom), partial(term_with_values, row=row))
            yield _violation(predicate, f"inclusion violated: {fact} needs {needed}")


def _violation(predicate: Predicate, message: str) -> Diagnostic:
    return Diagnostic("eval", message, None if predicate.decl is None else predicate.decl.span)
