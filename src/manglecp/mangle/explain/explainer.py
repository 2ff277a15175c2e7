"""Explanations of one finished model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from manglecp.mangle.explain.candidates import Candidates
from manglecp.mangle.explain.coverage import Coverage, Unused, Use
from manglecp.mangle.explain.instances import Instances
from manglecp.mangle.explain.proof import Alternatives, Proof, Prover, Supports
from manglecp.mangle.explain.search import TooWide
from manglecp.mangle.explain.shape import RuleRef, Shape, bindings_text, filled_in, premise_text, unifies
from manglecp.mangle.explain.solver import furthest, read_fact, row_key
from manglecp.mangle.explain.unlock import MOST_TRIES, Unlock, Unlocked
from manglecp.mangle.facts import Fact
from manglecp.mangle.matching import Row
from manglecp.mangle.model import EvaluatedModel
from manglecp.mangle.printer import interval_text, value_text
from manglecp.mangle.syntax import Key
from manglecp.mangle.values import INT_MAX, INT_MIN, Value

WIDEST: Final = 100_000  # limit of rows in the search for the furthest premise


@dataclass(frozen=True, slots=True)
class Blocked:
    """A rule and its first failing premise on the path that satisfies most premises."""

    rule: RuleRef
    premise: str
    bindings: Mapping[str, Value]


class Blocks:
    def __init__(self, instances: Instances) -> None:
        self.instances = instances
        self.solver = instances.solver

    def of(self, goal: Fact) -> list[Blocked]:
        """Return one entry per rule whose head unifies with the fact, in the order of the program."""
        found = []
        for shape in self.instances.shapes.get(goal.key, ()):
            if unifies(shape.rule.head, goal.args):
                found.append(self._block(shape, goal))
        return found

    def _block(self, shape: Shape, goal: Fact) -> Blocked:
        start = shape.fix(shape.fixable, [goal.args[i] for i in shape.fixable])
        assert start is not None  # the head unifies
        before, self.solver.raw = self.solver.raw, self.solver.reads_raw(shape.rule)
        try:
            # Where the head is fixed no row can satisfy all, and one that leaves only the last premise open will do.
            enough = len(shape.rule.premises) - (0 if shape.leaves_open(shape.fixable) else 1)
            depth, row = furthest(self.solver, shape.rule, start, WIDEST, enough)
        finally:
            self.solver.raw = before
        if depth < len(shape.rule.premises):
            return self._blocked(shape, premise_text(shape.as_written(depth), row), row)
        return self._head(shape, start, row, goal)

    def _head(self, shape: Shape, start: Row, row: Row, goal: Fact) -> Blocked:
        """Every premise holds, but the derived fact differs from the goal."""
        rule = shape.rule
        rows = self.solver.body(rule, start) if rule.clause.aggregates else [row]
        derived = min(self.instances.transformed(rule, rows), key=lambda d: row_key(d.row))
        row = derived.row if rule.clause.aggregates else {**start, **derived.row}
        for term, own, value in zip(rule.head.args, self.solver.head_args(rule.clause, row), goal.args, strict=True):
            if own != value:
                return self._blocked(shape, f"{filled_in(term, row)} = {value_text(value)}", row)
        head = self.instances.head(rule, row)
        interval = None if head is None else head[1]
        if interval is None or goal.interval is None:
            return self._blocked(shape, "the interval ends before it starts", row)
        return self._blocked(shape, f"{interval_text(interval)} contains {interval_text(goal.interval)}", row)

    def _blocked(self, shape: Shape, premise: str, row: Row) -> Blocked:
        return Blocked(shape.ref, premise, shape.in_order(row))


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The failing premise of each rule, and the smallest sets of facts that would unlock the fact."""

    fact: str
    blocked: tuple[Blocked, ...]
    unlocked: Unlocked

    @property
    def holds(self) -> bool:
        return self.unlocked.sets == ((),)

    @property
    def would_unlock(self) -> tuple[tuple[Fact, ...], ...]:
        return self.unlocked.sets

    @property
    def complete(self) -> bool:
        return self.unlocked.complete

    def as_json(self) -> dict[str, Any]:
        return {
            "fact": self.fact,
            "blocked": [
                {"rule": one.rule.as_json(), "premise": one.premise, "bindings": bindings_text(one.bindings)}
                for one in self.blocked
            ],
            "would_unlock": [[fact.text for fact in facts] for facts in self.would_unlock],
            "complete": self.complete,
        }

    def text(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        if self.holds:
            yield f"{self.fact} holds"
            return
        yield f"{self.fact} does not hold"
        for one in self.blocked:
            yield f"  {one.rule.text}{f'  ({one.rule.place})' if one.rule.place else ''}"
            values = ", ".join(f"{name} = {value}" for name, value in bindings_text(one.bindings).items())
            yield f"    stops at {one.premise}{f'  with {values}' if values else ''}"
        if not self.blocked:
            yield "  no rule could derive it"
        for facts in self.would_unlock:
            yield f"  it would hold with {' and '.join(fact.text for fact in facts)}"
        if not self.would_unlock:
            yield (
                "  no few facts would make it hold" if self.complete else "  nothing was found that would make it hold"
            )
        elif not self.complete:
            yield "  there may be other ways"


class Explainer:
    """Explains a model; searches are memoised."""

    def __init__(self, model: EvaluatedModel) -> None:
        self.model = model
        self._prover = Prover(model)
        self._use = Use(self._prover.instances)

    def until(self, deadline: float | None) -> None:
        """Set a monotonic deadline, after which explanations raise LimitError."""
        self._prover.solver.deadline = deadline

    def read(self, fact: str | Fact) -> Fact:
        return read_fact(fact, self.model.program, self.model.now) if isinstance(fact, str) else self._always(fact)

    def _always(self, fact: Fact) -> Fact:
        """Outside of programs, a temporal fact without an interval holds always."""
        predicate = self.model.program.predicates.get(fact.key)
        if predicate is None or not predicate.temporal or fact.interval is not None:
            return fact
        return fact._replace(interval=(INT_MIN, INT_MAX))

    def explain(self, fact: str | Fact, using: Collection[Fact] | None = None) -> Proof | None:
        """Return a proof with few leaves; None if the fact does not hold, or not from ``using`` only."""
        prover = self._prover if using is None else self._prover.using(using)
        return prover.proof(self.read(fact))

    def alternatives(self, fact: str | Fact, limit: int = 100) -> Alternatives:
        """Return the minimal sets of given facts that support the fact, smallest first, at most ``limit``."""
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
        """Return the failing premise of each rule, and the smallest sets of facts that would make the fact hold.

        Facts of the predicates ``over`` may be added, by default those without rules. At most ``tries`` sets are
        evaluated.
        """
        goal = self.read(fact)
        unlocked = Unlock(self._prover, goal, Candidates(self._prover, goal, over), most_tries=tries).run()
        blocked = () if unlocked.sets == ((),) else Blocks(self._prover.instances).of(goal)
        return WhyNot(goal.text, tuple(blocked), unlocked)

    def coverage(self, selector: str | None = None) -> Coverage:
        """Return the coverage of each rule. Rules for other values of ``selector`` are inapplicable."""
        return self._use.coverage(selector)

    def unused(self, facts: Iterable[str | Fact]) -> list[Unused]:
        """Return those of the given facts that occur in no rule instance, with the reason."""
        return self._use.unused(map(self.read, facts))
