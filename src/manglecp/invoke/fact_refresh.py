"""Refresh of generated facts while a pack is served.

A task runs each fact generator when it is due: one execution is a *pass*. The pass and the evaluation of its changes
run in a thread; then the invoker gets the new domain in one assignment, so requests under way are not affected. Only
the response of a run with effects waits, for a limited time, for a pass that began after the effects.

A pass that fails leaves the facts unchanged. The failure is reported, and the pass repeated with increasing delays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

from manglecp.invoke.invoker import Invoker
from manglecp.mangle import MangleError
from manglecp.toolhost import FactGenerators, PassError

SETTLE_SECONDS: Final = 2.0
"""How long the response of a run with effects waits for a pass after them."""
_log = logging.getLogger(__name__)
OnStaleFacts = Callable[[str, str | None], None]
"""Called with the name of a generator, and why its facts are out of date; the reason is None once they are current."""


@contextlib.asynccontextmanager
async def refresh_facts(
    invoker: Invoker, generators: FactGenerators | None, on_stale: OnStaleFacts | None = None
) -> AsyncIterator[None]:
    """Refresh facts within the block. ``generators`` are those that the invoker's domain was loaded with."""
    if generators is None or not generators.names:
        yield
        return
    refresher = FactRefresher(invoker, generators, on_stale)
    task = asyncio.create_task(refresher.run())
    default_settle, invoker.settle = invoker.settle, refresher.settle
    try:
        yield
    finally:
        invoker.settle = default_settle
        task.cancel()
        await asyncio.to_thread(generators.close)  # a pass under way ends with its host
        with contextlib.suppress(asyncio.CancelledError):
            await task
        refresher.clear_failures()


class _WaitingResponse(NamedTuple):
    generators: set[str]  # the generators without a pass since the effects of the response
    settled: asyncio.Future[None]


class FactRefresher:
    def __init__(self, invoker: Invoker, generators: FactGenerators, on_stale: OnStaleFacts | None = None) -> None:
        self._invoker = invoker
        self._generators = generators
        self._on_stale = on_stale or (lambda _generator, _reason: None)
        self._failed_generators: set[str] = set()  # the generators whose last pass failed
        self._wake = asyncio.Event()
        self._waiting_responses: list[_WaitingResponse] = []

    async def run(self) -> None:
        """Run generators as they become due, until cancelled."""
        while True:
            name, seconds = self._generators.next()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), seconds)
            if self._wake.is_set():
                self._wake.clear()
                continue  # the wake-up may have made another generator due
            # Responses that begin to wait later have effects that this pass may miss.
            waiting_responses = tuple(self._waiting_responses)
            try:
                failure = await asyncio.to_thread(self._refresh, name)
            except Exception:
                _log.exception("a pass of %s failed in the server itself", name)
                failure = "the server failed"
            self._report(name, failure)
            for response in waiting_responses:
                response.generators.discard(name)
                if not response.generators and not response.settled.done():
                    response.settled.set_result(None)

    async def settle(self) -> None:
        """Wait until each generator has made another pass, at most ``SETTLE_SECONDS``; not for failed generators."""
        self._generators.make_due()
        working_generators = set(self._generators.names) - self._failed_generators
        if not working_generators:
            return
        response = _WaitingResponse(working_generators, asyncio.get_running_loop().create_future())
        self._waiting_responses.append(response)
        self._wake.set()
        try:
            await asyncio.wait_for(response.settled, SETTLE_SECONDS)
        except TimeoutError:
            _log.info("a response is sent before its effects are in the generated facts")
        finally:
            self._waiting_responses.remove(response)

    def clear_failures(self) -> None:
        """Report the facts of failed generators as current, because their pack revision is no longer served."""
        for name in tuple(self._failed_generators):
            self._report(name, None)

    def _refresh(self, name: str) -> str | None:
        """Run a generator and evaluate what it changed; return the reason of a failure, or None. Blocks."""
        try:
            result = self._generators.run_pass(name)
        except PassError as error:
            return error.message
        if not result.change.empty:
            try:
                delta = (result.added, result.removed, result.version)
                self._invoker.offers.change(lambda domain: domain.with_facts(*delta))
            except MangleError as error:
                self._generators.discard(result)
                return error.diagnostics[0].message
        self._generators.commit(result)
        return None

    def _report(self, name: str, failure: str | None) -> None:
        """Report the first failure of a generator, and its first success after that."""
        if (failure is not None) == (name in self._failed_generators):
            return  # the state of the generator has not changed
        if failure is None:
            self._failed_generators.remove(name)
        else:
            self._failed_generators.add(name)
            _log.warning("the facts of %s are not updated: %s", name, failure)
        self._on_stale(name, failure)
