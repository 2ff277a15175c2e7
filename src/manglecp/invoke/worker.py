"""Whoever goes on with what others left behind: a loop that claims runs and carries them out.

Start as many as you like, on as many machines: a run is claimed by one of them, and every commit tests that it still
is. A server has such a loop beside its own work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from manglecp.invoke.invoker import Invoker
from manglecp.store import StoreError

__all__ = ["Worker"]

_log = logging.getLogger(__name__)


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
