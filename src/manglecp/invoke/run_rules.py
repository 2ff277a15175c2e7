"""The pack's rules about a run: which steps to skip, which effects to deny, and what follows from its end.

The kernel asserts the caller, the call arguments, the status of each step, and the values that extractors (``extract``)
find in outputs. No other part of an output becomes a fact. Session facts are not stored, so rules about runs see only
the run, the caller and the server's own facts.

Predicates without a rule in the pack are not evaluated; :class:`RunRuleIndex` is computed when the pack is loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias, cast

import msgspec

from manglecp.base.json import resolve_pointer
from manglecp.intent import Domain, Identity, Lookup, client_facts
from manglecp.invoke.calls import EVENT_STATUS, StepOutcome, is_large
from manglecp.mangle import Fact, Limits, Value
from manglecp.mangle.syntax import Literal
from manglecp.wire import Fault, to_value

_RUN_PREDICATES: Final = frozenset({"run_id", "run_of", "ran", "run_arg", "step_status", "step_value"})
RuleRows: TypeAlias = Mapping[str, Sequence[tuple[Value, ...]]]
"""Derived facts by predicate, as their arguments."""
AFTER_RUN_ARITIES: Final[Mapping[str, int]] = {
    "asserts": 3,
    "asserts_during": 5,
    "retracts": 2,
    "suggests": 3,
    "continues_with": 2,
    "summary": 1,
}
"""The predicates that are evaluated at the end of a run, and their arities."""
NO_ROWS: Final[RuleRows] = dict.fromkeys(AFTER_RUN_ARITIES, ())


@dataclass(frozen=True, slots=True)
class RunRuleIndex:
    """The kinds of rules about runs that a pack has."""

    has_after_rules: bool
    has_skip_rules: bool
    has_deny_rules: bool
    reads_arguments: bool
    extractors: Mapping[str, Sequence[tuple[str, str]]]
    """Keys and JSON pointers, by action (``extract``)."""
    keepers: Mapping[str, Sequence[tuple[str, str]]]
    """Likewise, of values that are kept for a later run (``keep``)."""

    def reads(self, action: str) -> bool:
        return action in self.extractors or action in self.keepers

    @staticmethod
    def of(domain: Domain) -> RunRuleIndex:
        heads = {rule.head.predicate for rule in domain.program.rules}
        heads |= {fact.key[0] for fact in domain.program.facts}
        premises = (premise for rule in domain.program.rules for premise in rule.clause.premises)
        read = {premise.atom.predicate for premise in premises if isinstance(premise, Literal)}
        lookup = Lookup(domain.base.evaluate([], now=0, check=False))
        return RunRuleIndex(
            has_after_rules=bool(_RUN_PREDICATES & read) and not heads.isdisjoint(AFTER_RUN_ARITIES),
            has_skip_rules="skip_step" in heads,
            has_deny_rules="effect_denied" in heads,
            reads_arguments="run_arg" in read,
            extractors=_pointers(lookup, "extract"),
            keepers=_pointers(lookup, "keep"),
        )


class RunRules:
    def __init__(
        self,
        newest: Callable[[], Domain],
        index: RunRuleIndex,
        identity: Identity,
        run: str,
        tool: str,
        args: Mapping[str, Any],
        now_ns: int,
    ) -> None:
        """Evaluate with the facts of the ``newest`` domain: its policy holds, not the one that proved the tool."""
        self._newest = newest
        self._tool = tool
        self._now = now_ns
        self._index = index
        self._run = run
        self._identity = identity
        self._args = args

    async def prepare(self) -> None:
        """Convert large arguments in a thread; evaluations run on the event loop."""
        if self._index.reads_arguments and is_large(self._args):
            await asyncio.to_thread(lambda: self._run_facts)

    def kept_values(self, outcome: StepOutcome) -> Mapping[str, Any]:
        """Return the values of a step's output that a later run may use, by name."""
        if outcome.kind != "do" or outcome.status != "done":
            return {}
        return dict(_extract(outcome, self._index.keepers))

    def skips(self, outcomes: Sequence[StepOutcome]) -> Mapping[int, str]:
        """Return the steps to skip, each with the first of its reasons."""
        if not self._index.has_skip_rules:
            return {}
        skips: dict[int, str] = {}
        for number, reason in self._evaluate(outcomes).all("skip_step", 2):
            skips.setdefault(cast(int, number), str(reason))
        return skips

    def denied(self, outcomes: Sequence[StepOutcome]) -> Collection[str]:
        if not self._index.has_deny_rules:
            return ()
        return {str(action) for action, _ in self._evaluate(outcomes).all("effect_denied", 2)}

    @property
    def has_after_rules(self) -> bool:
        return self._index.has_after_rules

    def after(self, standing: Sequence[StepOutcome], *, failed: bool) -> RuleRows:
        """Return what the rules derive from the steps of an ended run that were not undone.

        For a failed run, only rows that depend on a step: a rule that only reads that the tool was called would assert
        an effect that did not happen.
        """
        if not self._index.has_after_rules:
            return NO_ROWS
        rows = self._after(standing)
        if not failed:
            return rows
        independent = self._after(())
        return {name: [row for row in derived if row not in independent[name]] for name, derived in rows.items()}

    def _after(self, standing: Sequence[StepOutcome]) -> RuleRows:
        # An effect counts as done even if its output was unusable.
        steps = [msgspec.structs.replace(one, status="done", output=None) if one.happened else one for one in standing]
        lookup = self._evaluate(steps, [Fact("ran", (self._tool,))])
        return {name: lookup.all(name, arity) for name, arity in AFTER_RUN_ARITIES.items()}

    def _evaluate(self, outcomes: Sequence[StepOutcome], more: Iterable[Fact] = ()) -> Lookup:
        domain = self._newest()
        limits = domain.pack.settings.limits
        engine = Limits(
            derived_facts=domain.base.derived + limits.max_derived_facts,
            intervals=limits.max_intervals_per_atom,
            seconds=limits.max_compute_ms / 1_000,
        )
        facts = [*self._run_facts, *more, *self._step_facts(outcomes)]
        return Lookup(domain.base.evaluate(facts, now=self._now, check=False, limits=engine))

    @cached_property
    def _run_facts(self) -> list[Fact]:
        facts = [Fact("run_id", (self._run,)), Fact("run_of", (self._tool,)), *client_facts(self._identity)]
        if self._index.reads_arguments:
            for name, value in self._args.items():
                if value is not None:  # null counts as absent
                    with suppress(Fault):  # a value that a fact cannot hold
                        facts.append(Fact("run_arg", (name, to_value(value))))
        return facts

    def _step_facts(self, outcomes: Sequence[StepOutcome]) -> Iterator[Fact]:
        for one in outcomes:
            if one.kind != "do":
                continue
            yield Fact("step_status", (one.number, one.action, EVENT_STATUS[one.status]))
            if one.status == "done":
                for key, value in _extract(one, self._index.extractors):
                    with suppress(Fault):  # a value that a fact cannot hold
                        yield Fact("step_value", (one.number, key, to_value(value)))


def _extract(outcome: StepOutcome, pointers: Mapping[str, Sequence[tuple[str, str]]]) -> Iterator[tuple[str, Any]]:
    for key, pointer in pointers.get(outcome.action, ()):
        try:
            value = resolve_pointer(outcome.output, pointer)
        except LookupError:
            continue
        if value is not None:
            yield key, value


def _pointers(lookup: Lookup, predicate: str) -> Mapping[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for action, key, pointer in lookup.all(predicate, 3):
        found.setdefault(str(action), []).append((str(key), str(pointer)))
    return found
