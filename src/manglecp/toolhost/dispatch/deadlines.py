"""The deadlines of the requests of one host, by one timer.

Every request has a deadline, and hardly any is missed. So no timer is set for one and cancelled when its answer comes:
there is one for all, at the nearest deadline that was known when it was set. When it goes off it looks whose time is
over by then, if anybody's, and is set again for the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from manglecp.toolhost.dispatch.pairing import Pairing, Request

__all__ = ["Deadlines"]

_ROUNDED: Final = 0.001
"""Seconds that a timer may go off too early: some event loops count in milliseconds."""


class Deadlines:
    """``overdue`` hears of each request whose deadline has passed while it was open, the earliest deadline first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pairing: Pairing, overdue: Callable[[Request], None]) -> None:
        self._loop = loop
        self._pairing = pairing
        self._overdue = overdue
        self._timer: asyncio.TimerHandle | None = None
        self._next = inf

    def set(self, request: Request, when: float) -> None:
        """The deadline of an open request from now on, on the clock of the event loop."""
        request.deadline = when
        if when < self._next:
            self._look_at(when)

    def close(self) -> None:
        """Nobody is late any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_at(self, when: float) -> None:
        self.close()
        self._next = when
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._next = inf
        now = self._loop.time() + _ROUNDED
        late = [request for request in self._pairing.open if request.deadline <= now]
        try:
            for request in sorted(late, key=lambda request: request.deadline):
                if request.deadline <= now:  # what became of another one may have settled it
                    request.settle()
                    self._overdue(request)
        finally:
            when = min((request.deadline for request in self._pairing.open), default=inf)
            if when < self._next:
                self._look_at(when)
