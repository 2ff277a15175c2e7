"""The host slots of a pool, the queue of calls that wait for a slot, and the supervisor of the hosts in the slots.

A sequential host works on one call at a time, a concurrent one on as many as its command states. The queue is bounded
and first in, first out.

The supervisor starts a host in every slot, checks the host before its first call and then regularly, and replaces it
after its death, when its memory has grown too much, or after a number of calls. A live host serves until its successor
is up. A failed start is retried with exponential back-off; the start of a successor, at the next health check.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from subprocess import SubprocessError
from typing import Final, TypeAlias

from manglecp.pack import SecretError, SecretProvider
from manglecp.toolhost.dispatch.launch import HostCommand, PoolLimits
from manglecp.toolhost.dispatch.messages import CallRefused, ErrorCode, ErrorType
from manglecp.toolhost.dispatch.process import HostProcess
from manglecp.toolhost.dispatch.responses import HostLost

_MAX_FAILED_STARTS: Final = 2  # consecutive; if every slot has as many, calls are refused at once
OnOutage: TypeAlias = Callable[[str | None], None]
"""Called with the reason when no host of a pool can be started, and with None when a host is up again."""
_HEALTH_REQUEST: Final = b'{"aid":"_health"}\n'  # every host answers this request without running an action


class HostSlot:
    """One slot of the pool, with its host while there is one."""

    def __init__(self, concurrency: int = 1) -> None:
        self.host: HostProcess | None = None
        self.concurrency: Final = concurrency
        self.active = 0  # the calls and health checks that hold this slot
        self.successor_requested = False
        self.retiring = False  # whether new calls wait for the next host
        self.calls = 0  # requests that the current host has served, health requests included
        self.failed_starts = 0  # consecutive failures
        self.last_start_error: tuple[ErrorType, str] = ("crash", "")  # type and detail
        self.initial_resident_bytes = 0
        self.wake = asyncio.Event()  # wakes the supervisor

    @property
    def is_free(self) -> bool:
        """Whether a call can go to this host now."""
        has_room = self.active < self.concurrency
        return has_room and not self.retiring and self.host is not None and self.host.alive

    @property
    def busy(self) -> bool:
        return self.active > 0

    def count_call(self, limits: PoolLimits) -> None:
        self.calls += 1
        if self.calls >= limits.calls_per_host:
            self.request_successor()

    def has_grown(self, limits: PoolLimits) -> bool:
        return self.host is not None and self.host.resident_bytes() - self.initial_resident_bytes > limits.growth

    def retire(self) -> None:
        """Make the supervisor end the host after its last call, and start another one; no new call gets this host."""
        self.retiring = True
        self.wake.set()

    def request_successor(self) -> None:
        """Make the supervisor start a successor; until the successor is up, the current host keeps serving."""
        if not self.successor_requested:
            self.successor_requested = True
            self.wake.set()


class HostQueue:
    """The slots of a pool, and the calls that wait for a free one."""

    def __init__(
        self, size: int, limits: PoolLimits, on_outage: OnOutage | None = None, *, concurrency: int = 1
    ) -> None:
        self.slots: Final = [HostSlot(concurrency) for _ in range(size)]
        self._on_outage = on_outage
        self._in_outage = False
        self._limits = limits
        self._waiters: deque[asyncio.Future[HostSlot]] = deque()
        self._closed = False

    async def acquire(self, deadline: float) -> HostSlot:
        """Return a free slot, to be given back with :meth:`release`; ``deadline`` is a time of the event loop.

        Raises :class:`.CallRefused` if no slot is free before the deadline; or at once if the pool is closed, too many
        calls are waiting, or every slot has failed to start a host.
        """
        if self._closed:
            raise CallRefused("exception", "the pool is closed")
        if not self._waiters and (slot := self._take_free_slot()) is not None:
            return slot
        if self._all_starts_failed():
            raise CallRefused(*self.slots[0].last_start_error, "no_host")
        if len(self._waiters) >= self._limits.queued:
            raise CallRefused("exception", f"{len(self._waiters)} calls are waiting already", "queue_full")
        grant: asyncio.Future[HostSlot] = asyncio.get_running_loop().create_future()
        self._waiters.append(grant)
        try:
            async with asyncio.timeout_at(deadline):
                return await grant
        except BaseException as error:
            if grant.done() and not grant.cancelled() and grant.exception() is None:
                self.release(grant.result())  # granted just before the timeout or cancellation
            else:
                with contextlib.suppress(ValueError):  # admit() may have removed the grant
                    self._waiters.remove(grant)
            if isinstance(error, TimeoutError):
                if all(slot.failed_starts for slot in self.slots):
                    raise CallRefused(*self.slots[0].last_start_error, "no_host") from error
                raise CallRefused("timeout", "no host was free before the deadline; nothing was sent") from error
            raise

    def release(self, slot: HostSlot) -> None:
        slot.active -= 1
        if slot.host is None or slot.retiring or not slot.host.alive:
            slot.wake.set()  # the supervisor waits for the end of the call
        self.admit()

    def admit(self) -> None:
        """Grant free slots to waiting calls, in their order."""
        while self._waiters:
            if self._waiters[0].done():
                del self._waiters[0]
            elif (slot := self._take_free_slot()) is not None:
                self._waiters.popleft().set_result(slot)
            else:
                return

    def start_failed(self, slot: HostSlot) -> None:
        """Record a failed start. If all slots have failed repeatedly, all waiting calls are refused."""
        slot.failed_starts += 1
        if self._all_starts_failed():
            self._report_outage(slot.last_start_error[1])
            self._refuse_all(*slot.last_start_error, "no_host")

    def started(self, slot: HostSlot) -> None:
        """Record that the host of a slot is up."""
        slot.failed_starts = 0
        self._report_outage(None)
        self.admit()

    def close(self) -> None:
        self._closed = True
        self._report_outage(None)
        self._refuse_all("exception", "the pool is closed")

    def _report_outage(self, reason: str | None) -> None:
        """Call ``on_outage`` if no host can be started, with the first reason; with None when a host is up again."""
        if self._in_outage != (reason is not None):
            self._in_outage = not self._in_outage
            if self._on_outage is not None:
                self._on_outage(reason)

    def _all_starts_failed(self) -> bool:
        return all(slot.failed_starts >= _MAX_FAILED_STARTS for slot in self.slots)

    def _take_free_slot(self) -> HostSlot | None:
        """Return the free slot with the fewest calls, which counts one more; None if no slot is free."""
        best: HostSlot | None = None
        for slot in self.slots:
            if slot.is_free and (best is None or slot.active < best.active):
                best = slot
        if best is not None:
            best.active += 1
        return best

    def _refuse_all(self, kind: ErrorType, detail: str, code: ErrorCode | None = None) -> None:
        while self._waiters:
            grant = self._waiters.popleft()
            if not grant.done():
                grant.set_exception(CallRefused(kind, detail, code))


class HostSupervisor:
    """Keeps a host in each slot of ``queue`` from :meth:`start` to :meth:`close`, with one task per slot."""

    def __init__(self, command: HostCommand, queue: HostQueue, limits: PoolLimits, secrets: SecretProvider) -> None:
        self._command = command
        self._secrets = secrets
        self._queue = queue
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._stops: set[asyncio.Task[None]] = set()  # they stop hosts that were replaced or failed

    def start(self) -> None:
        self._tasks = [self._loop.create_task(self._supervise(slot)) for slot in self._queue.slots]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*self._stops)

    async def _supervise(self, slot: HostSlot) -> None:
        while True:
            host = await self._start(slot)
            if host is None:
                self._queue.start_failed(slot)
                doublings = min(slot.failed_starts, 16)  # limited, so that the product does not overflow a float
                await asyncio.sleep(min(self._limits.backoff * 2**doublings, self._limits.max_backoff))
                continue
            while host is not None:
                host = await self._serve(slot, host)

    async def _serve(self, slot: HostSlot, host: HostProcess) -> HostProcess | None:
        """Serve with this host until it dies or is replaced; return its successor, if one is up."""
        successor: HostProcess | None = None
        slot.calls = 0
        slot.successor_requested = slot.retiring = False
        slot.initial_resident_bytes = host.resident_bytes()
        slot.host = host
        self._queue.started(slot)
        try:
            successor = await self._watch(slot, host)
        finally:
            slot.host = None
            stop = self._stop(host)
            if successor is None:  # the next host is not started before this one has ended
                await asyncio.shield(stop)
        return successor

    async def _start(self, slot: HostSlot) -> HostProcess | None:
        """Return a host that has answered a health request, or None with the reason in ``slot.last_start_error``."""
        command, provider = self._command, self._secrets
        try:
            values = []
            if command.start_secrets:
                values = await self._loop.run_in_executor(provider.executor, provider.values, command.start_secrets)
            host = HostProcess.start(command, on_end=slot.wake.set, redactor=provider.redactor, secrets=values)
        except SecretError as error:
            slot.last_start_error = ("exception", str(error))
            return None
        except FileNotFoundError as error:
            slot.last_start_error = ("not_found", f"the host program is missing: {error.filename}")
            # A retry would fail as well, so the next start_failed() reaches the maximum.
            slot.failed_starts = max(slot.failed_starts, _MAX_FAILED_STARTS - 1)
            return None
        except (OSError, ValueError, SubprocessError) as error:
            slot.last_start_error = ("exception", f"the host cannot be started: {error}")
            return None
        try:
            await host.exchange(_HEALTH_REQUEST, deadline=self._loop.time() + self._limits.start_timeout)
        except HostLost as lost:
            slot.last_start_error = (lost.loss.kind, lost.loss.detail)
            await asyncio.shield(self._stop(host))
            return None
        except asyncio.CancelledError:
            await asyncio.shield(self._stop(host))
            raise
        return host

    def _stop(self, host: HostProcess) -> asyncio.Task[None]:
        """Stop a host in a task that :meth:`close` awaits."""
        stop = self._loop.create_task(host.stop())
        self._stops.add(stop)
        stop.add_done_callback(self._stops.discard)
        return stop

    async def _watch(self, slot: HostSlot, host: HostProcess) -> HostProcess | None:
        """Wait until the host is unused, and dead or retiring; return its successor, if there is one."""
        successor: HostProcess | None = None
        try:
            while host.alive and not (slot.retiring and not slot.busy):
                slot.wake.clear()
                if slot.successor_requested and successor is None:
                    successor = await self._start(slot)
                    slot.retiring = successor is not None
                    if successor is not None or not host.alive:
                        continue  # the condition of the loop may have changed
                try:
                    async with asyncio.timeout(self._limits.health_interval):
                        await slot.wake.wait()
                except TimeoutError:
                    await self._check_health(slot, host)
            while slot.busy:  # the host died, and its call has not released the slot yet
                slot.wake.clear()
                await slot.wake.wait()
        except asyncio.CancelledError:
            if successor is not None:
                await asyncio.shield(self._stop(successor))
            raise
        return successor

    async def _check_health(self, slot: HostSlot, host: HostProcess) -> None:
        """Check memory and, if the host is idle, responsiveness: deadlines of calls find busy hosts that hang."""
        if slot.has_grown(self._limits):
            slot.request_successor()
        if slot.busy or slot.successor_requested:
            return
        slot.active += 1
        try:
            with contextlib.suppress(HostLost):
                await host.exchange(_HEALTH_REQUEST, deadline=self._loop.time() + self._limits.health_timeout)
        finally:
            slot.count_call(self._limits)
            self._queue.release(slot)
