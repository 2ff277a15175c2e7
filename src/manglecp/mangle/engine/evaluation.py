"""One evaluation: a request over a prepared base.

The result equals a fresh evaluation of all facts; the cost depends on the change. The components are evaluated in the
order of their dependencies:

* a component without changed inputs is skipped;
* if the base has no facts of the component, the rules are applied to all facts;
* if the inputs only gained facts, and no changed input is negated or aggregated, the rules are applied to the delta;
* otherwise the affected facts are maintained (:mod:`maintenance`) or, if the rules do not permit that, the component is
  evaluated again.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from manglecp.mangle.engine.codegen import NotCompiled
from manglecp.mangle.engine.compiled import (
    KEEP,
    REEVALUATE,
    CompiledComponent,
    CompiledProgram,
    CompiledRule,
    Functions,
    Method,
    RuleFunction,
)
from manglecp.mangle.engine.interpreter import interpret
from manglecp.mangle.engine.maintenance import maintain
from manglecp.mangle.engine.views import (
    NOTHING,
    Facts,
    FactTuple,
    FrozenFacts,
    GroupedView,
    Layer,
    RecordedView,
    Rounds,
    View,
    change_facts,
)
from manglecp.mangle.errors import LimitError, ValueFault
from manglecp.mangle.externals import ExternalCalls, Externals
from manglecp.mangle.facts import Interval, coalesce
from manglecp.mangle.model import Limits, Statistics, check_intervals
from manglecp.mangle.values import Value, part_size


class Evaluation:
    """One evaluation, used once, by one thread; the watchdog's thread may stop it. ``i`` is a predicate number."""

    def __init__(
        self,
        compiled: CompiledProgram,
        base: Layer,
        now: int,
        limits: Limits,
        *,
        includes_volatile: bool = True,
        externals: Externals | None = None,
    ) -> None:
        self.compiled = compiled
        self.base = base
        self.now = now
        self.limits = limits
        # False while a base is made: rules that depend on the time are skipped.
        self.includes_volatile = includes_volatile
        self.views = base.views.copy()
        self.layers = base.layers.copy()  # the layers of each view, see View.layers
        self.raw: dict[int, View] = {}  # uncoalesced views of temporal predicates
        # Given facts of the request; while a component is evaluated again, all given facts of its heads.
        self.added_given: dict[int, set[FactTuple]] = {}
        self.given_growth: dict[int, int] = {}  # the number of given facts, minus their number in the base
        self.removed_given: dict[int, set[FactTuple]] = {}
        self.derived_count = 0  # derived facts, including those of the base
        self.fired: set[CompiledRule] = set()  # rules that were observed to add a fact
        self.fired_counts: dict[CompiledComponent, int] = {}  # number of rules that fired, by interpreted component
        self.statistics = Statistics(strata=len(compiled.components))
        self.externals = externals or {}
        self.external_calls: ExternalCalls = {}
        self.part_count = 0  # parts of built values (program.built_columns), in evaluated components
        self.new_part_count = 0  # parts of built values, in the current component
        # The loops of compiled rules compare their counts with these bounds.
        self.max_facts = 0  # how many facts may still be added
        self.max_rows = limits.rows
        self.pending = 0  # facts added to ``new`` of grouped views; a fact that is added again counts again
        self.stop_error: LimitError | None = None
        self.current_component: CompiledComponent | None = None

    def run(self, added: Mapping[int, set[FactTuple]], removed: Mapping[int, set[FactTuple]] | None = None) -> None:
        """Add and remove given facts, and derive the consequences; facts are removed only to make another base."""
        with self._deadline():
            self._run(added, removed)

    def rounds(self, component: CompiledComponent) -> Rounds:
        """Evaluate a compiled component from its given facts; return the rounds. Raises NotCompiled."""
        views = [RecordedView(FrozenFacts(self.all_given(i))) for i in component.heads]
        for i, view in zip(component.heads, views, strict=True):
            self.views[i] = view
        with self._deadline():
            self._fixpoint(component, self.compiled.functions(component, "full", recurs=True).possible(self.views))
        return {self.compiled.keys[i]: view.rounds for i, view in zip(component.heads, views, strict=True)}

    @contextmanager
    def _deadline(self) -> Iterator[None]:
        """Stop the evaluation when its time is up."""
        if self.limits.seconds is None:
            yield
            return
        deadline = watchdog.after(self.limits.seconds, self._out_of_time)
        try:
            yield
        finally:
            watchdog.drop(deadline)

    def _out_of_time(self) -> None:
        seconds = self.limits.seconds or 0
        self.stop_error = LimitError(seconds, seconds, "seconds")
        self.max_facts = self.max_rows = -1

    def _set_bound(self, component: CompiledComponent) -> None:
        """Set the number of facts that may still be derived, and raise if the evaluation was stopped.

        The check comes last, because ``max_facts`` may overwrite the bound with which the watchdog has just stopped the
        evaluation.
        """
        self.pending = 0
        derived_so_far = sum(self.views[i].overlay_size() - len(self.added_given.get(i, ())) for i in component.heads)
        self.max_facts = self.limits.derived_facts - self.derived_count - derived_so_far
        self.checkpoint()

    def checkpoint(self) -> None:
        if self.stop_error is not None:
            raise self.stop_error

    def _run(self, added: Mapping[int, set[FactTuple]], removed: Mapping[int, set[FactTuple]] | None) -> None:
        for i in added if removed is None else {*added, *removed}:
            self._change_given(i, added.get(i, set()), removed.get(i, set()) if removed else set())
        self.statistics.given = self.base.given_count + sum(self.given_growth.values())
        for component in self.compiled.components:
            if self.includes_volatile or not component.volatile:
                self._evaluate_component(component)
            else:
                self._leave_as_given(component)
        self.checkpoint()  # a component without loops does not notice a stop
        self.statistics.derived = self.derived_count

    def _change_given(self, i: int, added: set[FactTuple], removed: set[FactTuple]) -> None:
        given_before = self.base.given[i]
        removed = (removed & given_before) - added
        self.added_given[i] = added
        self.given_growth[i] = len(added - given_before) - len(removed)
        if removed:
            self.removed_given[i] = removed
        is_temporal = self.compiled.temporal[i]
        base_facts = self.base.raw.get(i, NOTHING) if is_temporal else self.base.facts[i]
        view = (self.raw if is_temporal else self.views)[i] = View(base_facts, added - base_facts.facts)
        if i not in self.compiled.ruled:  # if rules derive the predicate, its component removes the facts
            view.removed = removed
        self.layers[i] = view.layers
        if is_temporal and i not in self.compiled.ruled:
            self._coalesce(i)

    def _raw_view(self, i: int) -> View:
        """Return the view with the uncoalesced facts of a temporal predicate; make it if it is missing."""
        if i not in self.raw:
            self.raw[i] = View(self.base.raw.get(i, NOTHING))
        return self.raw[i]

    def _leave_as_given(self, component: CompiledComponent) -> None:
        """Keep only the given facts of a volatile predicate in a base."""
        for i in component.heads:
            if i in self.removed_given:
                view = self._raw_view(i) if self.compiled.temporal[i] else self.views[i]
                view.removed = self.removed_given[i]
            if i in self.raw:
                self._coalesce(i)

    def _evaluate_component(self, component: CompiledComponent) -> None:
        self.current_component = component
        is_done = component in self.base.done
        if self.removed_given and not self.removed_given.keys().isdisjoint(component.heads):
            method: Method | None = REEVALUATE
        else:
            method = component.methods.get((is_done, component.layers_of(self.layers)))
        if method is not KEEP:
            for i in component.temporal_heads:  # the rules of a temporal predicate read and derive uncoalesced facts
                self.views[i] = self._raw_view(i)
            try:
                self._derive(component, method or self._choose(component, is_done))
            except NotCompiled as reason:
                component.interpreter_reason = str(reason)
                component.methods.clear()
                self._reevaluate(component)
            except ValueFault as fault:
                self._raise_located(component, fault)
            for i in component.temporal_heads:
                self.raw[i] = self.views[i]
                self._coalesce(i)
            for i in component.heads:
                self.layers[i] = self.views[i].layers
        self._count_facts(component)

    def _derive(self, component: CompiledComponent, method: Method) -> None:
        mode, rule_functions, in_rounds, is_grouped = method
        views, base_views, facts_of_base = self.views, self.base.views, self.base.facts
        if mode == "keep":
            return
        if mode == "reevaluate":
            if component.interpreter_reason or not maintain(self, component):
                self._reevaluate(component)
            return
        functions = () if rule_functions is None else rule_functions.possible(views)
        for i in component.heads:
            if views[i] is base_views[i]:
                views[i] = View(facts_of_base[i])
            if is_grouped:
                views[i] = GroupedView(views[i])
        if mode == "insert":
            for i in component.inputs:
                views[i].delta = views[i].facts
        if component.interpreter_reason:
            profile = self.compiled.profile
            with nullcontext() if profile is None else profile.interpreting(component.component.predicates):
                interpret(self, component)
        elif in_rounds:
            self._fixpoint(component, functions)
        else:
            self._apply(functions)

    def _choose(self, component: CompiledComponent, is_done: bool) -> Method:
        """Return how to evaluate a component, memoised by ``is_done`` and the layers of its inputs."""
        views, method = self.views, KEEP
        if is_done and not any(views[i].changed for i in component.inputs):
            pass
        elif not is_done or component.is_empty_in(self.base.layers):
            recurs = component.recurs(self.layers)
            is_grouped = recurs and bool(component.groupable) and not any(views[i].base.facts for i in component.heads)
            if component.interpreter_reason:
                method = Method("full")
            else:
                groupable = component.groupable if is_grouped else ()
                functions = self.compiled.functions(component, "full", recurs, groupable)
                if functions.may_derive(views) or component.temporal_heads:
                    method = Method("full", functions, recurs, is_grouped)
        elif (
            any(views[i].removed for i in component.outer_inputs)
            or component.interpreter_reason
            or any(views[i].changed for i in component.strict_inputs)
        ):
            method = REEVALUATE  # the component may lose facts
        else:
            method = Method("insert", self.compiled.functions(component, "insert", recurs=True), True)
        return component.methods.setdefault((is_done, component.layers_of(self.layers)), method)

    def _count_facts(self, component: CompiledComponent) -> None:
        built, base_views = self.compiled.built, self.base.views
        for i in component.heads:
            self.derived_count += self.base.derived_counts[i]
            view = self._raw_view(i) if i in component.temporal_heads else self.views[i]
            if view is not base_views[i]:
                if i in component.merged_heads:  # a merge may drop given facts
                    self.derived_count += len(set(view) - self.all_given(i)) - self.base.derived_counts[i]
                else:
                    self.derived_count += view.overlay_size() - len(view.removed)
                    if i in self.given_growth:
                        self.derived_count -= self.given_growth[i]
            if i in built and len(view):
                self.part_count += view.part_count(built[i])
        self.new_part_count = 0
        if self.part_count > self.limits.parts:
            self._check_parts()
        if self.derived_count > self.limits.derived_facts:
            self.too_many_facts()

    def weigh(self, value: Value) -> None:
        """Count the parts of a new value; called by compiled rules."""
        self.new_part_count += part_size(value)
        self._check_parts()

    def _check_parts(self) -> None:
        limit = self.limits.parts
        if self.part_count + self.new_part_count > limit:
            raise LimitError(limit, limit + 1, "parts of values")

    def too_many_rows(self) -> None:
        self.checkpoint()
        limit = self.limits.rows
        raise LimitError(limit, limit + 1, "rows of one rule")

    def too_many_facts(self) -> None:
        self.checkpoint()
        limit = self.limits.derived_facts
        rules = () if self.current_component is None else self.current_component.rules
        # Which rule exceeded the limit is not known; the last rule stands for the component.
        span = rules[-1].steps.rule.clause.span if rules else None
        raise LimitError(limit, limit + 1, "derived facts", span)

    def _raise_located(self, component: CompiledComponent, fault: ValueFault) -> None:
        """Raise the error of a compiled function again from the interpreter, which knows the place in the rule."""
        for i in component.heads:  # start again from the given facts
            view = self.views[i]
            view.base, view.removed = FrozenFacts(set(self.all_given(i))), frozenset()
            self.views[i] = View(view.base)
        interpret(self, component)
        raise AssertionError(f"the interpreter does not repeat the error of the compiled rules: {fault}") from fault

    def all_given(self, i: int) -> Facts:
        """Return the given facts of the base and of the request, without the facts that were removed."""
        return change_facts(self.base.given[i], self.added_given.get(i, set()), self.removed_given.get(i, set()))

    def _apply(self, functions: Functions) -> None:
        """Apply rules to all facts, once."""
        self.statistics.rounds += 1
        remaining = self.limits.derived_facts - self.derived_count
        views, now, added_given = self.views, self.now, self.added_given
        for function in functions:
            rule = function.rule
            view = views[rule.head]
            self.max_facts = remaining + (len(added_given[rule.head]) if rule.head in added_given else 0)
            if self.stop_error is not None:  # checked last, as in _set_bound()
                raise self.stop_error
            count_before = len(view.facts)
            if rule.aggregation is None:
                function.compiled.run(views, now, self, None)
            else:
                view.facts |= self._aggregated(function) - view.base.facts
            if len(view.facts) > count_before:
                self.fired.add(rule)

    def _aggregated(self, function: RuleFunction) -> set[FactTuple]:
        """Return the facts of an aggregation."""
        rule = function.rule
        assert rule.aggregation is not None
        rows: Any = [] if rule.steps.rule.counts_facts else set()
        function.compiled.run(self.views, self.now, self, rows)
        return set(rule.aggregation.facts(rows, self.now))

    def _fixpoint(self, component: CompiledComponent, first: Functions) -> None:
        """Evaluate in semi-naive rounds: apply ``first``, then the rules to each delta until a delta is empty."""
        views, now = self.views, self.now
        heads = [views[i] for i in component.heads]
        intervals: dict[int, dict[FactTuple, list[Interval]]] = {i: {} for i in component.temporal_heads}
        for view in heads:
            view.start_rounds()
        self._set_bound(component)
        for function in first:
            head = views[function.rule.head]
            count_before = len(head.new)
            if function.rule.aggregation is not None:
                self._aggregate_into(function, head)
            elif function.source is None or views[function.source].delta:
                function.compiled.run(views, now, self, None)
            if len(head.new) > count_before:
                self.fired.add(function.rule)
        delta_functions: Functions | None = None
        while True:
            self.statistics.rounds += 1
            grown = False
            for view in heads:
                grown |= view.advance()
            self._set_bound(component)
            if self.max_facts < 0:
                self.too_many_facts()
            if not grown or not component.recursive:
                break
            for i, intervals_by_args in intervals.items():
                self._add_new_intervals(i, intervals_by_args)
            if delta_functions is None:
                delta_functions = self.compiled.deltas(component, views)
            for function in delta_functions:
                if function.source is not None and views[function.source].delta:
                    function.compiled.run(views, now, self, None)

    def _add_new_intervals(self, i: int, intervals: dict[FactTuple, list[Interval]]) -> None:
        """Add the intervals of the last round to ``intervals`` (by arguments). Raises if a fact has too many."""
        raw = self.views[i]
        changed: dict[FactTuple, list[Interval]] = {}
        for fact in raw.delta:
            changed.setdefault(fact[:-2], []).append(fact[-2:])
        columns = tuple(range(self.compiled.keys[i][1]))
        for args, uncoalesced in changed.items():
            if args in intervals:
                uncoalesced += intervals[args]
            else:  # no earlier round derived these arguments: add the intervals that the view already has
                facts = raw.matching(columns, args[0] if len(args) == 1 else args) if columns else raw
                uncoalesced += [fact[-2:] for fact in facts]
            intervals[args] = uncoalesced if len(uncoalesced) <= self.limits.intervals else list(coalesce(uncoalesced))
        check_intervals(self.compiled.keys[i][0], changed, self.limits.intervals)

    def _aggregate_into(self, function: RuleFunction, view: View) -> None:
        facts = self._aggregated(function)
        if isinstance(view, GroupedView):
            for first, second in facts:
                if second not in view.groups.get(first, ()):
                    view.new.setdefault(first, set()).add(second)
        else:
            view.new |= facts - view.facts - view.base.facts

    def recount_pending(self) -> None:
        """Count the pending facts again without overlaps, and raise if there are too many."""
        self.checkpoint()
        assert self.current_component is not None
        heads = [self.views[i] for i in self.current_component.heads]
        self.pending = sum(view.new_count() for view in heads if isinstance(view, GroupedView))
        if self.pending > self.max_facts:
            self.too_many_facts()

    def _reevaluate(self, component: CompiledComponent) -> None:
        """Evaluate a component from its given facts, and keep the difference to the base."""
        added_given, views = self.added_given, self.views
        self.added_given = added_given | {i: set(self.all_given(i)) for i in component.heads}
        for i in component.heads:
            views[i] = View(NOTHING, self.added_given[i].copy())
            self.layers[i] = views[i].layers
        try:
            method = component.methods.get((False, component.layers_of(self.layers)))
            self._derive(component, method or self._choose(component, is_done=False))
        finally:
            self.added_given = added_given
        for i in component.heads:
            evaluated = views[i]
            base_facts = self.base.raw.get(i, NOTHING) if self.compiled.temporal[i] else self.base.facts[i]
            views[i] = View(base_facts, evaluated.facts - base_facts.facts)
            views[i].removed = base_facts.facts - evaluated.facts

    def _coalesce(self, i: int) -> None:
        """Coalesce the intervals of changed facts of a temporal predicate, and check their number."""
        raw = self.raw[i]
        base_facts = self.base.facts[i]
        changed: dict[FactTuple, list[tuple[int, int]]] = {}
        for fact in raw.facts:
            changed.setdefault(fact[:-2], []).append(fact[-2:])
        for fact in raw.removed:
            changed.setdefault(fact[:-2], [])
        added: set[FactTuple] = set()
        removed: set[FactTuple] = set()
        columns = tuple(range(self.compiled.keys[i][1]))
        for args, intervals in changed.items():
            key = args[0] if len(args) == 1 else args
            if raw.base.facts:
                in_base = raw.base.index(columns).get(key, ()) if columns else raw.base.facts
                intervals += [fact[-2:] for fact in in_base if fact not in raw.removed]
            new_facts = {(*args, *interval) for interval in coalesce(intervals)}
            old_facts: set[FactTuple] = set()
            if base_facts.facts:
                old_facts = set(base_facts.index(columns).get(key, ()) if columns else base_facts.facts)
            added |= new_facts - old_facts
            removed |= old_facts - new_facts
        check_intervals(self.compiled.keys[i][0], changed, self.limits.intervals)
        self.views[i] = View(base_facts, added)
        self.views[i].removed = removed
        self.layers[i] = self.views[i].layers

    def freeze(self) -> Layer:
        """Return the result as a base for other evaluations."""
        compiled, base = self.compiled, self.base
        raw = base.raw | {i: _frozen(view) for i, view in self.raw.items()}
        given = [self.all_given(i) if i in self.added_given else base.given[i] for i in range(len(self.views))]
        done = frozenset(c for c in compiled.components if self.includes_volatile or not c.volatile)
        return Layer(compiled, list(map(_frozen, self.views)), raw, given, done)


def _frozen(view: View) -> FrozenFacts:
    if not view.changed:
        return view.base
    if not view.base.facts:
        frozen = FrozenFacts(view.facts)
        frozen.indexes = dict(view.indexes)
        return frozen
    return view.base.with_changes(view.facts, view.removed)


_POLL_SECONDS: Final = 0.01  # the precision of deadlines
_IDLE_POLLS: Final = 100  # polls without a deadline, after which the thread waits for a deadline


class Watchdog:
    """Stops evaluations at their deadlines, from one thread of the process.

    The loops of an evaluation do not read the clock, but compare a count with a bound. At a deadline, the thread sets
    the bound to a value that every count exceeds. The thread polls, so no lock is needed to set or drop a deadline.
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)  # a child process has no other threads

    def _reset(self) -> None:
        self._deadlines: dict[int, tuple[float, Callable[[], None]]] = {}  # by number: monotonic time, callback
        self._numbers = itertools.count()
        self._wake = threading.Event()
        self._waits = False  # whether the thread waits for ``_wake``
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._deadlines)

    def after(self, seconds: float, stop: Callable[[], None]) -> int:
        """Call ``stop`` after ``seconds`` in another thread. Return a number for :meth:`drop`."""
        number = next(self._numbers)
        self._deadlines[number] = (time.monotonic() + seconds, stop)
        if self._waits:
            self._wake.set()
        elif self._thread is None:  # two callers may both start a thread, which is harmless
            self._thread = threading.Thread(target=self._run, daemon=True, name="mangle deadlines")
            self._thread.start()
        return number

    def drop(self, number: int) -> None:
        self._deadlines.pop(number, None)

    def _run(self) -> None:
        idle_polls = 0
        while True:
            now = time.monotonic()
            for number, (deadline, stop) in sorted(self._deadlines.copy().items(), key=lambda entry: entry[1][0]):
                if deadline <= now and self._deadlines.pop(number, None) is not None:
                    stop()
            stop = None  # type: ignore[assignment]  # a callback keeps its evaluation alive
            idle_polls = 0 if self._deadlines else idle_polls + 1
            if idle_polls < _IDLE_POLLS:
                time.sleep(_POLL_SECONDS)
                continue
            self._waits = True
            if not self._deadlines:  # checked after ``_waits`` is set, so that no deadline is overlooked
                self._wake.wait()
            self._waits, idle_polls = False, 0
            self._wake.clear()


watchdog = Watchdog()
