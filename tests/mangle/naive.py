"""The oracle of the engine: the interpreter applied to a whole program, without base, plan or delta."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from manglecp.mangle.engine.model import EvaluatedModel
from manglecp.mangle.engine.views import FactTuple, Rounds
from manglecp.mangle.errors import EvalError
from manglecp.mangle.externals import ExternalCalls, Externals
from manglecp.mangle.facts import Fact, TimedArgs
from manglecp.mangle.model import Index, Limits, Origin, Relation, Statistics, program_facts, violations
from manglecp.mangle.naive import NaiveEvaluation
from manglecp.mangle.program import Program, Rule
from manglecp.mangle.result import Result
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Key


def evaluate(program: Program, *, now: int, limits: Limits | None = None, externals: Externals | None = None) -> Result:
    """Evaluate the program at the instant ``now`` (nanoseconds since 1970)."""
    evaluation = _WholeProgram(program, now, limits or Limits(), externals)
    evaluation.run()
    return NaiveResult(NaiveModel(evaluation), evaluation.statistics)


class NaiveResult(Result):
    def __init__(self, model: BareModel, statistics: Statistics) -> None:
        self.model = model
        self.program = model.program
        self.now = model.now
        self.statistics = statistics

    def rows(self, key: Key) -> list[FactTuple]:
        return [args if at is None else (*args, *at) for args, at in self.relations.get(key, ())]


class _WholeProgram(NaiveEvaluation):
    def run(self, more: Iterable[Fact] = ()) -> None:
        for fact in itertools.chain(program_facts(self.program, self.now), more):
            self.relation(fact.key).add(*fact.timed_args)
        self.statistics.given = sum(map(len, self.relations.values()))
        for key in [key for key in self.relations if key not in self.rules]:
            self._finish(key)
        for component in self.program.components:
            self.evaluate_component(component)
        self.answers.clear()
        constrained = [(self.predicate(key), self.relation(key)) for key in sorted(self.relations)]
        broken = [one for predicate, relation in constrained for one in violations(predicate, relation, self.holds)]
        if broken:
            raise EvalError(broken)
        self.statistics.derived = self.derived_count


class BareModel(EvaluatedModel):
    """A model without an evaluation of the engine, and so without indexes and counts."""

    def __init__(self, program: Program, now: int, limits: Limits, external_calls: ExternalCalls) -> None:
        self.program = program
        self.now = now
        self.limits = limits
        self._external_calls = external_calls

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index | None:  # noqa: ARG002
        return None

    def rules_fired(self) -> tuple[int, list[Rule]]:
        return 0, [*self.program.rules]

    def head_counts(self, rule: Rule) -> dict[int, int] | None:  # noqa: ARG002
        return None

    def rounds(self, component: Component, limits: Limits) -> Rounds | None:  # noqa: ARG002
        return None

    def origin(self, fact: Fact) -> Origin | None:
        return "given" if fact in self._program_facts else None


class NaiveModel(BareModel):
    def __init__(self, evaluation: NaiveEvaluation) -> None:
        super().__init__(evaluation.program, evaluation.now, evaluation.limits, evaluation.external_calls)
        self.relations = evaluation.relations
        self._externals = evaluation.externals
        self._added: tuple[Fact, ...] = ()

    def with_facts(self, added: Iterable[Fact], limits: Limits) -> NaiveModel:
        evaluation = _WholeProgram(self.program, self.now, limits, self._externals)
        evaluation.run(itertools.chain(self._added, added))
        found = NaiveModel(evaluation)
        found._added = (*self._added, *added)
        return found

    def stored_as_derived(self, key: Key) -> Iterable[TimedArgs]:
        relation = self.relations.get(key, Relation())
        assert isinstance(relation, Relation)
        return ((args, interval) for args, intervals in relation.facts.items() for interval in intervals)
