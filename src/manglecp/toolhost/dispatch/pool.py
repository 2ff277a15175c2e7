"""The warm hosts of one plugin, and what becomes of a call that one of them loses.

Each place in the pool keeps a host running: it starts one in the background, has it answer once before any call sees
it, asks it now and then whether it is well, and replaces it when it died, has grown or has served long enough. Calls
wait in one bounded line, first come, first served; nobody overtakes, so a call that needs a host to itself gets one.

Sharing: calls of tier 0 are sent to one host without waiting for each other. Any other call has its host to itself.

Losing: a request of which no byte was sent is given to another host. One that was sent is repeated only if the action
is idempotent; otherwise its outcome is unknown, and that is what the caller is told. Repetitions end with the deadline.

What says nothing about an action does not count for its breaker: a call that was lost because of its neighbour, that
was never sent, or that the host answered with no.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from subprocess import SubprocessError
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.toolhost.dispatch import settings
from manglecp.toolhost.dispatch.breakers import Breaker, Breakers, Permit
from manglecp.toolhost.dispatch.errors import DispatchError, ErrorCode, ErrorType, failure
from manglecp.toolhost.dispatch.launching import HostCommand
from manglecp.toolhost.dispatch.messages import Answer, Call, RequestError, encode, judge
from manglecp.toolhost.dispatch.process import HostLost, HostProcess, Loss
from manglecp.toolhost.leases import MAX_TTL, Audit, input_digest, mint

__all__ = ["Limits", "Pool"]

_PROBE: Final = b'{"aid":"_health"}\n'
"""Every host has an answer to this, and none of them does anything for it."""
_MEANING: Final[dict[Loss, tuple[ErrorType, ErrorCode | None]]] = {
    "timeout": ("timeout", None),
    "crash": ("crash", None),
    "parse_error": ("parse_error", None),
    "oversize": ("parse_error", "oversize"),
    "empty_output": ("parse_error", "empty_output"),
    "cancelled": ("exception", "cancelled"),
}
_REPEATABLE: Final = frozenset[Loss]({"crash", "parse_error", "empty_output"})
"""Losses that another host might not have. A deadline is over for all of them, and an answer too long everywhere."""
_HOPELESS: Final = 2
"""Starts in a row that have to fail before waiting for another one counts as pointless."""


class Limits(NamedTuple):
    """How much of everything."""

    pipelined: int = 32
    """Calls of tier 0 that one host has at a time."""
    queued: int = 1_024
    """Calls that may wait for a host."""
    attempts: int = 3
    """Hosts that one call is given to, at most."""
    calls_per_host: int = 10_000
    """Calls after which a host is replaced."""
    growth: int = 268_435_456
    """Bytes that a host may have gained since its first answer before it is replaced."""
    health_interval: float = 5.0
    """Seconds between two examinations of a host."""
    health_timeout: float = 5.0
    start_timeout: float = 20.0
    backoff: float = 0.05
    """Seconds before a failed start is repeated; doubled each time."""
    max_backoff: float = 5.0


class _Place:
    """One place of the pool, with its host while there is one."""

    def __init__(self) -> None:
        self.host: HostProcess | None = None
        self.load = 0
        self.exclusive = False
        self.retiring = False
        self.served = 0
        self.failures = 0
        self.trouble: tuple[ErrorType, str] = ("crash", "")
        self.first_size = 0
        self.changed = asyncio.Event()

    def has_room(self, *, exclusive: bool, pipelined: int) -> bool:
        if self.host is None or not self.host.alive or self.retiring or self.exclusive:
            return False
        return self.load == 0 and self.host.idle if exclusive else self.load < pipelined


class _Waiter(NamedTuple):
    exclusive: bool
    granted: asyncio.Future[_Place]


class _Refused(Exception):
    """No host for this call."""

    def __init__(self, kind: ErrorType, detail: str, code: ErrorCode | None = None) -> None:
        super().__init__(detail)
        self.kind: ErrorType = kind
        self.detail = detail
        self.code = code


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
        self._command = command
        self._timeout = settings.timeout(os.environ) if timeout is None else timeout
        self._places = [_Place() for _ in range(settings.pool_size(os.environ) if size is None else size)]
        self._limits = limits or Limits()
        self._on_event = on_event
        self._audit = audit
        self._waiters: deque[_Waiter] = deque()
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._cancelled: set[str] = set()
        self._keepers: list[asyncio.Task[None]] = []
        self._partings: set[asyncio.Task[None]] = set()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._breakers = breakers or Breakers(self._loop.time)

    async def __aenter__(self) -> Pool:
        self._keepers = [self._loop.create_task(self._keep(place)) for place in self._places]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def healthy(self) -> int:
        """Hosts that would take a call, now or after the one they have."""
        return sum(place.host is not None and place.host.alive and not place.retiring for place in self._places)

    @property
    def pids(self) -> list[int]:
        """The processes of the hosts that are up."""
        return [place.host.pid for place in self._places if place.host is not None]

    async def close(self) -> None:
        """Stop every host. Calls that still wait are refused; those that run are lost with their hosts."""
        self._closed = True
        self._refuse_waiters(_Refused("exception", "the pool is closed"))
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*self._partings)

    def cancel(self, call_id: str) -> bool:
        """Give up a call: its caller gets an error. Whether there was such a call."""
        task = self._running.get(call_id)
        if task is None or call_id in self._cancelled:
            return False
        self._cancelled.add(call_id)
        task.cancel()
        return True

    async def call(self, call: Call) -> Answer | DispatchError:
        """Run an action. Whatever becomes of the host, this returns, once; only a cancelled task hears nothing."""
        breaker = self._breakers.of(call.aid)
        permit = breaker.admit()
        if permit is None:
            detail = f"the breaker of this action is open; try again in {breaker.retry_after():.1f} s"
            return failure(call.aid, "tool_error", detail, code="breaker_open", status="BREAKER_TRIP")
        attempt = _Attempt(call, breaker, permit)
        if call.call_id in self._running:
            breaker.abandoned(permit)
            return failure(call.aid, "exception", f"a call {call.call_id} is running already")
        task = asyncio.current_task()
        assert task is not None
        self._running[call.call_id] = task
        try:
            return await self._run(attempt)
        except asyncio.CancelledError:
            if call.call_id not in self._cancelled:
                raise
            task.uncancel()  # somebody gave up the call, not the task that waits for it
            unknown = attempt.sent and not call.idempotent
            return failure(
                call.aid, "exception", "the call was cancelled", code="outcome_unknown" if unknown else "cancelled"
            )
        finally:
            breaker.abandoned(permit)  # unless it has been told better
            del self._running[call.call_id]
            self._cancelled.discard(call.call_id)

    # --------------------------------------------------------------------------------------------- one call

    async def _run(self, attempt: _Attempt) -> Answer | DispatchError:
        call = attempt.call
        deadline = self._loop.time() + (self._timeout if call.timeout is None else call.timeout)
        try:
            plain = encode(call)
            for last in range(self._limits.attempts - 1, -1, -1):
                place = self._place(exclusive=call.exclusive) or await self._wait(call.exclusive, deadline)
                try:
                    result = judge(call, await self._exchange(place, attempt, plain, deadline))
                except HostLost as lost:
                    attempt.sent = lost.sent
                    if lost.suspect:
                        attempt.breaker.failed(attempt.permit)
                    if (
                        last
                        and lost.loss in ("crash", "parse_error", "empty_output")
                        and (call.idempotent or not lost.sent)
                    ):
                        continue
                    return _lost(call, lost)
                finally:
                    self._release(place)
                if isinstance(result, dict) and result["type"] == "not_found":
                    self._breakers.forget(call.aid)
                attempt.breaker.succeeded(attempt.permit)
                return result
        except RequestError as error:
            return failure(call.aid, "exception", str(error), code="oversize" if error.oversize else None)
        except _Refused as refused:
            return failure(call.aid, refused.kind, refused.detail, code=refused.code)
        raise AssertionError("the last attempt returns")

    async def _exchange(self, place: _Place, attempt: _Attempt, plain: bytes, deadline: float) -> dict[str, Any]:
        call, host = attempt.call, place.host
        assert host is not None
        line = plain
        if call.exclusive:
            token = await self._lease(host, call, deadline)
            if token is not None:
                line = encode(call, token)
            attempt.sent = True  # from here on a cancelled caller cannot know better
        return await host.exchange(line, deadline=deadline, call_id=call.call_id, shared=not call.exclusive)

    async def _lease(self, host: HostProcess, call: Call, deadline: float) -> str | None:
        """A token for this call on this host: made with its key or, where it has none of ours, asked for."""
        ttl = min(deadline - self._loop.time(), MAX_TTL)
        if host.lease_key is not None:
            digest = input_digest(call.input_json)
            return mint(
                host.lease_key,
                aid=call.aid,
                input_digest=digest,
                call_id=call.call_id,
                tier=call.tier,
                ttl=ttl,
                audit=self._audit,
            )
        if not self._command.issues_leases:
            return None
        request = {
            "aid": "_lease.issue",
            "tool_aid": call.aid,
            "tier": call.tier,
            "ttl_ms": max(1_000, int(ttl * 1_000)),
        }
        try:
            answer = await host.exchange(msgspec.json.encode(request) + b"\n", deadline=deadline)
        except HostLost as lost:
            raise HostLost(lost.loss, lost.detail, sent=False, suspect=False) from lost
        token = answer.get("token_id")
        return token if isinstance(token, str) else None

    # ---------------------------------------------------------------------------------------------- the line

    def _place(self, *, exclusive: bool) -> _Place | None:
        """Room in the least busy host, for somebody who has nobody in front."""
        if self._waiters or self._closed:
            return None
        return self._take_room(exclusive)

    def _take_room(self, exclusive: bool) -> _Place | None:
        best: _Place | None = None
        for place in self._places:
            if place.has_room(exclusive=exclusive, pipelined=self._limits.pipelined) and (
                best is None or place.load < best.load
            ):
                best = place
        if best is not None:
            best.load += 1
            best.exclusive = exclusive
        return best

    async def _wait(self, exclusive: bool, deadline: float) -> _Place:
        if self._closed:
            raise _Refused("exception", "the pool is closed")
        if all(place.failures >= _HOPELESS for place in self._places):
            raise _Refused(*self._places[0].trouble)
        if len(self._waiters) >= self._limits.queued:
            raise _Refused("exception", f"{len(self._waiters)} calls are waiting already", "queue_full")
        waiter = _Waiter(exclusive, self._loop.create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter.granted
        except BaseException as error:
            if waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
                self._release(waiter.granted.result())  # it was our turn just when we left
            else:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
                self._admit_waiters()
            if isinstance(error, TimeoutError):
                raise _Refused("timeout", "no host was free before the deadline; nothing was sent") from error
            raise

    def _release(self, place: _Place) -> None:
        place.load -= 1
        place.exclusive = False
        place.served += 1
        if place.served >= self._limits.calls_per_host:
            place.retiring = True
        if place.load == 0 and (place.host is None or place.retiring or not place.host.alive):
            place.changed.set()
        self._admit_waiters()

    def _admit_waiters(self) -> None:
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

    def _refuse_waiters(self, refused: _Refused) -> None:
        while self._waiters:
            granted = self._waiters.popleft().granted
            if not granted.done():
                granted.set_exception(_Refused(refused.kind, refused.detail, refused.code))

    # -------------------------------------------------------------------------------------------- the hosts

    async def _keep(self, place: _Place) -> None:
        """Have a host in this place, always."""
        while True:
            host = await self._start(place)
            if host is None:
                self._start_failed(place)
                await asyncio.sleep(min(self._limits.backoff * 2 ** min(place.failures, 16), self._limits.max_backoff))
                continue
            try:
                place.failures = 0
                place.served = 0
                place.retiring = False
                place.first_size = host.resident_bytes()
                place.host = host
                self._admit_waiters()
                await self._watch(place, host)
            finally:
                place.host = None
                await self._part_from(host)

    async def _start(self, place: _Place) -> HostProcess | None:
        """A host that has answered once, or none; then the place says why."""
        try:
            host = HostProcess.start(
                self._command, on_event=self._on_event, on_end=place.changed.set, on_late=self._admit_waiters
            )
        except FileNotFoundError as error:
            place.trouble = ("not_found", f"the host program is missing: {error.filename}")
            place.failures = max(place.failures, _HOPELESS - 1)
            return None
        except (OSError, ValueError, SubprocessError) as error:
            place.trouble = ("exception", f"the host cannot be started: {error}")
            return None
        try:
            await host.exchange(_PROBE, deadline=self._loop.time() + self._limits.start_timeout)
        except HostLost as lost:
            place.trouble = (_MEANING[lost.loss][0], lost.detail)
            await self._part_from(host)
            return None
        except asyncio.CancelledError:
            await self._part_from(host)
            raise
        return host

    async def _part_from(self, host: HostProcess) -> None:
        """Stop a host. Who is cancelled meanwhile leaves the stopping to :meth:`close`, which waits for it."""
        parting = self._loop.create_task(host.stop())
        self._partings.add(parting)
        parting.add_done_callback(self._partings.discard)
        await asyncio.shield(parting)

    def _start_failed(self, place: _Place) -> None:
        place.failures += 1
        if all(each.failures >= _HOPELESS for each in self._places):
            self._refuse_waiters(_Refused(*place.trouble))

    async def _watch(self, place: _Place, host: HostProcess) -> None:
        """Until the host should be replaced, and nobody uses it."""
        while host.alive and not (place.retiring and place.load == 0):
            place.changed.clear()
            try:
                async with asyncio.timeout(self._limits.health_interval):
                    await place.changed.wait()
            except TimeoutError:
                await self._examine(place, host)
        while place.load:  # it died, and those it owes an answer have yet to hear of it
            place.changed.clear()
            await place.changed.wait()

    async def _examine(self, place: _Place, host: HostProcess) -> None:
        """Size and pulse of a host. One that is busy shows by its deadlines whether it is well."""
        if host.resident_bytes() - place.first_size > self._limits.growth:
            place.retiring = True
        if place.load or place.retiring:
            return
        place.load, place.exclusive = 1, True
        try:
            with contextlib.suppress(HostLost):
                await host.exchange(_PROBE, deadline=self._loop.time() + self._limits.health_timeout)
        finally:
            self._release(place)


class _Attempt:
    """A call on its way, and what is known of it if it has to be given up."""

    __slots__ = ("breaker", "call", "permit", "sent")

    def __init__(self, call: Call, breaker: Breaker, permit: Permit) -> None:
        self.call = call
        self.breaker = breaker
        self.permit = permit
        self.sent = False


def _lost(call: Call, lost: HostLost) -> DispatchError:
    kind, code = _MEANING[lost.loss]
    if lost.sent and not call.idempotent and code != "oversize":  # an answer that is too long says at least that it ran
        code = "outcome_unknown"
    return failure(call.aid, kind, lost.detail, code=code)
