"""The pack's rules about a run: which steps to skip, which effects to deny, and what follows from its end.

The kernel asserts the caller, the call arguments, the status of each step, and the values that extractors (``extract``)
find in outputs. No other part of an output becomes a fact. Rules also see the proof inputs of the offer (intent,
parameters, session facts), the principal as it is now, and the newest server facts, always at the server's clock.

An evaluation is left out if the pack has no rule of its kind (:class:`RunRuleIndex`).
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
from manglecp.intent import Domain, Identity, Lookup, Offer, OfferService, request_facts
from manglecp.invoke.admission import AdmittedRun, credential_not_valid
from manglecp.invoke.calls import EVENT_STATUS, StepOutcome, is_large
from manglecp.mangle import Fact, Limits, Value
from manglecp.mangle.syntax import Literal
from manglecp.wire import Fault, WireError, to_value

_RUN_PREDICATES: Final = frozenset({"run_id", "run_of", "ran", "run_arg", "step_status", "step_value"})
"""The predicates of the facts that the kernel asserts about a run."""
RuleRows: TypeAlias = Mapping[str, Sequence[tuple[Value, ...]]]
"""The arguments of derived facts, by predicate."""
Pointers: TypeAlias = Mapping[str, Sequence[tuple[str, str]]]
"""By action: the key of each value, and the JSON pointer to it in the output of the action."""
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
    """Whether a predicate of ``AFTER_RUN_ARITIES`` has a rule, and a rule reads facts about the run."""
    has_skip_rules: bool
    has_effect_rules: bool
    """Whether policy may deny effects."""
    has_policy_rules: bool
    """Whether policy may deny effects, tools or intents."""
    reads_arguments: bool
    """Whether a rule reads ``run_arg``."""
    extractors: Pointers
    """The values that become ``step_value`` facts (``extract``)."""
    keepers: Pointers
    """The values that are kept for a later run (``keep``)."""

    def reads_output_of(self, action: str) -> bool:
        return action in self.extractors or action in self.keepers

    @staticmethod
    def of(domain: Domain) -> RunRuleIndex:
        heads = {rule.head.predicate for rule in domain.program.rules}
        heads |= {fact.key[0] for fact in domain.program.facts}
        premises = (premise for rule in domain.program.rules for premise in rule.clause.premises)
        read_predicates = {premise.atom.predicate for premise in premises if isinstance(premise, Literal)}
        # Extractors depend on no request and no time.
        lookup = Lookup(domain.base.evaluate([], now=0, check=False))
        return RunRuleIndex(
            has_after_rules=bool(_RUN_PREDICATES & read_predicates) and not heads.isdisjoint(AFTER_RUN_ARITIES),
            has_skip_rules="skip_step" in heads,
            has_effect_rules="effect_denied" in heads,
            has_policy_rules=not heads.isdisjoint(("effect_denied", "prohibited", "permitted", "intent_denied")),
            reads_arguments="run_arg" in read_predicates,
            extractors=_pointers(lookup, "extract"),
            keepers=_pointers(lookup, "keep"),
        )


class RunRules:
    """The rules of one pack revision about one run, admitted under this revision or an earlier one."""

    def __init__(
        self,
        offers: OfferService,
        index: RunRuleIndex,
        run: AdmittedRun,
        clock: Callable[[], int],
        current: Callable[[Identity], Identity],
    ) -> None:
        """``offers`` and ``index`` are those of the revision.

        ``current`` returns an identity with the rights that its credential has now.
        """
        self._offers = offers
        self._index = index
        self._run = run
        self._clock = clock
        self._current = current

    async def prepare(self) -> None:
        """Convert large arguments to facts in a thread: the evaluations run on the event loop."""
        if self._index.reads_arguments and is_large(self._run.args):
            await asyncio.to_thread(lambda: self._run_facts)

    def kept_values(self, outcome: StepOutcome) -> Mapping[str, Any]:
        """Return the values of a step's output that a later run may use, by name."""
        if outcome.kind != "do" or outcome.status != "done":
            return {}
        return dict(_extract(outcome, self._index.keepers))

    def skips(self, outcomes: Sequence[StepOutcome]) -> Mapping[int, str]:
        """Return the numbers of the steps to skip, each with the first of its reasons."""
        if not self._index.has_skip_rules:
            return {}
        skips: dict[int, str] = {}
        for number, reason in self._evaluate(outcomes).all("skip_step", 2):
            skips.setdefault(cast(int, number), str(reason))
        return skips

    async def prove(self, outcomes: Sequence[StepOutcome]) -> None:
        """Prove the tool of the run again, before its first effect. Raises :class:`WireError`."""
        if (identity := self._identity).revoked:
            raise credential_not_valid()
        facts = [*self._run_facts, *self._step_facts(outcomes)]
        await self._offers.prove(Offer(self._run.plan.definition, self._run.inputs), identity, facts)

    def denied(self, outcomes: Sequence[StepOutcome], *, undo: bool = False) -> Collection[str]:
        """Return the actions that policy denies now: all of the tool if it denies the tool or the intent.

        All are denied as well if the principal's credential is not valid any more. An ``undo`` reverts what was
        permitted, so only the denial of its own action counts.
        """
        if self._identity.revoked and not undo:
            return set(self._run.plan.actions)
        if not (self._index.has_effect_rules if undo else self._index.has_policy_rules):
            return ()
        try:
            lookup = self._evaluate(outcomes)
        except WireError:  # the run has session facts of an earlier revision that do not fit this one
            return set(self._run.plan.actions)
        tool = self._run.plan.definition.tool
        is_denied = (
            lookup.rows("prohibited", 2, tool)
            or lookup.all("intent_denied", 1)
            or (lookup.all("permitted_only", 0) and not lookup.rows("permitted", 1, tool))
        )
        if is_denied and not undo:
            return set(self._run.plan.actions)
        return {str(action) for action, _ in lookup.all("effect_denied", 2)}

    def after(self, standing: Sequence[StepOutcome], *, failed: bool) -> RuleRows:
        """Return what the rules derive at the end of a run from ``standing``, its steps that were not undone.

        For a failed run, only rows that depend on a step: a rule that only reads that the tool was called would assert
        an effect that did not happen.
        """
        if not self._index.has_after_rules:
            return NO_ROWS
        rows = self._after(standing)
        if not failed:
            return rows
        independent = self._after(())  # of all steps
        return {name: [row for row in derived if row not in independent[name]] for name, derived in rows.items()}

    def _after(self, standing: Sequence[StepOutcome]) -> RuleRows:
        # An effect counts as done even if its output was unusable.
        steps = [msgspec.structs.replace(s, status="done", output=None) if s.happened else s for s in standing]
        lookup = self._evaluate(steps, [Fact("ran", (self._run.plan.definition.tool,))])
        return {name: lookup.all(name, arity) for name, arity in AFTER_RUN_ARITIES.items()}

    @property
    def _identity(self) -> Identity:
        return self._current(self._run.identity)

    def _evaluate(self, outcomes: Sequence[StepOutcome], more_facts: Iterable[Fact] = ()) -> Lookup:
        domain = self._offers.domain
        limits = domain.pack.settings.limits
        engine_limits = Limits(
            derived_facts=domain.base.derived + limits.max_derived_facts,
            intervals=limits.max_intervals_per_atom,
            seconds=limits.max_compute_ms / 1_000,
        )
        caller = request_facts(self._run.inputs.intent, self._identity)
        facts = [*self._session_facts, *caller, *self._run_facts, *more_facts, *self._step_facts(outcomes)]
        return Lookup(domain.base.evaluate(facts, now=self._clock(), check=False, limits=engine_limits))

    @cached_property
    def _session_facts(self) -> list[Fact]:
        return self._run.inputs.session_facts(self._offers.domain)

    @cached_property
    def _run_facts(self) -> list[Fact]:
        facts = [Fact("run_id", (self._run.admission.run,)), Fact("run_of", (self._run.plan.definition.tool,))]
        if self._index.reads_arguments:
            for name, value in self._run.args.items():
                if value is not None:  # null counts as absent
                    with suppress(Fault):  # a value that a fact cannot hold
                        facts.append(Fact("run_arg", (name, to_value(value))))
        return facts

    def _step_facts(self, outcomes: Sequence[StepOutcome]) -> Iterator[Fact]:
        for step in outcomes:
            if step.kind != "do":
                continue
            yield Fact("step_status", (step.number, step.action, EVENT_STATUS[step.status]))
            if step.status == "done":
                for key, value in _extract(step, self._index.extractors):
                    with suppress(Fault):  # a value that a fact cannot hold
                        yield Fact("step_value", (step.number, key, to_value(value)))


def _extract(outcome: StepOutcome, pointers: Pointers) -> Iterator[tuple[str, Any]]:
    """Yield the key and the value of each pointer of the action that finds one in the output."""
    for key, pointer in pointers.get(outcome.action, ()):
        try:
            value = resolve_pointer(outcome.output, pointer)
        except LookupError:
            continue
        if value is not None:
            yield key, value


def _pointers(lookup: Lookup, predicate: str) -> Pointers:
    pointers: dict[str, list[tuple[str, str]]] = {}
    for action, key, pointer in lookup.all(predicate, 3):
        pointers.setdefault(str(action), []).append((str(key), str(pointer)))
    return pointers
