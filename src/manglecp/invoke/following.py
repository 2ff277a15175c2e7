"""Runs that somebody else carries out: find them, wait for their end, ask for it.

They are polled from the event loop: a thread for each that waits would be too many.
"""

from __future__ import annotations

import asyncio
import time

from manglecp.intent import Identity
from manglecp.invoke.accepting import Accepting
from manglecp.invoke.carrying import CarryingOut
from manglecp.invoke.errors import left_behind
from manglecp.invoke.progress import RunObserver
from manglecp.invoke.results import Answer, decoded
from manglecp.store import Run, RunState, Store, pauses
from manglecp.wire import WireError

__all__ = ["Following"]


class Following:
    """For one edition of a pack."""

    def __init__(self, store: Store, pack_digest: str, accepting: Accepting, carrying: CarryingOut) -> None:
        self._store = store
        self._pack_digest = pack_digest
        self._accepting = accepting
        self._carrying = carrying
        self.gone = False
        """Does nobody wait here any more?"""

    async def by_key(self, identity: Identity, key: str) -> Run | None:
        """The run that this identity asked for with this request key."""
        return await self._store.writer.read(lambda tx: self._store.runs.by_key(tx, identity.name, key))

    async def ask_cancel(self, run: Run) -> None:
        """Whoever carries it out sees that at its next step."""
        await self._store.writer.write(lambda tx: self._store.runs.ask_cancel(tx, run.run_id, run.identity))

    async def unwanted(self, run: str, seconds: float) -> bool:
        """Does nobody claim a run in this time?"""
        until = time.monotonic() + seconds
        for pause in pauses():
            found = await self._store.writer.read(lambda tx: self._store.runs.run(tx, run))
            if found.state != RunState.RUNNING or found.owner is not None or self.gone:
                break
            if time.monotonic() >= until:
                return True
            await asyncio.sleep(pause)
        return False

    async def end_of(self, run: str, watch: RunObserver, *, keyed: bool) -> Answer:
        """Wait for the end of a run; who carries it out hears of it if that is to stop."""
        told = False
        for pause in pauses():
            if self.gone:
                return left_behind(run, acknowledged=True, keyed=keyed)
            found = await self._store.writer.read(lambda tx: self._store.runs.run(tx, run))
            if found.state != RunState.RUNNING:
                break
            if watch.cancelled.is_set() and not told:
                told = True
                await self.ask_cancel(found)
            await asyncio.sleep(pause)
        kept = await self._store.writer.read(lambda tx: self._store.runs.answer(tx, run))
        if kept is None and found.state == RunState.NEEDS_DECISION and found.pack_digest == self._pack_digest:
            return await self._set_aside(found)
        if kept is None:
            return WireError("execution_failed", "The run is over, and its answer is kept no longer", {"run_id": run})
        return decoded(kept)

    async def _set_aside(self, run: Run) -> Answer:
        """What is to be said of a run that was set aside because whoever takes it dies: none of them could say it."""
        claimed = await self._store.writer.read(lambda tx: self._store.runs.load(tx, run.run_id))
        accepted = await asyncio.to_thread(self._accepting.accepted_before, claimed)
        return self._carrying.set_aside(accepted, run.code or "poisoned")
