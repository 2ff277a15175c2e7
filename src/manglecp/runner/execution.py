"""The interface to what executes actions, and the change of state that a step commits.

The change is a list of ``add``, ``replace`` and ``remove`` on ``/slots/<n>`` in the order of slots, upstream's
``tx_patch``. Upstream leaves the operations before a bad one applied; here a patch is applied as a whole or not at all.
A transaction covers the state alone, not files or networks.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from manglecp.runner.log import RunnerError, canonical
from manglecp.toolhost import Artifact, Slots, StateError, apply_state, full_state

LARGEST_OUTPUT: Final = 1_048_576  # bytes of an output, as the contract limits them

T = TypeVar("T")


class StepStatus(StrEnum):
    """How a step ended (contract, section 6). ``INVALID_PICK`` and ``BREAKER_TRIP``: the action was not run."""

    OK = "OK"
    TOOL_ERROR = "TOOL_ERROR"
    INVALID_PICK = "INVALID_PICK"
    BREAKER_TRIP = "BREAKER_TRIP"


class Outcome(NamedTuple):
    """``output`` is a JSON value, or describes the failure. ``state`` counts only on success.

    ``by_action`` is False for failures outside the action: a deadline, a crash, an open breaker. They do not follow
    from the inputs, so a replay does not expect them again.
    """

    status: StepStatus
    output: Any
    state: Slots
    by_action: bool = True


class Execute(Protocol):
    """Runs one action, now or when awaited. It may modify its arguments: they are copies."""

    def __call__(self, aid: str, inputs: dict[str, Any], state: Slots, /) -> Outcome | Awaitable[Outcome]: ...


async def settled(answer: T | Awaitable[T]) -> T:
    """Return the value, awaited if necessary."""
    return await answer if inspect.isawaitable(answer) else answer


LARGEST_STATE: Final = 10 * 1024 * 1024  # Bytes. A host reads no longer request than that.
_PATH: Final = re.compile(r"/slots/([0-7])")


def check_state(slots: object) -> Slots:
    """Return the state that an action left; raises :class:`RunnerError`."""
    if not isinstance(slots, Mapping) or not all(isinstance(one, Artifact) for one in slots.values()):
        raise RunnerError("the state is no map from slots to artifacts")
    try:
        size = len(canonical(full_state(slots)))
    except (StateError, TypeError, ValueError) as error:
        raise RunnerError(f"the state cannot be written down: {error}") from None
    if size > LARGEST_STATE:
        raise RunnerError(f"the state has more than {LARGEST_STATE} bytes")
    return dict(slots)


def diff_state(before: Mapping[int, Artifact], after: Mapping[int, Artifact]) -> list[dict[str, Any]]:
    """Return the operations that lead from one state to the other."""
    values = full_state(after)["slots"]
    found: list[dict[str, Any]] = []
    for slot in sorted(before.keys() | after.keys()):
        path = f"/slots/{slot}"
        if slot not in after:
            found.append({"op": "remove", "path": path})
        elif before.get(slot) != after[slot]:
            found.append({"op": "replace" if slot in before else "add", "path": path, "value": values[str(slot)]})
    return found


def apply_tx_patch(before: Mapping[int, Artifact], operations: Iterable[object]) -> Slots:
    """Return the state after all operations; raises :class:`RunnerError`."""
    after = dict(before)
    for one in operations:
        found = _PATH.fullmatch(str(one.get("path"))) if isinstance(one, Mapping) else None
        if found is None or not isinstance(one, Mapping):
            raise RunnerError("an operation leads to no slot")
        op, slot = one.get("op"), int(found[1])
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
