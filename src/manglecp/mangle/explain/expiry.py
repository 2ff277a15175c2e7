"""Expiry: the time until which a fact holds if no facts are added.

A derivation ends when its first premise ends, a fact when its last derivation ends. The search goes from a fact
backwards to its premises, as far as time can falsify them. The ends are a least fixpoint, so facts of a cycle do not
keep one another.

Compiled functions find the derivations. For aggregations and for deferred, merged and external predicates,
:class:`Instances` finds them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

from manglecp.mangle.declarations import Predicate
from manglecp.mangle.engine.codegen import CompiledFunction, Generator, NotCompiled, tuple_text
from manglecp.mangle.engine.compiled import CompiledProgram
from manglecp.mangle.engine.model import EvaluatedModel
from manglecp.mangle.engine.plan import Scan, relation_premises, split_rule
from manglecp.mangle.engine.views import View
from manglecp.mangle.explain.derivation_order import DerivationOrder
from manglecp.mangle.explain.fixpoint import settle
from manglecp.mangle.explain.instances import Instance, Instances, Support
from manglecp.mangle.explain.solver import ModelSolver, read_goal
from manglecp.mangle.facts import Fact, Interval
from manglecp.mangle.matching import Row
from manglecp.mangle.program import Rule, closure
from manglecp.mangle.syntax import Apply, Key, Literal, Now, Operator, Premise, Variable, premise_variables
from manglecp.mangle.values import INT_MAX, INT_MIN, Duration, Time, Value

# A fact with the interval ``[S, E]`` satisfies ``@[now]`` until E, ``<-[a, b]`` until E + b, ``[-[a, b]`` until E + a,
# ``<+[a, b]`` until E - a and ``[+[a, b]`` until E - b. Time alone does not falsify a premise with a fixed window, a
# premise that binds the ends of the interval, or a negated premise. All times are in nanoseconds.
FOREVER: Final = INT_MAX


def is_at_now(premise: Literal) -> bool:
    return premise.annotation is not None and any(isinstance(b.value, Now) for b in premise.annotation.bounds)


def depends_on_now(premise: Literal) -> bool:
    return not premise.negated and (is_at_now(premise) or (premise.operator is not None and _moves(premise.operator)))


def _moves(operator: Operator) -> bool:
    """Return whether the window of the operator moves with the evaluation time."""
    return len(operator.bounds) == 1 or not all(isinstance(bound.value, Time) for bound in operator.bounds)


def operator_end(operator: Operator, values: Sequence[Value | Now], end: int) -> int:
    """Return the time until which a fact that ends at ``end`` satisfies the operator; ``values`` are its bounds."""
    if end == FOREVER:
        return FOREVER
    sign = 1 if operator.is_future else -1
    moving = [0 if isinstance(value, Now) else sign * value.ns for value in values if isinstance(value, Duration | Now)]
    fixed = [value.ns if isinstance(value, Time) else value for value in values if isinstance(value, Time | int)]
    if not moving and len(values) > 1:
        return FOREVER
    if not operator.is_box and any(instant <= end for instant in fixed):
        return FOREVER  # the window starts at a fixed instant and only grows, so it keeps the fact
    offsets = [*moving, 0] if len(values) == 1 else moving
    return end - (max(offsets) if operator.is_box else min(offsets))


def premise_end(premise: Literal, row: Mapping[str, Value], end: int) -> int:
    """Return the time until which a fact that ends at ``end`` satisfies a premise that depends on the time now.

    ``row`` has the values of the variables in the premise.
    """
    latest = end if is_at_now(premise) else FOREVER
    if premise.operator is not None:
        bounds = (bound.value for bound in premise.operator.bounds)
        values = [row[bound.name] if isinstance(bound, Variable) else bound for bound in bounds]
        latest = min(latest, operator_end(premise.operator, values, end))
    return latest


class ExpiryRules:
    """The rules and predicates whose facts time can falsify. Made once per program."""

    def __init__(self, compiled: CompiledProgram) -> None:
        program = compiled.program
        self.predicates: Mapping[Key, Predicate] = program.predicates
        self.rules = program.rules_by_head
        readers: dict[Key, set[Key]] = {}
        time_limited: set[Key] = set()
        for rule in program.rules:
            head = rule.head.key
            if program.predicates[head].temporal:
                continue  # the facts of a temporal predicate have intervals of their own
            for premise in _positive_premises(rule):
                if depends_on_now(premise):
                    time_limited.add(head)
                elif not program.predicates[premise.atom.key].temporal:
                    readers.setdefault(premise.atom.key, set()).add(head)
        for predicate in program.predicates.values():
            if predicate.merge is not None:
                readers.setdefault(predicate.merge.predicate, set()).add(predicate.key)
        self.time_limited = closure(time_limited, readers)  # predicates whose facts time can falsify
        self._first_arguments = {key: self._first_args(key) for key in self.time_limited}
        number = itertools.count()
        self.backward: dict[Key, BackwardRules | None] = {}  # by time-limited predicate; None if not compiled
        for key in self.time_limited:
            rules = self.rules.get(key, ())
            if self.predicates[key].merge is not None or not all(map(self._can_compile, rules)):
                self.backward[key] = None
            else:
                compiled_rules = [BackwardRule(rule, self, compiled, next(number)) for rule in rules]
                self.backward[key] = _index_by_first(compiled_rules)

    def is_time_limited(self, rule: Rule) -> bool:
        """Return whether the rule has a premise that depends on the time now or on a time-limited predicate."""
        return any(depends_on_now(p) or p.atom.key in self.time_limited for p in _positive_premises(rule))

    def expiring(self, key: Key) -> frozenset[Value] | None:
        """Return the first arguments of facts that time can falsify; None if the heads have no constants there."""
        return self._first_arguments.get(key, frozenset())

    def _first_args(self, key: Key) -> frozenset[Value] | None:
        firsts = [rule.head.args[:1] for rule in self.rules.get(key, ()) if self.is_time_limited(rule)]
        if self.predicates[key].merge is not None or any(not f or isinstance(f[0], Variable | Apply) for f in firsts):
            return None
        return frozenset(first[0] for first in firsts)  # type: ignore[misc]  # constants

    def _can_compile(self, rule: Rule) -> bool:
        """Return whether the rule has no aggregation and reads only stored relations."""
        keys = [rule.head.key, *(premise.atom.key for premise in relation_premises(rule))]
        predicates = [self.predicates[key] for key in keys]
        return not rule.clause.aggregates and not any(p.deferred or p.external for p in predicates)


def _positive_premises(rule: Rule) -> Iterator[Literal]:
    return (premise for premise in relation_premises(rule) if not premise.negated)


# A backward function is generated like the function of a rule, with another ending. The caller passes the values of
# the head's variables. Each row yields the earliest end of the premises that depend on now, and the facts *below*:
# the facts of time-limited predicates on which the row rests. Of rows with the same facts below, the latest end is
# kept.
Node: TypeAlias = tuple[int, tuple[Any, ...]]
"""A fact without an interval, as predicate number and arguments; with a negative number, a choice between facts."""
Derivations: TypeAlias = dict[tuple[Node, ...], int]  # the end of the other premises, by the facts below


class BackwardRule:
    """One rule, compiled to find the derivations of a fact of its head."""

    def __init__(self, rule: Rule, expiry_rules: ExpiryRules, compiled: CompiledProgram, number: int) -> None:
        self.rule = _name_wildcards(rule, expiry_rules.time_limited)
        self.compiled = compiled
        self.below = expiry_rules.time_limited  # predicates of the facts below
        self.name = f"backward_{number}"
        self.is_time_limited = expiry_rules.is_time_limited(rule)
        self.steps = split_rule(self.rule, compiled.program.predicates)
        self.functions: dict[tuple[str, ...], CompiledFunction | None] = {}
        self.reads = tuple(compiled.ids[premise.atom.key] for premise in relation_premises(rule))
        body_variables = {v.name for premise in rule.premises for v in premise_variables(premise)}
        self.constants: dict[int, Any] = {}  # by position in the head
        self.compared_columns: list[int] = []  # head positions that are computed, or repeat a variable
        position_of: dict[str, int] = {}
        for position, arg in enumerate(rule.head.args):
            if not isinstance(arg, Variable | Apply):
                self.constants[position] = arg
            elif isinstance(arg, Variable) and arg.name in body_variables and arg.name not in position_of:
                position_of[arg.name] = position
            else:
                self.compared_columns.append(position)
        self.preset = tuple(position_of)  # variables whose values are passed in
        self.columns = (*position_of.values(), *self.compared_columns)  # the head positions of the passed values

    def fits(self, args: Sequence[Any]) -> bool:
        """Return whether ``args`` have the constants of the head."""
        return all(args[i] == value for i, value in self.constants.items())

    def function(self, views: Sequence[View]) -> CompiledFunction | None:
        """Return the function for the layers that hold facts; None if the rule derives nothing from these layers.

        The function adds derivations to ``rows``; ``known`` are the arguments at ``columns``.
        """
        layers = tuple([views[i].layers for i in self.reads])
        if layers not in self.functions:
            ids, temporal = self.compiled.ids, self.compiled.temporal
            generator = _BackwardGenerator(
                ids, temporal, views, self.steps, preset=self.preset, name=self.name, backward=self
            )
            self.functions[layers] = generator.compile()
        return self.functions[layers]


@dataclass(eq=False)
class _BackwardGenerator(Generator):
    backward: BackwardRule = field(kw_only=True)

    def _write_ending(self) -> None:
        backward = self.backward
        self._write_lets()
        for position, column in enumerate(backward.compared_columns, len(backward.preset)):
            self.skip_if(f"{self.expression(backward.rule.head.args[column])} != known[{position}]")
        if not backward.is_time_limited:
            self.write(f"rows[()] = {self._forever}")
            self.write("return")
            return
        ends = [text for scan in self.rule_steps.scans() for text in self._ends(scan)]
        first_end = ends[0] if len(ends) == 1 else f"min({', '.join(ends)})" if ends else self._forever
        self.write(f"last = {first_end}")
        self.write(f"below = {tuple_text(list(self._below()))}")
        self.write(f"if last > rows.get(below, {self.global_name(INT_MIN, 'K')}):")
        self.write("    rows[below] = last")

    @property
    def _forever(self) -> str:
        return self.global_name(FOREVER, "K")

    def _ends(self, scan: Scan) -> Iterator[str]:
        """Yield expressions of the instants until which a fact satisfies the premise."""
        if not depends_on_now(scan.literal):
            return
        end = f"e{scan.position}"
        if is_at_now(scan.literal):
            yield end
        operator = scan.literal.operator
        if operator is None:
            return
        bounds = [bound.value for bound in operator.bounds]
        if all(isinstance(bound, Duration | Now) for bound in bounds):  # the shift is the same for all facts
            shift = operator_end(operator, bounds, 0)  # type: ignore[arg-type]
            yield f"({end} if {end} == {self._forever} else {end} + {self.global_name(shift, 'K')})"
        else:
            values = [self.bound[b.name] if isinstance(b, Variable) else self.global_name(b, "K") for b in bounds]
            function, argument = self.global_name(operator_end, "F"), self.global_name(operator, "K")
            yield f"{function}({argument}, {tuple_text(values)}, {end})"

    def _below(self) -> Iterator[str]:
        for scan in self.rule_steps.scans():
            if scan.literal.atom.key in self.backward.below:
                args = [self.expression(arg) for arg in scan.literal.atom.args]
                yield f"({self.ids[scan.literal.atom.key]}, {tuple_text(args)})"


def _name_wildcards(rule: Rule, time_limited: Collection[Key]) -> Rule:
    """Replace ``_`` in premises on time-limited predicates by variables, whose names no program can contain."""
    number = itertools.count()

    def name_premise(premise: Premise) -> Premise:
        if not isinstance(premise, Literal) or premise.negated or premise.atom.key not in time_limited:
            return premise
        args = [
            Variable(f"any{next(number)}") if isinstance(arg, Variable) and arg.anonymous else arg
            for arg in premise.atom.args
        ]
        return replace(premise, atom=replace(premise.atom, args=tuple(args)))

    return replace(rule, premises=tuple(name_premise(premise) for premise in rule.premises))


BackwardRules: TypeAlias = dict[Any, list[BackwardRule]]
"""The rules of one predicate by the first constant of the head; by None, those whose head starts with a variable."""


def _index_by_first(rules: list[BackwardRule]) -> BackwardRules:
    by_first: BackwardRules = {None: [], **{rule.constants.get(0): [] for rule in rules}}
    for rule in rules:
        first = rule.constants.get(0)
        for bucket in by_first.values() if first is None else (by_first[first],):
            bucket.append(rule)
    return by_first


class Expiry:
    """Ends of the facts of one finished model, memoised."""

    def __init__(self, model: EvaluatedModel) -> None:
        self.model = model
        self.evaluation = model.evaluation
        compiled = self.evaluation.compiled
        if compiled.expiry_rules is None:  # two threads may both make the rules, with the same result
            compiled.expiry_rules = ExpiryRules(compiled)
        self.expiry_rules: ExpiryRules = compiled.expiry_rules
        self.rules = self.expiry_rules.backward
        self.ids = compiled.ids
        self.ends: dict[Node, int] = {}  # the end of each node
        self._choices: dict[Node, Derivations] = {}
        self._functions: dict[BackwardRule, CompiledFunction | None] = {}  # for the layers of this evaluation

    def of(self, fact: str | Fact) -> int | None:
        """Return the end in nanoseconds, or None for no end. Raises ValueError if the fact does not hold."""
        fact = read_goal(fact, self.model.program, self.model.now)
        predicate = self.model.program.predicates.get(fact.key)
        if predicate is None or not self._holds(fact):
            raise ValueError(f"{fact.text} does not hold")
        if predicate.temporal:
            end = self._coalesced_interval(fact)[1]
        elif fact.key not in self.expiry_rules.time_limited:
            return None
        else:
            end = self._end((self.ids[fact.key], fact.args))
        return None if end >= FOREVER else end

    def _holds(self, fact: Fact) -> bool:
        predicate = self.model.program.predicates[fact.key]
        if predicate.temporal or predicate.deferred or predicate.external:
            return self._solver.contains(fact)
        return fact.args in self.evaluation.views[self.ids[fact.key]]

    def _end(self, goal: Node) -> int:
        """Return the latest end of a node; compute the ends of the nodes on which it rests, to the least fixpoint."""
        ends = self.ends
        derivations_of: dict[Node, Derivations] = {}
        readers: dict[Node, dict[Node, None]] = {}
        stack = [goal]
        while stack:
            node = stack.pop()
            if node in ends or node in derivations_of:
                continue
            derivations_of[node] = _promising(self._derivations(node))
            for below in derivations_of[node]:
                for other in below:
                    readers.setdefault(other, {})[node] = None
                    stack.append(other)

        def improve(node: Node) -> bool:
            latest = ends.get(node, INT_MIN)
            for below, end in derivations_of[node].items():
                for other in below:
                    end = min(end, ends.get(other, INT_MIN))
                latest = max(latest, end)
            if latest == ends.get(node, INT_MIN):
                return False
            ends[node] = latest
            return True

        settle(reversed(derivations_of), readers, improve)
        return ends[goal]

    def _derivations(self, node: Node) -> Derivations:
        number, args = node
        if number < 0:
            return self._choices[node]
        if args in self.evaluation.base.given[number] or args in self.evaluation.added_given.get(number, ()):
            return {(): FOREVER}
        key = self.evaluation.compiled.keys[number]
        rules = self.rules[key]
        if rules is not None:
            try:
                return self._compiled_derivations(rules, args)
            except NotCompiled:
                self.rules[key] = None
        derivations: Derivations = {}
        for instance in self._instances_of(Fact(key[0], args)):
            below, end = self._derivation_of(instance)
            derivations[below] = max(end, derivations.get(below, INT_MIN))
        return derivations

    def _compiled_derivations(self, rules: BackwardRules, args: tuple[Any, ...]) -> Derivations:
        views, now = self.evaluation.views, self.evaluation.now
        derivations: Derivations = {}
        for rule in rules.get(args[0], rules[None]) if args else rules[None]:
            if rule.constants and not rule.fits(args):
                continue
            if rule not in self._functions:
                self._functions[rule] = rule.function(views)
            function = self._functions[rule]
            if function is not None:
                function.run(views, now, None, derivations, tuple([args[i] for i in rule.columns]))
        return derivations

    @cached_property
    def _solver(self) -> ModelSolver:
        return ModelSolver(self.model)

    @cached_property
    def _instances(self) -> Instances:
        return Instances(self._solver, every_row=True)

    @cached_property
    def _order(self) -> DerivationOrder:
        return DerivationOrder(self._solver, self._instances.of)

    @cached_property
    def _merging(self) -> set[Key]:
        """The predicates of components with merges, whose facts may have no instance in the finished model."""
        predicates = self.model.program.predicates
        components = (component.predicates for component in self.model.program.components)
        return {key for keys in components if any(predicates[key].merge for key in keys) for key in keys}

    def _instances_of(self, fact: Fact) -> Iterable[Instance]:
        logged = self._order.logged(fact) if fact.key in self._merging else None
        return self._instances.of(fact)[0] if logged is None else (logged,)

    def _derivation_of(self, instance: Instance) -> tuple[tuple[Node, ...], int]:
        """Return the facts below an instance, and the end of its other premises.

        A premise on a time-limited predicate becomes a choice between the facts that satisfy it.
        """
        below: dict[Node, None] = {}
        derivation_end = FOREVER
        for ground in instance.grounds:
            if not isinstance(ground, Support):
                continue
            key = ground.literal.atom.key
            if depends_on_now(ground.literal):
                ends = (self._premise_end(ground.literal, ground.row, option.facts[0]) for option in ground.options)
                derivation_end = min(derivation_end, max(ends))
            elif key in self.expiry_rules.time_limited:
                node = (-1 - len(self._choices), ())
                self._choices[node] = {((self.ids[key], option.facts[0].args),): FOREVER for option in ground.options}
                below[node] = None
        return tuple(below), derivation_end

    def _premise_end(self, premise: Literal, row: Row, fact: Fact) -> int:
        """Return the time until which a fact satisfies a premise that depends on now; ``row`` is the row before it."""
        pairs = zip(premise.atom.args, fact.args, strict=True)
        values = {arg.name: value for arg, value in pairs if isinstance(arg, Variable)}
        return premise_end(premise, {**row, **values}, self._coalesced_interval(fact)[1])

    def _coalesced_interval(self, fact: Fact) -> Interval:
        """Return the coalesced interval that contains the interval of the fact."""
        assert fact.interval is not None
        start, end = fact.interval
        return next((s, e) for s, e in self._solver.intervals(fact.key, fact.args) if s <= start and end <= e)


def _promising(derivations: Derivations) -> Derivations:
    """Return the derivation without facts below, if any, and only those others that could end later."""
    independent_end = derivations.get(())
    if independent_end is None:
        return derivations
    return {below: end for below, end in derivations.items() if not below or end > independent_end}
