"""Transforms over the rows of a rule: groups, reducers and lets, compiled to closures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from manglecp.mangle.builtins import FUNCTIONS, REDUCERS
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.facts import holds_somewhere
from manglecp.mangle.matching import Row, head_interval
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Apply, Term, Transform, Variable, premise_variables

RowTuple: TypeAlias = tuple[Any, ...]
Expression: TypeAlias = Callable[[RowTuple, int], Any]
Step: TypeAlias = Callable[[Iterable[RowTuple], int], Iterable[RowTuple]]


def transform_rows(transform: Transform, rows: list[Row], now: int) -> list[Row]:
    """Apply a transform to rows that bind the same variables."""
    if not rows:
        return []
    names = sorted(rows[0])
    step, after = compile_transform(transform, names)
    return [dict(zip(after, row, strict=True)) for row in step([tuple([r[n] for n in names]) for r in rows], now)]


def compile_term(term: Term, names: list[str]) -> Expression:
    """Compile a term to a function of a row; ``names`` are the columns of the row."""
    if isinstance(term, Variable):
        position = names.index(term.name)
        return lambda row, _now: row[position]
    if not isinstance(term, Apply):
        return lambda _row, _now: term
    parts = [compile_term(arg, names) for arg in term.args]
    function = FUNCTIONS.get(term.function)
    if function is None or not function.accepts(len(parts)):
        fault = f"unknown function {term.function}"

        def unknown(_row: RowTuple, _now: int) -> Any:
            raise ValueFault(fault)

        return unknown
    call = function.call
    return lambda row, now: call(tuple([part(row, now) for part in parts]), now)


class Aggregation:
    """The transforms and the head of a rule, compiled for rows of its body."""

    def __init__(self, rule: Rule, temporal: bool) -> None:
        clause = rule.clause
        names = sorted({v.name for p in rule.premises for v in premise_variables(p) if not v.anonymous})
        self.steps: list[Step] = []
        for transform in clause.transforms:
            step, names = compile_transform(transform, names)
            self.steps.append(step)
        self.names = names
        self.head = [compile_term(arg, names) for arg in clause.head.args]
        self.annotation = clause.annotation if temporal else None

    def facts(self, rows: Iterable[RowTuple], now: int) -> tuple[list[RowTuple], list[RowTuple]]:
        """Return the derived facts, and those skipped because their interval is empty."""
        for step in self.steps:
            rows = step(rows, now)
        if self.annotation is None:
            return [tuple([part(row, now) for part in self.head]) for row in rows], []
        facts: list[RowTuple] = []
        skipped: list[RowTuple] = []
        for row in rows:
            interval = head_interval(self.annotation, dict(zip(self.names, row, strict=True)), now)
            target = facts if holds_somewhere(*interval) else skipped
            target.append((*[part(row, now) for part in self.head], *interval))
        return facts, skipped


def compile_transform(transform: Transform, names: list[str]) -> tuple[Step, list[str]]:
    """Return a function of rows with the columns ``names``, and the columns of its result."""
    return _lets(transform, names) if transform.do is None else _group(transform, names)


def _lets(transform: Transform, names: list[str]) -> tuple[Step, list[str]]:
    expressions = []
    for let in transform.lets:
        expressions.append(compile_term(let.expression, names))
        names = [*names, let.variable.name]

    def step(rows: Iterable[RowTuple], now: int) -> Iterable[RowTuple]:
        extended = []
        for row in rows:
            for expression in expressions:
                row = (*row, expression(row, now))
            extended.append(row)
        return extended

    return step, names


def _group(transform: Transform, names: list[str]) -> tuple[Step, list[str]]:
    assert transform.do is not None
    keys = [arg.name for arg in transform.do.args if isinstance(arg, Variable)]
    positions = [names.index(key) for key in keys]
    after = list(keys)
    lets: list[Callable[[RowTuple, list[RowTuple], int], Any]] = []
    for let in transform.lets:
        lets.append(_reduction(let.expression, names, after))
        after = [*after, let.variable.name]

    def step(rows: Iterable[RowTuple], now: int) -> Iterable[RowTuple]:
        groups: dict[RowTuple, list[RowTuple]] = {}
        for row in rows:
            groups.setdefault(tuple([row[p] for p in positions]), []).append(row)
        reduced = []
        for group, members in groups.items():
            for let in lets:
                group = (*group, let(group, members, now))
            reduced.append(group)
        return reduced

    return step, after


def _reduction(expression: Apply, names: list[str], after: list[str]) -> Callable[[RowTuple, list[RowTuple], int], Any]:
    """Compile a ``let`` of a group: a reducer over its rows, or a function of its keys."""
    reducer = REDUCERS.get(expression.function)
    if reducer is None:
        plain = compile_term(expression, after)
        return lambda group, _members, now: plain(group, now)
    reduce = reducer.reduce
    if not expression.args:
        return lambda _group, members, _now: reduce(members)
    lenient = reducer.skips_failing_rows
    # A row sees the results of the group so far as well; they stand behind its own columns.
    extra = [name for name in after if name not in names]
    width = len(after) - len(extra)
    parts = [compile_term(arg, [*names, *extra]) for arg in expression.args]
    only = expression.args[0]
    if len(parts) == 1 and isinstance(only, Variable) and only.name in names:
        position = names.index(only.name)
        return lambda _group, members, _now: reduce([(row[position],) for row in members])

    def reduction(group: RowTuple, members: list[RowTuple], now: int) -> Any:
        rows = []
        for row in members:
            try:
                rows.append(tuple([part((*row, *group[width:]), now) for part in parts]))
            except ValueFault:
                if not lenient:
                    raise
        return reduce(rows)

    return reduction
