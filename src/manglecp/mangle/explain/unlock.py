"""The smallest sets of facts that, added, make a fact hold.

Sets of one fact are tried first, then of two, then of three. From a set that was tried and does not do, the search
goes on to what the conclusion still lacks with it in place (:mod:`.abduction`); a set that breaks the program is
followed only where more facts could mend it. Every answer has been evaluated.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from manglecp.mangle.explain.abduction import Abduction
from manglecp.mangle.explain.candidates import Candidates
from manglecp.mangle.explain.dependence import Dependence
from manglecp.mangle.explain.fitting import Typing
from manglecp.mangle.explain.hypotheses import NOTHING, Assumed, Effort, Exhausted, Sets
from manglecp.mangle.explain.prover import Prover
from manglecp.mangle.explain.trial import Ground, Lack, Outcome, Trial, TrialModel
from manglecp.mangle.facts import Fact
from manglecp.mangle.intervals import Interval
from manglecp.mangle.packages import Key
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Annotation, Atom, Literal, TimeBound
from manglecp.mangle.text import instant_text
from manglecp.mangle.values import INT_MAX, INT_MIN, Time

MOST_FACTS: Final = 3
MOST_TRIES: Final = 10_000
STEPS_PER_TRY: Final = 40
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
        # What an external predicate would answer to other questions is not known.
        self.complete = not any(prover.solver.predicate(key).external for key in self.scope)
        self.larger = False
        """Could a set of more than the allowed number of facts help?"""
        self.typing = Typing(prover.model.program, prover.acceptance)
        self._failed: dict[Assumed, Failure] = {}

    def run(self) -> Unlocked:
        if self.prover.solver.contains(self.goal):
            return Unlocked(((),), True)
        found: set[Assumed] = set()
        try:
            for size in range(1, self.most_facts + 1):
                found = set()
                self._sets_of(size, found)
                if found:
                    break
        except Exhausted:
            self.complete = False
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

    # --- one set ---------------------------------------------------------------------------------------------------

    def _unlocks(self, added: Assumed) -> bool:
        """Does the goal hold with these facts, and nothing break?"""
        if added in self._failed:
            return False
        self.tries -= 1
        if self.tries < 0:
            raise Exhausted
        trial = Trial(self.ground, added, self.scope)
        if trial.outcome == "done" and trial.contains(self.goal):
            trial = Trial(self.ground, added)
            if trial.outcome == "done" and self.typing.accepts(added):
                return True
        self.complete = self.complete and trial.outcome != "stopped"
        self._failed[added] = Failure(trial.outcome, trial.at, tuple(trial.lacks), trial.scope is None)
        return False

    def _lacking(self, added: Assumed, budget: int, last: bool) -> Sets:
        """What would have to be added further; ``last`` if no larger set will be tried."""
        failure = self._failed.get(added)
        if failure is None:
            return self._asked(self.prover, _question(self.goal), budget, last)
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
