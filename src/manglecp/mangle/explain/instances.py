"""Rule instances that derive a fact, and the intervals that a temporal premise needs."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from manglecp.mangle.errors import ValueFault
from manglecp.mangle.explain.shape import Shape, premise_text, shapes_of
from manglecp.mangle.explain.solver import ModelSolver, row_key
from manglecp.mangle.facts import Args, Fact, Interval, TimedArgs, holds_somewhere
from manglecp.mangle.matching import Matcher, Row, instant_of, window
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Key, Literal, Transform, Variable
from manglecp.mangle.transforms import transform_rows
from manglecp.mangle.values import INT_MAX, INT_MIN, Time, Value, order_key

# A premise reads coalesced intervals (D12); a proof names the intervals as given. A box needs those that cover its
# window, a diamond one that meets it, a known instant one that contains it, and a variable bound to an end those from
# there to everything else that is required.


def free_ends(premise: Literal, row: Row) -> tuple[str | None, str | None]:
    """Return the variables that take the start and the end of the fact's interval."""
    if premise.annotation is None:
        return None, None

    def free(value: object) -> str | None:
        return value.name if isinstance(value, Variable) and not value.anonymous and value.name not in row else None

    return free(premise.annotation.start.value), free(premise.annotation.end.value)


class Demand(NamedTuple):
    """What a premise requires of one coalesced interval."""

    whole: Interval | None = None  # every instant of this interval
    touched: Interval | None = None  # some instant of this interval


def demand(premise: Literal, row: Row, now: int, joined: Interval | None = None) -> Demand:
    """Return what a premise requires; with ``joined``, of that interval, whose ends free variables take."""
    points: list[int] = []
    touched: Interval | None = None
    if premise.operator is not None:
        looked_at = window(premise.operator, row, now)
        if premise.operator.is_box:
            points += looked_at
        else:
            touched = looked_at
    if premise.annotation is not None:
        for bound, own in zip((premise.annotation.start, premise.annotation.end), joined or (None, None), strict=True):
            if isinstance(bound.value, Variable) and bound.value.anonymous:
                continue
            instant = instant_of(bound, row, now)
            instant = own if instant is None else instant
            points += [] if instant is None else [instant]
    if not points:
        return Demand(None, touched)
    first, last = min(points), max(points)
    if touched is not None:  # the way from what is needed to the window, if it does not reach it
        if last < touched[0]:
            last = touched[0]
        elif first > touched[1]:
            first = touched[1]
    return Demand((first, last))


def useful(wanted: Demand, key: Key, args: Args, intervals: Iterable[Interval]) -> Option:
    """Return the facts with these intervals that can help to meet a demand."""
    first, last = wanted.whole or wanted.touched or (INT_MIN, INT_MAX)
    return Option(tuple(Fact(key[0], args, i) for i in intervals if i[0] <= last and first <= i[1]), wanted)


def cover(option: Option, cost: Callable[[Fact], tuple[Any, ...]]) -> tuple[Fact, ...]:
    """Return the fewest facts that cover what is demanded, of equal ones the cheapest; () if there are none."""
    assert option.demand.whole is not None
    position, last = option.demand.whole
    chosen: list[Fact] = []
    while position <= last:
        reaching = [(min(end, last), fact) for (start, end), fact in option.pieces if start <= position <= end]
        if not reaching:
            return ()
        position = max(end for end, _ in reaching) + 1
        chosen.append(min((fact for end, fact in reaching if end + 1 == position), key=cost))
    return tuple(chosen)


def covers(option: Option) -> Iterator[list[Fact]]:
    """Yield the sets of facts that cover what is demanded, also some with a fact too many."""
    assert option.demand.whole is not None
    first, last = option.demand.whole
    stack: list[tuple[int, list[Fact]]] = [(first, [])]
    while stack:
        position, chosen = stack.pop()
        if position > last:
            yield chosen
            continue
        for (start, end), fact in option.pieces:
            if start <= position <= end:
                stack.append((end + 1, [*chosen, fact]))


# A premise may rest on any of several facts (``_``) or on several together (coalesced intervals), so it is kept as a
# choice; combinations are not enumerated.
class Option(NamedTuple):
    """One way to satisfy a premise: any one of the facts, or those that together cover an interval."""

    facts: tuple[Fact, ...]
    demand: Demand = Demand()

    @property
    def pieces(self) -> list[tuple[Interval, Fact]]:
        return [(fact.interval, fact) for fact in self.facts if fact.interval is not None]


@dataclass(frozen=True, slots=True)
class Support:
    """A positive premise under a row; one option suffices."""

    literal: Literal
    row: Row
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Absence:
    """A negated premise under a row."""

    literal: Literal
    row: Row

    @property
    def text(self) -> str:
        return premise_text(self.literal, self.row)


Ground: TypeAlias = Support | Absence


@dataclass(frozen=True, slots=True)
class Instance:
    """A rule with values for its variables, and its grounds in written order.

    The grounds of an aggregate are the premises of every row of its group.
    """

    shape: Shape
    row: Row  # the values of the head
    grounds: tuple[Ground, ...]

    @property
    def order_key(self) -> tuple[object, ...]:
        """Order by content, independent of the order of clauses."""
        return (*self.shape.order_text, row_key(self.row))

    def facts(self) -> Iterator[Fact]:
        """Yield the facts of all options; may repeat."""
        for ground in self.grounds:
            if isinstance(ground, Support):
                for option in ground.options:
                    yield from option.facts


@dataclass(frozen=True, slots=True)
class Derived:
    """A row after transforms, and the rows of the body it comes from."""

    row: Row
    members: tuple[Row, ...]


class Instances:
    def __init__(self, solver: ModelSolver) -> None:
        self.solver = solver
        self.shapes = shapes_of(solver.program)
        self._known: dict[tuple[int, Args], Mapping[TimedArgs, list[Derived]]] = {}

    def of(self, fact: Fact, most: int | None = None) -> Iterator[Instance]:
        """Yield the instances whose head is the fact, with the interval as derived; at most ``most`` per rule."""
        for shape in self.shapes.get(fact.key, ()):
            values = tuple(fact.args[i] for i in shape.fixed)
            start = shape.fix(shape.fixed, values)
            if start is None:
                continue
            rows = self._rows(shape, start, values).get(fact.timed_args, ())
            if most is not None:
                rows = heapq.nsmallest(most, rows, key=lambda derived: row_key(derived.row))
            for derived in rows:
                yield self.instance(shape, derived, start)

    def _rows(self, shape: Shape, start: Row, values: Args) -> Mapping[TimedArgs, list[Derived]]:
        if not shape.leaves_open(shape.fixed):
            return self.heads(shape, start)
        known = self._known.get((id(shape), values))
        if known is None:
            known = self._known[id(shape), values] = self.heads(shape, start)
        return known

    def heads(self, shape: Shape, start: Row) -> Mapping[TimedArgs, list[Derived]]:
        """Return what the rule derives from rows that extend ``start``, and from which rows."""
        derivations: dict[TimedArgs, list[Derived]] = {}
        rows = self.solver.body(shape.rule, start)
        for derived in self.transformed(shape.rule, rows):
            head = self.head(shape.rule, derived.row if shape.rule.clause.aggregates else {**start, **derived.row})
            if head is not None:
                derivations.setdefault(head, []).append(derived)
        return derivations

    def transformed(self, rule: Rule, rows: list[Row]) -> list[Derived]:
        """Apply the transforms of a rule, keeping the rows of the body for each result."""
        results = [Derived(row, (row,)) for row in rows]
        for step in rule.clause.transforms:
            try:
                results = list(self._step(step, results))
            except ValueFault as fault:
                raise self.solver.error_at(str(fault), step.span, rule.clause) from None
        return results

    def _step(self, step: Transform, results: list[Derived]) -> Iterator[Derived]:
        if step.do is None:
            for one in results:
                yield Derived(transform_rows(step, [one.row], self.solver.now)[0], one.members)
            return
        keys = [arg.name for arg in step.do.args if isinstance(arg, Variable)]
        groups: dict[Args, list[Derived]] = {}
        for one in results:
            groups.setdefault(tuple(one.row[key] for key in keys), []).append(one)
        for ones in groups.values():
            row = transform_rows(step, [one.row for one in ones], self.solver.now)[0]
            yield Derived(row, tuple(member for one in ones for member in one.members))

    def head(self, rule: Rule, row: Row) -> TimedArgs | None:
        """Return the fact of a row; None if its interval is inverted (D20)."""
        args = self.solver.head_args(rule.clause, row)
        if not self.solver.predicate(rule.head.key).temporal:
            return args, None
        interval = self.solver.head_interval(rule.clause, row)
        return (args, interval) if holds_somewhere(*interval) else None

    def instance(self, shape: Shape, derived: Derived, start: Row) -> Instance:
        """Return the instance of one derived row. The rows of a group have a fixed order."""
        grounds: list[Ground] = []
        for member in sorted(derived.members, key=row_key) if len(derived.members) > 1 else derived.members:
            grounds += self.grounds(shape, member, start)
        if self.solver.rows_are_facts(shape.rule):
            grounds = list(self._all_facts(grounds))
        row = derived.row if shape.rule.clause.aggregates else {**start, **derived.row}
        return Instance(shape, row, tuple(grounds))

    def grounds(self, shape: Shape, row: Row, start: Row) -> list[Ground]:
        """Return the ground of each premise in written order; tests have none."""
        before = shape.bound_before(start)
        by_place: dict[int, Ground] = {}
        for position, premise in enumerate(shape.rule.premises):
            if not isinstance(premise, Literal) or premise.atom.predicate.startswith(":"):
                continue
            known = {name: row[name] for name in before[position] if name in row}
            if premise.negated:
                by_place[shape.written[position]] = Absence(premise, known)
            else:
                after = {name: row[name] for name in before[position + 1] if name in row}
                options = tuple(self._options(shape.rule, premise, known, after))
                by_place[shape.written[position]] = Support(premise, known, options)
        return [by_place[place] for place in sorted(by_place)]

    def _options(self, rule: Rule, premise: Literal, known: Row, after: Row) -> Iterator[Option]:
        solver, key = self.solver, premise.atom.key
        if solver.predicate(key).deferred:
            for args in self._answers(premise, known, after):
                yield Option((Fact(key[0], args),))
            return
        with solver.reading_raw(solver.reads_raw(rule)):
            _, facts = solver.look_up(premise, after)  # with every argument known
            matcher = Matcher(premise, known, solver.now)  # but with ends of intervals known or free as they were
            ends = tuple(after.get(name) if name else None for name in free_ends(premise, known))
            matching = [
                (args, at) for args, at in facts if _may_end(at, ends) and matcher.match(known, args, at) == after
            ]
        for args, joined in sorted(matching, key=_timed_order) if len(matching) > 1 else matching:
            if joined is None or solver.reads_raw(rule) == key:
                yield Option((Fact(key[0], args, joined),))
                continue
            raw = [i for i in solver.intervals(key, args, raw=True) if joined[0] <= i[0] and i[1] <= joined[1]]
            yield useful(demand(premise, known, solver.now, joined), key, args, raw)

    def _answers(self, premise: Literal, known: Row, after: Row) -> Iterator[Args]:
        predicate = self.solver.predicate(premise.atom.key)
        matcher = Matcher(premise, known, self.solver.now)
        wanted = matcher.key(known)
        inputs = dict(zip((i for i, _ in matcher.known), wanted, strict=True))
        for args in self.solver.call_deferred(premise.atom.key, tuple(inputs[i] for i in predicate.inputs())):
            if matcher.fact_key(args) == wanted and matcher.match(known, args, None) == after:
                yield args

    def _all_facts(self, grounds: list[Ground]) -> Iterator[Ground]:
        """Where each matching fact is a row of its own, a premise rests on all of them, not on any (D6)."""
        seen: set[Option] = set()
        for ground in grounds:
            assert isinstance(ground, Support)
            for option in ground.options:
                if option not in seen:
                    seen.add(option)
                    yield Support(ground.literal, ground.row, (option,))


def _may_end(interval: Interval | None, ends: tuple[Value | None, ...]) -> bool:
    """Return whether an interval has the ends that variables took; a cheap filter."""
    return interval is None or all(
        not isinstance(end, Time) or end.ns == own for own, end in zip(interval, ends, strict=True)
    )


def _timed_order(timed: TimedArgs) -> tuple[object, ...]:
    args, interval = timed
    return [order_key(value) for value in args], interval or ()
