"""How one step ended, in the contract's four words (section 6)."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["StepStatus"]


class StepStatus(StrEnum):
    """``INVALID_PICK`` and ``BREAKER_TRIP`` say that the action was not run."""

    OK = "OK"
    TOOL_ERROR = "TOOL_ERROR"
    INVALID_PICK = "INVALID_PICK"
    BREAKER_TRIP = "BREAKER_TRIP"
