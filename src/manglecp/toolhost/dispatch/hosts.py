"""The host slots of a pool, the queue of calls that wait for one, and the supervisor that keeps a host in each.

The queue is bounded and first in, first out, so that a call that needs a host to itself is never starved. Calls of tier
0 share a host, up to a limit; any other call has its host to itself.

The supervisor starts a host in every slot, probes it before the first call, checks its health, and replaces it when it
died, grew or served long enough. A live host serves until its successor is up; a failed start is retried with
exponential back-off.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from subprocess import SubprocessError
from typing import Any, Final, NamedTuple

from manglecp.toolhost.dispatch.launch import HostCommand, PoolLimits
from manglecp.toolhost.dispatch.messages import CallRefused, ErrorType
from manglecp.toolhost.dispatch.process import HostProcess
from manglecp.toolhost.dispatch.responses import HostLost, loss_type

_MAX_FAILED_STARTS: Final = 2  # failed starts in a row after which calls no longer wait for a slot
_SIZE_CHECK_CALLS: Final = 64  # calls between two checks of the memory of a busy host
_PROBE: Final = b'{"aid":"_health"}\n'  # every host answers this without running an action


class HostSlot:
    """One slot of the pool, with its host while there is one."""

    def __init__(self) -> None:
        self.host: HostProcess | None = None
        self.load = 0
        self.exclusive = False
        self.due = False  # the host has served long enough or has grown: a successor is wanted
        self.retiring = False  # the successor is up: no new call gets the old host
        self.served = 0
        self.failures = 0
        self.trouble: tuple[ErrorType, str] = ("crash", "")
        self.first_size = 0
        self.changed = asyncio.Event()

    def has_room(self, *, exclusive: bool, pipelined: int) -> bool:
        """Return whether a call can go to this host now; an ``exclusive`` one needs it for itself."""
        if self.host is None or not self.host.alive or self.retiring or self.exclusive:
            return False
        return self.load == 0 and self.host.idle if exclusive else self.load < pipelined

    def count(self, limits: PoolLimits) -> None:
        """Count a call, and check the memory regularly: fast growth must not wait for the next health check."""
        self.served += 1
        if self.served >= limits.calls_per_host or (self.served % _SIZE_CHECK_CALLS == 0 and self.has_grown(limits)):
            self.replace()

    def has_grown(self, limits: PoolLimits) -> bool:
        return self.host is not None and self.host.resident_bytes() - self.first_size > limits.growth

    def replace(self) -> None:
        """Request a successor; until it is up, the host keeps serving."""
        if not self.due:
            self.due = True
            self.changed.set()


class _Waiter(NamedTuple):
    exclusive: bool
    granted: asyncio.Future[HostSlot]


class HostQueue:
    def __init__(self, size: int, limits: PoolLimits) -> None:
        self.slots: Final = [HostSlot() for _ in range(size)]
        self._limits = limits
        self._waiters: deque[_Waiter] = deque()
        self._closed = False

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    async def acquire(self, deadline: float, *, exclusive: bool) -> HostSlot:
        """Return a slot with room; raises :class:`.CallRefused` if none is free before the deadline."""
        if not self._waiters and not self._closed:
            slot = self._take_room(exclusive)
            if slot is not None:
                return slot
        if self._closed:
            raise CallRefused("exception", "the pool is closed")
        if self._no_host_starts():
            raise CallRefused(*self.slots[0].trouble)
        if len(self._waiters) >= self._limits.queued:
            raise CallRefused("exception", f"{len(self._waiters)} calls are waiting already", "queue_full")
        waiter = _Waiter(exclusive, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter.granted
        except BaseException as error:
            if waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
                self.release(waiter.granted.result())  # granted in the same moment
            else:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
                self.admit()
            if isinstance(error, TimeoutError):
                raise CallRefused("timeout", "no host was free before the deadline; nothing was sent") from error
            raise

    def release(self, slot: HostSlot) -> None:
        slot.load -= 1
        slot.exclusive = False
        if slot.load == 0 and (slot.host is None or slot.retiring or not slot.host.alive):
            slot.changed.set()
        self.admit()

    def admit(self) -> None:
        """Grant free room to waiting calls, in their order."""
        while self._waiters:
            waiter = self._waiters[0]
            if waiter.granted.done():
                self._waiters.popleft()
                continue
            slot = self._take_room(waiter.exclusive)
            if slot is None:
                return
            self._waiters.popleft()
            waiter.granted.set_result(slot)

    def start_failed(self, slot: HostSlot) -> None:
        """Record a failed start. When no slot gets a host, all waiting calls are refused."""
        slot.failures += 1
        if self._no_host_starts():
            self._refuse_all(*slot.trouble)

    def close(self) -> None:
        self._closed = True
        self._refuse_all("exception", "the pool is closed")

    def _no_host_starts(self) -> bool:
        return all(slot.failures >= _MAX_FAILED_STARTS for slot in self.slots)

    def _take_room(self, exclusive: bool) -> HostSlot | None:
        best: HostSlot | None = None
        for slot in self.slots:
            if slot.has_room(exclusive=exclusive, pipelined=self._limits.pipelined) and (
                best is None or slot.load < best.load
            ):
                best = slot
        if best is not None:
            best.load += 1
            best.exclusive = exclusive
        return best

    def _refuse_all(self, kind: ErrorType, detail: str) -> None:
        while self._waiters:
            granted = self._waiters.popleft().granted
            if not granted.done():
                granted.set_exception(CallRefused(kind, detail))


class HostSupervisor:
    """One task per slot, from :meth:`start` to :meth:`close`."""

    def __init__(
        self,
        command: HostCommand,
        queue: HostQueue,
        limits: PoolLimits,
        on_event: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self._command = command
        self._queue = queue
        self._limits = limits
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._stops: set[asyncio.Task[None]] = set()

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
                await asyncio.sleep(min(self._limits.backoff * 2 ** min(slot.failures, 16), self._limits.max_backoff))
                continue
            while host is not None:
                host = await self._serve(slot, host)

    async def _serve(self, slot: HostSlot, host: HostProcess) -> HostProcess | None:
        """Serve with this host until it dies or is replaced; return its successor, if one is up."""
        successor: HostProcess | None = None
        slot.failures = 0
        slot.served = 0
        slot.due = slot.retiring = False
        slot.first_size = host.resident_bytes()
        slot.host = host
        self._queue.admit()
        try:
            successor = await self._watch(slot, host)
        finally:
            slot.host = None
            stop = self._stop(host)
            if successor is None:
                await asyncio.shield(stop)
        return successor

    async def _start(self, slot: HostSlot) -> HostProcess | None:
        """Return a host that has answered a probe, or None with the reason in ``slot.trouble``."""
        try:
            host = HostProcess.start(
                self._command, on_event=self._on_event, on_end=slot.changed.set, on_late=self._queue.admit
            )
        except FileNotFoundError as error:
            slot.trouble = ("not_found", f"the host program is missing: {error.filename}")
            slot.failures = max(slot.failures, _MAX_FAILED_STARTS - 1)
            return None
        except (OSError, ValueError, SubprocessError) as error:
            slot.trouble = ("exception", f"the host cannot be started: {error}")
            return None
        try:
            await host.exchange(_PROBE, deadline=self._loop.time() + self._limits.start_timeout)
        except HostLost as lost:
            slot.trouble = (loss_type(lost), lost.detail)
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
        """Wait until the host is dead or retired and unused; return its successor, if there is one."""
        successor: HostProcess | None = None
        try:
            while host.alive and not (slot.retiring and slot.load == 0):
                slot.changed.clear()
                if slot.due and successor is None:
                    successor = await self._start(slot)
                    slot.retiring = successor is not None
                    if successor is not None or not host.alive:
                        continue
                try:
                    async with asyncio.timeout(self._limits.health_interval):
                        await slot.changed.wait()
                except TimeoutError:
                    await self._check_health(slot, host)
            while slot.load:  # it died, and its calls are not settled yet
                slot.changed.clear()
                await slot.changed.wait()
        except asyncio.CancelledError:
            if successor is not None:
                await asyncio.shield(self._stop(successor))
            raise
        return successor

    async def _check_health(self, slot: HostSlot, host: HostProcess) -> None:
        """Check memory and, if the host is idle, responsiveness: a busy host is checked by its deadlines."""
        if slot.has_grown(self._limits):
            slot.replace()
        if slot.load or slot.due:
            return
        slot.load, slot.exclusive = 1, True
        try:
            with contextlib.suppress(HostLost):
                await host.exchange(_PROBE, deadline=self._loop.time() + self._limits.health_timeout)
        finally:
            slot.count(self._limits)
            self._queue.release(slot)
