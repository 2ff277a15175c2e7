"""The warm hosts of one plugin: exactly one result per call, whatever happens to a host.

A call passes the authority check, the circuit breaker of its action, its idempotency key, the host queue, the lease and
the exchange. A call outside a run sends its whole state to any host. A run (:meth:`Pool.run`) has a host to itself and
sends deltas.

The breaker counts a call once, however often it was tried. It does not count calls that were lost to a neighbour, never
sent, given less time than the action may take, or refused by the host. The time of a call is the least of the pool's,
the action's and the caller's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any

from manglecp.toolhost.dispatch.breakers import Breaker, Breakers, Permit
from manglecp.toolhost.dispatch.hosts import HostQueue, HostSlot, HostSupervisor
from manglecp.toolhost.dispatch.idempotency import IdempotencyTable
from manglecp.toolhost.dispatch.launch import (
    HostCommand,
    PoolLimits,
    check_settings,
    default_pool_size,
    default_timeout,
)
from manglecp.toolhost.dispatch.lease_issuer import LeaseIssuer
from manglecp.toolhost.dispatch.messages import (
    Answer,
    Call,
    CallRefused,
    DispatchError,
    ErrorCode,
    RequestError,
    call_problem,
    encode,
    failure,
    interpret_answer,
)
from manglecp.toolhost.dispatch.process import HostProcess
from manglecp.toolhost.dispatch.responses import HostLost, loss_error, lost_to_neighbour, may_repeat
from manglecp.toolhost.dispatch.rights import Right
from manglecp.toolhost.leases import Audit
from manglecp.toolhost.state import Artifact, Slots, StateError, apply_state, full_state, state_delta


class Pool:
    """Hosts for one plugin; an async context manager. Size and timeout come from the environment unless given."""

    def __init__(
        self,
        command: HostCommand,
        *,
        size: int | None = None,
        timeout: float | None = None,
        limits: PoolLimits | None = None,
        breakers: Breakers | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        audit: Audit | None = None,
    ) -> None:
        check_settings(size, timeout)
        self._timeout = default_timeout(os.environ) if timeout is None else timeout
        self._limits = limits or PoolLimits()
        self._limits.check()
        self._queue = HostQueue(default_pool_size(os.environ) if size is None else size, self._limits)
        self._supervisor = HostSupervisor(command, self._queue, self._limits, on_event)
        self._leases = LeaseIssuer(audit, on_pipe=command.issues_leases)
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._cancelled: set[str] = set()
        self._entered = False
        self._loop = asyncio.get_running_loop()
        self._breakers = breakers or Breakers(self._loop.time)
        self._idempotency = IdempotencyTable(self._loop.time)

    async def __aenter__(self) -> Pool:
        if self._entered:
            raise RuntimeError("a pool is entered once; make another one")
        self._entered = True
        self._supervisor.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def healthy(self) -> int:
        """The number of hosts that would take a call, now or after the one they have."""
        slots = self._queue.slots
        return sum(slot.host is not None and slot.host.alive and not slot.retiring for slot in slots)

    @property
    def waiting(self) -> int:
        return self._queue.waiting

    @property
    def pids(self) -> list[int]:
        return [slot.host.pid for slot in self._queue.slots if slot.host is not None]

    async def close(self) -> None:
        """Stop every host. Waiting calls are refused; running ones are lost with their hosts."""
        self._queue.close()
        await self._supervisor.close()

    def cancel(self, call_id: str) -> bool:
        """Cancel a call: its caller gets an error. Returns whether there was such a call."""
        task = self._running.get(call_id)
        if task is None or call_id in self._cancelled:
            return False
        self._cancelled.add(call_id)
        task.cancel()
        return True

    def call(self, call: Call) -> Coroutine[Any, Any, Answer | DispatchError]:
        """Run an action and return its answer or error. Raises only ``CancelledError``, if the task is cancelled."""
        return self._call(call, None)

    def run(self) -> Run:
        """Return an async context manager: one host for a sequence of calls."""
        return Run(self._call, PinnedHost(self._queue, self._limits))

    async def _call(self, call: Call, pinned: PinnedHost | None) -> Answer | DispatchError:
        problem = call_problem(call)
        if problem is not None:
            return failure(str(call.aid), "exception", problem)
        if call.call_id in self._running:
            return failure(call.aid, "exception", f"a call {call.call_id} is running already")
        right = Right(call)
        try:
            right.check()
        except CallRefused as refused:
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
                return await self._try(attempt, pinned, deadline)
            return await self._idempotency.once(
                call,
                lambda: self._try(attempt, pinned, deadline),
                deadline=deadline,
                doubtful=lambda: attempt.code is not None,
            )
        except asyncio.CancelledError:
            # cancel() ended the call and not the task that awaits it; unless that was cancelled, too
            if call.call_id not in self._cancelled or task.uncancel() > cancelling:
                raise
            return failure(call.aid, "exception", "the call was cancelled", code=attempt.code or "cancelled")
        except Exception as error:  # IPC-32: the fault is on this side, and still a value
            return failure(call.aid, "exception", f"{type(error).__name__}: {error}", code=attempt.code)
        finally:
            if attempt.suspected:
                breaker.failed(permit)
            else:
                breaker.abandoned(permit)  # no effect if it succeeded
            del self._running[call.call_id]
            self._cancelled.discard(call.call_id)

    async def _try(self, attempt: _Attempt, pinned: PinnedHost | None, deadline: float) -> Answer | DispatchError:
        """Give the call to one host after the other until one answers, or the loss is final."""
        call = attempt.call
        source = pinned or self._queue
        left = self._limits.attempts
        try:
            while True:
                slot = await source.acquire(deadline, exclusive=call.exclusive)
                try:
                    document = await self._exchange(slot, attempt, pinned, deadline)
                    accepted = pinned is None or pinned.accept(call.slots, document)
                except HostLost as lost:
                    attempt.sent = lost.sent
                    attempt.suspected = attempt.suspected or lost.suspect
                    if not lost_to_neighbour(call, lost):
                        left -= 1
                    if left and may_repeat(call, lost, probe=attempt.permit.probe):
                        continue
                    return loss_error(call, lost)
                finally:
                    slot.count(self._limits)
                    source.release(slot)
                if left > 1 and not accepted:  # the host refused the delta, and did nothing
                    left -= 1
                    attempt.sent = False
                    continue
                result = interpret_answer(call, document)
                if isinstance(result, dict) and result["type"] == "not_found":
                    self._breakers.forget(call.aid)
                attempt.suspected = False
                attempt.breaker.succeeded(attempt.permit)
                return result
        except RequestError as error:
            return failure(call.aid, "exception", str(error), code="oversize" if error.oversize else None)
        except CallRefused as refused:
            return failure(call.aid, refused.kind, refused.detail, code=refused.code)

    async def _exchange(
        self, slot: HostSlot, attempt: _Attempt, pinned: PinnedHost | None, deadline: float
    ) -> dict[str, Any]:
        """Send the call and return the answer. A foreign host may demand a lease for it first."""
        host, call = slot.host, attempt.call
        assert host is not None
        required: dict[str, Any] | None = None
        while True:
            token = await self._leases.issue(host, call, attempt.right, deadline, required)
            ds_state = full_state(call.slots) if pinned is None else pinned.encode_state(call.slots)
            line = encode(call, ds_state, token)
            attempt.sent = call.exclusive  # from here on a cancelled caller cannot know better
            try:
                document = await host.exchange(
                    line,
                    deadline=deadline,
                    call_id=call.call_id,
                    shared=pinned is None and not call.exclusive,
                    hasty=attempt.hasty,
                    work_time=attempt.work_time,
                )
            except HostLost as lost:
                self._leases.audit_loss(call, token, lost)
                raise
            self._leases.audit_answer(call, token, document)
            if required is not None or not self._leases.is_required(token, document):
                return document
            attempt.sent = False  # the host refused, and did nothing
            required = document


class Run:
    """A sequence of calls on one host, which is sent only what changed since the last call.

    One call at a time: the next one starts from the state that the last one left. The host is taken with the first call
    and given back at the end, or when it has not been called for a while, so a run should not wait for anything but its
    own calls. Calls are made inside the ``async with`` only.
    """

    def __init__(
        self, call: Callable[[Call, PinnedHost], Awaitable[Answer | DispatchError]], pinned: PinnedHost
    ) -> None:
        self._call = call
        self._pinned = pinned
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
            self._pinned.unpin()

    async def call(self, call: Call) -> Answer | DispatchError:
        """As :meth:`Pool.call`, on the host of this run."""
        if not self._entered:
            return failure(call.aid, "exception", "the run has not been entered")
        if self._over or self._busy:
            return failure(call.aid, "exception", "the run is over" if self._over else "a call of this run is running")
        self._busy = True
        try:
            return await self._call(call, self._pinned)
        finally:
            self._busy = False
            if self._over:
                self._pinned.unpin()


class PinnedHost:
    """Affinity of a run to one host, from its first call until :meth:`unpin`.

    A delta names the state that it changes by digest. A host that holds another state refuses it (``state_drift``)
    without effect, so the call is sent again with the whole state. What the host holds is known only after an answer
    with a delta; a refusal, an idempotent hit or a lost host leave it open. A C++ host does not check the digest;
    having the host to itself keeps it in step.
    """

    def __init__(self, queue: HostQueue, limits: PoolLimits) -> None:
        self._queue = queue
        self._limits = limits
        self._rest: asyncio.TimerHandle | None = None
        self._slot: HostSlot | None = None
        self._host: HostProcess | None = None
        self._held: Slots | None = None
        self._sent_delta = False

    async def acquire(self, deadline: float, *, exclusive: bool) -> HostSlot:
        """As :meth:`HostQueue.acquire`, but the same slot as long as its host lives. It is never shared."""
        del exclusive
        self._stop_timer()
        if self._slot is not None:
            if self._host is not None and self._host is self._slot.host and self._host.alive:
                self._slot.resting = False
                return self._slot
            self.unpin()
        slot = await self._queue.acquire(deadline, exclusive=True)
        self._slot, self._host = slot, slot.host
        return slot

    def release(self, slot: HostSlot) -> None:
        """End an attempt. The slot stays pinned for a while unless its host died."""
        if self._host is None or not self._host.alive:
            self.unpin()
        else:
            slot.resting = True
            self._rest = asyncio.get_running_loop().call_later(self._limits.rest, self.unpin)

    def unpin(self) -> None:
        self._stop_timer()
        slot, self._slot, self._host, self._held = self._slot, None, None, None
        if slot is not None:
            slot.resting = False
            self._queue.release(slot)

    def _stop_timer(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def encode_state(self, slots: Mapping[int, Artifact]) -> dict[str, Any]:
        """Return the whole state, or the delta to the one that the host holds."""
        self._sent_delta = self._held is not None
        held, self._held = self._held, None  # until an answer shows what became of it
        return full_state(slots) if held is None else state_delta(held, slots, name_base=True)

    def accept(self, slots: Mapping[int, Artifact], document: Mapping[str, Any]) -> bool:
        """Learn from an answer what the host holds. Returns False if it refused the delta."""
        if document.get("ok") is False and document.get("error") == "state_drift" and self._sent_delta:
            return False
        after = document.get("ds_state")
        if isinstance(after, dict) and after.get("delta") is True and document.get("idempotent_hit") is not True:
            try:
                self._held = apply_state(after, slots)
            except StateError:
                self._held = None
        return True


class _Attempt:
    """A call on its way, and what is known of it if it has to be cancelled."""

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
        """The error code of a caller that gets no answer."""
        return "outcome_unknown" if self.sent and not self.call.idempotent else None
