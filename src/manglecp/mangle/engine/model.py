"""The finished model of a compiled evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Final, overload

from manglecp.mangle.engine.codegen import NotCompiled
from manglecp.mangle.engine.compiled import CompiledRule
from manglecp.mangle.engine.evaluation import Cap, Evaluation, Layer
from manglecp.mangle.engine.interpreter import as_fact, check_constraints
from manglecp.mangle.engine.views import NOTHING, Columns, FactTuple, View
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.facts import Args, Fact, Timed
from manglecp.mangle.model import EvaluatedModel, Finder, Index, Limits, Origin
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Key, Literal
from manglecp.mangle.values import Value

_UNCAPPED: Final = Cap(1, *[lambda *_: None] * 3)


class LookUp:
    """Facts of one view by the values at some positions, from the indexes of base and overlay."""

    def __init__(self, view: View, positions: Columns, arity: int, temporal: bool) -> None:
        self._view = view
        self._positions = positions
        self._temporal = temporal
        self._whole = not temporal and len(positions) == arity
        self._known: dict[Args, Sequence[Timed]] = {}

    def get(self, wanted: Args, default: Sequence[Timed], /) -> Sequence[Timed]:
        """Return the facts with these values, memoised; ``default`` if there are none."""
        found = self._known.get(wanted)
        if found is None:
            found = self._known[wanted] = self._find(wanted)
        return found or default

    def _find(self, wanted: Args) -> Sequence[Timed]:
        view = self._view
        if self._whole:
            return ((wanted, None),) if wanted in view else ()
        if not self._positions:
            return Found([view], len(view), self._temporal)
        value = wanted if len(wanted) > 1 else wanted[0]  # the key of one column is the value itself
        layers: list[list[FactTuple]] = []
        if view.base.facts:
            below = view.base.index(self._positions).get(value, [])
            layers.append([fact for fact in below if fact not in view.removed] if view.removed else below)
        if view.added():
            layers.append(view.index(self._positions).get(value, []))
        return Found(layers, sum(map(len, layers)), self._temporal)


class Found(Sequence[Timed]):
    """Facts of one or two layers with a known length."""

    def __init__(self, layers: Sequence[Iterable[FactTuple]], count: int, temporal: bool) -> None:
        self._layers = layers
        self._count = count
        self._temporal = temporal

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Timed]:
        if self._temporal:
            return ((fact[:-2], (fact[-2], fact[-1])) for layer in self._layers for fact in layer)
        return ((fact, None) for layer in self._layers for fact in layer)

    @overload
    def __getitem__(self, place: int) -> Timed: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Timed]: ...
    def __getitem__(self, place: int | slice) -> Timed | Sequence[Timed]:
        return list(self)[place]


class ViewFacts:
    def __init__(self, view: View, temporal: bool) -> None:
        self.view = view
        self.temporal = temporal

    def __iter__(self) -> Iterator[Timed]:
        return (as_fact(fact, self.temporal) for fact in self.view)

    def __len__(self) -> int:
        return len(self.view)


class Relations(Mapping[Key, ViewFacts]):
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

    def rows(self, key: Key) -> list[FactTuple]:
        number = self.evaluation.compiled.ids.get(key)
        return [] if number is None else list(self.evaluation.views[number])

    def finder(self, column: int = 0) -> Finder:
        columns = (column,)
        ids, views = self.evaluation.compiled.ids, self.evaluation.views

        def find(key: Key, value: Value) -> list[FactTuple]:
            number = ids.get(key)
            if number is None:
                return []
            view = views[number]
            found: list[FactTuple] = []
            if view.base.facts:
                below: Iterable[FactTuple] = view.base.index(columns).get(value, ())
                found += [fact for fact in below if fact not in view.removed] if view.removed else below
            if view.facts:
                found += view.index(columns).get(value, ())
            return found

        return find

    def changed(self, keys: Iterable[Key]) -> tuple[Key, ...]:
        ids, views = self.evaluation.compiled.ids, self.evaluation.views
        return tuple([key for key in keys if key in ids and views[ids[key]].changed])

    def rules_fired(self) -> int | None:
        return _rules_fired(self.evaluation)

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
        """Predicates whose rules were run for the base."""
        evaluation = self.evaluation
        done = (one for one in evaluation.compiled.components if one.number in evaluation.base.done)
        return frozenset(i for one in done for i in one.heads)

    @cached_property
    def _layer(self) -> Layer:
        """All given facts evaluated as a base, at this instant including volatile ones."""
        evaluation = Evaluation(self.evaluation.compiled, self.evaluation.base, self.now, self.limits, volatile=False)
        evaluation.run(self.evaluation.given)
        return evaluation.freeze()

    def outside_origin(self, fact: Fact) -> Origin | None:
        i = self.evaluation.compiled.ids[fact.key]
        given = fact.args if fact.interval is None else (*fact.args, *fact.interval)
        if given in self.evaluation.base.given[i]:
            return "server"
        return "session" if given in self.evaluation.given.get(i, ()) else None


def _rules_fired(evaluation: Evaluation) -> int | None:
    """Count the rules that derive at least one fact; None if only rule coverage can tell.

    A rule of a head without facts did not fire; a rule that added a fact did, as did the only source of a head with
    facts; a rule with unchanged inputs did as in the base. For the rest a function is generated that stops at the first
    row.
    """
    compiled, base, views = evaluation.compiled, evaluation.base, evaluation.views
    fired, given, below = evaluation.fired, evaluation.given, base.given
    if compiled.interpreting:
        return None
    count = 0
    try:
        for component in compiled.components:
            for rule in component.rules:
                head = rule.head
                if rule.number in fired:
                    count += 1
                elif not len(views[head]):
                    continue
                elif rule.only and not below[head] and head not in given:
                    count += 1
                elif component.number not in base.done or any(views[i].changed for i in rule.reads):
                    count += _has_instance(evaluation, rule)
                else:
                    if rule.number not in base.fired:  # two threads may both find out; they find the same
                        base.fired[rule.number] = _has_instance(evaluation, rule)
                    count += base.fired[rule.number]
        return count
    except (NotCompiled, ValueFault):  # rare: a function meets a value in another order of premises
        return None


def _has_instance(evaluation: Evaluation, rule: CompiledRule) -> bool:
    if rule.aggregation is not None and evaluation.compiled.temporal[rule.head]:
        raise NotCompiled("whether it holds at some instant is known by group")
    function = rule.function(evaluation.compiled, evaluation.views, "fires", ending="fires")
    found: list[bool] = []
    if function is not None:
        function.run(evaluation.views, evaluation.now, _UNCAPPED, found)
    return bool(found)
