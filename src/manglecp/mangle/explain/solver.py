"""What an explanation knows: a finished model, facts read from text, and premises answered by the model."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from time import monotonic
from typing import NoReturn, Protocol

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span
from manglecp.base.suggestions import closest_match
from manglecp.mangle.clauses import ClauseCheck
from manglecp.mangle.errors import AnalysisError, LimitError, ParseError, ValueFault
from manglecp.mangle.facts import Args, Fact, Interval, Timed, holds_somewhere
from manglecp.mangle.matching import Matcher, Row, evaluate_term, head_interval
from manglecp.mangle.model import Index, Limits, Origin, Relation
from manglecp.mangle.naive import Call, NaiveEvaluation, Solving, _distinct
from manglecp.mangle.parser import parse_premise
from manglecp.mangle.program import Program, Rule
from manglecp.mangle.syntax import Apply, Clause, Key, Literal, Premise, Variable


class Model(Protocol):
    """A finished least model. A plain fact has the interval None."""

    @property
    def program(self) -> Program:
        """What was evaluated."""

    @property
    def now(self) -> int:
        """The evaluation time in nanoseconds."""

    @property
    def limits(self) -> Limits:
        """Those of the evaluation."""

    def facts(self, key: Key) -> Iterable[Timed]:
        """The facts of a predicate, each once; temporal ones coalesced."""

    def derived(self, key: Key) -> Iterable[Timed]:
        """The facts as given and derived, before coalescing; for a plain predicate the same as :meth:`facts`.

        For a predicate that merges its facts, given ones that lost may be listed too.
        """

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index | None:
        """The facts, or with ``raw`` those before coalescing, by what they have at some positions.

        None where whoever asks has to make an index.
        """

    def count_derived(self, key: Key) -> int | None:
        """How many facts of a predicate with rules were not given; None where whoever asks has to count."""

    def kept_heads(self, rule: Rule) -> dict[int, int] | None:
        """Where to keep how many facts a rule derives, by its id, if every request finds the same; None otherwise."""

    def with_facts(self, added: Iterable[Fact], limits: Limits) -> Model:
        """The same with some facts added, evaluated within other limits; an error if that breaks."""

    def origin(self, fact: Fact) -> Origin | None:
        """Where a given fact came from, with the interval it was given with; None if it was not given."""


def read_fact(text: str, program: Program, now: int) -> Fact:
    """The fact that ``text`` names, such as ``p(1,/a)`` or ``on(/lamp)@[2026-01-01, _]``.

    It is read as a premise and checked as a fact of the program would be, so that a question is refused for the same
    reasons, and in the same words, as a clause.
    """
    source = Source("fact", text)
    place = Span(source, 0, len(text))

    def refuse(message: str, span: Span | None = None, fix: str | None = None) -> NoReturn:
        raise AnalysisError([Diagnostic("analysis", message, span or place, fix=fix)])

    try:
        literal = parse_premise(source)
    except ParseError as error:
        raise ParseError(error.diagnostics[:1]) from None
    if not isinstance(literal, Literal):
        refuse("this is a test, not a fact", fix="name one fact, such as p(1,/a)")
    if literal.negated:
        refuse("a fact is not negated", fix="ask about the fact itself")
    if literal.operator is not None:
        refuse("a fact has no operator", literal.operator.span, "say when it holds with @[start, end]")
    atom = literal.atom
    if atom.key not in program.predicates:
        if atom.predicate.startswith(":"):
            refuse("this is a test, not a fact", fix="name one fact, such as p(1,/a)")
        arities = sorted(arity for name, arity in program.predicates if name == atom.predicate)
        if arities:
            takes = " or ".join(map(str, arities))
            refuse(f"{atom.predicate} takes {takes} arguments, not {len(atom.args)}", atom.span)
        similar = closest_match(atom.predicate, {name for name, _ in program.predicates})
        refuse(f"unknown predicate {atom.predicate}", atom.span, f"did you mean {similar}?" if similar else None)
    check = ClauseCheck(Clause(atom, literal.annotation, (), (), literal.span), program.predicates)
    check.run()
    if check.diagnostics:
        raise AnalysisError([Diagnostic("analysis", d.message, d.span, None, d.fix) for d in check.diagnostics])
    try:
        args = tuple(evaluate_term(arg, {}, now) for arg in atom.args)
        if not program.predicates[atom.key].temporal:
            return Fact(atom.predicate, args)
        assert literal.annotation is not None  # checked above
        interval = head_interval(literal.annotation, {}, now)
    except ValueFault as fault:
        refuse(str(fault))
    if not holds_somewhere(*interval):
        refuse("the interval ends before it starts", literal.annotation.span)
    return Fact(atom.predicate, args, interval)


# Premises answered by a model that is finished.
#
# The naive evaluator already knows what every premise means. Here it meets relations that no longer change, so each
# look-up is answered by an index that stays (the model's own, where it has one), and neighbouring premises that only
# look up plain facts are joined in the order that leaves least to do. Everything else, time above all, keeps the
# running order of the rule, which is part of its meaning.


class Finished(NaiveEvaluation):
    """The evaluator, over a model instead of its own relations."""

    def __init__(self, model: Model) -> None:
        super().__init__(model.program, model.now, model.limits)
        self.model = model
        self.deadline: float | None = None
        """On the monotonic clock; a look-up after it ends the search."""
        self.raw: Key | None = None  # the predicate that is read as derived, not coalesced (D12)
        self._recursive = {key for c in model.program.components if c.recursive for key in c.predicates}
        self._indexes: dict[tuple[Key, bool, tuple[int, ...]], Index] = {}
        self._matchers: dict[tuple[int, tuple[bool, ...]], tuple[Matcher, Index]] = {}
        self._names: dict[int, tuple[Premise, tuple[str, ...]]] = {}
        self._blocks: dict[tuple[int, int | None], list[tuple[Premise, ...]]] = {}

    # --- facts -----------------------------------------------------------------------------------------------------

    def relation(self, key: Key) -> Relation:
        """The facts of a predicate as the evaluator's own kind of relation; deferred and merge predicates ask."""
        relation = self.relations.get(key)
        if relation is None:
            relation = self.relations[key] = Relation()
            for args, interval in self.model.facts(key):
                relation.add(args, interval)
        return relation

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index:
        """The facts of a predicate by what they have at some positions."""
        index = self._indexes.get((key, raw, positions))
        if index is None:
            index = self._indexes[key, raw, positions] = self._build(key, positions, raw)
        return index

    def _build(self, key: Key, positions: tuple[int, ...], raw: bool) -> Index:
        own = self.model.index(key, positions, raw=raw)
        if own is not None:
            return own
        index: dict[Args, list[Timed]] = {}
        for fact in self.model.derived(key) if raw else self.model.facts(key):
            index.setdefault(tuple([fact[0][i] for i in positions]), []).append(fact)
        return index

    def intervals(self, key: Key, args: Args, *, raw: bool = False) -> list[Interval]:
        """When a temporal fact holds, in order."""
        found = self.index(key, tuple(range(key[1])), raw=raw).get(args, ())
        return sorted(interval for _, interval in found if interval is not None)

    def given(self, fact: Fact) -> bool:
        """Is it a leaf? What has no rules was given, wherever it came from."""
        if self.model.origin(fact) is not None:
            return True
        return fact.key not in self.rules and self.program.predicates[fact.key].merge is None

    def contains(self, fact: Fact) -> bool:
        """Does it hold, at every instant it names?"""
        if self.predicate(fact.key).deferred:
            inputs = tuple(fact.args[i] for i in self.predicate(fact.key).inputs())
            return fact.args in self.ask(fact.key, inputs)
        if fact.interval is None:
            return bool(self.index(fact.key, tuple(range(fact.key[1]))).get(fact.args, ()))
        start, end = fact.interval
        return any(s <= start and end <= e for s, e in self.intervals(fact.key, fact.args))

    def ask(self, key: Key, inputs: Args) -> list[Args]:
        """The facts of a deferred predicate that have these values at its input positions."""

        def call() -> Generator[Call, list[Args], list[Args]]:
            return (yield key, inputs)

        return self._drive(call())

    # --- premises --------------------------------------------------------------------------------------------------

    def is_stored(self, premise: Premise) -> bool:
        """Is it answered by facts, rather than by a test or a call?"""
        if not isinstance(premise, Literal) or premise.atom.predicate.startswith(":"):
            return False
        return not self.predicate(premise.atom.key).deferred

    def look_up(self, premise: Literal, row: Row) -> tuple[Matcher, Sequence[Timed]]:
        """The facts that agree with what is known; the matcher says which of them really match."""
        if self.deadline is not None and monotonic() > self.deadline:  # every search comes by here, again and again
            raise LimitError(self.limits.seconds or 0, self.limits.seconds or 0, "seconds")
        known = self._names.get(id(premise))
        if known is None:
            names = tuple(arg.name for arg in premise.atom.args if isinstance(arg, Variable))
            known = self._names[id(premise)] = (premise, names)  # holding the premise keeps its id its own
        pattern = (id(premise), tuple([name in row for name in known[1]]))
        found = self._matchers.get(pattern) if self.raw is None else None
        if found is None:
            matcher = Matcher(premise, row, self.now)
            raw = premise.atom.key == self.raw
            found = matcher, self.index(premise.atom.key, tuple(i for i, _ in matcher.known), raw=raw)
            if self.raw is None:
                self._matchers[pattern] = found
        matcher, index = found
        return matcher, index.get(matcher.key(row), ())

    def _solve(self, premise: Premise, rows: list[Row]) -> Solving:
        if not rows or not self.is_stored(premise):
            return (yield from super()._solve(premise, rows))
        assert isinstance(premise, Literal)
        solved: list[Row] = []
        for row in rows:
            matches = self._matches(premise, row)
            if not premise.negated:
                solved.extend(matches)
            elif next(matches, None) is None:
                solved.append(row)
        return solved

    def _matches(self, premise: Literal, row: Row) -> Iterator[Row]:
        matcher, facts = self.look_up(premise, row)
        return (new for args, at in facts if (new := matcher.match(row, args, at)) is not None)

    def can_solve(self, premise: Literal, row: Row) -> bool:
        """Is there a row that a positive premise makes of one row? Where facts tell, the first one does."""
        if self.is_stored(premise):
            return next(self._matches(premise, row), None) is not None
        return bool(self.solve(premise, row))

    def solve(self, premise: Premise, row: Row) -> list[Row]:
        """The rows that one premise makes of one row."""
        return self._drive(self._solve(premise, [row]))

    # --- bodies ----------------------------------------------------------------------------------------------------

    def reads_raw(self, rule: Rule) -> Key | None:
        """Inside its own recursion a temporal predicate is read as derived (D12)."""
        key = rule.head.key
        return key if self.predicate(key).temporal and key in self._recursive else None

    def body(self, rule: Rule, row: Row, skip: int | None = None) -> list[Row]:
        """The rows that satisfy every premise (but the one at ``skip``), before transforms."""
        before, self.raw = self.raw, self.reads_raw(rule)
        rows = [row]
        try:
            for block in self._in_blocks(rule, skip):
                try:
                    rows = self._join(block, rows) if len(block) > 1 else self._drive(self._solve(block[0], rows))
                except ValueFault as fault:
                    raise self.error_at(str(fault), block[0].span, rule.clause) from None
                if not rows:
                    break
                if not self.rows_are_facts(rule):
                    rows = _distinct(rows)
        finally:
            self.raw = before
        return rows

    def _in_blocks(self, rule: Rule, skip: int | None) -> list[tuple[Premise, ...]]:
        """The premises in running order; plain look-ups that follow each other form one block."""
        blocks = self._blocks.get((id(rule), skip))
        if blocks is None:
            blocks = self._blocks[id(rule), skip] = []
            joining = False
            for position, premise in enumerate(rule.premises):
                if position == skip:
                    continue
                plain = self._is_plain_look_up(premise)
                if plain and joining:
                    blocks[-1] += (premise,)
                else:
                    blocks.append((premise,))
                joining = plain
        return blocks

    def _is_plain_look_up(self, premise: Premise) -> bool:
        if not self.is_stored(premise):
            return False
        assert isinstance(premise, Literal)
        if premise.negated or premise.timed:
            return False
        return not any(isinstance(arg, Apply) for arg in premise.atom.args)

    def _join(self, block: Iterable[Premise], rows: list[Row]) -> list[Row]:
        """Match the premise with the fewest candidates first, for each row anew."""
        work: list[tuple[Row, tuple[Literal, ...]]] = [(row, tuple(block)) for row in rows]  # type: ignore[arg-type]
        joined: list[Row] = []
        while work:
            row, waiting = work.pop()
            if not waiting:
                joined.append(row)
                continue
            found = [self.look_up(premise, row) for premise in waiting]
            best = min(range(len(waiting)), key=lambda i: len(found[i][1]))
            rest = waiting[:best] + waiting[best + 1 :]
            matcher, facts = found[best]
            for args, at in facts:
                new = matcher.match(row, args, at)
                if new is not None:
                    work.append((new, rest))
        return joined
