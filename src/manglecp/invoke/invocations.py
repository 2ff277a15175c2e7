"""Who asks for runs, and hears once what came of it. Each is answered by a task of its own, which goes on whether
anybody waits for it or not.

A request key attaches a repeated request to the one that is under way: all who asked hear the same, and each of them
may stop it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from manglecp.intent import Identity
from manglecp.invoke.admission import (
    UNKEEPABLE,
    InvocationKey,
    args_digest,
    checked_key,
    conflict,
    eval_time,
    not_found,
)
from manglecp.invoke.large_values import is_large, run_in_thread_if
from manglecp.invoke.progress import OnProgress, RunObserver, progress_reporter
from manglecp.invoke.results import Answer
from manglecp.wire.messages import InvokeRequest, InvokeResponse, InvokeResult

__all__ = ["Invocations", "Outcome"]

Outcome: TypeAlias = InvokeResponse | BaseException
_Told: TypeAlias = InvokeResult | Exception
_log = logging.getLogger(__name__)


class _Invocation:
    """What somebody asks for. ``task`` answers it."""

    __slots__ = ("answered", "identity", "request", "task", "watch")
    task: asyncio.Task[_Told]

    def __init__(
        self, request: InvokeRequest, identity: Identity, answered: Callable[[Outcome], None], watch: RunObserver
    ) -> None:
        self.request = request
        self.identity = identity
        self.answered = answered
        self.watch = watch


class Invocations:
    """Those of one edition of a pack. Used from one event loop."""

    def __init__(
        self,
        answer: Callable[[InvokeRequest, InvocationKey, RunObserver], Coroutine[Any, Any, Answer]],
        *,
        clock: Callable[[], int],
        leaving: Callable[[], bool],
        point: Callable[[str], None],
    ) -> None:
        """``answer`` carries one out. ``leaving`` and ``point`` are for its :class:`RunObserver`."""
        self._answer = answer
        self._clock = clock
        self._leaving = leaving
        self._point = point
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: set[_Invocation] = set()
        """Those that are not answered yet."""
        self._keyed: dict[tuple[str, str], tuple[str, _Invocation]] = {}
        """By identity and request key: what was asked for, and who asked first."""

    def ask(
        self,
        request: InvokeRequest,
        identity: Identity,
        answered: Callable[[Outcome], None],
        *,
        progress: OnProgress | None = None,
        cancel: asyncio.Event | None = None,
        named: Callable[[str], None] | None = None,
    ) -> None:
        """See :meth:`manglecp.invoke.invoker.Invoker.ask`."""
        watch = RunObserver(
            cancelled=cancel or asyncio.Event(),
            named=named or _unheard,
            progress=progress_reporter(progress),
            leaving=self._leaving,
            point=self._point,
        )
        one = _Invocation(request, identity, answered, watch)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        one.task = self._loop.create_task(self._carry_out(one))
        self._open.add(one)

    def stop(self, identity: Identity, key: str) -> bool:
        """Ask the one of this key to stop; False if there is none."""
        first = self._keyed.get((identity.name, key))
        if first is not None:
            first[1].watch.cancelled.set()
        return first is not None

    async def over(self) -> None:
        """Wait until everything is answered that was asked for."""
        while tasks := [one.task for one in self._open if not one.task.done()]:
            await asyncio.wait(tasks)

    async def _carry_out(self, one: _Invocation) -> _Told:
        try:
            told = await self._outcome(one)
        except Exception as error:
            self._tell(one, error)
            return error
        except BaseException as error:  # the process ends
            self._tell(one, error)
            raise
        self._tell(one, told if isinstance(told, Exception) else InvokeResponse(id=one.request.id, payload=told))
        return told

    def _tell(self, one: _Invocation, outcome: Outcome) -> None:
        self._open.discard(one)
        try:
            one.answered(outcome)
        except Exception:  # what was done is done, and others may wait for the same
            _log.exception("an answer could not be told")

    async def _outcome(self, one: _Invocation) -> _Told:
        request, identity = one.request, one.identity
        key, now_ns = checked_key(request.payload.request_key), eval_time(request, self._clock)
        if UNKEEPABLE in request.payload.macro_id:
            return not_found()
        args = request.payload.args
        digested = await run_in_thread_if(is_large(args), args_digest, args)
        asked = InvocationKey(identity, key, request.payload.macro_id, digested, now_ns)
        if key is None:
            return await self._answer(request, asked, one.watch)
        # Nothing is awaited between looking and registering: of two at the same time the second finds the first.
        first = self._keyed.get((identity.name, key))
        if first is not None:
            return await _same(first[1], one.watch.cancelled) if first[0] == asked.digest else conflict()
        self._keyed[identity.name, key] = (asked.digest, one)
        try:
            return await self._answer(request, asked, one.watch)
        finally:
            del self._keyed[identity.name, key]


async def _same(first: _Invocation, cancel: asyncio.Event) -> _Told:
    """Wait for what somebody else began; whoever waits may stop it as well."""
    stopping = asyncio.create_task(cancel.wait())
    try:
        await asyncio.wait((first.task, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            first.watch.cancelled.set()
    finally:
        stopping.cancel()
    return await asyncio.shield(first.task)


def _unheard(_: str) -> None:
    """Nobody wants to know which tool it is."""
