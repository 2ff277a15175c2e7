"""The revision of the pack that is served now, and the state of the server.

A server is reachable before it has loaded its pack (``booting``), while it loads a new revision, and while it drains. A
broken edit changes nothing but the state: the previous revision is served on, and the server is ``degraded``. Each
revision lives in a task of its own, which closes it when it was replaced and its last user has released it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Final, Literal

from manglecp.invoke import Invoker, PackRuntime, Worker
from manglecp.pack import PackError, Settings
from manglecp.server.config import ServerSettings
from manglecp.store import Busy, ChangeRefused, Invalid, StoreError
from manglecp.wire import WireError
from manglecp.wire.messages import Status

__all__ = ["STORE", "ReloadResult", "RevisionHandle", "RevisionManager"]

ReloadResult = Literal["swapped", "same", "broken"]
_RELOAD: Final = "pack"
STORE: Final = "store"
_STORE_FAILS: Final = "The store fails, and so do requests that need it"
_log = logging.getLogger(__name__)
Opening = Callable[[], AbstractAsyncContextManager[PackRuntime]]


class RevisionHandle:
    """A revision, its users and the task that closes it."""

    def __init__(self, opening: Opening, settings: ServerSettings) -> None:
        self._opening = opening
        self._settings = settings
        self._users = 0
        self._retired = False
        self._worker: Worker | None = None
        self._resumes_runs = settings.worker
        self._unused = asyncio.Event()
        self._open: asyncio.Future[PackRuntime] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._live())

    async def opened(self) -> PackRuntime:
        """Wait for it. Raises the exception that kept it from opening."""
        return await asyncio.shield(self._open)

    @property
    def revision(self) -> PackRuntime:
        """Only once it is open."""
        return self._open.result()

    def acquire(self) -> None:
        """Keep it open until :meth:`release`."""
        self._users += 1

    def release(self) -> None:
        self._users -= 1
        self._close_if_unused()

    def retire(self) -> None:
        """Close it as soon as it has no users."""
        self._retired = True
        self._close_if_unused()

    @property
    def invoker(self) -> Invoker | None:
        """None unless it is open."""
        opened = self._open.done() and self._open.exception() is None
        return self._open.result().invoker if opened else None

    def stop_resuming(self) -> None:
        """Take over no more runs of other processes."""
        self._resumes_runs = False
        if self._worker is not None:
            self._worker.stop()

    def _close_if_unused(self) -> None:
        if self._retired and not self._users:
            self._unused.set()

    async def _live(self) -> None:
        try:
            async with self._opening() as revision:
                worker = self._worker = Worker([revision.invoker], pause=self._settings.worker_pause)
                resuming = asyncio.create_task(self._resume_runs(worker)) if self._resumes_runs else None
                self._open.set_result(revision)
                await self._unused.wait()
                worker.stop()
                if resuming is not None:
                    await resuming
        except Exception as error:
            if self._open.done():
                _log.exception("closing a pack revision failed")
            else:
                self._open.set_exception(error)

    async def _resume_runs(self, worker: Worker) -> None:
        """Resume runs that other processes left behind. An error of one run does not end the loop."""
        while not self._unused.is_set() and self._resumes_runs:
            try:
                await worker.run()
            except Exception:
                _log.exception("a run could not be taken over")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._unused.wait(), self._settings.worker_pause)


class RevisionManager:
    """Started with :meth:`begin`, closed with :meth:`end`, both on the event loop that uses it."""

    def __init__(
        self,
        opening: Opening,
        outline: Settings,
        settings: ServerSettings | None = None,
        *,
        probe: Callable[[], None] | None = None,
        shared: Callable[[], bool] = lambda: False,
    ) -> None:
        """``opening`` opens the pack as it is now; ``outline`` is known before it is loaded.

        ``probe`` is called in a thread from time to time, and raises a StoreError if the store does not respond.
        ``shared``: whether processes on other machines may resume runs of this one.
        """
        self.outline = outline
        self.settings = settings or ServerSettings()
        self._opening = opening
        self._probe = probe
        self._shared = shared
        self._current: RevisionHandle | None = None
        self._handles: dict[asyncio.Task[None], RevisionHandle] = {}
        self._draining = False
        self._deadline = 0.0
        """Of draining, in the loop's time."""
        self._troubles: dict[str, str] = {}
        self._observers: list[Callable[[], None]] = []
        self._reloading = asyncio.Lock()
        self._booting: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None

    # --- states ------------------------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """As in the manifest."""
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
        """Record a failure that the server can go on with. ``how`` is shown to clients."""
        if self._troubles.get(what) != how:
            self._troubles[what] = how
            _log.warning("degraded: %s", how)
            self._notify()

    def store_failed(self, error: StoreError) -> None:
        """Record that a request failed in the store, unless the store refused it for good reason."""
        if not isinstance(error, Busy | Invalid | ChangeRefused):
            self.degrade(STORE, _STORE_FAILS)

    def restore(self, what: str) -> None:
        """Remove a failure that was recorded with :meth:`degrade`."""
        if self._troubles.pop(what, None) is not None:
            _log.info("no longer degraded: %s", what)
            self._notify()

    def subscribe(self, observer: Callable[[], None]) -> Callable[[], None]:
        """Call ``observer`` after every change that the manifest shows. Returns a function that unsubscribes."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    def _notify(self) -> None:
        for observer in tuple(self._observers):
            try:
                observer()
            except Exception:
                _log.exception("an observer of the manifest failed")

    # --- revisions ---------------------------------------------------------------------------------------------------

    @property
    def current(self) -> PackRuntime | None:
        """What is served now. :meth:`acquire` it before using its invoker."""
        return None if self._current is None else self._current.revision

    @contextlib.contextmanager
    def use(self) -> Iterator[PackRuntime]:
        """The current revision, which stays open meanwhile. Raises ``server_not_ready``."""
        handle = self.acquire()
        try:
            yield handle.revision
        finally:
            handle.release()

    def acquire(self) -> RevisionHandle:
        """The current revision, open until it is released. Raises ``server_not_ready``."""
        handle = self._current
        if self._draining or handle is None:
            raise self.not_ready()
        handle.acquire()
        return handle

    def not_ready(self) -> WireError:
        """The refusal of requests while the server boots or drains."""
        doing = "is shutting down" if self._draining else "is still starting"
        return WireError("server_not_ready", f"The server {doing}", retry_after_ms=self.settings.retry_after_ms)

    def begin(self) -> None:
        """Start loading the pack."""
        self._booting = asyncio.create_task(self._boot())
        if self._probe is not None:
            self._probing = asyncio.create_task(self._watch_store(self._probe))

    async def ready(self) -> None:
        """Wait until the pack is loaded. Raises PackError if it cannot be."""
        assert self._booting is not None, "begin() comes first"
        await asyncio.shield(self._booting)

    async def _boot(self) -> None:
        async with self._reloading:
            await self._open()

    async def _open(self) -> None:
        handle = RevisionHandle(self._opening, self.settings)
        self._handles[handle.task] = handle
        handle.task.add_done_callback(self._handles.pop)
        try:
            await handle.opened()
        except asyncio.CancelledError:
            handle.retire()
            raise
        before, self._current = self._current, handle
        if before is not None:
            before.retire()
        self._troubles.pop(_RELOAD, None)
        for problem in handle.revision.domain.warnings:
            _log.warning("the pack is loaded, but %s", problem.render())
        self._notify()

    async def reload(self) -> ReloadResult:
        """Serve the pack as it is now. If it is broken, the previous revision is served on."""
        async with self._reloading:
            before = self.current
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
                    how = "The newest pack revision cannot be loaded; the previous one is served"
                    self.degrade(_RELOAD, how)
                return "broken"
            after = self.current
            assert after is not None
            same = before is not None and before.domain.digest == after.domain.digest
            return "same" if same else "swapped"

    async def _watch_store(self, probe: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(self.settings.probe)
            failed_before = STORE in self._troubles
            try:
                await asyncio.to_thread(probe)
            except StoreError as error:
                _log.warning("the store does not answer: %s", error)
                self.degrade(STORE, _STORE_FAILS)
            else:
                if failed_before:  # a failure during this probe counts
                    self.restore(STORE)

    # --- shutdown ----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Refuse new requests. Runs are left to other processes, if there may be any."""
        if not self._draining:
            self._draining = True
            self._deadline = asyncio.get_running_loop().time() + self.settings.grace
            for handle in self._handles.values():
                handle.stop_resuming()
                if handle.invoker is not None:
                    handle.invoker.hand_over(awaited=self._shared())
            self._notify()

    def leave(self) -> None:
        """End the grace period: runs stay as they are on record, and clients that wait for one are answered so."""
        for handle in self._handles.values():
            if handle.invoker is not None:
                handle.invoker.leave()

    async def end(self) -> None:
        """Close all revisions, once they have no users and their runs ended, or the grace period is over."""
        self.drain()
        for task in (self._booting, self._probing):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        if self._current is not None:
            self._current.retire()
            self._current = None
        if self._handles:
            await asyncio.wait(self._handles, timeout=max(0.0, self._deadline - asyncio.get_running_loop().time()))
        self.leave()
        while self._handles:
            await asyncio.wait(self._handles)
