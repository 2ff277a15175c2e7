"""How more facts can take a conclusion away, and so make a negation true.

A fact that is to go must lose every proof, so it is enough to look at one: something in that proof must change for the
worse. Given facts stay. What can change is a negation that holds in it (what it denies may be made true), an aggregate
(its group may get another row), a merged value, and an interval whose ends were used (it may grow).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from manglecp.mangle.errors import EvalError
from manglecp.mangle.explain.covers import demand, useful
from manglecp.mangle.explain.hypotheses import Pattern, Sets, State, Table
from manglecp.mangle.explain.instances import Absence, Ground, Instance, Option, Support
from manglecp.mangle.explain.search import LEAF
from manglecp.mangle.explain.shape import Shape
from manglecp.mangle.facts import Fact
from manglecp.mangle.intervals import Interval
from manglecp.mangle.matching import Matcher, Row, Timed
from manglecp.mangle.packages import Key
from manglecp.mangle.syntax import Literal, Variable

if TYPE_CHECKING:
    from .abduction import Abduction


@dataclass(frozen=True, slots=True)
class Denied:
    """A negation in the proof: what it denies may become true."""

    literal: Literal
    row: Row


@dataclass(frozen=True, slots=True)
class Grouped:
    """An aggregate or a merged value: another row, another value."""

    key: Key
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Ends:
    """An interval whose ends were used: it may grow."""

    fact: Fact


Weakness: TypeAlias = Denied | Grouped | Ends


class Repairs:
    """For one search of what would unlock a fact."""

    def __init__(self, abduction: Abduction) -> None:
        self.abduction = abduction
        self.prover = abduction.prover
        self.solver = abduction.solver
        self._weaknesses: dict[Fact, list[Weakness]] = {}

    def may_go(self, key: Key) -> bool:
        """Can added facts take facts of a predicate away at all?"""
        return not self.abduction.dependence.upsetters(key).isdisjoint(self.abduction.candidates.keys)

    def negated(self, premise: Literal, state: State) -> Iterator[State]:
        """The states in which a negation is true: as it stands, or because of further assumptions."""
        against = self._against(premise, state.row)
        if not against:
            if not self._denied_by(premise, state):
                yield state
            return
        found: Sets | None = None
        for facts in against:  # each of them has to go, so the one that is hardest to remove tells most
            ways = self._breaking(facts)
            if found is None or len(ways) < len(found):
                found = ways
        for one in found or ():
            new = state._replace(assumed=state.assumed | one)
            if self.abduction.fits(new):
                yield new

    def _denied_by(self, premise: Literal, state: State) -> bool:
        """Does an assumption itself contradict the negation?"""
        matcher = Matcher(premise, state.row, self.solver.now)
        wanted = matcher.key(state.row)
        return any(
            fact.key == premise.atom.key
            and matcher.fact_key(fact.args) == wanted
            and matcher.match(state.row, *fact.timed) is not None
            for fact in state.assumed
        )

    def _against(self, premise: Literal, row: Row) -> list[list[Fact]]:
        """For each match of a negated premise, the facts that make it up."""
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
        """The intervals, as given and derived, that satisfy a premise about time."""
        args, joined = fact
        assert joined is not None
        asked = demand(premise, row, joined, self.solver.now)
        raw = self.solver.intervals(premise.atom.key, args, raw=True)
        inside = [i for i in raw if joined[0] <= i[0] and i[1] <= joined[1]]
        pieces = [(i, Fact(premise.atom.predicate, args, i)) for i in inside]
        option = Option(tuple(f for _, f in useful(asked, pieces)), asked)
        self.prover.prove(list(option.facts))
        return list(self.prover.search.cheapest([option]) or ())

    # --- one proof -------------------------------------------------------------------------------------------------

    def _breaking(self, facts: list[Fact]) -> Sets:
        """What could break the proof of some facts that hold together."""
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
        """The group a fact belongs to: its keys are known, its value is not."""
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
        """Intervals of the same fact that touch the one it has and reach beyond it."""
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

    # --- groups and merges -----------------------------------------------------------------------------------------

    def lost_rows(self, shape: Shape, start: Row, found: Sets) -> None:
        """What could take a row away from an aggregate, or a value from a merge."""
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
        """What else could change a merged value: a fact that is added, or another way to merge."""
        predicate = self.solver.predicate(table.key)
        merge = predicate.merge
        assert merge is not None
        pattern = tuple(None if i == merge.column else value for i, value in enumerate(table.pattern))
        self._any(table.key, pattern, found)
        for key in self.abduction.dependence.needs([merge.predicate]):
            self._any(key, (None,) * key[1], found)

    def _any(self, key: Key, pattern: Pattern, found: Sets) -> None:
        """Every fact of a predicate that may be added."""
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
        """Every fact of some predicates: the last resort, when all that is known is that something must change."""
        found = Sets()
        for key in sorted(keys):
            self._any(key, (None,) * key[1], found)
        return found
