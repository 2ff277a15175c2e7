"""Questions about one finished model; what was found for one answer serves the next."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from manglecp.mangle.explain.alternatives import Alternatives, Supports
from manglecp.mangle.explain.blocked import Blocks
from manglecp.mangle.explain.coverage import Coverage, Unused, Use
from manglecp.mangle.explain.model import Model
from manglecp.mangle.explain.proof import Proof
from manglecp.mangle.explain.prover import Prover
from manglecp.mangle.explain.question import read_fact
from manglecp.mangle.explain.search import TooWide
from manglecp.mangle.explain.unlock import MOST_TRIES, Unlock
from manglecp.mangle.explain.whynot import WhyNot
from manglecp.mangle.facts import Fact
from manglecp.mangle.packages import Key
from manglecp.mangle.values import INT_MAX, INT_MIN


class Explainer:
    """Explains a model. The first question about a fact pays for the search, the next ones read its results."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._prover = Prover(model)
        self._use = Use(self._prover.instances)

    def until(self, deadline: float | None) -> None:
        """A question that is not answered by then raises a LimitError. The deadline is one of the monotonic clock."""
        self._prover.solver.deadline = deadline

    def read(self, fact: str | Fact) -> Fact:
        """A fact in canonical text, with its annotation if it is temporal."""
        return read_fact(fact, self.model.program, self.model.now) if isinstance(fact, str) else self._always(fact)

    def _always(self, fact: Fact) -> Fact:
        """Outside of programs a temporal fact needs no interval: it holds always."""
        predicate = self.model.program.predicates.get(fact.key)
        if predicate is None or not predicate.temporal or fact.interval is not None:
            return fact
        return fact._replace(interval=(INT_MIN, INT_MAX))

    def explain(self, fact: str | Fact, using: Collection[Fact] | None = None) -> Proof | None:
        """A proof with few leaves; None if the fact does not hold, or not by ``using`` these facts only."""
        prover = self._prover if using is None else self._prover.using(using)
        return prover.proof(self.read(fact))

    def alternatives(self, fact: str | Fact, limit: int = 100) -> Alternatives:
        """The minimal sets of given facts that support the fact, smallest first, at most ``limit``."""
        goal = self.read(fact)
        if not self._prover.solver.contains(goal):
            return Alternatives((), True)
        try:
            found = Supports(self._prover.search, limit).of([self._prover.option(goal)])
        except TooWide:
            found = Alternatives((), False)
        if found.sets:
            return found
        proof = self._prover.proof(goal)
        assert proof is not None  # it holds
        leaves = (node.ground for node in proof.nodes() if node.origin not in ("derived", "absent"))
        return Alternatives((tuple(sorted((f for f in leaves if f), key=lambda fact: fact.text)),), False)

    def why_not(self, fact: str | Fact, over: Collection[Key] | None = None, tries: int = MOST_TRIES) -> WhyNot:
        """What stops each rule that could derive the fact, and the smallest sets of facts that would make it hold.

        Facts of the predicates ``over`` may be added; None means those that have no rules. The search ends after so
        many ``tries`` to add some; with none, only what stops the rules is said.
        """
        goal = self.read(fact)
        unlocked = Unlock(self._prover, goal, over, most_tries=tries).run()
        blocked = () if unlocked.sets == ((),) else Blocks(self._prover.instances).of(goal)
        return WhyNot(goal.text, tuple(blocked), unlocked)

    def coverage(self, selector: str | None = None) -> Coverage:
        """What became of each rule. With a ``selector`` such as ``intent``, rules for its other values stand apart."""
        return self._use.coverage(selector)

    def unused(self, facts: Iterable[str | Fact]) -> list[Unused]:
        """Those of the given facts that occur in no rule instance that holds, with the reason."""
        return self._use.unused(map(self.read, facts))
