"""The event loop of a concurrent host, which works on several calls at the same time.

A call owns the tasks that it creates, and the threads that it starts with ``asyncio.to_thread`` or ``run_in_executor``.
It is answered when all of them have ended: tasks that the action leaves behind are cancelled. So nothing happens for a
call after its answer, also if it was cancelled. A call whose tasks ignore that is never answered; dispatch then ends
the host.

``{"aid": "_cancel", "call_id": ID}`` cancels a call. It has no answer of its own.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from manglecp.toolhost.context import describe, trace
from manglecp.toolhost.host.messages import encode, refusal, with_call_id
from manglecp.toolhost.host.session import parse_request
from manglecp.toolhost.host.streams import Oversize, PipeLost, Streams


class _CallScope:
    """The tasks and threads of one call."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Future[Any]] = set()
        self.threads: set[asyncio.Future[Any]] = set()

    async def end(self) -> None:
        """Cancel the tasks, and wait until they and the threads have ended, also if cancelled meanwhile."""
        while self.tasks or self.threads:
            for task in self.tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait(self.tasks | self.threads)


_scope: ContextVar[_CallScope | None] = ContextVar("manglecp_call", default=None)


_LOOKUPS: Final = (socket.getaddrinfo, socket.getnameinfo)  # without effect; the loop runs them in threads


class _Threads(ThreadPoolExecutor):
    """The threads of the event loop."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(function, *args, **kwargs)
        if (scope := _scope.get()) is not None and function not in _LOOKUPS:
            loop = asyncio.get_running_loop()
            ended = loop.create_future()  # not the future of the result, which can be cancelled while the thread runs
            scope.threads.add(ended)
            ended.add_done_callback(scope.threads.discard)
            future.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set_result, None))
        return future


def _create_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(coroutine, loop=loop, **options)
    if (scope := _scope.get()) is not None:
        scope.tasks.add(task)
        task.add_done_callback(scope.tasks.discard)
    return task


def track_calls(loop: asyncio.AbstractEventLoop) -> None:
    """Make the tasks and threads of an event loop belong to the calls that start them."""
    loop.set_task_factory(_create_task)
    loop.set_default_executor(_Threads())


async def run_in_scope(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Return the result of an action when its tasks and threads have ended."""
    scope = _CallScope()
    token = _scope.set(scope)
    try:
        result = function(**arguments)
        return await result if hasattr(type(result), "__await__") else result
    finally:
        _scope.reset(token)
        await scope.end()


class ConcurrentServer:
    """Serves the requests on ``streams`` at the same time; ``answer`` returns the answer line to a parsed request."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        streams: Streams,
        answer: Callable[[object], Coroutine[Any, Any, bytes]],
    ) -> None:
        self._loop = loop
        self._streams = streams
        self._answer = answer
        self._calls: dict[str, asyncio.Task[bytes]] = {}  # by call id
        self._ended = asyncio.Event()

    def serve(self) -> None:
        """Serve until the end of the input, or an oversize request, and then cancel the open calls."""
        self._loop.add_reader(self._streams.input, self._read)
        self._loop.call_soon(self._begin_buffered)  # requests that were read with the secrets of the lifespan
        while not self._ended.is_set():
            try:
                self._loop.run_until_complete(self._ended.wait())
            except BaseException as error:  # from the plugin: a task raised SystemExit, or stopped the loop
                trace(error)
        self._loop.remove_reader(self._streams.input)
        for call in self._calls.values():
            call.cancel()

    def _read(self) -> None:
        try:
            is_open = self._streams.fill()
        except PipeLost:
            is_open = False
        if is_open:
            self._begin_buffered()
        else:
            self._ended.set()

    def _begin_buffered(self) -> None:
        try:
            while line := self._streams.buffered_line():
                self._begin(parse_request(line))
        except Oversize:
            line = b""
        if line == b"":
            self._ended.set()

    def _begin(self, request: Any) -> None:
        members = request if isinstance(request, dict) else {}
        key = str(members.get("call_id"))
        if members.get("aid") != "_cancel":
            self._calls[key] = call = self._loop.create_task(self._answer(request))
            call.add_done_callback(partial(self._finish, key, members))
        elif key in self._calls:
            self._calls[key].cancel()

    def _finish(self, key: str, request: dict[str, Any], call: asyncio.Task[bytes]) -> None:
        self._calls.pop(key, None)
        if self._ended.is_set():  # the end of the input has cancelled the call: its outcome is unknown
            return
        error = asyncio.CancelledError() if call.cancelled() else call.exception()  # cancelled before its first step
        line = encode(with_call_id(refusal(describe(error)), request)) + b"\n" if error else call.result()
        try:
            self._streams.write(line)
        except PipeLost:
            self._ended.set()
