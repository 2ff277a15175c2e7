"""Forget what was kept long enough: tools, used nonces, answers, and runs that are over.

A piece at a time, each in a transaction of its own, so that nobody waits long for the store. Several processes may do
it at once; what one has dropped the other does not find.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from manglecp.store import Store, StoreError

__all__ = [
    "Housekeeping",
    "Tidied",
    "tidy",
]

PAUSE: Final = 60.0
"""Seconds between one round and the next."""
MOST_TOOLS: Final = 1_000_000
_MOST_PIECES: Final = 50
_log = logging.getLogger(__name__)


class Tidied(NamedTuple):
    """How many of each were forgotten."""

    tools: int
    nonces: int
    runs: int
    answers: int


def tidy(store: Store, now_ms: int, *, most_tools: int = MOST_TOOLS) -> Tidied:
    """One round."""
    tools = runs = answers = 0
    for _ in range(_MOST_PIECES):
        with store.write_transaction() as tx:
            swept = store.registry.sweep(tx, now_ms, most_tools)
        tools += swept.dropped + swept.evicted
        if not swept.more:
            break
    with store.write_transaction() as tx:
        nonces = store.nonces.sweep(tx, now_ms)
    for _ in range(_MOST_PIECES):
        with store.write_transaction() as tx:
            over = store.runs.sweep(tx)
        answers, runs = answers + over.answers, runs + over.runs
        if not over.answers and not over.runs:
            break
    return Tidied(tools, nonces, runs, answers)


class Housekeeping:
    """Rounds in the background."""

    def __init__(self, store: Store, clock: Callable[[], int], pause: float = PAUSE) -> None:
        """``clock`` gives nanoseconds since 1970."""
        self._store = store
        self._clock = clock
        self._pause = pause
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start the rounds."""
        self._task = asyncio.create_task(self._rounds())

    async def end(self) -> None:
        """Stop the rounds."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _rounds(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            try:
                tidied = await asyncio.to_thread(tidy, self._store, self._clock() // 1_000_000)
            except StoreError as error:
                _log.warning("what is old could not be dropped: %s", error)
                continue
            if any(tidied):
                _log.info("dropped %d tools, %d nonces, %d runs and %d answers", *tidied)
