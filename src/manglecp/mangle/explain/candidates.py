"""Which facts could be added: over which predicates, constants and intervals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import cached_property

from manglecp.mangle.acceptance import Acceptance
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.facts import Fact
from manglecp.mangle.intervals import Interval
from manglecp.mangle.matching import Args, window
from manglecp.mangle.packages import Key
from manglecp.mangle.program import Program
from manglecp.mangle.syntax import Apply, Equality, Literal, Term, Variable
from manglecp.mangle.terms import evaluate_term
from manglecp.mangle.types import ANY, conforms
from manglecp.mangle.values import INT_MAX, INT_MIN, List, Map, Pair, Struct, Time, Value, order_key


class Candidates:
    """The facts that an answer to "what would unlock it" may name."""

    most_rows: int | None = None
    """So many rows of a premise are followed: those with preferred values, then the first in the order of values. None
    for all of them."""
    preferred: frozenset[Value] = frozenset()

    def __init__(
        self, solver: Finished, goal: Fact, acceptance: Acceptance, over: Collection[Key] | None = None
    ) -> None:
        self.solver = solver
        self.goal = goal
        program = solver.program
        self.keys = _without_rules(program) if over is None else frozenset(over)
        self.dictated: set[Fact] = set()
        """Facts whose interval is the smallest that satisfies some premise; for others another would have done."""
        self._acceptance = acceptance
        self._fits: dict[tuple[Key, Args], bool] = {}
        self._columns: dict[tuple[Key, int], tuple[Value, ...]] = {}

    # --- constants -------------------------------------------------------------------------------------------------

    @cached_property
    def constants(self) -> tuple[Value, ...]:
        """Every constant of the program, of the given facts and of the question, in the order of values."""
        found: set[Value] = set()
        for value in self._values():
            stack = [value]
            while stack:
                one = stack.pop()
                if one not in found:
                    found.add(one)
                    stack += _parts(one)
        return tuple(sorted(found, key=order_key))

    def _values(self) -> Iterator[Value]:
        yield from self.goal.args
        solver = self.solver
        for key in solver.program.predicates:
            for args, interval in solver.model.derived(key):
                if solver.given(Fact(key[0], args, interval)):
                    yield from args
        for fact in solver.program.facts:
            yield from fact.values(solver.now)
        for rule in solver.program.rules:
            terms: list[Term] = list(rule.head.args)
            for premise in rule.premises:
                terms += [premise.left, premise.right] if isinstance(premise, Equality) else premise.atom.args
            terms += [let.expression for step in rule.clause.transforms for let in step.lets]
            for term in terms:
                yield from self._of_term(term)

    def _of_term(self, term: Term) -> Iterator[Value]:
        stack: list[Term] = [term]
        while stack:
            one = stack.pop()
            if isinstance(one, Apply):
                stack += one.args
                with suppress(ValueFault):  # it has variables, or no value
                    yield evaluate_term(one, {}, self.solver.now)
            elif not isinstance(one, Variable):
                yield one

    @cached_property
    def _known(self) -> frozenset[Value]:
        return frozenset(self.constants)

    # --- facts -----------------------------------------------------------------------------------------------------

    def column(self, key: Key, position: int, *, alike: bool = False) -> tuple[Value, ...]:  # noqa: ARG002
        """The constants that may stand at one position. ``alike``: to the premises that ask, one is as good as any."""
        found = self._columns.get((key, position))
        if found is None:
            rows = self.solver.predicate(key).rows
            types = [row[position] for row in rows] or [ANY]
            found = self.constants
            if ANY not in types:
                found = tuple(v for v in found if any(conforms(self._acceptance.vocabulary.value(v), t) for t in types))
            self._columns[key, position] = found
        return found

    def accepts(self, key: Key, args: Args) -> bool:
        """May this fact be added? Its values are known and its declaration takes them."""
        fits = self._fits.get((key, args))
        if fits is None:
            known = key in self.keys and self._known.issuperset(args)
            fits = self._fits[key, args] = known and self._acceptance.accepts(key, args)
        return fits

    # --- time ------------------------------------------------------------------------------------------------------

    @cached_property
    def instants(self) -> tuple[int, ...]:
        """The instants that the program, the facts and the question speak of, nearest to now first."""
        found = {self.solver.now}
        for start, end in self._spoken_of():
            found |= {start, end}
        return tuple(sorted(found - {INT_MIN, INT_MAX}, key=lambda ns: (abs(ns - self.solver.now), ns)))

    @cached_property
    def intervals(self) -> tuple[Interval, ...]:
        """Each of these instants, and the windows of boxes and the intervals that rules and the question ask for."""
        asked = set(self._asked(boxes_only=True))
        return (*((ns, ns) for ns in self.instants), *sorted(i for i in asked if i[0] != i[1]))

    def _spoken_of(self) -> Iterator[Interval]:
        yield from self._asked()
        for key, predicate in self.solver.program.predicates.items():
            if predicate.temporal:
                yield from (at for args, at in self.solver.model.derived(key) if at is not None)

    def _asked(self, boxes_only: bool = False) -> Iterator[Interval]:
        if self.goal.interval is not None:
            yield self.goal.interval
        for rule in self.solver.program.rules:
            literals = [premise for premise in rule.premises if isinstance(premise, Literal)]
            for literal in literals:
                if literal.operator is not None and (literal.operator.is_box or not boxes_only):
                    with suppress(ValueFault):  # its bounds are variables
                        yield window(literal.operator, {}, self.solver.now)
            for annotation in (rule.clause.annotation, *(literal.annotation for literal in literals)):
                if annotation is not None:
                    ends = [bound.value.ns for bound in annotation.bounds if isinstance(bound.value, Time)]
                    if ends:
                        yield min(ends), max(ends)


def _without_rules(program: Program) -> frozenset[Key]:
    """What somebody could state: neither concluded nor answered by a callable."""
    external = {key for key, predicate in program.predicates.items() if predicate.external}
    return frozenset(program.predicates) - {rule.head.key for rule in program.rules} - external


def _parts(value: Value) -> Iterable[Value]:
    if isinstance(value, Pair):
        return value.first, value.second
    if isinstance(value, List):
        return value.items
    if isinstance(value, Map | Struct):
        return [part for entry in value.entries for part in entry]
    return ()
