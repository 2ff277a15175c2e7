"""A model with some facts added.

Only what depends on the new facts is evaluated again; everything else is read from the finished model. Where more facts
can only mean more conclusions, evaluation goes on from the conclusions that are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

from manglecp.mangle.constraints import violations
from manglecp.mangle.errors import EvalError, LimitError
from manglecp.mangle.explain.dependence import Dependence
from manglecp.mangle.explain.model import Model
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.facts import Fact
from manglecp.mangle.limits import Limits
from manglecp.mangle.matching import Row, Timed
from manglecp.mangle.model import Index, Origin, Relation, program_facts
from manglecp.mangle.naive import NaiveEvaluation, Solving
from manglecp.mangle.packages import Key
from manglecp.mangle.program import Rule
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Annotation, Atom, Literal as Literal_, Premise, Variable

ROOM: Final = 20_000
"""So many facts may a trial derive beyond what there was; a question must not take longer than the answer is worth."""

Outcome: TypeAlias = Literal["done", "broken", "stopped"]


class Lack(NamedTuple):
    """A fact whose inclusion has no match: the atom that is missing, and what its variables stand for."""

    atom: Atom
    row: Row
    annotation: Annotation | None = None


class Ground:
    """What all trials over one model share."""

    def __init__(self, solver: Finished, dependence: Dependence) -> None:
        self.solver = solver
        self.dependence = dependence
        self._given: dict[Key, list[Timed]] = {}
        self._derived: dict[Key, int] = {}
        self._stated: dict[Key, set[Timed]] = {}
        for fact in program_facts(solver.program, solver.now):
            self._stated.setdefault(fact.key, set()).add(fact.timed)

    def given(self, key: Key) -> list[Timed]:
        """The facts of a predicate that were given, not only derived."""
        found = self._given.get(key)
        if found is None:
            facts = dict.fromkeys(f for f in self.solver.model.derived(key) if self.solver.given(Fact(key[0], *f)))
            facts.update(dict.fromkeys(self._stated.get(key, ())))
            found = self._given[key] = list(facts)
        return found

    @cached_property
    def count(self) -> int:
        """How many facts were derived in all."""
        return sum(map(self.derived, self.solver.program.predicates))

    def derived(self, key: Key) -> int:
        """How many facts count against the limit."""
        if key not in self.solver.rules and self.solver.predicate(key).merge is None:
            return 0
        count = self._derived.get(key)
        if count is None:
            count = self.solver.model.count_derived(key)
            if count is None:
                given = set(self.given(key))
                count = sum(1 for fact in self.solver.model.derived(key) if fact not in given)
            self._derived[key] = count
        return count


class Trial(NaiveEvaluation):
    """The evaluation of a model with facts added, as far as ``scope`` reaches (None: all of it)."""

    def __init__(self, ground: Ground, added: Iterable[Fact], scope: set[Key] | None = None) -> None:
        base = ground.solver
        super().__init__(base.program, base.now, base.limits)
        self.ground = ground
        self.base = base
        self.added = frozenset(added)
        self.scope = scope
        self.affected = ground.dependence.affects({fact.key for fact in self.added})
        self.at: Rule | None = None
        """The rule that was being applied when the evaluation broke."""
        self.lacks: list[Lack] = []
        self.outcome: Outcome = self._try()

    def _try(self) -> Outcome:
        inside = [key for key in self.affected if self.scope is None or key in self.scope]
        if self.scope is None:
            self.derived = self.ground.count - sum(map(self.ground.derived, self.affected))
        limit = self.base.limits.derived_facts
        enough = self.derived + sum(map(self.ground.derived, inside)) + ROOM
        self.limits = replace(self.base.limits, derived_facts=min(limit, enough))
        try:
            self._load(inside)
            for component in self.program.components:
                if not self.affected.isdisjoint(component.predicates) and self._in_scope(component):
                    self.component(component)
            if self.scope is None:
                self.at = None
                self._constraints()
        except LimitError:
            return "stopped" if self.limits.derived_facts < limit else "broken"
        except EvalError:
            return "broken"
        return "done"

    def _in_scope(self, component: Component) -> bool:
        return self.scope is None or not self.scope.isdisjoint(component.predicates)

    def _load(self, keys: Iterable[Key]) -> None:
        for key in keys:
            for fact in self.ground.given(key):
                self.relation(key).add(*fact)
        for added in self.added:
            self.relation(added.key).add(*added.timed)
        for key in keys:
            if key not in self.rules and self.predicate(key).merge is None:
                self._finish(key)

    def component(self, component: Component) -> None:
        if self._only_grows(component):
            for key in component.predicates:
                relation = self.relation(key)
                for fact in self.base.model.derived(key):
                    self.derived += relation.add(*fact)
        super().component(component)

    def _only_grows(self, component: Component) -> bool:
        """Does every rule read the affected predicates without negation, aggregation and time?"""
        for key in component.predicates:
            predicate = self.predicate(key)
            if predicate.merge is not None or predicate.deferred or predicate.temporal:
                return False
            if any(self.ground.dependence.upsetters(key) & self.affected):
                return False
        return True

    def _apply(self, rule: Rule) -> list[Timed]:
        self.at = rule
        return super()._apply(rule)

    def relation(self, key: Key) -> Relation:
        return super().relation(key) if key in self.affected else self.base.relation(key)

    def _solve(self, premise: Premise, rows: list[Row]) -> Solving:
        if rows and self.base.is_stored(premise):
            assert isinstance(premise, Literal_)
            if premise.atom.key not in self.affected:
                return (yield from self.base._solve(premise, rows))
        return (yield from super()._solve(premise, rows))

    def _constraints(self) -> None:
        """Check what the new facts could violate, and note which inclusions lack a match."""
        self.answers.clear()
        concerned = {
            predicate.key
            for predicate in self.program.predicates.values()
            if predicate.key in self.affected or any(atom.key in self.affected for atom in predicate.inclusion)
        }
        for key in sorted(concerned):
            predicate = self.predicate(key)
            if not predicate.inclusion or predicate.decl is None:
                continue
            names = [arg.name if isinstance(arg, Variable) else "_" for arg in predicate.decl.atom.args]
            for args, _ in self.relation(key):
                row = {name: value for name, value in zip(names, args, strict=True) if name != "_"}
                self.lacks += [Lack(atom, row) for atom in predicate.inclusion if not self.holds(atom, row)]
        broken = [
            v for key in sorted(concerned) for v in violations(self.predicate(key), self.relation(key), self.holds)
        ]
        if broken:
            raise EvalError(broken)

    def contains(self, fact: Fact) -> bool:
        """Does it hold now, at every instant it names?"""
        if self.predicate(fact.key).deferred:
            return Finished(TrialModel(self)).contains(fact)
        if fact.key not in self.affected:
            return self.base.contains(fact)
        intervals = (self.relation(fact.key).finished or {}).get(fact.args, ())
        if fact.interval is None:
            return bool(intervals)
        start, end = fact.interval
        return any(at is not None and at[0] <= start and end <= at[1] for at in intervals)


class TrialModel:
    """What a trial that was done yields, as a model of its own."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.program = trial.program
        self.now = trial.now
        self.limits = trial.base.limits
        self.model: Model = trial.base.model

    def facts(self, key: Key) -> Iterable[Timed]:
        return self.trial.relation(key) if key in self.trial.affected else self.model.facts(key)

    def derived(self, key: Key) -> Iterable[Timed]:
        if key not in self.trial.affected:
            return self.model.derived(key)
        facts = self.trial.relation(key).facts
        return ((args, interval) for args, intervals in facts.items() for interval in intervals)

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index | None:
        return None if key in self.trial.affected else self.model.index(key, positions, raw=raw)

    def count_derived(self, key: Key) -> int | None:
        return None if key in self.trial.affected else self.model.count_derived(key)

    def kept_heads(self, _rule: Rule) -> None:
        """A trial is soon forgotten."""

    def with_facts(self, added: Iterable[Fact], limits: Limits) -> Model:
        return self.model.with_facts((*self.trial.added, *added), limits)

    def origin(self, fact: Fact) -> Origin | None:
        return "given" if fact in self.trial.added else self.model.origin(fact)
