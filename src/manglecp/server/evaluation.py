"""Evaluations of a pack's rules run in a small thread pool, behind a bounded FIFO queue.

Under overload, an evaluation that cannot start soon is refused with ``rate_limited`` and a delay for the retry
(requirement ERR-30), so that queued evaluations are not delayed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from manglecp.server.config import ServerSettings
from manglecp.server.request_limits import rate_limited
from manglecp.wire import WireError

T = TypeVar("T")
_NEWEST_WEIGHT: Final = 0.1  # the weight of the newest duration in the moving average


class EvaluationScheduler:
    """The evaluations of a process, started from its event loop only."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._pool = ThreadPoolExecutor(settings.evaluation_threads, thread_name_prefix="manglecp-evaluation")
        self._free_threads = asyncio.Semaphore(settings.evaluation_threads)
        self._jobs: set[asyncio.Future[Any]] = set()  # the evaluations that have a thread
        self._average_seconds = 0.005  # an initial guess
        """The moving average of the duration of an evaluation."""
        self.queue_length = 0
        """The number of evaluations that wait for a thread."""

    @property
    def running_count(self) -> int:
        return len(self._jobs)

    async def run(self, work: Callable[..., T], *args: Any, on_end: Callable[[], None]) -> T:
        """Run ``work`` in a thread and return its result. Cancellation removes an evaluation that has not started.

        ``on_end`` is called exactly once: when the thread has finished, also after a cancellation, or when it is
        certain that the work will not start. Raises ``rate_limited``.
        """
        try:
            await self._acquire_thread()
        except BaseException:
            on_end()
            raise
        began_at = time.monotonic()

        def end(job: asyncio.Future[T] | None) -> None:
            self._jobs.discard(job)
            self._average_seconds += _NEWEST_WEIGHT * (time.monotonic() - began_at - self._average_seconds)
            self._free_threads.release()
            on_end()

        try:
            job = asyncio.get_running_loop().run_in_executor(self._pool, work, *args)
        except RuntimeError:  # the system refused a thread
            end(None)
            raise
        self._jobs.add(job)
        job.add_done_callback(end)
        return await asyncio.shield(job)  # a thread cannot be cancelled

    async def wait_until_idle(self) -> None:
        """Wait until no evaluation is running."""
        while self._jobs:
            await asyncio.wait(self._jobs)

    def shutdown(self) -> None:
        self._pool.shutdown(wait=False)

    async def _acquire_thread(self) -> None:
        if not self._free_threads.locked():
            await self._free_threads.acquire()
            return
        if self.queue_length >= self._settings.max_queued_evaluations:
            raise self._overload_error()
        self.queue_length += 1
        try:
            async with asyncio.timeout(self._settings.max_queue_wait):
                await self._free_threads.acquire()
        except TimeoutError:
            raise self._overload_error() from None
        finally:
            self.queue_length -= 1

    def _overload_error(self) -> WireError:
        seconds = self._average_seconds * (self.queue_length + 1) / self._settings.evaluation_threads
        return rate_limited("The server is busy", seconds)
