"""The oracle of the engine: the interpreter applied to a whole program, without base, plan or delta."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from manglecp.mangle.errors import EvalError
from manglecp.mangle.externals import Externals
from manglecp.mangle.facts import Fact, Timed
from manglecp.mangle.model import EvaluatedModel, Limits, Relation, program_facts, violations
from manglecp.mangle.naive import NaiveEvaluation
from manglecp.mangle.program import Program
from manglecp.mangle.result import Result
from manglecp.mangle.syntax import Key


def evaluate(program: Program, *, now: int, limits: Limits | None = None, externals: Externals | None = None) -> Result:
    """Evaluate the program at the instant ``now`` (nanoseconds since 1970)."""
    evaluation = _WholeProgram(program, now, limits or Limits(), externals)
    evaluation.run()
    return Result(NaiveModel(evaluation), evaluation.statistics)


class _WholeProgram(NaiveEvaluation):
    def run(self, more: Iterable[Fact] = ()) -> None:
        for fact in itertools.chain(program_facts(self.program, self.now), more):
            self.relation(fact.key).add(*fact.timed)
        self.statistics.given = sum(map(len, self.relations.values()))
        for key in [key for key in self.relations if key not in self.rules]:
            self._finish(key)
        for component in self.program.components:
            self.component(component)
        self.answers.clear()
        constrained = [(self.predicate(key), self.relation(key)) for key in sorted(self.relations)]
        broken = [one for predicate, relation in constrained for one in violations(predicate, relation, self.holds)]
        if broken:
            raise EvalError(broken)
        self.statistics.derived = self.derived
        self.statistics.skipped_inverted = len(self.skipped)


class NaiveModel(EvaluatedModel):
    def __init__(self, evaluation: NaiveEvaluation) -> None:
        super().__init__(evaluation.program, evaluation.now, evaluation.limits, evaluation.asked)
        self.relations: Mapping[Key, Relation] = evaluation.relations
        self._externals = evaluation.externals
        self._added: tuple[Fact, ...] = ()

    def with_facts(self, added: Iterable[Fact], limits: Limits) -> NaiveModel:
        evaluation = _WholeProgram(self.program, self.now, limits, self._externals)
        evaluation.run(itertools.chain(self._added, added))
        found = NaiveModel(evaluation)
        found._added = (*self._added, *added)
        return found

    def stored_as_derived(self, key: Key) -> Iterable[Timed]:
        facts = self.relations[key].facts if key in self.relations else {}
        return ((args, interval) for args, intervals in facts.items() for interval in intervals)
