"""Expiry: until when a fact holds if no new facts are added.

A derivation holds until its first premise ends, a fact until its last derivation ends. Derivations are found backwards,
only through rules that time can end, and ends are settled in descending order (a widest-path search), so no cycle
supports itself. Of many derivations from other facts only :data:`MOST_WAYS` are followed, those that could last
longest; the result may be too early, never too late.

Compiled functions find the derivations. For deferred and merged predicates, and for models of the naive evaluator,
rule instances are used instead.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal as OneOf, TypeAlias

from manglecp.mangle.declarations import Predicate
from manglecp.mangle.engine.aggregate import Aggregation
from manglecp.mangle.engine.codegen import Compiled, Generator, NotCompiled, tuple_text
from manglecp.mangle.engine.compiled import CompiledProgram
from manglecp.mangle.engine.model import EngineModel
from manglecp.mangle.engine.plan import Absent, RuleSteps, Scan, take_apart
from manglecp.mangle.engine.views import View
from manglecp.mangle.explain.instances import Instance, Instances, Support
from manglecp.mangle.explain.search import Merged, Replay
from manglecp.mangle.explain.solver import Finished, read_fact
from manglecp.mangle.facts import Fact, Interval
from manglecp.mangle.matching import Row
from manglecp.mangle.model import EvaluatedModel
from manglecp.mangle.program import Program, Rule
from manglecp.mangle.syntax import Apply, Key, Literal, Now, Operator, Premise, TimeBound, Variable, premise_variables
from manglecp.mangle.values import INT_MAX, INT_MIN, Duration, Time, Value, order_key

# A fact of the interval ``[S, E]`` satisfies ``@[now]`` until E, ``<-[a, b]`` until E + b, ``[-[a, b]`` until E + a,
# ``<+[a, b]`` until E - a and ``[+[a, b]`` until E - b. Premises with a fixed window, premises that bind the ends of
# the interval, and negated premises have no end.
FOREVER: Final = INT_MAX
Always: TypeAlias = OneOf[True]


def asks_for_now(premise: Literal) -> bool:
    return premise.annotation is not None and any(isinstance(b.value, Now) for b in premise.annotation.bounds)


def looks_at_now(premise: Literal) -> bool:
    return not premise.negated and (
        asks_for_now(premise) or (premise.operator is not None and _moves(premise.operator))
    )


def _moves(operator: Operator) -> bool:
    return len(operator.bounds) == 1 or not all(isinstance(bound.value, Time) for bound in operator.bounds)


def fixed_shift(operator: Operator) -> int | None:
    """Return the constant difference between the end of a fact and of the premise, or None if it depends on the row."""
    values = [bound.value for bound in operator.bounds]
    if not all(isinstance(value, Duration | Now) for value in values):
        return None
    return _shift(operator, [_offset(operator, value) for value in values])  # type: ignore[arg-type]


def operator_end(operator: Operator, values: Sequence[Value | Now], end: int) -> int:
    """Return until when a fact that ends at ``end`` satisfies the operator with these bounds."""
    if end == FOREVER:
        return FOREVER
    moving = [_offset(operator, value) for value in values if isinstance(value, Duration | Now)]
    still = [value.ns if isinstance(value, Time) else value for value in values if isinstance(value, Time | int)]
    if not moving and len(values) > 1:
        return FOREVER
    if not operator.is_box and any(instant <= end for instant in still):
        return FOREVER  # a window that keeps its beginning only grows
    return end + _shift(operator, moving)


def _offset(operator: Operator, value: Duration | Now) -> int:
    if isinstance(value, Now):
        return 0
    return value.ns if operator.is_future else -value.ns


def _shift(operator: Operator, moving: list[int]) -> int:
    offsets = [*moving, 0] if len(operator.bounds) == 1 else moving
    return -(max(offsets) if operator.is_box else min(offsets))


def bound_values(bounds: Iterable[TimeBound], row: Mapping[str, Value]) -> list[Value | Now]:
    return [row[bound.value.name] if isinstance(bound.value, Variable) else bound.value for bound in bounds]


def premise_end(premise: Literal, row: Mapping[str, Value], end: int) -> int:
    """Return until when a fact that ends at ``end`` satisfies a premise about now; ``row`` has its variables."""
    last = end if asks_for_now(premise) else FOREVER
    if premise.operator is not None:
        last = min(last, operator_end(premise.operator, bound_values(premise.operator.bounds, row), end))
    return last


class Lasting:
    """The part of a rule graph that time can falsify. Made once per program."""

    def __init__(self, program: Program) -> None:
        self.predicates: Mapping[Key, Predicate] = program.predicates
        self.rules: dict[Key, list[Rule]] = {}
        readers: dict[Key, set[Key]] = {}
        found: list[Key] = []
        for rule in program.rules:
            head = rule.head.key
            self.rules.setdefault(head, []).append(rule)
            if program.predicates[head].temporal:
                continue  # its facts have intervals
            for premise in stored(rule):
                if looks_at_now(premise):
                    found.append(head)
                elif not program.predicates[premise.atom.key].temporal:
                    readers.setdefault(premise.atom.key, set()).add(head)
        for predicate in program.predicates.values():
            if predicate.merge is not None:
                readers.setdefault(predicate.merge.predicate, set()).add(predicate.key)
        limited = set(found)
        for key in found:
            for head in readers.get(key, set()) - limited:
                limited.add(head)
                found.append(head)
        self.limited = frozenset(limited)
        self._first: dict[Key, frozenset[Value] | Always] = {}

    def limits(self, rule: Rule) -> bool:
        """Return whether the rule has a premise about now, or one on a limited predicate."""
        return any(looks_at_now(p) or p.atom.key in self.limited for p in stored(rule))

    def can_expire(self, key: Key, first: Value) -> bool:
        """Return whether time can falsify a fact of this predicate with this first argument."""
        if key not in self.limited:
            return False
        known = self._first.get(key)
        if known is None:
            known = self._first[key] = self._firsts(key)
        return known is True or first in known

    def _firsts(self, key: Key) -> frozenset[Value] | Always:
        """Return the first arguments of facts that time can falsify; True if the rules do not determine them."""
        heads = [rule.head.args for rule in self.rules.get(key, ()) if self.limits(rule)]
        if self.predicates[key].merge is not None or not key[1]:
            return True
        if any(isinstance(args[0], Variable | Apply) for args in heads):
            return True
        return frozenset(args[0] for args in heads)  # type: ignore[misc]  # constants


def stored(rule: Rule) -> Iterator[Literal]:
    for premise in rule.premises:
        if isinstance(premise, Literal) and not premise.negated and not premise.atom.predicate.startswith(":"):
            yield premise


# Backward functions are generated like forward ones with another ending: the head's variables are given, and each row
# yields the end of its premises about now and the plain facts below it. Of rows with equal facts below, the longest is
# kept. For an aggregate, the group is computed again; if the fact is its result, every row has to last.
Node: TypeAlias = tuple[int, tuple[Any, ...]]
"""A plain fact by predicate number and arguments; a negative number is a choice between derivations."""
Ways: TypeAlias = dict[tuple[Node, ...], int]  # the facts below a derivation, and its end as far as known without them


class BackwardRule:
    """One rule, compiled for queries about facts of its head."""

    def __init__(self, rule: Rule, lasting: Lasting, compiled: CompiledProgram, number: int) -> None:
        self.rule = _named(rule, lasting)
        self.compiled = compiled
        self.lasting = lasting
        self.name = f"backward_{number}"
        self.limited = lasting.limits(rule)
        self.steps: RuleSteps = take_apart(self.rule, compiled.program.predicates)
        self.functions: dict[tuple[str, ...], Compiled | None] = {}
        self.reads = tuple(
            compiled.ids[step.literal.atom.key] for step in self.steps.steps if isinstance(step, Scan | Absent)
        )
        in_body = {v.name for premise in rule.premises for v in premise_variables(premise)}
        grouped = _group_keys(rule)
        known = in_body if grouped is None else set(grouped)
        args = rule.head.args
        self.constants = [(i, arg) for i, arg in enumerate(args) if not isinstance(arg, Variable | Apply)]
        self.first: Any = None if not args or isinstance(args[0], Variable | Apply) else args[0]
        first: dict[str, int] = {}
        self.repeated: list[tuple[int, int]] = []
        for i, arg in enumerate(args):
            if isinstance(arg, Variable) and arg.name in known:
                if arg.name in first:
                    self.repeated.append((first[arg.name], i))
                first.setdefault(arg.name, i)
        self.picky = bool(self.repeated or [i for i, _ in self.constants if i])
        self.preset = tuple(first)
        computed = [i for i, arg in enumerate(args) if isinstance(arg, Apply | Variable) and i not in first.values()]
        self.compared = tuple(i for i in computed if not any(i == again for _, again in self.repeated))
        self.columns = (*first.values(), *self.compared)
        self.aggregation = None if grouped is None else Aggregation(rule, temporal=False)
        self.row_names = tuple(sorted({v.name for p in rule.premises for v in premise_variables(p) if not v.anonymous}))

    def fits(self, args: Sequence[Any]) -> bool:
        """Return whether the head can have these arguments. The first one was looked up."""
        return all(args[i] == value for i, value in self.constants) and all(
            args[i] == args[j] for i, j in self.repeated
        )

    def function(self, views: Sequence[View]) -> Compiled | None:
        """Return the function for the layers that hold facts; None if the rule derives nothing from them.

        It adds derivations to ``rows``; for an aggregate, those of each of its rows. The arguments at ``columns`` are
        known.
        """
        layers = tuple([views[i].layers for i in self.reads])
        if layers not in self.functions:
            compiled = self.compiled
            generator = _Backward(self, compiled.ids, compiled.temporal, views, preset=self.preset, name=self.name)
            self.functions[layers] = generator.compile()
        return self.functions[layers]

    def derives(self, args: tuple[Any, ...], rows: dict[tuple[Any, ...], Ways], now: int) -> bool:
        """Return whether the fact is the aggregate of its group's rows."""
        assert self.aggregation is not None
        width = len(self.row_names)
        return bool(rows) and args in self.aggregation.facts([row[:width] for row in rows], now)[0]


class _Backward(Generator):
    def __init__(self, backward: BackwardRule, *args: Any, **options: Any) -> None:
        super().__init__(backward.steps, *args, **options)
        self.backward = backward

    def _end(self) -> None:
        own = self.backward
        if own.aggregation is None:
            self._lets()
            for position, column in enumerate(own.compared, len(own.preset)):
                self.unless(f"{self.expression(own.rule.head.args[column])} != known[{position}]")
        limits = [text for scan in self.apart.scans() for text in self._limits(scan)]
        limit = limits[0] if len(limits) == 1 else f"min({', '.join(limits)})" if limits else self._forever
        below = tuple_text(list(self._below()))
        if own.aggregation is not None:
            self.write(f"ways = rows.setdefault({tuple_text(self._row_parts())}, {{}})")
            ways = "ways"
        else:
            ways = "rows"
        if not own.limited and own.aggregation is None:
            self.write(f"rows[()] = {self._forever}")
            self.write("return")
            return
        self.write(f"last = {limit}")
        self.write(f"below = {below}")
        self.write(f"if last > {ways}.get(below, {self.given(INT_MIN, 'K')}):")
        self.write(f"    {ways}[below] = last")

    @property
    def _forever(self) -> str:
        return self.given(FOREVER, "K")

    def _row_parts(self) -> list[str]:
        parts = [self.bound[name] for name in self.backward.row_names]
        if self.apart.counts_facts:
            for scan in self.apart.scans():
                parts += [self.bound[arg.name] for arg in scan.literal.atom.args if isinstance(arg, Variable)]
                parts += [f"s{scan.position}", f"e{scan.position}"] if scan.temporal else []
        return parts

    def _limits(self, scan: Scan) -> Iterator[str]:
        if not looks_at_now(scan.literal):
            return
        end = f"e{scan.position}"
        if asks_for_now(scan.literal):
            yield end
        operator = scan.literal.operator
        if operator is None:
            return
        shift = fixed_shift(operator)
        if shift is not None:
            yield f"({end} if {end} == {self._forever} else {end} + {self.given(shift, 'K')})"
        else:
            values = [
                self.bound[b.value.name] if isinstance(b.value, Variable) else self.given(b.value, "K")
                for b in operator.bounds
            ]
            yield f"{self.given(operator_end, 'F')}({self.given(operator, 'K')}, {tuple_text(values)}, {end})"

    def _below(self) -> Iterator[str]:
        for scan in self.apart.scans():
            if scan.literal.atom.key in self.backward.lasting.limited:
                args = [self.expression(arg) for arg in scan.literal.atom.args]
                yield f"({self.ids[scan.literal.atom.key]}, {tuple_text(args)})"


class BackwardRules:
    """The rules of one predicate, indexed by the first constant of their heads."""

    def __init__(self, rules: list[BackwardRule]) -> None:
        self._picky = any(rule.picky for rule in rules)
        self._open = [rule for rule in rules if rule.first is None]
        constants = {rule.first for rule in rules} - {None}
        self._by_first = {first: [rule for rule in rules if rule.first in (None, first)] for first in constants}

    def fitting(self, args: Sequence[Any]) -> list[BackwardRule]:
        rules = self._by_first.get(args[0], self._open) if args else self._open
        return [rule for rule in rules if rule.fits(args)] if self._picky else rules


def backward_rules(compiled: CompiledProgram, lasting: Lasting) -> dict[Key, BackwardRules | None]:
    """Return the rules of each limited predicate; None where they cannot be compiled."""
    found: dict[Key, BackwardRules | None] = {}
    number = itertools.count()
    for key in lasting.limited:
        predicate, rules = lasting.predicates[key], lasting.rules.get(key, ())
        if predicate.merge is not None or predicate.deferred or not all(_can_run(rule, lasting) for rule in rules):
            found[key] = None
        else:
            found[key] = BackwardRules([BackwardRule(rule, lasting, compiled, next(number)) for rule in rules])
    return found


def _can_run(rule: Rule, lasting: Lasting) -> bool:
    for premise in rule.premises:
        if isinstance(premise, Literal) and not premise.atom.predicate.startswith(":"):
            predicate = lasting.predicates[premise.atom.key]
            if predicate.deferred or predicate.external:
                return False
    return not rule.clause.aggregates or _group_keys(rule) is not None


def _group_keys(rule: Rule) -> tuple[str, ...] | None:
    """Return the group keys of an aggregate, if a fact determines its group."""
    clause = rule.clause
    if not clause.aggregates or len(clause.transforms) > 1 or clause.transforms[0].do is None:
        return None
    keys = tuple(arg.name for arg in clause.transforms[0].do.args if isinstance(arg, Variable))
    in_head = {arg.name for arg in clause.head.args if isinstance(arg, Variable)}
    computed = any(isinstance(arg, Apply) for arg in clause.head.args)
    return keys if keys and not computed and in_head.issuperset(keys) else None


def _named(rule: Rule, lasting: Lasting) -> Rule:
    """Name the ``_`` of premises whose facts are followed or counted. Programs cannot contain these names."""
    counts_facts = rule.clause.aggregates and len(rule.premises) == 1
    number = 0

    def name(premise: Premise) -> Premise:
        nonlocal number
        if not isinstance(premise, Literal) or premise.negated:
            return premise
        if premise.atom.key not in lasting.limited and not counts_facts:
            return premise
        args = []
        for arg in premise.atom.args:
            if isinstance(arg, Variable) and arg.anonymous:
                number += 1
                arg = Variable(f"any{number}")
            args.append(arg)
        return replace(premise, atom=replace(premise.atom, args=tuple(args)))

    return Rule(rule.clause, tuple(name(premise) for premise in rule.premises))


MOST_WAYS: Final = 8  # limit of derivations from other facts


class Backwards:
    def __init__(self, compiled: CompiledProgram) -> None:
        self.lasting = Lasting(compiled.program)
        self.rules = backward_rules(compiled, self.lasting)


def backwards(compiled: CompiledProgram) -> Backwards:
    if compiled.backwards is None:
        compiled.backwards = Backwards(compiled)
    return compiled.backwards  # type: ignore[no-any-return]  # the engine knows nothing of it


@dataclass(slots=True)
class _Waiting:
    node: Node
    last: int
    missing: int


def may_expire(compiled: CompiledProgram, key: Key, first: Value) -> bool:
    """Return whether time can falsify a fact of this predicate with this first argument, from the rules alone."""
    return backwards(compiled).lasting.can_expire(key, first)


class Expiry:
    """Ends of the facts of one finished model, memoised."""

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
        """Return the end in nanoseconds, or None for no end. Raises ValueError if the fact does not hold."""
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
        if self._read is None:
            self._read = _Read(self.model)
        return self._read

    def _holds(self, fact: Fact) -> bool:
        predicate = self.model.program.predicates[fact.key]
        if self.engine is None or predicate.temporal or predicate.deferred or predicate.external:
            return self.read.solver.contains(fact)
        return fact.args in self.engine.views[self.ids[fact.key]]

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
        """Settle the goal and its dependencies, depth first; cycles come last."""
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
        """Combine choices: one derivation that needs one of each."""
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
        """Return the derivations of a fact; those of merges come from a replay: the model discards them."""
        if fact.key not in self._merging:
            return self.instances.of(fact)
        if fact.key not in self._replays:
            component = self._merging[fact.key]
            self._replays.update(dict.fromkeys(component.predicates, Replay(self.solver, component)))
        replay = self._replays[fact.key]
        return (replay.log[fact],) if fact in replay.log else self.instances.of(fact)

    def end(self, premise: Literal, row: Row, fact: Fact) -> int:
        """Return until when a fact satisfies a premise about now; ``row`` is known before the premise."""
        pairs = zip(premise.atom.args, fact.args, strict=True)
        values = {arg.name: value for arg, value in pairs if isinstance(arg, Variable)}
        return premise_end(premise, {**row, **values}, self.joined(fact)[1])

    def joined(self, fact: Fact) -> Interval:
        assert fact.interval is not None
        start, end = fact.interval
        return next((s, e) for s, e in self.solver.intervals(fact.key, fact.args) if s <= start and end <= e)


def _known_end(ways: Ways, settled: dict[Node, int]) -> int | None:
    """Return the end of the last derivation; None if one is unsettled."""
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
    """Return at most ``most`` derivations that could outlast the one that needs no other facts, and that one."""
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
    below, last = way
    return -last, [(number, [order_key(value) for value in args]) for number, args in below]
