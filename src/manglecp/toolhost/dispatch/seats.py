"""Where a call is run, and what its host is told about the state.

Two kinds. :class:`AnyHost` takes whichever host has room and tells it the whole state, so that nothing of the call
before can be seen. :class:`OneHost` belongs to a run: it takes a host for itself and keeps it, tells it the whole state
once and from then on only what has changed. What a host holds is known after an answer with a delta and at no other
time: a refusal, an answer from the cache of idempotency keys and a lost host leave it open, and the next request says
everything again.

A delta names the state that it changes by digest. A host that holds another one refuses (``state_drift``), and a
refusal changes nothing, so the same call may be sent again with the whole state. A C++ host does not look at the
digest; it is kept in step by having the host to ourselves.

A host that died is given up, and so is one that a run keeps too long without calling it: others may be waiting. The
next call of the run takes another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from manglecp.toolhost.dispatch.limits import Limits
from manglecp.toolhost.dispatch.line import Line, Place
from manglecp.toolhost.dispatch.process import HostProcess
from manglecp.toolhost.state import Artifact, Slots, StateError, apply_state, full_state, state_delta

__all__ = ["AnyHost", "OneHost", "Seat"]

_DRIFT: Final = "state_drift"


class AnyHost:
    """A place for one attempt."""

    def __init__(self, line: Line, limits: Limits) -> None:
        self._line = line
        self._limits = limits

    def take(self, *, exclusive: bool) -> Place | None:
        """A place with a host for the next attempt, if there is one now."""
        return self._line.take(exclusive=exclusive)

    async def wait(self, deadline: float, *, exclusive: bool) -> Place:
        """The next one; :class:`~.line.Refused` if there is none in time."""
        return await self._line.wait(deadline, exclusive=exclusive)

    def leave(self, place: Place) -> None:
        """The attempt is over."""
        place.count(self._limits)
        self._line.release(place)

    def state_for(self, slots: Mapping[int, Artifact]) -> dict[str, Any]:
        """The ``ds_state`` that makes the host of this seat see these slots."""
        return full_state(slots)

    def heard(self, _slots: Mapping[int, Artifact], _document: Mapping[str, Any]) -> bool:
        """Learn from the answer to a request about these slots. False: the host refused the delta, say it all again."""
        return True


class OneHost:
    """The place of one run, from its first call until :meth:`give_up`."""

    def __init__(self, line: Line, limits: Limits) -> None:
        self._line = line
        self._limits = limits
        self._rest: asyncio.TimerHandle | None = None
        self._place: Place | None = None
        self._host: HostProcess | None = None
        self._held: Slots | None = None
        self._sent_delta = False

    def take(self, *, exclusive: bool) -> Place | None:
        """As :meth:`AnyHost.take`, but the same place as long as its host lives. It is never shared."""
        del exclusive
        self._wake()
        if self._place is not None:
            if self._host is not None and self._host is self._place.host and self._host.alive:
                self._place.resting = False
                return self._place
            self.give_up()
        place = self._line.take(exclusive=True)
        return None if place is None else self._settle(place)

    async def wait(self, deadline: float, *, exclusive: bool) -> Place:
        """As :meth:`AnyHost.wait`, for itself alone."""
        del exclusive
        return self._settle(await self._line.wait(deadline, exclusive=True))

    def _settle(self, place: Place) -> Place:
        self._place, self._host = place, place.host
        return place

    def leave(self, place: Place) -> None:
        """The attempt is over; the place stays ours for a while unless its host died."""
        place.count(self._limits)
        if self._host is None or not self._host.alive:
            self.give_up()
        else:
            place.resting = True
            self._rest = asyncio.get_running_loop().call_later(self._limits.rest, self.give_up)

    def give_up(self) -> None:
        """Have no place any more."""
        self._wake()
        place, self._place, self._host, self._held = self._place, None, None, None
        if place is not None:
            place.resting = False
            self._line.release(place)

    def _wake(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def state_for(self, slots: Mapping[int, Artifact]) -> dict[str, Any]:
        """The whole state, or what is to be done to the one that the host holds."""
        self._sent_delta = self._held is not None
        held, self._held = self._held, None  # until an answer says what became of it
        return full_state(slots) if held is None else state_delta(held, slots, name_base=True)

    def heard(self, slots: Mapping[int, Artifact], document: Mapping[str, Any], /) -> bool:
        """As :meth:`AnyHost.heard`."""
        if document.get("ok") is False and document.get("error") == _DRIFT and self._sent_delta:
            return False
        after = document.get("ds_state")
        if isinstance(after, dict) and after.get("delta") is True and document.get("idempotent_hit") is not True:
            try:
                self._held = apply_state(after, slots)
            except StateError:
                self._held = None
        return True


Seat = AnyHost | OneHost
