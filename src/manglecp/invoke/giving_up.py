"""Reads that nobody wants any more are given up. An effect that was sent is waited for.

Most reads are done before anybody could want to stop them, and to listen for that costs about as much as the read. So
nobody listens before a read has taken a moment, and one clock tells when that is, for all reads under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from manglecp.invoke.calls import Call

__all__ = ["GivingUp", "Reading"]

_A_MOMENT: Final = 0.01
"""Seconds."""


class Reading:
    """Some reads under way, and who may say stop."""

    __slots__ = ("_calls", "_cancelled", "_give_up", "_listening")

    def __init__(self, calls: Sequence[Call], give_up: Callable[[Call], None], cancelled: asyncio.Event) -> None:
        self._calls = calls
        self._give_up = give_up
        self._cancelled = cancelled
        self._listening: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """From now on they are given up when somebody says stop, or has said so already."""
        self._listening = asyncio.create_task(self._give_up_when_cancelled())

    def over(self) -> None:
        """They are done, or were given up."""
        if self._listening is not None:
            self._listening.cancel()

    async def _give_up_when_cancelled(self) -> None:
        await self._cancelled.wait()
        for call in self._calls:
            self._give_up(call)


class GivingUp:
    """All reads under way. Used from one event loop."""

    def __init__(self) -> None:
        self._new: set[Reading] = set()
        """Since the clock struck last."""
        self._old: set[Reading] = set()
        """Since the time before: when it strikes again they have taken a moment."""
        self._clock: asyncio.TimerHandle | None = None

    def begin(self, calls: Sequence[Call], give_up: Callable[[Call], None], cancelled: asyncio.Event) -> Reading:
        """These reads are about to be sent; whoever says so says when they are over (:meth:`end`)."""
        reading = Reading(calls, give_up, cancelled)
        self._new.add(reading)
        if self._clock is None:
            self._clock = asyncio.get_running_loop().call_later(_A_MOMENT, self._strike)
        return reading

    def end(self, reading: Reading) -> None:
        """Nobody has to listen any more."""
        self._new.discard(reading)
        self._old.discard(reading)
        reading.over()

    def _strike(self) -> None:
        for reading in self._old:
            reading.listen()
        self._old, self._new = self._new, set()
        # Where nothing is under way it stops.
        self._clock = asyncio.get_running_loop().call_later(_A_MOMENT, self._strike) if self._old else None
