"""What an ``invoke_request`` says besides the tool and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from manglecp.wire import Fault, WireError, instant_of_milliseconds, malformed, read_instant
from manglecp.wire.messages import InvokeRequest

__all__ = ["UNKEEPABLE", "checked_key", "conflict", "eval_time"]

UNKEEPABLE: Final = "\0"
"""PostgreSQL has no text with it. Nothing of ours has it in its name."""
_LONGEST_KEY: Final = 128


def checked_key(key: str | None) -> str | None:
    """A request key, if it can be one."""
    if key is not None and (not 1 <= len(key) <= _LONGEST_KEY or UNKEEPABLE in key):
        raise malformed(
            f"x-request_key has 1 to {_LONGEST_KEY} characters, none of them NUL", "$.payload.x-request_key"
        )
    return key


def conflict() -> WireError:
    """For a request key that comes again with something else."""
    return WireError("x-request_key_conflict", "The request key was used for another macro-tool or other arguments")


def eval_time(request: InvokeRequest, clock: Callable[[], int]) -> int:
    """INVK-03: what rules take for now. Whether the tool is still valid is another question."""
    given = request.payload.eval_time
    if given is None:
        return clock()
    try:
        return read_instant(given) if isinstance(given, str) else instant_of_milliseconds(given)
    except Fault as fault:
        raise malformed(fault.message, "$.payload.eval_time") from None
