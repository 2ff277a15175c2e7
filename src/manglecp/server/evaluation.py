"""Evaluations run in a small thread pool behind a bounded queue, in the order in which they came.

An overloaded server refuses requests instead of answering all of them more slowly: an evaluation that cannot start soon
is refused with a time to come back (``rate_limited``, ERR-30).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from manglecp.server.admission import limited
from manglecp.server.config import ServerSettings
from manglecp.wire import WireError

__all__ = ["EvaluationScheduler"]

T = TypeVar("T")


class _Job:
    __slots__ = ("args", "began", "done", "future", "work")

    def __init__(
        self, work: Callable[..., Any], args: tuple[Any, ...], done: Callable[[], None], future: asyncio.Future[Any]
    ) -> None:
        self.work = work
        self.args = args
        self.done = done
        self.future = future
        self.began = 0.0


class EvaluationScheduler:
    """One for a process. Used from its event loop only."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._pool = ThreadPoolExecutor(settings.evaluations, thread_name_prefix="manglecp-evaluation")
        self._queue: deque[_Job] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._typical = 0.005
        """Moving average of the seconds that an evaluation takes."""
        self.running = 0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def submit(self, work: Callable[..., T], *args: Any, done: Callable[[], None]) -> asyncio.Future[T]:
        """Run ``work`` in a thread. Cancelling the future withdraws what has not started.

        ``done`` is called when the work has ended, whether a client waits for it or not, or when it will never start.
        Raises ``rate_limited``.
        """
        if self.running + len(self._queue) >= self._settings.evaluations + self._settings.waiting:
            done()
            raise self._busy()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = _Job(work, args, done, future)
        self._idle.clear()
        if self.running < self._settings.evaluations:
            self._start(job)
        else:
            self._queue.append(job)
            timer = loop.call_later(self._settings.longest_wait, self._expire, job)
            future.add_done_callback(lambda _: self._withdraw(job, timer))
        return future

    async def drained(self) -> None:
        """Wait until no evaluation is queued or running."""
        await self._idle.wait()

    def shutdown(self) -> None:
        self._pool.shutdown(wait=False)

    def _start(self, job: _Job) -> None:
        loop = asyncio.get_running_loop()

        def ended(result: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(self._end, job, result)

        self.running += 1
        job.began = time.monotonic()
        try:
            self._pool.submit(job.work, *job.args).add_done_callback(ended)
        except RuntimeError as error:  # the system refused a thread
            refused: Future[Any] = Future()
            refused.set_exception(error)
            self._end(job, refused)

    def _end(self, job: _Job, result: Future[Any]) -> None:
        self.running -= 1
        self._typical += 0.1 * (time.monotonic() - job.began - self._typical)
        if not job.future.done():
            error = result.exception()
            if error is None:
                job.future.set_result(result.result())
            else:
                job.future.set_exception(error)
        job.done()
        if self._queue:
            self._start(self._queue.popleft())
        elif not self.running:
            self._idle.set()

    def _expire(self, job: _Job) -> None:
        if job in self._queue and not job.future.done():
            job.future.set_exception(self._busy())

    def _withdraw(self, job: _Job, timer: asyncio.TimerHandle) -> None:
        """The future is done: cancelled, expired, or the job has run. Only the last has left the queue."""
        timer.cancel()
        with contextlib.suppress(ValueError):
            self._queue.remove(job)
            job.done()

    def _busy(self) -> WireError:
        return limited("The server is busy", self._typical * (len(self._queue) + 1) / self._settings.evaluations)
