"""A pool of warm hosts for one plugin: exactly one result per call, also if hosts fail.

A call passes the authority check, the circuit breaker of its action, its idempotency key, the host queue, the lease and
the exchange with a host. The request contains its whole state, so that any host can execute it.

The breaker counts a call once, also after retries. It counts no failure if the call was never sent, if the host refused
the call, or if the caller waits for less time than the action may take. The timeout of a call is the shortest of those
of the pool, the action and the caller.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any, Final, TypedDict, Unpack

from manglecp.base.redaction import SecretValue
from manglecp.pack import SecretError, SecretProvider
from manglecp.toolhost.dispatch.breakers import Breaker, Breakers, Permit
from manglecp.toolhost.dispatch.hosts import HostQueue, HostSlot, HostSupervisor, OnOutage
from manglecp.toolhost.dispatch.idempotency import IdempotencyTable
from manglecp.toolhost.dispatch.launch import (
    HostCommand,
    PoolLimits,
    check_settings,
    default_pool_size,
    default_timeout,
)
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
from manglecp.toolhost.dispatch.process import HostProcess
from manglecp.toolhost.dispatch.responses import HostLost, loss_error, may_repeat
from manglecp.toolhost.dispatch.rights import LeaseIssuer, Right
from manglecp.toolhost.leases import Audit

# Every value that a host has received, rotated ones too, is redacted until the host ends; with more, it is replaced.
_MAX_SECRET_VALUES: Final = 64


class PoolOptions(TypedDict, total=False):
    """Options of a pool."""

    size: int | None
    """The number of hosts; None: that of the environment."""
    timeout: float | None
    """The seconds that a call may take; None: those of the environment."""
    limits: PoolLimits | None
    breakers: Breakers | None
    audit: Audit | None
    """Called with each lease that is granted."""
    on_outage: OnOutage
    """Called with the reason when no host can be started, and with None when a host is up again."""
    secrets: SecretProvider | None
    """The secrets of actions; None: environment variables."""


class Pool:
    """Hosts for one plugin; an async context manager."""

    def __init__(self, command: HostCommand, **options: Unpack[PoolOptions]) -> None:
        size, timeout = options.get("size"), options.get("timeout")
        check_settings(size, timeout)
        self._timeout = default_timeout(os.environ) if timeout is None else timeout
        self._limits = options.get("limits") or PoolLimits()
        size = default_pool_size(os.environ) if size is None else size
        self._queue = HostQueue(size, self._limits, options.get("on_outage"), concurrency=command.concurrency)
        self._secrets = options.get("secrets") or SecretProvider()
        self._supervisor = HostSupervisor(command, self._queue, self._limits, self._secrets)
        self._leases = LeaseIssuer(options.get("audit"), on_pipe=command.issues_leases)
        self._single_use = command.single_use
        self._tasks: dict[str, asyncio.Task[Any]] = {}  # the tasks of running calls, by call id
        self._cancelled: set[str] = set()  # call ids
        self._entered = False
        self._loop = asyncio.get_running_loop()
        self._breakers = options.get("breakers") or Breakers(self._loop.time)
        self._idempotency = IdempotencyTable(self._loop.time)

    async def __aenter__(self) -> Pool:
        if self._entered:
            raise RuntimeError("a pool is entered once; create another one")
        self._entered = True
        self._supervisor.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every host. Waiting calls are refused; running calls are lost with their hosts."""
        self._queue.close()
        await self._supervisor.close()

    def cancel(self, call_id: str) -> bool:
        """Cancel a call: its caller gets an error. Returns whether there was such a call."""
        task = self._tasks.get(call_id)
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
        if call.call_id in self._tasks:
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
        work_seconds = self._timeout if call.timeout is None else min(call.timeout, self._timeout)
        wait_seconds = work_seconds if call.wait_timeout is None else min(call.wait_timeout, work_seconds)
        deadline = self._loop.time() + wait_seconds
        running = _RunningCall(call, right, breaker, permit, impatient=wait_seconds < work_seconds)
        task = asyncio.current_task(self._loop)
        assert task is not None
        earlier_cancellations = task.cancelling()
        self._tasks[call.call_id] = task
        try:
            if wait_seconds == 0:
                return failure(call.aid, "timeout", "the deadline is over; nothing was sent")
            if not call.idempotency_key:
                return await self._run_attempts(running, deadline)
            return await self._idempotency.once(
                call,
                lambda: self._run_attempts(running, deadline),
                deadline=deadline,
                outcome_unknown=lambda: running.code_if_unanswered is not None,
            )
        except asyncio.CancelledError:
            # Pool.cancel() ends only this call. The error is raised only if the caller's own task was cancelled.
            if call.call_id not in self._cancelled or task.uncancel() > earlier_cancellations:
                raise
            code = running.code_if_unanswered or "cancelled"
            return failure(call.aid, "exception", "the call was cancelled", code=code, sent=running.sent)
        except Exception as error:  # errors of dispatch itself are returned, too
            detail = f"{type(error).__name__}: {error}"
            return failure(call.aid, "exception", detail, code=running.code_if_unanswered, sent=running.sent)
        finally:
            if running.suspected:
                breaker.failed(permit)
            else:
                breaker.abandoned(permit)  # does nothing after succeeded()
            del self._tasks[call.call_id]
            self._cancelled.discard(call.call_id)

    async def _run_attempts(self, running: _RunningCall, deadline: float) -> ActionResult | DispatchError:
        """Send the call to one host after the other until one answers, or the call must not be repeated."""
        call = running.call
        attempts_left = self._limits.attempts
        try:
            secrets = await self._read_secrets(call, deadline) if call.secrets else []
            while True:
                slot = await self._queue.acquire(deadline)
                host = slot.host
                if _is_outdated(host, call, secrets):
                    self._queue.release(slot)
                    secrets = await self._read_secrets(call, deadline)  # those of the host may be the newer ones
                    if slot.host is host and _is_outdated(host, call, secrets):
                        slot.retire()
                    continue
                if self._single_use:
                    slot.request_successor()  # starts while this host works
                try:
                    document = await self._exchange(slot, running, secrets, deadline)
                except HostLost as lost:
                    running.sent = lost.sent
                    running.suspected = running.suspected or lost.suspect
                    attempts_left -= 1
                    if attempts_left and may_repeat(call, lost, is_probe=running.permit.is_probe):
                        continue
                    return loss_error(call, lost)
                finally:
                    slot.count_call(self._limits)
                    self._queue.release(slot)
                result = interpret_answer(call, document)
                running.suspected = False
                running.breaker.succeeded(running.permit)
                return result
        except CallRefused as refused:
            return failure(call.aid, refused.kind, refused.detail, code=refused.code)

    async def _read_secrets(self, call: HostCall, deadline: float) -> list[SecretValue]:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._loop.run_in_executor(self._secrets.executor, self._secrets.values, call.secrets)
        except SecretError as error:
            raise CallRefused("exception", str(error), "no_secret") from None
        except TimeoutError:
            raise CallRefused("timeout", "the deadline passed while the secrets were read; nothing was sent") from None

    async def _exchange(
        self, slot: HostSlot, running: _RunningCall, secrets: list[SecretValue], deadline: float
    ) -> dict[str, Any]:
        """Send the call and return the answer.

        A foreign host issues its own leases: if it requires one, the call is sent again with a lease of that host.
        """
        host, call = slot.host, running.call
        assert host is not None
        required_tier: int | None = None  # the tier of the lease that a foreign host requires
        while True:
            token = await self._leases.issue(host, call, running.right, deadline, required_tier)
            line = encode(call, token, secrets)
            host.secrets.update(secrets)
            if len(host.secrets) > _MAX_SECRET_VALUES:
                slot.request_successor()
            running.sent = call.above_tier_0  # from here on, a cancelled call above tier 0 may have had an effect
            document = await host.exchange(
                line,
                deadline=deadline,
                call_id=call.call_id,
                impatient=running.impatient,
                last=self._single_use,
                on_report=call.on_report,
            )
            if token is not None or required_tier is not None:
                return document
            required_tier = self._leases.required_tier(call, document)
            if required_tier is None:
                return document
            running.sent = False  # the host refused the call without an effect


def _is_outdated(host: HostProcess | None, call: HostCall, secrets: list[SecretValue]) -> bool:
    """Return whether the lifespan of the host got other values than ``secrets``."""
    names = {use.name for use in call.secrets if use.at_start}
    return bool(names) and host is not None and host.start_secrets != {each for each in secrets if each.name in names}


@dataclass(slots=True)
class _RunningCall:
    """A call in progress, and what is known of its outcome."""

    call: HostCall
    right: Right
    breaker: Breaker
    permit: Permit
    impatient: bool  # the caller waits for less time than the action may take
    sent: bool = False  # a host may have received the call, and has not answered; at tier 0, set only for a lost host
    suspected: bool = False  # a host was lost during this call, and no other host has answered since

    @property
    def code_if_unanswered(self) -> ErrorCode | None:
        """The error code if the call ends now, without an answer."""
        return "outcome_unknown" if self.sent and not self.call.idempotent else None
