"""Until when a fact goes on holding if nothing new is said.

A derivation lasts as long as the premise that ends first, a fact as long as the derivation that lasts longest. So the
ways to derive a fact are found backwards, through rules that time can end only, and their ends settled from the
longest down, as widest paths are: a fact is settled when it lasts longest of those whose premises are settled. What
rests on itself alone is never settled, so no cycle supports itself, and nothing here recurses in Python.

Of a fact that rests on other facts in many ways only :data:`MOST_WAYS` are followed, those that could last longest; so
with more of them the answer may be too early, never too late.

Compiled functions find the ways where they can (:mod:`backward`); for deferred and merged predicates, and for models
of the naive evaluator, the instances of rules are read instead.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from manglecp.mangle.engine.base import EngineModel
from manglecp.mangle.engine.codegen import Compiled, NotCompiled
from manglecp.mangle.engine.compiled import CompiledProgram
from manglecp.mangle.explain.backward import BackwardRule, BackwardRules, Ways, backward_rules
from manglecp.mangle.explain.instances import Instance, Instances, Support
from manglecp.mangle.explain.lasting import FOREVER, Lasting, looks_at_now, premise_end
from manglecp.mangle.explain.question import read_fact
from manglecp.mangle.explain.replay import Merged, Replay
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.facts import Fact
from manglecp.mangle.intervals import Interval
from manglecp.mangle.matching import Row
from manglecp.mangle.model import EvaluatedModel
from manglecp.mangle.packages import Key
from manglecp.mangle.syntax import Literal, Variable
from manglecp.mangle.values import INT_MAX, INT_MIN, Value, order_key

MOST_WAYS: Final = 8
"""So many ways to derive a fact from other facts are followed."""

Node: TypeAlias = tuple[int, tuple[Any, ...]]
"""A plain fact by the number of its predicate; a negative number stands for a choice between facts."""


class Backwards:
    """What is known of a program. Made once, when the first expiry is asked for."""

    def __init__(self, compiled: CompiledProgram) -> None:
        self.lasting = Lasting(compiled.program)
        self.rules = backward_rules(compiled, self.lasting)


def backwards(compiled: CompiledProgram) -> Backwards:
    """What is known of the program, kept with it."""
    if compiled.backwards is None:
        compiled.backwards = Backwards(compiled)
    return compiled.backwards  # type: ignore[no-any-return]  # the engine knows nothing of it


@dataclass(slots=True)
class _Waiting:
    """A way some of whose facts are not settled yet."""

    node: Node
    last: int
    missing: int


def may_expire(compiled: CompiledProgram, key: Key, first: Value) -> bool:
    """Can time end a fact of this predicate whose first argument this is? Known from the rules alone."""
    return backwards(compiled).lasting.can_expire(key, first)


class Expiry:
    """Ends of the facts of one finished model. What was settled for one fact serves the next."""

    def __init__(self, model: EvaluatedModel) -> None:
        self.model = model
        self.engine = model.evaluation if isinstance(model, EngineModel) else None
        self.rules: dict[Key, BackwardRules | None] = {}
        if self.engine is None:
            self.lasting = Lasting(model.program)
            self.keys: Sequence[Key] = sorted(model.program.predicates)
        else:
            known = backwards(self.engine.compiled)
            self.lasting, self.rules, self.keys = known.lasting, known.rules, self.engine.compiled.keys
        self.ids = {key: i for i, key in enumerate(self.keys)} if self.engine is None else self.engine.compiled.ids
        self.settled: dict[Node, int] = {}
        self._choices: dict[Node, Ways] = {}
        self._functions: dict[BackwardRule, Compiled | None] = {}  # for the layers of this evaluation
        self._read: _Read | None = None

    def of(self, fact: str | Fact) -> int | None:
        """Until when; None for ever. A fact that does not hold has no end: that is an error."""
        if isinstance(fact, str):
            fact = read_fact(fact, self.model.program, self.model.now)
        predicate = self.model.program.predicates.get(fact.key)
        if predicate is not None and predicate.temporal and fact.interval is None:
            fact = fact._replace(interval=(INT_MIN, INT_MAX))
        if predicate is None or not self._holds(fact):
            raise ValueError(f"{fact.text} does not hold")
        if predicate.temporal:
            end = self.read.joined(fact)[1]
        elif fact.key not in self.lasting.limited:
            return None
        else:
            end = self._end((self.ids[fact.key], fact.args))
        return None if end >= FOREVER else end

    @property
    def read(self) -> _Read:
        """The model as explanations read it, made when it is first needed."""
        if self._read is None:
            self._read = _Read(self.model)
        return self._read

    def _holds(self, fact: Fact) -> bool:
        predicate = self.model.program.predicates[fact.key]
        if self.engine is None or predicate.temporal or predicate.deferred or predicate.external:
            return self.read.solver.contains(fact)
        return fact.args in self.engine.views[self.ids[fact.key]]

    # --- settling --------------------------------------------------------------------------------------------------

    def _end(self, goal: Node) -> int:
        if goal not in self.settled:
            self._search(goal, MOST_WAYS, self.settled)
        if goal in self.settled:
            return self.settled[goal]
        # What was followed only led back to where it came from: follow everything.
        settled = self.settled.copy()
        self._search(goal, None, settled)
        self.settled[goal] = settled[goal]
        return settled[goal]

    def _search(self, goal: Node, most: int | None, settled: dict[Node, int]) -> None:
        """Settle the goal and whatever it can rest on: what is below a fact first, what lies on cycles at last."""
        found: dict[Node, Ways] = {}
        stack = [goal]
        while stack:
            node = stack[-1]
            if node in settled:
                stack.pop()
                continue
            ways = found.get(node)
            if ways is None:
                ways = found[node] = _longest(self._ways(node), most)
                new = [other for below in ways for other in below if other not in settled and other not in found]
                if new:
                    stack += new
                    continue
            stack.pop()
            end = _known_end(ways, settled)
            if end is not None:
                settled[node] = end
        if goal not in settled:
            self._settle({node: ways for node, ways in found.items() if node not in settled}, settled)

    def _settle(self, found: dict[Node, Ways], settled: dict[Node, int]) -> None:
        queue: list[tuple[int, int, Node]] = []
        number = itertools.count()
        waiting: dict[Node, list[_Waiting]] = {}
        for node, ways in found.items():
            for below, last in ways.items():
                missing = []
                for other in set(below):
                    if other in settled:
                        last = min(last, settled[other])
                    else:
                        missing.append(other)
                if not missing:
                    queue.append((-last, next(number), node))
                    continue
                way = _Waiting(node, last, len(missing))
                for other in missing:
                    waiting.setdefault(other, []).append(way)
        heapq.heapify(queue)
        while queue:
            negative, _, node = heapq.heappop(queue)
            if node in settled:
                continue
            settled[node] = -negative
            for way in waiting.get(node, ()):
                way.last = min(way.last, -negative)
                way.missing -= 1
                if way.missing == 0:
                    heapq.heappush(queue, (-way.last, next(number), way.node))

    # --- ways ------------------------------------------------------------------------------------------------------

    def _ways(self, node: Node) -> Ways:
        number, args = node
        if number < 0:
            return self._choices[node]
        if self._given(node):
            return {(): FOREVER}
        key = self.keys[number]
        rules = self.rules.get(key)
        if rules is not None and self.engine is not None:
            try:
                return self._compiled_ways(rules, args)
            except NotCompiled:
                self.rules[key] = None
        found: Ways = {}
        for entry in self.read.entries(Fact(key[0], args)):
            self._add(found, *self._entry(entry))
        return found

    def _given(self, node: Node) -> bool:
        number, args = node
        if self.engine is None:
            return self.model.origin(Fact(self.keys[number][0], args)) is not None
        return args in self.engine.base.given[number] or args in self.engine.given.get(number, ())

    def _compiled_ways(self, rules: BackwardRules, args: tuple[Any, ...]) -> Ways:
        assert self.engine is not None
        views, now = self.engine.views, self.engine.now
        found: Ways = {}
        for rule in rules.fitting(args):
            if rule not in self._functions:
                self._functions[rule] = rule.function(views)
            function = self._functions[rule]
            if function is None:
                continue
            known = tuple([args[i] for i in rule.columns])
            if rule.aggregation is None:
                function.run(views, now, None, found, known)
                continue
            rows: dict[tuple[Any, ...], Ways] = {}
            function.run(views, now, None, rows, known)
            if rule.derives(args, rows, now):
                self._add(found, *self._all_of(rows.values()))
        return found

    def _add(self, found: Ways, below: tuple[Node, ...], last: int) -> None:
        found[below] = max(last, found.get(below, INT_MIN))

    def _all_of(self, choices: Iterable[Ways]) -> tuple[tuple[Node, ...], int]:
        """One way that needs one way of each choice."""
        below: dict[Node, None] = {}
        last = FOREVER
        for ways in choices:
            if len(ways) == 1:
                ((nodes, end),) = ways.items()
                below.update(dict.fromkeys(nodes))
                last = min(last, end)
            else:
                node = (-1 - len(self._choices), ())
                self._choices[node] = ways
                below[node] = None
        return tuple(below), last

    def _entry(self, entry: Instance | Merged) -> tuple[tuple[Node, ...], int]:
        """The way that an instance of a rule, or a merge, is."""
        if isinstance(entry, Merged):
            return tuple((self.ids[fact.key], fact.args) for fact in entry.facts), FOREVER
        choices: list[Ways] = []
        for ground in entry.grounds:
            if not isinstance(ground, Support):
                continue
            key = ground.literal.atom.key
            ways: Ways = {}
            if looks_at_now(ground.literal):
                ways[()] = max(self.read.end(ground.literal, ground.row, option.facts[0]) for option in ground.options)
            elif key in self.lasting.limited:
                ways = {((self.ids[key], option.facts[0].args),): FOREVER for option in ground.options}
            else:
                continue
            choices.append(ways)
        return self._all_of(choices)


class _Read:
    """A finished model read without compiled functions."""

    def __init__(self, model: EvaluatedModel) -> None:
        self.solver = Finished(model)
        self.instances = Instances(self.solver)
        self._replays: dict[Key, Replay] = {}
        self._merging = {
            key: component
            for component in model.program.components
            if any(model.program.predicates[k].merge is not None for k in component.predicates)
            for key in component.predicates
        }

    def entries(self, fact: Fact) -> Iterable[Instance | Merged]:
        """How a fact came about. Of what merges there is the log, because the model forgets."""
        if fact.key not in self._merging:
            return self.instances.of(fact)
        if fact.key not in self._replays:
            component = self._merging[fact.key]
            self._replays.update(dict.fromkeys(component.predicates, Replay(self.solver, component)))
        replay = self._replays[fact.key]
        return (replay.log[fact],) if fact in replay.log else self.instances.of(fact)

    def end(self, premise: Literal, row: Row, fact: Fact) -> int:
        """Until when a fact satisfies a premise that looks at now; ``row`` is what was known before."""
        pairs = zip(premise.atom.args, fact.args, strict=True)
        values = {arg.name: value for arg, value in pairs if isinstance(arg, Variable)}
        return premise_end(premise, {**row, **values}, self.joined(fact)[1])

    def joined(self, fact: Fact) -> Interval:
        """The whole stretch of time that an interval belongs to."""
        assert fact.interval is not None
        start, end = fact.interval
        return next((s, e) for s, e in self.solver.intervals(fact.key, fact.args) if s <= start and end <= e)


def _known_end(ways: Ways, settled: dict[Node, int]) -> int | None:
    """When the last of the ways ends; None if that is open for one of them."""
    latest: int | None = None
    for below, last in ways.items():
        for other in below:
            end = settled.get(other)
            if end is None:
                return None
            if end < last:
                last = end
        if latest is None or last > latest:
            latest = last
    return latest


def _longest(ways: Ways, most: int | None) -> Ways:
    """The ways that could last longer than one that needs no other facts, and that one; at most so many."""
    if len(ways) < 2:
        return ways
    alone = ways.get((), INT_MIN)
    promising = [way for way in ways.items() if way[1] > alone]
    if most is not None and len(promising) > most:
        promising.sort(key=_promise)
        del promising[most:]
    if () in ways:
        promising.append(((), alone))
    return dict(promising)


def _promise(way: tuple[tuple[Node, ...], int]) -> tuple[Any, ...]:
    """Longest first; among equals the order is that of the facts, so that it is always the same."""
    below, last = way
    return -last, [(number, [order_key(value) for value in args]) for number, args in below]
