"""Ownership of runs by this process, and the heartbeat that renews it.

Ownership expires unless it is renewed; after that, another worker may take the run over. Each commit checks the fencing
token and refuses writes of a former owner, so no process has to decide whether another one is alive.

Fencing does not stop effects. Therefore each ownership also has an expiry on this machine's monotonic clock, counted
from a time before its last renewal, so it is never later than the expiry in the store. Leases of calls end before it.
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

from manglecp.store import Busy, Fenced, OwnedRun, Run, Store, StoreError, Transaction

_log = logging.getLogger(__name__)


class Ownership:
    """The right of this process to execute one run. All times are of the monotonic clock."""

    def __init__(self, run: str, fence: int, seconds: float, since: float) -> None:
        """``seconds`` is how long the ownership lasts after each renewal; ``since`` is a time before it was stored."""
        self.run = run
        self.fence = fence
        self._seconds = seconds
        self._expires_at = since + seconds
        self._revoked = False

    def expires_at(self) -> float:
        return self._expires_at

    def renew(self, since: float) -> None:
        """Extend the ownership. ``since`` is a time before the store was updated."""
        self._expires_at = since + self._seconds

    def revoke(self) -> None:
        self._revoked = True

    async def ensure_owned(self) -> None:
        """Wait until at least a third of the ownership's time is left. Raises :class:`Fenced` if it was revoked."""
        # The heartbeat renews after a third of the time, so less than that is left only after failed heartbeats.
        while not self._revoked and self._expires_at - time.monotonic() < self._seconds / 3:
            await asyncio.sleep(self._seconds / 30)
        if self._revoked:
            raise Fenced(self.run, self.fence)


class OwnershipRegistry:
    """The runs that this process owns. Used from one event loop, between :meth:`start` and :meth:`stop`."""

    def __init__(self, store: Store, claim_ms: int) -> None:
        """``claim_ms`` is how long an ownership lasts without a heartbeat."""
        self.owner = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        """Identifies this process, also after the operating system reuses its process id."""
        self._store = store
        self.claim_ms = claim_ms
        # A thread of its own: work in the default executor must not delay the heartbeat.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="manglecp-ownership")
        self._ownerships: dict[str, Ownership] = {}
        self._heartbeat: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._heartbeat = asyncio.create_task(self._send_heartbeats())

    async def stop(self) -> None:
        """Stop the heartbeat. Ownership of runs that were not released expires."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._heartbeat
        self._thread.shutdown()

    def add(self, run: str, fence: int, since: float) -> Ownership:
        """Return the new ownership. ``since`` is a time of the monotonic clock before the ownership was stored.

        A process may take over a run that it owned before: its earlier ownership is revoked.
        """
        if (earlier := self._ownerships.get(run)) is not None:
            earlier.revoke()
        ownership = self._ownerships[run] = Ownership(run, fence, self.claim_ms / 1_000, since)
        return ownership

    def get(self, run: str) -> Ownership | None:
        return self._ownerships.get(run)

    def remove(self, ownership: Ownership) -> None:
        """Revoke an ownership. A later ownership of the same run stays."""
        ownership.revoke()
        if self._ownerships.get(ownership.run) is ownership:
            del self._ownerships[ownership.run]

    def take_over(self, pack_digests: Collection[str], most_takeovers: int, run: str | None) -> OwnedRun | None:
        """Take over and return a run without an owner (only ``run``, if given); None if there is none. Blocks.

        A run with more than ``most_takeovers`` takeovers without progress is *poisoned*: it waits for an operator.
        """
        return self._store.runs.take_over(
            self.owner, self.claim_ms, pack_digests, most_takeovers, run_id=run, on_poisoned=self._record_poisoned
        )

    def _record_poisoned(self, tx: Transaction, run: Run) -> None:
        _log.error("run %s was taken over too often without progress; it needs a decision", run.run_id)
        body = {"state": "needs_decision", "code": run.code or "poisoned"}
        self._store.ledger.append(tx, "end", body, run=run.run_id, identity=run.identity)

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self.claim_ms / 1_000 / 3)  # after a third: an ownership survives one failed heartbeat
            if not self._ownerships:
                continue
            ownerships, since = dict(self._ownerships), time.monotonic()
            try:
                lost_runs = await asyncio.get_running_loop().run_in_executor(self._thread, self._renew, ownerships)
            except StoreError as error:
                _log.warning("the ownership of %d runs could not be renewed: %s", len(ownerships), error)
                continue
            for run, ownership in ownerships.items():
                if self._ownerships.get(run) is not ownership:  # ended or replaced during the heartbeat
                    continue
                if run in lost_runs:
                    self.remove(ownership)
                else:
                    ownership.renew(since)

    def _renew(self, owned: Mapping[str, Ownership]) -> set[str]:
        """Renew ownerships in the store; return the runs that this process no longer owns. Blocks."""
        fences = {run: ownership.fence for run, ownership in owned.items()}
        try:
            return self._store.runs.heartbeat(self.owner, fences, self.claim_ms)
        except Busy:  # on PostgreSQL, a deadlock: a batch of the writer locks rows of several runs, too
            return self._store.runs.heartbeat(self.owner, fences, self.claim_ms)
