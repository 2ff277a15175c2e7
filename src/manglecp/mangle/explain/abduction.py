"""Abduction: sets of facts that a conclusion lacks.

Rules are run backwards: a premise is satisfied by the model, by a fact that may be added, or by a conclusion from such
facts. The resulting sets have one property: if adding facts makes the goal true, they include one of these sets.

A negation that fails now must be repaired (``Repairs``). Where a value cannot be predicted (an aggregate, a merge), the
set ends there: it is progress, and after it has been added the search is repeated. Recursion is handled by tabling,
with one table per call pattern, filled to the fixpoint.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from manglecp.mangle.errors import EvalError, ValueFault
from manglecp.mangle.explain.candidates import (
    Assumed,
    Candidates,
    Effort,
    Exhausted,
    Pattern,
    Pending,
    Sets,
    State,
    Table,
    distinct,
    intervals_for,
)
from manglecp.mangle.explain.instances import Absence, Ground, Instance, Option, Support, demand, free_ends, useful
from manglecp.mangle.explain.proof import Prover
from manglecp.mangle.explain.search import LEAF
from manglecp.mangle.explain.shape import Shape
from manglecp.mangle.facts import Args, Fact, Interval, Timed, coalesce
from manglecp.mangle.matching import Matcher, Row, evaluate_term
from manglecp.mangle.program import Dependence
from manglecp.mangle.syntax import (
    Apply,
    Equality,
    Key,
    Literal,
    Premise,
    Variable,
    bound_variables,
    premise_variables,
    term_variables,
)
from manglecp.mangle.values import Value, order_key


# Non-monotonic effects: a fact disappears only if every proof is lost, so one proof is examined. Its weak points are
# negations, aggregates, merged values, and intervals whose ends were used.
@dataclass(frozen=True, slots=True)
class Denied:
    """A negation in the proof: the negated atom may become true."""

    literal: Literal
    row: Row


@dataclass(frozen=True, slots=True)
class Grouped:
    """An aggregate or a merged value: its group may get another row."""

    key: Key
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Ends:
    """An interval whose ends were used: it may grow."""

    fact: Fact


Weakness: TypeAlias = Denied | Grouped | Ends


class Repairs:
    def __init__(self, abduction: Abduction) -> None:
        self.abduction = abduction
        self.prover = abduction.prover
        self.solver = abduction.solver
        self._weaknesses: dict[Fact, list[Weakness]] = {}

    def may_go(self, key: Key) -> bool:
        return not self.abduction.dependence.upsetters(key).isdisjoint(self.abduction.candidates.keys)

    def negated(self, premise: Literal, state: State) -> Iterator[State]:
        """Yield the states in which a negation is true: as is, or under further assumptions."""
        against = self._against(premise, state.row)
        if not against:
            if not self._denied_by(premise, state):
                yield state
            return
        found: Sets | None = None
        for facts in against:  # each has to be retracted, so the one with the fewest ways restricts most
            ways = self._breaking(facts)
            if found is None or len(ways) < len(found):
                found = ways
        for one in found or ():
            new = state._replace(assumed=state.assumed | one)
            if self.abduction.fits(new):
                yield new

    def _denied_by(self, premise: Literal, state: State) -> bool:
        matcher = Matcher(premise, state.row, self.solver.now)
        wanted = matcher.key(state.row)
        return any(
            fact.key == premise.atom.key
            and matcher.fact_key(fact.args) == wanted
            and matcher.match(state.row, *fact.timed) is not None
            for fact in state.assumed
        )

    def _against(self, premise: Literal, row: Row) -> list[list[Fact]]:
        """For each match of a negated premise, return the facts it consists of."""
        key = premise.atom.key
        if self.solver.predicate(key).deferred:
            matcher = Matcher(premise, row, self.solver.now)
            wanted = matcher.key(row)
            inputs = dict(zip((i for i, _ in matcher.known), wanted, strict=True))
            answers = self.solver.ask(key, tuple(inputs[i] for i in self.solver.predicate(key).inputs()))
            matching = [a for a in answers if matcher.fact_key(a) == wanted and matcher.match(row, a, None) is not None]
            return [[Fact(key[0], args)] for args in matching]
        matcher, facts = self.solver.look_up(premise, row)
        found = []
        for args, joined in facts:
            if matcher.match(row, args, joined) is None:
                continue
            found.append([Fact(key[0], args)] if joined is None else self._pieces(premise, row, (args, joined)))
        return found

    def _pieces(self, premise: Literal, row: Row, fact: Timed) -> list[Fact]:
        """Return the intervals, as given and derived, that satisfy a temporal premise."""
        args, joined = fact
        assert joined is not None
        asked = demand(premise, row, joined, self.solver.now)
        raw = self.solver.intervals(premise.atom.key, args, raw=True)
        inside = [i for i in raw if joined[0] <= i[0] and i[1] <= joined[1]]
        pieces = [(i, Fact(premise.atom.predicate, args, i)) for i in inside]
        option = Option(tuple(f for _, f in useful(asked, pieces)), asked)
        self.prover.prove(list(option.facts))
        return list(self.prover.search.cheapest([option]) or ())

    def _breaking(self, facts: list[Fact]) -> Sets:
        """Return the sets of assumptions that could break the joint proof of some facts."""
        found = Sets()
        for fact in facts:
            if self.may_go(fact.key):
                for weakness in self._weak(fact):
                    self._use(weakness, found)
        return found

    def _weak(self, goal: Fact) -> list[Weakness]:
        found = self._weaknesses.get(goal)
        if found is None:
            self.prover.prove([goal])
            found = self._weaknesses[goal] = list(self._collect([goal]))
        return found

    def _collect(self, goals: list[Fact]) -> Iterator[Weakness]:
        best = self.prover.search.best
        stack, seen = list(goals), set(goals)
        while stack:
            fact = stack.pop()
            choice = best[fact]
            if choice is LEAF:
                continue
            if self.solver.predicate(fact.key).merge is not None:
                yield self._group(fact)
            if choice.instance is not None:
                yield from self._in_instance(fact, choice.instance)
            new = [premise for premise in choice.premises if premise not in seen]
            seen.update(new)
            stack += new

    def _in_instance(self, fact: Fact, instance: Instance) -> Iterator[Weakness]:
        if instance.shape.rule.clause.aggregates:
            yield self._group(fact, instance.shape)
        yield from self._in_grounds(instance.grounds)

    def _in_grounds(self, grounds: tuple[Ground, ...]) -> Iterator[Weakness]:
        for ground in grounds:
            if isinstance(ground, Absence):
                yield Denied(replace(ground.literal, negated=False), ground.row)
                continue
            for option in ground.options:
                if option.asked.loose and option.asked.whole is not None:
                    yield Ends(option.facts[0]._replace(interval=option.asked.whole))

    def _group(self, fact: Fact, shape: Shape | None = None) -> Grouped:
        merge = self.solver.predicate(fact.key).merge
        known: set[int] = set(range(fact.key[1])) - ({merge.column} if merge is not None else set())
        if shape is not None:
            known = {i for i in shape.fixable if isinstance(shape.rule.head.args[i], Variable)}
        return Grouped(fact.key, tuple(v if i in known else None for i, v in enumerate(fact.args)))

    def _use(self, weakness: Weakness, found: Sets) -> None:
        if isinstance(weakness, Denied):
            self.abduction.satisfy(weakness.literal, weakness.row, found)
        elif isinstance(weakness, Grouped):
            for one in self.abduction.table(weakness.key, weakness.pattern).progress:
                found.add(one)
        else:
            self._growing(weakness.fact, found)

    def _growing(self, fact: Fact, found: Sets) -> None:
        assert fact.interval is not None
        first, last = fact.interval

        def grows(interval: Interval | None) -> bool:
            return interval is not None and interval[0] <= last + 1 and first - 1 <= interval[1]

        candidates = self.abduction.candidates
        if candidates.accepts(fact.key, fact.args):
            for interval in filter(grows, candidates.intervals):
                added = fact._replace(interval=interval)
                if not self.solver.contains(added):
                    found.add(frozenset({added}))
        if fact.key in self.solver.rules:
            for (_, at), sets in self.abduction.table(fact.key, fact.args).answers.items():
                if grows(at):
                    for one in sets:
                        found.add(one)

    def lost_rows(self, shape: Shape, start: Row, found: Sets) -> None:
        """Add assumptions that remove a row of an aggregate or a value of a merge."""
        if not self._may_lose(shape):
            return
        try:
            derived = [d for rows in self.prover.instances.heads(shape, start).values() for d in rows]
        except EvalError:
            return
        for one in derived:
            instance = self.prover.instances.instance(shape, one, start)
            for weakness in self._in_grounds(instance.grounds):
                self._use(weakness, found)
            for ground in instance.grounds:
                if isinstance(ground, Support):
                    facts = [fact for option in ground.options for fact in option.facts]
                    self.prover.prove(facts)
                    for way in self._breaking(list(self.prover.search.cheapest(ground.options) or ())):
                        found.add(way)

    def _may_lose(self, shape: Shape) -> bool:
        keys = self.abduction.candidates.keys
        needs = self.abduction.dependence.needs
        for premise in shape.rule.premises:
            if isinstance(premise, Literal) and not premise.atom.predicate.startswith(":"):
                if premise.negated and not needs([premise.atom.key]).isdisjoint(keys):
                    return True
                if self.may_go(premise.atom.key):
                    return True
        return False

    def merges(self, table: Table, found: Sets) -> None:
        """Add assumptions that change a merged value: an added fact, or another merge."""
        predicate = self.solver.predicate(table.key)
        merge = predicate.merge
        assert merge is not None
        pattern = tuple(None if i == merge.column else value for i, value in enumerate(table.pattern))
        self._any(table.key, pattern, found)
        for key in self.abduction.dependence.needs([merge.predicate]):
            self._any(key, (None,) * key[1], found)

    def _any(self, key: Key, pattern: Pattern, found: Sets) -> None:
        candidates = self.abduction.candidates
        if key not in candidates.keys:
            return
        columns = [candidates.column(key, i) if known is None else (known,) for i, known in enumerate(pattern)]
        intervals = candidates.intervals if self.solver.predicate(key).temporal else (None,)
        for args, interval in itertools.product(itertools.product(*columns), intervals):
            self.abduction.effort.spend()
            fact = Fact(key[0], args, interval)
            if candidates.accepts(key, args) and not self.solver.contains(fact):
                found.add(frozenset({fact}))

    def upset(self, keys: set[Key]) -> Sets:
        """Return every fact of some predicates; the fallback if nothing more specific is known."""
        found = Sets()
        for key in sorted(keys):
            self._any(key, (None,) * key[1], found)
        return found


AFTERWARDS: Final = 10_000  # steps to collect partial results after the budget of steps is spent


class Abduction:
    """Abductive queries to one model with at most ``budget`` assumptions."""

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
        self.cut = False  # whether a set was left out because it needs more assumptions
        self.repairs = Repairs(self)
        self._tables: dict[tuple[Key, Pattern], Table] = {}
        self._dirty: dict[Table, None] = {}
        self._reader: Table | None = None

    def ask(self, literal: Literal, row: Row) -> Sets:
        """Return sets of assumptions under which a positive premise holds.

        Out of steps, ``exhausted`` is set and the result is partial.
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
        for state in self._not_yet(literal, State(row), None, found):
            for done in self._ground(state):
                found.add(done.assumed)

    def table(self, key: Key, pattern: Pattern) -> Table:
        """Return the table of a pattern, and register the table being filled as its reader."""
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

    def _walk(self, shape: Shape, start: Row, progress: Sets) -> list[State]:
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
        preferred = self.candidates.preferred
        return heapq.nsmallest(
            most,
            rows,
            key=lambda row: (preferred.isdisjoint(row.values()), [order_key(row[name]) for name in sorted(row)]),
        )

    def _not_yet(self, premise: Literal, state: State, raw: Key | None, progress: Sets) -> Iterator[State]:
        key = premise.atom.key
        if key in self.candidates.keys:
            yield from self._added(premise, state, raw)
        if key in self.solver.rules or self.solver.predicate(key).merge is not None:
            yield from self._derived(premise, state, raw, progress)

    def fits(self, state: State) -> bool:
        """Return whether the state is within the budget; pending premises need at least one fact per predicate."""
        if len(state.assumed) <= self.budget and len(state.keys()) <= self.budget:
            return True
        self.cut = True
        return False

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
        """Assume a premise; its variables are assigned after other premises have run."""
        new = state._replace(pending=(*state.pending, pending))
        if not self.fits(new):
            return
        open_ = any(isinstance(arg, Variable) and arg.name not in state.row for arg in pending.literal.atom.args)
        yield from [new] if open_ else self._assign(pending, state)

    def _force(self, state: State, names: set[str]) -> Iterator[State]:
        waiting = next((p for p in state.pending if not names.isdisjoint(p.free(state.row))), None)
        if waiting is None:
            yield state
            return
        rest = state._replace(pending=tuple(p for p in state.pending if p is not waiting))
        for new in self._assign(waiting, rest):
            yield from self._force(new, names)

    def _ground(self, state: State, told: Container[str] | None = ()) -> Iterator[State]:
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
        """Yield the states in which an addable fact satisfies a premise, with that fact.

        ``told`` are variables whose values matter to others; None if all may.
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
        """Match a temporal fact with new intervals: alone, or coalesced with each other and the present ones."""
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
