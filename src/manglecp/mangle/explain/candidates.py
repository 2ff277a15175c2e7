"""Candidate facts for abduction: the predicates, values and intervals of facts that may be added."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

from manglecp.mangle.errors import ValueFault
from manglecp.mangle.explain.instances import demand, free_ends
from manglecp.mangle.explain.proof import Prover
from manglecp.mangle.facts import Args, Fact, Interval, is_nonempty_interval
from manglecp.mangle.matching import Row, evaluate_term, window
from manglecp.mangle.model import Facts
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Apply, Equality, Key, Literal, Premise, Term, Variable, subterms
from manglecp.mangle.types import ANY, conforms
from manglecp.mangle.values import INT_MAX, INT_MIN, Float, List, Map, Name, Pair, Struct, Time, Value, order_key

MAX_VALUE_FACTS: Final = 1_000  # facts of one predicate whose values become candidates
FRESH: Final[tuple[Value, ...]] = ("new 1", "new 2", Name("/new/1"), Name("/new/2"))  # values that occur nowhere


class Candidates:
    """The facts that abduction may assume, made of the constants of the program, the given facts and the goal."""

    max_rows = 1_000  # rows read per premise; of more rows, those with preferred values and the least rows

    def __init__(self, prover: Prover, goal: Fact, addable: Collection[Key] | None = None) -> None:
        self._prover = prover
        self.solver = prover.solver
        self.chose_values = False  # whether an argument was enumerated, so that other values could succeed
        self.goal = goal
        self.preferred = frozenset(goal.args)
        self.keys = frozenset(self._keys_without_rules() if addable is None else addable)
        self.smallest_facts: set[Fact] = set()  # facts with the smallest interval that satisfies some premise
        self._columns: dict[tuple[Key, int], tuple[Value, ...]] = {}

    def _keys_without_rules(self) -> set[Key]:
        program = self.solver.program
        external = {key for key, predicate in program.predicates.items() if predicate.external}
        return set(program.predicates) - {rule.head.key for rule in program.rules} - external

    @cached_property
    def constants(self) -> tuple[Value, ...]:
        """The constants of the program, the given facts and the goal, and the parts of these constants, sorted."""
        constants: set[Value] = set()
        stack = list(self._values())
        while stack:
            value = stack.pop()
            if value not in constants:
                constants.add(value)
                stack += _parts(value)
        return tuple(sorted(constants, key=order_key))

    def with_fresh_values(self) -> Candidates:
        """Return candidates with additional values: the neighbours of numbers, and :data:`FRESH` texts and names."""
        numbers = {n for v in self.constants if type(v) is int for n in (v - 1, v + 1) if INT_MIN <= n <= INT_MAX}
        other = Candidates(self._prover, self.goal, self.keys)
        other.constants = tuple(sorted({*self.constants, *numbers, *FRESH}, key=order_key))
        return other

    def _values(self) -> Iterator[Value]:
        yield from self.goal.args
        solver = self.solver
        for key, predicate in solver.program.predicates.items():
            if key not in solver.rules and not predicate.deferred:
                facts: Facts = solver.index(key, ()).get((), ())
                self.chose_values |= len(facts) > MAX_VALUE_FACTS
                for args, _ in facts if len(facts) <= MAX_VALUE_FACTS else solver.least_facts(facts, MAX_VALUE_FACTS):
                    yield from args
            else:
                for args, interval in solver.model.derived(key):
                    if solver.is_given(Fact(key[0], args, interval)):
                        yield from args
        for fact in solver.program.facts:
            yield from fact.values(solver.now)
        for rule in solver.program.rules:
            for term in rule.clause.terms:
                yield from self._term_values(term)

    def _term_values(self, term: Term) -> Iterator[Value]:
        for part in subterms(term):
            if isinstance(part, Apply):
                with suppress(ValueFault):  # raised if the application has variables, or no value
                    yield evaluate_term(part, {}, self.solver.now)
            elif not isinstance(part, Variable):
                yield part

    @cached_property
    def _known_values(self) -> frozenset[Value]:
        return frozenset(self.constants)

    def column(self, key: Key, position: int, *, interchangeable: bool = False) -> tuple[Value, ...]:  # noqa: ARG002
        """Return the candidate values of an argument; it is ``interchangeable`` if no other premise uses the value."""
        self.chose_values = True
        values = self._columns.get((key, position))
        if values is None:
            types = [row[position] for row in self.solver.predicate(key).rows] or [ANY]
            type_of = self._prover.acceptance.vocabulary.value
            choices = self._choices(key, position)
            values = tuple(v for v in choices if ANY in types or any(conforms(type_of(v), t) for t in types))
            self._columns[key, position] = values
        return values

    def _choices(self, key: Key, position: int) -> Iterable[Value]:  # noqa: ARG002
        return self.constants

    def accepts(self, key: Key, args: Args) -> bool:
        """Return whether the fact may be added: a permitted predicate, and known values of the declared types."""
        return key in self.keys and self._known_values.issuperset(args) and self._prover.acceptance.accepts(key, args)

    @cached_property
    def instants(self) -> tuple[int, ...]:
        """The instants in the program, the facts and the goal, nearest to now first."""
        instants = {self.solver.now}.union(*self._mentioned_intervals()) - {INT_MIN, INT_MAX}
        return tuple(sorted(instants, key=lambda ns: (abs(ns - self.solver.now), ns)))

    @cached_property
    def intervals(self) -> tuple[Interval, ...]:
        """The instants as intervals, then the windows of box operators and the intervals in rules and the goal."""
        demanded = set(self._demanded_intervals(boxes_only=True))
        return (*((ns, ns) for ns in self.instants), *sorted(i for i in demanded if i[0] != i[1]))

    def _mentioned_intervals(self) -> Iterator[Interval]:
        yield from self._demanded_intervals()
        for key, predicate in self.solver.program.predicates.items():
            if predicate.temporal:
                yield from (interval for args, interval in self.solver.model.derived(key) if interval is not None)

    def _demanded_intervals(self, boxes_only: bool = False) -> Iterator[Interval]:
        if self.goal.interval is not None:
            yield self.goal.interval
        for rule in self.solver.program.rules:
            literals = [premise for premise in rule.premises if isinstance(premise, Literal)]
            for literal in literals:
                if literal.operator is not None and (literal.operator.is_box or not boxes_only):
                    with suppress(ValueFault):  # raised if a bound is a variable
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


MAX_SESSION_FACTS: Final = 1_000  # facts of the client whose values are preferred
MAX_ROWS: Final = 20  # rows read per premise, and values sampled per column
MAX_SAMPLED_FACTS: Final = 5_000  # of a larger relation, only the least facts are sampled
ANYTHING: Final = "\ufdd0any value"  # wildcard for strings; begins with a noncharacter, so no program contains it
ANY_NAME: Final = Name("/any_value")
_WILDCARDS: Final = (ANYTHING, ANY_NAME)
_STRICT_COMPARISONS: Final = frozenset({":lt", ":gt"})


class CallerCandidates(Candidates):
    """Candidates for a client that may assert only some facts, made of values that may be disclosed to the client.

    * Values come from the client's facts (``session``), the goal and the constants of ``rules``. An argument that may
      have any value gets a wildcard.
    * With ``readable``, values also come from the server's facts: samples of the columns that a rule joins.
    * Only some values of a free argument are tried; if all of these fail, other values could still succeed.
    """

    max_rows = MAX_ROWS

    def __init__(
        self,
        prover: Prover,
        rules: Sequence[Rule],
        session: Sequence[Fact],
        goal: Fact,
        addable: Collection[Key],
        *,
        readable: bool = False,
    ) -> None:
        super().__init__(prover, goal, addable)
        self.rules = rules
        self.session = session
        self.readable = readable
        self.preferred = frozenset(value for fact in session[:MAX_SESSION_FACTS] for value in fact.args)
        self.has_refused_fact = False  # whether a fact was refused because of an unknown value
        self._sampled: set[tuple[Key, int]] = set()  # arguments of which only some values were tried
        self._distinguished: set[tuple[Key, int]] = set()  # of these, arguments for which other values could succeed
        self._column_values: dict[tuple[Key, int], dict[Value, None]] = {}
        for rule in rules:
            self._collect_values(rule)

    def _collect_values(self, rule: Rule) -> None:
        """Collect, for each argument of a premise, the values that the rule compares with the argument."""
        columns: dict[str, list[tuple[Key, int]]] = {}  # predicate and position of each variable
        tested: dict[str, list[Value]] = {}  # values that tests compare a variable with
        compared: dict[str, set[str]] = {}  # variables in the same test
        for premise in rule.premises:
            terms = premise.terms
            if isinstance(premise, Literal) and not premise.atom.predicate.startswith(":"):
                for position, term in enumerate(terms):
                    if isinstance(term, Variable):
                        columns.setdefault(term.name, []).append((premise.atom.key, position))
                    else:
                        self._add_values((premise.atom.key, position), self._term_values(term))
                continue
            names = {term.name for term in terms if isinstance(term, Variable)}
            for name in names:
                tested.setdefault(name, []).extend(value for term in terms for value in _values_near(premise, term))
                compared.setdefault(name, {name}).update(names)
        columns.pop("_", None)
        for name, own_columns in columns.items():
            joined = [column for other in sorted(compared.get(name, {name})) for column in columns.get(other, ())]
            for column in own_columns:
                self._add_values(column, tested.get(name, ()))
                if self.readable and column[0] in self.keys:
                    for other in dict.fromkeys(joined):
                        self._add_values(column, () if other == column else self._sample_column(*other))

    def _add_values(self, column: tuple[Key, int], values: Iterable[Value]) -> None:
        self._column_values.setdefault(column, {}).update(dict.fromkeys(values))

    def _sample_column(self, key: Key, position: int) -> Iterator[Value]:
        """Yield some values of a column, and the neighbours of numbers, because a comparison may exclude a number."""
        facts: Facts = self.solver.index(key, ()).get((), ())
        if len(facts) > MAX_SAMPLED_FACTS:
            facts = self.solver.least_facts(facts, MAX_ROWS)
        for value in heapq.nsmallest(MAX_ROWS, {args[position] for args, _ in facts}, key=order_key):
            yield value
            if type(value) is int:
                yield from (value - 1, value + 1)

    def _values(self) -> Iterator[Value]:
        yield from self.goal.args
        yield from self.preferred
        for rule in self.rules:
            for term in (*rule.head.args, *(term for premise in rule.premises for term in premise.terms)):
                yield from self._term_values(term)
        for values in self._column_values.values():
            yield from values
        yield from self._default_values()

    def _default_values(self) -> tuple[Value, ...]:
        return ANYTHING, ANY_NAME, 0, Float(0.0), Time(self.solver.now)

    def _mentioned_intervals(self) -> Iterator[Interval]:
        yield from self._demanded_intervals()
        yield from (fact.interval for fact in self.session if fact.interval is not None)

    def _choices(self, key: Key, position: int) -> Iterable[Value]:
        values = dict.fromkeys((*self._column_values.get((key, position), ()), *self._default_values()))
        return sorted(values, key=order_key)

    def column(self, key: Key, position: int, *, interchangeable: bool = False) -> tuple[Value, ...]:
        self._sampled.add((key, position))
        if not interchangeable:
            self._distinguished.add((key, position))
        return super().column(key, position)

    def accepts(self, key: Key, args: Args) -> bool:
        if self.readable:
            return key in self.keys and self._prover.acceptance.accepts(key, args)
        if key in self.keys and not self._known_values.issuperset(args):
            self.has_refused_fact = True
        return super().accepts(key, args)

    def rules_out(self, sets: Collection[Collection[Fact]], failed_sets: Iterable[Collection[Fact]]) -> bool:
        """Return whether ``sets`` are certainly all sets.

        That is so if no failed set has a sampled argument, and in ``sets`` each sampled argument is a wildcard.
        """
        if self.has_refused_fact or any(
            (fact.key, i) in self._sampled for facts in failed_sets for fact in facts for i in range(fact.key[1])
        ):
            return False
        set_facts = [fact for facts in sets for fact in facts]
        return all(
            bool(values := [fact.args[position] for fact in set_facts if fact.key == key])
            and all(v in _WILDCARDS for v in values)
            for key, position in self._distinguished
        )


def _values_near(premise: Premise, term: Term) -> Iterator[Value]:
    """Yield the constant of a test, or its neighbours if the test excludes the constant."""
    if isinstance(term, Variable | Apply):
        return
    excludes = premise.negated if isinstance(premise, Equality) else premise.atom.predicate in _STRICT_COMPARISONS
    if excludes and type(term) is int:
        yield from (term - 1, term + 1)
    else:
        yield term


def intervals_for(premise: Literal, row: Row, candidates: Candidates) -> list[Interval]:
    """Return intervals with which a fact satisfies a premise; the smallest comes first.

    The smallest interval is the window of a box operator, the instant of a known end, for a diamond the instant of its
    window nearest to now, and without a time the instant now. Larger candidate intervals follow, because one fact may
    satisfy several premises. If a variable takes an end, every candidate is extended to contain the smallest interval.
    """
    now = candidates.solver.now
    demanded = demand(premise, row, now)
    first, last = demanded.touched or (now, now)
    nearest = min(max(now, first), last)
    choices = [demanded.whole or (nearest, nearest)]
    free_names = free_ends(premise, row)
    for start, end in candidates.intervals:
        if demanded.whole is None:
            if demanded.touched is None or (start <= last and first <= end):
                choices.append((start, end))
        elif any(free_names):
            choices.append((min(start, demanded.whole[0]), max(end, demanded.whole[1])))
        elif start <= demanded.whole[0] and demanded.whole[1] <= end:
            choices.append((start, end))
    if free_names[0] is not None and free_names[0] == free_names[1]:
        choices = [(start, end) for start, end in choices if start == end]
    return [interval for interval in dict.fromkeys(choices) if is_nonempty_interval(*interval)]
