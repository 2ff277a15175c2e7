"""How runs are carried out here. What belongs to the pack stands in its ``[invocation]``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import msgspec

from manglecp.intent import Domain, Identity, OfferService
from manglecp.invoke.admission import (
    NUL,
    AdmissionService,
    AdmittedRun,
    CheckedInvocation,
    InvocationKey,
    args_digest,
    check_request_key,
    key_conflict,
    macro_not_found,
)
from manglecp.invoke.approval import AutoConfirm, Secrets
from manglecp.invoke.calls import is_large, run_in_thread_if
from manglecp.invoke.errors import server_failure_error, shutdown_error
from manglecp.invoke.executor import Released
from manglecp.invoke.gate import check_policy_package
from manglecp.invoke.ownership import Ownership, OwnershipRegistry
from manglecp.invoke.progress import RunObserver
from manglecp.invoke.recovery import Recovery
from manglecp.invoke.results import RunResponse
from manglecp.invoke.run_driver import RunDriver
from manglecp.pack import PackError, Profile
from manglecp.store import Fenced, KeyTaken, Store, StoreError
from manglecp.toolhost import Dispatcher
from manglecp.wire import WireError, read_eval_time
from manglecp.wire.messages import InvokeRequest, InvokeResponse

# --- settings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InvokeSettings:
    """For one server; the defaults suit processes that share a store."""

    claim_ms: int = 15_000
    """For how long a run belongs to a process that does not say that it is still there."""
    most_takeovers: int = 5
    """A run that changed hands more often without getting on is left to a person."""
    handover_ms: int = 3_000
    """How long others have to claim a run that this process would rather leave to them, before it goes on itself."""


# --- invocations ---------------------------------------------------------------------------------------------------


class _Keyed(NamedTuple):
    request_digest: str
    task: asyncio.Task[RunResponse]
    cancelled: asyncio.Event


class Invocations:
    """Those of one revision of a pack. Used from one event loop."""

    def __init__(self) -> None:
        self._detached: set[asyncio.Task[RunResponse]] = set()
        self._keyed: dict[tuple[str, str], _Keyed] = {}
        """By identity and request key."""

    async def detach(self, work: Coroutine[Any, Any, RunResponse]) -> RunResponse:
        """Run ``work`` in a task of its own, which goes on if the caller is cancelled."""
        return await asyncio.shield(self._start(work))

    async def attach(
        self, asked: InvocationKey, cancelled: asyncio.Event, work: Coroutine[Any, Any, RunResponse]
    ) -> RunResponse:
        """Detach ``work``, or wait for the request with the same key that is under way."""
        assert asked.key is not None
        key = asked.identity.name, asked.key
        first = self._keyed.get(key)
        if first is None:
            task = self._start(work)
            self._keyed[key] = _Keyed(asked.digest, task, cancelled)
            task.add_done_callback(lambda _: self._keyed.pop(key))
            return await asyncio.shield(task)
        work.close()
        if first.request_digest != asked.digest:
            return key_conflict()
        stopping = asyncio.create_task(cancelled.wait())
        try:
            await asyncio.wait((first.task, stopping), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                first.cancelled.set()
        finally:
            stopping.cancel()
        return await asyncio.shield(first.task)

    def cancel(self, identity: str, key: str) -> bool:
        """Cancel the invocation with this key; False if there is none."""
        first = self._keyed.get((identity, key))
        if first is not None:
            first.cancelled.set()
        return first is not None

    async def drain(self) -> None:
        """Wait until all detached invocations have ended."""
        while self._detached:
            await asyncio.wait(self._detached)

    def _start(self, work: Coroutine[Any, Any, RunResponse]) -> asyncio.Task[RunResponse]:
        task = asyncio.create_task(work)
        self._detached.add(task)
        task.add_done_callback(self._detached.discard)
        return task


# --- invoker -------------------------------------------------------------------------------------------------------

_log = logging.getLogger(__name__)


class Invoker:
    """Runs the offers of one revision of a pack. An async context manager."""

    def __init__(
        self,
        offers: OfferService,
        store: Store,
        dispatcher: Dispatcher,
        *,
        secrets: Secrets | None = None,
        auto_confirm: AutoConfirm | None = None,
        settings: InvokeSettings | None = None,
        sandbox: Profile = "strict",
        clock: Callable[[], int] = time.time_ns,
        point: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``sandbox`` is the profile that the hosts run in; ``point`` is called at the moments at which a crash would
        matter. Raises :class:`PackError` if no run could ever end well under the policies."""
        domain = offers.domain
        self.offers = offers
        self._store = store
        self._settings = settings or InvokeSettings()
        if problems := check_policy_package(domain.pack, sandbox):
            raise PackError(problems)
        self._clock = clock
        self._point = point
        self._claims = OwnershipRegistry(store, self._settings.claim_ms)
        self._admission = AdmissionService(
            pack=domain.pack,
            pack_digest=domain.digest,
            codec=offers.codec,
            store=store,
            claims=self._claims,
            secrets=secrets or Secrets(),
            auto_confirm=auto_confirm or AutoConfirm(),
        )
        self._driver = RunDriver(lambda: offers.domain, dispatcher, self._claims, sandbox=sandbox, point=point)
        self._recovery = Recovery(store, domain, offers.codec, self._driver.park)
        self._invocations = Invocations()
        self._carriers: set[asyncio.Task[Any]] = set()
        """Those that carry out a run at this moment."""
        self._handing_over: Literal["all", "taken"] | None = None
        self.settle: Callable[[], Awaitable[None]] = _at_once
        """What an answer about effects waits for: whoever gets it and asks again is to be answered by what they did."""

    async def __aenter__(self) -> Self:
        self._claims.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Runs that are under way end first."""
        await self._invocations.drain()
        await self._claims.end()
        await self._store.writer.drain()

    @property
    def domain(self) -> Domain:
        """With the newest facts."""
        return self.offers.domain

    # --- invocations -------------------------------------------------------------------------------------------------

    async def invoke(
        self,
        request: InvokeRequest,
        identity: Identity,
        observer: RunObserver | None = None,
    ) -> InvokeResponse:
        """Run an offer. Raises :class:`WireError` if there is no result.

        A run with effects, or with a request key, goes on if the caller is cancelled. Setting ``observer.cancelled``
        stops it between two steps.
        """
        payload = request.payload
        key = check_request_key(payload.request_key)
        now_ns = self._clock() if payload.eval_time is None else read_eval_time(payload.eval_time, self._clock)
        if NUL in payload.macro_id:
            raise macro_not_found()
        digested = await run_in_thread_if(is_large(payload.args), args_digest, payload.args)
        asked = InvocationKey(identity, key, payload.macro_id, digested, now_ns)
        watch = observer or RunObserver()
        watch.leaving, watch.point = (lambda: self._handing_over == "all"), self._point
        if key is None:
            answer = await self._answer(request, asked, watch)
        else:
            answer = await self._invocations.attach(asked, watch.cancelled, self._answer_keyed(request, asked, watch))
        if isinstance(answer, Exception):
            raise answer
        return InvokeResponse(id=request.id, payload=answer)

    async def _answer_keyed(self, request: InvokeRequest, asked: InvocationKey, watch: RunObserver) -> RunResponse:
        assert asked.key is not None
        run = await self._recovery.find(asked.identity, asked.key)
        if run is not None:
            return await self._of_another(run.run_id, run.request_digest, asked.digest, watch)
        return await self._answer(request, asked, watch)

    async def _answer(self, request: InvokeRequest, asked: InvocationKey, watch: RunObserver) -> RunResponse:
        payload = request.payload
        try:
            kept = await self.offers.find(asked.identity.name, payload.macro_id)
            given = kept, payload, asked, self._clock() // 1_000_000
            checked = await run_in_thread_if(is_large(payload.args), self._admission.check, *given)
        except WireError as error:
            return error
        watch.tool = checked.plan.definition.tool
        if checked.plan.has_effects:
            return await self._invocations.detach(self._run(checked, asked, watch))
        return await self._run(checked, asked, watch)

    async def _run(self, checked: CheckedInvocation, asked: InvocationKey, watch: RunObserver) -> RunResponse:
        try:
            accepted = await self._admission.accept(checked, asked)
        except KeyTaken as taken:  # by the same request, at another server, a moment ago
            return await self._of_another(taken.run_id, taken.request_digest, asked.digest, watch)
        except WireError as error:
            return error
        self._point("accepted")
        try:
            answer = await self._carry_out(accepted, watch)
        except Released:
            return await self._elsewhere(accepted, watch)
        except Fenced:
            return await self._recovery.wait(accepted.admission.run, watch, keyed=_keyed(accepted))
        if accepted.plan.has_effects:
            await self.settle()
        if (first := accepted.first) is not None:  # a chain without effects that ran twice has one response
            return await self._of_another(first.run_id, first.request_digest, asked.digest, watch)
        return answer

    async def cancel(self, identity: Identity, key: str) -> None:
        """Ask the run of this key to stop, wherever it is carried out. What is over stays as it is."""
        check_request_key(key)
        if self._invocations.cancel(identity.name, key):
            return
        run = await self._recovery.find(identity, key)
        if run is not None:
            await self._recovery.cancel(run)

    # --- carrying out ------------------------------------------------------------------------------------------------

    async def _carry_out(self, accepted: AdmittedRun, watch: RunObserver) -> RunResponse:
        """Return the answer to a run. Raises :class:`Released` if it was handed over, :class:`Fenced` if lost."""
        run, task = accepted.admission.run, asyncio.current_task()
        assert task is not None
        claim = self._claims.of(run)
        if self._recovery.closed:
            if claim is not None:
                self._claims.drop(claim)
            return _left_behind(accepted)
        self._carriers.add(task)
        try:
            return await self._driver.drive(accepted, watch)
        except Released:
            if claim is not None:
                await self._release(claim)
            raise
        except asyncio.CancelledError:
            if not self._recovery.closed:
                raise
            task.uncancel()
            _log.warning("run %s is left as it is", run)
            return _left_behind(accepted)
        except Fenced:
            _log.warning("run %s was taken over by another carrier", run)
            raise
        except StoreError as error:
            _log.error("run %s cannot be written down: %s", run, error)
            return server_failure_error(run, acknowledged=accepted.plan.has_effects)
        except Exception:
            _log.exception("run %s failed in the server itself", run)
            return server_failure_error(run, acknowledged=accepted.plan.has_effects)
        finally:
            self._carriers.discard(task)
            if claim is not None:
                self._claims.drop(claim)

    # --- the end -----------------------------------------------------------------------------------------------------

    def hand_over(self, *, awaited: bool = True) -> None:
        """Leave runs to other processes, each before its next step; only those that were taken over, or also those
        that somebody waits for here? Who does hears how it ended there."""
        self._handing_over = "all" if awaited else "taken"

    def leave(self) -> None:
        """Wait for nothing more. Runs stay as they are on record; their claims lapse when this process and its hosts
        are gone, and not earlier: an effect may still be under way."""
        self._recovery.closed = True
        for task in tuple(self._carriers):
            task.cancel()

    async def _elsewhere(self, accepted: AdmittedRun, watch: RunObserver) -> RunResponse:
        """Wait for the end of a run that was handed over. If nobody wants it, it ends here all the same."""
        run = accepted.admission.run
        if await self._recovery.is_unclaimed(run, self._settings.handover_ms / 1_000):
            await self.take_over(run, watch=msgspec.structs.replace(watch, leaving=lambda: False))
        return await self._recovery.wait(run, watch, keyed=_keyed(accepted))

    async def _release(self, claim: Ownership) -> None:
        with contextlib.suppress(StoreError):  # it lapses by itself
            await self._store.writer.write(lambda tx: self._store.runs.release(tx, claim.run, claim.fence))

    # --- runs of others ----------------------------------------------------------------------------------------------

    async def _of_another(self, run: str, its: str, asked: str, watch: RunObserver) -> RunResponse:
        return await self._recovery.wait(run, watch, keyed=True) if its == asked else key_conflict()

    async def take_over(self, run: str | None = None, *, watch: RunObserver | None = None) -> str | None:
        """Claim a run that nobody carries out any more (or this one), and carry it out; its id.

        None if there is none, or if it was lost on the way: a worker that waited for its end could wait for ever, since
        all that could claim it may wait as well.
        """
        since = time.monotonic()
        claimed = await asyncio.to_thread(self._claims.take, [self.domain.digest], self._settings.most_takeovers, run)
        if claimed is None:
            return None
        claim = self._claims.hold(claimed.run.run_id, claimed.run.fence, since)
        try:
            self._point("claimed")
            accepted = await asyncio.to_thread(self._recovery.restore, claimed)
            await self._carry_out(
                accepted, watch or RunObserver(leaving=lambda: self._handing_over is not None, point=self._point)
            )
        except Released:
            _log.info("run %s is left to others", claimed.run.run_id)
        except Fenced:
            return None
        finally:
            self._claims.drop(claim)  # whoever cannot read it does not keep it from others
        return claimed.run.run_id


async def _at_once() -> None:
    """Nothing is found out that effects could change."""


def _keyed(accepted: AdmittedRun) -> bool:
    return accepted.admission.request_key_digest is not None


def _left_behind(accepted: AdmittedRun) -> WireError:
    return shutdown_error(accepted.admission.run, acknowledged=accepted.plan.has_effects, keyed=_keyed(accepted))


class Worker:
    """Runs of some packs, a few at a time."""

    def __init__(self, invokers: Sequence[Invoker], *, at_once: int = 4, pause: float = 1.0) -> None:
        """``pause``: seconds between two looks at the journal while there is nothing to do."""
        self._invokers = tuple(invokers)
        self._at_once = at_once
        self._pause = pause
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Claim nothing more; runs under way end first."""
        self._stopped.set()

    async def run(self) -> None:
        """Until :meth:`stop`."""
        await asyncio.gather(*(self._loop() for _ in range(self._at_once)))

    async def drain(self) -> list[str]:
        """Take over what there is to claim now, until :meth:`stop`; the ids of the runs."""
        taken = []
        while not self._stopped.is_set() and (run := await self._one()) is not None:
            taken.append(run)
        return taken

    async def _loop(self) -> None:
        while not self._stopped.is_set():
            run = None
            try:
                run = await self._one()
            except StoreError as error:
                _log.warning("the journal cannot be read: %s", error)
            except Exception:  # of one run; the others are not to wait for somebody who looks
                _log.exception("a run could not be taken over")
            if run is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), self._pause)

    async def _one(self) -> str | None:
        """The run that was taken over, if there was one."""
        for invoker in self._invokers:
            run = await invoker.take_over()
            if run is not None:
                _log.info("run %s was taken over", run)
                return run
        return None
