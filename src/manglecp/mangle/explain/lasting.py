"""How long a premise that looks at now goes on holding, and which rules have such premises under them.

A fact of the interval ``[S, E]`` satisfies ``@[now]`` until E. A window moves along with now: ``<-[a, b]`` is satisfied
until its far end passes E, at E + b, and ``[-[a, b]`` until its near end does, at E + a; ``<+[a, b]`` until E - a and
``[+[a, b]`` until E - b. An infinite end never comes. A premise whose window stands still, or that reads the ends of
the interval instead of asking about now, is not limited, and neither is a negated one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal as OneOf, TypeAlias

from manglecp.mangle.declarations import Predicate
from manglecp.mangle.packages import Key
from manglecp.mangle.program import Program, Rule
from manglecp.mangle.syntax import Apply, Literal, Now, Operator, TimeBound, Variable
from manglecp.mangle.values import INT_MAX, Duration, Time, Value

FOREVER: Final = INT_MAX
Always: TypeAlias = OneOf[True]


def asks_for_now(premise: Literal) -> bool:
    """Does its annotation name now?"""
    return premise.annotation is not None and any(isinstance(b.value, Now) for b in premise.annotation.bounds)


def looks_at_now(premise: Literal) -> bool:
    """Can the passing of time alone end it?"""
    return not premise.negated and (
        asks_for_now(premise) or (premise.operator is not None and _moves(premise.operator))
    )


def _moves(operator: Operator) -> bool:
    return len(operator.bounds) == 1 or not all(isinstance(bound.value, Time) for bound in operator.bounds)


def fixed_shift(operator: Operator) -> int | None:
    """What is added to the end of a fact, if it is the same for every row and window; None if it has to be found."""
    values = [bound.value for bound in operator.bounds]
    if not all(isinstance(value, Duration | Now) for value in values):
        return None
    return _shift(operator, [_offset(operator, value) for value in values])  # type: ignore[arg-type]


def operator_end(operator: Operator, values: Sequence[Value | Now], end: int) -> int:
    """Until when a fact that ends at ``end`` satisfies the operator, whose bounds have these values."""
    if end == FOREVER:
        return FOREVER
    moving = [_offset(operator, value) for value in values if isinstance(value, Duration | Now)]
    still = [value.ns if isinstance(value, Time) else value for value in values if isinstance(value, Time | int)]
    if not moving and len(values) > 1:
        return FOREVER
    if not operator.is_box and any(instant <= end for instant in still):
        return FOREVER  # a window that keeps its beginning only grows
    return end + _shift(operator, moving)


def _offset(operator: Operator, value: Duration | Now) -> int:
    """How far from now a bound is."""
    if isinstance(value, Now):
        return 0
    return value.ns if operator.is_future else -value.ns


def _shift(operator: Operator, moving: list[int]) -> int:
    """A window of one bound has now as the other."""
    offsets = [*moving, 0] if len(operator.bounds) == 1 else moving
    return -(max(offsets) if operator.is_box else min(offsets))


def bound_values(bounds: Iterable[TimeBound], row: Mapping[str, Value]) -> list[Value | Now]:
    """What each bound says under this row."""
    return [row[bound.value.name] if isinstance(bound.value, Variable) else bound.value for bound in bounds]


def premise_end(premise: Literal, row: Mapping[str, Value], end: int) -> int:
    """Until when a fact that ends at ``end`` satisfies a premise that looks at now; ``row`` has its variables."""
    last = end if asks_for_now(premise) else FOREVER
    if premise.operator is not None:
        last = min(last, operator_end(premise.operator, bound_values(premise.operator.bounds, row), end))
    return last


class Lasting:
    """The rule graph of a program, as far as time can end what it derives. Made once per program."""

    def __init__(self, program: Program) -> None:
        self.predicates: Mapping[Key, Predicate] = program.predicates
        self.rules: dict[Key, list[Rule]] = {}
        readers: dict[Key, set[Key]] = {}
        found: list[Key] = []
        for rule in program.rules:
            head = rule.head.key
            self.rules.setdefault(head, []).append(rule)
            if program.predicates[head].temporal:
                continue  # it says itself until when it holds
            for premise in stored(rule):
                if looks_at_now(premise):
                    found.append(head)
                elif not program.predicates[premise.atom.key].temporal:
                    readers.setdefault(premise.atom.key, set()).add(head)
        for predicate in program.predicates.values():
            if predicate.merge is not None:
                readers.setdefault(predicate.merge.predicate, set()).add(predicate.key)
        limited = set(found)
        for key in found:
            for head in readers.get(key, set()) - limited:
                limited.add(head)
                found.append(head)
        self.limited = frozenset(limited)
        self._first: dict[Key, frozenset[Value] | Always] = {}

    def limits(self, rule: Rule) -> bool:
        """Has the rule a premise that looks at now, or one on a predicate that may be limited?"""
        return any(looks_at_now(p) or p.atom.key in self.limited for p in stored(rule))

    def can_expire(self, key: Key, first: Value) -> bool:
        """Can time end a fact of this predicate whose first argument this is?"""
        if key not in self.limited:
            return False
        known = self._first.get(key)
        if known is None:
            known = self._first[key] = self._firsts(key)
        return known is True or first in known

    def _firsts(self, key: Key) -> frozenset[Value] | Always:
        """The first arguments of facts that time can end; True if the rules do not say which."""
        heads = [rule.head.args for rule in self.rules.get(key, ()) if self.limits(rule)]
        if self.predicates[key].merge is not None or not key[1]:
            return True
        if any(isinstance(args[0], Variable | Apply) for args in heads):
            return True
        return frozenset(args[0] for args in heads)  # type: ignore[misc]  # constants


def stored(rule: Rule) -> Iterator[Literal]:
    """The positive premises that facts answer."""
    for premise in rule.premises:
        if isinstance(premise, Literal) and not premise.negated and not premise.atom.predicate.startswith(":"):
            yield premise
