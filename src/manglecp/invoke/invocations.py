"""Invocations under way. A run with effects goes on when its caller goes; reads run in the task of their caller.

A request key attaches a repeated request to the one that is under way: all callers receive its answer, and each of them
may cancel it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

from manglecp.invoke.admission import InvocationKey, conflict
from manglecp.invoke.results import Answer

__all__ = ["Invocations"]


class _Keyed(NamedTuple):
    request_digest: str
    task: asyncio.Task[Answer]
    cancelled: asyncio.Event


class Invocations:
    """Those of one revision of a pack. Used from one event loop."""

    def __init__(self) -> None:
        self._detached: set[asyncio.Task[Answer]] = set()
        self._keyed: dict[tuple[str, str], _Keyed] = {}
        """By identity and request key."""

    async def detach(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run ``work`` in a task of its own, which goes on if the caller is cancelled."""
        return await asyncio.shield(self._start(work))

    async def attach(self, asked: InvocationKey, cancelled: asyncio.Event, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Detach ``work``, or wait for the request with the same key that is under way."""
        assert asked.key is not None
        key = asked.identity.name, asked.key
        first = self._keyed.get(key)
        if first is None:
            task = self._start(work)
            self._keyed[key] = _Keyed(asked.digest, task, cancelled)
            task.add_done_callback(lambda _: self._keyed.pop(key))
            return await asyncio.shield(task)
        work.close()
        if first.request_digest != asked.digest:
            return conflict()
        stopping = asyncio.create_task(cancelled.wait())
        try:
            await asyncio.wait((first.task, stopping), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                first.cancelled.set()
        finally:
            stopping.cancel()
        return await asyncio.shield(first.task)

    def cancel(self, identity: str, key: str) -> bool:
        """Cancel the invocation with this key; False if there is none."""
        first = self._keyed.get((identity, key))
        if first is not None:
            first.cancelled.set()
        return first is not None

    async def drain(self) -> None:
        """Wait until all detached invocations have ended."""
        while self._detached:
            await asyncio.wait(self._detached)

    def _start(self, work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        task = asyncio.create_task(work)
        self._detached.add(task)
        task.add_done_callback(self._detached.discard)
        return task
