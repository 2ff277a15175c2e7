"""A pool of warm hosts for one plugin: exactly one result per call, also if hosts fail.

A call passes the authority check, the circuit breaker of its action, its idempotency key, the host queue, the lease and
the exchange. It sends its whole state, so that any host can execute it.

The breaker counts a call once, also after retries. It does not count calls that were lost to a neighbour, never sent,
given less time than the action may take, or refused by the host. The timeout of a call is the least of the pool's, the
action's and the caller's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
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
    ActionResult,
    CallRefused,
    DispatchError,
    ErrorCode,
    HostCall,
    call_problem,
    encode,
    failure,
    interpret_answer,
)
from manglecp.toolhost.dispatch.responses import HostLost, loss_error, lost_to_neighbour, may_repeat
from manglecp.toolhost.dispatch.rights import Right
from manglecp.toolhost.leases import Audit


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
        self._queue = HostQueue(default_pool_size(os.environ) if size is None else size, self._limits)
        self._supervisor = HostSupervisor(command, self._queue, self._limits, on_event)
        self._leases = LeaseIssuer(audit, on_pipe=command.issues_leases)
        self._single_use = command.single_use
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._cancelled: set[str] = set()
        self._entered = False
        self._loop = asyncio.get_running_loop()
        self._breakers = breakers or Breakers(self._loop.time)
        self._idempotency = IdempotencyTable(self._loop.time)

    async def __aenter__(self) -> Pool:
        if self._entered:
            raise RuntimeError("a pool is entered once; create another one")
        self._entered = True
        self._supervisor.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def healthy(self) -> int:
        """The number of hosts that accept calls, now or after the current one."""
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

    async def call(self, call: HostCall) -> ActionResult | DispatchError:
        """Run an action and return its answer or error. Raises only ``CancelledError``, if the task is cancelled."""
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
                return await self._try(attempt, deadline)
            return await self._idempotency.once(
                call,
                lambda: self._try(attempt, deadline),
                deadline=deadline,
                doubtful=lambda: attempt.code is not None,
            )
        except asyncio.CancelledError:
            # cancel() ended the call and not the task that awaits it; unless that was cancelled, too
            if call.call_id not in self._cancelled or task.uncancel() > cancelling:
                raise
            return failure(call.aid, "exception", "the call was cancelled", code=attempt.code or "cancelled")
        except Exception as error:  # IPC-32: errors of dispatch are returned, too
            return failure(call.aid, "exception", f"{type(error).__name__}: {error}", code=attempt.code)
        finally:
            if attempt.suspected:
                breaker.failed(permit)
            else:
                breaker.abandoned(permit)  # no effect if it succeeded
            del self._running[call.call_id]
            self._cancelled.discard(call.call_id)

    async def _try(self, attempt: _Attempt, deadline: float) -> ActionResult | DispatchError:
        """Send the call to one host after the other until one answers, or the loss is final."""
        call = attempt.call
        left = self._limits.attempts
        try:
            while True:
                slot = await self._queue.acquire(deadline, exclusive=call.exclusive or self._single_use)
                if self._single_use:
                    slot.replace()  # the next host starts while this one works
                try:
                    document = await self._exchange(slot, attempt, deadline)
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
                    self._queue.release(slot)
                result = interpret_answer(call, document)
                if isinstance(result, dict) and result["type"] == "not_found":
                    self._breakers.forget(call.aid)
                attempt.suspected = False
                attempt.breaker.succeeded(attempt.permit)
                return result
        except CallRefused as refused:
            return failure(call.aid, refused.kind, refused.detail, code=refused.code)

    async def _exchange(self, slot: HostSlot, attempt: _Attempt, deadline: float) -> dict[str, Any]:
        """Send the call and return the answer. A foreign host may require a lease first."""
        host, call = slot.host, attempt.call
        assert host is not None
        required: dict[str, Any] | None = None
        while True:
            token = await self._leases.issue(host, call, attempt.right, deadline, required)
            line = encode(call, token)
            attempt.sent = call.exclusive  # from here on the outcome is unknown if the caller cancels
            try:
                document = await host.exchange(
                    line,
                    deadline=deadline,
                    call_id=call.call_id,
                    shared=not call.exclusive,
                    hasty=attempt.hasty,
                    work_time=attempt.work_time,
                    last=self._single_use,
                )
            except HostLost as lost:
                self._leases.audit_loss(call, token, lost)
                raise
            self._leases.audit_answer(call, token, document)
            if required is not None or not self._leases.is_required(token, document):
                return document
            attempt.sent = False  # the host refused it without an effect
            required = document


@dataclass(slots=True)
class _Attempt:
    """A call in progress, and its outcome so far in case it is cancelled."""

    call: HostCall
    right: Right
    breaker: Breaker
    permit: Permit
    work_time: float
    hasty: bool
    sent: bool = False
    suspected: bool = False

    @property
    def code(self) -> ErrorCode | None:
        """The error code if the call ends without an answer."""
        return "outcome_unknown" if self.sent and not self.call.idempotent else None
