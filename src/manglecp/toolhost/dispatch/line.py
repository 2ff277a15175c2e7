"""The places of a pool, and the line of calls that wait for one.

Calls wait in one bounded line, first come, first served; nobody overtakes, so a call that needs a host to itself gets
one. Calls of tier 0 share a host, up to a number; any other call has its host to itself, and so has a run.

Waiting ends with the deadline of the call, or at once where no host can be started any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Final, NamedTuple

from manglecp.toolhost.dispatch.errors import ErrorCode, ErrorType
from manglecp.toolhost.dispatch.limits import Limits
from manglecp.toolhost.dispatch.process import HostProcess

__all__ = ["HOPELESS", "Line", "Place", "Refused"]

HOPELESS: Final = 2
"""Starts in a row that have to fail before waiting for another one counts as pointless."""

_GLANCE: Final = 64
"""Calls between two looks at the size of a busy host."""


class Place:
    """One place of the pool, with its host while there is one."""

    def __init__(self) -> None:
        self.host: HostProcess | None = None
        self.load = 0
        self.exclusive = False
        self.resting = False
        """A run holds this place and is between two calls: its host owes nothing and may be replaced if it dies."""
        self.due = False
        """Its host has served long enough or has grown: a successor is wanted."""
        self.retiring = False
        """The successor is there: nobody new gets the old host."""
        self.served = 0
        self.failures = 0
        self.trouble: tuple[ErrorType, str] = ("crash", "")
        self.first_size = 0
        self.changed = asyncio.Event()

    def has_room(self, *, exclusive: bool, pipelined: int) -> bool:
        """Can a call go to this host now? One that is ``exclusive`` wants the host for itself."""
        if self.host is None or not self.host.alive or self.retiring or self.exclusive:
            return False
        return self.load == 0 and self.host.idle if exclusive else self.load < pipelined

    def count(self, limits: Limits) -> None:
        """One call more. Now and then the host is looked at: what grows fast must not wait for its examination."""
        self.served += 1
        if self.served >= limits.calls_per_host or (self.served % _GLANCE == 0 and self.has_grown(limits)):
            self.replace()

    def has_grown(self, limits: Limits) -> bool:
        """Does the host take up more memory than the limits let it grow by?"""
        return self.host is not None and self.host.resident_bytes() - self.first_size > limits.growth

    def replace(self) -> None:
        """Have a successor started; until it is up, the host goes on."""
        if not self.due:
            self.due = True
            self.changed.set()


class Refused(Exception):
    """No host for this call."""

    def __init__(self, kind: ErrorType, detail: str, code: ErrorCode | None = None) -> None:
        super().__init__(detail)
        self.kind: ErrorType = kind
        self.detail = detail
        self.code = code


class _Waiter(NamedTuple):
    exclusive: bool
    granted: asyncio.Future[Place]


class Line:
    """Who gets which place, and when."""

    def __init__(self, size: int, limits: Limits) -> None:
        self.places: Final = [Place() for _ in range(size)]
        self._limits = limits
        self._waiters: deque[_Waiter] = deque()
        self._closed = False

    @property
    def waiting(self) -> int:
        """Calls that have no host yet."""
        return len(self._waiters)

    def take(self, *, exclusive: bool) -> Place | None:
        """Room in the least busy host, for somebody who has nobody in front."""
        if self._waiters or self._closed:
            return None
        return self._take_room(exclusive)

    async def wait(self, deadline: float, *, exclusive: bool) -> Place:
        """The next room that is ours; :class:`Refused` if there will be none in time."""
        if self._closed:
            raise Refused("exception", "the pool is closed")
        if self._hopeless():
            raise Refused(*self.places[0].trouble)
        if len(self._waiters) >= self._limits.queued:
            raise Refused("exception", f"{len(self._waiters)} calls are waiting already", "queue_full")
        waiter = _Waiter(exclusive, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter.granted
        except BaseException as error:
            if waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
                self.release(waiter.granted.result())  # it was our turn just when we left
            else:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
                self.admit()
            if isinstance(error, TimeoutError):
                raise Refused("timeout", "no host was free before the deadline; nothing was sent") from error
            raise

    def release(self, place: Place) -> None:
        """Give room back."""
        place.load -= 1
        place.exclusive = False
        if place.load == 0 and (place.host is None or place.retiring or not place.host.alive):
            place.changed.set()
        self.admit()

    def admit(self) -> None:
        """Something may have become free: let in whoever it is enough for."""
        while self._waiters:
            waiter = self._waiters[0]
            if waiter.granted.done():
                self._waiters.popleft()
                continue
            place = self._take_room(waiter.exclusive)
            if place is None:
                return
            self._waiters.popleft()
            waiter.granted.set_result(place)

    def start_failed(self, place: Place) -> None:
        """A place could not get a host. When that is so everywhere, nobody has anything to wait for."""
        place.failures += 1
        if self._hopeless():
            self._refuse_all(*place.trouble)

    def close(self) -> None:
        """Nobody gets a place any more."""
        self._closed = True
        self._refuse_all("exception", "the pool is closed")

    def _hopeless(self) -> bool:
        return all(place.failures >= HOPELESS for place in self.places)

    def _take_room(self, exclusive: bool) -> Place | None:
        best: Place | None = None
        for place in self.places:
            if place.has_room(exclusive=exclusive, pipelined=self._limits.pipelined) and (
                best is None or place.load < best.load
            ):
                best = place
        if best is not None:
            best.load += 1
            best.exclusive = exclusive
        return best

    def _refuse_all(self, kind: ErrorType, detail: str) -> None:
        while self._waiters:
            granted = self._waiters.popleft().granted
            if not granted.done():
                granted.set_exception(Refused(kind, detail))
