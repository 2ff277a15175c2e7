"""One evaluation: a request over a prepared base.

The result equals a fresh evaluation of all facts; the cost depends on the change. Per component, in dependency order:

* no input changed: skip;
* the base has no facts for it (most rules of a request, and all that depend on the time): apply its rules to all facts;
* its inputs only gained facts, and no changed one is negated or aggregated: apply its rules to the delta;
* otherwise: maintain the affected facts (:mod:`maintenance`) or, if the rules do not permit that, evaluate it again and
keep the difference to the base.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from manglecp.mangle.engine.compiled import CompiledComponent, CompiledProgram, CompiledRule, Functions, RuleFunction
from manglecp.mangle.engine.interpreter import interpret
from manglecp.mangle.engine.maintenance import maintain
from manglecp.mangle.engine.views import NOTHING, FactTuple, Frozen, GroupedView, View
from manglecp.mangle.engine.watch import watchdog
from manglecp.mangle.errors import LimitError, ValueFault
from manglecp.mangle.externals import ExternalCalls, Externals
from manglecp.mangle.facts import Interval, coalesce
from manglecp.mangle.model import MAX_SKIPPED, Limits, Statistics, check_intervals
from manglecp.mangle.values import Value, part_size


class Layer:
    """The relations of an evaluated base, by predicate number."""

    def __init__(self, compiled: CompiledProgram) -> None:
        count = len(compiled.keys)
        self.facts: list[Frozen] = [NOTHING] * count  # as read: temporal facts coalesced
        self.raw: dict[int, Frozen] = {}  # temporal facts as given and derived
        self.given: list[set[FactTuple] | frozenset[FactTuple]] = [frozenset()] * count  # as passed in
        self.done: frozenset[CompiledComponent] = frozenset()  # the evaluated components
        self.derived_count = 0  # facts that follow from the given ones
        self.fired: dict[CompiledRule, bool] = {}  # whether a rule has an instance, memoised
        self.head_counts: dict[int, int] = {}  # number of derived facts by rule id, memoised
        self.given_count = 0  # of facts
        self.empty_in_base: dict[CompiledComponent, bool] = {}  # memoises Evaluation._is_empty_in_base
        self.views: list[View] = []  # of the facts without changes, shared by evaluations; see share_views

    def share_views(self) -> list[View]:
        """Return a view of each predicate's facts. Its overlay is immutable: an evaluation replaces it to add facts."""
        if not self.views:  # two threads may both make them; they make the same
            self.views = [View(facts, shared=True) for facts in self.facts]
        return self.views.copy()


class Evaluation:
    """One evaluation. Used once, by one thread; the watchdog's thread may stop it. ``i`` is a predicate number."""

    def __init__(
        self,
        compiled: CompiledProgram,
        base: Layer,
        now: int,
        limits: Limits,
        *,
        volatile: bool = True,
        externals: Externals | None = None,
    ) -> None:
        self.compiled = compiled
        self.base = base
        self.now = now
        self.limits = limits
        self.volatile = volatile  # False while a base is made: rules that depend on the time are left out
        self.views = base.share_views()
        self.raw: dict[int, View] = {}  # uncoalesced, of temporal predicates
        self.given: dict[int, set[FactTuple]] = {}
        self.removed_given: dict[int, set[FactTuple]] = {}
        self.derived_count = 0  # of facts, with those of the base
        self.skipped_count = 0  # derivations whose interval ends before it starts
        self.fired: set[CompiledRule] = set()  # rules that added a fact, as far as that is cheap to observe
        self.fired_counts: dict[CompiledComponent, int] = {}  # number of rules that fired, by interpreted component
        self.statistics = Statistics(strata=len(compiled.components))
        self.externals = externals or {}
        self.external_calls: ExternalCalls = {}
        self.part_count = 0  # of built values, see program.built_columns, in the components that are done
        self.new_part_count = 0  # of built values, in the component that is evaluated
        # Loops of compiled rules compare counts with these bounds.
        self.max_facts = 0  # how many may still be added
        self.max_rows = limits.rows
        self.pending = 0  # facts in the new sets of grouped views, which may overlap
        self.stopped: LimitError | None = None
        self.current: CompiledComponent | None = None

    def run(self, added: Mapping[int, set[FactTuple]], removed: Mapping[int, set[FactTuple]] | None = None) -> None:
        """Add given facts (and remove some, to make another base) and derive the consequences."""
        deadline = None
        if self.limits.seconds is not None:
            deadline = watchdog.after(self.limits.seconds, self._out_of_time)
        try:
            self._run(added, removed)
        finally:
            if deadline is not None:
                watchdog.drop(deadline)

    def _out_of_time(self) -> None:
        seconds = self.limits.seconds or 0
        self.stopped = LimitError(seconds, seconds, "seconds")
        self.max_facts = self.max_rows = -1

    def _set_bound(self, component: CompiledComponent) -> None:
        """Set the number of facts that may still be derived, and only then check for a stop, so that none is lost."""
        self.pending = 0
        derived_so_far = sum(self.views[i].overlay_size() - len(self.given.get(i, ())) for i in component.heads)
        self.max_facts = self.limits.derived_facts - self.derived_count - derived_so_far
        self.checkpoint()

    def checkpoint(self) -> None:
        if self.stopped is not None:
            raise self.stopped

    def _run(self, added: Mapping[int, set[FactTuple]], removed: Mapping[int, set[FactTuple]] | None) -> None:
        for i in {*added, *(removed or ())}:
            self._change_given(i, added.get(i, set()), (removed or {}).get(i, set()))
        new = sum(len(facts - self.base.given[i]) for i, facts in self.given.items())
        self.statistics.given = self.base.given_count + new - sum(map(len, self.removed_given.values()))
        for component in self.compiled.components:
            if self.volatile or not component.volatile:
                self._evaluate_component(component)
            else:
                self._leave_as_given(component)
        self.checkpoint()  # not every component has a loop that would notice
        self.statistics.derived = self.derived_count
        self.statistics.skipped_inverted = min(self.skipped_count, MAX_SKIPPED)

    def _change_given(self, i: int, added: set[FactTuple], removed: set[FactTuple]) -> None:
        removed = (removed & self.base.given[i]) - added
        self.given[i] = added
        if removed:
            self.removed_given[i] = removed
        view = self._raw_view(i)
        view.replace(added - view.base.facts)
        if i not in self.compiled.ruled:  # otherwise its component does this
            view.removed = removed
            if self.compiled.temporal[i]:
                self._coalesce(i)

    def _raw_view(self, i: int) -> View:
        """Return the view that facts are added to: uncoalesced for a temporal predicate."""
        if not self.compiled.temporal[i]:
            if self.views[i].shared:
                self.views[i] = View(self.base.facts[i])
            return self.views[i]
        if i not in self.raw:
            self.raw[i] = View(self.base.raw.get(i, NOTHING))
        return self.raw[i]

    def _leave_as_given(self, component: CompiledComponent) -> None:
        """Keep only the given facts of a volatile predicate in a base."""
        for i in component.heads:
            if i in self.removed_given:
                self._raw_view(i).removed = self.removed_given[i]
            if i in self.raw:
                self._coalesce(i)

    def _evaluate_component(self, component: CompiledComponent) -> None:
        views = self.views
        self.current = component
        if component in self.base.done:
            has_removed = False
            has_given = False
            for i in component.heads:
                has_given = has_given or i in self.given
                has_removed = has_removed or i in self.removed_given
            has_changed = has_shrunk = False  # one of the inputs
            for i in component.outside:
                view = views[i]
                if view.removed:
                    has_changed = has_shrunk = True
                elif view.changed:
                    has_changed = True
            if not (has_changed or has_given or has_removed):
                self._count_facts(component)
                return
            if self._is_empty_in_base(component):
                run = self._evaluate_full
            elif has_shrunk or has_removed or component.interpreted or any(views[i].changed for i in component.strict):
                run = None  # the component may lose facts
            else:
                run = self._insert
        else:
            run = self._evaluate_full
        for i in component.heads:
            if views[i].shared:
                views[i] = View(self.base.facts[i])
        if run is None:
            if component.interpreted or not maintain(self, component):
                self._reevaluate(component)
        elif component.temporal:
            self._with_raw(component, run)
        else:
            run(component)
        self._count_facts(component)

    def _is_empty_in_base(self, component: CompiledComponent) -> bool:
        """Return whether the base has no facts of the component, and every rule has a premise without facts there."""
        is_empty = self.base.empty_in_base.get(component)
        if is_empty is None:  # two threads may both compute it, with the same result
            facts = self.base.facts
            is_empty = not any(facts[i].facts for i in component.heads) and all(
                any(not facts[i].facts for i in rule.scans) for rule in component.rules
            )
            self.base.empty_in_base[component] = is_empty
        return is_empty

    def _with_raw(
        self, component: CompiledComponent, run: Callable[[CompiledComponent], None], *, coalesce_after: bool = True
    ) -> None:
        """Let a component read and derive uncoalesced temporal facts, and coalesce them afterwards."""
        coalesced_views = {i: self.views[i] for i in component.temporal}
        for i in component.temporal:
            self.views[i] = self._raw_view(i)
        run(component)
        for i in component.temporal:
            self.raw[i] = self.views[i]
            self.views[i] = coalesced_views[i]
            if coalesce_after:
                self._coalesce(i)

    def _count_facts(self, component: CompiledComponent) -> None:
        base_given, added_given, removed, built = self.base.given, self.given, self.removed_given, self.compiled.built
        temporal, merged = component.temporal, component.merged
        for i in component.heads:
            view = self._raw_view(i) if temporal and i in temporal else self.views[i]
            if i in built:
                self.part_count += view.part_count(built[i])
            if merged and i in merged:
                self.derived_count += len(set(view) - self.all_given(i))  # a merge may drop given facts
                continue
            given_count = len(base_given[i])
            if i in added_given:
                given_count += len(added_given[i] - base_given[i])
            if i in removed:
                given_count -= len(removed[i])
            self.derived_count += len(view.base.facts) - len(view.removed) + view.overlay_size() - given_count
            if view.skipped:
                self.skipped_count += len(view.skipped)
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
        rules = () if self.current is None else self.current.rules
        span = rules[-1].steps.rule.clause.span if rules else None  # of any rule: which one exceeds it is arbitrary
        raise LimitError(limit, limit + 1, "derived facts", span)

    def _raise_located(self, component: CompiledComponent, fault: ValueFault) -> None:
        """Let the interpreter locate the error after a compiled function met an invalid value."""
        for i in component.heads:  # start again from the given facts
            view = self.views[i]
            view.base, view.removed = Frozen(set(self.all_given(i))), frozenset()
            self.views[i] = View(view.base)
        interpret(self, component)
        raise AssertionError(f"only compiled rules fail: {fault}") from fault

    def all_given(self, i: int) -> set[FactTuple]:
        """Return the given facts of the base and the request, without the removed ones."""
        return (set(self.base.given[i]) | self.given.get(i, set())) - self.removed_given.get(i, set())

    def _evaluate_full(self, component: CompiledComponent) -> None:
        """Apply the rules of a component to all facts; the base has no facts derived by them."""
        if component.interpreted:
            interpret(self, component)
            return
        if component.grouped and not any(self.views[i].base.facts for i in component.heads):
            for i in component.heads:
                self.views[i] = GroupedView(self.views[i])
        full = self.compiled.functions(component, self.views, "full")
        if component.interpreted:
            interpret(self, component)
            return
        if not full:  # every rule has a premise without facts
            return
        try:
            if component.recursive:
                self._fixpoint(component, full)
            else:
                self._apply_all(full)
        except ValueFault as fault:
            self._raise_located(component, fault)

    def _apply_all(self, functions: Functions) -> None:
        self.statistics.rounds += 1
        remaining = self.limits.derived_facts - self.derived_count
        views, now, given = self.views, self.now, self.given
        for function in functions:
            rule = function.rule
            view = views[rule.head]
            self.max_facts = remaining + (len(given[rule.head]) if rule.head in given else 0)
            if self.stopped is not None:  # checked after the bound is set, so that a concurrent stop is not lost
                raise self.stopped
            count_before = len(view.facts)
            if rule.aggregation is None:
                function.compiled.run(views, now, self, None)
            else:
                view.facts |= self._aggregated(function, view) - view.base.facts
            if len(view.facts) > count_before:
                self.fired.add(rule)

    def _aggregated(self, function: RuleFunction, view: View) -> set[FactTuple]:
        """Return the facts of an aggregation; record skipped ones in the view of its head."""
        rule = function.rule
        assert rule.aggregation is not None
        rows: Any = [] if rule.steps.counts_facts else set()
        function.compiled.run(self.views, self.now, self, rows)
        facts, skipped = rule.aggregation.facts(rows, self.now)
        for fact in skipped:
            view.skip(fact)
        return set(facts)

    def _fixpoint(self, component: CompiledComponent, first: Functions) -> None:
        """Evaluate in semi-naive rounds: apply ``first``, then the rules to the delta until it is empty."""
        views, now = self.views, self.now
        heads = [views[i] for i in component.heads]
        intervals: dict[int, dict[FactTuple, list[Interval]]] = {i: {} for i in component.temporal}
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
        deltas: Functions | None = None
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
            for i, of_facts in intervals.items():
                self._check_new_intervals(i, of_facts)
            if deltas is None:
                deltas = self.compiled.functions(component, views, "delta")
            for function in deltas:
                if function.source is not None and views[function.source].delta:
                    function.compiled.run(views, now, self, None)

    def _check_new_intervals(self, i: int, intervals: dict[FactTuple, list[Interval]]) -> None:
        """Add the intervals of the last round to ``intervals``, by arguments, and stop a recursion without end."""
        raw = self.views[i]
        new: dict[FactTuple, list[Interval]] = {}
        for fact in raw.delta:
            new.setdefault(fact[:-2], []).append(fact[-2:])
        columns = tuple(range(self.compiled.keys[i][1]))
        for args, of_fact in new.items():
            if args in intervals:
                of_fact += intervals[args]
            else:  # the given ones too
                facts = raw.matching(columns, args[0] if len(args) == 1 else args) if columns else raw
                of_fact += [fact[-2:] for fact in facts]
            intervals[args] = of_fact if len(of_fact) <= self.limits.intervals else list(coalesce(of_fact))
        check_intervals(self.compiled.keys[i][0], new, self.limits.intervals)

    def _aggregate_into(self, function: RuleFunction, view: View) -> None:
        facts = self._aggregated(function, view)
        if isinstance(view, GroupedView):
            for first, second in facts:
                if second not in view.groups.get(first, ()):
                    view.new.setdefault(first, set()).add(second)
        else:
            view.new |= facts - view.facts - view.base.facts

    def too_many_pending(self) -> None:
        """Count pending facts again, because sets may overlap, and raise if there are too many."""
        self.checkpoint()
        assert self.current is not None
        heads = [self.views[i] for i in self.current.heads]
        self.pending = sum(view.new_count() for view in heads if isinstance(view, GroupedView))
        if self.pending > self.max_facts:
            self.too_many_facts()

    def _insert(self, component: CompiledComponent) -> None:
        """Derive what follows from the facts that the inputs gained."""
        for i in component.inputs:
            self.views[i].delta = self.views[i].facts
        inserts = self.compiled.functions(component, self.views, "insert")
        if component.interpreted:
            self._reevaluate(component)
            return
        try:
            self._fixpoint(component, inserts)
        except ValueFault as fault:
            self._raise_located(component, fault)

    def _reevaluate(self, component: CompiledComponent) -> None:
        """Evaluate a component from its given facts, and keep the difference to the base."""
        before = {
            i: self.base.raw.get(i, NOTHING) if self.compiled.temporal[i] else self.base.facts[i]
            for i in component.heads
        }
        given = dict(self.given)
        for i in component.heads:
            fresh = View(NOTHING)
            fresh.replace(self.all_given(i))
            self.given[i] = set(fresh.facts)
            if self.compiled.temporal[i]:
                self.raw[i] = fresh
            else:
                self.views[i] = fresh
        self._with_raw(component, self._evaluate_full, coalesce_after=False)  # the difference is coalesced below
        self.given = given
        evaluated = {i: self.raw[i] if self.compiled.temporal[i] else self.views[i] for i in component.heads}
        for i in component.heads:
            facts = evaluated[i].facts
            difference = View(before[i])
            difference.replace(facts - before[i].facts)
            difference.removed = before[i].facts - facts
            difference.skipped = evaluated[i].skipped
            if self.compiled.temporal[i]:
                self.raw[i] = difference
                self._coalesce(i)
            else:
                self.views[i] = difference

    def _coalesce(self, i: int) -> None:
        """Coalesce the intervals of changed facts of a temporal predicate, and check their number."""
        raw = self.raw[i]
        base = self.base.facts[i]
        changed: dict[FactTuple, list[tuple[int, int]]] = {}
        for fact in raw.facts:
            changed.setdefault(fact[:-2], []).append(fact[-2:])
        for fact in raw.removed:
            changed.setdefault(fact[:-2], [])
        view = View(base)
        added: set[FactTuple] = set()
        removed: set[FactTuple] = set()
        columns = tuple(range(self.compiled.keys[i][1]))
        for args, intervals in changed.items():
            key = args[0] if len(args) == 1 else args
            if raw.base.facts:
                in_base = raw.base.index(columns).get(key, ()) if columns else raw.base.facts
                intervals += [fact[-2:] for fact in in_base if fact not in raw.removed]
            new_facts = {(*args, *interval) for interval in coalesce(intervals)}
            old_facts = set(base.index(columns).get(key, ()) if columns else base.facts) if base.facts else set()
            added |= new_facts - old_facts
            removed |= old_facts - new_facts
        check_intervals(self.compiled.keys[i][0], changed, self.limits.intervals)
        view.replace(added)
        view.removed = removed
        self.views[i] = view

    def freeze(self) -> Layer:
        """Return the result as a base for other evaluations."""
        layer = Layer(self.compiled)
        for i, view in enumerate(self.views):
            layer.facts[i] = _frozen(view)
            if self.compiled.temporal[i]:
                layer.raw[i] = _frozen(self.raw[i]) if i in self.raw else self.base.raw.get(i, NOTHING)
            layer.given[i] = self.all_given(i) if i in self.given or i in self.removed_given else self.base.given[i]
        layer.done = frozenset(c for c in self.compiled.components if self.volatile or not c.volatile)
        layer.derived_count = self.derived_count
        layer.given_count = self.statistics.given
        return layer


def _frozen(view: View) -> Frozen:
    if not view.changed and view.skipped is view.base.skipped:
        return view.base
    if not view.base.facts:
        frozen = Frozen(view.facts, view.skipped)
        frozen.indexes = dict(view.indexes)
        return frozen
    return view.base.with_changes(view.facts, view.removed, view.skipped)
