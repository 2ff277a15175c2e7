"""Solving premises over a finished model, and parsing facts to be explained."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import NoReturn

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span
from manglecp.base.suggestions import closest_match
from manglecp.mangle.clauses import ClauseCheck
from manglecp.mangle.engine.model import EvaluatedModel
from manglecp.mangle.errors import AnalysisError, EvalError, LimitError, ParseError, ValueFault
from manglecp.mangle.facts import Args, Fact, Interval, TimedArgs, is_nonempty_interval
from manglecp.mangle.matching import Matcher, Row, evaluate_term, head_interval
from manglecp.mangle.model import Facts, Index, Relation
from manglecp.mangle.naive import Call, NaiveEvaluation, Solving, distinct_rows
from manglecp.mangle.parser import parse_premise
from manglecp.mangle.program import Program, Rule
from manglecp.mangle.syntax import Apply, Clause, Key, Literal, Premise, Variable
from manglecp.mangle.values import INT_MAX, INT_MIN, order_key


def read_fact(text: str, program: Program, now: int) -> Fact:
    """Parse a fact such as ``p(1,/a)`` or ``on(/lamp)@[2026-01-01, _]``.

    It is checked as a clause of the program would be. Raises ParseError or AnalysisError.
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
        if atom.predicate.startswith(":"):
            refuse("this is a test, not a fact", fix="name one fact, such as p(1,/a)")
        arities = sorted(arity for name, arity in program.predicates if name == atom.predicate)
        if arities:
            expected = " or ".join(map(str, arities))
            refuse(f"{atom.predicate} takes {expected} arguments, not {len(atom.args)}", atom.span)
        similar = closest_match(atom.predicate, {name for name, _ in program.predicates})
        refuse(f"unknown predicate {atom.predicate}", atom.span, f"did you mean {similar}?" if similar else None)
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
    """Return the fact, parsed if it is a text. A fact of a temporal predicate without interval holds always."""
    if isinstance(fact, str):
        return read_fact(fact, program, now)
    predicate = program.predicates.get(fact.key)
    always = predicate is not None and predicate.temporal and fact.interval is None
    return fact._replace(interval=(INT_MIN, INT_MAX)) if always else fact


# Look-ups use persistent indexes, and consecutive plain look-ups are joined in the cheapest order. Everything else, in
# particular temporal premises, keeps its place in ``rule.premises``, which the result depends on.
class ModelSolver(NaiveEvaluation):
    """The naive evaluator over a finished model."""

    def __init__(self, model: EvaluatedModel) -> None:
        super().__init__(model.program, model.now, model.limits)
        self.model = model
        self.deadline: float | None = None  # on the monotonic clock; a look-up after it raises LimitError
        self.raw_key: Key | None = None  # the predicate whose intervals are read before coalescing
        self._recursive = {key for c in model.program.components if c.recursive for key in c.predicates}
        self._indexes: dict[tuple[Key, bool, tuple[int, ...]], Index] = {}
        self._matchers: dict[tuple[int, tuple[bool, ...]], tuple[Matcher, Index]] = {}
        self._names: dict[int, tuple[Premise, tuple[str, ...]]] = {}  # variables of a premise, by its id
        self._blocks: dict[int, list[tuple[Premise, ...]]] = {}  # see _premise_blocks, by the id of a rule

    def relation(self, key: Key) -> Relation:
        """Return the facts of a predicate as the naive evaluator reads them, for deferred and merge predicates."""
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
        """Return whether the fact needs no proof: it was given, or neither a rule nor a merge makes it."""
        if self.model.origin(fact) is not None:
            return True
        return fact.key not in self.rules and self.program.predicates[fact.key].merge is None

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

    def is_stored(self, premise: Premise) -> bool:
        """Return whether the premise reads a relation, rather than a test or a call."""
        if not isinstance(premise, Literal) or premise.atom.predicate.startswith(":"):
            return False
        return not self.predicate(premise.atom.key).deferred

    def look_up(self, premise: Literal, row: Row) -> tuple[Matcher, Facts]:
        """Return a matcher of the premise, and the facts that agree with the values that ``row`` knows."""
        if self.deadline is not None and monotonic() > self.deadline:  # here, because every search makes look-ups
            raise LimitError(self.limits.seconds or 0, self.limits.seconds or 0, "seconds")
        premise_names = self._names.get(id(premise))
        if premise_names is None:
            names = tuple(arg.name for arg in premise.atom.args if isinstance(arg, Variable))
            premise_names = self._names[id(premise)] = (premise, names)  # held, so that its id is not reused
        cache_key = (id(premise), tuple([name in row for name in premise_names[1]]))
        cached = self._matchers.get(cache_key) if self.raw_key is None else None
        if cached is None:
            matcher = Matcher(premise, row, self.now)
            raw = premise.atom.key == self.raw_key
            cached = matcher, self.index(premise.atom.key, tuple(i for i, _ in matcher.known), raw=raw)
            if self.raw_key is None:
                self._matchers[cache_key] = cached
        matcher, index = cached
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
        return (extended for args, interval in facts if (extended := matcher.match(row, args, interval)) is not None)

    def can_solve(self, premise: Literal, row: Row) -> bool:
        if self.is_stored(premise):
            return next(self._matches(premise, row), None) is not None
        return bool(self.solve(premise, row))

    def solve(self, premise: Premise, row: Row) -> list[Row]:
        return self._drive(self._solve(premise, [row]))

    def raw_key_of(self, rule: Rule) -> Key | None:
        """Return the key of a temporal, recursive head, whose intervals the rule reads before coalescing; else None."""
        key = rule.head.key
        return key if self.predicate(key).temporal and key in self._recursive else None

    @contextmanager
    def reading_raw(self, key: Key | None) -> Iterator[None]:
        """Read the intervals of this predicate before coalescing, in the ``with`` block."""
        before, self.raw_key = self.raw_key, key
        try:
            yield
        finally:
            self.raw_key = before

    def body(self, rule: Rule, row: Row) -> list[Row]:
        """Return the rows that satisfy every premise, before transforms."""
        rows = [row]
        with self.reading_raw(self.raw_key_of(rule)):
            for block in self._premise_blocks(rule):
                try:
                    rows = self._join(block, rows) if len(block) > 1 else self._drive(self._solve(block[0], rows))
                except ValueFault as fault:
                    raise self.error_at(str(fault), block[0].span, rule.clause) from None
                if not rows:
                    break
                if not self.rows_are_facts(rule):
                    rows = distinct_rows(rows)
        return rows

    def _premise_blocks(self, rule: Rule) -> list[tuple[Premise, ...]]:
        """Group the premises in their order; consecutive plain look-ups form one block."""
        blocks = self._blocks.get(id(rule))
        if blocks is None:
            blocks = self._blocks[id(rule)] = []
            extends_block = False
            for premise in rule.premises:
                is_plain = self._is_plain_look_up(premise)
                if is_plain and extends_block:
                    blocks[-1] += (premise,)
                else:
                    blocks.append((premise,))
                extends_block = is_plain
        return blocks

    def _is_plain_look_up(self, premise: Premise) -> bool:
        if not isinstance(premise, Literal) or not self.is_stored(premise) or premise.negated or premise.timed:
            return False
        return not any(isinstance(arg, Apply) for arg in premise.atom.args)

    def _join(self, block: Iterable[Premise], rows: list[Row]) -> list[Row]:
        """Join the premise with the fewest candidates first, chosen anew for each row."""
        stack: list[tuple[Row, tuple[Literal, ...]]] = [(row, tuple(block)) for row in rows]  # type: ignore[arg-type]
        joined: list[Row] = []
        while stack:
            row, premises = stack.pop()
            if not premises:
                joined.append(row)
                continue
            look_ups = [self.look_up(premise, row) for premise in premises]
            fewest = min(range(len(premises)), key=lambda i: len(look_ups[i][1]))
            other_premises = premises[:fewest] + premises[fewest + 1 :]
            matcher, facts = look_ups[fewest]
            for args, interval in facts:
                extended = matcher.match(row, args, interval)
                if extended is not None:
                    stack.append((extended, other_premises))
        return joined


def index_by(positions: tuple[int, ...], facts: Iterable[TimedArgs]) -> dict[Args, list[TimedArgs]]:
    index: dict[Args, list[TimedArgs]] = {}
    for fact in facts:
        index.setdefault(tuple([fact[0][i] for i in positions]), []).append(fact)
    return index


def furthest(solver: ModelSolver, rule: Rule, start: Row, max_rows: int, target: int | None = None) -> tuple[int, Row]:
    """Return how many of the first premises can be satisfied together, and the least row that satisfies them.

    Searches depth first, in the order of values, at most ``max_rows`` rows, up to ``target`` premises (default: all).
    """
    premises = rule.premises
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
        stack.append(iter(sorted(satisfying_rows(solver, premises[depth], row), key=row_key)))
    return deepest, best_row


def satisfying_rows(solver: ModelSolver, premise: Premise, row: Row) -> list[Row]:
    """Return the rows that satisfy a premise; none if one of its terms has no value."""
    try:
        return list(solver.solve(premise, row))
    except (ValueFault, EvalError):
        return []


def row_key(row: Row) -> list[tuple[str, object]]:
    """Return a key that orders rows by their values."""
    return [(name, order_key(value)) for name, value in sorted(row.items())]
