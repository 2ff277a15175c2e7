"""The smallest sets of facts that, added, make a fact hold.

Sets of one fact are tried first, then of two, then of three. From a set that was tried and does not do, the search
goes on to what the conclusion still lacks with it in place (:mod:`.abduction`); a set that breaks the program is
followed only where more facts could mend it. Where that is more to look at than there are sets (a dense closure has few
facts but a great many ways), every set is tried. Every answer has been evaluated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from manglecp.mangle.errors import EvalError, LimitError
from manglecp.mangle.explain.abduction import Abduction
from manglecp.mangle.explain.candidates import Candidates
from manglecp.mangle.explain.dependence import Dependence
from manglecp.mangle.explain.fitting import Typing
from manglecp.mangle.explain.hypotheses import NOTHING, Assumed, Effort, Exhausted, Sets
from manglecp.mangle.explain.prover import Prover
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.explain.trial import ROOM, Ground, Lack, Outcome, Trial, TrialModel
from manglecp.mangle.facts import Fact
from manglecp.mangle.intervals import Interval
from manglecp.mangle.packages import Key
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Annotation, Atom, Literal, TimeBound
from manglecp.mangle.text import instant_text
from manglecp.mangle.values import INT_MAX, INT_MIN, Time

MOST_FACTS: Final = 3
MOST_TRIES: Final = 10_000
MUCH_ROOM: Final = 1_000_000
"""So many facts may the first try derive beyond what there was."""
STEPS_PER_TRY: Final = 10
"""For each try so many partial rows may be looked at before the search gives up."""


@dataclass(frozen=True, slots=True)
class Unlocked:
    """The smallest sets found, each sorted by text, and whether they are all there are."""

    sets: tuple[tuple[Fact, ...], ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """What is kept of a trial that did not unlock the goal."""

    outcome: Outcome
    at: Rule | None
    lacks: tuple[Lack, ...]
    everywhere: bool
    """Was the whole program evaluated, not only what the goal needs?"""


class Unlock:
    """One search."""

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
        self.larger = False
        """Could a set of more than the allowed number of facts help?"""
        self.typing = Typing(prover.model.program, prover.acceptance)
        self._tried: dict[Assumed, bool] = {}

    def run(self) -> Unlocked:
        """The smallest sets that were found, and whether there can be others."""
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
        """Try all sets of a size, if they are few enough; was that possible?"""
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

    # --- one set ---------------------------------------------------------------------------------------------------

    def _unlocks(self, added: Assumed) -> bool:
        """Does the goal hold with these facts, and nothing break?"""
        if added in self._tried:
            return self._tried[added]
        self.tries -= 1
        if self.tries < 0:
            raise Exhausted
        self._tried[added] = False
        self._tried[added] = self._holds_with(added) and self.typing.accepts(added)
        return self._tried[added]

    def _holds_with(self, added: Assumed) -> bool:
        if self.asks_outside:  # nobody is asked again for the sake of an explanation
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
        """What went wrong with a set that does not do."""
        trial = Trial(self.ground, added, self.scope)
        if trial.outcome == "done" and trial.contains(self.goal):
            trial = Trial(self.ground, added)
        return Failure(trial.outcome, trial.at, tuple(trial.lacks), trial.scope is None)

    def _lacking(self, added: Assumed, budget: int, last: bool) -> Sets:
        """What would have to be added further; ``last`` if no larger set will be tried."""
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
        """What could mend an evaluation that broke: whatever takes conclusions away from the place where it did."""
        heads = self.dependence.affects({fact.key for fact in added}) if failure.at is None else {failure.at.head.key}
        keys = set().union(*map(self.dependence.upsetters, heads)) & set(self.candidates.keys)
        if budget < 1:
            self.larger |= last and bool(keys)
            return Sets()
        abduction = Abduction(self.prover, self.candidates, self.dependence, budget, self.effort)
        return abduction.repairs.upset(keys)

    # --- the answer ------------------------------------------------------------------------------------------------

    def _presented(self, found: set[Assumed]) -> tuple[tuple[Fact, ...], ...]:
        """Without sets in which a fact could hold for less time, or, where its time is free, nearer to now."""
        kept = [one for one in found if not any(self._better(other, one) for other in found)]
        ordered = [tuple(sorted(one, key=lambda fact: fact.text)) for one in kept]
        return tuple(sorted(ordered, key=lambda facts: [fact.text for fact in facts]))

    def _better(self, one: Assumed, other: Assumed) -> bool:
        """Is ``one`` the same as ``other``, but for a fact with a better interval?"""
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
    """What a goal lacks is itself, at every instant it names."""
    atom = Atom(fact.key[0], fact.args)  # type: ignore[arg-type]  # values that have no literal evaluate to themselves
    if fact.interval is None:
        return Lack(atom, {})
    bounds = tuple(TimeBound(Time(ns), _bound_text(ns)) for ns in fact.interval)
    return Lack(atom, {}, Annotation(bounds))


def _bound_text(ns: int) -> str:
    return "_" if ns in (INT_MIN, INT_MAX) else instant_text(ns)
