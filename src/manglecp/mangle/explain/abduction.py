"""Abduction: sets of facts that a conclusion lacks.

Rules are run backwards: a premise is satisfied by the model, by a fact that may be added, or by a conclusion from such
facts. The resulting sets have one property: if adding facts makes the goal true, they include one of these sets.

Where an effect cannot be predicted (a negation that fails now, an aggregate, a merge), the set ends there: it is
progress, and after it has been added the search is repeated. Recursion is handled by tabling, with one table per call
pattern, filled to the fixpoint.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, NamedTuple, TypeAlias

from manglecp.mangle.errors import EvalError, ValueFault
from manglecp.mangle.explain.candidates import Candidates, intervals_for
from manglecp.mangle.explain.instances import Absence, free_ends
from manglecp.mangle.explain.proof import NOTHING, AssumedFacts, Prover, Sets
from manglecp.mangle.explain.shape import Shape
from manglecp.mangle.explain.solver import row_key
from manglecp.mangle.facts import Args, Fact, Interval, TimedArgs, coalesce
from manglecp.mangle.matching import Matcher, Row, evaluate_term
from manglecp.mangle.program import DependencyClosure, retracting_premises
from manglecp.mangle.syntax import (
    Apply,
    Equality,
    Key,
    Literal,
    Premise,
    Term,
    Variable,
    bound_variables,
    premise_variables,
    term_variables,
)
from manglecp.mangle.values import Value

Pattern: TypeAlias = tuple[Value | None, ...]  # the known arguments of a fact; None for unknown ones
STEPS_AFTERWARDS: Final = 10_000  # steps to collect partial results after the budget of steps is spent


class BudgetExhausted(Exception):
    pass


@dataclass
class Effort:
    steps: int
    deadline: float | None = None  # monotonic

    def spend(self, steps: int = 1) -> None:
        """Raise :class:`BudgetExhausted` when nothing is left."""
        self.steps -= steps
        if self.steps < 0 or (self.deadline is not None and monotonic() > self.deadline):
            raise BudgetExhausted


class PendingGoal(NamedTuple):
    """A premise that is assumed before all its variables have values."""

    literal: Literal
    interval: Interval | None
    smallest: bool = False  # whether it is the smallest interval that satisfies the premise

    def free(self, row: Row) -> list[str]:
        names = [arg.name for arg in self.literal.atom.args if isinstance(arg, Variable)]
        return [name for name in names if name != "_" and name not in row]


class State(NamedTuple):
    """The state of a body: values, assumptions, and assumptions with free variables."""

    row: Row
    assumed: AssumedFacts = NOTHING
    pending: tuple[PendingGoal, ...] = ()

    @property
    def identity(self) -> tuple[object, ...]:
        return frozenset(self.row.items()), self.assumed, tuple((id(p.literal), p.interval) for p in self.pending)

    def keys(self) -> set[Key]:
        """Return the predicates of the assumptions, a lower bound of the number of facts."""
        return {fact.key for fact in self.assumed} | {p.literal.atom.key for p in self.pending}


def _distinct(states: Iterable[State]) -> list[State]:
    return list({state.identity: state for state in states}.values())


@dataclass(eq=False, slots=True)
class Table:
    """Conclusions of a pattern under assumptions that do not hold without."""

    key: Key
    pattern: Pattern
    answers: dict[TimedArgs, Sets] = field(default_factory=dict)
    progress: Sets = field(default_factory=Sets)  # assumptions with an effect on the pattern that cannot be predicted
    readers: set[Table] = field(default_factory=set)

    def agrees(self, fact: TimedArgs) -> bool:
        return all(known is None or value == known for known, value in zip(self.pattern, fact[0], strict=True))


@dataclass(eq=False)
class Abduction:
    """Abductive queries to one model with at most ``budget`` assumptions."""

    prover: Prover
    candidates: Candidates
    dependence: DependencyClosure
    budget: int
    effort: Effort

    def __post_init__(self) -> None:
        self.solver = self.prover.solver
        self.exhausted = False
        self.cut = False  # whether a set was left out because it needs more assumptions
        self._tables: dict[tuple[Key, Pattern], Table] = {}
        self._dirty: dict[Table, None] = {}
        self._reader: Table | None = None
        self._facts_of: dict[Key, list[Fact]] = {}
        self._rows: dict[tuple[int, tuple[tuple[str, Value], ...]], list[Row]] = {}

    def query(self, literal: Literal, row: Row) -> Sets:
        """Return sets of assumptions under which a positive premise holds.

        Out of steps, ``exhausted`` is set and the result is partial.
        """
        result = Sets()
        try:
            while True:
                result = Sets()
                self._satisfy(literal, row, result)
                if not self._dirty:
                    return result
                self._fill()
        except BudgetExhausted:
            self.exhausted = True
        self.effort.steps = max(self.effort.steps, STEPS_AFTERWARDS)
        with suppress(BudgetExhausted):
            self._satisfy(literal, row, result)
        self.effort.steps = 0
        return result

    def facts_of(self, keys: Iterable[Key]) -> Iterator[Fact]:
        """Yield every fact of some predicates that may be added."""
        for key in sorted(self.candidates.keys.intersection(keys)):
            if key not in self._facts_of:
                columns = [self.candidates.column(key, i) for i in range(key[1])]
                intervals = self.candidates.intervals if self.solver.predicate(key).temporal else (None,)
                facts = []
                for args, interval in itertools.product(itertools.product(*columns), intervals):
                    self.effort.spend()
                    fact = Fact(key[0], args, interval)
                    if self.candidates.accepts(key, args) and not self.solver.contains(fact):
                        facts.append(fact)
                self._facts_of[key] = facts
            yield from self._facts_of[key]

    def _satisfy(self, literal: Literal, row: Row, sets: Sets) -> None:
        for state in self._assume_premise(literal, State(row), None, sets):
            for done in self._bind_all_pending(state):
                sets.add(done.assumed)

    def _table(self, key: Key, pattern: Pattern) -> Table:
        """Return the table of a pattern, and register the table being filled as its reader."""
        table = self._tables.get((key, pattern))
        if table is None:
            table = self._tables[key, pattern] = Table(key, pattern)
            self._dirty[table] = None
        if self._reader is not None:
            table.readers.add(self._reader)
        return table

    def _fill(self) -> None:
        """Fill the tables to the fixpoint."""
        while self._dirty:
            self._reader = table = next(iter(self._dirty))
            del self._dirty[table]
            try:
                changed = self._fill_one(table)
            finally:
                self._reader = None
            if changed:
                self._dirty.update(dict.fromkeys(table.readers))

    def _fill_one(self, table: Table) -> bool:
        progress = Sets()
        changed = False
        merge = self.solver.predicate(table.key).merge
        for shape in self.prover.instances.shapes.get(table.key, ()):
            known = [i for i in shape.fixable if table.pattern[i] is not None and (merge is None or i != merge.column)]
            start = shape.fix(known, [table.pattern[i] for i in known])
            if start is None:
                continue
            unpredictable = merge is not None or shape.rule.clause.aggregates
            for state in self._evaluate_body(shape, start, progress):
                if not state.assumed:
                    continue
                if unpredictable:
                    progress.add(state.assumed)
                else:
                    changed |= self._conclude(table, shape, start, state)
            if unpredictable:  # its group may also lose rows
                self._add_retractions(self._row_removers(shape, start), NOTHING, progress)
        if merge is not None:
            self._add_retractions(self.dependence.retracting(table.key), NOTHING, progress)
        for one in progress:
            changed |= table.progress.add(one)
        return changed

    def _row_removers(self, shape: Shape, start: Row) -> set[Key]:
        """Return the predicates whose new facts could remove rows of a body."""
        keys = {p.atom.key: p.negated for p in shape.rule.premises if isinstance(p, Literal)}
        removers = self.dependence.needs(key for key, negated in keys.items() if negated)
        removers = removers.union(*map(self.dependence.retracting, keys))
        if self.candidates.keys.isdisjoint(removers):
            return removers
        instances = self.prover.instances
        try:
            rows = [derived for rows in instances.heads(shape, start).values() for derived in rows]
        except EvalError:
            return removers
        removers = set()
        for derived in rows:
            instance = instances.instance(shape, derived, start)
            absent = [ground.literal.atom.key for ground in instance.grounds if isinstance(ground, Absence)]
            removers = removers.union(self.dependence.needs(absent), *map(self._retractors, instance.facts()))
        return removers

    def _negation_enablers(self, premise: Literal, row: Row) -> set[Key]:
        """Return the predicates whose new facts could make a negation hold that fails now."""
        key = premise.atom.key
        enablers = self.dependence.retracting(key)
        if self.candidates.keys.isdisjoint(enablers) or self.solver.predicate(key).deferred:
            return enablers
        matcher, facts = self.solver.look_up(premise, row)
        denied = [Fact(key[0], *fact) for fact in facts if matcher.match(row, *fact) is not None]
        return self._retractors(min(denied, key=lambda fact: fact.text)) if denied else enablers

    def _retractors(self, fact: Fact) -> set[Key]:
        """Return the predicates whose new facts could retract a fact.

        It disappears only if every proof is lost, so one proof is examined.
        """
        proof = self.prover.proof(fact)
        if proof is None:
            return self.dependence.retracting(fact.key)
        retractors: set[Key] = set()
        for node in proof.nodes():
            if node.ground is not None and self.solver.predicate(node.ground.key).merge is not None:
                retractors |= self.dependence.retracting(node.ground.key)
            if node.rule is not None:
                retractors |= self.dependence.needs(retracting_premises(node.rule.clause))
        return retractors

    def _add_retractions(self, keys: set[Key], assumed: AssumedFacts, progress: Sets) -> None:
        for fact in self.facts_of(keys):
            new = assumed | {fact}
            if self.fits(State({}, new)):
                progress.add(new)

    def _conclude(self, table: Table, shape: Shape, start: Row, state: State) -> bool:
        instances = self.prover.instances
        try:
            rows = [{**start, **derived.row} for derived in instances.transformed(shape.rule, [state.row])]
            facts = [instances.head(shape.rule, row) for row in rows]
        except EvalError:
            return False
        changed = False
        for fact in facts:
            if fact is not None and table.agrees(fact) and not self._is_in_model(table.key, fact):
                changed |= table.answers.setdefault(fact, Sets()).add(state.assumed)
        return changed

    def _is_in_model(self, key: Key, fact: TimedArgs) -> bool:
        args, interval = fact
        if interval is not None:
            return interval in self.solver.intervals(key, args, raw=True)
        return self.solver.contains(Fact(key[0], args))

    def _evaluate_body(self, shape: Shape, start: Row, progress: Sets) -> list[State]:
        raw = self.solver.reads_raw(shape.rule)
        states = [State(start)]
        for premise in shape.rule.premises:
            states = _distinct(new for state in states for new in self._pass_premise(premise, state, raw, progress))
            self.effort.spend(len(states))
            if not states:
                return []
        transforms, head = shape.rule.clause.transforms, shape.rule.head
        visible = None if transforms else {v.name for v in term_variables(*head.args)}
        return _distinct(done for state in states for done in self._bind_all_pending(state, visible))

    def _pass_premise(self, premise: Premise, state: State, raw: Key | None, progress: Sets) -> Iterator[State]:
        stored = isinstance(premise, Literal) and not premise.atom.predicate.startswith(":")
        for ready in self._bind_pending(state, self._needed(premise, state.row)):
            rows = self._rows_in_model(premise, ready.row, raw if stored else None)
            yield from (ready._replace(row=row) for row in rows)
            if not stored:
                continue
            assert isinstance(premise, Literal)
            if not premise.negated:
                yield from self._assume_premise(premise, ready, raw, progress)
            elif not rows:
                self._add_retractions(self._negation_enablers(premise, ready.row), ready.assumed, progress)

    def _needed(self, premise: Premise, row: Row) -> set[str]:
        if isinstance(premise, Equality) and not premise.negated:
            for side, other in ((premise.left, premise.right), (premise.right, premise.left)):
                if isinstance(side, Variable) and side.name not in row:  # the premise itself gives it a value
                    return {v.name for v in term_variables(other)}
        if not isinstance(premise, Literal) or premise.negated or premise.atom.predicate.startswith(":"):
            return {v.name for v in premise_variables(premise)}
        bounds = [part.bounds for part in (premise.operator, premise.annotation) if part is not None]
        names = {v.name for part in bounds for v in bound_variables(part)}
        predicate = self.solver.predicate(premise.atom.key)
        inputs = set(predicate.inputs()) if predicate.deferred else set()
        for position, arg in enumerate(premise.atom.args):
            if isinstance(arg, Apply) or position in inputs:
                names |= {v.name for v in term_variables(arg)}
        return names

    def _rows_in_model(self, premise: Premise, row: Row, raw: Key | None) -> list[Row]:
        """Return the rows that satisfy a premise in the model; of too many, those with preferred values."""
        own = {v.name: row[v.name] for v in premise_variables(premise) if v.name in row}
        known = id(premise), tuple(own.items())
        if known not in self._rows:
            self._rows[known] = self._solve(premise, own, raw)
        return [{**row, **new} for new in self._rows[known]]

    def _solve(self, premise: Premise, row: Row, raw: Key | None) -> list[Row]:
        try:
            with self.solver.reading_raw(raw):
                rows = self.solver.solve(premise, row)
        except (ValueFault, EvalError):
            return []
        most = self.candidates.max_rows
        if most is None or len(rows) <= most:
            return rows
        self.exhausted = True

        def rank(row: Row) -> tuple[object, ...]:
            return -len(self.candidates.preferred.intersection(row.values())), row_key(row)

        return heapq.nsmallest(most, rows, key=rank)

    def _assume_premise(self, premise: Literal, state: State, raw: Key | None, progress: Sets) -> Iterator[State]:
        key = premise.atom.key
        if key in self.candidates.keys:
            yield from self._assume_fact(premise, state, raw)
        if key in self.solver.rules or self.solver.predicate(key).merge is not None:
            yield from self._assume_derivation(premise, state, raw, progress)

    def fits(self, state: State) -> bool:
        """Return whether the state is within the budget; pending premises need at least one fact per predicate."""
        if len(state.assumed) <= self.budget and len(state.keys()) <= self.budget:
            return True
        self.cut = True
        return False

    def _assume_fact(self, premise: Literal, state: State, raw: Key | None) -> Iterator[State]:
        if not self.solver.predicate(premise.atom.key).temporal:
            yield from self._postpone(PendingGoal(premise, None), state)
            return
        try:
            intervals = intervals_for(premise, state.row, self.candidates)
        except ValueFault:
            return
        if not any(free_ends(premise, state.row)):
            for interval in intervals:
                yield from self._postpone(PendingGoal(premise, interval, interval == intervals[0]), state)
            return
        for interval in intervals:
            for new, fact in self._facts(PendingGoal(premise, interval), state):
                yield from self._match_intervals(premise, new, fact.args, [(interval, new.assumed)], raw)

    def _postpone(self, pending: PendingGoal, state: State) -> Iterator[State]:
        """Assume a premise; its variables are assigned after other premises have run."""
        new = state._replace(pending=(*state.pending, pending))
        if not self.fits(new):
            return
        if any(isinstance(arg, Variable) and arg.name not in state.row for arg in pending.literal.atom.args):
            yield new
        else:
            yield from (done for done, _ in self._facts(pending, state))

    def _bind_pending(self, state: State, names: set[str]) -> Iterator[State]:
        """Assign the pending premises that have one of these variables."""
        waiting = next((p for p in state.pending if not names.isdisjoint(p.free(state.row))), None)
        if waiting is None:
            yield state
            return
        rest = state._replace(pending=tuple(p for p in state.pending if p is not waiting))
        for new, _ in self._facts(waiting, rest):
            yield from self._bind_pending(new, names)

    def _bind_all_pending(self, state: State, visible: Container[str] | None = ()) -> Iterator[State]:
        """Assign all pending premises."""
        if not state.pending:
            yield state
            return
        for new, _ in self._facts(state.pending[0], state._replace(pending=state.pending[1:]), visible):
            yield from self._bind_all_pending(new, visible)

    def _facts(
        self, pending: PendingGoal, state: State, visible: Container[str] | None = None
    ) -> Iterator[tuple[State, Fact]]:
        """Yield the states in which an addable fact satisfies a premise, with that fact.

        ``visible`` are the variables whose values other premises or the head use; None for all.
        """
        key, terms = pending.literal.atom.key, pending.literal.atom.args
        choices: list[tuple[Value, ...]] = []
        names: list[str] = []
        for position, term in enumerate(terms):
            if isinstance(term, Variable) and term.name not in state.row and (term.anonymous or term.name not in names):
                names.append(term.name)
                interchangeable = term.anonymous or (visible is not None and term.name not in visible)
                choices.append(self.candidates.column(key, position, interchangeable=interchangeable))
        for values in itertools.product(*choices):
            self.effort.spend()
            left = iter(values)
            row = dict(state.row)
            try:
                args = tuple(self._argument(term, row, left) for term in terms)
            except ValueFault:
                continue
            fact = Fact(key[0], args, pending.interval)
            if fact not in state.assumed and (not self.candidates.accepts(key, args) or self.solver.contains(fact)):
                continue
            new = State(row, state.assumed | {fact}, state.pending)
            if self.fits(new):
                if pending.smallest:
                    self.candidates.smallest.add(fact)
                yield new, fact

    def _argument(self, term: Term, row: Row, values: Iterator[Value]) -> Value:
        if isinstance(term, Variable) and term.name not in row:
            value = next(values)
            if not term.anonymous:
                row[term.name] = value
            return value
        return evaluate_term(term, row, self.solver.now)

    def _assume_derivation(self, premise: Literal, state: State, raw: Key | None, progress: Sets) -> Iterator[State]:
        key = premise.atom.key
        matcher = Matcher(premise, state.row, self.solver.now)
        try:
            known = dict(zip((i for i, _ in matcher.known), matcher.key(state.row), strict=True))
        except ValueFault:
            return
        table = self._table(key, tuple(known.get(i) for i in range(key[1])))
        for one in table.progress:
            if self.fits(State({}, state.assumed | one)):
                progress.add(state.assumed | one)
        by_args: dict[Args, list[tuple[Interval | None, AssumedFacts]]] = {}
        for (args, interval), sets in table.answers.items():
            by_args.setdefault(args, []).extend((interval, one) for one in sets)
        for args, conclusions in by_args.items():
            if self.solver.predicate(key).temporal:
                timed = [(i, state.assumed | one) for i, one in conclusions if i is not None]
                yield from self._match_intervals(premise, state, args, timed, raw)
                continue
            row = matcher.match(state.row, args, None)
            for _, one in conclusions:
                yield from self._assume(state, row, state.assumed | one)

    def _assume(self, state: State, row: Row | None, assumed: AssumedFacts) -> Iterator[State]:
        if row is not None and self.fits(new := State(row, assumed, state.pending)):
            yield new

    def _match_intervals(
        self, premise: Literal, state: State, args: Args, timed: list[tuple[Interval, AssumedFacts]], raw: Key | None
    ) -> Iterator[State]:
        """Match a temporal fact with new intervals: alone, or coalesced with each other and the present ones."""
        matcher = Matcher(premise, state.row, self.solver.now)
        key = premise.atom.key
        if key == raw:
            for interval, assumed in timed:
                yield from self._assume(state, self._match(matcher, state, args, interval), assumed)
            return
        present = self.solver.intervals(key, args)
        for size in range(1, min(len(timed), self.budget) + 1):
            for some in itertools.combinations(timed, size):
                assumed = frozenset().union(*(one for _, one in some))
                if not self.fits(state._replace(assumed=assumed)):
                    continue
                for joined in coalesce([*present, *(interval for interval, _ in some)]):
                    if joined not in present:
                        yield from self._assume(state, self._match(matcher, state, args, joined), assumed)

    def _match(self, matcher: Matcher, state: State, args: Args, interval: Interval) -> Row | None:
        try:
            if matcher.fact_key(args) != matcher.key(state.row):
                return None
            return matcher.match(state.row, args, interval)
        except ValueFault:
            return None
