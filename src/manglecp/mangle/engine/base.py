"""A base: the result of a program with server facts, evaluated once, to which each request adds its facts."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from manglecp.mangle.engine.compiled import CompiledProgram
from manglecp.mangle.engine.evaluation import Evaluation
from manglecp.mangle.engine.interpreter import check_constraints
from manglecp.mangle.engine.profile import RuleProfile
from manglecp.mangle.engine.views import FactTuple, Layer
from manglecp.mangle.externals import Externals, check_names
from manglecp.mangle.facts import Fact
from manglecp.mangle.model import Limits, evaluate_given
from manglecp.mangle.program import GivenFact, Program
from manglecp.mangle.result import Result
from manglecp.mangle.syntax import Key
from manglecp.mangle.values import INT_MAX, INT_MIN, Value


@dataclass(frozen=True, eq=False)
class Base:
    """The least model of a program and the facts of a server. Immutable and thread-safe.

    Rules that depend on the evaluation time are not evaluated for the base: each request evaluates them.
    """

    compiled: CompiledProgram
    layer: Layer
    externals: Externals

    @property
    def program(self) -> Program:
        return self.compiled.program

    @property
    def derived(self) -> int:
        """The number of derived facts, which count towards the limit of a request."""
        return self.layer.derived_count

    def rows(self, key: Key) -> Collection[FactTuple]:
        """Return the facts of a predicate in the base; a temporal fact ends with the two instants of its interval."""
        return self.layer.facts[self.compiled.ids[key]].facts

    def find(self, key: Key, value: Value, column: int = 0) -> list[FactTuple]:
        """Return the rows of a predicate with this value in this column."""
        return self.layer.facts[self.compiled.ids[key]].index((column,)).get(value, [])

    @classmethod
    def prepare(
        cls,
        program: Program,
        facts: Iterable[Fact] = (),
        *,
        check: bool = True,
        limits: Limits | None = None,
        externals: Externals | None = None,
        profile: RuleProfile | None = None,
    ) -> Base:
        """Evaluate the program. ``externals`` implement external predicates; ``check`` as in :meth:`evaluate`."""
        check_names(externals or {}, program.predicates)
        compiled = CompiledProgram(program, profile)
        given_facts = compiled.intake.by_predicate(facts, check)
        _add_program_facts(given_facts, compiled, (f for f in program.facts if not compiled.is_volatile_fact(f)), now=0)
        evaluation = Evaluation(compiled, Layer(compiled), now=0, limits=limits or Limits(), includes_volatile=False)
        evaluation.run(given_facts)
        return cls(compiled, evaluation.freeze(), externals or {})

    def evaluate(
        self, facts: Iterable[Fact] = (), *, now: int | None = None, check: bool = True, limits: Limits | None = None
    ) -> Result:
        """Evaluate the facts of a request together with those of the base, at the instant ``now``.

        ``now`` is in nanoseconds since 1970, by default the present time. With ``check=False``, facts are not checked
        against the declarations.
        """
        now = time.time_ns() if now is None else now
        if type(now) is not int or not INT_MIN < now < INT_MAX:
            raise ValueError("now is an integer: nanoseconds since 1970")
        given_facts = self.compiled.intake.by_predicate(facts, check)
        _add_program_facts(given_facts, self.compiled, self.compiled.volatile_facts, now)
        evaluation = Evaluation(self.compiled, self.layer, now, limits or Limits(), externals=self.externals)
        return _run(evaluation, given_facts)

    def with_facts(
        self, add: Iterable[Fact] = (), remove: Iterable[Fact] = (), *, check: bool = True, limits: Limits | None = None
    ) -> Base:
        """Return another base with given facts added and removed; a derived fact cannot be removed."""
        intake = self.compiled.intake
        evaluation = Evaluation(self.compiled, self.layer, now=0, limits=limits or Limits(), includes_volatile=False)
        evaluation.run(intake.by_predicate(add, check), intake.by_predicate(remove, check))
        return Base(self.compiled, evaluation.freeze(), self.externals)


def evaluate(
    program: Program,
    *,
    now: int,
    limits: Limits | None = None,
    externals: Externals | None = None,
    compiled: CompiledProgram | None = None,
) -> Result:
    """Evaluate the program at the instant ``now`` (ns), with compiled rules over an empty base."""
    compiled = compiled or CompiledProgram(program)
    evaluation = Evaluation(compiled, Layer(compiled), now, limits or Limits(), externals=externals)
    given_facts: dict[int, set[FactTuple]] = {}
    _add_program_facts(given_facts, compiled, program.facts, now)
    return _run(evaluation, given_facts)


def _add_program_facts(
    given_facts: dict[int, set[FactTuple]], compiled: CompiledProgram, facts: Iterable[GivenFact], now: int
) -> None:
    for fact in facts:
        args, interval = evaluate_given(fact, compiled.program.predicates[fact.key], now)
        given_facts.setdefault(compiled.ids[fact.key], set()).add(args if interval is None else (*args, *interval))


def _run(evaluation: Evaluation, given_facts: dict[int, set[FactTuple]]) -> Result:
    evaluation.run(given_facts)
    if evaluation.compiled.constrained:
        check_constraints(evaluation)
    return Result(evaluation)
