"""``invoke_request``, ``invoke_response`` and ``progress`` (seed 000)."""

from __future__ import annotations

from typing import Literal

from manglecp.wire.messages.envelope import (
    UNSET,
    Count,
    FactObject,
    Message,
    Object,
    Part,
    Percent,
    RequestId,
    Time,
    UnsetType,
)


class InvokePayload(Part, frozen=True, kw_only=True, rename={"request_key": "x-request_key"}):
    """A tool of an earlier answer, with arguments. The same `x-request_key` again brings the same run."""

    macro_id: str
    args: Object
    eval_time: Time | None = None
    confirmation_token: str | None = None
    request_key: str | None = None


class InvokeRequest(Message, frozen=True, kw_only=True, tag="invoke_request"):
    """Run this tool."""

    id: RequestId
    payload: InvokePayload


class StateDelta(Part, frozen=True, kw_only=True, rename={"asserts": "assert"}):
    """Facts that hold from now on, and facts that do not hold any more."""

    asserts: tuple[FactObject, ...] = ()
    retract: tuple[FactObject, ...] = ()


class Event(Part, frozen=True, kw_only=True):
    """What became of one step."""

    action: str
    status: Literal["success", "failure", "skipped"]
    duration_ms: Count | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class Observability(Part, frozen=True, kw_only=True):
    """What happened, for people and logs."""

    summary: str = ""
    events: tuple[Event, ...] = ()
    duration_ms: Count = 0


class SuggestedIntent(Part, frozen=True, kw_only=True):
    """An intent that may come next. Nothing follows if the client does not ask for it."""

    name: str
    params: Object | UnsetType = UNSET
    description: str | UnsetType = UNSET


class Next(Part, frozen=True, kw_only=True):
    """What the client may do after this."""

    suggested_intents: tuple[SuggestedIntent, ...] = ()
    continuation_facts: tuple[FactObject, ...] = ()


class InvokeResult(Part, frozen=True, kw_only=True):
    """Servers send all four members; clients take one that is absent for empty (OPEN-33)."""

    result: Object
    state_delta: StateDelta = StateDelta()
    observability: Observability = Observability()
    next: Next = Next()


class InvokeResponse(Message, frozen=True, kw_only=True, tag="invoke_response"):
    """The answer to an `invoke_request` whose run succeeded."""

    id: RequestId
    payload: InvokeResult


class ProgressPayload(Part, frozen=True, kw_only=True):
    """How far a run is, as far as the server tells."""

    status: Literal["started", "running", "finalizing"]
    detail: str | None = None
    percent: Percent | None = None


class Progress(Message, frozen=True, kw_only=True, tag="progress"):
    """Comes any number of times before the answer, and never after it."""

    id: RequestId
    payload: ProgressPayload


__all__ = [
    "Event",
    "InvokePayload",
    "InvokeRequest",
    "InvokeResponse",
    "InvokeResult",
    "Next",
    "Observability",
    "Progress",
    "ProgressPayload",
    "StateDelta",
    "SuggestedIntent",
]
