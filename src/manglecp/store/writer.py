"""Access to a store from an event loop: group commit on one writer thread, grouped reads on one reader thread.

Each thread runs one batch at a time; jobs submitted meanwhile form the next batch. An idle thread gets its batch after
a few event-loop iterations, so that concurrent requests share one thread switch and one transaction. If the transaction
fails, each job runs again in a transaction of its own, so that an error reaches only the caller that caused it: jobs
must be repeatable. Results are delivered after the commit.

The ledger entries of a batch are appended after all its jobs have run, so that the head of the ledger is locked only
briefly. The decisions of a batch are one batch of the decision log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple, TypeVar

from manglecp.store.database import Database, Transaction
from manglecp.store.decisions import DecisionRecord, Decisions
from manglecp.store.errors import Busy, CommitUnknown
from manglecp.store.ledger import Ledger, NewEntry

T = TypeVar("T")
_MAX_BATCH: Final = 64
_LINGER_ITERATIONS: Final = 3  # event-loop iterations in which further jobs may join a batch


class Writer:
    """Writes and reads for one event loop at a time. The two threads start with the first use."""

    def __init__(self, database: Database, ledger: Ledger, decisions: Decisions) -> None:
        self._writes = _BatchThread(database.write_transaction, ledger, decisions, "manglecp-store-writer")
        self._reads = _BatchThread(database.read_transaction, ledger, decisions, "manglecp-store-reader")

    async def write(
        self,
        work: Callable[[Transaction], T],
        entries: Sequence[NewEntry] = (),
        decisions: Sequence[DecisionRecord] = (),
    ) -> T:
        """Run ``work``, append ``entries`` to the ledger, and store decisions, in one transaction.

        Returns the result of ``work``. A job that is cancelled before its batch starts does not run.
        """
        result: T = await self._writes.submit(work, entries, decisions)
        return result

    async def append(self, entries: Sequence[NewEntry], decisions: Sequence[DecisionRecord] = ()) -> None:
        """Append entries to the ledger, and store decisions."""
        await self._writes.submit(lambda _: None, entries, decisions)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in a transaction that sees every commit before this call."""
        result: T = await self._reads.submit(work)
        return result

    async def drain(self) -> None:
        """Wait until no job is pending."""
        await self._writes.drain()
        await self._reads.drain()

    def close(self) -> None:
        """Finish the current batches and end both threads."""
        self._writes.close()
        self._reads.close()


class _Job(NamedTuple):
    work: Callable[[Transaction], Any]
    entries: Sequence[NewEntry]
    decisions: Sequence[DecisionRecord]
    future: asyncio.Future[Any]


class _BatchThread:
    """A thread and its jobs. Only :meth:`_serve` and its callees run on the thread; ``begin`` begins a transaction."""

    def __init__(
        self,
        begin: Callable[[], AbstractContextManager[Transaction]],
        ledger: Ledger,
        decisions: Decisions,
        thread_name: str,
    ) -> None:
        self._begin = begin
        self._ledger = ledger
        self._decisions = decisions
        self._thread_name = thread_name
        self._thread: Thread | None = None
        self._batches: SimpleQueue[tuple[asyncio.AbstractEventLoop, Sequence[_Job]] | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._pending: list[_Job] = []
        self._active = False  # whether a batch is being collected or executed
        self._drain_waiters: list[asyncio.Future[None]] = []

    def submit(
        self,
        work: Callable[[Transaction], Any],
        entries: Sequence[NewEntry] = (),
        decisions: Sequence[DecisionRecord] = (),
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._bind(loop)
        future: asyncio.Future[Any] = loop.create_future()
        self._pending.append(_Job(work, entries, decisions, future))
        if not self._active:
            self._active = True
            loop.call_soon(self._linger, loop, _LINGER_ITERATIONS)
        return future

    async def drain(self) -> None:
        if self._active and self._loop is asyncio.get_running_loop():
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._drain_waiters.append(waiter)
            await waiter

    def close(self) -> None:
        self._closed = True
        if self._thread is not None:
            self._batches.put(None)
            self._thread.join()

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._active and self._loop is not None and not self._loop.is_closed():
            raise RuntimeError("the store is in use by another event loop")
        # Jobs of a closed loop are dropped: no caller waits for them any more.
        self._loop, self._pending, self._active, self._drain_waiters = loop, [], False, []

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
            for waiter in self._drain_waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._drain_waiters.clear()
            return
        try:
            self._start_thread()
        except RuntimeError as error:
            loop.call_soon(self._deliver, loop, batch, [error] * len(batch))
        else:
            self._batches.put((loop, batch))

    def _start_thread(self) -> None:
        """Start the thread once. Raises RuntimeError after :meth:`close`, and if the system refuses a thread."""
        if self._closed:
            raise RuntimeError("no job is accepted after shutdown")
        if self._thread is None:
            thread = Thread(target=self._serve, name=self._thread_name, daemon=True)
            thread.start()
            self._thread = thread

    def _serve(self) -> None:
        while (task := self._batches.get()) is not None:
            self._run(*task)
            del task  # frees the jobs of the batch: the next batch may come much later

    def _deliver(self, loop: asyncio.AbstractEventLoop, batch: Sequence[_Job], results: Sequence[Any]) -> None:
        for job, result in zip(batch, results, strict=True):
            if job.future.done():
                continue
            if isinstance(result, StopIteration):  # set_exception() refuses StopIteration
                result = RuntimeError("a job raised StopIteration")
            if isinstance(result, BaseException):  # raised by the job: jobs never return exceptions
                job.future.set_exception(result)
            else:
                job.future.set_result(result)
        if loop is self._loop:
            self._flush(loop)

    def _run(self, loop: asyncio.AbstractEventLoop, batch: Sequence[_Job]) -> None:
        results = self._results(batch)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._deliver, loop, batch, results)

    def _results(self, batch: Sequence[_Job]) -> list[Any]:
        """Return the result of each job, or the exception that it raised."""
        begun = False
        try:
            with self._begin() as tx:
                begun = True
                results = [job.work(tx) for job in batch]
                entries = [entry for job in batch for entry in job.entries]
                if decisions := [decision for job in batch for decision in job.decisions]:
                    self._decisions.append_all(tx, decisions, entries)
                elif entries:
                    self._ledger.append_all(tx, entries)
            return results
        except BaseException as error:
            # CommitUnknown: the batch may have been committed. Busy: each job would wait for the lock again.
            if len(batch) == 1 or not begun or isinstance(error, CommitUnknown | Busy):
                return [error] * len(batch)
        return [result for job in batch for result in self._results([job])]
