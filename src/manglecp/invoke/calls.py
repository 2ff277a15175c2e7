"""Calls of actions and their outcomes.

A call's input is encoded once. Those bytes are hashed, permitted, recorded and sent, so they cannot change between the
check and the use. The stored chain defines the source of each value: a constant frozen when the tool was proven, a call
argument or its default, a JSON pointer into an earlier output, or a value that an earlier run kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from manglecp.base.digest import digest_bytes, digest_text
from manglecp.base.json import canonical, resolve_pointer
from manglecp.harness import MutationReady, ToolRequests
from manglecp.intent import Argument, ChainStep, Undo
from manglecp.invoke.ownership import Ownership
from manglecp.pack import ActionDescription
from manglecp.toolhost import ActionResult, Dispatcher, DispatchError, PlanPermit, Slots
from manglecp.wire import is_valid, value_size

Status: TypeAlias = Literal["done", "failed", "skipped", "unknown"]
"""``unknown``: the request was sent without a response, so the effect may have happened."""

EffectStatus: TypeAlias = Literal["done", "undone", "unknown"]

EVENT_STATUS: Final[Mapping[Status, Literal["success", "failure", "skipped"]]] = {
    "done": "success",
    "failed": "failure",
    "unknown": "failure",
    "skipped": "skipped",
}
"""The status of a step in events (OBS-02) and in ``step_status`` facts."""


class ActionCall(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a step or at its undo: what is hashed, permitted and sent."""

    run: str
    step: ChainStep | Undo
    number: int
    kind: Literal["do", "undo"] = "do"
    attempt: int = 1
    action: ActionDescription
    input_json: str
    """The canonical JSON of the input."""
    input_digest: str
    """``sha256:<hex>`` of its bytes."""
    sources: tuple[int, ...] = ()
    secret: bool = False
    """Whether the input contains a value that must not be stored."""
    group: str = ""
    """The call group in the evidence: one per sequential step. Computed, like ``call_id``."""
    call_id: str = ""
    """The same for the same attempt in every process."""

    def __post_init__(self) -> None:
        group = f"{'s' if self.kind == 'do' else 'u'}{self.number}"
        msgspec.structs.force_setattr(self, "group", group)
        msgspec.structs.force_setattr(self, "call_id", f"{self.run}/{group}/{self.attempt}")

    @property
    def is_effect(self) -> bool:
        return self.action.tier > 0


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one step, as far as it is known."""

    call: ActionCall | None
    """None for a step that was not called."""
    number: int
    kind: Literal["do", "undo"] = "do"
    action: str
    status: Status
    output: Any = None
    """The JSON value that the action returned, if the step is done."""
    output_digest: str | None = None
    """``sha256:<hex>`` of the bytes that the host returned."""
    code: str | None = None
    """The toolhost's own code, or ``argument_missing``, ``bad_output``, ``cancelled``, ``operator``."""
    detail: str | None = None
    """For logs and operators; clients get a fixed text for the code."""
    why: str | None = None
    """The reason of the rule that skipped the step."""
    duration_ms: int = 0
    happened: bool = False
    """Whether the effect happened although the step failed, because its output was unusable."""
    by: str | None = None
    """The operator who decided an unknown outcome."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """An effect that happened or may have happened: a row of ``details.effects``."""

    step: int
    action: str
    status: EffectStatus
    lasting: bool = True
    """Whether the pack declares a change that remains after the call."""


# --- arguments -----------------------------------------------------------------------------------------------------

_PASSWORD: Final = "password"
_SHARED: Final = "#/$defs/"
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are data, not schemas."""


class UncallableStep(Exception):
    """A step cannot be called. ``code`` is for events, the text for logs."""

    code = "invalid_input"


class ArgumentMissing(UncallableStep):
    """The source of an argument has no value."""

    code = "argument_missing"

    def __init__(self, param: str, reason: str) -> None:
        super().__init__(f"{param}: {reason}")


class SubjectChanged(UncallableStep):
    """The subject of an approved call is not the one that the approver was shown."""

    code = "subject_changed"


def defaults_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {name: one["default"] for name, one in properties.items() if isinstance(one, dict) and "default" in one}


def secret_names(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the arguments with ``writeOnly`` or a password format anywhere in their schema; they are never stored."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    shared = schema.get("$defs", {})
    return frozenset(name for name, one in properties.items() if _is_secret(one, shared, frozenset()))


def _is_secret(schema: Any, shared: Mapping[str, Any], seen: frozenset[str]) -> bool:
    if isinstance(schema, list):
        return any(_is_secret(one, shared, seen) for one in schema)
    if not isinstance(schema, Mapping):
        return False
    if schema.get("writeOnly") is True or schema.get("format") == _PASSWORD:
        return True
    name = str(schema.get("$ref", "")).removeprefix(_SHARED)
    if name in shared and name not in seen and _is_secret(shared[name], shared, seen | {name}):
        return True
    return any(_is_secret(one, shared, seen) for key, one in schema.items() if key not in _DATA)


def build_call(
    run: str,
    step: ChainStep,
    action: ActionDescription,
    args: Mapping[str, Any],
    outputs: Mapping[int, Any],
    attempt: int = 1,
    secrets: frozenset[str] = frozenset(),
    kept: Mapping[str, Any] | None = None,
    preview: Any = None,
) -> ActionCall:
    """Return the call of a step. Raises :class:`UncallableStep`.

    ``args`` include defaults; ``outputs`` are by step; ``kept`` are values of earlier runs, by parameter; ``preview``
    is the approved result of the action's preview.
    """
    inputs: dict[str, Any] = {}
    sources: set[int] = set()
    secret = False
    for one in step.arguments:
        if one.step is not None:
            sources.add(one.step)
        if one.source == "call":
            secret = secret or one.value in secrets
            if one.value in args:
                inputs[one.param] = args[one.value]
        elif one.source == "step":
            assert one.step is not None
            inputs[one.param] = _from_step(one, one.step, outputs)
        elif one.source == "kept":
            if kept is None or kept.get(one.param) is None:
                # The same text whether it belongs to another principal, was deleted, or never existed.
                hint = "check the run's id, or do by hand what it was kept for"
                raise ArgumentMissing(one.param, f"that run keeps no {one.value['name']!r} for you (any more): {hint}")
            inputs[one.param] = kept[one.param]
        elif one.source == "preview":
            if isinstance(preview, dict) and one.value in preview:
                inputs[one.param] = preview[one.value]
        else:
            inputs[one.param] = one.value
    return _call(
        run,
        step,
        step.number,
        action,
        inputs,
        attempt=attempt,
        sources=tuple(sorted(sources)) if sources else (),
        secret=secret,
    )


def build_undo_call(
    run: str, undo: Undo, done: ActionCall, output: Any, action: ActionDescription, *, attempt: int = 1
) -> ActionCall:
    """Return the call that undoes a step, with arguments from its input and output. Raises :class:`UncallableStep`."""
    given: Mapping[str, Any] = msgspec.json.decode(done.input_json) if done.input_json else {}
    inputs: dict[str, Any] = {}
    for one in undo.arguments:
        if one.source == "call":
            if one.value not in given:
                raise ArgumentMissing(one.param, f"step {done.number} was called without {one.value!r}")
            inputs[one.param] = given[one.value]
        elif one.source == "step":
            inputs[one.param] = _from_step(one, done.number, {done.number: output})
        else:
            inputs[one.param] = one.value
    return _call(
        run, undo, done.number, action, inputs, attempt=attempt, sources=(done.number,), secret=done.secret, undo=True
    )


def _from_step(one: Argument, number: int, outputs: Mapping[int, Any]) -> Any:
    if number not in outputs:
        raise ArgumentMissing(one.param, f"step {number} has no result")
    try:
        return resolve_pointer(outputs[number], one.value)
    except LookupError:
        raise ArgumentMissing(one.param, f"the result of step {number} has no value at {one.value!r}") from None


def _call(
    run: str,
    step: ChainStep | Undo,
    number: int,
    action: ActionDescription,
    inputs: Mapping[str, Any],
    *,
    attempt: int,
    sources: tuple[int, ...],
    secret: bool,
    undo: bool = False,
) -> ActionCall:
    if not is_valid(inputs, action.input_schema):
        raise UncallableStep(f"the input of {action.name} does not fit its schema")
    sent = canonical(inputs)
    return ActionCall(
        run=run,
        step=step,
        number=number,
        kind="undo" if undo else "do",
        attempt=attempt,
        action=action,
        input_json=sent.decode(),
        input_digest=digest_bytes(sent),
        sources=sources,
        secret=secret,
    )


# --- large values --------------------------------------------------------------------------------------------------

T = TypeVar("T")
_LARGE: Final = 20_000
"""Number of nested values that take about ten milliseconds to process."""
_FEW: Final = 16
_SHORT: Final = 1_024
_SIMPLE: Final = frozenset({str, int, float, bool, type(None)})
LARGE_TEXT: Final = 1 << 19
"""Characters of JSON that take as long."""


def is_large(value: Any) -> bool:
    """Return whether a value has many nested values, without visiting all of them."""
    if type(value) is dict and len(value) <= _FEW:  # most arguments are a few short texts and numbers
        for name, one in value.items():
            kind = type(one)
            if (
                kind not in _SIMPLE
                or (kind is str and len(one) > _SHORT)
                or type(name) is not str
                or len(name) > _SHORT
            ):
                break
        else:
            return False
    return value_size(value, _LARGE) > _LARGE


async def run_in_thread_if(condition: bool, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return the work's result; computed in a thread if the condition holds, inline otherwise."""
    return await asyncio.to_thread(work, *args, **kwargs) if condition else work(*args, **kwargs)


# --- actions -------------------------------------------------------------------------------------------------------

Permit: TypeAlias = MutationReady | ToolRequests | PlanPermit

_IN_DOUBT: Final = frozenset({"outcome_unknown", "oversize", "empty_output"})
"""Codes of a sent request whose outcome is unknown."""

_LOST: Final = frozenset({"crash", "timeout", "parse_error"})
"""Codes of an idempotent call without a response: it may have been sent or not."""

_BAD_OUTPUT: Final = "bad_output"
"""The action succeeded, and its result does not fit its schema."""


class ActionRunner:
    def __init__(self, dispatcher: Dispatcher, identity: str, ownership: Ownership | None = None) -> None:
        """``ownership`` is that of the run; None without effects."""
        self._dispatcher = dispatcher
        self._identity = identity
        self._ownership = ownership

    async def call(self, call: ActionCall, permit: Permit, slots: Slots, seconds: float) -> tuple[StepOutcome, Slots]:
        """Run a call and return its outcome and the state slots after it. Raises :class:`Fenced`."""
        if self._ownership is not None:
            await self._ownership.ensure_owned()
        started = time.monotonic()
        answer = await self._dispatcher.call(
            call.action.aid,
            identity=self._identity,
            slots=slots,
            input_json=call.input_json,
            call_id=call.call_id,
            timeout=seconds,
            authority=permit,
            not_after=None if self._ownership is None else self._ownership.expires_at,
            # Reads may be repeated, so they need no idempotency key.
            idempotency_key=f"{call.run}/{call.group}" if call.is_effect else None,
        )
        duration_ms = round((time.monotonic() - started) * 1_000)
        if isinstance(answer, ActionResult):
            return await run_in_thread_if(
                len(answer.output_json) > LARGE_TEXT, _done, call, answer, duration_ms
            ), answer.slots
        return _not_done(call, answer, duration_ms), slots

    def cancel(self, call: ActionCall) -> None:
        """Fail a call under way. Its action may continue until its host notices."""
        self._dispatcher.cancel(call.call_id)


def _done(call: ActionCall, answer: ActionResult, duration_ms: int) -> StepOutcome:
    try:
        output = msgspec.json.decode(answer.output_json)
    except (ValueError, RecursionError):
        return _outcome(call, "failed", duration_ms, code="parse_error", happened=call.is_effect)
    if call.action.output_schema and not is_valid(output, call.action.output_schema):
        return _outcome(call, "failed", duration_ms, code=_BAD_OUTPUT, happened=call.is_effect)
    return _outcome(call, "done", duration_ms, output=output, output_digest=digest_text(answer.output_json))


def _not_done(call: ActionCall, error: DispatchError, duration_ms: int) -> StepOutcome:
    code = error.get("code") or ("invalid_pick" if error.get("status") == "INVALID_PICK" else error["type"])
    sent = error["type"] != "exception"  # the code of a call that could not be encoded
    doubtful = sent and (code in _IN_DOUBT or (call.action.idempotent and code in _LOST))
    status: Status = "unknown" if call.is_effect and doubtful else "failed"
    happened = call.is_effect and code == _BAD_OUTPUT
    return _outcome(call, status, duration_ms, code=code, detail=error["detail"], happened=happened)


def _outcome(call: ActionCall, status: Status, duration_ms: int, **more: Any) -> StepOutcome:
    return StepOutcome(
        call=call,
        number=call.number,
        kind=call.kind,
        action=call.action.name,
        status=status,
        duration_ms=duration_ms,
        **more,
    )
