"""How one step ended, in the contract's four words (section 6)."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

__all__ = ["Status", "StepStatus"]

Status = Literal["OK", "TOOL_ERROR", "INVALID_PICK", "BREAKER_TRIP"]
"""The words as they travel."""


class StepStatus(StrEnum):
    """``INVALID_PICK`` and ``BREAKER_TRIP`` say that the action was not run."""

    OK = "OK"
    TOOL_ERROR = "TOOL_ERROR"
    INVALID_PICK = "INVALID_PICK"
    BREAKER_TRIP = "BREAKER_TRIP"
