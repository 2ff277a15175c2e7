"""The composition root of a server: a pack in a folder becomes a message core, and the core is served.

One process listens, or several on one socket, which share nothing but the store. SIGTERM and SIGINT drain: no request
is admitted, pending ones are answered, sessions receive the last manifest. A second signal ends the process. SIGHUP
reloads the pack, the file of tokens and the certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from manglecp.intent import warm_up
from manglecp.invoke import InvokeSettings, PackOptions, PackRuntime, local_secrets, open_store_with_retention
from manglecp.pack import FolderWatcher, PackError, Settings, read_outline
from manglecp.server.auth.tokens import TokensFile
from manglecp.server.auth_config import AuthConfig
from manglecp.server.binding import ListenOptions, ServeError, check_exposure
from manglecp.server.config import ServerSettings
from manglecp.server.core import Core, HandledRequest
from manglecp.server.revisions import STORE, ReloadResult, RevisionManager
from manglecp.server.stdio import serve_stdio
from manglecp.server.streams import Streams
from manglecp.store import Store

if TYPE_CHECKING:
    from manglecp.server.tls import Tls

__all__ = ["open_core", "reload_on_change", "serve_http", "serve_streams", "watch_credentials"]

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_core(
    options: PackOptions,
    store: Callable[[], Store],
    auth: AuthConfig | None = None,
    *,
    outline: Settings | None = None,
    settings: ServerSettings | None = None,
    observers: Sequence[Callable[[HandledRequest], None]] = (),
    clock: Callable[[], int] = time.time_ns,
) -> AsyncIterator[Core]:
    """Open a core that is booting. The caller drains it; it is closed here.

    ``store`` opens the store, in a thread. ``clock`` is the invoker's.
    """
    auth = auth or AuthConfig()
    async with AsyncExitStack() as stack:
        opened: list[Store] = []

        @asynccontextmanager
        async def opening() -> AsyncIterator[PackRuntime]:
            if not opened:  # with the first revision: the manifest does not wait for the store
                opened.append(await stack.enter_async_context(open_store_with_retention(store)))
            async with PackRuntime.open(
                options,
                opened[0],
                prepare=warm_up,
                secrets=auth.secrets or local_secrets(),
                auto_confirm=auth.auto_confirm,
                settings=InvokeSettings(claim_ms=round(revisions.settings.claim * 1_000)),
                clock=clock,
                on_stale_facts=on_stale_facts,
            ) as revision:
                yield revision

        troubles: Counter[str] = Counter()

        def on_stale_facts(generator: str, why: str | None) -> None:
            """Two revisions may be open and have the same trouble."""
            troubles[generator] += -1 if why is None else 1
            if not troubles[generator]:
                revisions.restore(f"facts: {generator}")
            else:
                how = f"What {generator} finds out is not up to date; older facts are used"
                revisions.degrade(f"facts: {generator}", how)

        def probe() -> None:
            """A store that failed may still be readable, on a full disk for example: it recovers with a write."""
            for one in opened:
                if STORE not in revisions.troubles:
                    with one.read_transaction():
                        pass
                else:
                    with one.write_transaction() as tx:
                        one.nonces.burn(tx, "", "", 0)
                        one.nonces.sweep(tx, 0)

        if outline is None:
            outline = await asyncio.to_thread(read_outline, Path(options.folder))

        def shared() -> bool:
            return any(one.database.dialect == "postgresql" for one in opened)

        revisions = RevisionManager(opening, outline, settings, probe=probe, shared=shared)
        core = Core(revisions, auth.auth, auto_confirm=auth.auto_confirm, observers=observers)
        revisions.begin()
        try:
            yield core
        finally:
            await core.close()


async def serve_http(
    options: PackOptions,
    store: Callable[[], Store],
    listening: ListenOptions,
    auth: AuthConfig,
    bound: socket.socket,
    *,
    settings: ServerSettings | None = None,
    watch: Callable[[Core], Awaitable[None]] | None = None,
    started: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal. Raises PackError, StoreError or Refused if it cannot start. ``watch`` runs beside it.

    ``started`` is called with the address once the pack is loaded; with ``watch`` before that.
    """
    from manglecp.server.app import App
    from manglecp.server.listener import Listener
    from manglecp.server.metrics import Metrics
    from manglecp.server.middleware import Guards
    from manglecp.server.tls import Tls
    from manglecp.server.tracing import tracing_observers

    required = auth.auth is not None
    check_exposure(listening, auth=required)
    guards = Guards(listening.host, hosts=listening.hosts, origins=listening.origins, auth=required)
    metrics = Metrics()
    tls = Tls.of(listening)
    async with open_core(options, store, auth, settings=settings, observers=(metrics, *tracing_observers())) as core:
        app = App(core, guards, metrics=metrics, metadata=auth.metadata, max_age=listening.max_age)
        listener = Listener(app, bound, tls=tls)
        stop = _stop_on_signals(core, auth.tokens, tls)
        await listener.begin()
        host, port = listener.address
        url = f"{'http' if tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"
        _log.info("listening at %s; the pack is being loaded", url)
        try:
            async with _credentials_watched(core, auth):
                await _until(stop, core, watch, lambda: started and started(url))
        finally:
            drained = await listener.end()
            _log.info("drained" if drained else "some requests did not end in time")


async def serve_streams(
    options: PackOptions,
    store: Callable[[], Store],
    auth: AuthConfig,
    streams: Streams,
    *,
    outline: Settings | None = None,
    said: bytes | None = None,
    settings: ServerSettings | None = None,
) -> None:
    """Serve until the input ends or a signal. ``said`` is the manifest that was written already."""
    async with (
        open_core(options, store, auth, outline=outline, settings=settings) as core,
        _credentials_watched(core, auth),
    ):
        await serve_stdio(core, streams, said=said, stop=_stop_on_signals(core, auth.tokens))


@contextlib.asynccontextmanager
async def _credentials_watched(core: Core, auth: AuthConfig) -> AsyncIterator[None]:
    if auth.auth is None:
        yield
        return
    watching = asyncio.create_task(watch_credentials(core, auth.tokens))
    try:
        yield
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def _until(
    stop: asyncio.Event,
    core: Core,
    watch: Callable[[Core], Awaitable[None]] | None,
    started: Callable[[], object],
) -> None:
    """Wait for the signal. Raises if the pack cannot be loaded at all; ``watch`` waits for its repair instead."""

    async def beside() -> None:
        if watch is not None:
            started()
            await watch(core)
        else:
            await core.revisions.ready()
            started()
            await stop.wait()

    work, stopping = asyncio.create_task(beside()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        for task in (work, stopping):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


def _stop_on_signals(core: Core, tokens: TokensFile | None, tls: Tls | None = None) -> asyncio.Event:
    """The first signal sets the event, the second has its default effect."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    ending = (signal.SIGTERM, signal.SIGINT)
    reloading: set[asyncio.Task[None]] = set()

    def end() -> None:
        for one in ending:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)
        stop.set()

    def reload() -> None:
        task = asyncio.create_task(_reload(core, tokens, tls))
        reloading.add(task)
        task.add_done_callback(reloading.discard)

    with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread: signals do not arrive here
        for one in ending:
            loop.add_signal_handler(one, end)
        loop.add_signal_handler(signal.SIGHUP, reload)
    return stop


async def _reload(core: Core, tokens: TokensFile | None, tls: Tls | None) -> None:
    if tls is not None:
        try:
            await asyncio.to_thread(tls.renew)
            _log.info("the certificate was read again")
        except ServeError as error:
            _log.error("the certificate is not read again, and the one before is used on: %s", error)
    if tokens is not None and await asyncio.to_thread(partial(tokens.look, again=True)):
        await core.recheck()
    _log.info("the pack was read again: %s", await core.revisions.reload())


async def reload_on_change(
    revisions: RevisionManager,
    folder: Path,
    *,
    pause: float = 0.3,
    told: Callable[[ReloadResult], None] = lambda _: None,
) -> None:
    """Reload after every edit that has settled, until cancelled. ``told`` is called with every result."""
    watched = await asyncio.to_thread(FolderWatcher, folder, lambda _: None, steady=1, gone=5)
    with contextlib.suppress(PackError):  # reload when it is repaired
        await revisions.ready()
    while revisions.status != "draining":
        await asyncio.sleep(pause)
        if await asyncio.to_thread(watched.poll) == "swapped":
            told(await revisions.reload())


async def watch_credentials(core: Core, tokens: TokensFile | None, *, pause: float = 1.0) -> None:
    """Close sessions whose credential was withdrawn or has expired, also idle ones, until cancelled."""
    loop = asyncio.get_running_loop()
    checked = loop.time()
    while True:
        await asyncio.sleep(pause)
        changed = tokens is not None and await asyncio.to_thread(tokens.look)
        if changed or loop.time() - checked >= core.settings.recheck:
            checked = loop.time()
            await core.recheck()
