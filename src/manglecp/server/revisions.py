"""The current pack revision, and the status of the server.

A server is reachable before it has loaded its pack (``booting``), while it loads a new revision, and while it drains.
If a new revision cannot be loaded, the previous one stays current and the status is ``degraded``. Each revision has a
task that closes it once it is replaced and all requests have released it.
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

ReloadResult = Literal["swapped", "same", "broken"]
"""swapped: a different revision is current; same: the pack has not changed; broken: the pack cannot be loaded."""
# Parts of the server that may degrade it.
_PACK: Final = "pack"
STORE: Final = "store"
_STORE_FAILS: Final = "The store fails; requests that need it fail too"
_log = logging.getLogger(__name__)
OpenRevision = Callable[[], AbstractAsyncContextManager[PackRuntime]]


class RevisionHandle:
    """A revision with the number of its users, and the task that opens and closes it."""

    def __init__(self, open_revision: OpenRevision, settings: ServerSettings) -> None:
        self._open_revision = open_revision
        self._settings = settings
        self._users = 0
        self._is_retired = False
        self._worker: Worker | None = None
        self._resumes_runs = settings.worker
        self._close_requested = asyncio.Event()
        self.revision: PackRuntime
        """The revision; set when it is open."""
        self._open_result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run())

    async def wait_until_open(self) -> None:
        """Wait until the revision is open. Raises the exception of opening it."""
        await asyncio.shield(self._open_result)

    def acquire(self) -> None:
        """Keep the revision open until :meth:`release`."""
        self._users += 1

    def release(self) -> None:
        self._users -= 1
        self._close_if_unused()

    def retire(self) -> None:
        """Close the revision as soon as no request uses it."""
        self._is_retired = True
        self._close_if_unused()

    @property
    def invoker(self) -> Invoker | None:
        """The invoker; None unless the revision is open."""
        is_open = self._open_result.done() and self._open_result.exception() is None
        return self.revision.invoker if is_open else None

    def stop_resuming(self) -> None:
        """Take over no more runs of other processes."""
        self._resumes_runs = False
        if self._worker is not None:
            self._worker.stop()

    def _close_if_unused(self) -> None:
        if self._is_retired and not self._users:
            self._close_requested.set()

    async def _run(self) -> None:
        try:
            async with self._open_revision() as revision:
                worker = self._worker = Worker([revision.invoker], pause=self._settings.worker_pause)
                resume_task = asyncio.create_task(self._resume_runs(worker))
                self.revision = revision
                self._open_result.set_result(None)
                await self._close_requested.wait()
                worker.stop()
                await resume_task
        except Exception as error:
            if self._open_result.done():
                _log.exception("closing a pack revision failed")
            else:
                self._open_result.set_exception(error)

    async def _resume_runs(self, worker: Worker) -> None:
        """Resume runs whose process has ended. The loop continues after an error of one run."""
        while not self._close_requested.is_set() and self._resumes_runs:
            try:
                await worker.run()
            except Exception:
                _log.exception("a run could not be taken over")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._close_requested.wait(), self._settings.worker_pause)


class RevisionManager:
    """The revisions of a pack, from :meth:`begin` until :meth:`end`, on one event loop."""

    def __init__(
        self,
        open_revision: OpenRevision,
        outline: Settings,
        settings: ServerSettings | None = None,
        *,
        probe: Callable[[], None] | None = None,
        is_shared: Callable[[], bool] = lambda: False,
    ) -> None:
        """Open revisions with ``open_revision``; ``outline`` has the pack's settings before the pack is loaded.

        ``probe`` is called periodically in a thread, and raises StoreError if the store does not respond. ``is_shared``
        returns whether processes on other machines use the same store, and may resume runs of this process.
        """
        self.outline = outline
        self.settings = settings or ServerSettings()
        self._open_revision = open_revision
        self._probe = probe
        self._is_shared = is_shared
        self.current: PackRuntime | None = None
        """The current revision; None while booting. Only :meth:`acquire` guarantees that its invoker stays open."""
        self._current_handle: RevisionHandle | None = None
        self._handles: dict[asyncio.Task[None], RevisionHandle] = {}  # all handles that are not closed, by their tasks
        self._is_draining = False
        self._drain_deadline = 0.0  # by the clock of the event loop
        self._failures: dict[str, str] = {}
        self.on_change: Callable[[], None] | None = None
        """The observer that is called after every change of the manifest."""
        self._load_lock = asyncio.Lock()
        self._boot_task: asyncio.Task[None] | None = None
        self._probe_task: asyncio.Task[None] | None = None

    @property
    def status(self) -> Status:
        """The status in the manifest."""
        if self._is_draining:
            return "draining"
        if self._current_handle is None:
            return "booting"
        return "degraded" if self._failures else "ready"

    @property
    def failures(self) -> Mapping[str, str]:
        """What clients see of a degraded server: the message of each failure, by the part that fails."""
        return MappingProxyType(self._failures)

    def degrade(self, part: str, message: str) -> None:
        """Record a failure of a part of the server, which continues. Clients see ``message``."""
        if self._failures.get(part) != message:
            self._failures[part] = message
            _log.warning("degraded: %s", message)
            self._notify_observer()

    def store_failed(self, error: StoreError, log_fields: Mapping[str, str]) -> None:
        """Log that a request failed in the store; degrade the server unless the error concerns that request only."""
        _log.error("the store failed: %s", error, extra=log_fields)
        if not isinstance(error, Busy | Invalid | ChangeRefused):
            self.degrade(STORE, _STORE_FAILS)

    def restore(self, part: str) -> None:
        """Remove a failure that was recorded with :meth:`degrade`."""
        if self._failures.pop(part, None) is not None:
            _log.info("no longer degraded: %s", part)
            self._notify_observer()

    def _notify_observer(self) -> None:
        if self.on_change is not None:
            try:
                self.on_change()
            except Exception:
                _log.exception("sending the new manifest failed")

    @contextlib.contextmanager
    def use(self) -> Iterator[PackRuntime]:
        """Keep the current revision open for a ``with`` block. Raises ``server_not_ready``."""
        handle = self.acquire()
        try:
            yield handle.revision
        finally:
            handle.release()

    def acquire(self) -> RevisionHandle:
        """Return the current revision, which stays open until its ``release()``. Raises ``server_not_ready``."""
        handle = self._current_handle
        if self._is_draining or handle is None:
            raise self.not_ready()
        handle.acquire()
        return handle

    def not_ready(self) -> WireError:
        """Return the refusal of requests while the server boots or drains."""
        activity = "shutting down" if self._is_draining else "still starting"
        return WireError("server_not_ready", f"The server is {activity}", retry_after_ms=self.settings.retry_after_ms)

    def begin(self) -> None:
        """Start loading the pack."""
        self._boot_task = asyncio.create_task(self._boot())
        if self._probe is not None:
            self._probe_task = asyncio.create_task(self._watch_store(self._probe))

    async def wait_until_loaded(self) -> None:
        """Wait for the first attempt to load the pack. Raises PackError if the pack cannot be loaded."""
        assert self._boot_task is not None, "call begin() first"
        await asyncio.shield(self._boot_task)

    async def _boot(self) -> None:
        async with self._load_lock:
            await self._load()

    async def _load(self) -> None:
        """Open a new revision and make it the current one."""
        handle = RevisionHandle(self._open_revision, self.settings)
        self._handles[handle.task] = handle
        handle.task.add_done_callback(self._handles.pop)
        try:
            await handle.wait_until_open()
        except asyncio.CancelledError:
            handle.retire()
            raise
        if self._is_draining:  # a drain began during the opening; no new revision is needed
            handle.retire()
            return
        before, self._current_handle = self._current_handle, handle
        self.current = handle.revision
        if before is not None:
            # Runs that were admitted under the old revision are subject to the policy of the new one.
            for replaced in self._handles.values():
                if replaced is not handle and replaced.invoker is not None:
                    replaced.invoker.replace_by(handle.revision.invoker)
            before.retire()
        self._failures.pop(_PACK, None)
        for problem in handle.revision.domain.warnings:
            _log.warning("the pack is loaded, but %s", problem.render())
        self._notify_observer()

    async def reload(self) -> ReloadResult:
        """Load the pack again. If it cannot be loaded ("broken"), the previous revision stays current."""
        async with self._load_lock:
            before = self.current
            if self._is_draining:
                return "same"
            try:
                await self._load()
            except Exception as error:  # the previous revision can still be served
                if isinstance(error, PackError):
                    for problem in error.diagnostics:
                        _log.error("the pack cannot be loaded: %s", problem.render())
                else:
                    _log.exception("the pack cannot be loaded")
                if before is not None:
                    self.degrade(_PACK, "The newest pack revision cannot be loaded; the previous one is served")
                return "broken"
            after = self.current  # None: a drain began before the first revision was open
            same = after is None or (before is not None and before.domain.digest == after.domain.digest)
            return "same" if same else "swapped"

    async def _watch_store(self, probe: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(self.settings.probe_interval)
            failed_before = STORE in self._failures
            try:
                await asyncio.to_thread(probe)
            except StoreError as error:
                _log.warning("the store does not respond: %s", error)
                self.degrade(STORE, _STORE_FAILS)
            else:
                if failed_before:  # a failure of a request during this probe may be newer than the probe
                    self.restore(STORE)

    def drain(self) -> None:
        """Refuse new requests, and begin the grace period. Runs are handed over if the store is shared."""
        if not self._is_draining:
            self._is_draining = True
            self._drain_deadline = asyncio.get_running_loop().time() + self.settings.grace_period
            for handle in self._handles.values():
                handle.stop_resuming()
                if handle.invoker is not None:
                    # A run for which a client of this process waits is handed over only to another machine.
                    handle.invoker.hand_over(awaited=self._is_shared())
            self._notify_observer()

    def end_grace_period(self) -> None:
        """Leave runs as they are in the store; clients that wait for one receive an error."""
        for handle in self._handles.values():
            if handle.invoker is not None:
                handle.invoker.leave()

    async def end(self) -> None:
        """Close all revisions once their users and runs have ended, or the grace period is over."""
        self.drain()
        for task in (self._boot_task, self._probe_task):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        if self._current_handle is not None:
            self._current_handle.retire()
            self._current_handle = self.current = None
        if self._handles:
            await asyncio.wait(
                self._handles, timeout=max(0.0, self._drain_deadline - asyncio.get_running_loop().time())
            )
        self.end_grace_period()
        while self._handles:
            await asyncio.wait(self._handles)
