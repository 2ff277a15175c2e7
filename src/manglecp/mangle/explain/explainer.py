"""Explanations of one finished model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from manglecp.mangle.engine.model import EvaluatedModel
from manglecp.mangle.errors import EvalError
from manglecp.mangle.explain.candidates import CallerCandidates, Candidates
from manglecp.mangle.explain.coverage import Coverage, RuleUsage, UnusedFact
from manglecp.mangle.explain.instances import Instances
from manglecp.mangle.explain.proof import Alternatives, Proof, Prover, Supports, TooWide
from manglecp.mangle.explain.shape import RuleRef, Shape, bindings_json, premise_text, unifies, with_bindings
from manglecp.mangle.explain.solver import ModelSolver, furthest, read_goal, row_key, satisfying_rows
from manglecp.mangle.explain.unlock import MAX_TRIES, MAX_TRIES_OF_CALLERS, UnlockResult, UnlockSearch
from manglecp.mangle.facts import Fact
from manglecp.mangle.matching import Row
from manglecp.mangle.printer import interval_text, term_with_values, value_text
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Key, Premise
from manglecp.mangle.values import Value

MAX_ROWS: Final = 10_000  # rows in the search for the furthest premise
MAX_FRESH_SETS: Final = 4  # sets with values that occur nowhere


@dataclass(frozen=True, slots=True)
class BlockedRule:
    """A rule, and the premise at which it stops for the row that satisfies the most premises."""

    rule: RuleRef
    premise: str
    bindings: Mapping[str, Value]

    @classmethod
    def at(cls, shape: Shape, depth: int, row: Row) -> BlockedRule:
        """Return the rule as blocked at the premise after the first ``depth`` premises, which ``row`` satisfies."""
        return cls(shape.ref, premise_text(shape.as_written(depth), row), shape.by_first_occurrence(row))


def _blocked(instances: Instances, shape: Shape, goal: Fact) -> BlockedRule:
    """Return the premise or condition that keeps a rule, whose head unifies with ``goal``, from deriving it."""
    solver, rule = instances.solver, shape.rule
    start = shape.fix(shape.fixable, [goal.args[i] for i in shape.fixable])
    assert start is not None  # the head unifies
    # With the whole head fixed, no row satisfies all premises: the search may end at a row that satisfies all but one.
    target = len(rule.premises) - (0 if shape.leaves_open(shape.fixable) else 1)
    depth, row = furthest(solver, rule, start, MAX_ROWS, target)
    if depth < len(rule.premises):
        return BlockedRule.at(shape, depth, row)
    # Every premise holds, but the derived fact differs from the goal.
    rows = list(solver.rows(rule, start)) if rule.clause.aggregates else [row]
    derived = min(instances.apply_transforms(rule, rows), key=lambda d: row_key(d.row))
    row = derived.row if rule.clause.aggregates else {**start, **derived.row}
    return BlockedRule(shape.ref, _difference(instances, rule, row, goal), shape.by_first_occurrence(row))


def _difference(instances: Instances, rule: Rule, row: Row, goal: Fact) -> str:
    """Return the condition that the fact derived from ``row`` violates, so that it is not the goal."""
    derived_args = instances.solver.head_args(rule.clause, row)
    for term, derived_value, goal_value in zip(rule.head.args, derived_args, goal.args, strict=True):
        if derived_value != goal_value:
            return f"{term_with_values(term, row)} = {value_text(goal_value)}"
    head = instances.head_fact(rule, row)
    if head is None or head[1] is None or goal.interval is None:
        return "the interval ends before it starts"
    return f"{interval_text(head[1])} contains {interval_text(goal.interval)}"


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Why a fact is absent: where each rule stops, and the smallest sets of facts that would unlock it."""

    fact: str
    blocked: tuple[BlockedRule, ...]
    would_unlock: tuple[tuple[Fact, ...], ...]
    complete: bool  # whether ``would_unlock`` contains every such set

    @property
    def holds(self) -> bool:
        return self.would_unlock == ((),)

    def as_json(self) -> dict[str, Any]:
        return {
            "fact": self.fact,
            "blocked": [
                {"rule": rule.rule.as_json(), "premise": rule.premise, "bindings": bindings_json(rule.bindings)}
                for rule in self.blocked
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
        for blocked in self.blocked:
            yield f"  {blocked.rule.text_with_place}"
            yield with_bindings(f"    stops at {blocked.premise}", blocked.bindings)
        if not self.blocked:
            yield "  no rule could derive it"
        for facts in self.would_unlock:
            yield f"  it would hold with {' and '.join(fact.text for fact in facts)}"
        if not self.would_unlock:
            outcome = "no few facts" if self.complete else "nothing was found that"
            yield f"  {outcome} would make it hold"
        elif not self.complete:
            yield "  there may be other ways"


class Explainer:
    """Explains a model; searches are memoised."""

    def __init__(self, model: EvaluatedModel) -> None:
        self.model = model
        self._prover = Prover(model)
        self._usage = RuleUsage(self._prover.solver)

    def set_deadline(self, deadline: float | None) -> None:
        """Set the deadline (on the monotonic clock) after which explanations raise LimitError; None for no deadline."""
        self._prover.solver.deadline = deadline

    def read(self, fact: str | Fact) -> Fact:
        """Return the fact, parsed if it is a text. Raises ParseError or AnalysisError."""
        return read_goal(fact, self.model.program, self.model.now)

    def explain(self, fact: str | Fact, using: Collection[Fact] | None = None) -> Proof | None:
        """Return a proof with few leaves; None if the fact does not hold, or does not follow from ``using`` alone."""
        prover = self._prover if using is None else self._prover.using(using)
        return prover.proof(self.read(fact))

    def alternatives(self, fact: str | Fact, limit: int = 100) -> Alternatives:
        """Return the minimal sets of given facts that support the fact, smallest first, at most ``limit``."""
        goal = self.read(fact)
        if not self._prover.solver.contains(goal):
            return Alternatives((), complete=True)
        try:
            supports = Supports(self._prover.search, limit).of([self._prover.option(goal)])
        except TooWide:
            supports = Alternatives((), complete=False)
        if supports.sets:
            return supports
        proof = self._prover.proof(goal)
        assert proof is not None  # the fact holds
        leaves = (node.ground for node in proof.nodes() if node.origin not in ("derived", "absent"))
        leaf_facts = tuple(sorted((leaf for leaf in leaves if leaf), key=lambda fact: fact.text))
        return Alternatives((leaf_facts,), complete=False)

    def why_not(self, fact: str | Fact, over: Collection[Key] | None = None, tries: int = MAX_TRIES) -> WhyNot:
        """Return the failing premise of each rule, and the smallest sets of facts that would make the fact hold.

        Facts of the predicates ``over`` may be added, by default of all predicates without rules. At most ``tries``
        sets are evaluated. The arguments of added facts are constants of the program and the facts; if none of these
        unlock the fact, also neighbours of numbers and new values.
        """
        goal = self.read(fact)
        candidates = Candidates(self._prover, goal, over)
        search = UnlockSearch(self._prover, goal, candidates, max_tries=tries)
        result = search.run()
        if not result.sets and candidates.chose_values:
            others = candidates.with_fresh_values()
            result = UnlockSearch(self._prover, goal, others, max_tries=max(search.tries_left, 0)).run()
            result = UnlockResult(result.sets[:MAX_FRESH_SETS], complete=False)  # other values could succeed too
        shapes = () if result.sets == ((),) else self._prover.instances.shapes.get(goal.key, ())
        unifying = [shape for shape in shapes if unifies(shape.rule.head, goal.args)]
        blocked = tuple(_blocked(self._prover.instances, shape, goal) for shape in unifying)
        return WhyNot(goal.text, blocked, result.sets, result.complete)

    def blocked(self, key: Key, first: Value | None) -> list[BlockedRule]:
        """Return the blocking premise of each rule that could derive a fact of ``key`` with this first argument."""
        blocked = []
        for shape in self.shapes(key):
            positions = (0,) if first is not None and 0 in shape.fixable else ()
            start = shape.fix(positions, (first,)[: len(positions)])
            depth, row = (0, None) if start is None else self.furthest(shape, start, MAX_ROWS)
            if row is not None and depth < len(shape.rule.premises):
                blocked.append(BlockedRule.at(shape, depth, row))
        return blocked

    def shapes(self, key: Key) -> Sequence[Shape]:
        return self._prover.instances.shapes.get(key, ())

    def has_facts(self, key: Key) -> bool:
        return self._prover.solver.has_facts(key)

    def furthest(self, shape: Shape, start: Row, max_rows: int) -> tuple[int, Row]:
        """Return :func:`furthest` of the rule: how many premises a row satisfies, and that row."""
        return furthest(self._prover.solver, shape.rule, start, max_rows)

    def satisfies(self, premise: Premise, row: Row) -> bool:
        return bool(satisfying_rows(self._prover.solver, premise, row))

    def holds_with(self, goal: Fact, added: Iterable[Fact]) -> bool:
        try:
            return ModelSolver(self.model.with_facts(added, self._prover.solver.limits_left())).contains(goal)
        except EvalError:
            return False

    def unlock(
        self, goal: Fact, rules: Sequence[Rule], session: Sequence[Fact], over: Collection[Key], *, readable: bool
    ) -> UnlockResult:
        """Search the smallest sets of facts of the predicates ``over`` that make ``goal`` hold.

        The arguments are values of ``session`` (the facts of the request) and of ``rules``. With ``readable``, a second
        search uses the values of all facts if the first finds nothing. ``ANYTHING`` and ``ANY_NAME`` in a result are
        wildcards.
        """
        arguments = self._prover, rules, session, goal, over
        assertable = CallerCandidates(*arguments)
        search = UnlockSearch(self._prover, goal, assertable, max_tries=MAX_TRIES_OF_CALLERS)
        result = search.run()
        complete = result.complete and assertable.rules_out(result.sets, search.failed_sets)
        if not (result.sets or complete) and readable:
            readable_values = CallerCandidates(*arguments, readable=True)
            result = UnlockSearch(self._prover, goal, readable_values, max_tries=MAX_TRIES_OF_CALLERS).run()
        return UnlockResult(result.sets, complete)

    def coverage(self, selector: str | None = None) -> Coverage:
        """Return the coverage of each rule; ``selector`` as in :meth:`RuleUsage.coverage`."""
        return self._usage.coverage(selector)

    def count_fired(self, rules: Iterable[Rule]) -> int:
        """Return how many of these rules derive at least one fact."""
        return self._usage.count_fired(rules)

    def unused(self, facts: Iterable[str | Fact]) -> list[UnusedFact]:
        """Return the facts of ``facts`` that occur in no rule instance, each with the reason."""
        return self._usage.unused(map(self.read, facts))
