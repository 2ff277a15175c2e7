"""The warm hosts of one plugin: one result for every call, whatever becomes of a host.

The pool itself only leads a call through its stations: its right to be made (:mod:`.rights`), the breaker of its
action (:mod:`.breakers`), its key for idempotency (:mod:`.keys`), a place (:mod:`.line`, whose hosts :mod:`.keeping`
keeps), a lease (:mod:`.lending`), the exchange (:mod:`.process`) and what the answer means (:mod:`.messages`) or its
absence (:mod:`.losses`).

A call of its own carries its whole state to any host. A run (:meth:`Pool.run`) has one host to itself for a sequence of
calls, and only there a host is told nothing but what has changed (:mod:`.seats`).

What says nothing about an action does not count for its breaker: a call that was lost because of its neighbour, that
was never sent, that had less time than the action may take, or that the host answered with no. A call counts once,
however often it was tried.

A call has the least of three times: that of the pool, that of the action, and what its caller will wait.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any

from manglecp.toolhost.dispatch import settings
from manglecp.toolhost.dispatch.breakers import Breaker, Breakers, Permit
from manglecp.toolhost.dispatch.errors import DispatchError, ErrorCode, failure
from manglecp.toolhost.dispatch.keeping import Keepers
from manglecp.toolhost.dispatch.keys import Keys
from manglecp.toolhost.dispatch.launching import HostCommand
from manglecp.toolhost.dispatch.lending import Lending
from manglecp.toolhost.dispatch.limits import Limits
from manglecp.toolhost.dispatch.line import Line, Place, Refused
from manglecp.toolhost.dispatch.losses import error_of, innocent, may_repeat
from manglecp.toolhost.dispatch.messages import Answer, Call, RequestError, encode, judge, misshapen
from manglecp.toolhost.dispatch.process import HostLost
from manglecp.toolhost.dispatch.rights import Right
from manglecp.toolhost.dispatch.seats import AnyHost, OneHost, Seat
from manglecp.toolhost.leases import Audit

__all__ = ["Limits", "Pool", "Run"]


class Pool:
    """Hosts for one plugin; an async context manager. Size and timeout come from the environment unless given."""

    def __init__(
        self,
        command: HostCommand,
        *,
        size: int | None = None,
        timeout: float | None = None,
        limits: Limits | None = None,
        breakers: Breakers | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        audit: Audit | None = None,
    ) -> None:
        settings.check(size, timeout)
        self._timeout = settings.timeout(os.environ) if timeout is None else timeout
        self._limits = limits or Limits()
        self._limits.check()
        self._line = Line(settings.pool_size(os.environ) if size is None else size, self._limits)
        self._keepers = Keepers(command, self._line, self._limits, on_event)
        self._lending = Lending(audit, asks=command.issues_leases)
        self._any_host = AnyHost(self._line, self._limits)
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._cancelled: set[str] = set()
        self._entered = False
        self._loop = asyncio.get_running_loop()
        self._breakers = breakers or Breakers(self._loop.time)
        self._keys = Keys(self._loop.time)

    async def __aenter__(self) -> Pool:
        if self._entered:
            raise RuntimeError("a pool is entered once; make another one")
        self._entered = True
        self._keepers.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def healthy(self) -> int:
        """Hosts that would take a call, now or after the one they have."""
        places = self._line.places
        return sum(place.host is not None and place.host.alive and not place.retiring for place in places)

    @property
    def waiting(self) -> int:
        """Calls that have no host yet."""
        return self._line.waiting

    @property
    def pids(self) -> list[int]:
        """The processes of the hosts that are up."""
        return [place.host.pid for place in self._line.places if place.host is not None]

    async def close(self) -> None:
        """Stop every host. Calls that still wait are refused; those that run are lost with their hosts."""
        self._line.close()
        await self._keepers.close()

    def cancel(self, call_id: str) -> bool:
        """Give up a call: its caller gets an error. Whether there was such a call."""
        task = self._running.get(call_id)
        if task is None or call_id in self._cancelled:
            return False
        self._cancelled.add(call_id)
        task.cancel()
        return True

    def call(self, call: Call) -> Coroutine[Any, Any, Answer | DispatchError]:
        """Run an action. Whatever becomes of the host, this returns, once; only a cancelled task hears nothing."""
        return self._call(call, self._any_host)

    def run(self) -> Run:
        """One host for a sequence of calls; an async context manager."""
        return Run(self._call, OneHost(self._line, self._limits))

    async def _call(self, call: Call, seat: Seat) -> Answer | DispatchError:
        wrong = misshapen(call)
        if wrong is not None:
            return failure(str(call.aid), "exception", wrong)
        if call.call_id in self._running:
            return failure(call.aid, "exception", f"a call {call.call_id} is running already")
        right = Right(call)
        try:
            right.check()
        except Refused as refused:
            return failure(call.aid, refused.kind, refused.detail, code=refused.code)
        breaker = self._breakers.of(call.aid)
        permit = breaker.admit()
        if permit is None:
            detail = f"the breaker of this action is open; try again in {breaker.retry_after():.1f} s"
            return failure(call.aid, "tool_error", detail, code="breaker_open", status="BREAKER_TRIP")
        work_time = self._timeout if call.timeout is None else min(call.timeout, self._timeout)
        patience = work_time if call.patience is None else min(call.patience, work_time)
        deadline = self._loop.time() + patience
        attempt = _Attempt(call, right, breaker, permit, work_time, hasty=patience < work_time)
        task = asyncio.current_task(self._loop)
        assert task is not None
        cancelling = task.cancelling()
        self._running[call.call_id] = task
        try:
            if patience == 0:
                return failure(call.aid, "timeout", "the deadline is over; nothing was sent")
            if not call.idempotency_key:
                return await self._try(attempt, seat, deadline)
            return await self._keys.once(
                call,
                lambda: self._try(attempt, seat, deadline),
                deadline=deadline,
                doubtful=lambda: attempt.code is not None,
            )
        except asyncio.CancelledError:
            # Somebody gave up the call, not the task that waits for it; unless that was given up, too.
            if call.call_id not in self._cancelled or task.uncancel() > cancelling:
                raise
            return failure(call.aid, "exception", "the call was cancelled", code=attempt.code or "cancelled")
        except Exception as error:  # IPC-32: the fault is on this side, and still a value
            return failure(call.aid, "exception", f"{type(error).__name__}: {error}", code=attempt.code)
        finally:
            if attempt.suspected:
                breaker.failed(permit)
            else:
                breaker.abandoned(permit)  # unless it has been told better
            del self._running[call.call_id]
            self._cancelled.discard(call.call_id)

    async def _try(self, attempt: _Attempt, seat: Seat, deadline: float) -> Answer | DispatchError:
        call = attempt.call
        try:
            left = self._limits.attempts
            while True:
                exclusive = call.exclusive
                place = seat.take(exclusive=exclusive) or await seat.wait(deadline, exclusive=exclusive)
                try:
                    document = await self._exchange(place, attempt, seat, deadline)
                    understood = seat.heard(call.slots, document)
                except HostLost as lost:
                    attempt.sent = lost.sent
                    attempt.suspected = attempt.suspected or lost.suspect
                    if not innocent(call, lost):
                        left -= 1
                    if left and may_repeat(call, lost, probe=attempt.permit.probe):
                        continue
                    return error_of(call, lost)
                finally:
                    seat.leave(place)
                if left > 1 and not understood:  # the host refused, and did nothing
                    left -= 1
                    attempt.sent = False
                    continue
                result = judge(call, document)
                if isinstance(result, dict) and result["type"] == "not_found":
                    self._breakers.forget(call.aid)
                attempt.suspected = False
                attempt.breaker.succeeded(attempt.permit)
                return result
        except RequestError as error:
            return failure(call.aid, "exception", str(error), code="oversize" if error.oversize else None)
        except Refused as refused:
            return failure(call.aid, refused.kind, refused.detail, code=refused.code)

    async def _exchange(self, place: Place, attempt: _Attempt, seat: Seat, deadline: float) -> dict[str, Any]:
        """What a host has to say to the call. A foreign one may want a lease for it first."""
        host, call = place.host, attempt.call
        assert host is not None
        required: dict[str, Any] | None = None
        while True:
            granted = self._lending.grant(host, call, attempt.right, deadline, required)
            token = (
                granted
                if isinstance(granted, str)
                else await self._lending.ask(host, call, granted, deadline, required)
            )
            line = encode(call, seat.state_for(call.slots), token)
            attempt.sent = call.exclusive  # from here on a cancelled caller cannot know better
            try:
                document = await host.exchange(
                    line,
                    deadline=deadline,
                    call_id=call.call_id,
                    shared=seat is self._any_host and not call.exclusive,
                    hasty=attempt.hasty,
                    work_time=attempt.work_time,
                )
            except HostLost as lost:
                self._lending.lost(call, token, lost)
                raise
            self._lending.answered(call, token, document)
            if required is not None or not self._lending.wanted(token, document):
                return document
            attempt.sent = False  # the host refused, and did nothing
            required = document


class Run:
    """A sequence of calls on one host. Each says its whole state; the host is sent what has changed since the last.

    One call at a time: the next one starts from what the last one left. The host is taken with the first call and given
    back at the end, or when it has not been called for a while, so a run should not wait for anything but its own
    calls. Calls are made inside the ``async with`` and nowhere else.
    """

    def __init__(self, call: Callable[[Call, Seat], Awaitable[Answer | DispatchError]], seat: OneHost) -> None:
        self._call = call
        self._seat = seat
        self._busy = False
        self._entered = False
        self._over = False

    async def __aenter__(self) -> Run:
        if self._entered:
            raise RuntimeError("a run is entered once; make another one")
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if not self._busy:
            self._seat.give_up()

    async def call(self, call: Call) -> Answer | DispatchError:
        """As :meth:`Pool.call`, on the host of this run."""
        if not self._entered:
            return failure(call.aid, "exception", "the run has not been entered")
        if self._over or self._busy:
            return failure(call.aid, "exception", "the run is over" if self._over else "a call of this run is running")
        self._busy = True
        try:
            return await self._call(call, self._seat)
        finally:
            self._busy = False
            if self._over:
                self._seat.give_up()


class _Attempt:
    """A call on its way, and what is known of it if it has to be given up."""

    __slots__ = ("breaker", "call", "hasty", "permit", "right", "sent", "suspected", "work_time")

    def __init__(
        self, call: Call, right: Right, breaker: Breaker, permit: Permit, work_time: float, *, hasty: bool
    ) -> None:
        self.call = call
        self.right = right
        self.breaker = breaker
        self.permit = permit
        self.work_time = work_time
        self.hasty = hasty
        self.sent = False
        self.suspected = False

    @property
    def code(self) -> ErrorCode | None:
        """What a caller must know who gets no answer."""
        return "outcome_unknown" if self.sent and not self.call.idempotent else None
