"""The order in which a compiled rule visits its premises.

The analysis has put premises into the order that defines the rule's meaning. A plan may use another one if nothing can
tell the difference:

* A premise that may raise an error is a *barrier*: what stood before it runs before it, what stood behind it behind.
* Whether an interval variable is bound or compared at a temporal premise was decided by the defining order. It is
  written into the plan as a *role*, so that it stays the same wherever the premise lands.
* A premise that cannot raise because of what stands in front of it (``X < 5`` behind a premise that has only numbers)
  waits until the values that reach it are known to be such, wherever they came from.
* The premise that reads the newest facts (the *delta*) goes first. It can only narrow the rows that reach a barrier,
  and the rows it leaves out reached it in an earlier round.

Between barriers the next step is the cheapest that is ready: tests before look-ups, look-ups before scans, small
relations before large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal as OneOf, TypeAlias

from manglecp.mangle.builtins import PREDICATES
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.engine.kinds import Env, KindInference
from manglecp.mangle.packages import Key
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import (
    Annotation,
    Apply,
    Equality,
    Literal,
    Operator,
    Premise,
    Term,
    TimeBound,
    Variable,
    bound_variables,
    term_variables,
)

Role: TypeAlias = OneOf["any", "start", "end", "point", "within"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do. ``needs`` must be bound before it, ``binds`` is bound behind it."""

    position: int
    segment: int
    needs: frozenset[str]
    binds: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Scan(Step):
    """Visit the facts of a predicate. A temporal fact also binds ``(start, end)`` under two local names."""

    literal: Literal = field(kw_only=True)
    temporal: bool = False
    roles: tuple[tuple[Role, TimeBound], ...] = ()


@dataclass(frozen=True, slots=True)
class Within(Step):
    """A known end of an annotation lies in the interval that scan ``position`` visits."""

    bound: TimeBound = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Window(Step):
    """The operator of scan ``position`` accepts the interval it visits."""

    operator: Operator = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Absent(Step):
    """A negated premise on stored facts."""

    literal: Literal = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Ask(Step):
    """A built-in predicate."""

    literal: Literal = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Equate(Step):
    """An equality: a test, or a value for a variable."""

    equality: Equality = field(kw_only=True)


AnyStep: TypeAlias = Scan | Within | Window | Absent | Ask | Equate


@dataclass(frozen=True, slots=True)
class RuleSteps:
    """A rule taken apart: its steps in defining order, and what is known of its variables."""

    rule: Rule
    predicates: Mapping[Key, Predicate]
    steps: tuple[AnyStep, ...]
    kinds: Env  # of the variables behind the last premise
    barriers: frozenset[int]  # segments that hold a step that may raise

    def scans(self) -> Iterable[Scan]:
        """The premises that read facts."""
        return (step for step in self.steps if isinstance(step, Scan))


def take_apart(rule: Rule, predicates: Mapping[Key, Predicate]) -> RuleSteps:
    """The steps of a rule, with segments and roles."""
    inference = KindInference(predicates)
    bound: set[str] = set()
    steps: list[AnyStep] = []
    barriers: set[int] = set()
    segment = 0
    for position, premise in enumerate(rule.premises):
        raises = inference.can_raise(premise)
        if raises:
            segment += 1
            barriers.add(segment)
        steps += _steps(premise, position, segment, bound, predicates)
        if raises:
            segment += 1
        inference.follow(premise)
        bound |= {v for step in steps for v in step.binds}
    return RuleSteps(rule, predicates, tuple(steps), dict(inference.env), frozenset(barriers))


def turned_positive(apart: RuleSteps, position: int) -> RuleSteps | None:
    """The rule with one negated premise as an additional positive one, or None if that has no simple meaning.

    It finds the rows that a change of the negated predicate touches.
    """
    steps = list(apart.steps)
    at, absent = next((i, s) for i, s in enumerate(steps) if isinstance(s, Absent) and s.position == position)
    literal = absent.literal
    if literal.timed or any(isinstance(arg, Apply) for arg in literal.atom.args):
        return None
    columns = _names(arg for arg in literal.atom.args if isinstance(arg, Variable))
    scan = Scan(absent.position, absent.segment, frozenset(), columns, literal=replace(literal, negated=False))
    steps.insert(at, scan)
    return replace(apart, steps=tuple(steps))


def _names(variables: Iterable[Variable]) -> frozenset[str]:
    return frozenset(v.name for v in variables if not v.anonymous)


def _steps(
    premise: Premise, position: int, segment: int, bound: set[str], predicates: Mapping[Key, Predicate]
) -> list[AnyStep]:
    if isinstance(premise, Equality):
        return [_equate(premise, position, segment, bound)]
    atom = premise.atom
    if atom.predicate.startswith(":"):
        return [_ask(premise, position, segment)]
    in_expressions = _names(v for arg in atom.args if isinstance(arg, Apply) for v in term_variables(arg))
    temporal = predicates[atom.key].temporal
    if premise.negated:
        needs = _names(term_variables(*atom.args))
        if premise.annotation is not None:
            needs |= _names(bound_variables(premise.annotation.bounds))
        if premise.operator is not None:
            needs |= _names(bound_variables(premise.operator.bounds))
        return [Absent(position, segment, needs, literal=premise)]
    columns = _names(arg for arg in atom.args if isinstance(arg, Variable))
    known = bound | columns
    roles = () if premise.annotation is None else _roles(premise.annotation, known)
    binds = columns | _names(b.value for role, b in roles if role != "within" and isinstance(b.value, Variable))
    steps: list[AnyStep] = [
        Scan(position, segment, in_expressions, binds, literal=premise, temporal=temporal, roles=roles)
    ]
    for role, end in roles:
        if role == "within":
            needs = _names([end.value]) if isinstance(end.value, Variable) else frozenset()
            steps.append(Within(position, segment, needs, bound=end))
    if premise.operator is not None:
        needs = _names(bound_variables(premise.operator.bounds))
        steps.append(Window(position, segment, needs, operator=premise.operator))
    return steps


def _roles(annotation: Annotation, known: set[str] | frozenset[str]) -> tuple[tuple[Role, TimeBound], ...]:
    """What each end of an annotation does (D16)."""
    start, end = annotation.start, annotation.end

    def free(bound: TimeBound) -> str | None:
        value = bound.value
        return value.name if isinstance(value, Variable) and not value.anonymous and value.name not in known else None

    if free(start) is not None and free(start) == free(end):
        return (("point", start),)
    roles: list[tuple[Role, TimeBound]] = []
    for bound, role in ((start, "start"), (end, "end")):
        if isinstance(bound.value, Variable) and bound.value.anonymous:
            continue
        roles.append(("within" if free(bound) is None else role, bound))  # type: ignore[arg-type]  # one of both
    return tuple(dict.fromkeys(roles))


def _equate(premise: Equality, position: int, segment: int, bound: set[str]) -> Equate:
    """An equality that gives a value to a variable needs the other side only."""
    left, right = (_names(term_variables(side)) for side in (premise.left, premise.right))
    if not premise.negated:
        for side, own, other in ((premise.left, left, right), (premise.right, right, left)):
            if isinstance(side, Variable) and (side.anonymous or side.name not in bound):
                return Equate(position, segment, other, own, equality=premise)
    return Equate(position, segment, left | right, equality=premise)


def _ask(premise: Literal, position: int, segment: int) -> Ask:
    needs: set[str] = set()
    binds: set[str] = set()
    for arg, mode in zip(premise.atom.args, PREDICATES[premise.atom.predicate].modes, strict=True):
        if mode == "+" or premise.negated or isinstance(arg, Apply):
            needs |= _names(term_variables(arg))
        else:
            binds |= _names(term_variables(arg))
    return Ask(position, segment, frozenset(needs), frozenset(binds), literal=premise)


def order(
    apart: RuleSteps, delta: int | None, size: Callable[[Key], int], preset: frozenset[str] = frozenset()
) -> list[tuple[AnyStep, Env]]:
    """The steps as a compiled rule runs them, each with the kinds of values that reach it.

    ``delta`` is the position of the scan that reads the newest facts; ``preset`` are variables that have values.
    """
    ordered: list[tuple[AnyStep, Env]] = []
    known = KindInference(apart.predicates)
    bound: set[str] = set(preset)
    waiting = list(apart.steps)
    # A premise that asks for one instant or window finds its facts by time.
    timed = {step.position for step in waiting if isinstance(step, Within | Window) and not step.needs}

    def run(step: AnyStep) -> None:
        ordered.append((step, dict(known.env)))
        _learn(known, step)
        bound.update(step.binds)
        waiting.remove(step)

    if delta is not None:
        first = next(s for s in apart.scans() if s.position == delta)
        if not first.needs:
            run(first)
    while waiting:
        segment = min(step.segment for step in waiting)
        first_position = min(step.position for step in waiting)
        scanned = {s.position for s, _ in ordered if isinstance(s, Scan)}
        ready = [
            step
            for step in waiting
            if step.segment == segment
            and step.needs <= bound
            and (not isinstance(step, Within | Window) or step.position in scanned)
            and (segment in apart.barriers or step.position == first_position or not _may_raise(known, step))
        ]
        run(
            min(
                ready,
                key=lambda step: (_cost(step, bound, size) / (1 if step.position not in timed else 256), step.position),
            )
        )
    return ordered


def _learn(known: KindInference, step: AnyStep) -> None:
    """Note what is known behind a step."""
    if isinstance(step, Scan):
        known.follow(replace(step.literal, annotation=None))
        for role, end in step.roles:
            if role != "within" and isinstance(end.value, Variable):
                known.env[end.value.name] = frozenset({"time"})
    elif isinstance(step, Ask):
        known.follow(step.literal)
    elif isinstance(step, Equate):
        known.follow(step.equality)


def _may_raise(known: KindInference, step: AnyStep) -> bool:
    if isinstance(step, Equate):
        return known.can_raise(step.equality)
    if isinstance(step, Scan):
        return known.any_can_raise(step.literal.atom.args)
    if isinstance(step, Within):
        return isinstance(step.bound.value, Variable) and known.of(step.bound.value) != {"time"}
    if isinstance(step, Window):
        return any(known.of(end) - {"time", "duration"} for end in bound_variables(step.operator.bounds))
    return known.can_raise(step.literal)


def _cost(step: AnyStep, bound: set[str], size: Callable[[Key], int]) -> float:
    if not isinstance(step, Scan):
        return -2.0 if not isinstance(step, Ask) or not step.binds - bound else 2.0
    args: tuple[Term, ...] = step.literal.atom.args
    free = [a for a in args if isinstance(a, Variable) and not a.anonymous and a.name not in bound]
    open_columns = [a for a in args if isinstance(a, Variable) and (a.anonymous or a.name not in bound)]
    if not free and not step.temporal:
        return -1.0
    known = len(args) - len(open_columns)
    return float(size(step.literal.atom.key)) / 16.0**known
