"""The smallest sets of facts that make a fact hold when they are added.

Sets of one fact are tried first, then of two, then of three. A set that fails is extended by abduction over the model
with the set added; a set that breaks the program is extended only by facts that could repair it. If abduction is more
expensive than trying every set (a dense closure), every set is tried. Every result was evaluated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import monotonic
from typing import Final

from manglecp.mangle.checker import check_types
from manglecp.mangle.engine.model import EvaluatedModel
from manglecp.mangle.errors import EvalError, LimitError
from manglecp.mangle.explain.abduction import Abduction, BudgetExhausted, Effort
from manglecp.mangle.explain.candidates import Assertable, Candidates
from manglecp.mangle.explain.proof import NOTHING, AssumedFacts, Prover, Sets
from manglecp.mangle.explain.shape import Shape
from manglecp.mangle.explain.solver import ModelSolver, furthest, satisfying
from manglecp.mangle.facts import Fact, Interval
from manglecp.mangle.matching import Row
from manglecp.mangle.printer import instant_text
from manglecp.mangle.program import DependencyClosure, GivenFact, Rule
from manglecp.mangle.syntax import Annotation, Atom, Clause, Key, Literal, Premise, TimeBound, Variable
from manglecp.mangle.values import INT_MAX, INT_MIN, Time

MAX_FACTS: Final = 3
MAX_TRIES: Final = 10_000
MAX_TRIES_OF_CALLERS: Final = 200
STEPS_PER_TRY: Final = 10  # steps of abduction per trial
MAX_NEW_FACTS: Final = 50_000  # facts that a trial may derive beyond the model


@dataclass(frozen=True, slots=True)
class Unlocked:
    """The smallest sets found, each sorted by text; ``complete`` if there are no others."""

    sets: tuple[tuple[Fact, ...], ...]
    complete: bool


class Unlock:
    """One search for the facts that ``goal`` lacks, among ``candidates``."""

    def __init__(
        self, prover: Prover, goal: Fact, candidates: Candidates, *, max_tries: int, deadline: float | None = None
    ) -> None:
        self.prover = prover
        self.goal = goal
        self.candidates = candidates
        self.tries = max_tries
        self.effort = Effort(max_tries * STEPS_PER_TRY, deadline)
        self.dependence = DependencyClosure(prover.model.program)
        self.scope = self.dependence.needs([goal.key])
        # What an external predicate would answer to others is not known.
        self.complete = not any(prover.solver.predicate(key).external for key in self.scope)
        self.exhausted = False
        self.larger = False  # whether a larger set than allowed could succeed
        self._tried: dict[AssumedFacts, bool] = {}

    @property
    def failed(self) -> list[AssumedFacts]:
        return [one for one, unlocks in self._tried.items() if not unlocks]

    def run(self) -> Unlocked:
        if self.prover.solver.contains(self.goal):
            return Unlocked(((),), True)
        unlocking: set[AssumedFacts] = set()
        for size in range(1, MAX_FACTS + 1):
            try:
                self._sets_of(size, unlocking)
                if self.exhausted:
                    self.complete = self.complete and self._every_set_of(size, unlocking)
                    self.larger = True
            except BudgetExhausted:
                self.complete = False
            if unlocking or not self.complete:
                break
        return Unlocked(self._presented(unlocking), self.complete and (bool(unlocking) or not self.larger))

    def _sets_of(self, size: int, unlocking: set[AssumedFacts]) -> None:
        queue: dict[AssumedFacts, None] = {NOTHING: None}
        seen = {NOTHING}
        last = size == MAX_FACTS
        while queue:
            tried = next(iter(queue))
            del queue[tried]
            if tried and self._unlocks(tried):
                unlocking.add(tried)
                continue
            if len(tried) == size and (not last or self.larger):
                continue
            for more in sorted(self._missing_sets(tried, size - len(tried), last), key=_order):
                larger = tried | more
                if len(larger) <= size and larger not in seen:
                    seen.add(larger)
                    queue[larger] = None

    def _every_set_of(self, size: int, unlocking: set[AssumedFacts]) -> bool:
        """Try all sets of a size, if they are few enough; return whether they were."""
        keys = [key for key in self.candidates.keys if key in self.scope]
        if any(self.prover.solver.predicate(key).temporal for key in keys):
            return False  # which intervals are the smallest is known only from the premises
        lengths = [[len(self.candidates.column(key, i)) for i in range(key[1])] for key in keys]
        if math.comb(sum(map(math.prod, lengths)), size) > self.tries:
            return False
        self.effort.steps = max(self.effort.steps, self.tries)
        facts = list(self._abduction(self.prover, size).facts_of(keys))
        unlocking.update(filter(self._unlocks, map(frozenset, itertools.combinations(facts, size))))
        return True

    def _abduction(self, prover: Prover, budget: int) -> Abduction:
        return Abduction(prover, self.candidates, self.dependence, budget, self.effort)

    def _unlocks(self, added: AssumedFacts) -> bool:
        if added not in self._tried:
            self.tries -= 1
            if self.tries < 0 or (self.effort.deadline is not None and monotonic() > self.effort.deadline):
                raise BudgetExhausted
            self._tried[added] = False
            model = self._evaluate_with(added)
            holds = model is not None and ModelSolver(model).contains(self.goal)
            self._tried[added] = holds and self._is_well_typed(added)
        return self._tried[added]

    def _evaluate_with(self, added: AssumedFacts) -> EvaluatedModel | None:
        """Return the model with facts added; None if they break the program."""
        limits = self.prover.model.limits
        enough = min(limits.derived_facts, self._size + MAX_NEW_FACTS)
        try:
            return self.prover.model.with_facts(added, replace(limits, derived_facts=enough))
        except LimitError:
            self.complete = self.complete and enough == limits.derived_facts
        except EvalError:
            pass
        return None

    @cached_property
    def _size(self) -> int:
        return sum(map(len, self.prover.model.relations.values()))

    def _is_well_typed(self, added: AssumedFacts) -> bool:
        """Return whether the program accepts the facts as well as its own.

        The types of an undeclared predicate are those of its facts, so a fact of a new kind can make a rule ill-typed.
        """
        program = self.prover.model.program
        undeclared = [fact for fact in added if program.predicates[fact.key].decl is None]
        if not undeclared or check_types(program.predicates, program.rules, program.facts):
            return True
        given = [GivenFact(Clause(_atom(fact)), fact.args) for fact in undeclared]
        return not check_types(program.predicates, program.rules, [*program.facts, *given])

    def _missing_sets(self, added: AssumedFacts, budget: int, last: bool) -> Sets:
        """Return sets that have to be added further; ``last`` if no larger set will be tried."""
        if not added:
            return self._query(self.prover, _as_literal(self.goal), {}, budget, last)
        model = self._evaluate_with(added)
        if model is None:
            return self._repairs(added, budget, last)
        prover = Prover(model)
        if prover.solver.contains(self.goal):
            return Sets()  # its types are wrong, and more facts do not change that
        return self._query(prover, _as_literal(self.goal), {}, budget, last)

    def _query(self, prover: Prover, literal: Literal, row: Row, budget: int, last: bool) -> Sets:
        abduction = self._abduction(prover, budget)
        sets = abduction.query(literal, row)
        self.exhausted |= abduction.exhausted
        self.larger |= last and abduction.cut
        return sets

    def _repairs(self, added: AssumedFacts, budget: int, last: bool) -> Sets:
        """Return sets that could repair a broken program: facts that others include, or that retract conclusions."""
        repairs = Sets()
        for fact in added:
            predicate = self.prover.solver.predicate(fact.key)
            for atom in predicate.inclusion:
                assert predicate.decl is not None  # inclusions come from declarations
                names = [arg.name if isinstance(arg, Variable) else "_" for arg in predicate.decl.atom.args]
                row = {name: value for name, value in zip(names, fact.args, strict=True) if name != "_"}
                for one in self._query(self.prover, Literal(atom), row, budget, last):
                    repairs.add(one)
        heads = self.dependence.affects({fact.key for fact in added})
        keys = set().union(*map(self.dependence.retracting, heads)) & self.candidates.keys
        if budget < 1:
            self.larger |= last and bool(keys)
            return repairs
        for fact in self._abduction(self.prover, budget).facts_of(keys):
            repairs.add(frozenset({fact}))
        return repairs

    def _presented(self, unlocking: set[AssumedFacts]) -> tuple[tuple[Fact, ...], ...]:
        """Drop sets that differ from a better one by a longer interval or, if time is free, one further from now."""
        kept = [one for one in unlocking if not any(self._better(other, one) for other in unlocking)]
        ordered = [tuple(sorted(one, key=lambda fact: fact.text)) for one in kept]
        return tuple(sorted(ordered, key=lambda facts: [fact.text for fact in facts]))

    def _better(self, one: AssumedFacts, other: AssumedFacts) -> bool:
        mine, its = one - other, other - one
        if len(mine) != 1 or len(its) != 1:
            return False
        (left,), (right,) = mine, its
        if left[:2] != right[:2] or left.interval is None or right.interval is None:
            return False
        if right.interval[0] <= left.interval[0] and left.interval[1] <= right.interval[1]:
            return True
        if right in self.candidates.smallest:
            return False
        return left in self.candidates.smallest or self._distance(left.interval) < self._distance(right.interval)

    def _distance(self, interval: Interval) -> tuple[int, int, int]:
        now = self.prover.model.now
        start, end = interval
        return end - start, max(start - now, now - end, 0), start


def _order(assumed: AssumedFacts) -> tuple[int, list[str]]:
    return len(assumed), sorted(fact.text for fact in assumed)


def _atom(fact: Fact) -> Atom:
    return Atom(fact.key[0], fact.args)  # type: ignore[arg-type]  # values that have no literal evaluate to themselves


def _as_literal(fact: Fact) -> Literal:
    if fact.interval is None:
        return Literal(_atom(fact))
    bounds = tuple(TimeBound(Time(ns), "_" if ns in (INT_MIN, INT_MAX) else instant_text(ns)) for ns in fact.interval)
    return Literal(_atom(fact), annotation=Annotation(bounds))


class Probe:
    """Rules of one finished model, followed from their heads, and the facts that a caller could add.

    The deadline of the result's other explanations does not apply; callers pass their own.
    """

    def __init__(self, model: EvaluatedModel) -> None:
        self._prover = Prover(model)

    def shapes(self, key: Key) -> Sequence[Shape]:
        return self._prover.instances.shapes.get(key, ())

    def has_facts(self, key: Key) -> bool:
        return bool(self._prover.solver.index(key, ()).get((), ()))

    def furthest(self, shape: Shape, start: Row, max_rows: int) -> tuple[int, Row]:
        """Return how many premises of a rule can be satisfied, and the least row that satisfies them."""
        return furthest(self._prover.solver, shape.rule, start, max_rows)

    def satisfies(self, premise: Premise, row: Row) -> bool:
        return bool(satisfying(self._prover.solver, premise, row))

    def holds_with(self, goal: Fact, added: Iterable[Fact], deadline: float) -> bool:
        model = self._prover.model
        left = max(deadline - monotonic(), 0.001)
        try:
            return ModelSolver(model.with_facts(added, replace(model.limits, seconds=left))).contains(goal)
        except EvalError:
            return False

    def unlock(
        self,
        goal: Fact,
        rules: Sequence[Rule],
        session: Sequence[Fact],
        over: Collection[Key],
        deadline: float,
        *,
        readable: bool = False,
    ) -> Unlocked:
        """Search the smallest sets of facts of the predicates ``over`` that make ``goal`` hold.

        Only values of ``session`` and ``rules`` are used; with ``readable`` also those of all facts, if others do not
        help. ``ANYTHING`` and ``ANY_NAME`` are wildcards.
        """
        about = self._prover, rules, session, goal, over
        known = Assertable(*about)
        search = Unlock(self._prover, goal, known, max_tries=MAX_TRIES_OF_CALLERS, deadline=deadline)
        unlocked = search.run()
        complete = unlocked.complete and known.rules_out(unlocked.sets, search.failed)
        if not (unlocked.sets or complete) and readable:
            wider = Assertable(*about, readable=True)
            unlocked = Unlock(self._prover, goal, wider, max_tries=MAX_TRIES_OF_CALLERS, deadline=deadline).run()
        return Unlocked(unlocked.sets, complete)
