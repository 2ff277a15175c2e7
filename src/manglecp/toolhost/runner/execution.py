"""What the runner asks of whoever runs actions."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from manglecp.toolhost.state import Slots

__all__ = ["LARGEST_OUTPUT", "Execute", "Outcome", "StepStatus"]

LARGEST_OUTPUT: Final = 1_048_576
"""Bytes of an output, as the contract limits them."""


class StepStatus(StrEnum):
    """How a step ended (contract, section 6)."""

    OK = "OK"
    TOOL_ERROR = "TOOL_ERROR"
    INVALID_PICK = "INVALID_PICK"
    BREAKER_TRIP = "BREAKER_TRIP"


class Outcome(NamedTuple):
    """``output`` is a JSON value; of a failure it says what went wrong. ``state`` counts only where all went well."""

    status: StepStatus
    output: Any
    state: Slots


class Execute(Protocol):
    """Run one action. It may change what it is given: the runner gives it copies."""

    def __call__(self, aid: str, inputs: dict[str, Any], state: Slots, /) -> Outcome: ...
