"""The interpreter of rules: for merged, deferred and external predicates, explanations, and the place of an error.

Temporal relations keep intervals as given and derived. Later components and output read them coalesced; inside its own
recursive component a predicate is read uncoalesced, so that no order matters (D12).

Deferred predicates run on demand: a body is a generator that yields the calls it needs, and a loop with an explicit
stack drives them.

Merge: the ordinary predicates of a component are the least model over the merged relation as it stands; new values are
merged into it, until the merged relation is at its fixpoint.
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
from manglecp.mangle.declarations import Acceptance, Merge, Predicate
from manglecp.mangle.errors import EvalError, LimitError, ValueFault
from manglecp.mangle.externals import ExternalCalls, Externals, call_external, check_names
from manglecp.mangle.facts import Args, Interval, TimedArgs, holds_somewhere
from manglecp.mangle.matching import Matcher, Row, evaluate_term as value_of, head_interval, unify
from manglecp.mangle.model import MOST_SKIPPED, Limits, Relation, Statistics
from manglecp.mangle.printer import fact_text
from manglecp.mangle.program import Program, Rule, built_columns, parts
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Apply, Atom, Clause, Equality, Key, Literal, Premise, Term, Variable
from manglecp.mangle.transforms import transform_rows
from manglecp.mangle.values import order_key

Call: TypeAlias = tuple[Key, Args]
Solving: TypeAlias = Generator[Call, list[Args], list[Row]]
_Answer = TypeVar("_Answer")
_BATCH_SIZE: Final = 1_000  # rows


class NaiveEvaluation:
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
        self.rules: dict[Key, list[Rule]] = {}
        for rule in program.rules:
            self.rules.setdefault(rule.head.key, []).append(rule)
        self.answers: dict[Call, list[Args]] = {}  # of deferred predicates, while the relations stay as they are
        self.derived = 0  # in the components that are done
        self.merge_steps = 0
        self.built = built_columns(program.rules)
        self.parts = 0  # of built values, in the components that are done
        self.building = 0  # in the one that is evaluated
        self.limit = self.room = limits.derived_facts  # how many facts there may be, and how many more
        self.skipped: set[tuple[Key, Args, Interval]] = set()  # derivations that hold at no instant (D20)

    @cached_property
    def acceptance(self) -> Acceptance:
        return Acceptance(self.program.predicates)

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
        for args, intervals in self.relation(key).finish().items():
            if len(intervals) > self.limits.intervals:
                raise LimitError(self.limits.intervals, len(intervals), f"intervals of {fact_text(key[0], args)}")

    def component(self, component: Component) -> None:
        """Evaluate mutually dependent predicates to the fixpoint."""
        keys = [key for key in component.predicates if not self.predicate(key).deferred]
        rules = [rule for key in keys for rule in self.rules.get(key, [])]
        if any(self.predicate(key).merge is not None for key in keys):
            self._merging_component(keys, rules)
        else:
            self.derived += self._fixpoint(keys, rules, self.limits.derived_facts)
        for key in keys:
            self._finish(key)
        self.parts += self._parts(keys)
        self.building = 0
        self._check_parts(0)

    def _parts(self, keys: Iterable[Key]) -> int:
        return sum(
            parts((args,), self.built[key]) * len(at)
            for key in keys
            if key in self.built
            for args, at in self.relation(key).facts.items()
        )

    def _check_parts(self, more: int) -> None:
        limit = self.limits.parts
        if self.parts + self.building + more > limit:
            raise LimitError(limit, limit + 1, "parts of values")

    def _fixpoint(self, keys: list[Key], rules: list[Rule], limit: int) -> int:
        """Apply rules to a fixpoint, aggregates once before it; return the number of new facts."""
        base = self._size(keys) - self.derived  # the size above it is the number of all derived facts
        self.limit = limit
        self.room = limit - self.derived
        self.answers.clear()
        for rule in [r for r in rules if r.clause.aggregates]:
            self._add(rule, self._apply(rule))
        self._check_limit(self._size(keys) - base, limit)
        plain = [r for r in rules if not r.clause.aggregates]
        changed = bool(plain)
        while changed:
            self.statistics.rounds += 1
            self.answers.clear()
            self.room = limit - (self._size(keys) - base)
            derived = [(rule, self._apply(rule)) for rule in plain]
            changed = True in [self._add(rule, facts) for rule, facts in derived]  # all of them
            self._check_limit(self._size(keys) - base, limit)
        return self._size(keys) - base - self.derived

    def _size(self, keys: Iterable[Key]) -> int:
        return sum(len(self.relation(key)) for key in keys)

    def _add(self, rule: Rule, facts: list[TimedArgs]) -> bool:
        relation = self.relation(rule.head.key)
        columns = self.built.get(rule.head.key, ())
        new = [args for args, interval in facts if relation.add(args, interval)]
        self.building += parts(new, columns)
        self._check_parts(0)
        return bool(new)

    def _check_limit(self, derived: int, limit: int) -> None:
        if derived > limit:
            raise LimitError(limit, derived, "derived facts")

    def _merging_component(self, keys: list[Key], rules: list[Rule]) -> None:
        merged = [key for key in keys if self.predicate(key).merge is not None]
        ordinary = [key for key in keys if key not in merged]
        given = {key: {args: set(at) for args, at in self.relation(key).facts.items()} for key in keys}
        for key in merged:
            self._merge_into(key, list(given[key]), afresh=True)
        changed = True
        while changed:
            self.statistics.rounds += 1
            self.building = 0  # what the last step built is replaced
            for key in ordinary:  # the least model over the merged relations as they stand
                self.relation(key).facts = {args: set(at) for args, at in given[key].items()}
            # What holds on the way may be more than what holds in the end, so only endlessness is stopped here.
            on_the_way = max(self.limits.derived_facts, self.limits.merge_steps)
            self._fixpoint(ordinary, [rule for rule in rules if rule.head.key in ordinary], on_the_way)
            self.answers.clear()
            self.room = on_the_way
            derived = {key: [args for r in rules if r.head.key == key for args, _ in self._apply(r)] for key in merged}
            changed = True in [self._merge_into(key, new) for key, new in derived.items()]  # all of them
        for key in keys:
            self.derived += sum(len(at - given[key].get(args, set())) for args, at in self.relation(key).facts.items())
        self._check_limit(self.derived, self.limits.derived_facts)

    def _merge_into(self, key: Key, new: list[Args], *, afresh: bool = False) -> bool:
        """Merge facts into a relation in the order of values (deterministic); return whether it changed."""
        relation = self.relation(key)
        merge = self.predicate(key).merge
        assert merge is not None
        columns = self.predicate(key).fundeps[0].source
        groups: dict[Args, list[Args]] = {}
        for args in () if afresh else relation.facts:
            groups.setdefault(tuple(args[c] for c in columns), []).append(args)
        for args in sorted(new, key=lambda args: [order_key(value) for value in args]):
            group = tuple(args[c] for c in columns)
            groups[group] = self._merged(groups.get(group, []), args, merge)
        facts: dict[Args, set[Interval | None]] = {args: {None} for group in groups.values() for args in group}
        changed = facts.keys() != relation.facts.keys()
        relation.facts = facts
        return changed

    def _merged(self, group: list[Args], args: Args, merge: Merge) -> list[Args]:
        """Return ``group`` with one more fact; incomparable values coexist."""
        while args not in group:
            for old in group:
                results = self._drive(self._merge_results(merge.predicate, (old[merge.column], args[merge.column])))
                values = [answer[2] for answer in results]
                if not values:
                    continue
                value = next((v for v in values if v != old[merge.column]), old[merge.column])
                if value == old[merge.column]:
                    return group
                self.merge_steps += 1
                if self.merge_steps > self.limits.merge_steps:
                    raise LimitError(self.limits.merge_steps, self.merge_steps, "merge steps")
                group = [other for other in group if other != old]
                args = (*args[: merge.column], value, *args[merge.column + 1 :])
                break
            else:
                return [*group, args]
        return group

    def _merge_results(self, key: Key, inputs: Args) -> Generator[Call, list[Args], list[Args]]:
        """Return the facts of a merge predicate with these two inputs."""
        if self.predicate(key).deferred:
            answers = yield (key, tuple(inputs[i] for i in self.predicate(key).inputs() if i < 2))
        else:
            answers = [args for args, _ in self.relation(key)]
        return [args for args in answers if args[:2] == inputs]

    def _apply(self, rule: Rule) -> list[TimedArgs]:
        """Return everything the rule derives.

        Rows become facts as they come, so that limits apply before a product of relations fills the memory.
        """
        self.checkpoint()
        clause = rule.clause
        temporal = self.predicate(clause.head.key).temporal
        stored = self.relation(clause.head.key).facts
        columns = self.built.get(clause.head.key, ())
        derived: dict[TimedArgs, None] = {}
        fresh = weight = 0

        def emit(rows: list[Row]) -> None:
            nonlocal fresh, weight
            for row in rows:
                args = self.head_args(clause, row)
                interval = self.head_interval(clause, row) if temporal else None
                if interval is not None and not holds_somewhere(*interval):
                    if len(self.skipped) < MOST_SKIPPED:
                        self.skipped.add((clause.head.key, args, interval))
                elif (args, interval) not in derived:
                    derived[args, interval] = None
                    if interval not in stored.get(args, ()):
                        fresh += 1
                        weight += parts((args,), columns)
                    if fresh > self.room:
                        raise LimitError(self.limit, self.limit + 1, "derived facts", clause.span)
                    self._check_parts(weight)

        self._drive(self._rows(rule, [{}], emit))
        return list(derived)

    def head_interval(self, clause: Clause, row: Row) -> Interval:
        assert clause.annotation is not None  # checked at load
        try:
            return head_interval(clause.annotation, row, self.now)
        except ValueFault as fault:
            raise self.error_at(str(fault), clause.annotation.span, clause) from None

    def checkpoint(self) -> None:
        """Raise LimitError if the time is up."""
        spent = time.monotonic() - self.started
        if self.limits.seconds is not None and spent > self.limits.seconds:
            raise LimitError(self.limits.seconds, round(spent, 3), "seconds")

    def head_args(self, clause: Clause, row: Row) -> Args:
        """Return the arguments of the derived fact; raises an error at the place of an invalid one."""
        try:
            return tuple(value_of(arg, row, self.now) for arg in clause.head.args)
        except ValueFault as fault:
            raise self.error_at(str(fault), clause.head.span, clause) from None

    def error_at(self, message: str, span: Span | None, clause: Clause) -> EvalError:
        return EvalError([Diagnostic("eval", message, span or clause.span, printer.clause(clause))])

    def _rows(self, rule: Rule, rows: list[Row], emit: Callable[[list[Row]], None]) -> Solving:
        """Solve the body and yield the rows of the head, in batches unless they are aggregated."""
        clause = rule.clause
        plain = not clause.aggregates
        finished: list[Row] = []
        waiting = [(0, rows)]
        while waiting:
            self.checkpoint()
            position, rows = waiting.pop()
            if position == len(rule.premises):
                if plain:
                    emit(self._transformed(clause, rows))
                else:
                    finished += rows
                    if len(finished) > self.limits.rows and not self.rows_are_facts(rule):
                        finished = _distinct(finished)
                    if len(finished) > self.limits.rows:
                        raise LimitError(self.limits.rows, self.limits.rows + 1, "rows of one rule", clause.span)
                continue
            premise = rule.premises[position]
            try:
                rows = yield from self._solve(premise, rows)
            except ValueFault as fault:
                raise self.error_at(str(fault), premise.span, clause) from None
            if not self.rows_are_facts(rule):
                rows = _distinct(rows)
            waiting += [(position + 1, rows[at : at + _BATCH_SIZE]) for at in range(0, len(rows), _BATCH_SIZE)]
        if not plain:
            emit(self._transformed(clause, finished if self.rows_are_facts(rule) else _distinct(finished)))
        return []

    def _transformed(self, clause: Clause, rows: list[Row]) -> list[Row]:
        for transform in clause.transforms:
            try:
                rows = transform_rows(transform, rows, self.now)
            except ValueFault as fault:
                raise self.error_at(str(fault), transform.span, clause) from None
        return rows

    def rows_are_facts(self, rule: Rule) -> bool:
        """Return whether every matching fact is a row (one positive premise); else rows are distinct bindings (D6)."""
        if len(rule.premises) != 1 or not rule.clause.aggregates:
            return False
        premise = rule.premises[0]
        return isinstance(premise, Literal) and not premise.negated and not premise.atom.predicate.startswith(":")

    def _solve(self, premise: Premise, rows: list[Row]) -> Solving:
        if not rows:
            return []
        if isinstance(premise, Equality):
            return [new for row in rows if (new := self._equate(premise, row)) is not None]
        atom = premise.atom
        if atom.predicate.startswith(":"):
            return [new for row in rows for new in self._builtin(premise, row)]
        if self.predicate(atom.key).deferred:
            return (yield from self._deferred(premise, rows))
        matcher = Matcher(premise, rows[0], self.now)
        facts: Iterable[TimedArgs] = self.relation(atom.key)
        if self.predicate(atom.key).external:
            if atom.predicate in self.externals:
                facts = itertools.chain(facts, self._external(premise, rows))
            elif not self.relation(atom.key).facts:
                raise ValueFault(f"the external predicate {atom.predicate} has no implementation")
        candidates = matcher.index(facts)
        solved: list[Row] = []
        for row in rows:
            own = candidates.get(matcher.key(row), ())
            matches = (new for args, interval in own if (new := matcher.match(row, args, interval)) is not None)
            if premise.negated:
                if next(matches, None) is None:
                    solved.append(row)
            else:
                solved.extend(matches)
        return solved

    def _external(self, premise: Literal, rows: list[Row]) -> Iterator[TimedArgs]:
        """Call an external predicate, once per input."""
        key = premise.atom.key
        predicate = self.predicate(key)
        inputs = [premise.atom.args[i] for i in predicate.inputs()]
        calls = dict.fromkeys(tuple(value_of(arg, row, self.now) for arg in inputs) for row in rows)
        results = self.external_calls.setdefault(key, {})
        new = [call for call in calls if call not in results]
        if new:
            external, accepts = self.externals[key[0]], self.acceptance.accepts
            results.update(call_external(predicate, external, new, accepts, self.checkpoint))
        stored = self.relation(key).facts
        return ((args, None) for call in calls for args in dict.fromkeys(results[call]) if args not in stored)

    def _equate(self, premise: Equality, row: Row) -> Row | None:
        for free, other in ((premise.left, premise.right), (premise.right, premise.left)):
            if isinstance(free, Variable) and free.name not in row and not premise.negated:
                value = value_of(other, row, self.now)
                return row if free.anonymous else {**row, free.name: value}
        equal = value_of(premise.left, row, self.now) == value_of(premise.right, row, self.now)
        return row if equal != premise.negated else None

    def _builtin(self, premise: Literal, row: Row) -> Iterator[Row]:
        builtin = PREDICATES[premise.atom.predicate]
        pairs = list(zip(premise.atom.args, builtin.modes, strict=True))
        outputs = [arg for arg, mode in pairs if mode == "-"]
        inputs = tuple(value_of(arg, row, self.now) for arg, mode in pairs if mode == "+")
        unified = (unify(outputs, values, row, self.now) for values in builtin.solve(inputs))
        solutions = (new for new in unified if new is not None)
        if not premise.negated:
            yield from solutions
        elif next(solutions, None) is None:
            yield row

    def _deferred(self, premise: Literal, rows: list[Row]) -> Solving:
        key = premise.atom.key
        solved: list[Row] = []
        for row in rows:
            inputs = tuple(value_of(premise.atom.args[i], row, self.now) for i in self.predicate(key).inputs())
            answers = yield (key, inputs)
            matcher = Matcher(premise, row, self.now)
            wanted = matcher.key(row)
            matches = [
                new
                for args in answers
                if matcher.fact_key(args) == wanted and (new := matcher.match(row, args, None)) is not None
            ]
            if not premise.negated:
                solved.extend(matches)
            elif not matches:
                solved.append(row)
        return solved

    def _drive(self, work: Generator[Call, list[Args], _Answer]) -> _Answer:
        """Run a generator, answering the calls it yields."""
        stack: list[tuple[Generator[Call, list[Args], object], Call | None]] = [(work, None)]
        reply: object = None
        while True:
            current, call = stack[-1]
            try:
                wanted = current.send(reply)  # type: ignore[arg-type]  # no reply before the first call
            except StopIteration as stop:
                stack.pop()
                reply = stop.value
                if call is None:
                    return stop.value  # type: ignore[no-any-return]
                self.answers[call] = stop.value
                continue
            if wanted in self.answers:
                reply = self.answers[wanted]
                continue
            if len(stack) > self.limits.call_depth:
                raise LimitError(self.limits.call_depth, len(stack), f"nested calls of {wanted[0][0]}")
            stack.append((self._call(wanted), wanted))
            reply = None

    def _call(self, call: Call) -> Generator[Call, list[Args], list[Args]]:
        """Return all facts of a deferred predicate with these inputs."""
        key, inputs = call
        positions = list(self.predicate(key).inputs())
        answers = [args for args, _ in self.relation(key)]
        for rule in self.rules.get(key, []):
            row = _bind_inputs([rule.head.args[i] for i in positions], inputs)
            if row is None:
                continue
            solutions: list[Row] = []
            yield from self._rows(rule, [row], solutions.extend)
            for solution in solutions:
                answers.append(self.head_args(rule.clause, solution if rule.clause.aggregates else {**row, **solution}))
        return list(dict.fromkeys(args for args in answers if tuple(args[i] for i in positions) == inputs))


def _distinct(rows: list[Row]) -> list[Row]:
    names = sorted(rows[0]) if rows else []
    seen: dict[Args, Row] = {}
    for row in rows:
        seen.setdefault(tuple(row[name] for name in names), row)
    return list(seen.values())


def _bind_inputs(columns: list[Term], inputs: Args) -> Row | None:
    """Return the initial row of a deferred rule; an expression in its head is compared after the body."""
    row: Row | None = {}
    for column, value in zip(columns, inputs, strict=True):
        if row is not None and not isinstance(column, Apply):
            row = unify([column], (value,), row, 0)
    return row
