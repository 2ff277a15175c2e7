"""Calls, answers and errors, and how they are written as lines of JSON.

A request carries the *full* state of its run, ``{"slots": {}}`` if there is none, so that nothing another run left in a
warm host is visible (IPC-13). A host of ours echoes ``call_id``.

An answer is interpreted by ``ok`` *and* ``status``: upstream sends ``ok: true`` for every tool that was started, also
for those that failed. Members may be missing (OPEN-61): no status is ``TOOL_ERROR``, no output is ``{}``. Its state is
applied to the state that was sent, with one exception: upstream answers a repeated idempotency key with
``ds_state: {}``, which means that nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, NotRequired, TypedDict, TypeGuard, get_args

import msgspec

from manglecp.base.ids import random_id
from manglecp.toolhost.actions import DANGEROUS, SAFE
from manglecp.toolhost.dispatch.launch import MAX_TIMEOUT, is_timeout
from manglecp.toolhost.state import Artifact, Slots, StateError, apply_state, full_state

if TYPE_CHECKING:
    from manglecp.harness import MutationReady, ToolRequests
    from manglecp.toolhost.dispatch.rights import PlanPermit

Status = Literal["OK", "TOOL_ERROR", "INVALID_PICK", "BREAKER_TRIP"]  # how a step ended (contract, section 6)
ErrorType = Literal[
    "timeout",  # no answer before the deadline (IPC-28)
    "crash",  # the host process ended, or was ended because its answers could no longer be matched (IPC-29)
    "parse_error",  # what came is not an answer: no JSON, no object, too long (IPC-30)
    "not_found",  # the host program is missing (IPC-31), or the host does not have the action
    "exception",  # a fault on this side: an input that cannot be encoded, a full queue, a cancelled call (IPC-32)
    "tool_error",  # the host refused; ``status`` holds its verdict
]
ErrorCode = Literal[
    "outcome_unknown",  # the request was sent and no answer came: whether its effect happened has to be verified
    "oversize",
    "empty_output",
    "bad_output",  # the action ended well, and what it returned is not JSON, or holds state that is none
    "cancelled",
    "breaker_open",
    "queue_full",
    "lease_refused",  # the call has no authority, and nothing was sent
]


class DispatchError(TypedDict):
    """What a caller gets instead of an answer, never an exception (IPC-27, IPC-33). ``code`` refines ``type``."""

    error: Literal[True]
    aid: str
    type: ErrorType
    detail: str
    code: NotRequired[ErrorCode]
    status: NotRequired[Status]


def failure(
    aid: str, kind: ErrorType, detail: str, *, code: ErrorCode | None = None, status: Status | None = None
) -> DispatchError:
    """Return the error for one call, without members that are None."""
    error: DispatchError = {"error": True, "aid": aid, "type": kind, "detail": detail}
    if code is not None:
        error["code"] = code
    if status is not None:
        error["status"] = status
    return error


def is_failure(result: object) -> TypeGuard[DispatchError]:
    """Return whether this is a :class:`DispatchError`."""
    return isinstance(result, dict) and result.get("error") is True


class CallRefused(Exception):
    """A call that was not sent: no host, or no authority for it."""

    def __init__(self, kind: ErrorType, detail: str, code: ErrorCode | None = None) -> None:
        super().__init__(detail)
        self.kind: ErrorType = kind
        self.detail = detail
        self.code = code


MAX_REQUEST: Final = 10_485_760  # bytes that a host takes in one line (IPC-37, OPEN-62)

_STATUSES: Final = frozenset(get_args(Status))
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder()


class RequestError(ValueError):
    """A call that cannot be sent. ``oversize`` if only its size is in the way."""

    def __init__(self, message: str, *, oversize: bool = False) -> None:
        super().__init__(message)
        self.oversize = oversize


class HostCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an action. Defaults are the worst case: dangerous, and not to be repeated."""

    aid: str
    input_json: str = "{}"
    tier: int = DANGEROUS
    idempotent: bool = False
    slots: Mapping[int, Artifact] = msgspec.field(default_factory=dict)
    timeout: float | None = None
    """Seconds that the action may take."""
    patience: float | None = None
    """Seconds that this caller waits. Running out of them is not a failure of the action."""
    idempotency_key: str | None = None
    identity: str = ""
    call_id: str = msgspec.field(default_factory=random_id)
    authority: MutationReady | ToolRequests | PlanPermit | None = None
    """What permits it; above tier 0 there has to be a ``MutationReady``."""
    not_after: Callable[[], float] | None = None
    """Until when it may begin, on the monotonic clock; called when the lease is issued, since it may have moved."""

    @property
    def exclusive(self) -> bool:
        """Above tier 0 a call has its host to itself, so that killing the host affects no other call."""
        return self.tier > SAFE


class ActionResult(msgspec.Struct, frozen=True):
    """A call that succeeded: what the action returned, and the slots as they are after it."""

    aid: str
    output_json: str
    slots: Slots
    idempotent_hit: bool = False


def call_problem(call: HostCall) -> str | None:
    """Return what is wrong with the members of a call; the rest shows when it is encoded."""
    for name in ("aid", "call_id", "input_json", "identity"):
        if not isinstance(getattr(call, name), str):
            return f"{name} is not a text"
    if call.idempotency_key is not None and not isinstance(call.idempotency_key, str):
        return "idempotency_key is not a text"
    for seconds in (call.timeout, call.patience):
        if seconds is not None and not is_timeout(seconds):
            return f"timeout: seconds are expected, from 0 to {MAX_TIMEOUT:.0f}, not {str(seconds)[:40]}"
    return None


def encode(call: HostCall, lease_token: str | None = None) -> bytes:
    """Return the request line, with the full state. Raises :class:`RequestError`."""
    try:
        request: dict[str, Any] = {
            "aid": call.aid,
            "call_id": call.call_id,
            "input_json": call.input_json,
            "ds_state": full_state(call.slots),
        }
        if call.idempotency_key:
            request["idempotency_key"] = _scoped(call.identity, call.aid, call.idempotency_key)
        if lease_token is not None:
            request["_lease_token"] = lease_token
        line = _encoder.encode(request)
    except (TypeError, ValueError) as error:  # a lone surrogate, a slot that is none
        raise RequestError(f"the request cannot be encoded: {error}") from error
    if len(line) > MAX_REQUEST:
        raise RequestError(f"the request has {len(line)} bytes; a host takes {MAX_REQUEST}", oversize=True)
    return line + b"\n"


def _scoped(identity: str, aid: str, key: str) -> str:
    """Return the key as its host sees it: a digest, so that no identity can reach the answers of another.

    The parts are a JSON array, so that no two triples have the same text.
    """
    return sha256(_encoder.encode((identity, aid, key))).hexdigest()


def decode(line: bytes) -> dict[str, Any]:
    """Return one line of a host as an object; raises ValueError if it is none.

    Bytes that are no UTF-8 are refused, not replaced: an output must not differ from what the action returned.
    """
    try:
        document = _decoder.decode(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("no JSON object")
    return document


def is_unknown_action(aid: str, document: Mapping[str, Any]) -> bool:
    """Return whether the host has no such action. No error of an action itself looks like this.

    The C++ host gives no status; in run mode it writes "in plugin".
    """
    if document.get("ok") is not False or document.get("status", "INVALID_PICK") != "INVALID_PICK":
        return False
    return document.get("error") in (f"tool not found: {aid}", f"tool not found in plugin: {aid}")


def interpret_answer(call: HostCall, document: Mapping[str, Any]) -> ActionResult | DispatchError:
    """Return what an answer means for the caller."""
    status = document.get("status")
    if not isinstance(status, str) or status not in _STATUSES:
        status = "TOOL_ERROR"
    output = document.get("output_json") or "{}"
    if document.get("ok") is not True or status != "OK":
        return _refusal(call.aid, document, status if status != "OK" else "TOOL_ERROR", output)
    if not isinstance(output, str):
        return _unreadable(call, "output_json is not a string")
    hit = document.get("idempotent_hit") is True
    try:
        slots = _slots_after(call.slots, document.get("ds_state"), hit=hit)
    except StateError as error:
        return _unreadable(call, f"ds_state: {error}")
    return ActionResult(call.aid, output, slots, hit)


def _unreadable(call: HostCall, detail: str) -> DispatchError:
    """Return the error of an action with an unreadable result: it ran, so an effect must not be repeated."""
    return failure(call.aid, "parse_error", detail, code=None if call.idempotent else "outcome_unknown")


def _refusal(aid: str, document: Mapping[str, Any], status: Any, output: object) -> DispatchError:
    error = document.get("error")
    detail = error if isinstance(error, str) and error else f"the host answered {status} and gave no reason"
    reason = document.get("reason")
    if isinstance(reason, str) and reason:
        detail = f"{detail}: {reason}"
    elif detail == error and isinstance(output, str) and output != "{}":
        detail = f"{detail}; output: {output[:1000]}"
    if is_unknown_action(aid, document):
        return failure(aid, "not_found", detail, status="INVALID_PICK")
    if document.get("ok") is False and error == "oversize":  # as from a host that does not measure, but it lives on
        return failure(aid, "parse_error", detail, code="oversize")
    code: ErrorCode | None = "bad_output" if document.get("code") == "bad_output" else None
    return failure(aid, "tool_error", detail, code=code, status=status)


def _slots_after(before: Mapping[int, Artifact], document: object, *, hit: bool) -> Slots:
    if isinstance(document, dict) and (not document or (hit and document.get("delta") is not True)):
        return dict(before)
    return apply_state(document, before)
