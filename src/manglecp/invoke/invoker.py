"""The invoker of a pack revision: invocation, cancellation, release and takeover of runs; and the worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from manglecp.intent import REVOKED, Domain, Identity, OfferService, macro_not_found
from manglecp.invoke.admission import (
    NUL,
    AdmissionService,
    AdmittedRun,
    CheckedInvocation,
    InvocationKey,
    args_digest,
    check_request_key,
    credential_not_valid,
    key_conflict,
)
from manglecp.invoke.approval import ApprovalService
from manglecp.invoke.calls import is_large
from manglecp.invoke.decision_log import DecisionContent, DecisionLog
from manglecp.invoke.decisions import DecisionService
from manglecp.invoke.errors import server_failure_error, shutdown_error
from manglecp.invoke.executor import Released
from manglecp.invoke.gate import check_policy_package
from manglecp.invoke.ownership import Ownership, OwnershipRegistry
from manglecp.invoke.permits import PermitService
from manglecp.invoke.preview import PreviewRunner
from manglecp.invoke.progress import RunObserver
from manglecp.invoke.recovery import Recovery
from manglecp.invoke.run_driver import RunDriver, RunResponse
from manglecp.pack import PackError, Profile
from manglecp.store import Fenced, KeyTaken, Store, StoreError
from manglecp.toolhost import Dispatcher
from manglecp.wire import WireError, read_eval_time
from manglecp.wire.messages import InvokeRequest, InvokeResponse

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class InvokeSettings:
    """Settings of a server for all packs; a pack's own are in the table ``[invocation]`` of its settings."""

    claim_ms: int = 15_000
    """How long a run stays owned by a process that sends no heartbeat."""
    most_takeovers: int = 5
    """After more takeovers without progress, a run waits for an operator's decision."""
    handover_ms: int = 3_000
    """How long a run that this process released may stay without an owner, before this process continues the run."""
    decision_content: DecisionContent = "full"
    """Whether the decision log has the inputs of decisions, or only their digests."""
    emit_decisions: bool = False
    """Whether decisions are also written to the log of the process, without their inputs and reasons."""


class _KeyedInvocation(NamedTuple):
    request_digest: str
    task: asyncio.Task[RunResponse]
    observer: RunObserver


class Invocations:
    """The invocations under way of one pack revision. Used from one event loop."""

    def __init__(self) -> None:
        self._detached_tasks: set[asyncio.Task[RunResponse]] = set()
        self._by_request_key: dict[tuple[str, str], _KeyedInvocation] = {}
        """The pending invocations, by identity and request key."""

    async def detach(self, work: Coroutine[Any, Any, RunResponse]) -> RunResponse:
        """Await ``work`` in a task of its own, which continues if the caller is cancelled."""
        return await asyncio.shield(self._start(work))

    async def attach(
        self, invocation: InvocationKey, observer: RunObserver, work: Coroutine[Any, Any, RunResponse]
    ) -> RunResponse:
        """Await ``work`` as :meth:`detach` does, or the invocation under way with the same request key.

        A caller that cancels also cancels an invocation that another caller started.
        """
        assert invocation.key is not None
        key = invocation.identity.name, invocation.key
        first = self._by_request_key.get(key)
        if first is None:
            task = self._start(work)
            self._by_request_key[key] = _KeyedInvocation(invocation.digest, task, observer)
            task.add_done_callback(lambda _: self._by_request_key.pop(key))
            return await asyncio.shield(task)
        work.close()  # a coroutine that is never awaited causes a warning
        if first.request_digest != invocation.digest:
            return key_conflict()

        def forward() -> None:
            if observer.cancelled:
                first.observer.cancel()

        observer.on_stop = forward
        forward()
        return await asyncio.shield(first.task)

    def cancel(self, identity: str, key: str) -> bool:
        """Cancel the invocation with this key; return False if there is none."""
        invocation = self._by_request_key.get((identity, key))
        if invocation is not None:
            invocation.observer.cancel()
        return invocation is not None

    async def drain(self) -> None:
        """Wait for all detached invocations."""
        while self._detached_tasks:
            await asyncio.wait(self._detached_tasks)

    def _start(self, work: Coroutine[Any, Any, RunResponse]) -> asyncio.Task[RunResponse]:
        task = asyncio.create_task(work)
        self._detached_tasks.add(task)
        task.add_done_callback(self._detached_tasks.discard)
        return task


class Invoker:
    """Runs the offers of one pack revision. An async context manager."""

    def __init__(
        self,
        offers: OfferService,
        store: Store,
        dispatcher: Dispatcher,
        *,
        refresh_identity: Callable[[Identity], Identity] = Identity.current_without_tokens,
        settings: InvokeSettings | None = None,
        sandbox: Profile = "strict",
        server_digest: str = "",
        clock: Callable[[], int] = time.time_ns,
        point: Callable[[str], object] = len,
    ) -> None:
        """Raise :class:`PackError` if no run could succeed under the policy package.

        ``refresh_identity`` returns an identity with the rights that its credential has now. ``sandbox`` is the profile
        of the hosts; ``server_digest`` covers what hosts can reach: an approval is valid where this digest is the same.
        ``clock`` returns nanoseconds since 1970. ``point`` is called with a name wherever a crash would matter: tests
        crash there.
        """
        domain = offers.domain
        self.offers = offers
        self._store = store
        self._settings = settings or InvokeSettings()
        if problems := check_policy_package(domain.pack, sandbox):
            raise PackError(problems)
        self._clock = clock
        self._refresh_identity = refresh_identity
        self._point = point
        self._ownership = OwnershipRegistry(store, self._settings.claim_ms)
        self.approvals = ApprovalService(store, clock, refresh_identity)
        settings = self._settings
        self.decision_log = DecisionLog(store, clock, settings.decision_content, emit=settings.emit_decisions)
        permits = PermitService(store, self.approvals, self.decision_log, clock)
        self.decisions = DecisionService(lambda: offers.domain, clock, self.decision_log, permits, refresh_identity)
        previews = PreviewRunner(lambda: offers.domain.pack, dispatcher, store)
        self._admission = AdmissionService(
            offers=offers,
            store=store,
            ownership=self._ownership,
            approvals=self.approvals,
            previews=previews,
            clock=clock,
            log=self.decision_log,
            server_digest=server_digest,
        )
        self._driver = RunDriver(
            offers,
            dispatcher,
            self._ownership,
            previews=previews,
            refresh_identity=refresh_identity,
            request_approval=self._admission.request_approval,
            log=self.decision_log,
            clock=clock,
            sandbox=sandbox,
            point=point,
        )
        self._recovery = Recovery(store, domain, offers.codec, self._driver.park)
        self._invocations = Invocations()
        self._run_tasks: set[asyncio.Task[Any]] = set()
        self._release_scope: Literal["all", "taken_over"] | None = None
        """The runs to release before their next step; ``taken_over``: only runs that this process took over."""
        self.settle: Callable[[], Awaitable[None]] = _no_wait
        """Awaited before the response of a run with effects, so that generated facts include the effects."""

    async def __aenter__(self) -> Self:
        self._ownership.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for the invocations under way."""
        await self._invocations.drain()
        await self._ownership.stop()
        await self.decision_log.drain()
        await self._store.writer.drain()

    @property
    def domain(self) -> Domain:
        """The domain with the newest facts."""
        return self.offers.domain

    async def invoke(
        self, request: InvokeRequest, identity: Identity, observer: RunObserver | None = None
    ) -> InvokeResponse:
        """Run an offer. Raises :class:`WireError` if there is no result.

        A run with effects or with a request key continues if the caller's task is cancelled; ``observer.cancel()``
        stops the run between two steps.
        """
        payload, identity = request.payload, self._refresh_identity(identity)
        if identity.trust == REVOKED:
            raise credential_not_valid()
        key = check_request_key(payload.request_key)
        eval_time = None if payload.eval_time is None else read_eval_time(payload.eval_time, self._clock)
        if NUL in payload.macro_id:
            raise macro_not_found()
        large, args = is_large(payload.args), payload.args
        digest = await asyncio.to_thread(args_digest, args) if large else args_digest(args)
        invocation = InvocationKey(identity, key, payload.macro_id, digest, eval_time)
        observer = observer or RunObserver()
        observer.leaving, observer.point = (lambda: self._release_scope == "all"), self._point
        if key is None:
            response = await self._check_and_run(request, invocation, observer)
        else:
            work = self._find_or_run(request, invocation, observer)
            response = await self._invocations.attach(invocation, observer, work)
        if isinstance(response, Exception):
            raise response
        return InvokeResponse(id=request.id, payload=response)

    async def _find_or_run(
        self, request: InvokeRequest, invocation: InvocationKey, observer: RunObserver
    ) -> RunResponse:
        assert invocation.key is not None
        run = await self._recovery.find(invocation.identity, invocation.key)
        if run is not None:
            return await self._await_first(run.run_id, run.request_digest, invocation.digest, observer)
        return await self._check_and_run(request, invocation, observer)

    async def _check_and_run(
        self, request: InvokeRequest, invocation: InvocationKey, observer: RunObserver
    ) -> RunResponse:
        payload = request.payload
        try:
            checked = await self._admission.check(payload, invocation, is_large=is_large(payload.args))
        except WireError as error:
            return error
        observer.tool = checked.plan.definition.tool
        if checked.plan.has_effects:
            return await self._invocations.detach(self._run(checked, invocation, observer))
        return await self._run(checked, invocation, observer)

    async def _run(self, checked: CheckedInvocation, invocation: InvocationKey, observer: RunObserver) -> RunResponse:
        try:
            admitted = await self._admission.accept(checked, invocation)
        except KeyTaken as taken:  # another server has just admitted the same request
            return await self._await_first(taken.run_id, taken.request_digest, invocation.digest, observer)
        except WireError as error:
            return error
        self._point("accepted")
        try:
            response = await self._execute(admitted, observer)
        except Released:
            return await self._await_handed_over(admitted, observer)
        except Fenced:  # the new owner records the response
            return await self._recovery.wait(admitted.admission.run, observer, keyed=_is_keyed(admitted))
        if admitted.plan.has_effects:
            await self.settle()
        if (earlier := admitted.journal.earlier_run) is not None:
            return await self._await_first(earlier.run_id, earlier.request_digest, invocation.digest, observer)
        return response

    async def cancel(self, identity: Identity, key: str) -> None:
        """Cancel the run of this key in any process. A run that has ended is not changed."""
        check_request_key(key)
        if self._invocations.cancel(identity.name, key):
            return
        run = await self._recovery.find(identity, key)
        if run is not None:
            await self._recovery.cancel(run)

    async def _execute(self, admitted: AdmittedRun, observer: RunObserver) -> RunResponse:
        """Execute a run and return its response. Raises :class:`Released`, and :class:`Fenced` after a takeover."""
        run, task = admitted.admission.run, asyncio.current_task()
        assert task is not None
        ownership = self._ownership.get(run) if admitted.plan.has_effects else None
        if self._recovery.closed:
            if ownership is not None:
                self._ownership.remove(ownership)
            return _shutdown_error(admitted)
        self._run_tasks.add(task)
        try:
            return await self._driver.drive(admitted, observer)
        except Released:
            if ownership is not None:
                await self._release(ownership)
            raise
        except asyncio.CancelledError:
            if not self._recovery.closed:
                raise
            task.uncancel()
            _log.warning("run %s is interrupted by the shutdown", run)
            return _shutdown_error(admitted)
        except Fenced:
            _log.warning("run %s was taken over by another worker", run)
            raise
        except StoreError as error:
            _log.error("run %s cannot be stored: %s", run, error)
            return server_failure_error(run, has_effects=admitted.plan.has_effects)
        except Exception:
            _log.exception("run %s failed in the server itself", run)
            return server_failure_error(run, has_effects=admitted.plan.has_effects)
        finally:
            self._run_tasks.discard(task)
            if ownership is not None:
                self._ownership.remove(ownership)

    # --- replacement and shutdown ------------------------------------------------------------------------------------

    def replace_by(self, current: Invoker) -> None:
        """Judge further effects of this pack revision's runs by the rules of the revision that replaced it."""
        self._driver.successor = current._driver

    def hand_over(self, *, awaited: bool = True) -> None:
        """Release runs to other processes, each before its next step.

        With ``awaited``, also runs that a client of this process waits for: this process then forwards the response of
        the other process. Without ``awaited``, only runs that this process took over.
        """
        self._release_scope = "all" if awaited else "taken_over"

    def leave(self) -> None:
        """Cancel all executions and waits. Runs stay in the journal.

        Their ownership expires instead of being released, because an effect may still be under way in a host.
        """
        self._recovery.closed = True
        for task in tuple(self._run_tasks):
            task.cancel()

    async def _await_handed_over(self, admitted: AdmittedRun, observer: RunObserver) -> RunResponse:
        """Wait for the end of a released run. If no other process takes the run over, this process does."""
        run = admitted.admission.run
        if await self._recovery.stays_unclaimed(run, self._settings.handover_ms / 1_000):
            observer.leaving = lambda: False  # this process keeps the run to its end
            await self.take_over(run, observer=observer)
        return await self._recovery.wait(run, observer, keyed=_is_keyed(admitted))

    async def _release(self, ownership: Ownership) -> None:
        with contextlib.suppress(StoreError):  # without a release, the ownership expires
            await self._store.writer.write(lambda tx: self._store.runs.release(tx, ownership.run, ownership.fence))

    async def _await_first(
        self, first_run: str, first_digest: str, request_digest: str, observer: RunObserver
    ) -> RunResponse:
        """Return the response of the first run with the same request key; an error if its tool or arguments differ."""
        if first_digest != request_digest:
            return key_conflict()
        return await self._recovery.wait(first_run, observer, keyed=True)

    async def take_over(self, run: str | None = None, *, observer: RunObserver | None = None) -> str | None:
        """Take over a run without an owner (only ``run``, if given), execute it, and return its id.

        Return None if there is no such run, or if another process took the run over meanwhile. The response is then
        not awaited: workers that wait for each other's runs could wait for ever.
        """
        before_write = time.monotonic()
        owned = await asyncio.to_thread(
            self._ownership.take_over, [self.domain.digest], self._settings.most_takeovers, run
        )
        if owned is None:
            return None
        ownership = self._ownership.add(owned.run.run_id, owned.run.fence, before_write)
        try:
            self._point("claimed")
            admitted = await asyncio.to_thread(self._recovery.restore, owned)
            await self._execute(
                admitted, observer or RunObserver(leaving=lambda: self._release_scope is not None, point=self._point)
            )
        except Released:
            _log.info("run %s is released to other workers", owned.run.run_id)
        except Fenced:
            return None
        finally:
            self._ownership.remove(ownership)  # if restore failed, _execute has not removed it
        return owned.run.run_id


async def _no_wait() -> None:
    """Return at once: the default of :attr:`Invoker.settle`, for packs without fact generators."""


def _is_keyed(admitted: AdmittedRun) -> bool:
    return admitted.admission.request_key_digest is not None


def _shutdown_error(admitted: AdmittedRun) -> WireError:
    return shutdown_error(admitted.admission.run, has_effects=admitted.plan.has_effects, keyed=_is_keyed(admitted))


class Worker:
    """Takes over and executes runs that have no owner."""

    def __init__(self, invokers: Sequence[Invoker], *, at_once: int = 4, pause: float = 1.0) -> None:
        """``at_once`` is the number of runs in parallel, ``pause`` the polling interval in seconds."""
        self._invokers = tuple(invokers)
        self._at_once = at_once
        self._pause = pause
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Stop taking over runs; :meth:`run` returns when those under way have ended."""
        self._stopped.set()

    async def run(self) -> None:
        """Take over runs until :meth:`stop`."""
        await asyncio.gather(*(self._poll() for _ in range(self._at_once)))

    async def drain(self) -> list[str]:
        """Take over the runs that have no owner now, one after the other, and return their ids."""
        runs = []
        while not self._stopped.is_set() and (run := await self._take_over_one()) is not None:
            runs.append(run)
        return runs

    async def _poll(self) -> None:
        while not self._stopped.is_set():
            run = None
            try:
                run = await self._take_over_one()
            except StoreError as error:
                _log.warning("the journal cannot be read: %s", error)
            except Exception:  # a defect of one run must not stop the worker
                _log.exception("a run could not be taken over")
            if run is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), self._pause)

    async def _take_over_one(self) -> str | None:
        for invoker in self._invokers:
            run = await invoker.take_over()
            if run is not None:
                _log.info("run %s was taken over", run)
                return run
        return None
