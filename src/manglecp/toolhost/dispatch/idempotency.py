"""One effect per idempotency key, across the hosts of a pool.

A host caches its answers by key, but a repeated call may reach another host, or the host may die before it answers. So
the pool has a table of keys, per identity and action. The state of its key decides the result of a call:

* another call with the key is running: wait for that call;
* a success within the last minute: the same answer; the slots of this call are unchanged;
* an unknown outcome: ``outcome_unknown``, without expiry; the client verifies the effect and then uses a new key;
* an earlier call with other input: ``idempotency_conflict``; a failure, or no entry: the call runs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError, HostCall, failure
from manglecp.toolhost.idempotency import AnswerCache, canonical_digest

_Key: TypeAlias = tuple[str, str, str]  # identity, action id, idempotency key


class _Entry(NamedTuple):
    """The result of a call with this input; ``answer`` is None if the outcome is unknown."""

    input_digest: str
    answer: ActionResult | None = None


class _Running(NamedTuple):
    input_digest: str
    ended: asyncio.Event


class IdempotencyTable:
    """The idempotency keys of one pool. ``clock`` is that of the event loop, as for deadlines."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._running: dict[_Key, _Running] = {}
        self._answers: AnswerCache[_Entry] = AnswerCache(clock)
        self._unknown_outcomes: AnswerCache[_Entry] = AnswerCache(clock)  # separate, so that answers do not evict them

    async def once(
        self,
        call: HostCall,
        run: Callable[[], Awaitable[ActionResult | DispatchError]],
        *,
        deadline: float,
        outcome_unknown: Callable[[], bool],
    ) -> ActionResult | DispatchError:
        """Return the known result for the key of the call, which must have a key; else the result of ``run``.

        ``outcome_unknown`` is called if ``run`` is cancelled or raises; it returns whether an effect may have happened.
        """
        assert call.idempotency_key
        key = (call.identity, call.aid, call.idempotency_key)
        digest = canonical_digest(call.input_json)
        while earlier := self._unknown_outcomes.find(key) or self._answers.find(key) or self._running.get(key):
            if earlier.input_digest != digest:
                return failure(call.aid, "tool_error", "idempotency_conflict", status="TOOL_ERROR")
            if isinstance(earlier, _Entry):
                return _repeat_result(call, earlier)
            try:
                async with asyncio.timeout_at(deadline):
                    await earlier.ended.wait()
            except TimeoutError:
                detail = "a call with this key is still running; nothing was sent"
                return failure(call.aid, "timeout", detail, sent=True)
        self._running[key] = _Running(digest, asyncio.Event())
        try:
            result = await run()
        except BaseException:
            if outcome_unknown():
                self._unknown_outcomes.keep(key, _Entry(digest), seconds=math.inf)
            raise
        else:
            self._remember(key, digest, call, result)
            return result
        finally:
            self._running.pop(key).ended.set()

    def _remember(self, key: _Key, digest: str, call: HostCall, result: ActionResult | DispatchError) -> None:
        if isinstance(result, ActionResult):
            self._answers.keep(key, _Entry(digest, replace(result, slots={})), len(result.output_json))
        elif result.get("code") == "outcome_unknown" or _effect_happened(call, result):
            self._unknown_outcomes.keep(key, _Entry(digest), seconds=math.inf)


def _effect_happened(call: HostCall, result: DispatchError) -> bool:
    """Return whether the effect happened and only its answer is missing, because it was too long or invalid."""
    if call.idempotent:
        return False
    return result.get("code") == "bad_output" or (result["type"], result.get("code")) == ("parse_error", "oversize")


def _repeat_result(call: HostCall, entry: _Entry) -> ActionResult | DispatchError:
    if entry.answer is None:
        detail = "an earlier call with this key was not answered; nothing was sent"
        return failure(call.aid, "crash", detail, code="outcome_unknown", sent=True)
    return replace(entry.answer, slots=dict(call.slots), idempotent_hit=True)
