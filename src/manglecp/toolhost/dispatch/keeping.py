"""Keeping a host in every place of a pool.

A keeper starts a host in the background, has it answer once before any call sees it, asks it now and then whether it is
well, and replaces it when it died, has grown or has served long enough. A host that can still serve does so until its
successor is up. A start that fails is repeated, ever later.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from subprocess import SubprocessError
from typing import Any, Final

from manglecp.toolhost.dispatch.launching import HostCommand
from manglecp.toolhost.dispatch.limits import Limits
from manglecp.toolhost.dispatch.line import HOPELESS, Line, Place
from manglecp.toolhost.dispatch.losses import type_of
from manglecp.toolhost.dispatch.process import HostLost, HostProcess

__all__ = ["Keepers"]

_PROBE: Final = b'{"aid":"_health"}\n'
"""Every host has an answer to this, and none of them does anything for it."""


class Keepers:
    """One task per place, from :meth:`start` to :meth:`close`."""

    def __init__(
        self, command: HostCommand, line: Line, limits: Limits, on_event: Callable[[dict[str, Any]], None] | None
    ) -> None:
        self._command = command
        self._line = line
        self._limits = limits
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._partings: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start a host in every place, and replace those that end."""
        self._tasks = [self._loop.create_task(self._keep(place)) for place in self._line.places]

    async def close(self) -> None:
        """Stop every host."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*self._partings)

    async def _keep(self, place: Place) -> None:
        """Have a host in this place, always."""
        while True:
            host = await self._start(place)
            if host is None:
                self._line.start_failed(place)
                await asyncio.sleep(min(self._limits.backoff * 2 ** min(place.failures, 16), self._limits.max_backoff))
                continue
            while host is not None:
                host = await self._serve(place, host)

    async def _serve(self, place: Place, host: HostProcess) -> HostProcess | None:
        """Have this host in the place as long as it is good; its successor, if one is up already."""
        successor: HostProcess | None = None
        place.failures = 0
        place.served = 0
        place.due = place.retiring = False
        place.first_size = host.resident_bytes()
        place.host = host
        self._line.admit()
        try:
            successor = await self._watch(place, host)
        finally:
            place.host = None
            parting = self._part_from(host)
            if successor is None:
                await asyncio.shield(parting)
        return successor

    async def _start(self, place: Place) -> HostProcess | None:
        """A host that has answered once, or none; then the place says why."""
        try:
            host = HostProcess.start(
                self._command, on_event=self._on_event, on_end=place.changed.set, on_late=self._line.admit
            )
        except FileNotFoundError as error:
            place.trouble = ("not_found", f"the host program is missing: {error.filename}")
            place.failures = max(place.failures, HOPELESS - 1)
            return None
        except (OSError, ValueError, SubprocessError) as error:
            place.trouble = ("exception", f"the host cannot be started: {error}")
            return None
        try:
            await host.exchange(_PROBE, deadline=self._loop.time() + self._limits.start_timeout)
        except HostLost as lost:
            place.trouble = (type_of(lost), lost.detail)
            await asyncio.shield(self._part_from(host))
            return None
        except asyncio.CancelledError:
            await asyncio.shield(self._part_from(host))
            raise
        return host

    def _part_from(self, host: HostProcess) -> asyncio.Task[None]:
        """Stop a host. Who does not wait for it leaves that to :meth:`close`."""
        parting = self._loop.create_task(host.stop())
        self._partings.add(parting)
        parting.add_done_callback(self._partings.discard)
        return parting

    async def _watch(self, place: Place, host: HostProcess) -> HostProcess | None:
        """Until the host is dead or has a successor, and nobody uses it. The successor, if there is one."""
        successor: HostProcess | None = None
        try:
            while host.alive and not (place.retiring and place.load == 0):
                place.changed.clear()
                if place.due and successor is None:
                    successor = await self._start(place)
                    place.retiring = successor is not None
                    if successor is not None or not host.alive:
                        continue
                try:
                    async with asyncio.timeout(self._limits.health_interval):
                        await place.changed.wait()
                except TimeoutError:
                    await self._examine(place, host)
            await self._settled(place)
        except asyncio.CancelledError:
            if successor is not None:
                await asyncio.shield(self._part_from(successor))
            raise
        return successor

    async def _settled(self, place: Place) -> None:
        while place.load and not place.resting:  # it died, and those it owes an answer have yet to hear of it
            place.changed.clear()
            await place.changed.wait()

    async def _examine(self, place: Place, host: HostProcess) -> None:
        """Size and pulse of a host. One that is busy shows by its deadlines whether it is well."""
        if place.has_grown(self._limits):
            place.replace()
        if place.load or place.due:
            return
        place.load, place.exclusive = 1, True
        try:
            with contextlib.suppress(HostLost):
                await host.exchange(_PROBE, deadline=self._loop.time() + self._limits.health_timeout)
        finally:
            place.count(self._limits)
            self._line.release(place)
