"""Instances of rules that derive a fact, and the facts on which each premise of an instance can rest.

The facts of a temporal predicate are stored twice: with their *original* intervals, given or derived, and coalesced.
A premise reads coalesced intervals; a proof names facts with their original intervals. The instants that a premise
demands (:class:`Demand`) determine on which of these facts the premise rests:

* a box operator demands its whole window, a diamond operator some instant of its window;
* a known instant in an annotation is demanded itself;
* a variable that is bound to an end of the coalesced interval demands that end;
* of several demanded instants, all instants between the first and the last are demanded too.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from manglecp.mangle.errors import ValueFault
from manglecp.mangle.explain.shape import Shape, premise_text, shapes_of
from manglecp.mangle.explain.solver import ModelSolver, row_key, timed_order
from manglecp.mangle.facts import Args, Fact, Interval, TimedArgs, is_nonempty_interval
from manglecp.mangle.matching import Matcher, Row, instant_of, window
from manglecp.mangle.naive import distinct_rows
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Key, Literal, Transform, Variable
from manglecp.mangle.transforms import transform_rows
from manglecp.mangle.values import INT_MAX, INT_MIN


def free_ends(premise: Literal, row: Row) -> tuple[str | None, str | None]:
    """Return the free variables that take the start and the end of a fact's interval, None for a missing variable."""
    if premise.annotation is None:
        return None, None

    def free(value: object) -> str | None:
        return value.name if isinstance(value, Variable) and not value.anonymous and value.name not in row else None

    return free(premise.annotation.start.value), free(premise.annotation.end.value)


class Demand(NamedTuple):
    """The instants at which a fact has to hold to satisfy a premise. Without demands, any fact satisfies it."""

    whole: Interval | None = None  # the fact has to hold at every instant of this interval
    touched: Interval | None = None  # the fact has to hold at some instant of this interval


def demand(premise: Literal, row: Row, now: int, coalesced: Interval | None = None) -> Demand:
    """Return the demand of a premise; its free variables are bound to the ends of the ``coalesced`` interval."""
    instants: list[int] = []
    touched: Interval | None = None
    if premise.operator is not None:
        operator_window = window(premise.operator, row, now)
        if premise.operator.is_box:
            instants += operator_window
        else:
            touched = operator_window
    if premise.annotation is not None:
        start, end = coalesced or (None, None)
        for bound, interval_end in ((premise.annotation.start, start), (premise.annotation.end, end)):
            if isinstance(bound.value, Variable) and bound.value.anonymous:
                continue
            instant = instant_of(bound, row, now)
            instant = interval_end if instant is None else instant
            instants += [] if instant is None else [instant]
    if not instants:
        return Demand(touched=touched)
    first, last = min(instants), max(instants)
    if touched is not None:  # extend the demanded interval until it meets the window of the diamond
        if last < touched[0]:
            last = touched[0]
        elif first > touched[1]:
            first = touched[1]
    return Demand(whole=(first, last))


def option_of(demanded: Demand, key: Key, args: Args, intervals: Iterable[Interval]) -> Option:
    """Return an option with the facts of those original ``intervals`` that overlap the demanded interval."""
    first, last = demanded.whole or demanded.touched or (INT_MIN, INT_MAX)
    return Option(tuple(Fact(key[0], args, i) for i in intervals if i[0] <= last and first <= i[1]), demanded)


def smallest_cover(option: Option, cost: Callable[[Fact], tuple[Any, ...]]) -> tuple[Fact, ...]:
    """Return the fewest facts that together cover the demanded interval; () if there is no cover.

    Of facts that extend the cover equally far, the one of the least ``cost`` is taken.
    """
    assert option.demand.whole is not None
    needed_from, last = option.demand.whole
    cover: list[Fact] = []
    while needed_from <= last:
        reaching = [(min(end, last), fact) for (start, end), fact in option.timed_facts if start <= needed_from <= end]
        if not reaching:
            return ()
        needed_from = max(end for end, _ in reaching) + 1
        cover.append(min((fact for end, fact in reaching if end + 1 == needed_from), key=cost))
    return tuple(cover)


def all_covers(option: Option) -> Iterator[list[Fact]]:
    """Yield the sets of facts that cover the demanded interval, including some with a superfluous fact."""
    assert option.demand.whole is not None
    first, last = option.demand.whole
    stack: list[tuple[int, list[Fact]]] = [(first, [])]
    while stack:
        needed_from, cover = stack.pop()
        if needed_from > last:
            yield cover
            continue
        for (start, end), fact in option.timed_facts:
            if start <= needed_from <= end:
                stack.append((end + 1, [*cover, fact]))


class Option(NamedTuple):
    """Facts that satisfy a premise: each fact alone or, for the demand of a whole interval, facts that cover it.

    Facts that differ only where the premise has ``_`` are different options.
    """

    facts: tuple[Fact, ...]
    demand: Demand = Demand()

    @property
    def timed_facts(self) -> list[tuple[Interval, Fact]]:
        return [(fact.interval, fact) for fact in self.facts if fact.interval is not None]


@dataclass(frozen=True, slots=True)
class Support:
    """A positive premise, the values of variables that are bound before it, and its options; one option suffices."""

    literal: Literal
    row: Row
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Absence:
    """A negated premise, and the values of variables that are bound before it."""

    literal: Literal
    row: Row

    @property
    def text(self) -> str:
        return premise_text(self.literal, self.row)


Ground: TypeAlias = Support | Absence
"""What satisfies a premise of an instance. Unlike in Datalog, *ground* does not mean *without variables* here."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A rule with values for its variables, and a ground for each premise, in the order of the text.

    The grounds of an aggregation are those of every row of the group, except ``omitted`` rows of a large group.
    An instance without a rule is a merge, whose grounds are the facts that were merged.
    """

    shape: Shape | None
    row: Row  # the values of the variables of the head
    grounds: tuple[Ground, ...]
    omitted: int = 0

    @property
    def order_key(self) -> tuple[object, ...]:
        """A sort key of the content, independent of the order of clauses."""
        return () if self.shape is None else (*self.shape.sort_key, row_key(self.row))

    def facts(self) -> Iterator[Fact]:
        """Yield the facts of all options, some repeatedly."""
        for ground in self.grounds:
            if isinstance(ground, Support):
                for option in ground.options:
                    yield from option.facts


@dataclass(frozen=True, slots=True)
class DerivedRow:
    """A row after the transforms of a rule, and the rows of the body from which the transforms computed it."""

    row: Row
    members: tuple[Row, ...]  # one row, or the rows of a group if the rule aggregates


SMALL_GROUP: Final = 20  # a proof shows all rows of a group of this size
MAX_GROUP_ROWS: Final = 5  # rows of a larger group that a proof shows; the proof counts the others
MAX_GROUP_LEAVES: Final = 100  # the same, if all premises of the group are given facts


class Instances:
    """The instances of rules in a finished model. Without ``every_row``, some rows of large groups are omitted."""

    def __init__(self, solver: ModelSolver, *, every_row: bool = False) -> None:
        self.solver = solver
        self.every_row = every_row
        self.shapes = shapes_of(solver.program)
        self._cache: dict[tuple[int, Args], Mapping[TimedArgs, list[DerivedRow]]] = {}

    def of(self, fact: Fact, limit: int | None = None) -> tuple[list[Instance], bool]:
        """Return the instances that derive a fact (with its original interval), and whether these are all.

        With ``limit``, a rule contributes at most that many rows, from the first facts of its premises in sort order. A
        rule that needs a head check contributes all its rows.
        """
        instances: list[Instance] = []
        complete = True
        for shape in self.shapes.get(fact.key, ()):
            fixed_values = tuple([fact.args[i] for i in shape.selective_positions])
            start = shape.fix(shape.selective_positions, fixed_values)
            if start is None:
                continue
            if shape.needs_head_check:  # the rows from ``start`` derive other facts too, so the result is cached
                cached = self._cache.get((id(shape), fixed_values))
                if cached is None:
                    cached = self._cache[id(shape), fixed_values] = self.derivations(shape, start)
                derived = cached.get(fact.timed_args, [])
            else:
                rows = list(itertools.islice(self.solver.rows(shape.rule, start), limit and limit + 1))
                if limit is not None and len(rows) > limit:
                    rows, complete = list(self.solver.rows(shape.rule, start, limit)), False
                derived = self.apply_transforms(shape.rule, rows)
            instances += [self.instance(shape, one, start) for one in derived]
        return instances, complete

    def derivations(self, shape: Shape, start: Row) -> Mapping[TimedArgs, list[DerivedRow]]:
        """Return the facts that a rule derives from rows that extend ``start``, each with its rows after transforms."""
        derivations: dict[TimedArgs, list[DerivedRow]] = {}
        rows = list(self.solver.rows(shape.rule, start))
        for derived in self.apply_transforms(shape.rule, rows):
            fact = self.head_fact(shape.rule, derived.row if shape.rule.clause.aggregates else {**start, **derived.row})
            if fact is not None:
                derivations.setdefault(fact, []).append(derived)
        return derivations

    def apply_transforms(self, rule: Rule, rows: list[Row]) -> list[DerivedRow]:
        """Apply the transforms of a rule, keeping the rows of the body for each result."""
        results = [DerivedRow(row, (row,)) for row in rows]
        for step in rule.clause.transforms:
            try:
                results = list(self._apply_transform(step, results))
            except ValueFault as fault:
                raise self.solver.error_at(str(fault), step.span, rule.clause) from None
        return results

    def _apply_transform(self, step: Transform, results: list[DerivedRow]) -> Iterator[DerivedRow]:
        if step.do is None:
            for result in results:
                yield DerivedRow(transform_rows(step, [result.row], self.solver.now)[0], result.members)
            return
        keys = [arg.name for arg in step.do.args if isinstance(arg, Variable)]
        groups: dict[Args, list[DerivedRow]] = {}
        for result in results:
            groups.setdefault(tuple(result.row[key] for key in keys), []).append(result)
        for group in groups.values():
            row = transform_rows(step, [result.row for result in group], self.solver.now)[0]
            yield DerivedRow(row, tuple(member for result in group for member in result.members))

    def head_fact(self, rule: Rule, row: Row) -> TimedArgs | None:
        """Return the fact that a row derives; None if its interval ends before it starts."""
        args = self.solver.head_args(rule.clause, row)
        if not self.solver.predicate(rule.head.key).temporal:
            return args, None
        interval = self.solver.head_interval(rule.clause, row)
        return (args, interval) if is_nonempty_interval(*interval) else None

    def instance(self, shape: Shape, derived: DerivedRow, start: Row) -> Instance:
        """Return the instance of a row after transforms, with the grounds of its members in the order of values."""
        row = derived.row if shape.rule.clause.aggregates else {**start, **derived.row}
        if len(derived.members) == 1:
            return Instance(shape, row, tuple(self.grounds(shape, derived.members[0], start)))
        limit = len(derived.members)
        if limit > SMALL_GROUP and not self.every_row:
            has_rules = not self.solver.rules.keys().isdisjoint(shape.premise_keys)
            limit = min(limit, MAX_GROUP_ROWS if has_rules else MAX_GROUP_LEAVES)
        counts_facts = shape.rule.counts_facts
        members = distinct_rows(list(derived.members)) if counts_facts else derived.members
        grounds: Sequence[Ground] = [
            g for member in heapq.nsmallest(limit, members, key=row_key) for g in self.grounds(shape, member, start)
        ]
        if counts_facts:  # the rule counts facts, not rows, and several rows can come from one fact
            by_option = {
                o: Support(g.literal, g.row, (o,)) for g in grounds if isinstance(g, Support) for o in g.options
            }
            grounds = [*by_option.values()][:limit]
        return Instance(shape, row, tuple(grounds), len(derived.members) - limit)

    def grounds(self, shape: Shape, row: Row, start: Row) -> Iterator[Ground]:
        """Yield the ground of each premise that reads a predicate, in the order of the text."""
        for position, premise in shape.relation_premises:
            if self.solver.traits(premise).is_distinct:  # no wildcards or times: the row determines the fact
                args: list[Any] = [row[arg.name] if type(arg) is Variable else arg for arg in premise.atom.args]
                fact = Fact(premise.atom.predicate, tuple(args))
                yield Support(premise, row, (Option((fact,)),))
                continue
            bound_before = shape.bound_before(frozenset(start))
            before = {name: row[name] for name in bound_before[position] if name in row}
            if premise.negated:
                yield Absence(premise, before)
            else:
                after = {name: row[name] for name in bound_before[position + 1] if name in row}
                yield Support(premise, before, tuple(self._options(shape.rule, premise, before, after)))

    def _options(self, rule: Rule, premise: Literal, before: Row, after: Row) -> Iterator[Option]:
        solver, key = self.solver, premise.atom.key
        if solver.predicate(key).deferred:
            for args in self._deferred_facts(premise, before, after):
                yield Option((Fact(key[0], args),))
            return
        raw_key = solver.raw_key_of(rule)  # the predicate, if any, whose original intervals the rule reads
        _, facts = solver.look_up(premise, after, raw_key)  # every argument is known, so few facts match
        # Created with ``before``: in ``after``, the variables that take an end of the interval are bound already.
        matcher = Matcher(premise, before, solver.now)
        matching = [fact for fact in facts if matcher.match(before, *fact) == after]
        for args, coalesced in sorted(matching, key=timed_order) if len(matching) > 1 else matching:
            if coalesced is None or raw_key == key:
                yield Option((Fact(key[0], args, coalesced),))
                continue
            raw = [i for i in solver.intervals(key, args, raw=True) if coalesced[0] <= i[0] and i[1] <= coalesced[1]]
            yield option_of(demand(premise, before, solver.now, coalesced), key, args, raw)

    def _deferred_facts(self, premise: Literal, before: Row, after: Row) -> Iterator[Args]:
        predicate = self.solver.predicate(premise.atom.key)
        matcher = Matcher(premise, before, self.solver.now)
        known_values = matcher.key(before)
        value_at = dict(zip((i for i, _ in matcher.known), known_values, strict=True))
        for args in self.solver.call_deferred(premise.atom.key, tuple(value_at[i] for i in predicate.inputs())):
            if matcher.fact_key(args) == known_values and matcher.match(before, args, interval=None) == after:
                yield args
