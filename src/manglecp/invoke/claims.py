"""The runs that are this process's, and the heartbeat that says so.

A claim lapses by itself: whoever does not renew it, for whatever reason, loses the run to whoever asks next. A process
that only slept notices at its next commit, which the fence refuses. So nothing has to be decided here about who is
alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Collection
from concurrent.futures import Executor

from manglecp.store.errors import StoreError
from manglecp.store.opening import Store
from manglecp.store.runs.model import Claimed, Run

__all__ = ["Claims"]

_log = logging.getLogger(__name__)


class Claims:
    def __init__(self, store: Store, threads: Executor, claim_ms: int) -> None:
        self.owner = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        """One process in one life."""
        self._store = store
        self._threads = threads
        self._claim_ms = claim_ms
        self._held: dict[str, int] = {}
        self._beating: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._beating = asyncio.create_task(self._beat())

    async def end(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beating

    def hold(self, run: str, fence: int) -> None:
        self._held[run] = fence

    def drop(self, run: str) -> None:
        self._held.pop(run, None)

    def take(self, digests: Collection[str], most_takeovers: int, run: str | None) -> Claimed | None:
        """A run whose claim has lapsed."""
        return self._store.runs.claim(
            self.owner, self._claim_ms, digests, most_takeovers, run_id=run, on_poisoned=self._poisoned
        )

    def _poisoned(self, tx: object, run: Run) -> None:
        _log.error("run %s was taken over too often without getting on; it needs a decision", run.run_id)
        body = {"state": "needs_decision", "code": run.code or "poisoned"}
        self._store.ledger.append(tx, "end", body, run=run.run_id, identity=run.identity)  # type: ignore[arg-type]

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._claim_ms / 3_000)
            if not self._held:
                continue
            held = dict(self._held)
            try:
                loop = asyncio.get_running_loop()
                lost = await loop.run_in_executor(
                    self._threads, self._store.runs.renew, self.owner, held, self._claim_ms
                )
            except StoreError as error:
                _log.warning("the claims of %d runs could not be renewed: %s", len(held), error)
                continue
            for run in lost:
                self.drop(run)
