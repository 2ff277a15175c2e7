"""What an evaluation yields: relations, and the answer to questions about them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Literal as LiteralType, Protocol, TypeAlias

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span
from manglecp.mangle import printer
from manglecp.mangle.clauses import ClauseCheck
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.errors import AnalysisError, EvalError, ValueFault
from manglecp.mangle.externals import Asked
from manglecp.mangle.facts import Fact
from manglecp.mangle.intervals import Interval, coalesce, holds_somewhere
from manglecp.mangle.limits import Limits
from manglecp.mangle.matching import Args, Matcher, Timed, head_interval
from manglecp.mangle.packages import Key
from manglecp.mangle.parser import parse_premise
from manglecp.mangle.program import GivenFact, Program, Rule
from manglecp.mangle.syntax import Annotation, Atom, Clause, Literal, TimeBound, Variable
from manglecp.mangle.text import fact_text

if TYPE_CHECKING:
    from manglecp.mangle.explain import Alternatives, Coverage, Explainer, Proof, Unused, WhyNot
    from manglecp.mangle.explain.expiry import Expiry


@dataclass(slots=True)
class Statistics:
    """What an evaluation cost, in counts that are the same on every machine."""

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

    def __iter__(self) -> Iterator[Timed]:
        source: Mapping[Args, Iterable[Interval | None]] = self.facts if self.finished is None else self.finished
        return ((args, interval) for args, intervals in source.items() for interval in intervals)

    def __len__(self) -> int:
        return sum(map(len, self.facts.values()))


class Facts(Protocol):
    """The facts of one predicate."""

    def __iter__(self) -> Iterator[Timed]: ...

    def __len__(self) -> int: ...


class Index(Protocol):
    """The facts of one predicate by what they have at some positions."""

    def get(self, wanted: Args, default: Sequence[Timed], /) -> Sequence[Timed]: ...


Origin: TypeAlias = LiteralType["given", "server", "session", "external"]
"""Where a fact that was not derived came from: the program, the base, the request, a Python callable."""


class EvaluatedModel(ABC):
    """What one evaluation found. An external predicate holds for what it was asked, as it answered."""

    relations: Mapping[Key, Facts]
    """What holds: each fact once, temporal ones coalesced."""

    def __init__(self, program: Program, now: int, limits: Limits, asked: Asked) -> None:
        self.program = program
        self.now = now
        self.limits = limits
        self._asked = asked

    @abstractmethod
    def stored_as_derived(self, key: Key) -> Iterable[Timed]:
        """The facts of a relation before coalescing."""

    def outside_origin(self, fact: Fact) -> Origin | None:  # noqa: ARG002
        """Where a fact came from that does not stand in the program."""
        return None

    @abstractmethod
    def with_facts(self, added: Iterable[Fact], limits: Limits) -> EvaluatedModel:
        """The same with some facts added, evaluated within other limits; an error if that breaks."""

    def facts(self, key: Key) -> Iterable[Timed]:
        """The facts of a predicate, and what an external one answered."""
        return self._with_answers(key, self.relations.get(key, ()))

    def derived(self, key: Key) -> Iterable[Timed]:
        """The same before coalescing: as given and derived."""
        return self._with_answers(key, self.stored_as_derived(key))

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index | None:  # noqa: ARG002
        """The same facts, or with ``raw`` those before coalescing, by what they have at some positions.

        None where whoever asks has to make an index.
        """
        return None

    def count_derived(self, key: Key) -> int | None:  # noqa: ARG002
        """How many facts of a predicate with rules were not given; None where whoever asks has to count."""
        return None

    def kept_heads(self, rule: Rule) -> dict[int, int] | None:  # noqa: ARG002
        """Where to keep how many facts a rule derives, by its id, if every request finds the same; None otherwise."""
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
        """Where a given fact came from, with the interval it was given with; None if it was not given."""
        if fact in self._stated:
            return "given"
        return self.outside_origin(fact) or ("external" if self._answered(fact) else None)

    def _answered(self, fact: Fact) -> bool:
        if fact.key not in self._asked:
            return False
        inputs = tuple(fact.args[i] for i in self.program.predicates[fact.key].inputs())
        return fact.args in self._asked[fact.key].get(inputs, ())


class Result:
    """The least model, and questions about it. What explanations need is found when the first one is asked for."""

    def __init__(self, model: EvaluatedModel, statistics: Statistics) -> None:
        self.model = model
        self.statistics = statistics

    @property
    def program(self) -> Program:
        """What was evaluated."""
        return self.model.program

    @property
    def relations(self) -> Mapping[Key, Facts]:
        """The facts of each predicate that has any."""
        return self.model.relations

    @property
    def now(self) -> int:
        """The evaluation time, in nanoseconds since 1970."""
        return self.model.now

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

    # --- time ------------------------------------------------------------------------------------------------------

    @cached_property
    def _expiry(self) -> Expiry:
        from manglecp.mangle.explain.expiry import Expiry  # it is built on this module

        return Expiry(self.model)

    def expiry(self, fact: str | Fact) -> int | None:
        """Until when a fact that holds now would go on holding if nothing new were said; None if time does not end it.

        The latest, over its derivations, of the earliest end over the derivation's positive premises that look at now.
        """
        return self._expiry.of(fact)

    # --- explanations ----------------------------------------------------------------------------------------------

    @cached_property
    def explainer(self) -> Explainer:
        """Answers why and why not about this model; made when it is first asked for."""
        from manglecp.mangle.explain import Explainer  # few results are ever explained

        return Explainer(self.model)

    def explain_until(self, deadline: float | None) -> None:
        """Questions that are not answered by this time of the monotonic clock end in a LimitError."""
        self.explainer.until(deadline)

    def explain(self, fact: str | Fact, using: Collection[Fact] | None = None) -> Proof | None:
        """A proof of the fact with few leaves; None if it does not hold.

        ``using`` one of the sets that :meth:`alternatives` gives, a proof that rests on nothing else.
        """
        return self.explainer.explain(fact, using)

    def alternatives(self, fact: str | Fact, limit: int = 100) -> Alternatives:
        """The minimal sets of given facts that support the fact, smallest first, at most ``limit``."""
        return self.explainer.alternatives(fact, limit)

    def why_not(self, fact: str | Fact, over: Collection[Key] | None = None, tries: int = 10_000) -> WhyNot:
        """What stops each rule that could derive the fact, and the smallest sets of facts that would make it hold.

        Facts of the predicates ``over`` may be added; None means those that have no rules. The search ends after so
        many ``tries``; whether it was complete, the answer says.
        """
        return self.explainer.why_not(fact, over, tries)

    def coverage(self, selector: str | None = None) -> Coverage:
        """What became of each rule. With a ``selector`` such as ``intent``, rules for its other values stand apart."""
        return self.explainer.coverage(selector)

    def unused(self, facts: Iterable[str | Fact]) -> list[Unused]:
        """Those of the given facts that occur in no rule instance that holds, with the reason."""
        return self.explainer.unused(facts)


def program_facts(program: Program, now: int) -> Iterator[Fact]:
    """The facts that stand in the program, at the evaluation time ``now``."""
    for fact in program.facts:
        yield Fact(fact.key[0], *stated(fact, program.predicates[fact.key], now))


def stated(fact: GivenFact, predicate: Predicate, now: int) -> Timed:
    """A fact of the program. Only one that mentions the time can fail here: others were tried at load."""
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
