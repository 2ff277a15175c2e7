"""Matching of facts against premises: arguments, operators and annotations.

Known values are compared, free variables are bound. In an annotation, a known instant must lie in the fact's interval,
and a free variable is bound to the start or end of the interval. An operator requires that the fact holds at some
(diamond) or every (box) instant of a window before or after the evaluation time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeAlias

from manglecp.mangle.builtins import FUNCTIONS
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.facts import Args, Interval, TimedArgs, clamp
from manglecp.mangle.syntax import Annotation, Apply, Literal, Now, Operator, Term, TimeBound, Variable, subterms
from manglecp.mangle.values import INT_MAX, INT_MIN, Duration, Time, Value

Row: TypeAlias = dict[str, Value]  # variable bindings of a rule


def evaluate_term(term: Term, row: Mapping[str, Value], now: int) -> Value:
    """Evaluate a term, innermost first, left to right. ``now`` is the evaluation time in nanoseconds."""
    if isinstance(term, Variable):
        value = row.get(term.name)
        if value is None:
            raise ValueFault(f"variable {term.name} has no value")
        return value
    if isinstance(term, Apply):
        args = tuple([evaluate_term(arg, row, now) for arg in term.args])
        function = FUNCTIONS.get(term.function)
        if function is None:
            raise ValueFault(f"unknown function {term.function}")
        if not function.accepts(len(args)):
            raise ValueFault(f"{term.function} does not take {len(args)} arguments")
        return function.call(args, now)
    return term


def mentions_now(term: Term) -> bool:
    """Return whether the value depends on the evaluation time."""
    return any(isinstance(part, Apply) and part.function == "fn:time:now" for part in subterms(term))


def constant_value(term: Term) -> Value | None:
    """Return the value of a term; None if it has variables, depends on the evaluation time, or is invalid."""
    if isinstance(term, Variable) or mentions_now(term):
        return None
    with suppress(ValueFault):
        return evaluate_term(term, {}, now=0)  # the term does not depend on ``now``
    return None


def unify(patterns: list[Term], values: Args, row: Row, now: int) -> Row | None:
    """Return ``row`` with free variables bound, or None if a value differs."""
    for pattern, value in zip(patterns, values, strict=True):
        if isinstance(pattern, Variable) and pattern.name not in row:
            if not pattern.anonymous:
                row = {**row, pattern.name: value}
        elif evaluate_term(pattern, row, now) != value:
            return None
    return row


class Matcher:
    """Matches facts against one premise. All rows that reach a premise bind the variables that ``row`` binds."""

    def __init__(self, premise: Literal, row: Row, now: int) -> None:
        self.premise = premise
        self.now = now
        args = list(enumerate(premise.atom.args))
        self.known = [(i, arg) for i, arg in args if not isinstance(arg, Variable) or arg.name in row]
        self.free = [(i, arg) for i, arg in args if isinstance(arg, Variable) and arg.name not in row]
        names = [arg.name for _, arg in self.free if not arg.anonymous]
        self._repeats = len(set(names)) < len(names)
        self._bindings = [(i, arg.name) for i, arg in self.free if not arg.anonymous]

    def key(self, row: Row) -> Args:
        """Return the values, in this row, of the arguments that are known at the premise."""
        return tuple([row[t.name] if type(t) is Variable else evaluate_term(t, row, self.now) for _, t in self.known])

    def fact_key(self, args: Args) -> Args:
        """Return the values of a fact at the positions of :meth:`key`, for comparison with it."""
        return tuple(args[i] for i, _ in self.known)

    def index(self, facts: Iterable[TimedArgs]) -> dict[Args, list[TimedArgs]]:
        index: dict[Args, list[TimedArgs]] = {}
        for args, interval in facts:
            index.setdefault(self.fact_key(args), []).append((args, interval))
        return index

    def match(self, row: Row, args: Args, interval: Interval | None) -> Row | None:
        """Return ``row`` with the variables that the fact binds; None without a match. Ignores :meth:`key`."""
        bound: Row | None = row
        if self._repeats:
            bound = unify([arg for _, arg in self.free], tuple(args[i] for i, _ in self.free), row, self.now)
        elif self._bindings:
            bound = {**row, **{name: args[i] for i, name in self._bindings}}
        if bound is None or interval is None or not self.premise.timed:
            return bound
        operator, annotation = self.premise.operator, self.premise.annotation
        if operator is not None and not in_window(operator, bound, interval, self.now):
            return None
        return bound if annotation is None else match_annotation(annotation, bound, interval, self.now)


def instant_of(bound: TimeBound, row: Row, now: int) -> int | None:
    """Return the instant of a bound; None for ``_`` and for an unbound variable."""
    value = bound.value
    if isinstance(value, Now):
        return now
    if isinstance(value, Variable):
        bound_value = row.get(value.name)
        if bound_value is None or isinstance(bound_value, int):  # a number is an instant in nanoseconds
            return bound_value
        value = bound_value  # type: ignore[assignment]
    if isinstance(value, Time):
        return value.ns
    raise ValueFault(f"{bound.text} is not a time")


def _known_instant(bound: TimeBound, row: Row, now: int) -> int:
    instant = instant_of(bound, row, now)
    if instant is None:
        raise ValueFault(f"{bound.text} has no value")
    return instant


def head_interval(annotation: Annotation, row: Row, now: int) -> Interval:
    """Return the interval of a derived fact. The bound ``_`` is infinite; an unbound variable raises ValueFault."""
    ends = []
    for bound, infinity in ((annotation.start, INT_MIN), (annotation.end, INT_MAX)):
        if isinstance(bound.value, Variable) and bound.value.anonymous:
            ends.append(infinity)
        else:
            ends.append(_known_instant(bound, row, now))
    return ends[0], ends[1]


def window(operator: Operator, row: Row, now: int) -> Interval:
    """Return the window of an operator; a window with one bound ends or starts now."""
    sign = 1 if operator.is_future else -1
    ends = [now] if len(operator.bounds) == 1 else []
    for bound in operator.bounds:
        value = row.get(bound.value.name) if isinstance(bound.value, Variable) else bound.value
        if isinstance(value, Duration):
            ends.append(clamp(now + sign * value.ns))
        else:
            ends.append(_known_instant(bound, row, now))
    return min(ends), max(ends)


def in_window(operator: Operator, row: Row, interval: Interval, now: int) -> bool:
    """Return whether the interval meets the window (diamond) or contains it (box)."""
    first, last = window(operator, row, now)
    start, end = interval
    return start <= first and last <= end if operator.is_box else start <= last and first <= end


def match_annotation(annotation: Annotation, row: Row, interval: Interval, now: int) -> Row | None:
    """Return ``row`` with the free variables of an annotation bound to ends of the interval; None without a match."""
    start, end = interval
    free_variables: dict[str, int] = {}
    for bound, fact_end in ((annotation.start, start), (annotation.end, end)):
        if isinstance(bound.value, Variable) and bound.value.anonymous:
            continue
        instant = instant_of(bound, row, now)
        if instant is None:
            assert isinstance(bound.value, Variable)
            if free_variables.setdefault(bound.value.name, fact_end) != fact_end:
                return None  # a free variable for both ends matches only an interval of one instant
        elif not start <= instant <= end:
            return None
    return {**row, **{name: Time(ns) for name, ns in free_variables.items()}} if free_variables else row
