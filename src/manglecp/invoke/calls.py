"""Calls of actions and their outcomes.

A call's input is encoded once. The same bytes are hashed, permitted, recorded and sent, so that they cannot change
between the check and the use. The stored chain defines the source of each value: a constant frozen when the tool was
proven, a call argument or its default, a JSON pointer into an earlier output, or a value that an earlier run kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from manglecp.base.digest import digest_bytes, digest_text
from manglecp.base.json import canonical, resolve_pointer, value_size
from manglecp.harness import MutationReady, ToolRequests
from manglecp.intent import Argument, ChainStep, Undo
from manglecp.pack import ActionDescription
from manglecp.toolhost import ActionResult, DispatchError, PlanPermit, Slots
from manglecp.wire import is_valid

Status: TypeAlias = Literal["done", "failed", "skipped", "unknown"]
"""``unknown``: the call was sent and has no response, so its effect may have happened."""

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
    """The number of the step."""
    kind: Literal["do", "undo"] = "do"
    attempt: int = 1
    action: ActionDescription
    input_json: str
    """The canonical JSON of the input."""
    input_digest: str
    """``sha256:<hex>`` of the bytes of ``input_json``."""
    sources: tuple[int, ...] = ()
    """The numbers of the steps whose outputs the input contains; for an undo, of the step that it undoes."""
    secret: bool = False
    """Whether the input contains a value that must not be stored."""
    group: str = ""
    """``s<number>`` or, for an undo, ``u<number>``. Computed, as is ``call_id``: do not pass either."""
    call_id: str = ""
    """``<run>/<group>/<attempt>``, whichever process makes the attempt."""

    def __post_init__(self) -> None:
        group = f"{'s' if self.kind == 'do' else 'u'}{self.number}"
        msgspec.structs.force_setattr(self, "group", group)
        msgspec.structs.force_setattr(self, "call_id", f"{self.run}/{group}/{self.attempt}")

    @property
    def is_effect(self) -> bool:
        return self.action.tier > 0  # tier 0 only reads


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one step, as far as it is known."""

    call: ActionCall | None
    """None for a step that was not called."""
    number: int
    """The number of the step."""
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
    """A text for logs and operators; clients get a fixed text for the code."""
    trace: str | None = None
    """The traceback of the action's exception, or ``detail``, for logs and operators."""
    cause: dict[str, Any] | None = None
    """``message``, and perhaps ``code`` and ``data``, of the action's ``ActionError``, for the client."""
    why: str | None = None
    """The reason of the rule that skipped the step."""
    duration_ms: int = 0
    happened: bool = False
    """Whether the effect happened although the step failed, because its output was unusable."""
    by: str | None = None
    """The name of the operator who decided an unknown outcome."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """An effect that happened or may have happened: a row of ``details.effects``."""

    step: int
    action: str
    status: EffectStatus
    lasting: bool = True
    """Whether the pack declares a change that remains after the call."""


# --- arguments -----------------------------------------------------------------------------------------------------

_DEFS_PREFIX: Final = "#/$defs/"
_DATA_KEYWORDS: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords of JSON Schema whose values are data, not schemas."""


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


def secret_names(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the arguments with ``writeOnly`` or a password format anywhere in their schema: values never stored."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    definitions = schema.get("$defs", {})
    return frozenset(name for name, part in properties.items() if _is_secret(part, definitions, frozenset()))


def _is_secret(schema: Any, definitions: Mapping[str, Any], seen: frozenset[str]) -> bool:
    """Return whether a schema marks a secret. Definitions in ``seen``, on the path to it, are not followed again."""
    if isinstance(schema, list):
        return any(_is_secret(part, definitions, seen) for part in schema)
    if not isinstance(schema, Mapping):
        return False
    if schema.get("writeOnly") is True or schema.get("format") == "password":
        return True
    name = str(schema.get("$ref", "")).removeprefix(_DEFS_PREFIX)
    if name in definitions and name not in seen and _is_secret(definitions[name], definitions, seen | {name}):
        return True
    return any(_is_secret(part, definitions, seen) for key, part in schema.items() if key not in _DATA_KEYWORDS)


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

    ``args`` are the arguments of the invocation, with defaults; ``secrets`` are the names of the secret ones.
    ``outputs`` are outputs of earlier steps, by number; ``kept`` are values of earlier runs, by parameter; ``preview``
    is the approved result of the action's preview.
    """
    inputs = resolve_inputs(step.arguments, args, outputs, kept or {}, preview)
    sources = sorted({argument.step for argument in step.arguments if argument.step is not None})
    has_secret = any(argument.source == "call" and argument.value in secrets for argument in step.arguments)
    return _call(run, step, step.number, action, inputs, attempt, tuple(sources), secret=has_secret)


def resolve_inputs(
    arguments: Iterable[Argument],
    args: Mapping[str, Any],
    outputs: Mapping[int, Any],
    kept: Mapping[str, Any],
    preview: Any = None,
) -> dict[str, Any]:
    """Return a step's input, by parameter. Raises :class:`ArgumentMissing`. Parameters: see :func:`build_call`."""
    inputs: dict[str, Any] = {}
    for argument in arguments:
        param, value = argument.param, argument.value
        if argument.source == "call":
            if value in args:  # a missing argument is optional: the schema was checked
                inputs[param] = args[value]
        elif argument.source == "step":
            assert argument.step is not None
            inputs[param] = _value_from_step(argument, argument.step, outputs)
        elif argument.source == "kept":
            if kept.get(param) is None:
                # The text is the same for a value of another principal, a deleted value, and one that never existed.
                hint = "check the run's id, or do by hand what it was kept for"
                raise ArgumentMissing(param, f"that run keeps no {value['name']!r} for you (any more): {hint}")
            inputs[param] = kept[param]
        elif argument.source == "preview":
            if preview is not None:  # a call without an approval has no preview
                if not isinstance(preview, dict) or value not in preview:
                    # Without the value, the action could not refuse a subject that has changed.
                    raise ArgumentMissing(param, "the approved preview does not provide it")
                inputs[param] = preview[value]
        else:
            inputs[param] = value
    return inputs


def build_undo_call(
    run: str, undo: Undo, done: ActionCall, output: Any, action: ActionDescription, *, attempt: int = 1
) -> ActionCall:
    """Return the call that undoes a step, with arguments from its input and output. Raises :class:`UncallableStep`."""
    done_input: Mapping[str, Any] = msgspec.json.decode(done.input_json) if done.input_json else {}
    inputs: dict[str, Any] = {}
    for argument in undo.arguments:
        param, value = argument.param, argument.value
        if argument.source == "call":
            if value not in done_input:
                raise ArgumentMissing(param, f"step {done.number} was called without {value!r}")
            inputs[param] = done_input[value]
        elif argument.source == "step":
            inputs[param] = _value_from_step(argument, done.number, {done.number: output})
        else:
            inputs[param] = value
    return _call(run, undo, done.number, action, inputs, attempt, (done.number,), secret=done.secret)


def _value_from_step(argument: Argument, number: int, outputs: Mapping[int, Any]) -> Any:
    """Return the value at the argument's JSON pointer in the output of the step ``number``."""
    if number not in outputs:
        raise ArgumentMissing(argument.param, f"step {number} has no result")
    try:
        return resolve_pointer(outputs[number], argument.value)
    except LookupError:
        reason = f"the result of step {number} has no value at {argument.value!r}"
        raise ArgumentMissing(argument.param, reason) from None


def _call(
    run: str,
    step: ChainStep | Undo,
    number: int,
    action: ActionDescription,
    inputs: Mapping[str, Any],
    attempt: int,
    sources: tuple[int, ...],
    *,
    secret: bool,
) -> ActionCall:
    if not is_valid(inputs, action.input_schema):
        raise UncallableStep(f"the input of {action.name} does not fit its schema")
    input_bytes = canonical(inputs)
    return ActionCall(
        run=run,
        step=step,
        number=number,
        kind="undo" if isinstance(step, Undo) else "do",
        attempt=attempt,
        action=action,
        input_json=input_bytes.decode(),
        input_digest=digest_bytes(input_bytes),
        sources=sources,
        secret=secret,
    )


# --- large values --------------------------------------------------------------------------------------------------

_MAX_INLINE_VALUES: Final = 20_000  # number of nested values that take about ten milliseconds to process
MAX_INLINE_TEXT: Final = 1 << 19
"""Characters of JSON that take about ten milliseconds to process."""


def is_large(value: Any) -> bool:
    """Return whether a value has more than ``_MAX_INLINE_VALUES`` nested values, without visiting all of them."""
    return value_size(value, _MAX_INLINE_VALUES) > _MAX_INLINE_VALUES


# --- actions -------------------------------------------------------------------------------------------------------

Permit: TypeAlias = MutationReady | ToolRequests | PlanPermit
"""``MutationReady`` permits effects, ``ToolRequests`` reads, and ``PlanPermit`` all calls of a run without effects."""
_BAD_OUTPUT: Final = "bad_output"
"""The code of an action that succeeded with an output that does not fit its schema."""


class CallResult(NamedTuple):
    outcome: StepOutcome
    slots: Slots
    """The state slots after the call."""


def outcome_of_result(call: ActionCall, result: ActionResult, duration_ms: int) -> StepOutcome:
    try:
        output = msgspec.json.decode(result.output_json)
    except (ValueError, RecursionError):
        return _outcome(call, "failed", duration_ms, code="parse_error", happened=call.is_effect)
    if call.action.output_schema and not is_valid(output, call.action.output_schema):
        return _outcome(call, "failed", duration_ms, code=_BAD_OUTPUT, happened=call.is_effect)
    return _outcome(call, "done", duration_ms, output=output, output_digest=digest_text(result.output_json))


def outcome_of_error(call: ActionCall, error: DispatchError, duration_ms: int) -> StepOutcome:
    code = error.get("code") or ("invalid_pick" if error.get("status") == "INVALID_PICK" else error["type"])
    status: Status = "unknown" if call.is_effect and error.get("sent") else "failed"
    happened = call.is_effect and code == _BAD_OUTPUT
    return _outcome(call, status, duration_ms, code=code, happened=happened, **error_texts(error))


def error_texts(error: DispatchError) -> dict[str, Any]:
    """Return the members of an outcome that explain an error."""
    return {"detail": error["detail"], "trace": error.get("traceback"), "cause": error.get("cause")}


def _outcome(call: ActionCall, status: Status, duration_ms: int, **fields: Any) -> StepOutcome:
    return StepOutcome(
        call=call,
        number=call.number,
        kind=call.kind,
        action=call.action.name,
        status=status,
        duration_ms=duration_ms,
        **fields,
    )
