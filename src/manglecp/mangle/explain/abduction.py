"""Abduction: the sets of facts whose addition could make a goal hold.

Rules are run backwards: a premise is satisfied by the model, by a fact that may be added, or by a conclusion from added
facts. Every addition that makes the goal hold includes one of the resulting sets.

The effect of a set on a failed negation, an aggregation or a merge cannot be predicted. Such a set is *progress*: the
caller adds the set to the model and searches again. Recursion is handled by tabling: one table per call pattern, filled
to the fixpoint.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from manglecp.mangle.errors import EvalError, ValueFault
from manglecp.mangle.explain.candidates import Candidates, intervals_for
from manglecp.mangle.explain.instances import free_ends
from manglecp.mangle.explain.proof import NO_FACTS, AssumedFacts, MinimalSets, Prover
from manglecp.mangle.explain.shape import Shape
from manglecp.mangle.explain.solver import satisfying_rows
from manglecp.mangle.facts import Args, Fact, Interval, TimedArgs, coalesce
from manglecp.mangle.matching import Matcher, Row, evaluate_term
from manglecp.mangle.naive import distinct_rows
from manglecp.mangle.program import DependencyClosure
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
from manglecp.mangle.values import Value, order_key

Pattern: TypeAlias = tuple[Value | None, ...]  # the known arguments of a fact; None for an unknown argument
RawKey: TypeAlias = Key | None  # the predicate whose intervals a rule reads uncoalesced; see ModelSolver.raw_key_of
FINAL_STEPS: Final = 10_000  # further steps, to collect partial results when the steps of a search are spent


class BudgetExhausted(Exception):
    """No steps or tries are left."""


@dataclass
class Effort:
    """The steps that a search may still spend."""

    steps: int  # how many are left
    check_deadline: Callable[[], None]

    def spend(self, steps: int = 1) -> None:
        """Subtract steps. Raises :class:`BudgetExhausted` if none are left, or the error of ``check_deadline``."""
        self.steps -= steps
        if self.steps < 0:
            raise BudgetExhausted
        self.check_deadline()


class PendingGoal(NamedTuple):
    """A premise that is assumed before all its variables have values."""

    literal: Literal
    interval: Interval | None
    smallest: bool = False  # whether no smaller interval satisfies the premise

    def free_variables(self, row: Row) -> list[str]:
        names = [arg.name for arg in self.literal.atom.args if isinstance(arg, Variable)]
        return [name for name in names if name != "_" and name not in row]


class State(NamedTuple):
    """The state of a body after some premises: row, assumed facts, and assumed premises with free variables."""

    row: Row
    assumed: AssumedFacts = NO_FACTS
    pending: tuple[PendingGoal, ...] = ()

    @property
    def identity(self) -> tuple[object, ...]:
        return frozenset(self.row.items()), self.assumed, tuple((id(p.literal), p.interval) for p in self.pending)

    def keys(self) -> set[Key]:
        """Return the predicates of the assumed facts and premises; each predicate needs at least one fact."""
        return {fact.key for fact in self.assumed} | {p.literal.atom.key for p in self.pending}


def _distinct(states: Iterable[State]) -> list[State]:
    return list({state.identity: state for state in states}.values())


@dataclass(eq=False, slots=True)
class Table:
    """The facts of a pattern that are not in the model, each with the sets of assumptions under which it holds."""

    key: Key
    pattern: Pattern
    answers: dict[TimedArgs, MinimalSets] = field(default_factory=dict)  # sets of assumptions, by fact
    progress: MinimalSets = field(default_factory=MinimalSets)  # sets whose effect on the facts cannot be predicted
    readers: dict[Table, None] = field(default_factory=dict)  # tables to fill again when this table changes

    def matches(self, fact: TimedArgs) -> bool:
        return all(known is None or value == known for known, value in zip(self.pattern, fact[0], strict=True))


@dataclass(eq=False)
class Abduction:
    """Abductive queries to one model."""

    prover: Prover
    candidates: Candidates
    dependencies: DependencyClosure
    budget: int  # how many facts may be assumed
    effort: Effort

    def __post_init__(self) -> None:
        self.solver = self.prover.solver
        self.is_partial = False  # whether results are partial
        self.exceeded_budget = False  # whether a set was dropped because it has more facts than the budget
        self._tables: dict[tuple[Key, Pattern], Table] = {}
        self._unfilled: dict[Table, None] = {}  # new tables, and readers of changed tables
        self._filling: Table | None = None  # the table that is being filled
        self._facts_of: dict[Key, list[Fact]] = {}  # a cache of facts_of()
        self._solved_rows: dict[tuple[int, tuple[tuple[str, Value], ...]], list[Row]] = {}

    def query(self, literal: Literal, row: Row) -> MinimalSets:
        """Return the sets of assumptions under which a positive premise holds.

        If the steps of the search do not suffice, the result is partial and ``is_partial`` becomes true.
        """
        result = MinimalSets()
        try:
            while True:
                result = MinimalSets()
                self._satisfy(literal, row, result)
                if not self._unfilled:
                    return result
                self._fill()
        except BudgetExhausted:
            self.is_partial = True
        self.effort.steps = max(self.effort.steps, FINAL_STEPS)
        with suppress(BudgetExhausted):
            self._satisfy(literal, row, result)
        self.effort.steps = 0
        return result

    def facts_of(self, keys: Iterable[Key]) -> Iterator[Fact]:
        """Yield every fact of these predicates that may be added."""
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

    def _satisfy(self, literal: Literal, row: Row, sets: MinimalSets) -> None:
        """Add to ``sets`` those under which a premise holds, according to the present content of the tables."""
        for state in self._assume_premise(literal, State(row), raw=None, progress=sets):
            for bound_state in self._bind_pending(state, visible=()):
                sets.add(bound_state.assumed)

    def _table(self, key: Key, pattern: Pattern) -> Table:
        """Return the table of a pattern, and register the table being filled as its reader."""
        table = self._tables.get((key, pattern))
        if table is None:
            table = self._tables[key, pattern] = Table(key, pattern)
            self._unfilled[table] = None
        if self._filling is not None:
            table.readers[self._filling] = None
        return table

    def _fill(self) -> None:
        """Fill the tables to the fixpoint."""
        while self._unfilled:
            self._filling = table = next(iter(self._unfilled))
            del self._unfilled[table]
            try:
                changed = self._fill_table(table)
            finally:
                self._filling = None
            if changed:
                self._unfilled.update(table.readers)

    def _fill_table(self, table: Table) -> bool:
        """Apply the rules of a table once; return whether the table changed."""
        progress = MinimalSets()
        changed = False
        merge = self.solver.predicate(table.key).merge
        for shape in self.prover.instances.shapes.get(table.key, ()):
            merged_column = None if merge is None else merge.column
            known = [i for i in shape.fixable if table.pattern[i] is not None and i != merged_column]
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
            if unpredictable:  # added facts may also remove rows of a group
                self._add_retractions(self._row_removers(shape), NO_FACTS, progress)
        if merge is not None:
            self._add_retractions(self.dependencies.retracting(table.key), NO_FACTS, progress)
        for assumed in progress:
            changed |= table.progress.add(assumed)
        return changed

    def _row_removers(self, shape: Shape) -> set[Key]:
        """Return the predicates whose new facts could remove rows of a body."""
        literals = [premise for _, premise in shape.relation_premises]
        removers = self.dependencies.needs(premise.atom.key for premise in literals if premise.negated)
        return removers.union(*(self.dependencies.retracting(premise.atom.key) for premise in literals))

    def _add_retractions(self, keys: set[Key], assumed: AssumedFacts, progress: MinimalSets) -> None:
        """Add to ``progress`` the assumed facts with each fact of these predicates that may be added."""
        for fact in self.facts_of(keys):
            extended = assumed | {fact}
            if self.fits(State({}, extended)):
                progress.add(extended)

    def _conclude(self, table: Table, shape: Shape, start: Row, state: State) -> bool:
        """Add the facts that a satisfied body derives to a table; return whether the table changed."""
        instances = self.prover.instances
        try:
            rows = [{**start, **derived.row} for derived in instances.apply_transforms(shape.rule, [state.row])]
            facts = [instances.head_fact(shape.rule, row) for row in rows]
        except EvalError:
            return False
        changed = False
        for fact in facts:
            if fact is not None and table.matches(fact) and not self._is_in_model(table.key, fact):
                changed |= table.answers.setdefault(fact, MinimalSets()).add(state.assumed)
        return changed

    def _is_in_model(self, key: Key, fact: TimedArgs) -> bool:
        args, interval = fact
        if interval is not None:
            return interval in self.solver.intervals(key, args, raw=True)
        return self.solver.contains(Fact(key[0], args))

    def _evaluate_body(self, shape: Shape, start: Row, progress: MinimalSets) -> list[State]:
        """Return the states after all premises of a rule, without pending premises."""
        raw = self.solver.raw_key_of(shape.rule)
        states = [State(start)]
        for premise in shape.rule.premises:
            states = _distinct(new for state in states for new in self._pass_premise(premise, state, raw, progress))
            self.effort.spend(len(states))
            if not states:
                return []
        transforms, head = shape.rule.clause.transforms, shape.rule.head
        visible = None if transforms else {v.name for v in term_variables(*head.args)}
        return _distinct(s for state in states for s in self._bind_pending(state, visible=visible))

    def _pass_premise(self, premise: Premise, state: State, raw: RawKey, progress: MinimalSets) -> Iterator[State]:
        """Yield the states after a premise that the model or assumptions satisfy."""
        reads_relation = isinstance(premise, Literal) and not premise.atom.predicate.startswith(":")
        for ready in self._bind_pending(state, self._needed(premise, state.row)):
            rows = self._rows_in_model(premise, ready.row, raw if reads_relation else None)
            self.effort.spend(len(rows))
            yield from (ready._replace(row=row) for row in rows)
            if not reads_relation:
                continue
            assert isinstance(premise, Literal)
            if not premise.negated:
                yield from self._assume_premise(premise, ready, raw, progress)
            elif not rows:
                self._add_retractions(self.dependencies.retracting(premise.atom.key), ready.assumed, progress)

    def _needed(self, premise: Premise, row: Row) -> set[str]:
        """Return the variables that must be bound before the premise is solved."""
        if isinstance(premise, Equality) and not premise.negated:
            for side, other in premise.directions:
                if isinstance(side, Variable) and side.name not in row:  # the premise binds the variable
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

    def _rows_in_model(self, premise: Premise, row: Row, raw: RawKey) -> list[Row]:
        """Return rows that satisfy a premise in the model; of too many, those with preferred values and the least."""
        own_row = {v.name: row[v.name] for v in premise_variables(premise) if v.name in row}
        cache_key = id(premise), tuple(own_row.items())
        if cache_key not in self._solved_rows:
            self._solved_rows[cache_key] = self._solve(premise, own_row, raw)
        return [{**row, **extension} for extension in self._solved_rows[cache_key]]

    def _solve(self, premise: Premise, row: Row, raw: RawKey) -> list[Row]:
        max_rows, preferred = self.candidates.max_rows, self.candidates.preferred
        if isinstance(premise, Literal) and self.solver.traits(premise).is_plain:
            matcher, facts = self.solver.look_up(premise, row, raw)
            if len(facts) > max_rows:
                self.is_partial = True
                names = [arg.name for _, arg in matcher.free if not arg.anonymous]
                starts = [{**row, name: value} for name in names for value in sorted(preferred, key=order_key)]
                solved = (self.solver.solutions(premise, start, raw, max_rows) for start in starts)
                rows = [{name: one[name] for name in (*row, *names)} for solutions in solved for one in solutions]
                return distinct_rows([*rows, *self.solver.solutions(premise, row, raw, max_rows)])[:max_rows]
        return satisfying_rows(self.solver, premise, row, raw)

    def _assume_premise(self, premise: Literal, state: State, raw: RawKey, progress: MinimalSets) -> Iterator[State]:
        key = premise.atom.key
        if key in self.candidates.keys:
            yield from self._assume_fact(premise, state, raw)
        if key in self.solver.rules or self.solver.predicate(key).merge is not None:
            yield from self._assume_derivation(premise, state, raw, progress)

    def fits(self, state: State) -> bool:
        """Return whether the state is within the budget; pending premises need at least one fact per predicate."""
        if len(state.assumed) <= self.budget and len(state.keys()) <= self.budget:
            return True
        self.exceeded_budget = True
        return False

    def _assume_fact(self, premise: Literal, state: State, raw: RawKey) -> Iterator[State]:
        if not self.solver.predicate(premise.atom.key).temporal:
            yield from self._postpone(PendingGoal(premise, interval=None), state)
            return
        try:
            intervals = intervals_for(premise, state.row, self.candidates)
        except ValueFault:
            return
        if not any(free_ends(premise, state.row)):
            for interval in intervals:
                pending = PendingGoal(premise, interval, smallest=interval == intervals[0])
                yield from self._postpone(pending, state)
            return
        for interval in intervals:
            for extended, fact in self._facts(PendingGoal(premise, interval), state):
                yield from self._match_intervals(premise, extended, fact.args, [(interval, extended.assumed)], raw)

    def _postpone(self, pending: PendingGoal, state: State) -> Iterator[State]:
        """Yield the state in which a premise is assumed; its free variables get values after other premises ran."""
        extended = state._replace(pending=(*state.pending, pending))
        if not self.fits(extended):
            return
        if any(isinstance(arg, Variable) and arg.name not in state.row for arg in pending.literal.atom.args):
            yield extended
        else:
            yield from (bound_state for bound_state, _ in self._facts(pending, state))

    def _bind_pending(
        self, state: State, names: Container[str] | None = None, *, visible: Container[str] | None = None
    ) -> Iterator[State]:
        """Yield the states in which facts replace pending premises; ``names``: only premises with these variables.

        ``visible`` are the variables whose values other premises or the head use; None for all.
        """
        for pending in state.pending:
            if names is None or any(name in names for name in pending.free_variables(state.row)):
                rest = state._replace(pending=tuple(p for p in state.pending if p is not pending))
                for bound_state, _ in self._facts(pending, rest, visible):
                    yield from self._bind_pending(bound_state, names, visible=visible)
                return
        yield state

    def _facts(
        self, pending: PendingGoal, state: State, visible: Container[str] | None = None
    ) -> Iterator[tuple[State, Fact]]:
        """Yield each fact that may be added and satisfies a premise, with the state in which it is assumed."""
        key, terms = pending.literal.atom.key, pending.literal.atom.args
        columns: list[tuple[Value, ...]] = []
        names: list[str] = []
        for position, term in enumerate(terms):
            if isinstance(term, Variable) and term.name not in state.row and (term.anonymous or term.name not in names):
                names.append(term.name)
                interchangeable = term.anonymous or (visible is not None and term.name not in visible)
                columns.append(self.candidates.column(key, position, interchangeable=interchangeable))
        for values in itertools.product(*columns):
            self.effort.spend()
            next_values = iter(values)
            row = dict(state.row)
            try:
                args = tuple(self._argument(term, row, next_values) for term in terms)
            except ValueFault:
                continue
            fact = Fact(key[0], args, pending.interval)
            if fact not in state.assumed and (not self.candidates.accepts(key, args) or self.solver.contains(fact)):
                continue
            extended = State(row, state.assumed | {fact}, state.pending)
            if self.fits(extended):
                if pending.smallest:
                    self.candidates.smallest_facts.add(fact)
                yield extended, fact

    def _argument(self, term: Term, row: Row, values: Iterator[Value]) -> Value:
        if isinstance(term, Variable) and term.name not in row:
            value = next(values)
            if not term.anonymous:
                row[term.name] = value
            return value
        return evaluate_term(term, row, self.solver.now)

    def _assume_derivation(self, premise: Literal, state: State, raw: RawKey, progress: MinimalSets) -> Iterator[State]:
        key = premise.atom.key
        matcher = Matcher(premise, state.row, self.solver.now)
        try:
            value_at = dict(zip((i for i, _ in matcher.known), matcher.key(state.row), strict=True))
        except ValueFault:
            return
        table = self._table(key, tuple(value_at.get(i) for i in range(key[1])))
        for assumed in table.progress:
            if self.fits(State({}, state.assumed | assumed)):
                progress.add(state.assumed | assumed)
        by_args: dict[Args, list[tuple[Interval | None, AssumedFacts]]] = {}
        for (args, interval), sets in table.answers.items():
            by_args.setdefault(args, []).extend((interval, assumed) for assumed in sets)
        for args, conclusions in by_args.items():
            if self.solver.predicate(key).temporal:
                timed = [(i, state.assumed | assumed) for i, assumed in conclusions if i is not None]
                yield from self._match_intervals(premise, state, args, timed, raw)
                continue
            row = matcher.match(state.row, args, interval=None)
            for _, assumed in conclusions:
                yield from self._assume(state, row, state.assumed | assumed)

    def _assume(self, state: State, row: Row | None, assumed: AssumedFacts) -> Iterator[State]:
        if row is not None and self.fits(extended := State(row, assumed, state.pending)):
            yield extended

    def _match_intervals(
        self, premise: Literal, state: State, args: Args, timed: list[tuple[Interval, AssumedFacts]], raw: RawKey
    ) -> Iterator[State]:
        """Yield the states in which the fact ``args`` with assumed intervals satisfies a premise.

        Unless the premise reads ``raw`` intervals, they are coalesced with one another and with those in the model.
        """
        matcher = Matcher(premise, state.row, self.solver.now)
        key = premise.atom.key
        if key == raw:
            for interval, assumed in timed:
                yield from self._assume(state, self._match(matcher, state, args, interval), assumed)
            return
        in_model = self.solver.intervals(key, args)
        for size in range(1, min(len(timed), self.budget) + 1):
            for combination in itertools.combinations(timed, size):
                assumed = frozenset().union(*(facts for _, facts in combination))
                if not self.fits(state._replace(assumed=assumed)):
                    continue
                for joined in coalesce([*in_model, *(interval for interval, _ in combination)]):
                    if joined not in in_model:
                        yield from self._assume(state, self._match(matcher, state, args, joined), assumed)

    def _match(self, matcher: Matcher, state: State, args: Args, interval: Interval) -> Row | None:
        try:
            if matcher.fact_key(args) != matcher.key(state.row):
                return None
            return matcher.match(state.row, args, interval)
        except ValueFault:
            return None
