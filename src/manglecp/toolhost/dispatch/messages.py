"""Calls, results and errors of actions, and their encoding as lines of JSON.

A request contains the *full* state of its run, ``{"slots": {}}`` if the state is empty, so that an action never sees
the state that another run left in a warm host. Our hosts echo ``call_id``.

An answer is interpreted by ``ok`` *and* ``status``: the C++ host sends ``ok: true`` for every action that was started,
also for failed ones. Members may be missing: no status counts as ``TOOL_ERROR``, no output as ``{}``. The state in an
answer is applied to the state that was sent; an empty state is no change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NotRequired, TypeAlias, TypedDict, TypeGuard, get_args

import msgspec

from manglecp.base.ids import random_id
from manglecp.base.redaction import SecretValue
from manglecp.pack import SecretUse
from manglecp.toolhost.actions import DANGEROUS, SAFE
from manglecp.toolhost.context import ACTION_CODE, MAX_ERROR_DATA, MAX_ERROR_MESSAGE, describe, failure_members
from manglecp.toolhost.state import Artifact, Slots, StateError, apply_state, full_state, state_delta

if TYPE_CHECKING:
    from manglecp.harness import MutationReady, ToolRequests
    from manglecp.toolhost.dispatch.rights import PlanPermit

OnReport: TypeAlias = Callable[[dict[str, Any]], None]
Status = Literal["OK", "TOOL_ERROR", "INVALID_PICK", "BREAKER_TRIP"]  # how a call ended, as the IPC contract names it
ErrorType = Literal[
    "timeout",  # no answer before the deadline
    "crash",  # the host process ended, or was ended because its answers could no longer be matched to requests
    "parse_error",  # the line is not a valid answer: not JSON, not an object, or too long
    "not_found",  # the host program is missing, or the host does not have the action
    "exception",  # an error of dispatch: an input that cannot be encoded, a full queue, a cancelled call
    "tool_error",  # the host refused the call, or the action failed: ``status`` states which
]
ErrorCode = Literal[
    "outcome_unknown",  # the request was sent and not answered: the caller has to verify whether the effect happened
    "oversize",  # the answer, or the request, is too long
    "empty_output",  # an empty line in place of an answer, or an exit without an answer
    "bad_output",  # the action succeeded, but its result is not JSON or holds an invalid state
    "cancelled",
    "breaker_open",
    "queue_full",
    "lease_refused",  # the call has no authority and was not sent
    "no_host",  # no host could be started, so the call was not sent
    "no_secret",  # a secret of the action has no valid value, so the call was not sent
]


class DispatchError(TypedDict):
    """The error of a call, returned and never raised. ``code`` refines ``type``.

    ``sent``: bytes of the request, or of an earlier one with its key, may have reached a host, and no answer states
    whether the effect happened. Without ``sent``, the call had no effect, or failed in the action.
    """

    error: Literal[True]
    aid: str
    type: ErrorType
    detail: str
    code: NotRequired[ErrorCode]
    status: NotRequired[Status]
    traceback: NotRequired[str]
    cause: NotRequired[dict[str, Any]]
    """``message``, ``code`` and ``data`` of an :class:`ActionError`, the last two if given. Callers may read it."""
    sent: NotRequired[Literal[True]]


def failure(
    aid: str,
    kind: ErrorType,
    detail: str,
    *,
    code: ErrorCode | None = None,
    status: Status | None = None,
    sent: bool = False,
) -> DispatchError:
    """Return the error of a call; ``code`` and ``status`` are omitted if None, ``sent`` if False."""
    error: DispatchError = {"error": True, "aid": aid, "type": kind, "detail": detail}
    if code is not None:
        error["code"] = code
    if status is not None:
        error["status"] = status
    if sent:
        error["sent"] = True
    return error


def is_failure(result: object) -> TypeGuard[DispatchError]:
    """Return whether the result of a call is a :class:`DispatchError`."""
    return isinstance(result, dict) and result.get("error") is True


class CallRefused(Exception):
    """A call that was not sent, because it has no host or no authority."""

    def __init__(self, kind: ErrorType, detail: str, code: ErrorCode | None = None) -> None:
        super().__init__(detail)
        self.kind: ErrorType = kind
        self.detail = detail
        self.code = code


MAX_REQUEST: Final = 10_485_760  # bytes that a host accepts in one line
MAX_TIMEOUT: Final = 86_400.0

_STATUSES: Final = frozenset(get_args(Status))
_NO_STATE: Final = full_state({})
_NO_CHANGE: Final = state_delta({}, {})
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder()


class HostCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an action. By default the action counts as dangerous and not repeatable."""

    aid: str
    input_json: str = "{}"
    tier: int = DANGEROUS
    idempotent: bool = False
    slots: Mapping[int, Artifact] = msgspec.field(default_factory=dict)
    timeout: float | None = None
    """Seconds that the action may take."""
    wait_timeout: float | None = None
    """Seconds that the caller waits. If they end before ``timeout``, the circuit breaker counts no failure."""
    idempotency_key: str | None = None
    identity: str = ""
    """The caller: the same ``idempotency_key`` of two identities names two calls."""
    call_id: str = msgspec.field(default_factory=random_id)
    authority: MutationReady | ToolRequests | PlanPermit | None = None
    """The permission; above tier 0 it has to be a ``MutationReady``."""
    not_after: Callable[[], float] | None = None
    """Returns the latest start, on the monotonic clock; called when the lease is issued, since the time may change."""
    on_report: OnReport | None = None
    secrets: tuple[SecretUse, ...] = ()

    @property
    def above_tier_0(self) -> bool:
        """Whether the action may have an effect."""
        return self.tier > SAFE


class ActionResult(msgspec.Struct, frozen=True):
    """The result of a successful call: the output of the action, and the slots after it."""

    aid: str
    output_json: str
    slots: Slots
    idempotent_hit: bool = False


def is_timeout(value: object) -> bool:
    """Return whether this is a valid timeout in seconds; 0 is valid, and means that the deadline has passed."""
    return type(value) in (int, float) and 0 <= value <= MAX_TIMEOUT  # type: ignore[operator]


def call_problem(call: HostCall) -> str | None:
    """Return the first invalid member of a call as a message, or None. :func:`encode` checks the others."""
    for name in ("aid", "call_id", "input_json", "identity"):
        if not isinstance(getattr(call, name), str):
            return f"{name} is not a text"
    if call.idempotency_key is not None and not isinstance(call.idempotency_key, str):
        return "idempotency_key is not a text"
    for seconds in (call.timeout, call.wait_timeout):
        if seconds is not None and not is_timeout(seconds):
            return f"timeout: seconds are expected, from 0 to {MAX_TIMEOUT:.0f}, not {str(seconds)[:40]}"
    return None


def encode(call: HostCall, lease_token: str | None = None, secrets: Iterable[SecretValue] = ()) -> bytes:
    """Return the request line, with the full state and the values of secrets. Raises :class:`CallRefused`."""
    try:
        request: dict[str, Any] = {
            "aid": call.aid,
            "call_id": call.call_id,
            "input_json": call.input_json,
            "ds_state": full_state(call.slots) if call.slots else _NO_STATE,
        }
        if call.idempotency_key:
            request["idempotency_key"] = _scoped_key(call.identity, call.aid, call.idempotency_key)
        if lease_token is not None:
            request["_lease_token"] = lease_token
        if values := {secret.name: secret.text for secret in secrets}:
            request["_secrets"] = values
        line = _encoder.encode(request)
    except (TypeError, ValueError) as error:  # a lone surrogate, an invalid slot
        raise CallRefused("exception", f"the request cannot be encoded: {error}") from error
    if len(line) > MAX_REQUEST:
        raise CallRefused("exception", f"the request has {len(line)} bytes; a host takes {MAX_REQUEST}", "oversize")
    return line + b"\n"


def _scoped_key(identity: str, aid: str, key: str) -> str:
    """Return the idempotency key for the host: a digest, so that one identity cannot read the answers of another."""
    # A JSON array, so that no two triples have the same text.
    return sha256(_encoder.encode((identity, aid, key))).hexdigest()


def decode(line: bytes) -> dict[str, Any]:
    """Return one line of a host as an object; raises ValueError, also for bytes that are not UTF-8."""
    try:
        document = _decoder.decode(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document


def is_unknown_action(aid: str, document: Mapping[str, Any]) -> bool:
    """Return whether the answer states that the host lacks this action; errors of actions have another form."""
    # The C++ host sends no status; it sends the second text in its run mode.
    if document.get("ok") is not False or document.get("status", "INVALID_PICK") != "INVALID_PICK":
        return False
    return document.get("error") in (f"tool not found: {aid}", f"tool not found in plugin: {aid}")


def interpret_answer(call: HostCall, document: Mapping[str, Any]) -> ActionResult | DispatchError:
    """Return the result or the error that an answer stands for."""
    status = document.get("status")
    if not isinstance(status, str) or status not in _STATUSES:
        status = "TOOL_ERROR"
    output = document.get("output_json") or "{}"
    if document.get("ok") is not True or status != "OK":
        return _answered_error(call.aid, document, status if status != "OK" else "TOOL_ERROR", output)
    if not isinstance(output, str):
        return _unreadable(call, "output_json is not a string")
    hit = document.get("idempotent_hit") is True
    answered_state = document.get("ds_state")
    try:
        # A cached answer changes no state; nor does an empty object, although it is not a delta.
        is_unchanged = hit or answered_state in ({}, _NO_CHANGE)
        slots = dict(call.slots) if is_unchanged else apply_state(answered_state, call.slots)
    except StateError as error:
        return _unreadable(call, f"ds_state: {error}")
    return ActionResult(call.aid, output, slots, hit)


def _unreadable(call: HostCall, detail: str) -> DispatchError:
    """Return the error of a call with an unreadable result. The action ran, so its effect must not be repeated."""
    return failure(call.aid, "parse_error", detail, code=None if call.idempotent else "outcome_unknown", sent=True)


def _answered_error(aid: str, document: Mapping[str, Any], status: Any, output: object) -> DispatchError:
    error = document.get("error")
    detail = error if isinstance(error, str) and error else f"the host answered {status} without a reason"
    reason = document.get("reason")
    if isinstance(reason, str) and reason:
        detail = f"{detail}: {reason}"
    elif detail == error and isinstance(output, str) and output != "{}":
        detail = f"{detail}; output: {output[:1000]}"
    if is_unknown_action(aid, document):
        return failure(aid, "not_found", detail, status="INVALID_PICK")
    if document.get("ok") is False and error == "oversize":  # the host did not send its answer, and stays usable
        return failure(aid, "parse_error", detail, code="oversize", sent=True)
    code: ErrorCode | None = "bad_output" if document.get("code") == "bad_output" else None
    result = failure(aid, "tool_error", detail, code=code, status=status)
    if isinstance(traceback := document.get("traceback"), str):
        result["traceback"] = traceback
    if code is None and "action_error" in document:
        with suppress(ValueError, RecursionError):  # invalid: by a foreign host, or by a host that its plugin changed
            cause = msgspec.convert(document["action_error"], _Cause)
            result["cause"] = {"message": cause.message} | ({"code": cause.code} if cause.code else {})
            if (data := _decoder.decode(cause.data_json)) is not None:
                result["cause"]["data"] = data
    return result


class _Cause(msgspec.Struct):
    message: Annotated[str, msgspec.Meta(pattern=r"\S", max_length=MAX_ERROR_MESSAGE)]
    code: Annotated[str, msgspec.Meta(pattern=rf"\A{ACTION_CODE}\Z")] | None = None
    data_json: Annotated[str, msgspec.Meta(max_length=MAX_ERROR_DATA)] = "null"


def failure_of(aid: str, error: BaseException) -> DispatchError:
    """Return the error of an action that raised in this process, as if a host had answered."""
    return _answered_error(aid, {"ok": True, "error": describe(error), **failure_members(error)}, "TOOL_ERROR", "{}")
