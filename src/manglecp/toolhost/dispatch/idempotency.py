"""One effect per idempotency key, across the hosts of a pool.

A host caches its answers by key, but the same key may reach another host while the first one works, after it was
replaced, or after it died before answering. So the pool has a table, per identity and action:

* a running call with the key: wait for it;
* a success within the last minute: the same answer, its change applied to the state of this call;
* an unknown outcome: ``outcome_unknown`` again, without expiry; verify the effect, then use a new key;
* other input under the key: ``idempotency_conflict``; a failure: the call runs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError, HostCall, failure
from manglecp.toolhost.idempotency import AnswerCache, canonical_digest
from manglecp.toolhost.state import apply_state, state_delta

_Name: TypeAlias = tuple[str, str, str]


class _Entry(NamedTuple):
    """The result of a call with this input; ``answer`` None if the outcome is unknown."""

    input_digest: str
    answer: ActionResult | None = None
    change: dict[str, Any] | None = None


class _Running(NamedTuple):
    input_digest: str
    over: asyncio.Event


class IdempotencyTable:
    """The idempotency keys of one pool. ``clock`` is the event loop's, as for the deadlines."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._running: dict[_Name, _Running] = {}
        self._answers: AnswerCache[_Entry] = AnswerCache(clock)
        self._unknown: AnswerCache[_Entry] = AnswerCache(clock)

    async def once(
        self,
        call: HostCall,
        run: Callable[[], Awaitable[ActionResult | DispatchError]],
        *,
        deadline: float,
        doubtful: Callable[[], bool],
    ) -> ActionResult | DispatchError:
        """Run a call unless its key has a result. ``doubtful`` returns whether a cancelled call may have been sent."""
        if not call.idempotency_key:
            return await run()
        name = (call.identity, call.aid, call.idempotency_key)
        digest = canonical_digest(call.input_json)
        while (found := self._unknown.find(name) or self._answers.find(name) or self._running.get(name)) is not None:
            if found.input_digest != digest:
                return failure(call.aid, "tool_error", "idempotency_conflict", status="TOOL_ERROR")
            if isinstance(found, _Entry):
                return _repeat_result(call, found)
            try:
                async with asyncio.timeout_at(deadline):
                    await found.over.wait()
            except TimeoutError:
                return failure(call.aid, "timeout", "a call with this key is still running; nothing was sent")
        self._running[name] = _Running(digest, asyncio.Event())
        try:
            result = await run()
        except BaseException:
            if doubtful():
                self._unknown.keep(name, _Entry(digest), seconds=math.inf)
            raise
        else:
            self._remember(name, digest, call, result)
            return result
        finally:
            self._running.pop(name).over.set()

    def _remember(self, name: _Name, digest: str, call: HostCall, result: ActionResult | DispatchError) -> None:
        if isinstance(result, ActionResult):
            size = len(result.output_json) + sum(len(artifact.content_json) for artifact in result.slots.values())
            change = state_delta(call.slots, result.slots)
            self._answers.keep(name, _Entry(digest, result, change), size)
        elif result.get("code") == "outcome_unknown" or _ran(call, result):
            self._unknown.keep(name, _Entry(digest), seconds=math.inf)


def _ran(call: HostCall, result: DispatchError) -> bool:
    """Return whether the effect happened and only its answer is missing, because it was too long or invalid."""
    if call.idempotent:
        return False
    return result.get("code") == "bad_output" or (result["type"], result.get("code")) == ("parse_error", "oversize")


def _repeat_result(call: HostCall, entry: _Entry) -> ActionResult | DispatchError:
    if entry.answer is None:
        detail = "an earlier call with this key was not answered; nothing was sent"
        return failure(call.aid, "crash", detail, code="outcome_unknown")
    return ActionResult(call.aid, entry.answer.output_json, apply_state(entry.change, call.slots), idempotent_hit=True)
