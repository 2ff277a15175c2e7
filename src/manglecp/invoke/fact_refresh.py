"""Keeping what a pack has found out up to date while it is served.

A task asks each generator when it is due. A pass runs in a thread, and so does working out what follows from what it
changed; then the invoker gets another domain, in one step. Nobody who is being answered notices, and nobody waits for a
pass, but for those who have changed something: their answer comes after a look at it, if that does not take long.

A pass that fails leaves everything as it was, is told, and is tried again, ever later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from manglecp.invoke.invoker import Invoker
from manglecp.mangle import MangleError
from manglecp.toolhost import FactGenerators, PassError

SETTLE_SECONDS: Final = 2.0
"""Seconds that an answer about effects waits for a look at them."""
_log = logging.getLogger(__name__)
OnStaleFacts = Callable[[str, str | None], None]
"""Told the name of a generator, and why its facts are old; None if they are no longer."""


@contextlib.asynccontextmanager
async def refresh_facts(
    invoker: Invoker, generated: FactGenerators | None, troubled: OnStaleFacts | None = None
) -> AsyncIterator[None]:
    """While the block lasts. ``generated`` is what the invoker's domain was loaded with."""
    if generated is None:
        yield
        return
    refreshing = FactRefresher(invoker, generated, troubled)
    task = asyncio.create_task(refreshing.run())
    before, invoker.settle = invoker.settle, refreshing.settle
    try:
        yield
    finally:
        invoker.settle = before
        task.cancel()
        await asyncio.to_thread(generated.close)  # a pass under way ends with its host
        with contextlib.suppress(asyncio.CancelledError):
            await task
        refreshing.over()


class FactRefresher:
    """One task for one edition of a pack."""

    def __init__(self, invoker: Invoker, generated: FactGenerators, troubled: OnStaleFacts | None = None) -> None:
        self._invoker = invoker
        self._generated = generated
        self._troubled = troubled or (lambda _generator, _why: None)
        self._troubles: set[str] = set()
        self._hurried = asyncio.Event()
        self._waiting: list[tuple[set[str], asyncio.Future[None]]] = []

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            name, seconds = self._generated.next()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurried.wait(), seconds)
            if self._hurried.is_set():
                self._hurried.clear()
                continue  # another one may be due now
            waiting = tuple(self._waiting)  # who comes later has changed what this pass may have seen already
            try:
                why = await asyncio.to_thread(self._look, name)
            except Exception:
                _log.exception("a pass of %s failed in the server itself", name)
                why = "the server failed"
            self._tell(name, why)
            for names, settled in waiting:
                names.discard(name)
                if not names and not settled.done():
                    settled.set_result(None)

    async def settle(self) -> None:
        """Wait until everything was looked at once more, but not for long."""
        self._generated.make_due()
        names = set(self._generated.names) - self._troubles
        if not names:
            return
        one = (names, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        self._hurried.set()
        try:
            await asyncio.wait_for(one[1], SETTLE_SECONDS)
        except TimeoutError:
            _log.info("an answer goes out before its effects were looked at")
        finally:
            self._waiting.remove(one)

    def over(self) -> None:
        """Nobody is troubled any more by an edition that is no longer served."""
        for name in tuple(self._troubles):
            self._tell(name, None)

    def _look(self, name: str) -> str | None:
        """Make a pass, and answer by what it found; or why not."""
        try:
            looked = self._generated.run_pass(name)
        except PassError as error:
            return error.message
        if not looked.change.empty:
            try:
                self._invoker.offers.renew(self._invoker.domain.changed(looked.added, looked.removed, looked.version))
            except MangleError as error:
                self._generated.discard(looked)
                return error.diagnostics[0].message
        self._generated.commit(looked)
        return None

    def _tell(self, name: str, why: str | None) -> None:
        if (why is not None) == (name in self._troubles):
            return
        self._troubles ^= {name}
        if why is not None:
            _log.warning("the facts of %s stay as they are: %s", name, why)
        self._troubled(name, why)
