"""Calls of a run, sent to the toolhost; each has one outcome.

The bytes that were permitted are sent, under the call id that was permitted, with the permit: a lease is minted from it
and from nothing else. An output that does not fit the action's schema is not a result, although the effect that it
belongs to has happened. No effect of a run begins after this process's ownership of the run has ended.
"""

from __future__ import annotations

import time
from typing import Any, Final, TypeAlias

import msgspec

from manglecp.base.digest import digest_text
from manglecp.harness import MutationReady, ToolRequests
from manglecp.invoke.calls import Call, Outcome, Status
from manglecp.invoke.large_values import LARGE_TEXT, run_in_thread_if
from manglecp.invoke.ownership import Claim
from manglecp.toolhost import Answer, Dispatcher, DispatchError, PlanPermit, Slots
from manglecp.wire import is_valid

__all__ = ["ActionRunner", "Permit"]

Permit: TypeAlias = MutationReady | ToolRequests | PlanPermit

_IN_DOUBT: Final = frozenset({"outcome_unknown", "oversize", "empty_output"})
"""The request was sent, and the response does not say how it ended."""

_LOST: Final = frozenset({"crash", "timeout", "parse_error"})
"""Codes of an idempotent call without a response: it may have been sent or not."""

_BAD_OUTPUT: Final = "bad_output"
"""The action succeeded, and its result does not fit its schema."""


class ActionRunner:
    """The actions of a pack, through its dispatcher, on behalf of one identity."""

    def __init__(self, dispatcher: Dispatcher, identity: str, claim: Claim | None = None) -> None:
        """``claim`` is the ownership of a run with effects."""
        self._dispatcher = dispatcher
        self._identity = identity
        self._claim = claim

    async def call(self, call: Call, permit: Permit, slots: Slots, seconds: float) -> tuple[Outcome, Slots]:
        """Run a call and return its outcome and the state slots after it. Raises :class:`Fenced`."""
        if self._claim is not None:
            await self._claim.sure()
        started = time.monotonic()
        answer = await self._dispatcher.call(
            call.action.aid,
            identity=self._identity,
            slots=slots,
            input_json=call.input_json,
            call_id=call.call_id,
            timeout=seconds,
            authority=permit,
            not_after=None if self._claim is None else self._claim.end,
            # A read may be repeated: only effects are remembered.
            idempotency_key=f"{call.run}/{call.group}" if call.is_effect else None,
        )
        took = round((time.monotonic() - started) * 1_000)
        if isinstance(answer, Answer):
            return await run_in_thread_if(len(answer.output_json) > LARGE_TEXT, _done, call, answer, took), answer.slots
        return _not_done(call, answer, took), slots

    def cancel(self, call: Call) -> None:
        """Fail a call that is under way; its action may go on for a while."""
        self._dispatcher.cancel(call.call_id)


def _done(call: Call, answer: Answer, took: int) -> Outcome:
    try:
        output = msgspec.json.decode(answer.output_json)
    except (ValueError, RecursionError):
        return _outcome(call, "failed", took, code="parse_error", happened=call.is_effect)
    if call.action.output_schema and not is_valid(output, call.action.output_schema):
        return _outcome(call, "failed", took, code=_BAD_OUTPUT, happened=call.is_effect)
    return _outcome(call, "done", took, output=output, output_digest=digest_text(answer.output_json))


def _not_done(call: Call, error: DispatchError, took: int) -> Outcome:
    code = error.get("code") or ("invalid_pick" if error.get("status") == "INVALID_PICK" else error["type"])
    sent = error["type"] != "exception"  # the code of a call that could not be encoded
    doubtful = sent and (code in _IN_DOUBT or (call.action.idempotent and code in _LOST))
    status: Status = "unknown" if call.is_effect and doubtful else "failed"
    happened = call.is_effect and code == _BAD_OUTPUT
    return _outcome(call, status, took, code=code, detail=error["detail"], happened=happened)


def _outcome(call: Call, status: Status, took: int, **more: Any) -> Outcome:
    return Outcome(
        call=call, number=call.number, kind=call.kind, action=call.action.name, status=status, duration_ms=took, **more
    )
