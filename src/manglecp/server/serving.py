"""Which edition of the pack is served now, and in which state the server is.

A server is asked before it has loaded its pack (``booting``), while a new edition of it is loaded, and while it goes
(``draining``). A broken edit changes nothing but the state: the old edition is served on, and the server says that it
is ``degraded``. Each edition lives in a task of its own, which ends it when it is replaced and nobody uses it any more.

Whoever wants to know is told of every new edition and every new state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Final, Literal

from manglecp.invoke import Worker
from manglecp.pack import PackError, Settings
from manglecp.server.edition import Edition
from manglecp.server.settings import ServerSettings
from manglecp.store import Busy, Invalid, Refused, StoreError
from manglecp.wire import WireError
from manglecp.wire.messages import Status

__all__ = ["STORE", "Kept", "Reloaded", "Serving"]

Opening = Callable[[], AbstractAsyncContextManager[Edition]]
Reloaded = Literal["swapped", "same", "broken"]
_RELOAD: Final = "pack"
STORE: Final = "store"
_STORE_FAILS: Final = "The store fails, and so do requests that need it"
_log = logging.getLogger(__name__)


class Kept:
    """An edition and the task it lives in."""

    def __init__(self, opening: Opening, settings: ServerSettings) -> None:
        self._opening = opening
        self._settings = settings
        self._uses = 0
        self._released = False
        self._worker: Worker | None = None
        self._idle = False
        self._unused = asyncio.Event()
        self._open: asyncio.Future[Edition] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._live())

    async def opened(self) -> Edition:
        """Wait for it. Raises what kept it from opening."""
        return await asyncio.shield(self._open)

    @property
    def edition(self) -> Edition:
        """Only once it is open."""
        return self._open.result()

    def hold(self) -> None:
        """It does not end before it is let go of again."""
        self._uses += 1

    def let_go(self) -> None:
        """What :meth:`hold` began is over."""
        self._uses -= 1
        self._look()

    def release(self) -> None:
        """End as soon as nobody uses it."""
        self._released = True
        self._look()

    def hand_over(self, *, awaited: bool) -> None:
        """Leave runs to others, as they come between two steps; also those that a client waits for here?"""
        if self._opened_well:
            self._open.result().invoker.hand_over(awaited=awaited)

    def leave(self) -> None:
        """Wait for no run any more."""
        if self._opened_well:
            self._open.result().invoker.leave()

    def claim_nothing(self) -> None:
        """Go on with no more runs of others."""
        self._idle = True
        if self._worker is not None:
            self._worker.stop()

    @property
    def _opened_well(self) -> bool:
        return self._open.done() and self._open.exception() is None

    def _look(self) -> None:
        if self._released and not self._uses:
            self._unused.set()

    async def _live(self) -> None:
        try:
            async with self._opening() as edition:
                worker = self._worker = Worker([edition.invoker], pause=self._settings.worker_pause)
                working = self._settings.worker and not self._idle
                loop = asyncio.create_task(self._work(worker)) if working else None
                self._open.set_result(edition)
                await self._unused.wait()
                worker.stop()
                if loop is not None:
                    await loop
        except Exception as error:
            if self._open.done():
                _log.exception("an edition of the pack did not end well")
            else:
                self._open.set_exception(error)

    async def _work(self, worker: Worker) -> None:
        """Go on with runs that others left behind, whatever goes wrong with one of them."""
        while not self._unused.is_set() and not self._idle:
            try:
                await worker.run()
            except Exception:
                _log.exception("a run could not be taken over")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._unused.wait(), self._settings.worker_pause)


class Serving:
    """Begun with :meth:`begin`, ended with :meth:`end`; both on the event loop that it is used on."""

    def __init__(
        self,
        opening: Opening,
        outline: Settings,
        settings: ServerSettings | None = None,
        *,
        probe: Callable[[], None] | None = None,
        shared: Callable[[], bool] = lambda: False,
    ) -> None:
        """``opening`` gives the edition as it is now, ``outline`` is what is known of the pack before it is loaded.

        ``probe`` is called in a thread, now and then, and raises a StoreError if the store does not answer.
        ``shared``: may other processes, on other machines, go on with runs of this one?
        """
        self.outline = outline
        self.settings = settings or ServerSettings()
        self._opening = opening
        self._probe = probe
        self._shared = shared
        self._current: Kept | None = None
        self._editions: dict[asyncio.Task[None], Kept] = {}
        self._draining = False
        self._until = 0.0
        """When its time is up, once it drains."""
        self._troubles: dict[str, str] = {}
        self._told: list[Callable[[], None]] = []
        self._reloading = asyncio.Lock()
        self._booting: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None

    # --- states ------------------------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """As the manifest says it."""
        if self._draining:
            return "draining"
        if self._current is None:
            return "booting"
        return "degraded" if self._troubles else "ready"

    @property
    def troubles(self) -> Mapping[str, str]:
        """Why the server is degraded, for clients: what is affected, and how."""
        return MappingProxyType(self._troubles)

    def degrade(self, what: str, how: str) -> None:
        """Something that the server can go on without does not work. ``what`` is its name, ``how`` is told."""
        if self._troubles.get(what) != how:
            self._troubles[what] = how
            _log.warning("degraded: %s", how)
            self._tell()

    def store_failed(self, error: StoreError) -> None:
        """A request met this. What it refused for good reason says nothing of the store."""
        if not isinstance(error, Busy | Invalid | Refused):
            self.degrade(STORE, _STORE_FAILS)

    def restore(self, what: str) -> None:
        """It works again."""
        if self._troubles.pop(what, None) is not None:
            _log.info("no longer degraded: %s", what)
            self._tell()

    def subscribe(self, told: Callable[[], None]) -> Callable[[], None]:
        """Have ``told`` called after every change that the manifest shows; what ends it."""
        self._told.append(told)
        return lambda: self._told.remove(told)

    def _tell(self) -> None:
        for told in tuple(self._told):
            try:
                told()
            except Exception:
                _log.exception("somebody could not be told of a new manifest")

    # --- editions ----------------------------------------------------------------------------------------------------

    @property
    def edition(self) -> Edition | None:
        """What is served now; to work with it, :meth:`use` it."""
        return None if self._current is None else self._current.edition

    @contextlib.contextmanager
    def use(self) -> Iterator[Edition]:
        """The edition that is served now, which does not end meanwhile; ``server_not_ready`` if there is none."""
        kept = self.hold()
        try:
            yield kept.edition
        finally:
            kept.let_go()

    def hold(self) -> Kept:
        """The same, for who cannot say beforehand where they let go of it."""
        kept = self._current
        if self._draining or kept is None:
            raise self.not_ready()
        kept.hold()
        return kept

    def not_ready(self) -> WireError:
        """The refusal of requests while there is no edition, or no longer."""
        doing = "is shutting down" if self._draining else "is still starting"
        return WireError("server_not_ready", f"The server {doing}", retry_after_ms=self.settings.retry_after_ms)

    def begin(self) -> None:
        """Load the pack; meanwhile the server is booting."""
        self._booting = asyncio.create_task(self._boot())
        if self._probe is not None:
            self._probing = asyncio.create_task(self._watch(self._probe))

    async def ready(self) -> None:
        """Wait until the pack is loaded; a PackError if it cannot be."""
        assert self._booting is not None, "begin() comes first"
        await asyncio.shield(self._booting)

    async def _boot(self) -> None:
        async with self._reloading:
            await self._open()

    async def _open(self) -> None:
        kept = Kept(self._opening, self.settings)
        self._editions[kept.task] = kept
        kept.task.add_done_callback(self._editions.pop)
        try:
            await kept.opened()
        except asyncio.CancelledError:
            kept.release()
            raise
        before, self._current = self._current, kept
        if before is not None:
            before.release()
        self._troubles.pop(_RELOAD, None)
        for problem in kept.edition.domain.warnings:
            _log.warning("the pack is loaded, but %s", problem.render())
        self._tell()

    async def reload(self) -> Reloaded:
        """Serve the pack as it is now. If it is broken, serve on what was served before, if anything, and say so."""
        async with self._reloading:
            before = self.edition
            if self._draining:
                return "same"
            try:
                await self._open()
            except Exception as error:
                # Whatever it is, what is served now is sound.
                if isinstance(error, PackError):
                    for problem in error.diagnostics:
                        _log.error("the pack cannot be loaded: %s", problem.render())
                else:
                    _log.exception("the pack cannot be loaded")
                if before is not None:
                    how = "The newest edition of the pack cannot be loaded; the one before it is served"
                    self.degrade(_RELOAD, how)
                return "broken"
            after = self.edition
            assert after is not None
            same = before is not None and before.domain.digest == after.domain.digest
            return "same" if same else "swapped"

    async def _watch(self, probe: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(self.settings.probe)
            troubled = STORE in self._troubles
            try:
                await asyncio.to_thread(probe)
            except StoreError as error:
                _log.warning("the store does not answer: %s", error)
                self.degrade(STORE, _STORE_FAILS)
            else:
                if troubled:  # what went wrong meanwhile was not looked at
                    self.restore(STORE)

    # --- the end -----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Take no new requests. What is under way may end; runs are left to others, if there may be any."""
        if not self._draining:
            self._draining = True
            self._until = asyncio.get_running_loop().time() + self.settings.grace
            for kept in self._editions.values():
                kept.claim_nothing()
                kept.hand_over(awaited=self._shared())
            self._tell()

    def leave(self) -> None:
        """The time is up: runs stay as they are on record, and whoever waits for one is told so."""
        for kept in self._editions.values():
            kept.leave()

    async def end(self) -> None:
        """End all editions, once nobody uses them and their runs are over, or the time is up."""
        self.drain()
        for task in (self._booting, self._probing):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        if self._current is not None:
            self._current.release()
            self._current = None
        if self._editions:
            await asyncio.wait(self._editions, timeout=max(0.0, self._until - asyncio.get_running_loop().time()))
        self.leave()
        while self._editions:
            await asyncio.wait(self._editions)
