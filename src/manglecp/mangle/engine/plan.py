"""Join order of a compiled rule.

The analysis defines the order that gives a rule its meaning. A plan may reorder premises if the result is the same:

* A premise that may raise is a *barrier*: other premises do not move across a barrier.
* The defining order fixes whether a temporal premise binds or compares an interval variable; that is its *role*.
* If a premise cannot raise only because earlier premises determine the kinds of its values, it runs after them.
* The premise that reads the delta runs first: the rows that it excludes reached the barriers in an earlier round.

Between barriers the cheapest ready step is next: tests, then look-ups, then scans, small relations first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal as OneOf, TypeAlias

from manglecp.mangle.builtins import FUNCTIONS, PREDICATES
from manglecp.mangle.checker import signature
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.printer import INFIX
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import (
    Annotation,
    Apply,
    Equality,
    Key,
    Literal,
    Operator,
    Premise,
    Term,
    TimeBound,
    Variable,
    bound_variables,
    premise_variables,
    term_variables,
)
from manglecp.mangle.types import ALL_KINDS, kinds_of
from manglecp.mangle.values import KIND_NAMES


def relation_premises(rule: Rule) -> Iterator[Literal]:
    """Yield the premises that read a predicate, not a built-in."""
    return (p for p in rule.premises if isinstance(p, Literal) and not p.atom.predicate.startswith(":"))


# Premises move only if a move neither adds nor removes a run-time error. Most premises cannot raise once the kinds of
# their arguments are known. Kinds follow from declared bounds only: later facts are checked against nothing else.
Kinds: TypeAlias = frozenset[str]  # names of kinds of values, as in KIND_NAMES
Env: TypeAlias = Mapping[str, Kinds]  # the possible kinds of variables

ORDERABLE: Final = frozenset({"number", "float64", "string", "name", "time", "duration"})
# Functions that cannot fail if every argument has this kind.
_TOTAL: Final[Mapping[str, str]] = {
    "fn:plus": "number",
    "fn:minus": "number",
    "fn:mult": "number",
    "fn:list:len": "list",
    "fn:string:len": "string",
    "fn:number:to_string": "number",
    "fn:float64:to_string": "float64",
    "fn:name:to_string": "name",
    "fn:name:root": "name",
    "fn:name:tip": "name",
    "fn:name:list": "name",
    "fn:duration:nanos": "duration",
    "fn:duration:seconds": "duration",
    "fn:duration:minutes": "duration",
    "fn:duration:hours": "duration",
    "fn:time:to_unix_nanos": "time",
    "fn:time:now": "",  # it has no arguments
}
_SEARCHES: Final = frozenset({":string:has_word", ":string:matches"})  # raise for long texts and invalid patterns
_NEVER_RAISE: Final = frozenset(
    name
    for name in PREDICATES
    if name == ":filter" or (name.startswith((":is_", ":list:", ":match_")) and name != ":match_prefix")
)


class KindInference:
    """Infers the kinds of variables along a rule in running order."""

    def __init__(self, predicates: Mapping[Key, Predicate], inputs: Env | None = None) -> None:
        self.predicates = predicates
        self.env: dict[str, Kinds] = dict(inputs or {})

    def of(self, term: Term) -> Kinds:
        """Return the possible kinds of a term."""
        if isinstance(term, Variable):
            return self.env.get(term.name, ALL_KINDS)
        if isinstance(term, Apply):
            function = FUNCTIONS.get(term.function)
            return ALL_KINDS if function is None else kinds_of(signature((function.result,))[0])
        return frozenset({KIND_NAMES[type(term)]})

    def can_raise(self, premise: Premise) -> bool:
        if isinstance(premise, Equality):
            return self.any_can_raise(premise.terms)
        if self.any_can_raise(premise.atom.args):
            return True
        name = premise.atom.predicate
        if not name.startswith(":"):
            return self._time_can_raise(premise)
        arg_kinds = [self.of(arg) for arg in premise.atom.args]
        if name in _NEVER_RAISE:
            return False
        if name in INFIX:
            return not (arg_kinds[0] == arg_kinds[1] and len(arg_kinds[0]) == 1 and arg_kinds[0] <= ORDERABLE)
        if name == ":match_prefix":
            return arg_kinds[1] != {"name"}
        if name.startswith(":string:") and name not in _SEARCHES:
            return arg_kinds[1] != {"string"}
        param_kinds = [kinds_of(type_) for type_ in signature(PREDICATES[name].params)]
        return (
            name.startswith(":interval:")
            or name in _SEARCHES
            or not all(map(frozenset.issubset, arg_kinds, param_kinds))
        )

    def _time_can_raise(self, premise: Literal) -> bool:
        bounds = [] if premise.annotation is None else list(bound_variables(premise.annotation.bounds))
        # A variable without a value takes an end of the interval, which is a time.
        if any(self.env.get(v.name, frozenset({"time"})) - {"time"} for v in bounds if not v.anonymous):
            return True
        window = [] if premise.operator is None else bound_variables(premise.operator.bounds)
        return any(self.env.get(v.name, ALL_KINDS) - {"time", "duration"} for v in window)

    def any_can_raise(self, terms: Iterable[Term]) -> bool:
        return any(isinstance(term, Apply) and self._apply_can_raise(term) for term in terms)

    def _apply_can_raise(self, term: Apply) -> bool:
        kind = _TOTAL.get(term.function)
        if kind is None or self.any_can_raise(term.args) or (term.function == "fn:minus" and not term.args):
            return True
        return any(self.of(arg) != {kind} for arg in term.args)

    def follow(self, premise: Premise) -> None:
        """Narrow the kinds of the variables to those with which the premise can hold."""
        if isinstance(premise, Equality):
            if not premise.negated:
                for side, other in premise.directions:
                    self._narrow(side, self.of(other))
        elif not premise.negated:
            self._follow_literal(premise)

    def _follow_literal(self, premise: Literal) -> None:
        atom = premise.atom
        if atom.predicate in INFIX:
            left, right = atom.args
            common = self.of(left) & self.of(right) & ORDERABLE
            self._narrow(left, common)
            self._narrow(right, common)
            return
        if atom.predicate.startswith(":"):
            builtin = PREDICATES[atom.predicate]
            for arg, mode, type_ in zip(atom.args, builtin.modes, signature(builtin.params), strict=True):
                if mode == "-":
                    self._narrow(arg, kinds_of(type_))
            return
        rows = self.predicates[atom.key].rows
        for position, arg in enumerate(atom.args):
            column_kinds = frozenset().union(*(kinds_of(row[position]) for row in rows)) if rows else ALL_KINDS
            self._narrow(arg, column_kinds)
        if premise.annotation is not None:
            for variable in bound_variables(premise.annotation.bounds):
                self._narrow(variable, frozenset({"time"}) if variable.name not in self.env else ALL_KINDS)

    def _narrow(self, term: Term, kinds: Kinds) -> None:
        if isinstance(term, Variable) and not term.anonymous:
            self.env[term.name] = self.env.get(term.name, ALL_KINDS) & kinds


Role: TypeAlias = OneOf["start", "end", "point", "within"]
"""What a bound of an annotation does: bind or equal the start, the end or both (``point``), or lie in the interval."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a plan."""

    position: int  # of the premise in the defining order
    segment: int  # steps of the same segment may change places
    needs: frozenset[str]  # variables that must be bound before the step
    binds: frozenset[str] = frozenset()  # variables that are bound after the step


@dataclass(frozen=True, slots=True)
class Scan(Step):
    """Visit the facts of a predicate; of a temporal predicate, also the start and the end of the interval."""

    literal: Literal = field(kw_only=True)
    temporal: bool = False
    roles: tuple[tuple[Role, TimeBound], ...] = ()


@dataclass(frozen=True, slots=True)
class BoundTest(Step):
    """Test that a known bound of an annotation lies in the interval of the scan at ``position``."""

    bound: TimeBound = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class WindowTest(Step):
    """Test that the operator accepts the interval of the scan at ``position``."""

    operator: Operator = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Negation(Step):
    literal: Literal = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class BuiltinCall(Step):
    literal: Literal = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class EqualityStep(Step):
    """A test, or a binding of a variable."""

    equality: Equality = field(kw_only=True)


AnyStep: TypeAlias = Scan | BoundTest | WindowTest | Negation | BuiltinCall | EqualityStep


@dataclass(frozen=True, slots=True)
class RuleSteps:
    rule: Rule
    predicates: Mapping[Key, Predicate]
    steps: tuple[AnyStep, ...]
    kinds: Env  # the kinds of variables after the last premise
    barriers: frozenset[int]  # segments of premises that may raise

    def scans(self) -> Iterable[Scan]:
        return (step for step in self.steps if isinstance(step, Scan))


def split_rule(rule: Rule, predicates: Mapping[Key, Predicate]) -> RuleSteps:
    """Split the premises of a rule into steps, in the defining order."""
    inference = KindInference(predicates)
    bound: set[str] = set()
    steps: list[AnyStep] = []
    barriers: set[int] = set()
    segment = 0
    for position, premise in enumerate(rule.premises):
        is_barrier = inference.can_raise(premise)
        if is_barrier:
            segment += 1
            barriers.add(segment)
        steps += _steps(premise, position, segment, bound, predicates)
        if is_barrier:
            segment += 1
        inference.follow(premise)
        bound |= {v for step in steps for v in step.binds}
    return RuleSteps(rule, predicates, tuple(steps), dict(inference.env), frozenset(barriers))


def with_positive_premise(rule_steps: RuleSteps, position: int) -> RuleSteps | None:
    """Return the rule with a positive copy of a negated premise; None if that is not possible.

    If the copy reads the changes of the negated predicate as its delta, the rule finds the affected rows.
    """
    steps = list(rule_steps.steps)
    index, negation = next((i, s) for i, s in enumerate(steps) if isinstance(s, Negation) and s.position == position)
    literal = negation.literal
    if literal.timed or any(isinstance(arg, Apply) for arg in literal.atom.args):
        return None
    binds = _names(arg for arg in literal.atom.args if isinstance(arg, Variable))
    scan = Scan(negation.position, negation.segment, frozenset(), binds, literal=replace(literal, negated=False))
    steps.insert(index, scan)
    return replace(rule_steps, steps=tuple(steps))


def _names(variables: Iterable[Variable]) -> frozenset[str]:
    return frozenset(v.name for v in variables if not v.anonymous)


def _steps(
    premise: Premise, position: int, segment: int, bound: set[str], predicates: Mapping[Key, Predicate]
) -> list[AnyStep]:
    if isinstance(premise, Equality):
        return [_equate(premise, position, segment, bound)]
    atom = premise.atom
    if atom.predicate.startswith(":"):
        return [_builtin_call(premise, position, segment)]
    expression_variables = _names(v for arg in atom.args if isinstance(arg, Apply) for v in term_variables(arg))
    temporal = predicates[atom.key].temporal
    if premise.negated:
        return [Negation(position, segment, _names(premise_variables(premise)), literal=premise)]
    plain_variables = _names(arg for arg in atom.args if isinstance(arg, Variable))
    roles = () if premise.annotation is None else _roles(premise.annotation, bound | plain_variables)
    binds = plain_variables | _names(b.value for role, b in roles if role != "within" and isinstance(b.value, Variable))
    steps: list[AnyStep] = [
        Scan(position, segment, expression_variables, binds, literal=premise, temporal=temporal, roles=roles)
    ]
    for role, time_bound in roles:
        if role == "within":
            needs = _names([time_bound.value]) if isinstance(time_bound.value, Variable) else frozenset()
            steps.append(BoundTest(position, segment, needs, bound=time_bound))
    if premise.operator is not None:
        needs = _names(bound_variables(premise.operator.bounds))
        steps.append(WindowTest(position, segment, needs, operator=premise.operator))
    return steps


def _roles(annotation: Annotation, known: set[str] | frozenset[str]) -> tuple[tuple[Role, TimeBound], ...]:
    """Return the role of each bound except ``_``; ``known`` are the variables that are already bound."""
    start, end = annotation.start, annotation.end

    def free_name(bound: TimeBound) -> str | None:
        value = bound.value
        return value.name if isinstance(value, Variable) and not value.anonymous and value.name not in known else None

    if free_name(start) is not None and free_name(start) == free_name(end):
        return (("point", start),)
    roles: list[tuple[Role, TimeBound]] = []
    for bound, role in ((start, "start"), (end, "end")):
        if isinstance(bound.value, Variable) and bound.value.anonymous:
            continue
        roles.append(("within" if free_name(bound) is None else role, bound))  # type: ignore[arg-type]  # one of both
    return tuple(dict.fromkeys(roles))


def _equate(premise: Equality, position: int, segment: int, bound: set[str]) -> EqualityStep:
    left, right = (_names(term_variables(side)) for side in premise.terms)
    if not premise.negated:
        for side, binds, needs in ((premise.left, left, right), (premise.right, right, left)):
            if isinstance(side, Variable) and (side.anonymous or side.name not in bound):
                return EqualityStep(position, segment, needs, binds, equality=premise)
    return EqualityStep(position, segment, left | right, equality=premise)


def _builtin_call(premise: Literal, position: int, segment: int) -> BuiltinCall:
    needs: set[str] = set()
    binds: set[str] = set()
    for arg, mode in zip(premise.atom.args, PREDICATES[premise.atom.predicate].modes, strict=True):
        if mode == "+" or premise.negated or isinstance(arg, Apply):
            needs |= _names(term_variables(arg))
        else:
            binds |= _names(term_variables(arg))
    return BuiltinCall(position, segment, frozenset(needs), frozenset(binds), literal=premise)


def order(
    rule_steps: RuleSteps, delta: int | None, size: Callable[[Key], int], preset: frozenset[str] = frozenset()
) -> list[tuple[AnyStep, Env]]:
    """Return the steps in running order, each with the kinds of the variables before the step.

    ``delta`` is the position of the scan that reads the delta, ``preset`` are variables that are bound at first, and
    ``size`` returns the number of facts of a predicate.
    """
    ordered: list[tuple[AnyStep, Env]] = []
    inference = KindInference(rule_steps.predicates)
    bound: set[str] = set(preset)
    waiting = list(rule_steps.steps)
    # A premise with a fixed instant or window reads few facts, because it uses the timeline index.
    has_fixed_time = {step.position for step in waiting if isinstance(step, BoundTest | WindowTest) and not step.needs}

    def run(step: AnyStep) -> None:
        ordered.append((step, dict(inference.env)))
        _narrow_kinds(inference, step)
        bound.update(step.binds)
        waiting.remove(step)

    if delta is not None:
        first = next(s for s in rule_steps.scans() if s.position == delta)
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
            and (not isinstance(step, BoundTest | WindowTest) or step.position in scanned)
            and (segment in rule_steps.barriers or step.position == first_position or not _may_raise(inference, step))
        ]
        # A fixed time saves as much as two known columns.
        costs = [_cost(step, bound, size) / (16**2 if step.position in has_fixed_time else 1) for step in ready]
        run(min(zip(costs, ready, strict=True), key=lambda pair: (pair[0], pair[1].position))[1])
    return ordered


def _narrow_kinds(inference: KindInference, step: AnyStep) -> None:
    if isinstance(step, Scan):
        inference.follow(replace(step.literal, annotation=None))
        for role, time_bound in step.roles:
            if role != "within" and isinstance(time_bound.value, Variable):
                inference.env[time_bound.value.name] = frozenset({"time"})
    elif isinstance(step, BuiltinCall):
        inference.follow(step.literal)
    elif isinstance(step, EqualityStep):
        inference.follow(step.equality)


def _may_raise(inference: KindInference, step: AnyStep) -> bool:
    if isinstance(step, EqualityStep):
        return inference.can_raise(step.equality)
    if isinstance(step, Scan):
        return inference.any_can_raise(step.literal.atom.args)
    if isinstance(step, BoundTest):
        return isinstance(step.bound.value, Variable) and inference.of(step.bound.value) != {"time"}
    if isinstance(step, WindowTest):
        return any(inference.of(variable) - {"time", "duration"} for variable in bound_variables(step.operator.bounds))
    return inference.can_raise(step.literal)


def _cost(step: AnyStep, bound: set[str], size: Callable[[Key], int]) -> float:
    """Return the estimated number of rows, or a negative cost for a test, which runs first.

    Each known column divides the size of the relation by 16.
    """
    if not isinstance(step, Scan):
        return -2.0 if not isinstance(step, BuiltinCall) or not step.binds - bound else 2.0
    args: tuple[Term, ...] = step.literal.atom.args
    free_variables = [arg for arg in args if isinstance(arg, Variable) and not arg.anonymous and arg.name not in bound]
    unknown_columns = [arg for arg in args if isinstance(arg, Variable) and (arg.anonymous or arg.name not in bound)]
    if not free_variables and not step.temporal:
        return -1.0
    known_count = len(args) - len(unknown_columns)
    return float(size(step.literal.atom.key)) / 16.0**known_count
