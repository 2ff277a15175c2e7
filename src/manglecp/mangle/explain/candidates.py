"""Candidate facts for abduction: their values, types and intervals, and minimal sets of them."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

from manglecp.mangle.errors import ValueFault
from manglecp.mangle.explain.instances import demand, free_ends
from manglecp.mangle.explain.proof import Prover
from manglecp.mangle.facts import Args, Fact, Interval, holds_somewhere
from manglecp.mangle.matching import Row, evaluate_term, window
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Apply, Equality, Key, Literal, Premise, Term, Variable, subterms
from manglecp.mangle.types import ANY, conforms
from manglecp.mangle.values import INT_MAX, INT_MIN, Float, List, Map, Name, Pair, Struct, Time, Value, order_key


class Candidates:
    """The facts that abduction may assume."""

    max_rows: int | None = None  # limit of rows per premise: preferred values first, then by order. None for no limit
    preferred: frozenset[Value] = frozenset()

    def __init__(self, prover: Prover, goal: Fact, over: Collection[Key] | None = None) -> None:
        self.solver = prover.solver
        self.goal = goal
        self.keys = frozenset(self._keys_without_rules() if over is None else over)
        self.smallest: set[Fact] = set()  # facts with the smallest interval that satisfies some premise
        self._acceptance = prover.acceptance
        self._columns: dict[tuple[Key, int], tuple[Value, ...]] = {}

    def _keys_without_rules(self) -> set[Key]:
        program = self.solver.program
        external = {key for key, predicate in program.predicates.items() if predicate.external}
        return set(program.predicates) - {rule.head.key for rule in program.rules} - external

    @cached_property
    def constants(self) -> tuple[Value, ...]:
        """Return every constant of the program, the given facts and the goal, in the order of values."""
        constants: set[Value] = set()
        stack = list(self._values())
        while stack:
            value = stack.pop()
            if value not in constants:
                constants.add(value)
                stack += _parts(value)
        return tuple(sorted(constants, key=order_key))

    def _values(self) -> Iterator[Value]:
        yield from self.goal.args
        solver = self.solver
        for key in solver.program.predicates:
            for args, interval in solver.model.derived(key):
                if solver.given(Fact(key[0], args, interval)):
                    yield from args
        for fact in solver.program.facts:
            yield from fact.values(solver.now)
        for rule in solver.program.rules:
            terms = [*rule.head.args, *(term for premise in rule.premises for term in _terms(premise))]
            terms += [let.expression for step in rule.clause.transforms for let in step.lets]
            for term in terms:
                yield from self._term_values(term)

    def _term_values(self, term: Term) -> Iterator[Value]:
        for part in subterms(term):
            if isinstance(part, Apply):
                with suppress(ValueFault):  # it has variables, or no value
                    yield evaluate_term(part, {}, self.solver.now)
            elif not isinstance(part, Variable):
                yield part

    @cached_property
    def _known(self) -> frozenset[Value]:
        return frozenset(self.constants)

    def column(self, key: Key, position: int, *, interchangeable: bool = False) -> tuple[Value, ...]:  # noqa: ARG002
        """Return the constants for one position. ``interchangeable``: the premises do not distinguish them."""
        values = self._columns.get((key, position))
        if values is None:
            types = [row[position] for row in self.solver.predicate(key).rows] or [ANY]
            value = self._acceptance.vocabulary.value
            choices = self._choices(key, position)
            values = tuple(v for v in choices if ANY in types or any(conforms(value(v), t) for t in types))
            self._columns[key, position] = values
        return values

    def _choices(self, key: Key, position: int) -> Iterable[Value]:  # noqa: ARG002
        return self.constants

    def accepts(self, key: Key, args: Args) -> bool:
        """Return whether the fact may be added: known values of the declared types."""
        return key in self.keys and self._known.issuperset(args) and self._acceptance.accepts(key, args)

    @cached_property
    def instants(self) -> tuple[int, ...]:
        """Return the instants in the program, the facts and the goal, nearest to now first."""
        instants = {self.solver.now}.union(*self._mentioned_intervals()) - {INT_MIN, INT_MAX}
        return tuple(sorted(instants, key=lambda ns: (abs(ns - self.solver.now), ns)))

    @cached_property
    def intervals(self) -> tuple[Interval, ...]:
        """Return these instants, the windows of boxes, and the intervals in rules and the goal."""
        demanded = set(self._demanded_intervals(boxes_only=True))
        return (*((ns, ns) for ns in self.instants), *sorted(i for i in demanded if i[0] != i[1]))

    def _mentioned_intervals(self) -> Iterator[Interval]:
        yield from self._demanded_intervals()
        for key, predicate in self.solver.program.predicates.items():
            if predicate.temporal:
                yield from (at for args, at in self.solver.model.derived(key) if at is not None)

    def _demanded_intervals(self, boxes_only: bool = False) -> Iterator[Interval]:
        if self.goal.interval is not None:
            yield self.goal.interval
        for rule in self.solver.program.rules:
            literals = [premise for premise in rule.premises if isinstance(premise, Literal)]
            for literal in literals:
                if literal.operator is not None and (literal.operator.is_box or not boxes_only):
                    with suppress(ValueFault):  # its bounds are variables
                        yield window(literal.operator, {}, self.solver.now)
            for annotation in (rule.clause.annotation, *(literal.annotation for literal in literals)):
                if annotation is not None:
                    ends = [bound.value.ns for bound in annotation.bounds if isinstance(bound.value, Time)]
                    if ends:
                        yield min(ends), max(ends)


def _parts(value: Value) -> Iterable[Value]:
    if isinstance(value, Pair):
        return value.first, value.second
    if isinstance(value, List):
        return value.items
    if isinstance(value, Map | Struct):
        return [part for entry in value.entries for part in entry]
    return ()


MAX_VALUES: Final = 1_000  # limit of values from the caller's facts
MAX_ROWS: Final = 20  # limit of rows per premise, and of values per column of the server
LARGEST: Final = 100_000  # values of larger relations are not sampled
ANYTHING: Final = "\ufdd0any value"  # wildcard for any text. Begins with a noncharacter, so that no program uses it
ANY_NAME: Final = Name("/any_value")
_ANY: Final = (ANYTHING, ANY_NAME)
_STRICT: Final = frozenset({":lt", ":gt"})


class Assertable(Candidates):
    """Candidates for a caller that may assert only some facts, made of values that may be disclosed.

    * Values are those of the caller's facts, the goal and constants of ``rules``. Where any value will do, a wildcard
      is used.
    * With ``readable``, values of the server's facts are used too: joined from other premises, and samples where free.
    * Free values are sampled, so failure of the samples rules nothing out.
    """

    max_rows = MAX_ROWS

    def __init__(
        self,
        prover: Prover,
        rules: Sequence[Rule],
        session: Sequence[Fact],
        goal: Fact,
        over: Collection[Key],
        *,
        readable: bool = False,
    ) -> None:
        super().__init__(prover, goal, over)
        self.rules = rules
        self.session = session
        self.readable = readable
        self.preferred = frozenset(value for fact in session[:MAX_VALUES] for value in fact.args)
        self.refused = False
        self._free: set[tuple[Key, int]] = set()  # free positions, whose values were sampled
        self._distinguished: set[tuple[Key, int]] = set()  # positions at which other values could have succeeded
        self._column_values: dict[tuple[Key, int], dict[Value, None]] = {}
        for rule in rules:
            self._read(rule)

    def _read(self, rule: Rule) -> None:
        """Collect the values that a rule names at positions of its premises, directly or by a test."""
        places: dict[str, list[tuple[Key, int]]] = {}
        tested: dict[str, list[Value]] = {}
        compared: dict[str, set[str]] = {}
        for premise in rule.premises:
            terms = _terms(premise)
            if isinstance(premise, Literal) and not premise.atom.predicate.startswith(":"):
                for position, term in enumerate(terms):
                    if isinstance(term, Variable):
                        places.setdefault(term.name, []).append((premise.atom.key, position))
                    else:
                        self._add_values((premise.atom.key, position), self._term_values(term))
                continue
            names = {term.name for term in terms if isinstance(term, Variable)}
            for name in names:
                tested.setdefault(name, []).extend(value for term in terms for value in _passing(premise, term))
                compared.setdefault(name, {name}).update(names)
        places.pop("_", None)
        for name, own in places.items():
            others = [place for other in sorted(compared.get(name, {name})) for place in places.get(other, ())]
            for place in own:
                self._add_values(place, tested.get(name, ()))
                if self.readable and place[0] in self.keys:
                    for other in dict.fromkeys(others):
                        self._add_values(place, self._sample_column(*other) if other != place else ())

    def _add_values(self, place: tuple[Key, int], values: Iterable[Value]) -> None:
        self._column_values.setdefault(place, {}).update(dict.fromkeys(values))

    def _sample_column(self, key: Key, position: int) -> Iterator[Value]:
        """Return some values of a column; of numbers also neighbours, which may be limits."""
        rows = self.solver.index(key, ()).get((), ())
        if len(rows) > LARGEST:
            return
        for value in heapq.nsmallest(MAX_ROWS, {args[position] for args, _ in rows}, key=order_key):
            yield value
            if type(value) is int:
                yield from (value - 1, value + 1)

    def _values(self) -> Iterator[Value]:
        yield from self.goal.args
        yield from self.preferred
        for rule in self.rules:
            for term in (*rule.head.args, *(term for premise in rule.premises for term in _terms(premise))):
                yield from self._term_values(term)
        for values in self._column_values.values():
            yield from values
        yield from self._wildcards()

    def _wildcards(self) -> tuple[Value, ...]:
        return ANYTHING, ANY_NAME, 0, Float(0.0), Time(self.solver.now)

    def _mentioned_intervals(self) -> Iterator[Interval]:
        yield from self._demanded_intervals()
        yield from (fact.interval for fact in self.session if fact.interval is not None)

    def _choices(self, key: Key, position: int) -> Iterable[Value]:
        values = dict.fromkeys((*self._column_values.get((key, position), ()), *self._wildcards()))
        return sorted(values, key=order_key)

    def column(self, key: Key, position: int, *, interchangeable: bool = False) -> tuple[Value, ...]:
        self._free.add((key, position))
        if not interchangeable:
            self._distinguished.add((key, position))
        return super().column(key, position)

    def accepts(self, key: Key, args: Args) -> bool:
        if self.readable:
            return key in self.keys and self._acceptance.accepts(key, args)
        if key in self.keys and not self._known.issuperset(args):
            self.refused = True
        return super().accepts(key, args)

    def rules_out(self, sets: Collection[Collection[Fact]], failed: Iterable[Collection[Fact]]) -> bool:
        """Return whether no other set exists: wildcards or successes cover the free values that were not sampled."""
        if self.refused or any(
            (fact.key, i) in self._free for one in failed for fact in one for i in range(fact.key[1])
        ):
            return False
        facts = [fact for one in sets for fact in one]
        return all(
            bool(values := [fact.args[position] for fact in facts if fact.key == key])
            and all(v in _ANY for v in values)
            for key, position in self._distinguished
        )


def _passing(premise: Premise, term: Term) -> Iterator[Value]:
    if isinstance(term, Variable | Apply):
        return
    excludes = premise.negated if isinstance(premise, Equality) else premise.atom.predicate in _STRICT
    if excludes and type(term) is int:
        yield from (term - 1, term + 1)
    else:
        yield term


def _terms(premise: Premise) -> Sequence[Term]:
    return (premise.left, premise.right) if isinstance(premise, Equality) else premise.atom.args


def intervals_for(premise: Literal, row: Row, candidates: Candidates) -> list[Interval]:
    """Return candidate intervals; the smallest sufficient one comes first.

    A box needs its window, a known end its instant, a diamond the instant of its window nearest to now, and a premise
    without a time now. Larger intervals of other premises are included, because one fact may serve both; with free
    ends, all are.
    """
    now = candidates.solver.now
    demanded = demand(premise, row, now)
    first, last = demanded.touched or (now, now)
    nearest = min(max(now, first), last)
    choices = [demanded.whole or (nearest, nearest)]
    free = free_ends(premise, row)
    for start, end in candidates.intervals:
        if demanded.whole is None:
            if demanded.touched is None or (start <= last and first <= end):
                choices.append((start, end))
        elif any(free):
            choices.append((min(start, demanded.whole[0]), max(end, demanded.whole[1])))
        elif start <= demanded.whole[0] and demanded.whole[1] <= end:
            choices.append((start, end))
    if free[0] is not None and free[0] == free[1]:
        choices = [(start, end) for start, end in choices if start == end]
    return [interval for interval in dict.fromkeys(choices) if holds_somewhere(*interval)]
