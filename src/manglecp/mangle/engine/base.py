"""A program with server facts, evaluated once; requests are answered on top of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain

from manglecp.mangle.engine.compiled import CompiledProgram
from manglecp.mangle.engine.evaluation import Evaluation, Layer
from manglecp.mangle.engine.integrity import check_constraints
from manglecp.mangle.engine.interpreter import as_fact
from manglecp.mangle.engine.lookup import LookUp
from manglecp.mangle.engine.views import NOTHING, FactTuple, View
from manglecp.mangle.engine.watch import Cancellation
from manglecp.mangle.externals import Externals, check_names
from manglecp.mangle.facts import Fact
from manglecp.mangle.limits import Limits
from manglecp.mangle.matching import Timed
from manglecp.mangle.model import EvaluatedModel, Index, Origin, Result, stated
from manglecp.mangle.packages import Key
from manglecp.mangle.program import GivenFact, Program, Rule
from manglecp.mangle.syntax import Literal
from manglecp.mangle.values import INT_MAX, INT_MIN


class Base:
    """What follows from a program and the facts of a server. Immutable, and safe to share between threads.

    What looks at the clock is not part of it: the evaluation time belongs to the request.
    """

    def __init__(self, compiled: CompiledProgram, layer: Layer, externals: Externals) -> None:
        self.compiled = compiled
        self.layer = layer
        self.externals = externals

    @property
    def derived(self) -> int:
        """How many facts were derived for it; a limit on derived facts counts them too."""
        return self.layer.derived

    @classmethod
    def prepare(
        cls,
        program: Program,
        facts: Iterable[Fact] = (),
        *,
        check: bool = True,
        limits: Limits | None = None,
        externals: Externals | None = None,
    ) -> Base:
        """Evaluate the facts of the program and these together.

        ``externals`` are the answers to predicates declared ``external()``, by name.
        """
        check_names(externals or {}, program.predicates)
        compiled = CompiledProgram(program)
        given = compiled.intake.sort(facts, check)
        steady = [fact for fact in program.facts if not compiled.is_volatile_fact(fact)]
        for i, more in program_facts(compiled, steady, 0).items():
            given.setdefault(i, set()).update(more)
        evaluation = Evaluation(compiled, Layer(compiled), 0, limits or Limits(), volatile=False)
        evaluation.run(given)
        return cls(compiled, evaluation.freeze(), externals or {})

    def evaluate(
        self,
        facts: Iterable[Fact] = (),
        *,
        now: int | None = None,
        check: bool = True,
        limits: Limits | None = None,
        cancellation: Cancellation | None = None,
    ) -> Result:
        """The answer to a request: as if all facts had been evaluated together at the instant ``now``.

        ``now`` is in nanoseconds since 1970; by default the clock decides. ``check=False`` leaves out the comparison of
        the facts with the declared bounds.
        """
        now = time.time_ns() if now is None else now
        if type(now) is not int or not INT_MIN < now < INT_MAX:
            raise ValueError("now is an integer: nanoseconds since 1970")
        given = self.compiled.intake.sort(facts, check)
        if self.compiled.volatile_facts:
            for i, more in program_facts(self.compiled, self.compiled.volatile_facts, now).items():
                given.setdefault(i, set()).update(more)
        evaluation = Evaluation(
            self.compiled,
            self.layer,
            now,
            limits or Limits(),
            externals=self.externals,
            cancellation=cancellation,
        )
        evaluation.run(given)
        return as_result(evaluation)

    def with_facts(
        self,
        add: Iterable[Fact] = (),
        remove: Iterable[Fact] = (),
        *,
        check: bool = True,
        limits: Limits | None = None,
    ) -> Base:
        """Another base, with facts added and taken away. What was never given cannot be taken away."""
        intake = self.compiled.intake
        evaluation = Evaluation(self.compiled, self.layer, 0, limits or Limits(), volatile=False)
        evaluation.run(intake.sort(add, check), intake.sort(remove, check))
        return Base(self.compiled, evaluation.freeze(), self.externals)


def evaluate(
    program: Program,
    *,
    now: int,
    limits: Limits | None = None,
    externals: Externals | None = None,
    compiled: CompiledProgram | None = None,
) -> Result:
    """Every fact that follows from the program at the instant ``now``; compiled, over an empty base."""
    compiled = compiled or CompiledProgram(program)
    evaluation = Evaluation(compiled, Layer(compiled), now, limits or Limits(), externals=externals)
    evaluation.run(program_facts(compiled, program.facts, now))
    return as_result(evaluation)


def program_facts(compiled: CompiledProgram, facts: Iterable[GivenFact], now: int) -> dict[int, set[FactTuple]]:
    """Facts of the program itself, by number of their predicate."""
    found: dict[int, set[FactTuple]] = {}
    for fact in facts:
        args, interval = stated(fact, compiled.program.predicates[fact.key], now)
        found.setdefault(compiled.ids[fact.key], set()).add(args if interval is None else (*args, *interval))
    return found


class ViewFacts:
    """A relation of a finished evaluation."""

    def __init__(self, view: View, temporal: bool) -> None:
        self.view = view
        self.temporal = temporal

    def __iter__(self) -> Iterator[Timed]:
        return (as_fact(fact, self.temporal) for fact in self.view)

    def __len__(self) -> int:
        return len(self.view)


class Relations(Mapping[Key, ViewFacts]):
    """The relations of a finished evaluation; empty ones are left out."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation

    def __getitem__(self, key: Key) -> ViewFacts:
        i = self.evaluation.compiled.ids[key]
        if not len(self.evaluation.views[i]):
            raise KeyError(key)
        return ViewFacts(self.evaluation.views[i], self.evaluation.compiled.temporal[i])

    def __iter__(self) -> Iterator[Key]:
        return (key for i, key in enumerate(self.evaluation.compiled.keys) if len(self.evaluation.views[i]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class EngineModel(EvaluatedModel):
    """The finished model of an evaluation by this engine, as explanations read it."""

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__(evaluation.compiled.program, evaluation.now, evaluation.limits, evaluation.asked)
        self.evaluation = evaluation
        self.relations = Relations(evaluation)

    def stored_as_derived(self, key: Key) -> Iterable[Timed]:
        i = self.evaluation.compiled.ids[key]
        if not self.evaluation.compiled.temporal[i]:
            stored = self.relations.get(key, ())
            if self.program.predicates[key].merge is None:
                return stored
            given = self.evaluation.base.given[i] | self.evaluation.given.get(i, set())  # some may have lost
            return dict.fromkeys(chain(stored, ((args, None) for args in given)))
        return ViewFacts(self._raw(i), temporal=True)

    def _raw(self, i: int) -> View:
        """A temporal relation as given and derived."""
        view = self.evaluation.raw.get(i)
        return View(self.evaluation.base.raw.get(i, NOTHING)) if view is None else view

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index | None:
        i = self.evaluation.compiled.ids.get(key)
        if i is None or key in self._asked:
            return None
        temporal = self.evaluation.compiled.temporal[i]
        if raw and not temporal and self.program.predicates[key].merge is not None:
            return None  # what was given and lost is listed too
        view = self._raw(i) if raw and temporal else self.evaluation.views[i]
        return LookUp(view, positions, key[1], temporal)

    def count_derived(self, key: Key) -> int | None:
        evaluation = self.evaluation
        i = evaluation.compiled.ids[key]
        if key in self._asked or self.program.predicates[key].merge is not None:
            return None
        view = self._raw(i) if evaluation.compiled.temporal[i] else evaluation.views[i]
        given = evaluation.base.given[i] | evaluation.given.get(i, set())
        return len(view) - sum(fact in view for fact in given)

    def kept_heads(self, rule: Rule) -> dict[int, int] | None:
        evaluation = self.evaluation
        ids, predicates = evaluation.compiled.ids, self.program.predicates
        if predicates[rule.head.key].deferred or ids[rule.head.key] not in self._settled:
            return None
        for premise in rule.premises:
            if isinstance(premise, Literal) and not premise.atom.predicate.startswith(":"):
                i = ids[premise.atom.key]
                if predicates[premise.atom.key].deferred or i in evaluation.raw or evaluation.views[i].changed:
                    return None
        return evaluation.base.heads

    def with_facts(self, added: Iterable[Fact], limits: Limits) -> EngineModel:
        compiled = self.evaluation.compiled
        evaluation = Evaluation(compiled, self._layer, self.now, limits, externals=self.evaluation.externals)
        evaluation.run(compiled.intake.sort(added, check=False))
        check_constraints(evaluation)
        return EngineModel(evaluation)

    @cached_property
    def _settled(self) -> frozenset[int]:
        """The predicates whose rules the base has run."""
        evaluation = self.evaluation
        done = (one for one in evaluation.compiled.components if one.number in evaluation.base.done)
        return frozenset(i for one in done for i in one.heads)

    @cached_property
    def _layer(self) -> Layer:
        """Everything that was given, evaluated as a base; at this instant even what was given in terms of it."""
        evaluation = Evaluation(self.evaluation.compiled, self.evaluation.base, self.now, self.limits, volatile=False)
        evaluation.run(self.evaluation.given)
        return evaluation.freeze()

    def outside_origin(self, fact: Fact) -> Origin | None:
        i = self.evaluation.compiled.ids[fact.key]
        given = fact.args if fact.interval is None else (*fact.args, *fact.interval)
        if given in self.evaluation.base.given[i]:
            return "server"
        return "session" if given in self.evaluation.given.get(i, ()) else None


def as_result(evaluation: Evaluation) -> Result:
    """The answer, if the constraints hold."""
    check_constraints(evaluation)
    return Result(EngineModel(evaluation), evaluation.statistics)
