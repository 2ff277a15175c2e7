"""Keeping a host in every place of a pool.

A keeper starts a host in the background, has it answer once before any call sees it, asks it now and then whether it is
well, and replaces it when it died, has grown or has served long enough. A start that fails is repeated, ever later.
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
            try:
                place.failures = 0
                place.served = 0
                place.retiring = False
                place.first_size = host.resident_bytes()
                place.host = host
                self._line.admit()
                await self._watch(place, host)
            finally:
                place.host = None
                await self._part_from(host)

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
            await self._part_from(host)
            return None
        except asyncio.CancelledError:
            await self._part_from(host)
            raise
        return host

    async def _part_from(self, host: HostProcess) -> None:
        """Stop a host. Who is cancelled meanwhile leaves the stopping to :meth:`close`, which waits for it."""
        parting = self._loop.create_task(host.stop())
        self._partings.add(parting)
        parting.add_done_callback(self._partings.discard)
        await asyncio.shield(parting)

    async def _watch(self, place: Place, host: HostProcess) -> None:
        """Until the host should be replaced, and nobody uses it."""
        while host.alive and not (place.retiring and place.load == 0):
            place.changed.clear()
            try:
                async with asyncio.timeout(self._limits.health_interval):
                    await place.changed.wait()
            except TimeoutError:
                await self._examine(place, host)
        while place.load and not place.resting:  # it died, and those it owes an answer have yet to hear of it
            place.changed.clear()
            await place.changed.wait()

    async def _examine(self, place: Place, host: HostProcess) -> None:
        """Size and pulse of a host. One that is busy shows by its deadlines whether it is well."""
        if host.resident_bytes() - place.first_size > self._limits.growth:
            place.retiring = True
        if place.load or place.retiring:
            return
        place.load, place.exclusive = 1, True
        try:
            with contextlib.suppress(HostLost):
                await host.exchange(_PROBE, deadline=self._loop.time() + self._limits.health_timeout)
        finally:
            place.count(self._limits.calls_per_host)
            self._line.release(place)
