"""Solve premises over a finished model; parse facts to be explained."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Final, NamedTuple, NoReturn

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span
from manglecp.mangle.clauses import ClauseCheck
from manglecp.mangle.declarations import unknown_predicate
from manglecp.mangle.engine.model import EvaluatedModel
from manglecp.mangle.errors import AnalysisError, EvalError, LimitError, ParseError, ValueFault
from manglecp.mangle.facts import Args, Fact, Interval, TimedArgs, is_nonempty_interval
from manglecp.mangle.matching import Matcher, Row, evaluate_term, head_interval
from manglecp.mangle.model import Facts, Index, Limits, Relation
from manglecp.mangle.naive import Call, NaiveEvaluation, RowGenerator, distinct_rows
from manglecp.mangle.parser import parse_premise
from manglecp.mangle.program import Program, Rule
from manglecp.mangle.syntax import Apply, Clause, Key, Literal, Premise, Term, Variable
from manglecp.mangle.values import INT_MAX, INT_MIN, order_key


def read_fact(text: str, program: Program, now: int) -> Fact:
    """Parse a fact such as ``p(1,/a)`` or ``on(/lamp)@[2026-01-01, _]``.

    The fact is checked like a clause of the program. Raises ParseError or AnalysisError.
    """
    source = Source("fact", text)
    whole_span = Span(source, 0, len(text))

    def refuse(message: str, span: Span | None = None, fix: str | None = None) -> NoReturn:
        raise AnalysisError([Diagnostic("analysis", message, span or whole_span, fix=fix)])

    try:
        literal = parse_premise(source)
    except ParseError as error:
        raise ParseError(error.diagnostics[:1]) from None
    if not isinstance(literal, Literal):
        refuse("this is a test, not a fact", fix="name one fact, such as p(1,/a)")
    if literal.negated:
        refuse("a fact is not negated", fix="remove the negation")
    if literal.operator is not None:
        refuse("a fact has no operator", literal.operator.span, "give its time as @[start, end]")
    atom = literal.atom
    if atom.key not in program.predicates:
        if atom.is_builtin:
            refuse("this is a test, not a fact", fix="name one fact, such as p(1,/a)")
        message, fix = unknown_predicate(*atom.key, program.predicates)
        refuse(message, atom.span, fix)
    check = ClauseCheck(Clause(atom, literal.annotation, span=literal.span), program.predicates)
    check.run()
    if check.diagnostics:
        raise AnalysisError([Diagnostic("analysis", d.message, d.span, fix=d.fix) for d in check.diagnostics])
    try:
        args = tuple(evaluate_term(arg, {}, now) for arg in atom.args)
        if not program.predicates[atom.key].temporal:
            return Fact(atom.predicate, args)
        assert literal.annotation is not None  # checked above
        interval = head_interval(literal.annotation, {}, now)
    except ValueFault as fault:
        refuse(str(fault))
    if not is_nonempty_interval(*interval):
        refuse("the interval ends before it starts", literal.annotation.span)
    return Fact(atom.predicate, args, interval)


def read_goal(fact: str | Fact, program: Program, now: int) -> Fact:
    """Return the fact, parsed if it is a text. A temporal fact without an interval gets the interval of all times."""
    if isinstance(fact, str):
        return read_fact(fact, program, now)
    predicate = program.predicates.get(fact.key)
    always = predicate is not None and predicate.temporal and fact.interval is None
    return fact._replace(interval=(INT_MIN, INT_MAX)) if always else fact


MAX_FACTS: Final = 1_000  # facts of one premise that :func:`furthest` tries


class DeadlineExceeded(LimitError):
    """The deadline of explanations has passed."""


class _PremiseTraits(NamedTuple):
    """How one premise is solved. Traits are cached by the id of the premise; ``premise`` keeps that id from reuse."""

    premise: Premise
    is_stored: bool  # reads a relation, rather than a test or a call
    is_plain: bool  # a positive look-up without times and functions; neighbouring plain premises may change places
    is_distinct: bool  # no two facts extend a row in the same way


class ModelSolver(NaiveEvaluation):
    """The interpreter over a finished model, with indexes that are kept between calls.

    A parameter ``raw`` with a key is the predicate whose intervals are read before coalescing: see :meth:`raw_key_of`.
    """

    def __init__(self, model: EvaluatedModel) -> None:
        super().__init__(model.program, model.now, model.limits)
        self.model = model
        self.deadline: float | None = None  # on the monotonic clock; a look-up after it raises DeadlineExceeded
        self._indexes: dict[tuple[Key, bool, tuple[int, ...]], Index] = {}
        self._matchers: dict[tuple[int, Key | None, tuple[str, ...]], tuple[Matcher, Index]] = {}
        self._traits: dict[int, _PremiseTraits] = {}  # by the id of a premise
        self._least: dict[int, tuple[Facts, Sequence[TimedArgs]]] = {}  # see least_facts
        recursive = (key for c in model.program.components if c.recursive for key in c.predicates)
        self._raw_keys = {key for key in recursive if self.predicate(key).temporal}

    def relation(self, key: Key) -> Relation:
        """Return the facts of a predicate in the form that the interpreter of deferred and merged predicates reads."""
        relation = self.relations.get(key)
        if relation is None:
            relation = self.relations[key] = Relation()
            for args, interval in self.model.facts(key):
                relation.add(args, interval)
        return relation

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index:
        """Return an index of the facts, or with ``raw`` of the facts before coalescing, by some positions."""
        index = self._indexes.get((key, raw, positions))
        if index is None:
            index = self.model.index(key, positions, raw=raw)
            if index is None:
                index = index_by(positions, self.model.derived(key) if raw else self.model.facts(key))
            self._indexes[key, raw, positions] = index
        return index

    def has_facts(self, key: Key) -> bool:
        return bool(self.index(key, positions=()).get((), ()))

    def intervals(self, key: Key, args: Args, *, raw: bool = False) -> list[Interval]:
        timed = self.index(key, tuple(range(key[1])), raw=raw).get(args, ())
        return sorted(interval for _, interval in timed if interval is not None)

    def is_given(self, fact: Fact) -> bool:
        """Return whether the fact needs no proof: it was given, or its predicate has neither rules nor a merge."""
        if fact.key not in self.rules and self.program.predicates[fact.key].merge is None:
            return True
        return self.model.origin(fact) is not None

    def contains(self, fact: Fact) -> bool:
        if self.predicate(fact.key).deferred:
            inputs = tuple(fact.args[i] for i in self.predicate(fact.key).inputs())
            return fact.args in self.call_deferred(fact.key, inputs)
        if fact.interval is None:
            return bool(self.index(fact.key, tuple(range(fact.key[1]))).get(fact.args, ()))
        start, end = fact.interval
        return any(s <= start and end <= e for s, e in self.intervals(fact.key, fact.args))

    def call_deferred(self, key: Key, inputs: Args) -> list[Args]:
        def call() -> Generator[Call, list[Args], list[Args]]:
            return (yield key, inputs)

        return self._drive(call())

    def traits(self, premise: Premise) -> _PremiseTraits:
        traits = self._traits.get(id(premise))
        if traits is None:
            is_stored = is_plain = is_temporal = False
            args: tuple[Term, ...] = ()
            if isinstance(premise, Literal) and not premise.atom.predicate.startswith(":"):
                predicate, args = self.predicate(premise.atom.key), premise.atom.args
                is_stored, is_temporal = not predicate.deferred, predicate.temporal
                has_functions = any(isinstance(arg, Apply) for arg in args)
                is_plain = is_stored and not premise.negated and not premise.timed and not has_functions
            has_wildcards = any(isinstance(arg, Variable) and arg.anonymous for arg in args)
            is_distinct = is_plain and not has_wildcards and not is_temporal
            traits = self._traits[id(premise)] = _PremiseTraits(premise, is_stored, is_plain, is_distinct)
        return traits

    def check_deadline(self) -> None:
        if self.deadline is not None and monotonic() > self.deadline:
            raise DeadlineExceeded(self.limits.seconds or 0, self.limits.seconds or 0, "seconds")

    def limits_left(self) -> Limits:
        """Return the limits of another evaluation, whose time ends at the deadline."""
        if self.deadline is None:
            return self.limits
        return replace(self.limits, seconds=max(self.deadline - monotonic(), 0.001))

    def look_up(self, premise: Literal, row: Row, raw: Key | None = None) -> tuple[Matcher, Facts]:
        """Return a matcher of the premise, and the facts that agree with the values in ``row``."""
        if self.deadline is not None:  # checked here, because every search makes look-ups
            self.check_deadline()
        cache_key = (id(premise), raw, tuple(row))
        cached = self._matchers.get(cache_key)
        if cached is None:
            matcher = Matcher(premise, row, self.now)
            positions = tuple(i for i, _ in matcher.known)
            index = self.index(premise.atom.key, positions, raw=premise.atom.key == raw)
            cached = self._matchers[cache_key] = matcher, index
        matcher, index = cached
        return matcher, index.get(matcher.key(row), ())

    def _solve(self, premise: Premise, rows: list[Row]) -> RowGenerator:
        if not rows or not self.traits(premise).is_stored:
            return (yield from super()._solve(premise, rows))
        return [extended for row in rows for extended in self._matches(premise, row)]  # type: ignore[arg-type]

    def _matches(self, premise: Literal, row: Row, raw: Key | None = None, limit: int | None = None) -> Iterator[Row]:
        matcher, facts = self.look_up(premise, row, raw)
        if limit is not None and len(facts) > 1:
            facts = self.least_facts(facts, limit)
        matches = (m for args, interval in facts if (m := matcher.match(row, args, interval)) is not None)
        if not premise.negated:
            yield from matches
        elif next(matches, None) is None:
            yield row

    def solutions(self, premise: Premise, row: Row, raw: Key | None = None, limit: int | None = None) -> Iterable[Row]:
        """Return the extensions of a row that satisfy a premise; with ``limit``, by that number of the least facts."""
        if self.traits(premise).is_stored:
            return self._matches(premise, row, raw, limit)  # type: ignore[arg-type]
        return self._drive(super()._solve(premise, [row]))

    def least_facts(self, facts: Facts, limit: int) -> list[TimedArgs]:
        """Return the least facts of an index entry in the order of values, memoised."""
        kept_facts, least = self._least.get(id(facts), (facts, ()))
        if len(least) < min(limit, len(kept_facts)):
            count = max(limit, MAX_FACTS)
            try:
                least = heapq.nsmallest(count, facts)  # strings and numbers compare fast
            except TypeError:
                least = heapq.nsmallest(count, facts, key=timed_order)
            self._least[id(facts)] = facts, least  # a reference to ``facts`` keeps its id from reuse
        return [*least[:limit]]

    def raw_key_of(self, rule: Rule) -> Key | None:
        """Return the key of a head that is temporal and recursive, whose intervals the rule reads before coalescing."""
        return rule.head.key if rule.head.key in self._raw_keys else None

    def rows(self, rule: Rule, start: Row, limit: int | None = None) -> Iterator[Row]:
        """Yield the rows that satisfy every premise, before transforms; with ``limit``, the first of the least facts.

        Of neighbouring plain look-ups, the one with the fewest facts runs first. Any other premise, for example a
        temporal one, keeps its place, because the result depends on the order.
        """
        try:
            yield from itertools.islice(self._extend(rule, start, rule.premises, limit), limit)
        except ValueFault as fault:
            raise self.error_at(str(fault), rule.clause.span, rule.clause) from None

    def _extend(self, rule: Rule, row: Row, premises: tuple[Premise, ...], limit: int | None) -> Iterator[Row]:
        raw, first = self.raw_key_of(rule), 0
        if len(premises) > 1 and self.traits(premises[1]).is_plain:
            run = itertools.takewhile(lambda premise: self.traits(premise).is_plain, premises)
            sizes = [len(self.look_up(premise, row, raw)[1]) for premise in run]  # type: ignore[arg-type]
            first = sizes.index(min(sizes)) if sizes else 0
        solutions = self.solutions(premises[first], row, raw, limit)
        if not self.traits(premises[first]).is_distinct and not rule.counts_facts:
            solutions = distinct_rows(list(solutions))
        if len(premises) == 1:
            yield from solutions
            return
        rest = premises[:first] + premises[first + 1 :]
        for extended in solutions:
            yield from self._extend(rule, extended, rest, limit)


def timed_order(timed: TimedArgs) -> tuple[object, ...]:
    args, interval = timed
    return [order_key(value) for value in args], interval or ()


def index_by(positions: tuple[int, ...], facts: Iterable[TimedArgs]) -> dict[Args, list[TimedArgs]]:
    index: dict[Args, list[TimedArgs]] = {}
    for fact in facts:
        index.setdefault(tuple([fact[0][i] for i in positions]), []).append(fact)
    return index


def furthest(solver: ModelSolver, rule: Rule, start: Row, max_rows: int, target: int | None = None) -> tuple[int, Row]:
    """Return how many of the first premises can be satisfied together, and the least row that satisfies them.

    Searches depth first, in the order of values, at most ``max_rows`` rows, up to ``target`` premises (default: all).
    """
    premises, raw = rule.premises, solver.raw_key_of(rule)
    target = len(premises) if target is None else target
    deepest, best_row = 0, start
    stack: list[Iterator[Row]] = [iter([start])]
    for _ in range(max_rows):
        if not stack:
            break
        row = next(stack[-1], None)
        if row is None:
            stack.pop()
            continue
        depth = len(stack) - 1
        if depth > deepest:
            deepest, best_row = depth, row
        if deepest >= target:
            break
        stack.append(iter(sorted(satisfying_rows(solver, premises[depth], row, raw, MAX_FACTS), key=row_key)))
    return deepest, best_row


def satisfying_rows(
    solver: ModelSolver, premise: Premise, row: Row, raw: Key | None = None, limit: int | None = None
) -> list[Row]:
    """Return the rows that satisfy a premise; none if one of its terms has no value."""
    try:
        return list(solver.solutions(premise, row, raw, limit))
    except DeadlineExceeded:
        raise
    except (ValueFault, EvalError):
        return []


def row_key(row: Row) -> list[tuple[str, object]]:
    """Return a key that orders rows by their values."""
    return [(name, order_key(value)) for name, value in sorted(row.items())]
