"""In which order the steps of a chain run, and which of them may run together.

A chain runs in rounds. In each round the steps that wait for nothing more are either all reads, or, once there are no
reads left to do, all effects: reads first, so that the gate before an effect sees as much evidence as there can be. The
effects of one round share a gate. In a chain without ``step_after`` every round has one step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from manglecp.intent import ChainStep, Definition
from manglecp.invoke.calls import defaults_of, secret_names
from manglecp.pack import ActionDescription
from manglecp.toolhost import PlanPermit


class Unplannable(LookupError):
    """The chain names an action that is not there any more."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A chain and its actions. Steps of one round do not wait for each other."""

    definition: Definition
    actions: Mapping[str, ActionDescription]
    """Those of the chain, its undo actions included, by name."""

    @classmethod
    def of(cls, definition: Definition, actions: Mapping[str, ActionDescription]) -> Plan:
        """Raises :class:`Unplannable` where an action is not there any more."""
        undoing = [step.undo.action for step in definition.steps if step.undo is not None]
        names = dict.fromkeys((*(step.action for step in definition.steps), *undoing))
        missing = [name for name in names if name not in actions]
        if missing:
            raise Unplannable(missing[0])
        # It never changes: what follows from it is remembered by its identity.
        return cls(definition, MappingProxyType({name: actions[name] for name in names}))

    def action(self, step: ChainStep) -> ActionDescription:
        """What the step calls."""
        return self.actions[step.action]

    def is_effect(self, step: ChainStep) -> bool:
        """Does the step do more than read?"""
        return self.action(step).tier > 0

    @cached_property
    def has_effects(self) -> bool:
        """Does any step do more than read?"""
        return any(map(self.is_effect, self.definition.steps))

    @cached_property
    def pattern(self) -> Literal["single", "chain", "parallel"]:
        """How the harness calls the shape of the chain."""
        if any(len(together) > 1 for together in self.rounds()):
            return "parallel"
        return "single" if len(self.definition.steps) == 1 else "chain"

    @cached_property
    def secrets(self) -> frozenset[str]:
        """The call arguments that are never stored."""
        return secret_names(self.definition.input_schema)

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """Those of call arguments that were left out."""
        return defaults_of(self.definition.input_schema)

    @cached_property
    def read_by_steps(self) -> frozenset[int]:
        """The steps whose results a later one is called with."""
        arguments = (argument for step in self.definition.steps for argument in step.arguments)
        return frozenset(argument.step for argument in arguments if argument.step is not None)

    @cached_property
    def told(self) -> frozenset[int]:
        """The steps whose results the tool returns."""
        named = {number for _, number, _ in self.definition.results}
        return frozenset(named or {self.definition.steps[-1].number})

    def permit(self, run: str) -> PlanPermit:
        """The right of a run without effects to its calls: no step of it is attempted twice."""
        if self.has_effects:
            raise ValueError("above tier 0 a turn authorises each call")
        return PlanPermit({f"{run}/s{step.number}/1": self.action(step).aid for step in self.definition.steps})

    @cached_property
    def gates(self) -> int:
        """How many there are if nothing fails and nothing is skipped."""
        return sum(self.is_effect(together[0]) for together in self.rounds())

    def rounds(self) -> Iterator[tuple[ChainStep, ...]]:
        """The steps that may run together, round after round, if all goes well."""
        settled: set[int] = set()
        while together := self.ready(settled):
            yield together
            settled.update(step.number for step in together)

    def ready(self, settled: Collection[int]) -> tuple[ChainStep, ...]:
        """The next round; nothing if every step is settled."""
        if self.definition.ordered:
            for step in self.definition.steps:
                if step.number not in settled:
                    return (step,)
            return ()
        open_steps = [step for step in self.definition.steps if step.number not in settled]
        free = [step for step in open_steps if all(number in settled for number in step.after)]
        reads = tuple(step for step in free if not self.is_effect(step))
        return reads or tuple(free)

    def step(self, number: int) -> ChainStep:
        """The step of this number, which has to be there."""
        return self._steps[number]

    @cached_property
    def _steps(self) -> Mapping[int, ChainStep]:
        return {step.number: step for step in self.definition.steps}
