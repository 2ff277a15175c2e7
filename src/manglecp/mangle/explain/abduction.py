"""Which facts a conclusion lacks.

The rules are run backwards with leave to assume: a premise is satisfied by the model, or by a fact that may be added,
or by a conclusion from such facts. What comes out are sets of assumptions with one property that everything rests on:

    if adding some facts makes the question true, they include one of these sets.

A proof in the larger model shows why. Each of its premises holds in the model as it is and costs nothing; or was added,
and is assumed; or was derived, and the argument repeats itself below. A negation that fails now must have been repaired
(:mod:`.repairs`). Where a value cannot be foreseen (an aggregate, a merge), the set ends there: it is progress, not yet
an answer; after it has been added the question is asked again.

Recursion is met with tables, one for each pattern of a predicate, filled until nothing changes.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Container, Iterator
from contextlib import suppress
from typing import Final

from manglecp.mangle.errors import EvalError, ValueFault
from manglecp.mangle.explain.candidates import Candidates
from manglecp.mangle.explain.covers import free_ends
from manglecp.mangle.explain.dependence import Dependence
from manglecp.mangle.explain.hypotheses import (
    Assumed,
    Effort,
    Exhausted,
    Pattern,
    Pending,
    Sets,
    State,
    Table,
    distinct,
)
from manglecp.mangle.explain.prover import Prover
from manglecp.mangle.explain.repairs import Repairs
from manglecp.mangle.explain.shape import Shape
from manglecp.mangle.explain.timing import intervals_for
from manglecp.mangle.facts import Fact
from manglecp.mangle.intervals import Interval, coalesce
from manglecp.mangle.matching import Args, Matcher, Row, Timed
from manglecp.mangle.packages import Key
from manglecp.mangle.syntax import (
    Apply,
    Equality,
    Literal,
    Premise,
    Variable,
    bound_variables,
    premise_variables,
    term_variables,
)
from manglecp.mangle.terms import evaluate_term
from manglecp.mangle.values import Value, order_key

AFTERWARDS: Final = 10_000
"""Steps to collect what was found, when all others are spent."""


class Abduction:
    """Questions to one model, answered with at most ``budget`` assumptions."""

    def __init__(
        self, prover: Prover, candidates: Candidates, dependence: Dependence, budget: int, effort: Effort
    ) -> None:
        self.prover = prover
        self.solver = prover.solver
        self.candidates = candidates
        self.dependence = dependence
        self.budget = budget
        self.effort = effort
        self.exhausted = False
        self.cut = False
        """Was something left out because it needs more assumptions?"""
        self.repairs = Repairs(self)
        self._tables: dict[tuple[Key, Pattern], Table] = {}
        self._dirty: dict[Table, None] = {}
        self._reader: Table | None = None

    def ask(self, literal: Literal, row: Row) -> Sets:
        """What would have to be added for a positive premise to hold that does not.

        If the effort is not enough, what was found until then; ``exhausted`` says so.
        """
        found = Sets()
        try:
            while True:
                found = Sets()
                self.satisfy(literal, row, found)
                if not self._dirty:
                    return found
                self._fill()
        except Exhausted:
            self.exhausted = True
        self.effort.steps = max(self.effort.steps, AFTERWARDS)
        with suppress(Exhausted):
            self.satisfy(literal, row, found)
        self.effort.steps = 0
        return found

    def satisfy(self, literal: Literal, row: Row, found: Sets) -> None:
        """As :meth:`ask`, with the tables as they are."""
        for state in self._not_yet(literal, State(row), None, found):
            for done in self._ground(state):
                found.add(done.assumed)

    # --- tables ----------------------------------------------------------------------------------------------------

    def table(self, key: Key, pattern: Pattern) -> Table:
        """The table of a pattern; whoever is being filled hears of its changes."""
        table = self._tables.get((key, pattern))
        if table is None:
            table = self._tables[key, pattern] = Table(key, pattern)
            self._dirty[table] = None
        if self._reader is not None:
            table.readers.add(self._reader)
        return table

    def _fill(self) -> None:
        while self._dirty:
            table = next(iter(self._dirty))
            del self._dirty[table]
            self._reader = table
            try:
                changed = self._fill_one(table)
            finally:
                self._reader = None
            if changed:
                self._dirty.update(dict.fromkeys(table.readers))

    def _fill_one(self, table: Table) -> bool:
        progress = Sets()
        changed = False
        merged = self.solver.predicate(table.key).merge is not None
        for shape in self.prover.instances.shapes.get(table.key, ()):
            known = [
                i for i in shape.fixable if table.pattern[i] is not None and not (merged and self._merges(table, i))
            ]
            start = shape.fix(known, [table.pattern[i] for i in known])
            if start is None:
                continue
            unforeseen = merged or shape.rule.clause.aggregates
            for state in self._walk(shape, start, progress):
                if not state.assumed:
                    continue
                if unforeseen:
                    progress.add(state.assumed)
                else:
                    changed |= self._conclude(table, shape, start, state)
            if unforeseen:
                self.repairs.lost_rows(shape, start, progress)
        if merged:
            self.repairs.merges(table, progress)
        for one in progress:
            changed |= table.progress.add(one)
        return changed

    def _merges(self, table: Table, position: int) -> bool:
        merge = self.solver.predicate(table.key).merge
        return merge is not None and merge.column == position

    def _conclude(self, table: Table, shape: Shape, start: Row, state: State) -> bool:
        """Enter what a row derives, unless it holds anyway."""
        instances = self.prover.instances
        try:
            facts = [
                instances.head(shape.rule, {**start, **d.row}) for d in instances.transformed(shape.rule, [state.row])
            ]
        except EvalError:
            return False
        changed = False
        for fact in facts:
            if fact is not None and table.agrees(fact) and not self._is_known(table.key, fact):
                changed |= table.answers.setdefault(fact, Sets()).add(state.assumed)
        return changed

    def _is_known(self, key: Key, fact: Timed) -> bool:
        args, interval = fact
        if interval is not None:
            return interval in self.solver.intervals(key, args, raw=True)
        return self.solver.contains(Fact(key[0], args))

    # --- bodies ----------------------------------------------------------------------------------------------------

    def _walk(self, shape: Shape, start: Row, progress: Sets) -> list[State]:
        """The rows that satisfy a body under assumptions, with or without."""
        raw = self.solver.reads_raw(shape.rule)
        states = [State(start)]
        for premise in shape.rule.premises:
            states = distinct(new for state in states for new in self._through(premise, state, raw, progress))
            self.effort.spend(len(states))
            if not states:
                return []
        told = (
            None if shape.rule.clause.transforms else {v.name for a in shape.rule.head.args for v in term_variables(a)}
        )
        return distinct(done for state in states for done in self._ground(state, told))

    def _through(self, premise: Premise, state: State, raw: Key | None, progress: Sets) -> Iterator[State]:
        for ready in self._force(state, self._needed(premise, state.row)):
            if not isinstance(premise, Literal) or premise.atom.predicate.startswith(":"):
                yield from (ready._replace(row=row) for row in self._true(premise, ready.row, None))
            elif premise.negated:
                yield from self.repairs.negated(premise, ready)
            else:
                yield from (ready._replace(row=row) for row in self._true(premise, ready.row, raw))
                yield from self._not_yet(premise, ready, raw, progress)

    def _needed(self, premise: Premise, row: Row) -> set[str]:
        """Variables that must have a value before the premise runs, though some fact is still to give it."""
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

    def _true(self, premise: Premise, row: Row, raw: Key | None) -> list[Row]:
        """What the model makes of a premise. A row that cannot be evaluated is part of no proof."""
        before, self.solver.raw = self.solver.raw, raw
        try:
            rows = self.solver.solve(premise, row)
        except (ValueFault, EvalError):
            return []
        finally:
            self.solver.raw = before
        most = self.candidates.most_rows
        if most is None or len(rows) <= most:
            return rows
        self.exhausted = True
        return heapq.nsmallest(most, rows, key=self._interest)

    def _interest(self, row: Row) -> tuple[bool, list[object]]:
        """The same whatever the order of the model's facts."""
        return self.candidates.preferred.isdisjoint(row.values()), [order_key(row[name]) for name in sorted(row)]

    def _not_yet(self, premise: Literal, state: State, raw: Key | None, progress: Sets) -> Iterator[State]:
        """A positive premise satisfied by what is not in the model."""
        key = premise.atom.key
        if key in self.candidates.keys:
            yield from self._added(premise, state, raw)
        if key in self.solver.rules or self.solver.predicate(key).merge is not None:
            yield from self._derived(premise, state, raw, progress)

    def fits(self, state: State) -> bool:
        """Is it within the budget? There are at least as many facts as predicates that want one."""
        if len(state.assumed) <= self.budget and len(state.keys()) <= self.budget:
            return True
        self.cut = True
        return False

    # --- facts that are added --------------------------------------------------------------------------------------

    def _added(self, premise: Literal, state: State, raw: Key | None) -> Iterator[State]:
        if not self.solver.predicate(premise.atom.key).temporal:
            yield from self._postpone(Pending(premise, None), state)
            return
        try:
            intervals = intervals_for(premise, state.row, self.candidates)
        except ValueFault:
            return
        if not any(free_ends(premise, state.row)):
            for interval in intervals:
                yield from self._postpone(Pending(premise, interval, interval == intervals[0]), state)
            return
        for interval in intervals:
            for new, fact in self._facts(Pending(premise, interval), state):
                yield from self._at(premise, new, fact.args, [(interval, new.assumed)], raw)

    def _postpone(self, pending: Pending, state: State) -> Iterator[State]:
        """Assume a premise; its variables get values when other premises have had their say."""
        new = state._replace(pending=(*state.pending, pending))
        if not self.fits(new):
            return
        open_ = any(isinstance(arg, Variable) and arg.name not in state.row for arg in pending.literal.atom.args)
        yield from [new] if open_ else self._assign(pending, state)

    def _force(self, state: State, names: set[str]) -> Iterator[State]:
        """Give values to variables that an assumption has left open."""
        waiting = next((p for p in state.pending if not names.isdisjoint(p.free(state.row))), None)
        if waiting is None:
            yield state
            return
        rest = state._replace(pending=tuple(p for p in state.pending if p is not waiting))
        for new in self._assign(waiting, rest):
            yield from self._force(new, names)

    def _ground(self, state: State, told: Container[str] | None = ()) -> Iterator[State]:
        """Give values to everything that is still open."""
        if not state.pending:
            yield state
            return
        for new in self._assign(state.pending[0], state._replace(pending=state.pending[1:]), told):
            yield from self._ground(new, told)

    def _assign(self, pending: Pending, state: State, told: Container[str] | None = None) -> Iterator[State]:
        return (new for new, _ in self._facts(pending, state, told))

    def _facts(
        self, pending: Pending, state: State, told: Container[str] | None = None
    ) -> Iterator[tuple[State, Fact]]:
        """The states in which a premise is satisfied by a fact that may be added, with that fact.

        ``told`` are the variables whose values matter to others; None if all may.
        """
        key, terms = pending.literal.atom.key, pending.literal.atom.args
        choices: list[tuple[Value, ...]] = []
        names: list[str] = []
        for position, term in enumerate(terms):
            if isinstance(term, Variable) and term.name not in state.row and (term.anonymous or term.name not in names):
                names.append(term.name)
                alike = term.anonymous or (told is not None and term.name not in told)
                choices.append(self.candidates.column(key, position, alike=alike))
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
                if pending.dictated:
                    self.candidates.dictated.add(fact)
                yield new, fact

    def _argument(self, term: object, row: Row, values: Iterator[Value]) -> Value:
        if isinstance(term, Variable) and term.name not in row:
            value = next(values)
            if not term.anonymous:
                row[term.name] = value
            return value
        return evaluate_term(term, row, self.solver.now)  # type: ignore[arg-type]

    # --- conclusions from facts that are added ---------------------------------------------------------------------

    def _derived(self, premise: Literal, state: State, raw: Key | None, progress: Sets) -> Iterator[State]:
        key = premise.atom.key
        matcher = Matcher(premise, state.row, self.solver.now)
        try:
            known = dict(zip((i for i, _ in matcher.known), matcher.key(state.row), strict=True))
        except ValueFault:
            return
        table = self.table(key, tuple(known.get(i) for i in range(key[1])))
        for one in table.progress:
            if self.fits(state._replace(assumed=state.assumed | one, pending=())):
                progress.add(state.assumed | one)
        by_args: dict[Args, list[tuple[Interval | None, Assumed]]] = {}
        for (args, interval), sets in table.answers.items():
            by_args.setdefault(args, []).extend((interval, one) for one in sets)
        for args, found in by_args.items():
            if self.solver.predicate(key).temporal:
                timed = [(i, state.assumed | one) for i, one in found if i is not None]
                yield from self._at(premise, state, args, timed, raw)
                continue
            row = matcher.match(state.row, args, None)
            for _, one in found if row is not None else ():
                yield from self._assume(state, row, state.assumed | one)

    def _assume(self, state: State, row: Row | None, assumed: Assumed) -> Iterator[State]:
        new = State(row or {}, assumed, state.pending)
        if row is not None and self.fits(new):
            yield new

    def _at(
        self, premise: Literal, state: State, args: Args, found: list[tuple[Interval, Assumed]], raw: Key | None
    ) -> Iterator[State]:
        """A temporal fact with intervals that are new: alone, or joined with each other and with those it has."""
        matcher = Matcher(premise, state.row, self.solver.now)
        key = premise.atom.key
        if key == raw:
            for interval, assumed in found:
                yield from self._assume(state, self._match(matcher, state, args, interval), assumed)
            return
        present = self.solver.intervals(key, args)
        for size in range(1, min(len(found), self.budget) + 1):
            for some in itertools.combinations(found, size):
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
