"""The interpreter of rules: for merged, deferred and external predicates, explanations, and to locate errors.

A temporal relation keeps the given and the derived intervals. Later components and the output read coalesced intervals.
Inside its own recursive component a predicate is read uncoalesced, so that the order of derivations does not matter.

Deferred predicates are called on demand: the solution of a body is a generator that yields the calls that it needs, and
:meth:`NaiveEvaluation._drive` runs these generators with an explicit stack.

A component with a merge alternates two steps until the merged relations do not change: derive the least model of the
other predicates over the current merged relations, then merge the new values into the merged relations.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cached_property
from typing import Final, TypeAlias, TypeVar

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Span
from manglecp.mangle import printer
from manglecp.mangle.builtins import PREDICATES
from manglecp.mangle.declarations import FactAcceptor, Merge, Predicate
from manglecp.mangle.errors import EvalError, LimitError, ValueFault
from manglecp.mangle.externals import ExternalCalls, Externals, call_external, check_names
from manglecp.mangle.facts import Args, Interval, TimedArgs, is_nonempty_interval
from manglecp.mangle.matching import Matcher, Row, evaluate_term as value_of, head_interval, unify
from manglecp.mangle.model import Limits, Relation, Statistics, check_intervals
from manglecp.mangle.program import Program, Rule, built_columns, count_parts
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Apply, Atom, Clause, Equality, Key, Literal, Premise, Term, Variable
from manglecp.mangle.transforms import transform_rows
from manglecp.mangle.values import order_key

Call: TypeAlias = tuple[Key, Args]  # a deferred predicate and its inputs
RowGenerator: TypeAlias = Generator[Call, list[Args], list[Row]]  # yields calls, receives their facts, returns rows
_Result = TypeVar("_Result")
_BATCH_SIZE: Final = 1_000  # rows that are joined with a premise in one batch


class NaiveEvaluation:
    """Applies all rules of a component to all facts until nothing is new. Keeps its relations in memory."""

    def __init__(self, program: Program, now: int, limits: Limits, externals: Externals | None = None) -> None:
        self.program = program
        self.externals = externals or {}
        check_names(self.externals, program.predicates)
        self.external_calls: ExternalCalls = {}
        self.started = time.monotonic()
        self.now = now
        self.limits = limits
        self.statistics = Statistics(strata=len(program.components))
        self.relations: dict[Key, Relation] = {}
        self.rules = program.rules_by_head
        self.answers: dict[Call, list[Args]] = {}  # facts of deferred predicates, memoised until relations change
        self.derived_count = 0  # derived facts of evaluated components
        self.merge_steps = 0
        self.part_count = 0  # parts of built values of evaluated components
        self.new_part_count = 0  # parts of built values of the current component
        self.facts_limit = self.facts_left = limits.derived_facts  # facts that may be derived: in total, and still

    @cached_property
    def built(self) -> dict[Key, tuple[int, ...]]:
        return built_columns(self.program.rules)

    @cached_property
    def acceptance(self) -> FactAcceptor:
        return FactAcceptor(self.program.predicates)

    def relation(self, key: Key) -> Relation:
        return self.relations.setdefault(key, Relation())

    def predicate(self, key: Key) -> Predicate:
        return self.program.predicates[key]

    def holds(self, atom: Atom, row: Row) -> bool:
        try:
            return bool(self._drive(self._solve(Literal(atom), [row])))
        except ValueFault as fault:
            raise EvalError([Diagnostic("eval", str(fault), atom.span)]) from None

    def _finish(self, key: Key) -> None:
        """Coalesce a finished relation and check the number of intervals."""
        self.relation(key).finish()
        self._check_intervals([key])

    def evaluate_component(self, component: Component) -> None:
        """Evaluate mutually dependent predicates to the fixpoint."""
        keys = [key for key in component.predicates if not self.predicate(key).deferred]
        rules = [rule for key in keys for rule in self.rules.get(key, [])]
        if any(self.predicate(key).merge is not None for key in keys):
            self._evaluate_merging(keys, rules)
        else:
            self.derived_count += self._fixpoint(keys, rules, self.limits.derived_facts)
        for key in keys:
            self._finish(key)
        self.part_count += self._count_parts(keys)
        self.new_part_count = 0
        self._check_parts()

    def _count_parts(self, keys: Iterable[Key]) -> int:
        return sum(
            count_parts((args,), self.built[key]) * len(intervals)
            for key in keys
            if key in self.built
            for args, intervals in self.relation(key).facts.items()
        )

    def _check_parts(self, extra_parts: int = 0) -> None:
        """Raise LimitError if ``extra_parts`` more parts exceed the limit."""
        limit = self.limits.parts
        if self.part_count + self.new_part_count + extra_parts > limit:
            raise LimitError(limit, limit + 1, "parts of values")

    def _fixpoint(self, keys: list[Key], rules: list[Rule], limit: int) -> int:
        """Apply the aggregating rules once, then the other rules to a fixpoint; return the number of new facts."""
        offset = self._size(keys) - self.derived_count  # size - offset counts the derived facts of all components
        self.facts_limit = limit
        self.facts_left = limit - self.derived_count
        self.answers.clear()
        for rule in [r for r in rules if r.clause.aggregates]:
            self._add(rule, self._apply(rule))
        self._check_derived(self._size(keys) - offset, limit)
        plain_rules = [r for r in rules if not r.clause.aggregates]
        changed = bool(plain_rules)
        while changed:
            self.statistics.rounds += 1
            self.answers.clear()
            self.facts_left = limit - (self._size(keys) - offset)
            derived_by_rule = [(rule, self._apply(rule)) for rule in plain_rules]
            changed = True in [self._add(rule, facts) for rule, facts in derived_by_rule]  # a list: add all
            self._check_derived(self._size(keys) - offset, limit)
            self._check_intervals(keys)  # ends a recursion that shifts intervals forever
        return self._size(keys) - offset - self.derived_count

    def _size(self, keys: Iterable[Key]) -> int:
        return sum(len(self.relation(key)) for key in keys)

    def _add(self, rule: Rule, facts: list[TimedArgs]) -> bool:
        relation = self.relation(rule.head.key)
        columns = self.built.get(rule.head.key, ())
        new = [args for args, interval in facts if relation.add(args, interval)]
        self.new_part_count += count_parts(new, columns)
        self._check_parts()
        return bool(new)

    def _check_derived(self, derived: int, limit: int) -> None:
        if derived > limit:
            raise LimitError(limit, derived, "derived facts")

    def _check_intervals(self, keys: Iterable[Key]) -> None:
        for key in keys:
            if self.predicate(key).temporal:
                check_intervals(key[0], self.relation(key).facts, self.limits.intervals)

    def _evaluate_merging(self, keys: list[Key], rules: list[Rule]) -> None:
        merged = [key for key in keys if self.predicate(key).merge is not None]
        ordinary = [key for key in keys if key not in merged]
        given = {key: {args: set(intervals) for args, intervals in self.relation(key).facts.items()} for key in keys}
        for key in merged:
            self._merge_into(key, list(given[key]), replace=True)
        changed = True
        while changed:
            self.statistics.rounds += 1
            self.new_part_count = 0  # the facts of the last round are discarded
            for key in ordinary:  # starts again from the given facts
                self.relation(key).facts = {args: set(intervals) for args, intervals in given[key].items()}
            # An interim state may have more facts than the result, so this limit only ends an infinite derivation.
            interim_limit = max(self.limits.derived_facts, self.limits.merge_steps)
            self._fixpoint(ordinary, [rule for rule in rules if rule.head.key in ordinary], interim_limit)
            self.answers.clear()
            self.facts_left = interim_limit
            derived = {key: [args for r in rules if r.head.key == key for args, _ in self._apply(r)] for key in merged}
            changed = True in [self._merge_into(key, new) for key, new in derived.items()]  # a list: merge all
        for key in keys:
            for args, intervals in self.relation(key).facts.items():
                self.derived_count += len(intervals - given[key].get(args, set()))
        self._check_derived(self.derived_count, self.limits.derived_facts)

    def _merge_into(self, key: Key, new_facts: list[Args], *, replace: bool = False) -> bool:
        """Merge facts, in the order of values, into a relation; return whether the relation changed.

        With ``replace``, the relation starts empty.
        """
        relation = self.relation(key)
        merge = self.predicate(key).merge
        assert merge is not None
        key_columns = self.predicate(key).fundeps[0].source
        groups: dict[Args, list[Args]] = {}
        for args in () if replace else relation.facts:
            groups.setdefault(tuple(args[column] for column in key_columns), []).append(args)
        for args in sorted(new_facts, key=lambda args: [order_key(value) for value in args]):
            group_key = tuple(args[column] for column in key_columns)
            groups[group_key] = self._merged(groups.get(group_key, []), args, merge)
        facts: dict[Args, set[Interval | None]] = {args: {None} for group in groups.values() for args in group}
        changed = facts.keys() != relation.facts.keys()
        relation.facts = facts
        return changed

    def _merged(self, group: list[Args], args: Args, merge: Merge) -> list[Args]:
        """Return ``group``, the facts with the same key, after ``args`` is merged into them.

        A value that the merge predicate cannot merge with ``args`` stays besides it.
        """
        while args not in group:
            for old in group:
                merge_facts = self._drive(self._merge_results(merge.predicate, (old[merge.column], args[merge.column])))
                values = [result_args[2] for result_args in merge_facts]
                if not values:
                    continue
                merged_value = next((v for v in values if v != old[merge.column]), old[merge.column])
                if merged_value == old[merge.column]:
                    return group
                self.merge_steps += 1
                if self.merge_steps > self.limits.merge_steps:
                    raise LimitError(self.limits.merge_steps, self.merge_steps, "merge steps")
                group = [other for other in group if other != old]
                args = (*args[: merge.column], merged_value, *args[merge.column + 1 :])
                break
            else:
                return [*group, args]
        return group

    def _merge_results(self, key: Key, inputs: Args) -> Generator[Call, list[Args], list[Args]]:
        """Return the facts of a merge predicate whose first two arguments are ``inputs``."""
        if self.predicate(key).deferred:
            answers = yield (key, tuple(inputs[i] for i in self.predicate(key).inputs() if i < 2))
        else:
            answers = [args for args, _ in self.relation(key)]
        return [args for args in answers if args[:2] == inputs]

    def _apply(self, rule: Rule) -> list[TimedArgs]:
        """Return all facts that the rule derives.

        Each batch of rows is converted to facts before the next, so that limits apply before a join fills the memory.
        """
        self.checkpoint()
        clause = rule.clause
        temporal = self.predicate(clause.head.key).temporal
        stored = self.relation(clause.head.key).facts
        columns = self.built.get(clause.head.key, ())
        derived: dict[TimedArgs, None] = {}
        new_count = new_parts = 0

        def emit(rows: list[Row]) -> None:
            nonlocal new_count, new_parts
            for row in rows:
                args = self.head_args(clause, row)
                interval = self.head_interval(clause, row) if temporal else None
                holds_at_no_instant = interval is not None and not is_nonempty_interval(*interval)
                if not holds_at_no_instant and (args, interval) not in derived:
                    derived[args, interval] = None
                    if interval not in stored.get(args, ()):
                        new_count += 1
                        new_parts += count_parts((args,), columns)
                    if new_count > self.facts_left:
                        raise LimitError(self.facts_limit, self.facts_limit + 1, "derived facts", clause.span)
                    self._check_parts(new_parts)

        self._drive(self._solve_body(rule, [{}], emit))
        return list(derived)

    def head_interval(self, clause: Clause, row: Row) -> Interval:
        assert clause.annotation is not None  # checked at load
        try:
            return head_interval(clause.annotation, row, self.now)
        except ValueFault as fault:
            raise self.error_at(str(fault), clause.annotation.span, clause) from None

    def checkpoint(self) -> None:
        """Raise LimitError if the time is up."""
        seconds = time.monotonic() - self.started
        if self.limits.seconds is not None and seconds > self.limits.seconds:
            raise LimitError(self.limits.seconds, round(seconds, 3), "seconds")

    def head_args(self, clause: Clause, row: Row) -> Args:
        """Return the arguments of the fact that a row derives. Raises EvalError, located at the head of the clause."""
        try:
            return tuple(value_of(arg, row, self.now) for arg in clause.head.args)
        except ValueFault as fault:
            raise self.error_at(str(fault), clause.head.span, clause) from None

    def error_at(self, message: str, span: Span | None, clause: Clause) -> EvalError:
        return EvalError([Diagnostic("eval", message, span or clause.span, printer.clause(clause))])

    def _solve_body(self, rule: Rule, rows: list[Row], emit: Callable[[list[Row]], None]) -> RowGenerator:
        """Call ``emit`` with extensions of ``rows`` that satisfy the body, in batches unless the rule aggregates."""
        clause = rule.clause
        batched = not clause.aggregates
        all_rows: list[Row] = []
        pending = [(0, rows)]
        while pending:
            self.checkpoint()
            position, rows = pending.pop()
            if position == len(rule.premises):
                if batched:
                    emit(self._transformed(clause, rows))
                else:
                    all_rows += rows
                    if len(all_rows) > self.limits.rows and not rule.counts_facts:
                        all_rows = distinct_rows(all_rows)
                    if len(all_rows) > self.limits.rows:
                        raise LimitError(self.limits.rows, self.limits.rows + 1, "rows of one rule", clause.span)
                continue
            premise = rule.premises[position]
            try:
                rows = yield from self._solve(premise, rows)
            except ValueFault as fault:
                raise self.error_at(str(fault), premise.span, clause) from None
            if not rule.counts_facts:
                rows = distinct_rows(rows)
            pending += [(position + 1, rows[start : start + _BATCH_SIZE]) for start in range(0, len(rows), _BATCH_SIZE)]
        if not batched:
            emit(self._transformed(clause, all_rows if rule.counts_facts else distinct_rows(all_rows)))
        return []  # ``emit`` has received all rows

    def _transformed(self, clause: Clause, rows: list[Row]) -> list[Row]:
        for transform in clause.transforms:
            try:
                rows = transform_rows(transform, rows, self.now)
            except ValueFault as fault:
                raise self.error_at(str(fault), transform.span, clause) from None
        return rows

    def _solve(self, premise: Premise, rows: list[Row]) -> RowGenerator:
        """Return each row extended by each solution of the premise."""
        if not rows:
            return []
        if isinstance(premise, Equality):
            return [extended for row in rows if (extended := self._equate(premise, row)) is not None]
        atom = premise.atom
        if atom.predicate.startswith(":"):
            return [extended for row in rows for extended in self._solve_builtin(premise, row)]
        if self.predicate(atom.key).deferred:
            return (yield from self._solve_deferred(premise, rows))
        matcher = Matcher(premise, rows[0], self.now)
        facts: Iterable[TimedArgs] = self.relation(atom.key)
        if self.predicate(atom.key).external:
            if atom.predicate in self.externals:
                facts = itertools.chain(facts, self._call_external(premise, rows))
            elif not self.relation(atom.key).facts:
                raise ValueFault(f"the external predicate {atom.predicate} has no implementation")
        facts_by_key = matcher.index(facts)
        solved: list[Row] = []
        for row in rows:
            matching = facts_by_key.get(matcher.key(row), ())
            matches = (m for args, interval in matching if (m := matcher.match(row, args, interval)) is not None)
            if premise.negated:
                if next(matches, None) is None:
                    solved.append(row)
            else:
                solved.extend(matches)
        return solved

    def _call_external(self, premise: Literal, rows: list[Row]) -> Iterator[TimedArgs]:
        """Return the facts of an external predicate for the inputs of these rows. Only new inputs cause a call."""
        key = premise.atom.key
        predicate = self.predicate(key)
        inputs = [premise.atom.args[i] for i in predicate.inputs()]
        calls = dict.fromkeys(tuple(value_of(arg, row, self.now) for arg in inputs) for row in rows)
        results = self.external_calls.setdefault(key, {})
        new_calls = [call for call in calls if call not in results]
        if new_calls:
            external, accepts = self.externals[key[0]], self.acceptance.accepts
            results.update(call_external(predicate, external, new_calls, accepts, self.checkpoint))
        stored = self.relation(key).facts
        return ((args, None) for call in calls for args in dict.fromkeys(results[call]) if args not in stored)

    def _equate(self, premise: Equality, row: Row) -> Row | None:
        for side, other in premise.directions:
            if isinstance(side, Variable) and side.name not in row and not premise.negated:
                value = value_of(other, row, self.now)
                return row if side.anonymous else {**row, side.name: value}
        equal = value_of(premise.left, row, self.now) == value_of(premise.right, row, self.now)
        return row if equal != premise.negated else None

    def _solve_builtin(self, premise: Literal, row: Row) -> Iterator[Row]:
        builtin = PREDICATES[premise.atom.predicate]
        pairs = list(zip(premise.atom.args, builtin.modes, strict=True))
        outputs = [arg for arg, mode in pairs if mode == "-"]
        inputs = tuple(value_of(arg, row, self.now) for arg, mode in pairs if mode == "+")
        unified = (unify(outputs, values, row, self.now) for values in builtin.solve(inputs))
        solutions = (extended for extended in unified if extended is not None)
        if not premise.negated:
            yield from solutions
        elif next(solutions, None) is None:
            yield row

    def _solve_deferred(self, premise: Literal, rows: list[Row]) -> RowGenerator:
        key = premise.atom.key
        solved: list[Row] = []
        for row in rows:
            inputs = tuple(value_of(premise.atom.args[i], row, self.now) for i in self.predicate(key).inputs())
            answers = yield (key, inputs)
            matcher = Matcher(premise, row, self.now)
            row_key = matcher.key(row)
            matches = [
                extended
                for args in answers
                if matcher.fact_key(args) == row_key
                and (extended := matcher.match(row, args, interval=None)) is not None
            ]
            if not premise.negated:
                solved.extend(matches)
            elif not matches:
                solved.append(row)
        return solved

    def _drive(self, work: Generator[Call, list[Args], _Result]) -> _Result:
        """Return the result of a generator. For each call that it yields, evaluate the call and send the facts back."""
        stack: list[tuple[Generator[Call, list[Args], object], Call | None]] = [(work, None)]
        reply: object = None
        while True:
            current, call = stack[-1]
            try:
                next_call = current.send(reply)  # type: ignore[arg-type]  # no reply before the first call
            except StopIteration as stop:
                stack.pop()
                reply = stop.value
                if call is None:
                    return stop.value  # type: ignore[no-any-return]
                self.answers[call] = stop.value
                continue
            if next_call in self.answers:
                reply = self.answers[next_call]
                continue
            if len(stack) > self.limits.call_depth:
                raise LimitError(self.limits.call_depth, len(stack), f"nested calls of {next_call[0][0]}")
            stack.append((self._call(next_call), next_call))
            reply = None

    def _call(self, call: Call) -> Generator[Call, list[Args], list[Args]]:
        """Return all facts of a deferred predicate with the inputs of ``call``."""
        key, inputs = call
        positions = list(self.predicate(key).inputs())
        answers = [args for args, _ in self.relation(key)]
        for rule in self.rules.get(key, []):
            row = _bind_inputs([rule.head.args[i] for i in positions], inputs)
            if row is None:
                continue
            solutions: list[Row] = []
            yield from self._solve_body(rule, [row], solutions.extend)
            for solution in solutions:
                answers.append(self.head_args(rule.clause, solution if rule.clause.aggregates else {**row, **solution}))
        return list(dict.fromkeys(args for args in answers if tuple(args[i] for i in positions) == inputs))


def distinct_rows(rows: list[Row]) -> list[Row]:
    """Return the rows without duplicates; all rows bind the same variables."""
    names = sorted(rows[0]) if rows else []
    seen: dict[Args, Row] = {}
    for row in rows:
        seen.setdefault(tuple(row[name] for name in names), row)
    return list(seen.values())


def _bind_inputs(columns: list[Term], inputs: Args) -> Row | None:
    """Return the initial row of a deferred rule; None if ``inputs`` do not unify. Function applications are skipped."""
    row: Row | None = {}
    for column, value in zip(columns, inputs, strict=True):
        if row is not None and not isinstance(column, Apply):
            row = unify([column], (value,), row, now=0)
    return row
