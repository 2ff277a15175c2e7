"""One program, evaluated in many ways that must agree.

The facts of a program may stay in it, be given to a base, be added to a base later, taken away and added again, or come
with a request. Whatever the way, the answer is that of the naive evaluator over all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, TypeAlias

from manglecp.mangle.engine import Base, evaluate
from manglecp.mangle.engine.compiled import CompiledProgram
from manglecp.mangle.errors import LimitError, MangleError
from manglecp.mangle.externals import Externals
from manglecp.mangle.facts import Fact
from manglecp.mangle.matching import head_interval
from manglecp.mangle.model import Limits
from manglecp.mangle.program import GivenFact, Program
from manglecp.mangle.result import Result
from tests.mangle import naive
from tests.mangle.engine.special import EXTERNALS

LIMITS: Final = Limits(call_depth=300, merge_steps=10_000)
"""What an evaluation may use unless a test says otherwise: what never ends shall end soon."""


@dataclass(frozen=True)
class Answer:
    """What an evaluation says. An error is known by its stage, a limit by its number."""

    facts: tuple[str, ...] = ()
    derived: int = 0
    given: int = 0
    error: str | None = None

    @classmethod
    def of(cls, result: Result) -> Answer:
        counts = result.statistics
        return cls(tuple(result.facts()), counts.derived, counts.given)

    @classmethod
    def refused(cls, error: MangleError) -> Answer:
        return cls(error=f"limit {error.limit}" if isinstance(error, LimitError) else error.stage)


def externals_of(program: Program) -> Externals:
    """Answers to those external predicates that the program has."""
    return {p.name: EXTERNALS[p.name] for p in program.predicates.values() if p.external and p.name in EXTERNALS}


def oracle(program: Program, now: int, limits: Limits | None = None) -> Answer:
    """What the naive evaluator says."""
    try:
        return Answer.of(naive.evaluate(program, now=now, limits=limits or LIMITS, externals=externals_of(program)))
    except MangleError as error:
        return Answer.refused(error)


def fresh(program: Program, now: int, limits: Limits | None = None) -> Answer:
    """What the engine says without a base."""
    try:
        return Answer.of(evaluate(program, now=now, limits=limits or LIMITS, externals=externals_of(program)))
    except MangleError as error:
        return Answer.refused(error)


def with_facts(program: Program, facts: Sequence[GivenFact]) -> Program:
    """The same rules over other facts of the program."""
    return Program(program.predicates, program.rules, facts, program.components, program.warnings)


def steady(program: Program) -> list[GivenFact]:
    """The facts that do not depend on the evaluation time."""
    return [fact for fact in program.facts if not CompiledProgram.is_volatile_fact(fact)]


def from_outside(program: Program, fact: GivenFact) -> Fact:
    """A fact of the program as one that a server or a request brings."""
    args = fact.values(0)
    if not program.predicates[fact.key].temporal:
        return Fact(fact.key[0], args)
    assert fact.clause.annotation is not None
    return Fact(fact.key[0], args, head_interval(fact.clause.annotation, {}, 0))


REMOVED: Final = 2
"""Which of the bases on the way is the one that lost facts."""


@dataclass(frozen=True)
class Split:
    """Where each fact goes. What is in ``detour`` is in the base, taken away and added again."""

    program: Program  # with the facts that stay
    base: tuple[Fact, ...]
    later: tuple[Fact, ...]
    detour: tuple[Fact, ...]
    passing: tuple[Fact, ...]  # added to the base and taken away again before the request
    request: tuple[Fact, ...]
    states: tuple[Program, ...]  # what each base on the way holds

    def bases(self, check: bool) -> Iterator[Base]:
        """The bases on the way to the last one."""
        base = self.program.base(self.base, check=check, limits=LIMITS, externals=externals_of(self.program))
        yield base
        base = base.with_facts((*self.later, *self.passing), check=check, limits=LIMITS)
        yield base
        base = base.with_facts((), (*self.detour, *self.passing), check=check, limits=LIMITS)
        yield base
        yield base.with_facts((*self.detour, *self.kept()), check=check, limits=LIMITS)

    def answer(self, now: int, limits: Limits | None = None, *, check: bool = True) -> Answer | None:
        """What the request is answered; None if a base on the way is refused, and the oracle refuses it too."""
        made: list[Base] = []
        try:
            made.extend(self.bases(check))
        except MangleError:
            assert oracle(self.states[len(made)], 0).error is not None
            return None
        less = made[REMOVED]  # a base that lost facts answers for itself
        if limits is None and (self.detour or self.passing):
            assert difference(self._ask(less, (), now, None, check), oracle(self.states[REMOVED], now)) is None
        base = made[-1]
        first = self._ask(base, self.request, now, limits, check)
        assert self._ask(base, self.request, now, limits, check) == first  # the first one left no traces
        return first

    def _ask(self, base: Base, facts: Iterable[Fact], now: int, limits: Limits | None, check: bool) -> Answer:
        try:
            return Answer.of(base.evaluate(facts, now=now, limits=limits or LIMITS, check=check))
        except MangleError as error:
            return Answer.refused(error)

    def kept(self) -> list[Fact]:
        """Facts that only seemed to be passing: the split gave them to the base as well."""
        passing = set(self.passing)
        owned = (from_outside(self.program, fact) for fact in steady(self.program))
        return [fact for fact in (*owned, *self.base, *self.later) if fact in passing]


def split(program: Program, random: Random) -> Split:
    facts = steady(program)
    weights = random.choice([(1, 1, 1, 1, 1), (0, 0, 0, 0, 1), (1, 0, 0, 0, 1), (0, 3, 0, 0, 1), (0, 2, 2, 2, 1)])
    places: list[list[GivenFact]] = [[], [], [], [], []]
    for fact in facts:
        (place,) = random.choices(places, weights)
        place.append(fact)
    staying, base, later, detour, request = places
    volatile = [fact for fact in program.facts if CompiledProgram.is_volatile_fact(fact)]
    passing = random.sample(facts, random.randint(0, len(facts))) if random.random() < 0.5 else []

    def outside(chosen: list[GivenFact]) -> tuple[Fact, ...]:
        return tuple(from_outside(program, fact) for fact in chosen)

    left = [*staying, *base, *later]
    gone = {*outside(detour), *outside(passing)}
    return Split(
        with_facts(program, [*staying, *volatile]),
        outside([*base, *detour]),
        outside(later),
        outside(detour),
        outside(passing),
        outside(request),
        (
            with_facts(program, [*volatile, *staying, *base, *detour]),
            with_facts(program, [*volatile, *staying, *base, *detour, *later, *passing]),
            with_facts(program, [*volatile, *(f for f in left if from_outside(program, f) not in gone)]),
            with_facts(program, [*volatile, *staying, *base, *detour, *later]),
        ),
    )


Difference: TypeAlias = str | None


def difference(got: Answer, want: Answer) -> Difference:
    """What is wrong, in a few words."""
    if got == want:
        return None
    if got.error or want.error:
        return f"got {got.error or 'an answer'}, want {want.error or 'an answer'}"
    more = sorted(set(got.facts) - set(want.facts))[:5]
    less = sorted(set(want.facts) - set(got.facts))[:5]
    counts = f"derived {got.derived} ({want.derived}), given {got.given} ({want.given})"
    return f"too many {more}, missing {less}, {counts}"


def disagreement(program: Program, now: int, seed: int, *, splits: int = 3, check: bool = True) -> Difference:
    """The first way of evaluating a program that does not agree with the naive evaluator."""
    want = oracle(program, now)
    if (wrong := difference(fresh(program, now), want)) is not None:
        return f"fresh: {wrong}"
    random = Random(seed)
    for number in range(splits):
        chosen = split(program, random)
        got = chosen.answer(now, check=check)
        if got is not None and (wrong := difference(got, want)) is not None:
            return f"split {number}: {wrong}"
    if want.error is None and want.derived:
        for limit, error in ((want.derived, None), (want.derived - 1, f"limit {want.derived - 1}")):
            limits = replace(LIMITS, derived_facts=limit)
            for way, answer in (("fresh", fresh(program, now, limits)), ("split", chosen.answer(now, limits))):
                if answer is not None and answer.error != error:
                    return f"{way} with limit {limit} of {want.derived}: got {answer.error}"
    return None
