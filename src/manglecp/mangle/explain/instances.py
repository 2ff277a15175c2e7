"""The ways in which one rule yields one fact, read off the finished model.

A rule is run backwards: the fact fixes what its head can fix, the body finds the rows, and each row says which facts
its premises rest on. A premise may rest on any one of several facts (where it says ``_``), or on several together
(where intervals were joined), so it is kept as a choice and no combination is spelled out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from manglecp.mangle.errors import ValueFault
from manglecp.mangle.explain.covers import NO_DEMAND, Demand, demand, free_ends, useful
from manglecp.mangle.explain.shape import Shape, shapes_of
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.explain.wording import premise_text
from manglecp.mangle.facts import Fact
from manglecp.mangle.intervals import Interval, holds_somewhere
from manglecp.mangle.matching import Args, Matcher, Row, Timed, head_interval
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Literal, Transform, Variable
from manglecp.mangle.values import Time, Value, order_key


@dataclass(frozen=True, slots=True)
class Option:
    """One way to satisfy a premise: any one of the facts, or those that together cover a stretch of time."""

    facts: tuple[Fact, ...]
    asked: Demand = NO_DEMAND


@dataclass(frozen=True, slots=True)
class Support:
    """A positive premise under a row; one option is enough."""

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
        """The premise with its values."""
        return premise_text(self.literal, self.row)


Ground: TypeAlias = Support | Absence


@dataclass(frozen=True, slots=True)
class Instance:
    """A rule with values for its variables, and what it rests on, in written order.

    An aggregate rests on every row of its group: ``grounds`` lists the premises of all of them.
    """

    shape: Shape
    row: Row
    """The values that the head is built from."""
    grounds: tuple[Ground, ...]

    @property
    def order_key(self) -> tuple[object, ...]:
        """Orders instances by what they say, so that the order of clauses does not matter."""
        values = [(name, order_key(value)) for name, value in sorted(self.row.items())]
        return (*self.shape.order_text, values)

    def facts(self) -> Iterator[Fact]:
        """All that any option of its premises mentions; one may come more than once."""
        for ground in self.grounds:
            if isinstance(ground, Support):
                for option in ground.options:
                    yield from option.facts


@dataclass(frozen=True, slots=True)
class Derived:
    """A row of transforms and the rows of the body that went into it."""

    row: Row
    members: tuple[Row, ...]


class Instances:
    """All instances of the rules of a program, found on demand."""

    def __init__(self, solver: Finished) -> None:
        self.solver = solver
        self.shapes = shapes_of(solver.program)
        self._known: dict[tuple[int, Args], Mapping[Timed, list[Derived]]] = {}

    def of(self, fact: Fact) -> Iterator[Instance]:
        """Every instance whose head is the fact, with the interval as derived."""
        for shape in self.shapes.get(fact.key, ()):
            values = tuple(fact.args[i] for i in shape.fixed)
            start = shape.fix(shape.fixed, values)
            if start is None:
                continue
            for derived in self._rows(shape, start, values).get(fact.timed, ()):
                yield self.instance(shape, derived, start)

    def _rows(self, shape: Shape, start: Row, values: Args) -> Mapping[Timed, list[Derived]]:
        if not shape.leaves_open(shape.fixed):
            return self.heads(shape, start)
        known = self._known.get((id(shape), values))
        if known is None:
            known = self._known[id(shape), values] = self.heads(shape, start)
        return known

    def heads(self, shape: Shape, start: Row, skip: int | None = None) -> Mapping[Timed, list[Derived]]:
        """What the rule derives from the rows that begin with ``start``, and from which rows."""
        found: dict[Timed, list[Derived]] = {}
        rows = self.solver.body(shape.rule, start, skip)
        for derived in self.transformed(shape.rule, rows):
            head = self.head(shape.rule, derived.row if shape.rule.clause.aggregates else {**start, **derived.row})
            if head is not None:
                found.setdefault(head, []).append(derived)
        return found

    def transformed(self, rule: Rule, rows: list[Row]) -> list[Derived]:
        """The transforms of a rule, with the rows of the body that each result comes from."""
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
                yield Derived(self.solver.let(step, one.row), one.members)
            return
        keys = [arg.name for arg in step.do.args if isinstance(arg, Variable)]
        groups: dict[Args, list[Derived]] = {}
        for one in results:
            groups.setdefault(tuple(one.row[key] for key in keys), []).append(one)
        for group, ones in groups.items():
            row = self.solver.reduce(step, dict(zip(keys, group, strict=True)), [one.row for one in ones])
            yield Derived(row, tuple(member for one in ones for member in one.members))

    def head(self, rule: Rule, row: Row) -> Timed | None:
        """The fact a row yields; None if its interval is inverted (D20)."""
        args = self.solver.head_args(rule.clause, row)
        if not self.solver.predicate(rule.head.key).temporal:
            return args, None
        assert rule.clause.annotation is not None  # checked at load
        try:
            interval = head_interval(rule.clause.annotation, row, self.solver.now)
        except ValueFault as fault:
            raise self.solver.error_at(str(fault), rule.clause.annotation.span, rule.clause) from None
        return (args, interval) if holds_somewhere(*interval) else None

    # --- what a row rests on ---------------------------------------------------------------------------------------

    def instance(self, shape: Shape, derived: Derived, start: Row) -> Instance:
        """The instance behind one derived row. The rows of a group are taken in a fixed order."""
        grounds: list[Ground] = []
        for member in sorted(derived.members, key=row_key) if len(derived.members) > 1 else derived.members:
            grounds += self.grounds(shape, member, start)
        if self.solver.rows_are_facts(shape.rule):
            grounds = list(self._all_facts(grounds))
        row = derived.row if shape.rule.clause.aggregates else {**start, **derived.row}
        return Instance(shape, row, tuple(grounds))

    def grounds(self, shape: Shape, row: Row, start: Row) -> list[Ground]:
        """What each premise of one row of the body rests on, in written order; tests rest on nothing."""
        before = shape.bound_before(start)
        found: dict[int, Ground] = {}
        for position, premise in enumerate(shape.rule.premises):
            if not isinstance(premise, Literal) or premise.atom.predicate.startswith(":"):
                continue
            known = {name: row[name] for name in before[position] if name in row}
            if premise.negated:
                found[shape.written[position]] = Absence(premise, known)
            else:
                after = {name: row[name] for name in before[position + 1] if name in row}
                options = tuple(self._options(shape.rule, premise, known, after))
                found[shape.written[position]] = Support(premise, known, options)
        return [found[place] for place in sorted(found)]

    def _options(self, rule: Rule, premise: Literal, known: Row, after: Row) -> Iterator[Option]:
        solver, key = self.solver, premise.atom.key
        if solver.predicate(key).deferred:
            for args in self._answers(premise, known, after):
                yield Option((Fact(key[0], args),))
            return
        before, solver.raw = solver.raw, solver.reads_raw(rule)
        try:
            _, facts = solver.look_up(premise, after)  # with every argument known
            matcher = Matcher(premise, known, solver.now)  # but with ends of intervals known or free as they were
            ends = tuple(after.get(name) if name else None for name in free_ends(premise, known))
            matching = [
                (args, at) for args, at in facts if _may_end(at, ends) and matcher.match(known, args, at) == after
            ]
        finally:
            solver.raw = before
        for args, joined in sorted(matching, key=_timed_order) if len(matching) > 1 else matching:
            if joined is None or solver.reads_raw(rule) == key:
                yield Option((Fact(key[0], args, joined),))
                continue
            asked = demand(premise, known, joined, solver.now)
            raw = [i for i in solver.intervals(key, args, raw=True) if joined[0] <= i[0] and i[1] <= joined[1]]
            yield Option(tuple(fact for _, fact in useful(asked, [(i, Fact(key[0], args, i)) for i in raw])), asked)

    def _answers(self, premise: Literal, known: Row, after: Row) -> Iterator[Args]:
        predicate = self.solver.predicate(premise.atom.key)
        matcher = Matcher(premise, known, self.solver.now)
        wanted = matcher.key(known)
        inputs = dict(zip((i for i, _ in matcher.known), wanted, strict=True))
        for args in self.solver.ask(premise.atom.key, tuple(inputs[i] for i in predicate.inputs())):
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
    """Does an interval have the ends that variables took? A quick test, where one fact has many intervals."""
    return interval is None or all(
        not isinstance(end, Time) or end.ns == own for own, end in zip(interval, ends, strict=True)
    )


def _timed_order(timed: Timed) -> tuple[object, ...]:
    args, interval = timed
    return [order_key(value) for value in args], interval or ()


def row_key(row: Row) -> list[tuple[str, object]]:
    """Orders rows by their values, whatever order their variables were bound in."""
    return [(name, order_key(value)) for name, value in sorted(row.items())]
