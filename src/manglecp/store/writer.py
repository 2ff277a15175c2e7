"""Access to a store from an event loop: group commit on one writer thread, grouped reads on one reader thread.

One batch runs at a time; jobs submitted meanwhile form the next. A new batch is flushed after a few event-loop
iterations, so that concurrent requests share one thread switch and one transaction. If the transaction fails, each job
runs again in its own, so that an error reaches only the caller that caused it: jobs must be repeatable. Results are
delivered after the commit.

Locks keep the store's order across a batch: all jobs run first, then all their ledger entries are appended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, TypeVar

from manglecp.store.database import Database, Transaction
from manglecp.store.errors import Busy, CommitUnknown
from manglecp.store.ledger import Ledger, Note

T = TypeVar("T")
_MAX_BATCH: Final = 64
_LINGER: Final = 3  # event-loop iterations in which further jobs may join a batch


class Writer:
    """The access of an event loop to the store, one loop at a time. Threads start with the first use."""

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._writes = _Batches(database.write_transaction, ledger, "manglecp-store-writer")
        self._reads = _Batches(database.read_transaction, ledger, "manglecp-store-reader")

    async def write(self, work: Callable[[Transaction], T], notes: Sequence[Note] = ()) -> T:
        """Run ``work`` and append ``notes`` to the ledger in one transaction; return its result after the commit.

        A job that is cancelled before its batch is flushed does not run.
        """
        result: T = await self._writes.submit(work, notes)
        return result

    async def append(self, notes: Sequence[Note]) -> None:
        await self._writes.submit(lambda _: None, notes)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in a transaction that sees every commit before this call."""
        result: T = await self._reads.submit(work, ())
        return result

    async def drain(self) -> None:
        await self._writes.drain()
        await self._reads.drain()

    def close(self) -> None:
        """Finish the current batch and end both threads."""
        self._writes.close()
        self._reads.close()


class _Job(NamedTuple):
    work: Callable[[Transaction], Any]
    notes: Sequence[Note]
    future: asyncio.Future[Any]


class _Batches:
    def __init__(
        self, begin: Callable[[], AbstractContextManager[Transaction]], ledger: Ledger, thread_name: str
    ) -> None:
        self._begin = begin
        self._ledger = ledger
        self._thread_name = thread_name
        self._thread = ThreadPoolExecutor(1, thread_name)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._pending: list[_Job] = []
        self._active = False  # A batch is lingering or under way
        self._waiters: list[asyncio.Future[None]] = []

    def submit(self, work: Callable[[Transaction], Any], notes: Sequence[Note]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._bind(loop)
        future: asyncio.Future[Any] = loop.create_future()
        self._pending.append(_Job(work, notes, future))
        if not self._active:
            self._active = True
            loop.call_soon(self._linger, loop, _LINGER)
        return future

    async def drain(self) -> None:
        if self._active and self._loop is asyncio.get_running_loop():
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        self._closed = True
        self._thread.shutdown()

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._active and self._loop is not None and not self._loop.is_closed():
            raise RuntimeError("the store is in use by another event loop")
        self._loop, self._pending, self._active, self._waiters = loop, [], False, []

    def _linger(self, loop: asyncio.AbstractEventLoop, iterations: int) -> None:
        if iterations and len(self._pending) < _MAX_BATCH:
            loop.call_soon(self._linger, loop, iterations - 1)
        else:
            self._flush(loop)

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        pending = [job for job in self._pending if not job.future.done()]
        batch, self._pending = pending[:_MAX_BATCH], pending[_MAX_BATCH:]
        self._active = bool(batch)
        if not batch:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()
            return
        try:
            self._thread.submit(self._run, loop, batch)
        except RuntimeError as error:
            if not self._closed:  # the system refused a thread; the executor would run the batch when it gets one
                self._thread = ThreadPoolExecutor(1, self._thread_name)
            loop.call_soon(self._deliver, loop, batch, [error] * len(batch))

    def _deliver(self, loop: asyncio.AbstractEventLoop, batch: Sequence[_Job], results: Sequence[Any]) -> None:
        for job, result in zip(batch, results, strict=True):
            if job.future.done():
                continue
            if isinstance(result, StopIteration):  # a future refuses it
                result = RuntimeError("a job raised StopIteration")
            if isinstance(result, BaseException):  # no function returns one
                job.future.set_exception(result)
            else:
                job.future.set_result(result)
        if loop is self._loop:
            self._flush(loop)

    def _run(self, loop: asyncio.AbstractEventLoop, batch: Sequence[_Job]) -> None:
        # This method and _results run on the thread.
        results = self._results(batch)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._deliver, loop, batch, results)

    def _results(self, batch: Sequence[_Job]) -> list[Any]:
        started = False
        try:
            with self._begin() as tx:
                started = True
                results = [job.work(tx) for job in batch]
                if notes := [note for job in batch for note in job.notes]:
                    self._ledger.append_all(tx, notes)
            return results
        except BaseException as error:
            # CommitUnknown: the batch may have been committed. Busy: each job would wait for the lock again.
            if len(batch) == 1 or not started or isinstance(error, CommitUnknown | Busy):
                return [error] * len(batch)
        return [result for job in batch for result in self._results([job])]
