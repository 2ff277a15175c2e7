"""What becomes of a call whose host was lost.

A request of which no byte was sent is given to another host. One that was sent is repeated only if it has no effect
(tier 0), and is idempotent or was lost because of a neighbour. The right to an effect is spent when it is sent, so it
is never repeated here: if the action is idempotent, the caller may try again with a new right, and otherwise the
outcome is unknown, and that is what the caller is told. Nothing is repeated that would fail in the same way everywhere:
a deadline is over for all hosts, and an answer that is too long is too long everywhere. The one call that tries out
whether an action is well again is not repeated either.
"""

from __future__ import annotations

from typing import Final

from manglecp.toolhost.dispatch.errors import DispatchError, ErrorCode, ErrorType, failure
from manglecp.toolhost.dispatch.messages import Call
from manglecp.toolhost.dispatch.pairing import HostLost, Loss

__all__ = ["error_of", "innocent", "may_repeat", "type_of"]

_MEANING: Final[dict[Loss, tuple[ErrorType, ErrorCode | None]]] = {
    "timeout": ("timeout", None),
    "crash": ("crash", None),
    "parse_error": ("parse_error", None),
    "oversize": ("parse_error", "oversize"),
    "empty_output": ("parse_error", "empty_output"),
    "cancelled": ("exception", "cancelled"),
}
_REPEATABLE: Final = frozenset[Loss]({"crash", "parse_error", "empty_output"})


def innocent(call: Call, lost: HostLost) -> bool:
    """Whether a call without effects was lost because of its neighbour."""
    return lost.sent and not lost.suspect and not call.exclusive


def may_repeat(call: Call, lost: HostLost, *, probe: bool) -> bool:
    """Whether another host may be given this call."""
    if lost.loss not in _REPEATABLE:
        return False
    return not lost.sent or innocent(call, lost) or (call.idempotent and not call.exclusive and not probe)


def type_of(lost: HostLost) -> ErrorType:
    """The loss in the contract's words."""
    return _MEANING[lost.loss][0]


def error_of(call: Call, lost: HostLost) -> DispatchError:
    """What the caller is told."""
    kind, code = _MEANING[lost.loss]
    if lost.sent and not call.idempotent and code != "oversize":  # an answer that is too long says at least that it ran
        code = "outcome_unknown"
    return failure(call.aid, kind, lost.detail, code=code)
