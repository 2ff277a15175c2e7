"""Execution of actions: the interface, the change of state that a step commits, and dispatch to the hosts of plugins.

The change is a list of ``add``, ``replace`` and ``remove`` on ``/slots/<n>`` in the order of slots, upstream's
``tx_patch``. Upstream leaves the operations before a bad one applied; here a patch is applied as a whole or not at all.
A transaction covers the state alone, not files or networks.
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

LARGEST_OUTPUT: Final = 1_048_576  # bytes of an output, as the contract limits them

T = TypeVar("T")


class StepStatus(StrEnum):
    """How a step ended (contract, section 6). ``INVALID_PICK`` and ``BREAKER_TRIP``: the action was not run."""

    OK = "OK"
    TOOL_ERROR = "TOOL_ERROR"
    INVALID_PICK = "INVALID_PICK"
    BREAKER_TRIP = "BREAKER_TRIP"


class ActionOutcome(NamedTuple):
    """``output`` is a JSON value, or describes the failure. ``state`` counts only on success.

    ``by_action`` is False for failures outside the action: a deadline, a crash, an open breaker. They do not follow
    from the inputs, so a replay does not expect them again.
    """

    status: StepStatus
    output: Any
    state: Slots
    by_action: bool = True


Execute: TypeAlias = Callable[[str, dict[str, Any], Slots], ActionOutcome | Awaitable[ActionOutcome]]
"""Runs one action on inputs and state, now or when awaited. It may modify its arguments: they are copies."""


async def resolve(value: T | Awaitable[T]) -> T:
    """Return the value, awaited if necessary."""
    return await value if inspect.isawaitable(value) else value


LARGEST_STATE: Final = 10 * 1024 * 1024  # bytes; a host rejects longer requests
_PATH: Final = re.compile(r"/slots/([0-7])")


def check_state(slots: object) -> Slots:
    """Return the state that an action left; raises :class:`RunnerError`."""
    if not isinstance(slots, Mapping) or not all(isinstance(one, Artifact) for one in slots.values()):
        raise RunnerError("the state is not a map from slots to artifacts")
    try:
        size = len(canonical(full_state(slots)))
    except (StateError, TypeError, ValueError) as error:
        raise RunnerError(f"the state cannot be encoded: {error}") from None
    if size > LARGEST_STATE:
        raise RunnerError(f"the state has more than {LARGEST_STATE} bytes")
    return dict(slots)


def diff_state(before: Mapping[int, Artifact], after: Mapping[int, Artifact]) -> list[dict[str, Any]]:
    """Return the operations that lead from one state to the other."""
    values = full_state(after)["slots"]
    operations: list[dict[str, Any]] = []
    for slot in sorted(before.keys() | after.keys()):
        path = f"/slots/{slot}"
        if slot not in after:
            operations.append({"op": "remove", "path": path})
        elif before.get(slot) != after[slot]:
            operations.append({"op": "replace" if slot in before else "add", "path": path, "value": values[str(slot)]})
    return operations


def apply_state_patch(before: Mapping[int, Artifact], operations: Iterable[object]) -> Slots:
    """Return the state after all operations; raises :class:`RunnerError`."""
    after = dict(before)
    for one in operations:
        match = _PATH.fullmatch(str(one.get("path"))) if isinstance(one, Mapping) else None
        if match is None or not isinstance(one, Mapping):
            raise RunnerError("the path of an operation is not a slot")
        op, slot = one.get("op"), int(match[1])
        if op not in ("add", "replace", "remove") or (op == "add") == (slot in after):
            raise RunnerError(f"{str(op)[:20]!a} does not fit slot {slot}")
        if op == "remove":
            del after[slot]
            continue
        try:
            after |= apply_state({"slots": {str(slot): one.get("value")}}, {})
        except StateError as error:
            raise RunnerError(str(error)) from None
    return after


# A run has one set of inputs; each action gets those that its schema names. Members with a leading underscore steer the
# runner and reach no action. The state of a run travels whole with every step, and no host is kept between steps: a
# selector may take long. An action with effects needs an authority per call; without one, dispatch refuses. A refusal
# by the action or its schema is deterministic. Other failures (a deadline, a crash, an open breaker) are not.


Authorise: TypeAlias = Callable[[str, str, str], "MutationReady | Awaitable[MutationReady | None] | None"]
"""Takes AID, call id and input JSON of a call above tier 0; returns its authority, or None to refuse it."""


@dataclass(frozen=True, slots=True)
class PluginExecutor:
    """Executes the actions of all plugins behind a dispatcher, for one identity."""

    dispatcher: Dispatcher
    identity: str = ""
    authorise: Authorise | None = None

    async def __call__(self, aid: str, inputs: dict[str, Any], state: Slots, /) -> ActionOutcome:
        profile = self.dispatcher.actions.get(aid)
        options: CallOptions = {"inputs": _accepted_inputs(inputs, None if profile is None else profile.inputs_schema)}
        if self.authorise is not None and profile is not None and profile.tier > SAFE:
            text, call_id = msgspec.json.encode(options["inputs"]).decode(), secrets.token_hex(16)
            authority = await resolve(self.authorise(aid, call_id, text))
            options = {"input_json": text, "call_id": call_id, "authority": authority}
        answer = await self.dispatcher.call(aid, identity=self.identity, slots=state, **options)
        if isinstance(answer, ActionResult):
            return ActionOutcome(StepStatus.OK, json.loads(answer.output_json), answer.slots)
        status = StepStatus(answer.get("status", StepStatus.TOOL_ERROR))
        by_action = "status" in answer and status is not StepStatus.BREAKER_TRIP
        return ActionOutcome(status, dict(answer), state, by_action)


def read_actions(listing: bytes) -> list[MenuAction]:
    """Return the offers of a ``--list`` answer.

    Only actions of tier 0 count as deterministic, even if others declare it: a replay executes deterministic actions
    again, and must not have effects.
    """
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
