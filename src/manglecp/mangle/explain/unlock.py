"""The smallest sets of facts that make a fact hold when they are added.

Sets of one fact are tried first, then sets of two, then sets of three. To try a set, the program is evaluated with the
set added. If the fact still does not hold, abduction over that model finds extensions of the set; if the evaluation
raises an error, only facts that could repair the program extend the set. If abduction is too expensive (for example in
a dense closure), every set of candidates is tried.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from manglecp.mangle.checker import check_types
from manglecp.mangle.engine.model import EvaluatedModel
from manglecp.mangle.errors import EvalError, LimitError
from manglecp.mangle.explain.abduction import Abduction, BudgetExhausted, Effort
from manglecp.mangle.explain.candidates import Candidates
from manglecp.mangle.explain.proof import NO_FACTS, AssumedFacts, MinimalSets, Prover
from manglecp.mangle.explain.solver import DeadlineExceeded, ModelSolver
from manglecp.mangle.facts import Fact, Interval
from manglecp.mangle.matching import Row
from manglecp.mangle.printer import instant_text
from manglecp.mangle.program import GivenFact
from manglecp.mangle.syntax import Annotation, Atom, Clause, Literal, TimeBound
from manglecp.mangle.values import INT_MAX, INT_MIN, Time

MAX_FACTS: Final = 3  # facts in a set
MAX_SETS: Final = 16  # sets of one result
MAX_TRIES: Final = 1_000  # evaluations of one search
MAX_TRIES_OF_CALLERS: Final = 200  # MAX_TRIES for Explainer.unlock
STEPS_PER_TRY: Final = 10  # abduction steps of a search, per permitted try
MAX_NEW_FACTS: Final = 50_000  # facts that one try may derive beyond the model


@dataclass(frozen=True, slots=True)
class UnlockResult:
    """The smallest unlocking sets, each sorted by text; ``complete`` is whether there are no others."""

    sets: tuple[tuple[Fact, ...], ...]
    complete: bool


class UnlockSearch:
    """One search for the sets of ``candidates`` that make ``goal`` hold."""

    def __init__(self, prover: Prover, goal: Fact, candidates: Candidates, *, max_tries: int) -> None:
        self.prover = prover
        self.goal = goal
        self.candidates = candidates
        self.tries_left = max_tries
        self.effort = Effort(max_tries * STEPS_PER_TRY, prover.solver.check_deadline)
        self.dependencies = prover.model.program.dependencies
        self.scope = self.dependencies.needs([goal.key])  # the predicates that can affect the goal
        # The results of an external predicate for inputs that the added facts cause are unknown.
        self.complete = not any(prover.solver.predicate(key).external for key in self.scope)
        self.is_partial = False  # whether abduction was cut short
        self.needs_more_facts = False  # whether a set of more than MAX_FACTS facts could succeed
        self._tried: dict[AssumedFacts, bool] = {}

    @property
    def failed_sets(self) -> list[AssumedFacts]:
        return [facts for facts, unlocks in self._tried.items() if not unlocks]

    def run(self) -> UnlockResult:
        if self.prover.solver.contains(self.goal):
            return UnlockResult(((),), complete=True)
        unlocking_sets: set[AssumedFacts] = set()
        for size in range(1, MAX_FACTS + 1):
            try:
                self._try_sets_of(size, unlocking_sets)
                if self.is_partial:
                    self.complete = self.complete and self._try_every_set_of(size, unlocking_sets)
                    self.needs_more_facts = True
            except (BudgetExhausted, DeadlineExceeded):
                self.complete = False
            if unlocking_sets or not self.complete:
                break
        return UnlockResult(
            self._sorted_without_worse(unlocking_sets),
            self.complete and (bool(unlocking_sets) or not self.needs_more_facts),
        )

    def _try_sets_of(self, size: int, unlocking_sets: set[AssumedFacts]) -> None:
        """Try the sets of at most ``size`` facts that abduction finds; add those that succeed to ``unlocking_sets``."""
        queue: dict[AssumedFacts, None] = {NO_FACTS: None}
        seen = {NO_FACTS}
        is_largest = size == MAX_FACTS
        while queue:
            facts = next(iter(queue))
            del queue[facts]
            if facts and self._unlocks(facts):
                unlocking_sets.add(facts)
                if len(unlocking_sets) == MAX_SETS:
                    raise BudgetExhausted
                continue
            if len(facts) == size and (not is_largest or self.needs_more_facts):
                continue
            for missing in sorted(self._missing_sets(facts, size - len(facts), is_largest), key=_set_order):
                extended = facts | missing
                if len(extended) <= size and extended not in seen:
                    seen.add(extended)
                    queue[extended] = None

    def _try_every_set_of(self, size: int, unlocking_sets: set[AssumedFacts]) -> bool:
        """Try all sets of ``size`` facts if the permitted tries suffice; return whether the sets were tried."""
        keys = [key for key in self.candidates.keys if key in self.scope]
        if any(self.prover.solver.predicate(key).temporal for key in keys):
            return False  # the smallest intervals follow from the premises, which only abduction reads
        lengths = [[len(self.candidates.column(key, i)) for i in range(key[1])] for key in keys]
        if math.comb(sum(map(math.prod, lengths)), size) > self.tries_left:
            return False
        self.effort.steps = max(self.effort.steps, self.tries_left)
        facts = list(self._abduction(self.prover, size).facts_of(keys))
        unlocking_sets.update(filter(self._unlocks, map(frozenset, itertools.combinations(facts, size))))
        return True

    def _abduction(self, prover: Prover, budget: int) -> Abduction:
        return Abduction(prover, self.candidates, self.dependencies, budget, self.effort)

    def _unlocks(self, added: AssumedFacts) -> bool:
        """Return whether the goal holds with the facts added, memoised. Raises BudgetExhausted."""
        if added not in self._tried:
            self.tries_left -= 1
            if self.tries_left < 0:
                raise BudgetExhausted
            self.prover.solver.check_deadline()
            self._tried[added] = False
            model = self._evaluate_with(added)
            holds = model is not None and ModelSolver(model).contains(self.goal)
            self._tried[added] = holds and self._is_well_typed(added)
        return self._tried[added]

    def _evaluate_with(self, added: AssumedFacts) -> EvaluatedModel | None:
        """Return the model with facts added; None if the evaluation raises an error."""
        limits = self.prover.solver.limits_left()
        max_derived = min(limits.derived_facts, self._fact_count + MAX_NEW_FACTS)
        try:
            return self.prover.model.with_facts(added, replace(limits, derived_facts=max_derived))
        except LimitError as error:
            self.complete = self.complete and max_derived == limits.derived_facts and error.unit != "seconds"
        except EvalError:
            pass
        return None

    @cached_property
    def _fact_count(self) -> int:
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

    def _missing_sets(self, added: AssumedFacts, budget: int, is_largest: bool) -> MinimalSets:
        """Return sets of facts, one of which has to be added besides ``added``.

        ``is_largest`` is whether no larger sets will be tried.
        """
        if not added:
            return self._query(self.prover, _as_literal(self.goal), {}, budget, is_largest)
        model = self._evaluate_with(added)
        if model is None:
            return self._repairs(added, budget, is_largest)
        prover = Prover(model)
        prover.solver.deadline = self.prover.solver.deadline
        if prover.solver.contains(self.goal):
            return MinimalSets()  # the added facts are ill-typed, and more facts do not change that
        return self._query(prover, _as_literal(self.goal), {}, budget, is_largest)

    def _query(self, prover: Prover, literal: Literal, row: Row, budget: int, is_largest: bool) -> MinimalSets:
        abduction = self._abduction(prover, budget)
        sets = abduction.query(literal, row)
        self.is_partial |= abduction.is_partial
        self.needs_more_facts |= is_largest and abduction.exceeded_budget
        return sets

    def _repairs(self, added: AssumedFacts, budget: int, is_largest: bool) -> MinimalSets:
        """Return sets that could repair a program in which ``added`` causes an error.

        These are the facts that an inclusion requires, and facts that retract a consequence of ``added``.
        """
        repairs = MinimalSets()
        for fact in added:
            predicate = self.prover.solver.predicate(fact.key)
            for atom in predicate.inclusion:
                for facts in self._query(self.prover, Literal(atom), predicate.row(fact.args), budget, is_largest):
                    repairs.add(facts)
        heads = self.dependencies.affects({fact.key for fact in added})
        keys = set().union(*map(self.dependencies.retracting, heads)) & self.candidates.keys
        if budget < 1:
            self.needs_more_facts |= is_largest and bool(keys)
            return repairs
        for fact in self._abduction(self.prover, budget).facts_of(keys):
            repairs.add(frozenset({fact}))
        return repairs

    def _sorted_without_worse(self, unlocking_sets: set[AssumedFacts]) -> tuple[tuple[Fact, ...], ...]:
        """Return the sets in the order of their text, without the sets for which another set is better."""
        best = [facts for facts in unlocking_sets if not any(self._is_better(other, facts) for other in unlocking_sets)]
        ordered = [tuple(sorted(facts, key=lambda fact: fact.text)) for facts in best]
        return tuple(sorted(ordered, key=lambda facts: [fact.text for fact in facts]))

    def _is_better(self, left_set: AssumedFacts, right_set: AssumedFacts) -> bool:
        """Return whether the sets differ only in one interval, and the interval of ``left_set`` is preferable.

        An interval is preferable if the other contains it, if it is the smallest for a premise and the other is not, or
        if it is shorter or nearer to now.
        """
        only_left, only_right = left_set - right_set, right_set - left_set
        if len(only_left) != 1 or len(only_right) != 1:
            return False
        (left,), (right,) = only_left, only_right
        if left[:2] != right[:2] or left.interval is None or right.interval is None:
            return False
        if right.interval[0] <= left.interval[0] and left.interval[1] <= right.interval[1]:
            return True
        if right in self.candidates.smallest_facts:
            return False
        return left in self.candidates.smallest_facts or self._rank(left.interval) < self._rank(right.interval)

    def _rank(self, interval: Interval) -> tuple[int, int, int]:
        """Return the length of an interval, its distance from now, and its start."""
        now = self.prover.model.now
        start, end = interval
        return end - start, max(start - now, now - end, 0), start


def _set_order(assumed: AssumedFacts) -> tuple[int, list[str]]:
    return len(assumed), sorted(fact.text for fact in assumed)


def _atom(fact: Fact) -> Atom:
    return Atom(fact.key[0], fact.args)  # type: ignore[arg-type]  # values that have no literal evaluate to themselves


def _as_literal(fact: Fact) -> Literal:
    if fact.interval is None:
        return Literal(_atom(fact))
    bounds = tuple(TimeBound(Time(ns), "_" if ns in (INT_MIN, INT_MAX) else instant_text(ns)) for ns in fact.interval)
    return Literal(_atom(fact), annotation=Annotation(bounds))
