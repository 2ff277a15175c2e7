"""The execution plan of a chain: rounds of steps that may run in parallel.

A round consists of the steps whose predecessors are settled: the reads among them or, if there are no reads, the
effects. A step is settled when it is done, failed or skipped.
Reads come first so that the gate before an effect has as much evidence as possible. The effects of one round share a
gate. In a chain without ``step_after`` facts every round has one step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from manglecp.intent import ChainStep, Definition, default_arguments
from manglecp.invoke.calls import secret_names
from manglecp.pack import ActionDescription
from manglecp.toolhost import PlanPermit


class Unplannable(LookupError):
    """The chain names an action that does not exist any more."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A chain with the actions that its steps call."""

    definition: Definition
    actions: Mapping[str, ActionDescription]
    """The actions of the chain and of its undo steps, by name."""

    @classmethod
    def of(cls, definition: Definition, actions: Mapping[str, ActionDescription]) -> Plan:
        """Return the plan of a chain. ``actions`` are the pack's actions, by name. Raises :class:`Unplannable`."""
        undo_actions = [step.undo.action for step in definition.steps if step.undo is not None]
        names = dict.fromkeys((*(step.action for step in definition.steps), *undo_actions))
        missing_actions = [name for name in names if name not in actions]
        if missing_actions:
            raise Unplannable(missing_actions[0])
        return cls(definition, MappingProxyType({name: actions[name] for name in names}))

    def action(self, step: ChainStep) -> ActionDescription:
        return self.actions[step.action]

    def is_effect(self, step: ChainStep) -> bool:
        return self.action(step).tier > 0

    @cached_property
    def has_effects(self) -> bool:
        return any(map(self.is_effect, self.definition.steps))

    @cached_property
    def pattern(self) -> Literal["single", "chain", "parallel"]:
        """The execution pattern in the evidence of the harness."""
        if any(len(steps) > 1 for steps in self.rounds()):
            return "parallel"
        return "single" if len(self.definition.steps) == 1 else "chain"

    @cached_property
    def secrets(self) -> frozenset[str]:
        """The call arguments that are never stored."""
        return secret_names(self.definition.input_schema)

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        return default_arguments(self.definition)

    @cached_property
    def read_by_steps(self) -> frozenset[int]:
        """The numbers of the steps whose outputs other steps use."""
        arguments = (argument for step in self.definition.steps for argument in step.arguments)
        return frozenset(argument.step for argument in arguments if argument.step is not None)

    @cached_property
    def result_steps(self) -> frozenset[int]:
        """The numbers of the steps whose outputs the result uses; by default the last step."""
        result_numbers = {number for _member, number, _pointer in self.definition.results}
        return frozenset(result_numbers or {self.definition.steps[-1].number})

    def permit(self, run: str) -> PlanPermit:
        """Return the permit for the first attempt at each step of a run without effects."""
        if self.has_effects:
            raise ValueError("above tier 0 a turn authorises each call")
        return PlanPermit({f"{run}/s{step.number}/1": self.action(step).aid for step in self.definition.steps})

    @cached_property
    def gates(self) -> int:
        """The number of gates if no step fails or is skipped."""
        return sum(self.is_effect(steps[0]) for steps in self.rounds())

    def rounds(self) -> Iterator[tuple[ChainStep, ...]]:
        """Yield the steps of each round of a run without failures."""
        settled_steps: set[int] = set()
        while steps := self.ready(settled_steps):
            yield steps
            settled_steps.update(step.number for step in steps)

    def ready(self, settled: Collection[int]) -> tuple[ChainStep, ...]:
        """Return the steps of the next round; empty if every step is settled. ``settled`` are numbers of steps."""
        if self.definition.ordered:
            for step in self.definition.steps:
                if step.number not in settled:
                    return (step,)
            return ()
        unsettled = [step for step in self.definition.steps if step.number not in settled]
        ready = [step for step in unsettled if all(number in settled for number in step.after)]
        reads = tuple(step for step in ready if not self.is_effect(step))
        return reads or tuple(ready)

    def step(self, number: int) -> ChainStep:
        return self._steps[number]

    @cached_property
    def _steps(self) -> Mapping[int, ChainStep]:
        return {step.number: step for step in self.definition.steps}
