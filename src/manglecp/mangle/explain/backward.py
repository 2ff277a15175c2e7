"""Rules run backwards from one fact by compiled functions, to see how long each way of deriving it lasts.

The functions are those of the engine with another ending: the head's variables are given, and instead of adding a fact,
a row says until when its premises about now hold and which plain facts below it have to be asked in turn. Of rows that
rest on the same facts only the one that lasts longest is kept, so a premise that thirty facts satisfy costs one loop.

An aggregate rests on all rows of its group. Its rows are collected apart, the group is computed again to see whether
the fact is its result, and if so every row has to last.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from manglecp.mangle.engine.aggregate import Aggregation
from manglecp.mangle.engine.code import tuple_text
from manglecp.mangle.engine.codegen import Compiled, Generator
from manglecp.mangle.engine.compiled import CompiledProgram
from manglecp.mangle.engine.plan import Absent, RuleSteps, Scan, take_apart
from manglecp.mangle.engine.views import View
from manglecp.mangle.explain.lasting import FOREVER, Lasting, asks_for_now, fixed_shift, looks_at_now, operator_end
from manglecp.mangle.packages import Key
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Apply, Literal, Premise, Variable, premise_variables
from manglecp.mangle.values import INT_MIN

Node: TypeAlias = tuple[int, tuple[Any, ...]]
"""A plain fact: the number of its predicate, and its arguments."""
Ways: TypeAlias = dict[tuple[Node, ...], int]
"""What a fact can rest on, and until when that lasts as far as it can be told without asking the facts below."""


class BackwardRule:
    """One rule, taken apart for questions about facts of its head."""

    def __init__(self, rule: Rule, lasting: Lasting, compiled: CompiledProgram, number: int) -> None:
        self.rule = _named(rule, lasting)
        self.compiled = compiled
        self.lasting = lasting
        self.name = f"backward_{number}"
        self.limited = lasting.limits(rule)
        self.steps: RuleSteps = take_apart(self.rule, compiled.program.predicates)
        self.functions: dict[tuple[str, ...], Compiled | None] = {}
        self.reads = tuple(
            compiled.ids[step.literal.atom.key] for step in self.steps.steps if isinstance(step, Scan | Absent)
        )
        in_body = {v.name for premise in rule.premises for v in premise_variables(premise)}
        grouped = _group_keys(rule)
        known = in_body if grouped is None else set(grouped)
        args = rule.head.args
        self.constants = [(i, arg) for i, arg in enumerate(args) if not isinstance(arg, Variable | Apply)]
        self.first: Any = None if not args or isinstance(args[0], Variable | Apply) else args[0]
        first: dict[str, int] = {}
        self.repeated: list[tuple[int, int]] = []
        for i, arg in enumerate(args):
            if isinstance(arg, Variable) and arg.name in known:
                if arg.name in first:
                    self.repeated.append((first[arg.name], i))
                first.setdefault(arg.name, i)
        self.picky = bool(self.repeated or [i for i, _ in self.constants if i])
        self.preset = tuple(first)
        computed = [i for i, arg in enumerate(args) if isinstance(arg, Apply | Variable) and i not in first.values()]
        self.compared = tuple(i for i in computed if not any(i == again for _, again in self.repeated))
        self.columns = (*first.values(), *self.compared)
        self.aggregation = None if grouped is None else Aggregation(rule, temporal=False)
        self.row_names = tuple(sorted({v.name for p in rule.premises for v in premise_variables(p) if not v.anonymous}))

    def fits(self, args: Sequence[Any]) -> bool:
        """Can the head have these arguments, as far as it says? The first one was looked up."""
        return all(args[i] == value for i, value in self.constants) and all(
            args[i] == args[j] for i, j in self.repeated
        )

    def function(self, views: Sequence[View]) -> Compiled | None:
        """The function for the layers that hold facts; None if the rule derives nothing from them.

        It adds the ways in which the rule derives a fact to ``rows``; for an aggregate, the ways of each of its rows.
        The arguments at ``columns`` are what is known.
        """
        layers = tuple([views[i].layers for i in self.reads])
        if layers not in self.functions:
            ids = self.compiled.ids
            self.functions[layers] = _Backward(
                self,
                ids,
                lambda key: views[ids[key]].layers,
                lambda key: len(views[ids[key]]),
                lambda key: self.compiled.temporal[ids[key]],
                preset=self.preset,
                name=self.name,
            ).compile()
        return self.functions[layers]

    def derives(self, args: tuple[Any, ...], rows: dict[tuple[Any, ...], Ways], now: int) -> bool:
        """Is the fact what the rows of its group amount to?"""
        assert self.aggregation is not None
        width = len(self.row_names)
        return bool(rows) and args in self.aggregation.facts([row[:width] for row in rows], now)[0]


class _Backward(Generator):
    """Writes the function of one rule."""

    def __init__(self, backward: BackwardRule, *args: Any, **options: Any) -> None:
        super().__init__(backward.steps, *args, **options)
        self.backward = backward

    def _end(self) -> None:
        own = self.backward
        if own.aggregation is None:
            self._lets()
            for position, column in enumerate(own.compared, len(own.preset)):
                self.unless(f"{self.expression(own.rule.head.args[column])} != known[{position}]")
        limits = [text for scan in self.apart.scans() for text in self._limits(scan)]
        limit = limits[0] if len(limits) == 1 else f"min({', '.join(limits)})" if limits else self._forever
        below = tuple_text(list(self._below()))
        if own.aggregation is not None:
            self.write(f"ways = rows.setdefault({tuple_text(self._row_parts())}, {{}})")
            ways = "ways"
        else:
            ways = "rows"
        if not own.limited and own.aggregation is None:
            self.write(f"rows[()] = {self._forever}")
            self.write("return")
            return
        self.write(f"last = {limit}")
        self.write(f"below = {below}")
        self.write(f"if last > {ways}.get(below, {self.given(INT_MIN, 'K')}):")
        self.write(f"    {ways}[below] = last")

    @property
    def _forever(self) -> str:
        return self.given(FOREVER, "K")

    def _row_parts(self) -> list[str]:
        """What makes a row of an aggregate one of its own."""
        parts = [self.bound[name] for name in self.backward.row_names]
        if self._counts_facts:
            for scan in self.apart.scans():
                parts += [self.bound[arg.name] for arg in scan.literal.atom.args if isinstance(arg, Variable)]
                parts += [f"s{scan.position}", f"e{scan.position}"] if scan.temporal else []
        return parts

    def _limits(self, scan: Scan) -> Iterator[str]:
        """Until when the fact that is visited satisfies its premise."""
        if not looks_at_now(scan.literal):
            return
        end = f"e{scan.position}"
        if asks_for_now(scan.literal):
            yield end
        operator = scan.literal.operator
        if operator is None:
            return
        shift = fixed_shift(operator)
        if shift is not None:
            yield f"({end} if {end} == {self._forever} else {end} + {self.given(shift, 'K')})"
        else:
            values = [
                self.bound[b.value.name] if isinstance(b.value, Variable) else self.given(b.value, "K")
                for b in operator.bounds
            ]
            yield f"{self.given(operator_end, 'F')}({self.given(operator, 'K')}, {tuple_text(values)}, {end})"

    def _below(self) -> Iterator[str]:
        """The plain facts that have to be asked."""
        for scan in self.apart.scans():
            if scan.literal.atom.key in self.backward.lasting.limited:
                args = [self.expression(arg) for arg in scan.literal.atom.args]
                yield f"({self.ids[scan.literal.atom.key]}, {tuple_text(args)})"


class BackwardRules:
    """The rules of one predicate, by the constant that their heads begin with."""

    def __init__(self, rules: list[BackwardRule]) -> None:
        self._picky = any(rule.picky for rule in rules)
        self._open = [rule for rule in rules if rule.first is None]
        constants = {rule.first for rule in rules} - {None}
        self._by_first = {first: [rule for rule in rules if rule.first in (None, first)] for first in constants}

    def fitting(self, args: Sequence[Any]) -> list[BackwardRule]:
        """Those whose heads can have these arguments."""
        rules = self._by_first.get(args[0], self._open) if args else self._open
        return [rule for rule in rules if rule.fits(args)] if self._picky else rules


def backward_rules(compiled: CompiledProgram, lasting: Lasting) -> dict[Key, BackwardRules | None]:
    """The rules of each predicate that time can end; None where they cannot be run backwards by functions."""
    found: dict[Key, BackwardRules | None] = {}
    number = itertools.count()
    for key in lasting.limited:
        predicate, rules = lasting.predicates[key], lasting.rules.get(key, ())
        if predicate.merge is not None or predicate.deferred or not all(_can_run(rule, lasting) for rule in rules):
            found[key] = None
        else:
            found[key] = BackwardRules([BackwardRule(rule, lasting, compiled, next(number)) for rule in rules])
    return found


def _can_run(rule: Rule, lasting: Lasting) -> bool:
    for premise in rule.premises:
        if isinstance(premise, Literal) and not premise.atom.predicate.startswith(":"):
            predicate = lasting.predicates[premise.atom.key]
            if predicate.deferred or predicate.external:
                return False
    return not rule.clause.aggregates or _group_keys(rule) is not None


def _group_keys(rule: Rule) -> tuple[str, ...] | None:
    """What an aggregate groups by, if a fact tells its group."""
    clause = rule.clause
    if not clause.aggregates or len(clause.transforms) > 1 or clause.transforms[0].do is None:
        return None
    keys = tuple(arg.name for arg in clause.transforms[0].do.args if isinstance(arg, Variable))
    in_head = {arg.name for arg in clause.head.args if isinstance(arg, Variable)}
    computed = any(isinstance(arg, Apply) for arg in clause.head.args)
    return keys if keys and not computed and in_head.issuperset(keys) else None


def _named(rule: Rule, lasting: Lasting) -> Rule:
    """The rule with names for the ``_`` of premises whose facts are asked or counted; no program has such names."""
    counts_facts = rule.clause.aggregates and len(rule.premises) == 1
    number = 0

    def name(premise: Premise) -> Premise:
        nonlocal number
        if not isinstance(premise, Literal) or premise.negated:
            return premise
        if premise.atom.key not in lasting.limited and not counts_facts:
            return premise
        args = []
        for arg in premise.atom.args:
            if isinstance(arg, Variable) and arg.anonymous:
                number += 1
                arg = Variable(f"any{number}")
            args.append(arg)
        return replace(premise, atom=replace(premise.atom, args=tuple(args)))

    return Rule(rule.clause, tuple(name(premise) for premise in rule.premises))
