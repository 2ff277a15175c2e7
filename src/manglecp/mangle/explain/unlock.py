"""The smallest sets of facts that make a fact hold when they are added.

Sets of one fact are tried first, then of two, then of three. A set that fails is extended by abduction over the model
with the set added; a set that breaks the program is extended only by facts that could repair it. If abduction is more
expensive than trying every set (a dense closure), every set is tried. Every result was evaluated.
"""

from __future__ import annotations

import itertools
import math
import typing
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from manglecp.mangle.errors import EvalError, LimitError
from manglecp.mangle.explain.abduction import Abduction
from manglecp.mangle.explain.candidates import NOTHING, Assumed, Candidates, Effort, Exhausted, Sets, Typing
from manglecp.mangle.explain.proof import Prover
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.facts import Fact, Interval, Timed
from manglecp.mangle.matching import Row
from manglecp.mangle.model import EvaluatedModel, Index, Limits, Origin, Relation, program_facts, violations
from manglecp.mangle.naive import NaiveEvaluation, Solving
from manglecp.mangle.printer import instant_text
from manglecp.mangle.program import Dependence, Rule
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Annotation, Atom, Key, Literal, Premise, TimeBound, Variable
from manglecp.mangle.values import INT_MAX, INT_MIN, Time

# Only what depends on the new facts is evaluated again. Monotonic components continue from their present conclusions.
ROOM: Final = 20_000  # facts that a trial may derive beyond the model

Outcome: TypeAlias = typing.Literal["done", "broken", "stopped"]


class Lack(NamedTuple):
    """A missing atom of an inclusion constraint, with its bindings."""

    atom: Atom
    row: Row
    annotation: Annotation | None = None


class Ground:
    def __init__(self, solver: Finished, dependence: Dependence) -> None:
        self.solver = solver
        self.dependence = dependence
        self._given: dict[Key, list[Timed]] = {}
        self._derived: dict[Key, int] = {}
        self._stated: dict[Key, set[Timed]] = {}
        for fact in program_facts(solver.program, solver.now):
            self._stated.setdefault(fact.key, set()).add(fact.timed)

    def given(self, key: Key) -> list[Timed]:
        found = self._given.get(key)
        if found is None:
            facts = dict.fromkeys(f for f in self.solver.model.derived(key) if self.solver.given(Fact(key[0], *f)))
            facts.update(dict.fromkeys(self._stated.get(key, ())))
            found = self._given[key] = list(facts)
        return found

    @cached_property
    def count(self) -> int:
        return sum(map(self.derived, self.solver.program.predicates))

    def derived(self, key: Key) -> int:
        if key not in self.solver.rules and self.solver.predicate(key).merge is None:
            return 0
        count = self._derived.get(key)
        if count is None:
            count = self.solver.model.count_derived(key)
            if count is None:
                given = set(self.given(key))
                count = sum(1 for fact in self.solver.model.derived(key) if fact not in given)
            self._derived[key] = count
        return count


class Trial(NaiveEvaluation):
    """The evaluation of a model with facts added, restricted to ``scope`` (None: everything)."""

    def __init__(self, ground: Ground, added: Iterable[Fact], scope: set[Key] | None = None) -> None:
        base = ground.solver
        super().__init__(base.program, base.now, base.limits)
        self.ground = ground
        self.base = base
        self.added = frozenset(added)
        self.scope = scope
        self.affected = ground.dependence.affects({fact.key for fact in self.added})
        self.at: Rule | None = None  # the rule that was being applied when the evaluation failed
        self.lacks: list[Lack] = []
        self.outcome: Outcome = self._try()

    def _try(self) -> Outcome:
        inside = [key for key in self.affected if self.scope is None or key in self.scope]
        if self.scope is None:
            self.derived = self.ground.count - sum(map(self.ground.derived, self.affected))
        limit = self.base.limits.derived_facts
        enough = self.derived + sum(map(self.ground.derived, inside)) + ROOM
        self.limits = replace(self.base.limits, derived_facts=min(limit, enough))
        try:
            self._load(inside)
            for component in self.program.components:
                if not self.affected.isdisjoint(component.predicates) and (
                    self.scope is None or not self.scope.isdisjoint(component.predicates)
                ):
                    self.component(component)
            if self.scope is None:
                self.at = None
                self._constraints()
        except LimitError:
            return "stopped" if self.limits.derived_facts < limit else "broken"
        except EvalError:
            return "broken"
        return "done"

    def _load(self, keys: Iterable[Key]) -> None:
        for key in keys:
            for fact in self.ground.given(key):
                self.relation(key).add(*fact)
        for added in self.added:
            self.relation(added.key).add(*added.timed)
        for key in keys:
            if key not in self.rules and self.predicate(key).merge is None:
                self._finish(key)

    def component(self, component: Component) -> None:
        if self._only_grows(component):
            for key in component.predicates:
                relation = self.relation(key)
                for fact in self.base.model.derived(key):
                    self.derived += relation.add(*fact)
        super().component(component)

    def _only_grows(self, component: Component) -> bool:
        """Return whether every rule reads the affected predicates without negation, aggregation and time."""
        for key in component.predicates:
            predicate = self.predicate(key)
            if predicate.merge is not None or predicate.deferred or predicate.temporal:
                return False
            if any(self.ground.dependence.upsetters(key) & self.affected):
                return False
        return True

    def _apply(self, rule: Rule) -> list[Timed]:
        self.at = rule
        return super()._apply(rule)

    def relation(self, key: Key) -> Relation:
        return super().relation(key) if key in self.affected else self.base.relation(key)

    def _solve(self, premise: Premise, rows: list[Row]) -> Solving:
        if rows and self.base.is_stored(premise):
            assert isinstance(premise, Literal)
            if premise.atom.key not in self.affected:
                return (yield from self.base._solve(premise, rows))
        return (yield from super()._solve(premise, rows))

    def _constraints(self) -> None:
        self.answers.clear()
        concerned = {
            predicate.key
            for predicate in self.program.predicates.values()
            if predicate.key in self.affected or any(atom.key in self.affected for atom in predicate.inclusion)
        }
        for key in sorted(concerned):
            predicate = self.predicate(key)
            if not predicate.inclusion or predicate.decl is None:
                continue
            names = [arg.name if isinstance(arg, Variable) else "_" for arg in predicate.decl.atom.args]
            for args, _ in self.relation(key):
                row = {name: value for name, value in zip(names, args, strict=True) if name != "_"}
                self.lacks += [Lack(atom, row) for atom in predicate.inclusion if not self.holds(atom, row)]
        broken = [
            v for key in sorted(concerned) for v in violations(self.predicate(key), self.relation(key), self.holds)
        ]
        if broken:
            raise EvalError(broken)

    def contains(self, fact: Fact) -> bool:
        if self.predicate(fact.key).deferred:
            return Finished(TrialModel(self)).contains(fact)
        if fact.key not in self.affected:
            return self.base.contains(fact)
        intervals = (self.relation(fact.key).finished or {}).get(fact.args, ())
        if fact.interval is None:
            return bool(intervals)
        start, end = fact.interval
        return any(at is not None and at[0] <= start and end <= at[1] for at in intervals)


class TrialModel(EvaluatedModel):
    """A completed trial as a model."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.program, trial.now, trial.base.limits, {})
        self.trial = trial
        self.model = trial.base.model

    def facts(self, key: Key) -> Iterable[Timed]:
        return self.trial.relation(key) if key in self.trial.affected else self.model.facts(key)

    def stored_as_derived(self, key: Key) -> Iterable[Timed]:
        if key not in self.trial.affected:
            return self.model.derived(key)
        facts = self.trial.relation(key).facts
        return ((args, interval) for args, intervals in facts.items() for interval in intervals)

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index | None:
        return None if key in self.trial.affected else self.model.index(key, positions, raw=raw)

    def count_derived(self, key: Key) -> int | None:
        return None if key in self.trial.affected else self.model.count_derived(key)

    def with_facts(self, added: Iterable[Fact], limits: Limits) -> EvaluatedModel:
        return self.model.with_facts((*self.trial.added, *added), limits)

    def origin(self, fact: Fact) -> Origin | None:
        return "given" if fact in self.trial.added else self.model.origin(fact)


MOST_FACTS: Final = 3
MOST_TRIES: Final = 10_000
MUCH_ROOM: Final = 1_000_000  # facts that the first trial may derive beyond the model
STEPS_PER_TRY: Final = 10  # steps of abduction per trial


@dataclass(frozen=True, slots=True)
class Unlocked:
    """The smallest sets found, each sorted by text; ``complete`` if there are no others."""

    sets: tuple[tuple[Fact, ...], ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Failure:
    outcome: Outcome
    at: Rule | None
    lacks: tuple[Lack, ...]
    everywhere: bool  # whether the whole program was evaluated, not only the dependencies of the goal


class Unlock:
    def __init__(
        self,
        prover: Prover,
        goal: Fact,
        over: Collection[Key] | None = None,
        *,
        most_facts: int = MOST_FACTS,
        most_tries: int = MOST_TRIES,
    ) -> None:
        self.prover = prover
        self.goal = goal
        self.most_facts = most_facts
        self.tries = most_tries
        self.effort = Effort(most_tries * STEPS_PER_TRY)
        self.dependence = Dependence(prover.model.program)
        self.candidates = Candidates(prover.solver, goal, prover.acceptance, over)
        self.ground = Ground(prover.solver, self.dependence)
        self.scope = self.dependence.needs([goal.key])
        self.asks_outside = any(prover.solver.predicate(key).external for key in self.scope)
        self.complete = not self.asks_outside  # what an external predicate would answer to others is not known
        self.exhausted = False
        self.larger = False  # whether a larger set than allowed could succeed
        self.typing = Typing(prover.model.program, prover.acceptance)
        self._tried: dict[Assumed, bool] = {}

    def run(self) -> Unlocked:
        if self.prover.solver.contains(self.goal):
            return Unlocked(((),), True)
        found: set[Assumed] = set()
        for size in range(1, self.most_facts + 1):
            try:
                self._sets_of(size, found)
                if self.exhausted:
                    self.complete = self.complete and self._every_set_of(size, found)
                    self.larger = True
            except Exhausted:
                self.complete = False
            if found or not self.complete:
                break
        return Unlocked(self._presented(found), self.complete and (bool(found) or not self.larger))

    def _sets_of(self, size: int, found: set[Assumed]) -> None:
        queue: dict[Assumed, None] = {NOTHING: None}
        seen = {NOTHING}
        while queue:
            tried = next(iter(queue))
            del queue[tried]
            if tried and self._unlocks(tried):
                found.add(tried)
                continue
            if len(tried) == size and (size < self.most_facts or self.larger):
                continue
            last = size == self.most_facts
            for more in sorted(self._lacking(tried, size - len(tried), last), key=_order):
                larger = tried | more
                if len(larger) <= size and larger not in seen:
                    seen.add(larger)
                    queue[larger] = None

    def _every_set_of(self, size: int, found: set[Assumed]) -> bool:
        """Try all sets of a size, if they are few enough; return whether they were."""
        keys = [key for key in self.candidates.keys if key in self.scope]
        if any(self.prover.solver.predicate(key).temporal for key in keys):
            return False  # which intervals are the smallest is known only from the premises
        columns = [[self.candidates.column(key, i) for i in range(key[1])] for key in keys]
        if math.comb(sum(math.prod(map(len, column)) for column in columns), size) > self.tries:
            return False
        facts = [
            fact
            for key, column in zip(keys, columns, strict=True)
            for args in itertools.product(*column)
            if self.candidates.accepts(key, args) and not self.prover.solver.contains(fact := Fact(key[0], args))
        ]
        found.update(filter(self._unlocks, map(frozenset, itertools.combinations(facts, size))))
        return True

    def _unlocks(self, added: Assumed) -> bool:
        if added in self._tried:
            return self._tried[added]
        self.tries -= 1
        if self.tries < 0:
            raise Exhausted
        self._tried[added] = False
        self._tried[added] = self._holds_with(added) and self.typing.accepts(added)
        return self._tried[added]

    def _holds_with(self, added: Assumed) -> bool:
        if self.asks_outside:  # external predicates are not called for an explanation
            trial = Trial(self.ground, added)
            return trial.outcome == "done" and trial.contains(self.goal)
        limits = self.prover.model.limits
        room = max(ROOM, MUCH_ROOM // len(self._tried))  # the first tries are worth more than the last
        enough = min(limits.derived_facts, self.ground.count + room)
        try:
            model = self.prover.model.with_facts(added, replace(limits, derived_facts=enough))
        except LimitError:
            self.complete = self.complete and enough == limits.derived_facts
            return False
        except EvalError:
            return False
        return Finished(model).contains(self.goal)

    def _failure(self, added: Assumed) -> Failure:
        trial = Trial(self.ground, added, self.scope)
        if trial.outcome == "done" and trial.contains(self.goal):
            trial = Trial(self.ground, added)
        return Failure(trial.outcome, trial.at, tuple(trial.lacks), trial.scope is None)

    def _lacking(self, added: Assumed, budget: int, last: bool) -> Sets:
        """Return sets that have to be added further; ``last`` if no larger set will be tried."""
        if not added:
            return self._asked(self.prover, _question(self.goal), budget, last)
        failure = self._failure(added)
        if failure.lacks:
            return self._asked(Prover(TrialModel(Trial(self.ground, added))), failure.lacks[0], budget, last)
        if failure.outcome == "broken":
            return self._mending(added, failure, budget, last)
        if failure.outcome == "stopped" or failure.everywhere:
            return Sets()  # nothing is known of it, or its types are wrong and more facts do not change that
        trial = Trial(self.ground, added, self.scope)
        return self._asked(Prover(TrialModel(trial)), _question(self.goal), budget, last)

    def _asked(self, prover: Prover, lack: Lack, budget: int, last: bool) -> Sets:
        abduction = Abduction(prover, self.candidates, self.dependence, budget, self.effort)
        found = abduction.ask(Literal(lack.atom, annotation=lack.annotation), lack.row)
        self.exhausted |= abduction.exhausted
        self.larger |= last and abduction.cut
        return found

    def _mending(self, added: Assumed, failure: Failure, budget: int, last: bool) -> Sets:
        """Return sets that could repair a failed evaluation: facts that retract conclusions where it failed."""
        heads = self.dependence.affects({fact.key for fact in added}) if failure.at is None else {failure.at.head.key}
        keys = set().union(*map(self.dependence.upsetters, heads)) & set(self.candidates.keys)
        if budget < 1:
            self.larger |= last and bool(keys)
            return Sets()
        abduction = Abduction(self.prover, self.candidates, self.dependence, budget, self.effort)
        return abduction.repairs.upset(keys)

    def _presented(self, found: set[Assumed]) -> tuple[tuple[Fact, ...], ...]:
        """Drop sets that differ from a better one by a longer interval or, if time is free, one further from now."""
        kept = [one for one in found if not any(self._better(other, one) for other in found)]
        ordered = [tuple(sorted(one, key=lambda fact: fact.text)) for one in kept]
        return tuple(sorted(ordered, key=lambda facts: [fact.text for fact in facts]))

    def _better(self, one: Assumed, other: Assumed) -> bool:
        mine, its = one - other, other - one
        if len(mine) != 1 or len(its) != 1:
            return False
        (left,), (right,) = mine, its
        if left[:2] != right[:2] or left.interval is None or right.interval is None:
            return False
        (s, e), (start, end) = left.interval, right.interval
        if start <= s and e <= end:
            return True
        if right in self.candidates.dictated:
            return False
        return left in self.candidates.dictated or self._distance(left.interval) < self._distance(right.interval)

    def _distance(self, interval: Interval) -> tuple[int, int, int]:
        now = self.prover.model.now
        start, end = interval
        return end - start, max(start - now, now - end, 0), start


def _order(assumed: Assumed) -> tuple[int, list[str]]:
    return len(assumed), sorted(fact.text for fact in assumed)


def _question(fact: Fact) -> Lack:
    atom = Atom(fact.key[0], fact.args)  # type: ignore[arg-type]  # values that have no literal evaluate to themselves
    if fact.interval is None:
        return Lack(atom, {})
    bounds = tuple(TimeBound(Time(ns), "_" if ns in (INT_MIN, INT_MAX) else instant_text(ns)) for ns in fact.interval)
    return Lack(atom, {}, Annotation(bounds))
