"""What a caller gets instead of an answer: a value, never an exception (IPC-27, IPC-33).

``type`` says what went wrong in the contract's words, so that a consumer who knows only those keeps working:

========== =====================================================================================
timeout     no answer before the deadline (IPC-28)
crash       the host process ended, or was ended because its answers could no longer be paired (IPC-29)
parse_error what came is no answer: no JSON, no object, too long (IPC-30)
not_found   the host program is missing (IPC-31), or the host does not have the action
exception   the fault is on this side: an input that cannot be encoded, a full queue, a cancelled call (IPC-32)
tool_error  the host answered, and the answer is no; ``status`` holds its verdict
========== =====================================================================================

``code`` refines it. The one to act upon is ``outcome_unknown``: the request left, no answer came, and the action must
not be repeated. Nobody but a person or the action's own world can say whether its effect happened. ``bad_output`` says
that it did: the action ended well, and what it returned is no JSON, or holds state that is none. ``lease_refused``
says that the call had no right to be made (:mod:`.rights`), and nothing was sent.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict, TypeGuard

__all__ = ["DispatchError", "ErrorCode", "ErrorType", "Status", "failure", "is_failure"]

Status = Literal["OK", "TOOL_ERROR", "INVALID_PICK", "BREAKER_TRIP"]
"""How a step ended (contract, section 6)."""
ErrorType = Literal["timeout", "crash", "parse_error", "not_found", "exception", "tool_error"]
ErrorCode = Literal[
    "outcome_unknown",
    "oversize",
    "empty_output",
    "bad_output",
    "cancelled",
    "breaker_open",
    "queue_full",
    "lease_refused",
]


class DispatchError(TypedDict):
    """The structured error of the contract, with what manglecp adds to it."""

    error: Literal[True]
    aid: str
    type: ErrorType
    detail: str
    code: NotRequired[ErrorCode]
    status: NotRequired[Status]


def failure(
    aid: str, kind: ErrorType, detail: str, *, code: ErrorCode | None = None, status: Status | None = None
) -> DispatchError:
    """The error for one call; members that say nothing are left out."""
    error: DispatchError = {"error": True, "aid": aid, "type": kind, "detail": detail}
    if code is not None:
        error["code"] = code
    if status is not None:
        error["status"] = status
    return error


def is_failure(result: object) -> TypeGuard[DispatchError]:
    """Whether a call came to nothing."""
    return isinstance(result, dict) and result.get("error") is True
