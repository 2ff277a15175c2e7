"""The door: an invocation comes in, an answer goes out, and nothing between the two depends on who waits for it.

An invocation is *accepted* before it runs. With effects, accepting is one transaction: the run, the burnt confirmation
and the entry in the ledger are there, or none of them is; from then on the run is acknowledged and goes on even if
whoever asked is gone. A request key attaches a repeated request to the run it started the first time.

Runs that another process left behind are taken over from the journal (:meth:`Invoker.take_over`). A process that goes
hands its runs over between two steps (:meth:`Invoker.hand_over`), and when its time is up it leaves them as they are
(:meth:`Invoker.leave`), which is no worse for them than a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal, Self

import msgspec

from manglecp.harness.policy import PolicyPackage
from manglecp.intent import Domain, Identity, hiding, respond
from manglecp.invoke.admission import (
    AdmissionService,
    AdmittedRun,
    InvocationChecks,
    InvocationKey,
    checked_key,
    conflict,
)
from manglecp.invoke.announcing import Announced, Announcing
from manglecp.invoke.approval import AutoConfirm, Secrets
from manglecp.invoke.documents import Documents
from manglecp.invoke.errors import interrupted, left_behind
from manglecp.invoke.executor import Released
from manglecp.invoke.invocations import Invocations, Outcome
from manglecp.invoke.large_values import is_large, run_in_thread_if
from manglecp.invoke.ownership import Claim, Claims
from manglecp.invoke.progress import OnProgress, RunObserver
from manglecp.invoke.recovery import Recovery, RemoteRunWatcher
from manglecp.invoke.results import Answer
from manglecp.invoke.run_driver import RunDriver
from manglecp.invoke.settings import InvokeSettings
from manglecp.invoke.trial_run import refuse_unusable
from manglecp.pack import Profile
from manglecp.store import Fenced, KeyTaken, Store, StoreError
from manglecp.toolhost import Dispatcher
from manglecp.wire import WireError
from manglecp.wire.messages import IntentRequest, IntentResponse, InvokeRequest, InvokeResponse

__all__ = ["Invoker"]

_log = logging.getLogger(__name__)


class Invoker:
    """One edition of a pack, ready to be asked and invoked. An async context manager."""

    def __init__(
        self,
        domain: Domain,
        store: Store,
        dispatcher: Dispatcher,
        *,
        secrets: Secrets | None = None,
        auto_confirm: AutoConfirm | None = None,
        settings: InvokeSettings | None = None,
        sandbox: Profile = "strict",
        policies: Callable[[], PolicyPackage] | None = None,
        clock: Callable[[], int] = time.time_ns,
        point: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``sandbox`` is the profile that the hosts run in; ``policies`` gives the policy package that is loaded at
        that moment; ``point`` is told of the moments at which a crash would matter.

        :class:`manglecp.pack.diagnostics.PackError` if no run could ever end well under the policies.
        """
        self.domain = domain
        self._store = store
        self._settings = settings or InvokeSettings()
        self._limits = domain.pack.settings.invocation
        in_force = policies or (lambda: domain.pack.governance)
        refuse_unusable(domain.pack, in_force(), sandbox)
        self._clock = clock
        self._point = point
        self._documents = Documents(domain.pack)
        self._announcing = Announcing(store, self._documents, domain.digest, self._limits.retention_ms)
        self._checks = InvocationChecks(
            pack_digest=domain.digest,
            actions=domain.pack.actions,
            secrets=secrets or Secrets(),
            auto_confirm=auto_confirm or AutoConfirm(),
            hide=hiding(domain.pack),
            documents=self._documents,
        )
        self._claims = Claims(store, self._settings.claim_ms)
        self._admission = AdmissionService(
            pack_digest=domain.digest,
            actions=domain.pack.actions,
            documents=self._documents,
            policies=in_force,
            store=store,
            claims=self._claims,
        )
        self._driver = RunDriver(
            lambda: self.domain, dispatcher, self._claims, policies=in_force, sandbox=sandbox, point=point
        )
        self._recovery = Recovery(store, self._documents, domain.pack.actions)
        self._remote = RemoteRunWatcher(store, domain.digest, self._recovery, self._driver.park)
        self._invocations = Invocations(
            self._answer, clock=clock, leaving=lambda: self._handing_over == "all", point=point
        )
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
        await self._invocations.over()
        await self._claims.end()
        await self._store.writer.drain()

    # --- intents -----------------------------------------------------------------------------------------------------

    async def evaluate(self, request: IntentRequest, identity: Identity) -> IntentResponse:
        """The answer to an intent. Its tools can be invoked by this identity from now on."""
        return await asyncio.to_thread(self._evaluate, request, identity)

    def _evaluate(self, request: IntentRequest, identity: Identity) -> IntentResponse:
        response, announced = self.answer(request, identity)
        [failed] = self.announce([announced])
        if failed is not None:
            raise failed
        return response

    def answer(self, request: IntentRequest, identity: Identity) -> tuple[IntentResponse, Announced]:
        """The answer to an intent, in this thread. It is not given before its tools have been announced."""
        now_ns = self._clock()
        domain = self.domain
        found = respond(domain, request, identity, lambda: now_ns)
        told = Announced(request, identity, found.definitions, now_ns, self._now_ms(), domain.facts_version)
        return found.response, told

    def announce(self, announced: Sequence[Announced]) -> list[Exception | None]:
        """Identities can invoke these tools from now on; for each what failed, if anything did. In this thread."""
        return self._announcing.keep(announced)

    def renew(self, domain: Domain) -> None:
        """Answer by other facts of the same pack from now on. Whoever is being answered hears of those before.

        Tools that were announced can be invoked as before; what policy says of their effects, it says by these facts.
        """
        if domain.digest != self.domain.digest:
            raise ValueError("another edition of a pack has an invoker of its own")
        self.domain = domain

    # --- invocations -------------------------------------------------------------------------------------------------

    async def invoke(
        self,
        request: InvokeRequest,
        identity: Identity,
        *,
        progress: OnProgress | None = None,
        cancel: asyncio.Event | None = None,
        named: Callable[[str], None] | None = None,
    ) -> InvokeResponse:
        """The answer to an invocation; a :class:`WireError` if there is none.

        ``progress`` is told how far it is. ``cancel`` asks to stop, which happens between steps. ``named`` is told the
        name of the tool, if it is carried out here.
        """
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        told = partial(_unless_gone, answer)
        self.ask(request, identity, told, progress=progress, cancel=cancel, named=named)
        outcome = await answer
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def ask(
        self,
        request: InvokeRequest,
        identity: Identity,
        answered: Callable[[Outcome], None],
        *,
        progress: OnProgress | None = None,
        cancel: asyncio.Event | None = None,
        named: Callable[[str], None] | None = None,
    ) -> None:
        """The same for who does not wait: ``answered`` is called with what came of it, once, in the context of this
        call. Whoever asked may go away; what was accepted goes on."""
        self._invocations.ask(request, identity, answered, progress=progress, cancel=cancel, named=named)

    async def _answer(self, request: InvokeRequest, asked: InvocationKey, watch: RunObserver) -> Answer:
        identity = asked.identity
        if asked.key is not None:
            run = await self._remote.find(identity, asked.key)
            if run is not None:
                return await self._of_another(run.run_id, run.request_digest, asked.digest, watch)
        try:
            kept = await self._store.writer.read(
                lambda tx: self._store.registry.find(tx, identity.name, request.payload.macro_id, self._now_ms())
            )
            given = kept, request.payload, asked.args_digest, identity, self._now_ms()
            checked = await run_in_thread_if(is_large(request.payload.args), self._checks.check, *given)
            watch.named(checked.definition.tool)
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
            return await self._remote.wait(accepted.admission.run, watch, keyed=_keyed(accepted))
        if accepted.plan.has_effects:
            await self.settle()
        if accepted.first:  # a chain without effects that ran twice has one answer all the same
            first = accepted.first[0]
            return await self._of_another(first.run_id, first.request_digest, asked.digest, watch)
        return answer

    async def cancel(self, identity: Identity, key: str) -> None:
        """Ask the run of this key to stop, wherever it is carried out. What is over stays as it is."""
        checked_key(key)
        if self._invocations.stop(identity, key):
            return
        run = await self._remote.find(identity, key)
        if run is not None:
            await self._remote.cancel(run)

    # --- carrying out ------------------------------------------------------------------------------------------------

    async def _carry_out(self, accepted: AdmittedRun, watch: RunObserver) -> Answer:
        """Return the answer to a run. Raises :class:`Released` if it was handed over, :class:`Fenced` if lost."""
        run, task = accepted.admission.run, asyncio.current_task()
        assert task is not None
        claim = self._claims.of(run)
        if self._remote.closed:
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
            if not self._remote.closed:
                raise
            task.uncancel()
            _log.warning("run %s is left as it is", run)
            return _left_behind(accepted)
        except Fenced:
            _log.warning("run %s was taken over by another carrier", run)
            raise
        except StoreError as error:
            _log.error("run %s cannot be written down: %s", run, error)
            return interrupted(run, acknowledged=accepted.plan.has_effects)
        except Exception:
            _log.exception("run %s failed in the server itself", run)
            return interrupted(run, acknowledged=accepted.plan.has_effects)
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
        self._remote.closed = True
        for task in tuple(self._carriers):
            task.cancel()

    async def _elsewhere(self, accepted: AdmittedRun, watch: RunObserver) -> Answer:
        """Wait for the end of a run that was handed over. If nobody wants it, it ends here all the same."""
        run = accepted.admission.run
        if await self._remote.is_unclaimed(run, self._settings.handover_ms / 1_000):
            await self.take_over(run, watch=msgspec.structs.replace(watch, leaving=lambda: False))
        return await self._remote.wait(run, watch, keyed=_keyed(accepted))

    async def _release(self, claim: Claim) -> None:
        with contextlib.suppress(StoreError):  # it lapses by itself
            await self._store.writer.write(lambda tx: self._store.runs.release(tx, claim.run, claim.fence))

    # --- runs of others ----------------------------------------------------------------------------------------------

    async def _of_another(self, run: str, its: str, asked: str, watch: RunObserver) -> Answer:
        return await self._remote.wait(run, watch, keyed=True) if its == asked else conflict()

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

    # --- small things ------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._clock() // 1_000_000


async def _at_once() -> None:
    """Nothing is found out that effects could change."""


def _unless_gone(waiting: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not waiting.done():
        waiting.set_result(outcome)


def _keyed(accepted: AdmittedRun) -> bool:
    return accepted.admission.request_key_digest is not None


def _left_behind(accepted: AdmittedRun) -> WireError:
    return left_behind(accepted.admission.run, acknowledged=accepted.plan.has_effects, keyed=_keyed(accepted))
