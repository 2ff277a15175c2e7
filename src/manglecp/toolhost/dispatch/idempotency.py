"""One effect per idempotency key, whichever host would run it.

A host remembers its answers by key, but the same key may reach another host while the first one works, after it was
replaced, or after it died before answering. So the pool keeps a table, per identity and action:

* a running call with the key: wait for it;
* a success within the last minute: the same answer, its change applied to the state of this call;
* an unknown outcome: ``outcome_unknown`` again, without expiry; verify the effect, then use a new key;
* other input under the key: ``idempotency_conflict``; a failure: the call runs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeAlias

from manglecp.toolhost.canonical import canonical_digest
from manglecp.toolhost.dispatch.messages import Answer, Call, DispatchError, failure
from manglecp.toolhost.state import apply_state, state_delta

TTL: Final = 60.0
MAX_ENTRIES: Final = 1_024
MAX_BYTES: Final = 67_108_864  # of all kept answers together

_Name: TypeAlias = tuple[str, str, str]


class _Entry(NamedTuple):
    """The result of a call with this input; ``answer`` None if the outcome is unknown."""

    input_digest: str
    expires: float
    answer: Answer | None = None
    change: dict[str, Any] | None = None
    size: int = 0


class _Memory:
    def __init__(self) -> None:
        self._entries: dict[_Name, _Entry] = {}
        self._size = 0

    def find(self, name: _Name, now: float) -> _Entry | None:
        entry = self._entries.get(name)
        return entry if entry is not None and entry.expires > now else None

    def keep(self, name: _Name, entry: _Entry) -> None:
        self._drop(name)
        self._entries[name] = entry
        self._size += entry.size
        while len(self._entries) > MAX_ENTRIES or (self._size > MAX_BYTES and len(self._entries) > 1):
            self._drop(next(iter(self._entries)))

    def _drop(self, name: _Name) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._size -= entry.size


class _Running(NamedTuple):
    input_digest: str
    over: asyncio.Event


class IdempotencyTable:
    """The idempotency keys of one pool. ``clock`` is the event loop's, as for the deadlines."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._running: dict[_Name, _Running] = {}
        self._answers = _Memory()
        self._unknown = _Memory()

    async def once(
        self,
        call: Call,
        run: Callable[[], Awaitable[Answer | DispatchError]],
        *,
        deadline: float,
        doubtful: Callable[[], bool],
    ) -> Answer | DispatchError:
        """Run a call unless its key has a result. ``doubtful`` returns whether a cancelled call may have been sent."""
        if not call.idempotency_key:
            return await run()
        name = (call.identity, call.aid, call.idempotency_key)
        digest = canonical_digest(call.input_json)
        while (found := self._known(name) or self._running.get(name)) is not None:
            if found.input_digest != digest:
                return failure(call.aid, "tool_error", "idempotency_conflict", status="TOOL_ERROR")
            if isinstance(found, _Entry):
                return _again(call, found)
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
                self._unknown.keep(name, _Entry(digest, math.inf))
            raise
        else:
            self._remember(name, digest, call, result)
            return result
        finally:
            self._running.pop(name).over.set()

    def _known(self, name: _Name) -> _Entry | None:
        now = self._clock()
        return self._unknown.find(name, now) or self._answers.find(name, now)

    def _remember(self, name: _Name, digest: str, call: Call, result: Answer | DispatchError) -> None:
        if isinstance(result, Answer):
            size = len(result.output_json) + sum(len(artifact.content_json) for artifact in result.slots.values())
            change = state_delta(call.slots, result.slots)
            self._answers.keep(name, _Entry(digest, self._clock() + TTL, result, change, size))
        elif result.get("code") == "outcome_unknown" or _ran(call, result):
            self._unknown.keep(name, _Entry(digest, math.inf))


def _ran(call: Call, result: DispatchError) -> bool:
    """Return whether the effect happened and only its answer is missing: it was too long, or invalid."""
    if call.idempotent:
        return False
    return result.get("code") == "bad_output" or (result["type"], result.get("code")) == ("parse_error", "oversize")


def _again(call: Call, entry: _Entry) -> Answer | DispatchError:
    if entry.answer is None:
        detail = "no answer came to an earlier call with this key; nothing was sent"
        return failure(call.aid, "crash", detail, code="outcome_unknown")
    return Answer(call.aid, entry.answer.output_json, apply_state(entry.change, call.slots), idempotent_hit=True)
