"""Calls of actions and their outcomes.

A call's input is encoded once. Those bytes are hashed, permitted, recorded and sent, so nothing can change between the
check and the use. Values come from where the stored chain says: a constant frozen when the tool was proven, a call
argument or its default, a JSON pointer into an earlier result, or a value that an earlier run kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from manglecp.base.digest import digest_bytes
from manglecp.intent import Argument, Step, Undo
from manglecp.pack import ActionDescription
from manglecp.wire import is_valid

__all__ = [
    "EVENT_STATUS",
    "ArgumentMissing",
    "Call",
    "Effect",
    "EffectStatus",
    "Missing",
    "NoCall",
    "Outcome",
    "Status",
    "call_of",
    "defaults_of",
    "resolve",
    "secret_names",
    "undo_of",
    "with_defaults",
]

# --- model ---------------------------------------------------------------------------------------------------------

Status: TypeAlias = Literal["done", "failed", "skipped", "unknown"]
"""``unknown``: the request left, no answer came, and the effect may have happened."""

EffectStatus: TypeAlias = Literal["done", "undone", "unknown"]

EVENT_STATUS: Final[Mapping[Status, Literal["success", "failure", "skipped"]]] = {
    "done": "success",
    "failed": "failure",
    "unknown": "failure",
    "skipped": "skipped",
}
"""How a step's end is told to clients (OBS-02) and to rules (``step_status``)."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at one step, or at undoing one: exactly what is hashed, permitted and sent."""

    run: str
    step: Step | Undo
    number: int
    kind: Literal["do", "undo"] = "do"
    attempt: int = 1
    action: ActionDescription
    input_json: str
    """The canonical bytes of the input, as text."""
    input_digest: str
    """``sha256:<hex>`` of those bytes."""
    sources: tuple[int, ...] = ()
    """The steps that its arguments come from."""
    secret: bool = False
    """Does the input hold a value that must never be stored?"""
    group: str = ""
    """What the harness calls the calls that belong together: one sequential step. Made of the others, as the next."""
    call_id: str = ""
    """The same for the same attempt, in whichever process."""

    def __post_init__(self) -> None:
        group = f"{'s' if self.kind == 'do' else 'u'}{self.number}"
        msgspec.structs.force_setattr(self, "group", group)
        msgspec.structs.force_setattr(self, "call_id", f"{self.run}/{group}/{self.attempt}")

    @property
    def is_effect(self) -> bool:
        """Does it do more than read?"""
        return self.action.tier > 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one step ended, as far as it is known now."""

    call: Call | None
    """None for a step that was skipped before there was a call."""
    number: int
    kind: Literal["do", "undo"] = "do"
    action: str
    """Its name in the pack."""
    status: Status
    output: Any = None
    """What the action returned, as JSON values; only if it is done."""
    output_digest: str | None = None
    """``sha256:<hex>`` of the bytes that the host returned."""
    code: str | None = None
    """The toolhost's own code, or ``argument_missing``, ``bad_output``, ``cancelled``, ``operator``."""
    detail: str | None = None
    """For logs and operators. Clients get a text of ours."""
    why: str | None = None
    """Why it was skipped, in the words of the pack's rule."""
    duration_ms: int = 0
    happened: bool = False
    """Did its effect happen although it failed, because what it returned is of no use?"""
    by: str | None = None
    """The operator who decided how it ended, where one had to."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """An effect that happened, or may have: a row of ``details.effects``."""

    step: int
    action: str
    status: EffectStatus
    lasting: bool = True
    """Does it leave anything behind, as far as the pack says?"""


# --- pointers ------------------------------------------------------------------------------------------------------

_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")


class Missing(LookupError):
    """The pointer leads nowhere."""


def resolve(document: Any, pointer: str) -> Any:
    """What the pointer leads to; the empty one leads to the whole document."""
    found = document
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and _INDEX.fullmatch(name) and int(name) < len(found):
            found = found[int(name)]
        else:
            raise Missing(pointer)
    return found


# --- arguments -----------------------------------------------------------------------------------------------------

_encode: Final = msgspec.json.Encoder(order="sorted").encode
_PASSWORD: Final = "password"
_SHARED: Final = "#/$defs/"
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are data, not schemas."""


class NoCall(Exception):
    """A step cannot be called. ``code`` says why for events, the text for logs."""

    code = "invalid_input"


class ArgumentMissing(NoCall):
    """What one of its arguments is to be taken from is not there."""

    code = "argument_missing"

    def __init__(self, param: str, reason: str) -> None:
        super().__init__(f"{param}: {reason}")


def with_defaults(args: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The call arguments, those that were left out with the default that the tool's own schema promises."""
    return {**defaults_of(schema), **args}


def defaults_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a tool's own schema promises of call arguments that are left out."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {name: one["default"] for name, one in properties.items() if isinstance(one, dict) and "default" in one}


def secret_names(schema: Mapping[str, Any]) -> frozenset[str]:
    """The call arguments that are never stored: those with ``writeOnly`` or a password anywhere in their schema."""
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


def call_of(
    run: str,
    step: Step,
    action: ActionDescription,
    args: Mapping[str, Any],
    outputs: Mapping[int, Any],
    attempt: int = 1,
    secrets: frozenset[str] = frozenset(),
    kept: Mapping[str, Any] | None = None,
) -> Call:
    """The call of a step. ``args`` have their defaults; ``outputs`` are those of the steps that are done; ``kept`` is
    what earlier runs left for it, by parameter."""
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
                # Somebody else's, forgotten, or never there: whoever asks learns no more than that.
                hint = "check the run's id, or do by hand what it was kept for"
                raise ArgumentMissing(one.param, f"that run keeps no {one.value['name']!r} for you (any more): {hint}")
            inputs[one.param] = kept[one.param]
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


def undo_of(run: str, undo: Undo, done: Call, output: Any, action: ActionDescription, *, attempt: int = 1) -> Call:
    """The call that takes back a step that is done. Arguments come from what it was called with and what it said."""
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
        return resolve(outputs[number], one.value)
    except Missing:
        raise ArgumentMissing(one.param, f"the result of step {number} has nothing at {one.value!r}") from None


def _call(
    run: str,
    step: Step | Undo,
    number: int,
    action: ActionDescription,
    inputs: Mapping[str, Any],
    *,
    attempt: int,
    sources: tuple[int, ...],
    secret: bool,
    undo: bool = False,
) -> Call:
    if not is_valid(inputs, action.input_schema):
        raise NoCall(f"what would be given to {action.name} does not fit its schema")
    sent = _encode(inputs)
    return Call(
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
