"""Candidate facts for abduction: their values, types and intervals, and minimal sets of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from manglecp.mangle.checker import check_types
from manglecp.mangle.declarations import Acceptance
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.explain.instances import free_ends
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.facts import Args, Fact, Interval, Timed, holds_somewhere
from manglecp.mangle.matching import Row, evaluate_term, instant_of, window
from manglecp.mangle.program import GivenFact, Program
from manglecp.mangle.syntax import Apply, Atom, Clause, Equality, Key, Literal, Term, Variable
from manglecp.mangle.types import ANY, Type, conforms
from manglecp.mangle.values import INT_MAX, INT_MIN, List, Map, Pair, Struct, Time, Value, order_key

Assumed: TypeAlias = frozenset[Fact]
Pattern: TypeAlias = tuple[Value | None, ...]  # the known arguments of a fact; None for unknown ones

NOTHING: Final[Assumed] = frozenset()
_NO_SETS: Final[frozenset[Assumed]] = frozenset()


class Sets:
    """Subset-minimal sets of assumptions."""

    __slots__ = ("_by_fact", "_sets")

    def __init__(self, sets: Iterable[Assumed] = ()) -> None:
        self._sets: dict[Assumed, None] = {}
        self._by_fact: dict[Fact, set[Assumed]] = {}
        for one in sets:
            self.add(one)

    def add(self, new: Assumed) -> bool:
        """Add a set; return whether it is new and contains no other."""
        if new in self._sets or self._implied(new):
            return False
        for old in self._implying(new):
            del self._sets[old]
            for fact in old:
                self._by_fact[fact].discard(old)
        self._sets[new] = None
        for fact in new:
            self._by_fact.setdefault(fact, set()).add(new)
        return True

    def _implied(self, new: Assumed) -> bool:
        if NOTHING in self._sets:
            return True
        return any(old <= new for fact in new for old in self._by_fact.get(fact, ()))

    def _implying(self, new: Assumed) -> list[Assumed]:
        if not new:
            return list(self._sets)
        rarest = min((self._by_fact.get(fact, _NO_SETS) for fact in new), key=len)
        return [old for old in rarest if new <= old]

    def __iter__(self) -> Iterator[Assumed]:
        return iter(tuple(self._sets))

    def __len__(self) -> int:
        return len(self._sets)


class Pending(NamedTuple):
    """A premise that is assumed before all its variables have values."""

    literal: Literal
    interval: Interval | None
    dictated: bool = False  # whether it is the smallest interval that satisfies the premise

    def free(self, row: Row) -> list[str]:
        names = [arg.name for arg in self.literal.atom.args if isinstance(arg, Variable)]
        return [name for name in names if name != "_" and name not in row]


class State(NamedTuple):
    """The state of a body: values, assumptions, and assumptions with free variables."""

    row: Row
    assumed: Assumed = NOTHING
    pending: tuple[Pending, ...] = ()

    @property
    def identity(self) -> tuple[object, ...]:
        return frozenset(self.row.items()), self.assumed, tuple((id(p.literal), p.interval) for p in self.pending)

    def keys(self) -> set[Key]:
        """Return the predicates of the assumptions, a lower bound of the number of facts."""
        return {fact.key for fact in self.assumed} | {p.literal.atom.key for p in self.pending}


def distinct(states: Iterable[State]) -> list[State]:
    return list({state.identity: state for state in states}.values())


@dataclass(eq=False, slots=True)
class Table:
    """Conclusions of a pattern under assumptions that do not hold without."""

    key: Key
    pattern: Pattern
    answers: dict[Timed, Sets] = field(default_factory=dict)
    progress: Sets = field(default_factory=Sets)  # assumptions with an effect on the pattern that cannot be predicted
    readers: set[Table] = field(default_factory=set)

    def agrees(self, fact: Timed) -> bool:
        return all(known is None or value == known for known, value in zip(self.pattern, fact[0], strict=True))


class Exhausted(Exception):
    pass


@dataclass
class Effort:
    steps: int

    def spend(self, steps: int = 1) -> None:
        """Raises :class:`Exhausted` when nothing is left."""
        self.steps -= steps
        if self.steps < 0:
            raise Exhausted


class Candidates:
    """The facts that abduction may assume."""

    most_rows: int | None = None  # limit of rows per premise: preferred values first, then by order. None for no limit
    preferred: frozenset[Value] = frozenset()

    def __init__(
        self, solver: Finished, goal: Fact, acceptance: Acceptance, over: Collection[Key] | None = None
    ) -> None:
        self.solver = solver
        self.goal = goal
        program = solver.program
        self.keys = _without_rules(program) if over is None else frozenset(over)
        self.dictated: set[Fact] = set()  # facts with the smallest interval that satisfies some premise
        self._acceptance = acceptance
        self._fits: dict[tuple[Key, Args], bool] = {}
        self._columns: dict[tuple[Key, int], tuple[Value, ...]] = {}

    @cached_property
    def constants(self) -> tuple[Value, ...]:
        """Return every constant of the program, the given facts and the goal, in the order of values."""
        found: set[Value] = set()
        for value in self._values():
            stack = [value]
            while stack:
                one = stack.pop()
                if one not in found:
                    found.add(one)
                    stack += _parts(one)
        return tuple(sorted(found, key=order_key))

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
            terms: list[Term] = list(rule.head.args)
            for premise in rule.premises:
                terms += [premise.left, premise.right] if isinstance(premise, Equality) else premise.atom.args
            terms += [let.expression for step in rule.clause.transforms for let in step.lets]
            for term in terms:
                yield from self._of_term(term)

    def _of_term(self, term: Term) -> Iterator[Value]:
        stack: list[Term] = [term]
        while stack:
            one = stack.pop()
            if isinstance(one, Apply):
                stack += one.args
                with suppress(ValueFault):  # it has variables, or no value
                    yield evaluate_term(one, {}, self.solver.now)
            elif not isinstance(one, Variable):
                yield one

    @cached_property
    def _known(self) -> frozenset[Value]:
        return frozenset(self.constants)

    def column(self, key: Key, position: int, *, alike: bool = False) -> tuple[Value, ...]:  # noqa: ARG002
        """Return the constants for one position. ``alike``: the premises do not distinguish them."""
        found = self._columns.get((key, position))
        if found is None:
            rows = self.solver.predicate(key).rows
            types = [row[position] for row in rows] or [ANY]
            found = self.constants
            if ANY not in types:
                found = tuple(v for v in found if any(conforms(self._acceptance.vocabulary.value(v), t) for t in types))
            self._columns[key, position] = found
        return found

    def accepts(self, key: Key, args: Args) -> bool:
        """Return whether the fact may be added: known values of the declared types."""
        fits = self._fits.get((key, args))
        if fits is None:
            known = key in self.keys and self._known.issuperset(args)
            fits = self._fits[key, args] = known and self._acceptance.accepts(key, args)
        return fits

    @cached_property
    def instants(self) -> tuple[int, ...]:
        """Return the instants in the program, the facts and the goal, nearest to now first."""
        found = {self.solver.now}
        for start, end in self._spoken_of():
            found |= {start, end}
        return tuple(sorted(found - {INT_MIN, INT_MAX}, key=lambda ns: (abs(ns - self.solver.now), ns)))

    @cached_property
    def intervals(self) -> tuple[Interval, ...]:
        """Return these instants, the windows of boxes, and the intervals in rules and the goal."""
        asked = set(self._asked(boxes_only=True))
        return (*((ns, ns) for ns in self.instants), *sorted(i for i in asked if i[0] != i[1]))

    def _spoken_of(self) -> Iterator[Interval]:
        yield from self._asked()
        for key, predicate in self.solver.program.predicates.items():
            if predicate.temporal:
                yield from (at for args, at in self.solver.model.derived(key) if at is not None)

    def _asked(self, boxes_only: bool = False) -> Iterator[Interval]:
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


def _without_rules(program: Program) -> frozenset[Key]:
    external = {key for key, predicate in program.predicates.items() if predicate.external}
    return frozenset(program.predicates) - {rule.head.key for rule in program.rules} - external


def _parts(value: Value) -> Iterable[Value]:
    if isinstance(value, Pair):
        return value.first, value.second
    if isinstance(value, List):
        return value.items
    if isinstance(value, Map | Struct):
        return [part for entry in value.entries for part in entry]
    return ()


# The types of an undeclared predicate are those of its facts, so a fact of a new kind can make a rule ill-typed.
def as_given(fact: Fact) -> GivenFact:
    atom = Atom(fact.key[0], fact.args)  # type: ignore[arg-type]  # values that have no literal are only printed
    return GivenFact(Clause(atom), fact.args)


class Typing:
    def __init__(self, program: Program, acceptance: Acceptance) -> None:
        self.program = program
        self._vocabulary = acceptance.vocabulary
        self._known: dict[frozenset[tuple[Key, tuple[Type, ...]]], bool] = {}

    def accepts(self, added: Iterable[Fact]) -> bool:
        """Return whether the program with these facts is as well-typed as before."""
        undeclared = [fact for fact in added if self.program.predicates[fact.key].decl is None]
        kinds = frozenset((fact.key, self._kinds(fact)) for fact in undeclared) - self._observed
        if not kinds or not self._checked:
            return True
        if kinds not in self._known:
            facts = [*self.program.facts, *map(as_given, undeclared)]
            self._known[kinds] = not check_types(self.program.predicates, self.program.rules, facts)
        return self._known[kinds]

    def _kinds(self, fact: Fact) -> tuple[Type, ...]:
        return tuple(self._vocabulary.value(arg, exact=False) for arg in fact.args)

    @cached_property
    def _observed(self) -> frozenset[tuple[Key, tuple[Type, ...]]]:
        undeclared = [fact for fact in self.program.facts if self.program.predicates[fact.key].decl is None]
        known = [Fact(fact.key[0], fact.args) for fact in undeclared if fact.args is not None]
        return frozenset((fact.key, self._kinds(fact)) for fact in known)

    @cached_property
    def _checked(self) -> bool:
        return not check_types(self.program.predicates, self.program.rules, self.program.facts)


def intervals_for(premise: Literal, row: Row, candidates: Candidates) -> list[Interval]:
    """Return candidate intervals; the smallest sufficient one comes first.

    A box needs its window, a known end its instant, a diamond the instant of its window nearest to now, and a premise
    without a time now. Larger intervals of other premises are included, because one fact may serve both; with free
    ends, all are.
    """
    now = candidates.solver.now
    looked_at = None if premise.operator is None else window(premise.operator, row, now)
    points: list[int] = []
    touched: Interval | None = None
    if premise.operator is not None and looked_at is not None:
        if premise.operator.is_box:
            points += looked_at
        else:
            touched = looked_at
    for bound in () if premise.annotation is None else premise.annotation.bounds:
        instant = None if _is_wildcard(bound.value) else instant_of(bound, row, now)
        if instant is not None:
            points.append(instant)
    smallest = _smallest(points, touched, now)
    found = dict.fromkeys([smallest])
    free = free_ends(premise, row)
    if any(free):
        found.update(dict.fromkeys(_enlarged(points, touched, candidates)))
    else:
        found.update(dict.fromkeys(i for i in candidates.intervals if _satisfies(i, points, touched)))
    if free[0] is not None and free[0] == free[1]:
        found = {interval: None for interval in found if interval[0] == interval[1]}
    return [interval for interval in found if holds_somewhere(*interval)]


def _is_wildcard(value: object) -> bool:
    return isinstance(value, Variable) and value.anonymous


def _smallest(points: list[int], touched: Interval | None, now: int) -> Interval:
    if not points:
        instant = now if touched is None else min(max(now, touched[0]), touched[1])
        return instant, instant
    first, last = min(points), max(points)
    if touched is not None:
        first, last = (
            min(first, max(touched[0], min(first, touched[1]))),
            max(last, min(touched[1], max(last, touched[0]))),
        )
    return first, last


def _satisfies(interval: Interval, points: list[int], touched: Interval | None) -> bool:
    start, end = interval
    if touched is not None and (end < touched[0] or touched[1] < start):
        return False
    return all(start <= point <= end for point in points)


def _enlarged(points: list[int], touched: Interval | None, candidates: Candidates) -> Iterator[Interval]:
    for start, end in candidates.intervals:
        if _satisfies((start, end), [], touched):
            yield min([start, *points]), max([end, *points])
