"""Execution of actions: the interface, the change of state that a step commits, and dispatch to the hosts of plugins.

The state of a run is a map from slots (0 to 7) to artifacts. A change of it, ``tx_patch`` in the log, is a list of the
operations ``add``, ``replace`` and ``remove`` on ``/slots/<n>``, sorted by slot. It is applied as a whole or not at
all; upstream (the Machina runner) leaves the operations before an invalid one applied. The change covers the
state alone, not files or networks.
"""

from __future__ import annotations

import inspect
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from manglecp.runner.log import RunnerError, canonical
from manglecp.runner.selection import MenuAction
from manglecp.toolhost import (
    SAFE,
    ActionResult,
    Artifact,
    CallOptions,
    Dispatcher,
    Slots,
    StateError,
    apply_state,
    full_state,
    read_catalogue,
)

if TYPE_CHECKING:
    from manglecp.harness import MutationReady

MAX_OUTPUT_BYTES: Final = 1_048_576  # the limit of one output, from the Machina process contract

T = TypeVar("T")


class StepStatus(StrEnum):
    """How a step ended (section 6 of the Machina process contract).

    With ``INVALID_PICK`` (the inputs do not fit) and ``BREAKER_TRIP`` the action was not run.
    """

    OK = "OK"
    TOOL_ERROR = "TOOL_ERROR"
    INVALID_PICK = "INVALID_PICK"
    BREAKER_TRIP = "BREAKER_TRIP"


class ActionOutcome(NamedTuple):
    """The outcome of one execution of an action."""

    status: StepStatus
    output: Any  # the JSON result, or a description of the failure
    state: Slots  # the state after the action; used only on success
    turn: str = ""  # the id of the witness of the turn that authorised an effect


Execute: TypeAlias = Callable[[str, dict[str, Any], Slots], ActionOutcome | Awaitable[ActionOutcome]]
"""Executes an action: takes the action id (AID), inputs and state, returns the outcome or an awaitable of it.

It may modify its arguments: they are copies.
"""


async def resolve(value: T | Awaitable[T]) -> T:
    """Return the value, awaited if necessary."""
    return await value if inspect.isawaitable(value) else value


MAX_STATE_BYTES: Final = 10 * 1024 * 1024  # a host rejects longer requests
_MAX_SLOT: Final = 7  # the highest slot of an operation in a log; hosts accept higher ones
_SLOT_PATH: Final = re.compile(r"/slots/([0-7])")


def check_state(slots: object) -> Slots:
    """Return a copy of a state. Raises :class:`RunnerError` if it is invalid or too large."""
    if not isinstance(slots, Mapping) or not all(isinstance(artifact, Artifact) for artifact in slots.values()):
        raise RunnerError("the state is not a map from slots to artifacts")
    try:
        size = len(canonical(full_state(slots)))
    except (StateError, TypeError, ValueError) as error:
        raise RunnerError(f"the state cannot be encoded: {error}") from None
    if max(slots, default=0) > _MAX_SLOT:
        raise RunnerError(f"the state has another slot than 0 to {_MAX_SLOT}")
    if size > MAX_STATE_BYTES:
        raise RunnerError(f"the state has more than {MAX_STATE_BYTES} bytes")
    return dict(slots)


def diff_state(before: Mapping[int, Artifact], after: Mapping[int, Artifact]) -> list[dict[str, Any]]:
    """Return the operations that turn the state ``before`` into ``after``."""
    json_slots = full_state(after)["slots"]
    operations: list[dict[str, Any]] = []
    for slot in sorted(before.keys() | after.keys()):
        path = f"/slots/{slot}"
        if slot not in after:
            operations.append({"op": "remove", "path": path})
        elif before.get(slot) != after[slot]:
            op = "replace" if slot in before else "add"
            operations.append({"op": op, "path": path, "value": json_slots[str(slot)]})
    return operations


def apply_state_patch(before: Mapping[int, Artifact], operations: Iterable[object]) -> Slots:
    """Return the state after all operations. Raises :class:`RunnerError` for an invalid operation."""
    after = dict(before)
    for operation in operations:
        members = operation if isinstance(operation, Mapping) else {}
        match = _SLOT_PATH.fullmatch(str(members.get("path")))
        if match is None:
            raise RunnerError("the path of an operation is not a slot")
        op, slot = members.get("op"), int(match[1])
        if op not in ("add", "replace", "remove") or (op == "add") == (slot in after):  # add needs a free slot
            raise RunnerError(f"{str(op)[:20]!a} does not fit slot {slot}")
        if op == "remove":
            del after[slot]
            continue
        try:
            after |= apply_state({"slots": {str(slot): members.get("value")}}, {})
        except StateError as error:
            raise RunnerError(str(error)) from None
    return after


Authorise: TypeAlias = Callable[[str, str, str], "MutationReady | Awaitable[MutationReady | None] | None"]
"""Takes AID, call id and input JSON of an action above tier 0; returns the authorisation, or None to refuse."""


@dataclass(frozen=True, slots=True)
class PluginExecutor:
    """Executes the actions of all plugins of a dispatcher, for one identity.

    All actions share the inputs of the run. An action gets those that its schema accepts, except names with a leading
    underscore, which are for the runner. Every call sends the whole state, because no host is kept between steps: a
    selector may take long. Without ``authorise``, the dispatcher refuses actions above tier 0, which have effects.
    """

    dispatcher: Dispatcher
    identity: str = ""
    authorise: Authorise | None = None

    async def __call__(self, aid: str, inputs: dict[str, Any], state: Slots, /) -> ActionOutcome:
        profile = self.dispatcher.actions.get(aid)
        options: CallOptions = {"inputs": _accepted_inputs(inputs, None if profile is None else profile.inputs_schema)}
        if self.authorise is not None and profile is not None and profile.tier > SAFE:
            # The authorisation covers exactly this text, so the same text is sent.
            input_json, call_id = msgspec.json.encode(options["inputs"]).decode(), secrets.token_hex(16)
            authority = await resolve(self.authorise(aid, call_id, input_json))
            options = {"input_json": input_json, "call_id": call_id, "authority": authority}
        result = await self.dispatcher.call(aid, identity=self.identity, slots=state, **options)
        if isinstance(result, ActionResult):
            return ActionOutcome(StepStatus.OK, json.loads(result.output_json), result.slots)
        # Failures of the action, of its schema and of its breaker have a status; no others do.
        status = StepStatus(result.get("status", StepStatus.TOOL_ERROR))
        return ActionOutcome(status, dict(result), state)


def read_actions(listing: bytes) -> list[MenuAction]:
    """Return the actions in the output of ``--list``, for a menu. Actions with effects are not deterministic."""
    catalogue = read_catalogue(listing)
    actions = []
    for tool in json.loads(listing)["tools"]:
        profile = catalogue[tool["aid"]]
        name, tags = tool.get("name"), tool.get("tags")
        actions.append(
            MenuAction(
                profile.aid,
                name if isinstance(name, str) else "",
                frozenset(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else frozenset(),
                tool.get("deterministic") is True and profile.tier == SAFE,
                profile.inputs_schema,
            )
        )
    return actions


def _accepted_inputs(inputs: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    public = {name: value for name, value in inputs.items() if not name.startswith("_")}
    properties = schema.get("properties") if schema is not None else None
    if schema is None or schema.get("additionalProperties") is not False or not isinstance(properties, dict):
        return public
    return {name: value for name, value in public.items() if name in properties}
