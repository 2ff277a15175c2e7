"""Evaluations run in a small thread pool behind a bounded queue, in the order in which they came.

An overloaded server refuses requests instead of answering all of them more slowly: an evaluation that cannot start soon
is refused with a time to come back (``rate_limited``, ERR-30).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from manglecp.server.admission import rate_limited
from manglecp.server.config import ServerSettings
from manglecp.wire import WireError

__all__ = ["EvaluationScheduler"]

T = TypeVar("T")


class EvaluationScheduler:
    """One for a process. Used from its event loop only."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._pool = ThreadPoolExecutor(settings.evaluations, thread_name_prefix="manglecp-evaluation")
        self._free = asyncio.Semaphore(settings.evaluations)
        self._idle = asyncio.Event()
        self._idle.set()
        self._typical = 0.005
        """Moving average of the seconds that an evaluation takes."""
        self.running = 0
        self.waiting = 0

    async def run(self, work: Callable[..., T], *args: Any, done: Callable[[], None]) -> T:
        """Return the result of ``work`` in a thread. A cancellation withdraws what has not started.

        ``done`` is called when the work has ended, whether a client waits for it or not, or when it will never start.
        Raises ``rate_limited``.
        """
        loop = asyncio.get_running_loop()
        try:
            await self._turn()
        except BaseException:
            done()
            self._settle()
            raise
        self.running += 1
        self._idle.clear()
        result: asyncio.Future[T] = loop.create_future()
        began = time.monotonic()

        def end(job: Future[T] | None) -> None:
            self.running -= 1
            self._typical += 0.1 * (time.monotonic() - began - self._typical)
            self._free.release()
            done()
            self._settle()
            if job is None or result.done():  # the request was cancelled
                return
            error = job.exception()
            if error is None:
                result.set_result(job.result())
            else:
                result.set_exception(error)

        def ended(job: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(end, job)

        try:
            self._pool.submit(work, *args).add_done_callback(ended)
        except RuntimeError:  # the system refused a thread
            end(None)
            raise
        return await result

    async def drained(self) -> None:
        """Wait until no evaluation is queued or running."""
        await self._idle.wait()

    def shutdown(self) -> None:
        self._pool.shutdown(wait=False)

    def _settle(self) -> None:
        if not self.running and not self.waiting:
            self._idle.set()

    async def _turn(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        if self.waiting >= self._settings.waiting:
            raise self._busy()
        self.waiting += 1
        try:
            async with asyncio.timeout(self._settings.longest_wait):
                await self._free.acquire()
        except TimeoutError:
            raise self._busy() from None
        finally:
            self.waiting -= 1

    def _busy(self) -> WireError:
        return rate_limited("The server is busy", self._typical * (self.waiting + 1) / self._settings.evaluations)
