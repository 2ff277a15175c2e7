"""Transforms over the rows of a rule: groups, reducers and lets, compiled to closures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from manglecp.mangle.builtins import FUNCTIONS, REDUCERS
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.facts import is_nonempty_interval
from manglecp.mangle.matching import Row, head_interval
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Apply, Term, Transform, Variable, premise_variables

RowTuple: TypeAlias = tuple[Any, ...]  # values of variables, whose names are known at compile time
Expression: TypeAlias = Callable[[RowTuple, int], Any]  # maps a row and the evaluation time to a value
Step: TypeAlias = Callable[[Iterable[RowTuple], int], Iterable[RowTuple]]
_Reduction: TypeAlias = Callable[
    [RowTuple, list[RowTuple], int], Any
]  # of a group: keys and earlier results, rows, time


def transform_rows(transform: Transform, rows: list[Row], now: int) -> list[Row]:
    """Apply a transform to rows that bind the same variables."""
    if not rows:
        return []
    names = sorted(rows[0])
    step, result_names = compile_transform(transform, names)
    results = step([tuple([row[name] for name in names]) for row in rows], now)
    return [dict(zip(result_names, result, strict=True)) for result in results]


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

    def facts(self, rows: Iterable[RowTuple], now: int) -> list[RowTuple]:
        """Return the derived facts, without facts whose interval ends before it starts."""
        for step in self.steps:
            rows = step(rows, now)
        if self.annotation is None:
            return [tuple([compiled_arg(row, now) for compiled_arg in self.head]) for row in rows]
        facts: list[RowTuple] = []
        for row in rows:
            interval = head_interval(self.annotation, dict(zip(self.names, row, strict=True)), now)
            args = [compiled_arg(row, now) for compiled_arg in self.head]  # before the test, because a term may raise
            if is_nonempty_interval(*interval):
                facts.append((*args, *interval))
        return facts


def compile_transform(transform: Transform, names: list[str]) -> tuple[Step, list[str]]:
    """Return a function of rows with the columns ``names``, and the columns of its result."""
    return _compile_lets(transform, names) if transform.do is None else _compile_group(transform, names)


def _compile_lets(transform: Transform, names: list[str]) -> tuple[Step, list[str]]:
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


def _compile_group(transform: Transform, names: list[str]) -> tuple[Step, list[str]]:
    assert transform.do is not None
    keys = [arg.name for arg in transform.do.args if isinstance(arg, Variable)]
    key_positions = [names.index(key) for key in keys]
    result_names = list(keys)
    reductions: list[_Reduction] = []
    for let in transform.lets:
        reductions.append(_compile_reduction(let.expression, names, result_names))
        result_names = [*result_names, let.variable.name]

    def step(rows: Iterable[RowTuple], now: int) -> Iterable[RowTuple]:
        groups: dict[RowTuple, list[RowTuple]] = {}
        for row in rows:
            groups.setdefault(tuple([row[p] for p in key_positions]), []).append(row)
        reduced = []
        for group, members in groups.items():
            for reduction in reductions:
                group = (*group, reduction(group, members, now))
            reduced.append(group)
        return reduced

    return step, result_names


def _compile_reduction(expression: Apply, names: list[str], group_names: list[str]) -> _Reduction:
    """Compile a ``let`` of a group to a reducer of the rows, or to a function of the keys and earlier results."""
    reducer = REDUCERS.get(expression.function)
    if reducer is None:
        evaluate = compile_term(expression, group_names)
        return lambda group, _members, now: evaluate(group, now)
    reduce = reducer.reduce
    if not expression.args:
        return lambda _group, members, _now: reduce(members)
    skips_failing_rows = reducer.skips_failing_rows
    # Arguments of a reducer may use earlier results of the group, which are appended to each row.
    earlier_results = [name for name in group_names if name not in names]
    key_count = len(group_names) - len(earlier_results)
    compiled_args = [compile_term(arg, [*names, *earlier_results]) for arg in expression.args]
    first_arg = expression.args[0]
    if len(compiled_args) == 1 and isinstance(first_arg, Variable) and first_arg.name in names:
        position = names.index(first_arg.name)
        return lambda _group, members, _now: reduce([(row[position],) for row in members])

    def reduction(group: RowTuple, members: list[RowTuple], now: int) -> Any:
        rows = []
        for row in members:
            try:
                rows.append(tuple([compiled_arg((*row, *group[key_count:]), now) for compiled_arg in compiled_args]))
            except ValueFault:
                if not skips_failing_rows:
                    raise
        return reduce(rows)

    return reduction
