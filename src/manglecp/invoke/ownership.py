"""The runs that are this process's, and the heartbeat that says so.

A claim lapses by itself: whoever does not renew it, for whatever reason, loses the run to whoever asks next. A process
that only slept notices at its next commit, which the fence refuses. So nothing has to be decided here about who is
alive.

An effect is no commit. So each claim also knows when it ends, on this machine's monotonic clock and counted from before
it was last renewed: that is never later than the journal thinks. No lease lives longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from manglecp.store import Busy, Fenced, OwnedRun, Run, Store, StoreError

_log = logging.getLogger(__name__)


class Ownership:
    """One run, for as long as it is this process's."""

    def __init__(self, run: str, fence: int, seconds: float, since: float) -> None:
        self.run = run
        self.fence = fence
        self._seconds = seconds
        self._until = since + seconds
        self._over = False

    def end(self) -> float:
        """When it lapses, on the monotonic clock, if nobody renews it."""
        return self._until

    def renewed(self, since: float) -> None:
        """The store agreed; it holds for the usual time since ``since``, on the monotonic clock."""
        self._until = since + self._seconds

    def drop(self) -> None:
        """The run is not this process's any more: :meth:`sure` raises from now on."""
        self._over = True

    async def sure(self) -> None:
        """Wait until the run is this process's for a while yet; :class:`Fenced` if it is not any more."""
        while not self._over and self._until - time.monotonic() < self._seconds / 3:
            await asyncio.sleep(self._seconds / 30)
        if self._over:
            raise Fenced(self.run, self.fence)


class OwnershipRegistry:
    """All claims of this process. Used from one event loop, between :meth:`begin` and :meth:`end`."""

    def __init__(self, store: Store, claim_ms: int) -> None:
        self.owner = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        """One process in one life."""
        self._store = store
        self.claim_ms = claim_ms
        # Nobody else's work may keep a heart from beating.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="manglecp-claims")
        self._held: dict[str, Ownership] = {}
        self._beating: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Let the heart beat."""
        self._beating = asyncio.create_task(self._beat())

    async def end(self) -> None:
        """No claim is renewed any more. Those that were not given back lapse."""
        if self._beating is not None:
            self._beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beating
        self._thread.shutdown()

    def hold(self, run: str, fence: int, since: float) -> Ownership:
        """Return the new claim. ``since``: a moment of the monotonic clock before it was written.

        A lapsed claim of this process may be claimed again by this process: the earlier claim is over then.
        """
        if (earlier := self._held.get(run)) is not None:
            earlier.drop()
        claim = self._held[run] = Ownership(run, fence, self.claim_ms / 1_000, since)
        return claim

    def of(self, run: str) -> Ownership | None:
        """The claim on this run, if this process has it."""
        return self._held.get(run)

    def drop(self, claim: Ownership) -> None:
        """End the claim; its carrier finds that out at the next step. A later claim on the same run stays."""
        claim.drop()
        if self._held.get(claim.run) is claim:
            del self._held[claim.run]

    def take(self, digests: Collection[str], most_takeovers: int, run: str | None) -> OwnedRun | None:
        """A run whose claim has lapsed."""
        return self._store.runs.take_over(
            self.owner, self.claim_ms, digests, most_takeovers, run_id=run, on_poisoned=self._poisoned
        )

    def _poisoned(self, tx: object, run: Run) -> None:
        _log.error("run %s was taken over too often without getting on; it needs a decision", run.run_id)
        body = {"state": "needs_decision", "code": run.code or "poisoned"}
        self._store.ledger.append(tx, "end", body, run=run.run_id, identity=run.identity)  # type: ignore[arg-type]

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.claim_ms / 3_000)
            if not self._held:
                continue
            held, since = dict(self._held), time.monotonic()
            try:
                lost = await asyncio.get_running_loop().run_in_executor(self._thread, self._renew, held)
            except StoreError as error:
                _log.warning("the claims of %d runs could not be renewed: %s", len(held), error)
                continue
            for run, claim in held.items():
                if self._held.get(run) is not claim:
                    continue
                if run in lost:
                    self.drop(claim)
                else:
                    claim.renewed(since)

    def _renew(self, held: Mapping[str, Ownership]) -> set[str]:
        fences = {run: one.fence for run, one in held.items()}
        try:
            return self._store.runs.heartbeat(self.owner, fences, self.claim_ms)
        except Busy:  # on PostgreSQL, a deadlock with a batch of the writer, which locks rows of several runs as well
            return self._store.runs.heartbeat(self.owner, fences, self.claim_ms)
