"""When a request is sent once more (seed 004, section 7): a table and a little arithmetic, no clock and no chance.

A request is repeated unchanged only if the server says that waiting helps, or if the connection was lost and doing it
twice does no harm. It waits at least as long as the server says (CLI-06), longer each time (CLI-07), and never more
than five times for one request, whatever the reasons were (CLI-08, OPEN-43). Everything else is for whoever asked:
other facts, another budget, new consent (OPEN-44).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from manglecp.client.errors import ServerError

__all__ = ["MOST_RETRIES", "Retrying", "repeatable"]

MOST_RETRIES: Final = 5

_WAITING_HELPS: Final = frozenset({"server_not_ready", "rate_limited"})
_CHANGE_FIRST: Final = frozenset(
    {
        "unsupported_version",
        "message_too_large",
        "auth_required",
        "auth_invalid",
        "invalid_facts",
        "unknown_predicate",
        "arity_mismatch",
        "type_mismatch",
        "too_many_facts",
        "evaluation_timeout",
        "derivation_limit_exceeded",
        "interval_limit_exceeded",
        "macro_not_found",
        "macro_expired",
        "schema_validation_failed",
        "confirmation_required",
        "confirmation_invalid",
    }
)
"""Recoverable, but not by saying the same again (ERR-42 to ERR-46, OPEN-44)."""


def repeatable(error: ServerError) -> bool:
    """May the same request be sent again after this error? Never if it is not recoverable (ERR-48)."""
    if not error.recoverable or error.code in _CHANGE_FIRST:
        return False
    return error.code in _WAITING_HELPS or error.retry_after_ms is not None


@dataclass(frozen=True, slots=True)
class Retrying:
    """How often, and how long between. ``chance`` gives numbers from 0 to 1, so that clients do not come all at once.

    ``longest_ms`` is how long anybody waits for one attempt. A server that asks for more is not asked again: coming
    back too early is forbidden, and the caller would rather know.
    """

    most: int = MOST_RETRIES
    first_ms: int = 200
    longest_ms: int = 60_000
    chance: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.most <= MOST_RETRIES:
            raise ValueError(f"a request is repeated at most {MOST_RETRIES} times")

    def wait_ms(self, retries: int, retry_after_ms: int | None = None) -> float | None:
        """How long to wait before the next retry, after so many; None if there is none."""
        if retries >= self.most:
            return None
        least = retry_after_ms or 0
        if least > self.longest_ms:
            return None
        half: float = min(self.longest_ms, self.first_ms * 2**retries) / 2
        return max(least, half) + half * self.chance()
