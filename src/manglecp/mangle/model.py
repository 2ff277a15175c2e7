"""What an evaluation yields: relations, and the answer to questions about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from manglecp.mangle.clauses import ClauseCheck
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.errors import AnalysisError, Diagnostic, EvalError, ValueFault
from manglecp.mangle.intervals import Interval, coalesce
from manglecp.mangle.matching import Args, Fact, Matcher
from manglecp.mangle.packages import Key
from manglecp.mangle.parser import parse_premise
from manglecp.mangle.program import Program
from manglecp.mangle.source import Source, Span
from manglecp.mangle.syntax import Annotation, Atom, Clause, Literal, TimeBound, Variable
from manglecp.mangle.text import fact_text


@dataclass(slots=True)
class Statistics:
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
        """Is this new?"""
        known = self.facts.setdefault(args, set())
        if interval in known:
            return False
        known.add(interval)
        return True

    def finish(self) -> Mapping[Args, tuple[Interval | None, ...]]:
        """From now on the relation is read coalesced."""
        self.finished = {}
        for args, intervals in self.facts.items():
            timed = [i for i in intervals if i is not None]
            self.finished[args] = coalesce(timed) if timed else (None,)
        return self.finished

    def __iter__(self) -> Iterator[Fact]:
        source: Mapping[Args, Iterable[Interval | None]] = self.facts if self.finished is None else self.finished
        return ((args, interval) for args, intervals in source.items() for interval in intervals)

    def __len__(self) -> int:
        return sum(map(len, self.facts.values()))


class Facts(Protocol):
    """The facts of one predicate."""

    def __iter__(self) -> Iterator[Fact]: ...

    def __len__(self) -> int: ...


class Result:
    """The least model."""

    def __init__(self, program: Program, relations: Mapping[Key, Facts], statistics: Statistics, now: int) -> None:
        self.program = program
        self.relations = relations
        self.statistics = statistics
        self.now = now

    def facts(self, predicate: str | None = None) -> list[str]:
        """Every fact, given and derived, in canonical text, sorted; only those of ``predicate`` if it is named."""
        return sorted(
            fact_text(name, args, interval)
            for (name, _), relation in self.relations.items()
            if predicate is None or name == predicate
            for args, interval in relation
        )

    def query(self, text: str) -> list[str]:
        """The facts that match an atom such as ``p(X, _)``, in canonical text, sorted."""
        literal = read_query(text, self.program.predicates)
        matcher = Matcher(literal, {}, self.now)
        try:
            wanted = matcher.key({})
            matching = [
                (args, interval)
                for args, interval in self.relations.get(literal.atom.key, Relation())
                if matcher.fact_key(args) == wanted and matcher.match({}, args, interval) is not None
            ]
        except ValueFault as fault:
            raise EvalError([Diagnostic("eval", str(fault), literal.span)]) from None
        return sorted(fact_text(literal.atom.predicate, args, interval) for args, interval in matching)


def read_query(text: str, predicates: Mapping[Key, Predicate]) -> Literal:
    """An atom to match facts with, checked like a premise; a temporal one without annotation asks for any time."""
    source = Source("query", text)
    literal = parse_premise(source)
    if not isinstance(literal, Literal) or literal.negated or literal.atom.predicate.startswith(":"):
        span = Span(source, 0, len(text))
        raise AnalysisError([Diagnostic("analysis", "a query is one atom of a predicate", span, fix="write p(X, _)")])
    if not literal.timed and predicates.get(literal.atom.key, Predicate("", 0)).temporal:
        anything = TimeBound(Variable("_"), "_")
        literal = replace(literal, annotation=Annotation((anything, anything)))
    if predicates.get(literal.atom.key, Predicate("", 0)).deferred:
        message = f"{literal.atom.predicate} is deferred: its facts are not stored"
        raise AnalysisError([Diagnostic("analysis", message, literal.span, fix="query a rule that uses it")])
    question = Atom("?", ())  # no program can have it
    check = ClauseCheck(Clause(question, None, (literal,)), {**predicates, question.key: Predicate(*question.key)})
    check.run()
    if check.diagnostics:
        raise AnalysisError([replace(diagnostic, clause=None) for diagnostic in check.diagnostics])
    return literal
