"""What the runner asks of whoever runs actions."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from manglecp.toolhost.state import Slots
from manglecp.toolhost.status import StepStatus

__all__ = ["LARGEST_OUTPUT", "Execute", "Outcome", "settled"]

LARGEST_OUTPUT: Final = 1_048_576
"""Bytes of an output, as the contract limits them."""

T = TypeVar("T")


class Outcome(NamedTuple):
    """``output`` is a JSON value; of a failure it says what went wrong. ``state`` counts only where all went well.

    ``by_action`` is False where the action itself said nothing: a deadline, a crash, an open breaker. Such a failure
    does not follow from the inputs, so a replay does not expect it again.
    """

    status: StepStatus
    output: Any
    state: Slots
    by_action: bool = True


class Execute(Protocol):
    """Run one action, now or when awaited. It may change what it is given: the runner gives it copies."""

    def __call__(self, aid: str, inputs: dict[str, Any], state: Slots, /) -> Outcome | Awaitable[Outcome]: ...


async def settled(answer: T | Awaitable[T]) -> T:
    """What was answered, whether at once or later."""
    return await answer if inspect.isawaitable(answer) else answer
