"""What the pack's rules say about a run: before a step, at a gate, and when it is over.

The kernel states what is known: who asked, the call arguments, how each step ended, and what extractors found in
results. That last part is the only way from what an action returned to a fact (``extract``): nothing is ever read out
of a text. Session facts are not kept, so rules about runs rest on the run, on who asked, and on the server's own facts.

Rules that nobody wrote are not asked: whether the pack has a rule for a question is known when it is loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

import msgspec

from manglecp.base.json import resolve_pointer
from manglecp.intent import Domain, Identity, Lookup, client_facts
from manglecp.invoke.calls import EVENT_STATUS, StepOutcome, is_large
from manglecp.mangle import Fact, Limits, Value
from manglecp.mangle.syntax import Literal
from manglecp.wire import Fault, to_value

_ABOUT_RUNS: Final = frozenset({"run_id", "run_of", "ran", "run_arg", "step_status", "step_value"})
AFTER_RUN_ARITIES: Final[Mapping[str, int]] = {
    "asserts": 3,
    "asserts_during": 5,
    "retracts": 2,
    "suggests": 3,
    "continues_with": 2,
    "summary": 1,
}
"""What rules say when a run is over, and the number of arguments."""
NO_ROWS: Final[Mapping[str, list[tuple[Value, ...]]]] = {name: [] for name in AFTER_RUN_ARITIES}
"""What they say where there are none; not to be changed."""


@dataclass(frozen=True, slots=True)
class RunRuleIndex:
    """The questions that a pack has rules for."""

    after: bool
    skipping: bool
    denying: bool
    arguments: bool
    """Do they read what a tool was called with?"""
    extractors: Mapping[str, Sequence[tuple[str, str]]]
    """By action: keys and pointers. They are part of the pack and the same for every run."""
    keepers: Mapping[str, Sequence[tuple[str, str]]]
    """Likewise: what is kept for a later run, by name."""

    def reads(self, action: str) -> bool:
        """Does an extractor look into the results of this action, or is something of them kept?"""
        return action in self.extractors or action in self.keepers

    @staticmethod
    def of(domain: Domain) -> RunRuleIndex:
        """Found once for a pack, so that runs do not ask what no rule answers."""
        heads = {rule.head.predicate for rule in domain.program.rules}
        heads |= {fact.key[0] for fact in domain.program.facts}
        premises = (premise for rule in domain.program.rules for premise in rule.clause.premises)
        read = {premise.atom.predicate for premise in premises if isinstance(premise, Literal)}
        lookup = Lookup(domain.base.evaluate([], now=0, check=False))
        return RunRuleIndex(
            after=bool(_ABOUT_RUNS & read) and not heads.isdisjoint(AFTER_RUN_ARITIES),
            skipping="skip_step" in heads,
            denying="effect_denied" in heads,
            arguments="run_arg" in read,
            extractors=_pointers(lookup, "extract"),
            keepers=_pointers(lookup, "keep"),
        )


class RunRules:
    """The rules of one pack, asked about one run."""

    def __init__(
        self,
        newest: Callable[[], Domain],
        spoken: RunRuleIndex,
        identity: Identity,
        run: str,
        tool: str,
        args: Mapping[str, Any],
        now_ns: int,
    ) -> None:
        """``spoken`` is worked out once for the domain. Each question is answered by the ``newest`` facts of the
        server: what policy forbids now is forbidden, whenever the tool was proven."""
        self._newest = newest
        self._tool = tool
        self._now = now_ns
        self._spoken = spoken
        self._run = run
        self._identity = identity
        self._args = args

    async def prepare(self) -> None:
        """Have what is large converted before anybody asks: it takes long, and questions are answered at once."""
        if self._spoken.arguments and is_large(self._args):
            await asyncio.to_thread(lambda: self._about)

    def keeps(self, outcome: StepOutcome) -> Mapping[str, Any]:
        """What of the result of a step with an effect a later run may ask for."""
        if outcome.kind != "do" or outcome.status != "done":
            return {}
        return dict(_found(outcome, self._spoken.keepers))

    def skips(self, outcomes: Sequence[StepOutcome]) -> Mapping[int, str]:
        """The steps to leave out, and why; of several reasons the least."""
        if not self._spoken.skipping:
            return {}
        found: dict[int, str] = {}
        for number, why in self._ask(outcomes).all("skip_step", 2):
            found.setdefault(cast(int, number), str(why))
        return found

    def denied(self, outcomes: Sequence[StepOutcome]) -> Collection[str]:
        if not self._spoken.denying:
            return ()
        return {str(action) for action, _ in self._ask(outcomes).all("effect_denied", 2)}

    @property
    def speak_after(self) -> bool:
        """Do any rules say something when a run is over?"""
        return self._spoken.after

    def after(self, standing: Sequence[StepOutcome], *, failed: bool) -> Mapping[str, list[tuple[Value, ...]]]:
        """What rules say about the run as it stands, by predicate.

        Of a run that failed only what rests on a step is said: a rule that looks at nothing but the fact that the tool
        was called would claim what did not happen.
        """
        if not self._spoken.after:
            return NO_ROWS
        said = self._after(standing)
        if not failed:
            return said
        anyway = self._after(())
        return {name: [row for row in rows if row not in anyway[name]] for name, rows in said.items()}

    def _after(self, standing: Sequence[StepOutcome]) -> dict[str, list[tuple[Value, ...]]]:
        # An effect is the case although what its action returned is of no use.
        stands = [msgspec.structs.replace(one, status="done", output=None) if one.happened else one for one in standing]
        lookup = self._ask(stands, [Fact("ran", (self._tool,))])
        return {name: lookup.all(name, arity) for name, arity in AFTER_RUN_ARITIES.items()}

    def _ask(self, outcomes: Sequence[StepOutcome], more: Iterable[Fact] = ()) -> Lookup:
        domain = self._newest()
        limits = domain.pack.settings.limits
        engine = Limits(
            derived_facts=domain.base.derived + limits.max_derived_facts,
            intervals=limits.max_intervals_per_atom,
            seconds=limits.max_compute_ms / 1_000,
        )
        facts = [*self._about, *more, *self._about_steps(outcomes)]
        return Lookup(domain.base.evaluate(facts, now=self._now, check=False, limits=engine))

    @cached_property
    def _about(self) -> list[Fact]:
        """Only whoever asks pays for it, and only what rules read: arguments may be long."""
        return [
            Fact("run_id", (self._run,)),
            Fact("run_of", (self._tool,)),
            *client_facts(self._identity),
            *_about_arguments(self._args if self._spoken.arguments else {}),
        ]

    def _about_steps(self, outcomes: Sequence[StepOutcome]) -> Iterator[Fact]:
        for one in outcomes:
            if one.kind != "do":
                continue
            yield Fact("step_status", (one.number, one.action, EVENT_STATUS[one.status]))
            if one.status == "done":
                yield from self._extracted(one)

    def _extracted(self, outcome: StepOutcome) -> Iterator[Fact]:
        for key, value in _found(outcome, self._spoken.extractors):
            try:
                yield Fact("step_value", (outcome.number, key, to_value(value)))
            except Fault:
                continue  # nothing that a fact can hold


def _found(outcome: StepOutcome, pointers: Mapping[str, Sequence[tuple[str, str]]]) -> Iterator[tuple[str, Any]]:
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


def _about_arguments(args: Mapping[str, Any]) -> Iterator[Fact]:
    for name, value in args.items():
        if value is None:
            continue  # null counts as absent
        try:
            yield Fact("run_arg", (name, to_value(value)))
        except Fault:
            continue  # nothing that a fact can hold
