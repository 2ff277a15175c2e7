"""Rule coverage: which rules derive facts; and given facts that no rule uses."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from manglecp.mangle.errors import EvalError, ValueFault
from manglecp.mangle.explain.instances import Instances
from manglecp.mangle.explain.shape import RuleRef, Shape
from manglecp.mangle.explain.solver import DeadlineExceeded, ModelSolver
from manglecp.mangle.facts import Args, Fact
from manglecp.mangle.matching import Row, evaluate_term
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Apply, Equality, Key, Literal as Atomic, Variable

Status: TypeAlias = Literal["fired", "partially_alive", "dead", "inapplicable"]
Reason: TypeAlias = Literal["no rule mentions it", "nothing joined"]


@dataclass(frozen=True, slots=True)
class RuleStatus:
    rule: RuleRef
    status: Status
    fired: int  # distinct derived facts; a temporal fact counts once per derived interval
    missing: tuple[str, ...]
    """Predicates of positive premises without a matching fact. If the rule did not fire and no predicate is missing,
    each premise has facts, but no row satisfies all of them together."""

    def as_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule.as_json(),
            "status": self.status,
            "fired": self.fired,
            "missing_predicates": list(self.missing),
        }


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of each rule, in the order of the program."""

    rules: tuple[RuleStatus, ...]

    def count(self, *statuses: Status) -> int:
        return sum(1 for rule in self.rules if rule.status in statuses)

    def as_json(self) -> dict[str, Any]:
        return {
            "total_rules": len(self.rules),
            "rules_fired": self.count("fired"),
            "rules_dormant": self.count("partially_alive", "dead"),
            "rules_inapplicable": self.count("inapplicable"),
            "rules": [rule.as_json() for rule in self.rules],
        }

    def text(self) -> str:
        return "".join(f"{_describe(rule)}\n    {rule.rule.text}\n" for rule in self.rules)


@dataclass(frozen=True, slots=True)
class UnusedFact:
    """A given fact that occurs in no rule instance."""

    fact: Fact
    reason: Reason


def _describe(rule: RuleStatus) -> str:
    prefix = f"{rule.rule.place or rule.rule.head}: "
    status = rule.status.replace("_", " ")
    if rule.status == "fired":
        return f"{prefix}fired, {rule.fired} {'fact' if rule.fired == 1 else 'facts'}"
    if rule.missing:
        return f"{prefix}{status}, no facts for {', '.join(rule.missing)}"
    return f"{prefix}{status}" + (", nothing joins" if rule.status == "partially_alive" else "")


class RuleUsage:
    """Finds the rules of a finished model that have instances, and the facts that the instances use."""

    def __init__(self, solver: ModelSolver) -> None:
        self.solver = solver
        self.instances = Instances(solver, every_row=True)
        self._calls: dict[Key, dict[Args, None]] | None = None

    def coverage(self, selector: str | None = None) -> Coverage:
        """Return the coverage of all rules.

        ``selector`` is a predicate; a rule that requires an absent fact of ``selector`` is inapplicable.
        """
        shapes = {id(shape.rule): shape for shape in self._shapes()}
        return Coverage(tuple(self._rule_status(shapes[id(rule)], selector) for rule in self.solver.program.rules))

    def count_fired(self, rules: Iterable[Rule]) -> int:
        """Return how many of these rules derive at least one fact."""
        shapes = {id(shape.rule): shape for shape in self._shapes()}
        return sum(self._count_facts(shapes[id(rule)]) > 0 for rule in rules)

    def unused(self, facts: Iterable[Fact]) -> list[UnusedFact]:
        """Return the facts of ``facts`` that occur in no rule instance, in the order of their text."""
        program = self.solver.program
        mentioned = {p.atom.key for rule in program.rules for p in rule.clause.premises if isinstance(p, Atomic)}
        # Merges have no instances, so whether they use a fact is unknown.
        merging = {p.merge.predicate for p in program.predicates.values() if p.merge is not None}
        unused = {fact for fact in facts if fact.key not in merging}
        for shape in self._shapes():
            keys = {fact.key for fact in unused}
            if any(isinstance(p, Atomic) and p.atom.key in keys for p in shape.rule.premises):
                for start in self._starts(shape):
                    for rows in self.instances.derivations(shape, start).values():
                        for derived in rows:
                            unused.difference_update(self.instances.instance(shape, derived, start).facts())
        return [
            UnusedFact(fact, "nothing joined" if fact.key in mentioned else "no rule mentions it")
            for fact in sorted(unused, key=lambda fact: fact.text)
        ]

    def _shapes(self) -> Iterator[Shape]:
        return itertools.chain.from_iterable(self.instances.shapes.values())

    def _starts(self, shape: Shape) -> Iterator[Row]:
        """Yield the rows that the body starts with: an empty row, or one row per call of a deferred predicate."""
        if not shape.predicate.deferred:
            yield {}
            return
        for inputs in self._deferred_calls().get(shape.rule.head.key, ()):
            by_position = dict(zip(shape.inputs, inputs, strict=True))
            fixed = {i: v for i, v in by_position.items() if not isinstance(shape.rule.head.args[i], Apply)}
            start = shape.fix(fixed, fixed.values())
            if start is not None:
                yield start

    def _deferred_calls(self) -> dict[Key, dict[Args, None]]:
        if self._calls is None:
            self._calls = {}
            for shape in self._shapes():
                if not shape.predicate.deferred:
                    list(self.solver.rows(shape.rule, {}))  # for the effect: ``answers`` gets the calls of the rule
            for key, inputs in self.solver.answers:
                self._calls.setdefault(key, {})[inputs] = None
        return self._calls

    def _count_facts(self, shape: Shape) -> int:
        """Count the facts that a rule derives. The count is cached in the base if no request can change it."""
        cache = self.solver.model.head_counts(shape.rule)
        if cache is not None and id(shape.rule) in cache:
            return cache[id(shape.rule)]
        count = len({fact for start in self._starts(shape) for fact in self.instances.derivations(shape, start)})
        if cache is not None:
            cache[id(shape.rule)] = count
        return count

    def _rule_status(self, shape: Shape, selector: str | None) -> RuleStatus:
        fired = self._count_facts(shape)
        if fired:
            return RuleStatus(shape.ref, "fired", fired, ())
        constants = self._constants(shape)
        positive_literals = (p for p in shape.rule.clause.premises if isinstance(p, Atomic) and not p.negated)
        positive = [p for p in positive_literals if not p.atom.predicate.startswith(":")]
        missing = [p for p in positive if not self._has_match(p, {})]
        names = tuple(dict.fromkeys(p.atom.predicate for p in missing))
        if any(self._needs_other_selector(p, selector, constants) for p in positive):
            return RuleStatus(shape.ref, "inapplicable", 0, names)
        dead = bool(positive) and len(missing) == len(positive)
        return RuleStatus(shape.ref, "dead" if dead else "partially_alive", 0, names)

    def _has_match(self, premise: Atomic, row: Row) -> bool:
        key = premise.atom.key
        if self.solver.predicate(key).deferred:
            return key in self.solver.rules or self.solver.has_facts(key)
        try:
            return any(True for _ in self.solver.solutions(premise, row))
        except DeadlineExceeded:
            raise
        except (ValueFault, EvalError):
            return self.solver.has_facts(key)  # the premise cannot be solved without values of other premises

    def _needs_other_selector(self, premise: Atomic, selector: str | None, constants: Row) -> bool:
        if premise.atom.predicate != selector or not self.solver.has_facts(premise.atom.key):
            return False
        names = [arg.name for arg in premise.atom.args if isinstance(arg, Variable)]
        known = {name: constants[name] for name in names if name in constants}
        selects = bool(known) or any(not isinstance(arg, Variable) for arg in premise.atom.args)
        return selects and not self._has_match(premise, known)

    def _constants(self, shape: Shape) -> Row:
        """Return a row of the variables that equalities of the rule bind to constants."""
        constants: Row = {}
        for premise in shape.rule.premises:
            if isinstance(premise, Equality) and not premise.negated:
                for side, other in premise.directions:
                    if isinstance(side, Variable) and not isinstance(other, Variable):
                        with suppress(ValueFault):  # raised for a term with variables
                            constants[side.name] = evaluate_term(other, {}, self.solver.now)
        return constants
