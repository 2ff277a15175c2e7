"""The composition root of a server: open a pack as a message core, and serve the core.

One process listens on a socket, or several processes that share only the socket and the store. SIGTERM and SIGINT
drain: new requests are refused, pending requests end, sessions receive the last manifest. A second SIGTERM or SIGINT
ends the process at once. SIGHUP reloads the pack, the file of tokens and the certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manglecp.intent import warm_up
from manglecp.invoke import InvokeSettings, PackOptions, PackRuntime, open_store_with_retention
from manglecp.pack import FolderWatcher, PackError, SecretProvider, Settings, read_outline
from manglecp.server.auth.tokens import TokensFile
from manglecp.server.auth_config import AuthConfig
from manglecp.server.binding import ListenOptions, ServeError, check_exposure
from manglecp.server.config import ServerSettings
from manglecp.server.core import Core, HandledRequest
from manglecp.server.revisions import STORE, ReloadResult, RevisionManager
from manglecp.server.stdio import serve_stdio
from manglecp.server.streams import Streams
from manglecp.store import Store
from manglecp.toolhost import containment_problem, profile_of

if TYPE_CHECKING:
    from manglecp.server.tls import Tls

_log = logging.getLogger(__name__)
_HOSTS = "hosts"  # the part of the server that is degraded while no host can be started


@asynccontextmanager
async def open_core(
    options: PackOptions,
    open_store: Callable[[], Store],
    auth: AuthConfig | None = None,
    *,
    outline: Settings | None = None,
    settings: ServerSettings | None = None,
    observers: Sequence[Callable[[HandledRequest], None]] = (),
    clock: Callable[[], int] = time.time_ns,
) -> AsyncIterator[Core]:
    """Open a core, which loads its pack in the background. The caller drains it before the end of the block.

    ``open_store`` is called in a thread. ``outline``: the pack's settings, if the caller has read them. ``clock``
    returns the time of invocations in nanoseconds.
    """
    auth, settings = auth or AuthConfig(), settings or ServerSettings()
    options = replace(options, sandbox=settings.restrict(options.sandbox))
    if settings.secrets:
        options = replace(options, secrets=SecretProvider(settings.secrets))
    async with AsyncExitStack() as stack:
        # Empty until the first revision opens the store: the manifest does not wait for the store.
        stores: list[Store] = []

        @asynccontextmanager
        async def open_revision() -> AsyncIterator[PackRuntime]:
            server = revisions.settings
            if not stores:
                opening = open_store_with_retention(open_store, server.keep_decisions_ns)
                stores.append(await stack.enter_async_context(opening))
            async with PackRuntime.open(
                options,
                stores[0],
                prepare=warm_up,
                refresh_identity=auth.current,
                settings=InvokeSettings(
                    claim_ms=round(revisions.settings.ownership_time * 1_000),
                    decision_content=revisions.settings.decision_content,
                    emit_decisions=revisions.settings.log_decisions,
                ),
                clock=clock,
                on_stale_facts=on_stale_facts,
                on_outage=on_outage,
            ) as revision:
                profile = profile_of(revision.domain.pack, programs=options.programs, sandbox=options.sandbox)
                if (reason := await asyncio.to_thread(containment_problem, profile)) is not None:
                    message = f"Programs that actions start are ended by a supervisor, not by the kernel: {reason}"
                    revisions.degrade("sandbox", message)
                for secret in options.secrets.describe(revision.domain.pack):
                    if not secret["available"]:
                        _log.warning("the secret %(name)s has no value: %(source)s is missing", secret)
                yield revision

        failure_counts: Counter[str] = Counter()  # by part: how many open revisions have this part failing

        def on_stale_facts(generator: str, error: str | None) -> None:
            # Each revision calls this with the first error of a generator, and with None once it succeeds again.
            failure_counts[generator] += -1 if error is None else 1
            if failure_counts[generator]:
                message = f"The facts of {generator} are not up to date; older facts are used"
                revisions.degrade(f"facts: {generator}", message)
            else:
                revisions.restore(f"facts: {generator}")

        def on_outage(reason: str | None) -> None:
            # Counted like generators: each revision has a pool of hosts for each group of actions.
            failure_counts[_HOSTS] += -1 if reason is None else 1
            if reason is not None:
                _log.error("no host can be started: %s", reason)
                revisions.degrade(_HOSTS, "The server cannot start its tool hosts; calls of some actions fail")
            elif not failure_counts[_HOSTS]:
                revisions.restore(_HOSTS)

        def probe() -> None:
            for store in stores:
                if STORE not in revisions.failures:
                    with store.read_transaction():
                        pass
                else:  # on a full disk the store is readable, so only a write shows that it has recovered
                    with store.write_transaction() as tx:
                        for change in ("+ 1", "- 1"):  # SQLite does not write a page that stays the same
                            tx.execute(f"UPDATE store_part SET version = version {change}")

        def is_shared() -> bool:
            return any(store.database.dialect == "postgresql" for store in stores)

        if outline is None:
            outline = await asyncio.to_thread(read_outline, Path(options.folder))
        revisions = RevisionManager(open_revision, outline, settings, probe=probe, is_shared=is_shared)
        core = Core(revisions, auth.auth, observers=observers)
        revisions.begin()
        try:
            yield core
        finally:
            await core.close()


async def serve_http(
    options: PackOptions,
    open_store: Callable[[], Store],
    listen_options: ListenOptions,
    auth: AuthConfig,
    listen_socket: socket.socket,
    *,
    settings: ServerSettings | None = None,
    watch: Callable[[Core], Awaitable[None]] | None = None,
    on_start: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve on ``listen_socket`` until a signal. Raises PackError, StoreError or ServeError if the server cannot start.

    ``watch`` runs concurrently and reloads the pack; with a ``watch``, a pack that cannot be loaded yet is no error.
    ``on_start`` is called with the URL: with a ``watch`` at once, else when the pack is loaded.
    """
    from manglecp.server.app import App
    from manglecp.server.listener import Listener
    from manglecp.server.metrics import Metrics
    from manglecp.server.middleware import Guards
    from manglecp.server.tls import Tls
    from manglecp.server.tracing import tracing_observers

    auth_required = auth.auth is not None
    check_exposure(listen_options, auth_required=auth_required)
    hosts, origins = listen_options.hosts, listen_options.origins
    guards = Guards(listen_options.host, hosts=hosts, origins=origins, auth_required=auth_required)
    metrics, tls = Metrics(), Tls.of(listen_options)
    observers: tuple[Callable[[HandledRequest], None], ...] = (metrics, *tracing_observers())
    async with open_core(options, open_store, auth, settings=settings, observers=observers) as core:
        app = App(core, guards, metrics=metrics, metadata=auth.metadata, max_age=listen_options.max_age)
        listener = Listener(app, listen_socket, tls=tls)
        stop = _handle_signals(core, auth.tokens, tls)
        await listener.begin()
        host, port = listener.address
        scheme = "http" if tls is None else "https"
        url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"  # only IPv6 has colons
        _log.info("listening at %s; the pack is being loaded", url)
        try:
            async with _in_background(watch_credentials(core, auth.tokens)):
                await _serve_until(stop, core, watch, partial(on_start, url))
        finally:
            drained = await listener.end()
            _log.info("drained" if drained else "some requests did not end in time")


async def serve_streams(
    options: PackOptions,
    open_store: Callable[[], Store],
    auth: AuthConfig,
    streams: Streams,
    *,
    outline: Settings | None = None,
    sent_manifest: bytes | None = None,
    settings: ServerSettings | None = None,
) -> None:
    """Serve until the input ends, or a signal. The caller has written ``sent_manifest``, if any, to the output."""
    async with (
        open_core(options, open_store, auth, outline=outline, settings=settings) as core,
        _in_background(watch_credentials(core, auth.tokens)),
    ):
        await serve_stdio(core, streams, sent_manifest=sent_manifest, stop=_handle_signals(core, auth.tokens))


@asynccontextmanager
async def _in_background(work: Coroutine[Any, Any, object]) -> AsyncIterator[asyncio.Task[object]]:
    """Run ``work`` during the block; at its end cancel it, or raise its exception."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _serve_until(
    stop: asyncio.Event, core: Core, watch: Callable[[Core], Awaitable[None]] | None, on_start: Callable[[], object]
) -> None:
    """Wait for ``stop``. Raises PackError if the pack cannot be loaded and there is no ``watch`` that reloads it."""

    async def load_and_serve() -> None:
        if watch is not None:
            on_start()
            await watch(core)
        else:
            await core.revisions.wait_until_loaded()
            on_start()
            await stop.wait()

    async with _in_background(load_and_serve()) as serve_task, _in_background(stop.wait()) as stop_task:
        await asyncio.wait((serve_task, stop_task), return_when=asyncio.FIRST_COMPLETED)


def _handle_signals(core: Core, tokens: TokensFile | None, tls: Tls | None = None) -> asyncio.Event:
    """Reload on SIGHUP. Return an event that the first SIGTERM or SIGINT sets; the second has its default effect."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    end_signals = (signal.SIGTERM, signal.SIGINT)
    reload_tasks: set[asyncio.Task[None]] = set()  # the event loop has only weak references to tasks

    def end() -> None:
        for number in end_signals:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        stop.set()

    def reload() -> None:
        task = asyncio.create_task(_reload(core, tokens, tls))
        reload_tasks.add(task)
        task.add_done_callback(reload_tasks.discard)

    with contextlib.suppress(ValueError, RuntimeError):  # only the main thread can handle signals
        for number in end_signals:
            loop.add_signal_handler(number, end)
        loop.add_signal_handler(signal.SIGHUP, reload)
    return stop


async def _reload(core: Core, tokens: TokensFile | None, tls: Tls | None) -> None:
    if tls is not None:
        try:
            await asyncio.to_thread(tls.renew)
            _log.info("the certificate is reloaded")
        except ServeError as error:
            _log.error("the certificate cannot be reloaded, and the previous one is used: %s", error)
    if tokens is not None and await asyncio.to_thread(partial(tokens.reload, force=True)):
        await core.recheck()
    _log.info("the pack is reloaded: %s", await core.revisions.reload())


async def reload_on_change(
    revisions: RevisionManager,
    folder: Path,
    *,
    pause: float = 0.3,
    on_reload: Callable[[ReloadResult], None] = lambda _: None,
) -> None:
    """Reload the pack after every completed edit, until cancelled. ``pause``: seconds between polls of the folder."""
    # An edit is complete if the files are the same in the next poll, or in the next five polls if a file is missing.
    watcher = await asyncio.to_thread(FolderWatcher, folder, steady=1, gone=5)
    with contextlib.suppress(PackError):  # an edit may repair the pack
        await revisions.wait_until_loaded()
    while revisions.status != "draining":
        await asyncio.sleep(pause)
        if await asyncio.to_thread(watcher.poll):
            on_reload(await revisions.reload())


async def watch_credentials(core: Core, tokens: TokensFile | None, *, pause: float = 1.0) -> None:
    """Every ``pause`` seconds look for changes of ``tokens``, and close sessions without a valid credential."""
    loop = asyncio.get_running_loop()
    checked_at = loop.time()
    while True:
        await asyncio.sleep(pause)
        has_changed = tokens is not None and await asyncio.to_thread(tokens.reload)
        if has_changed or loop.time() - checked_at >= core.settings.recheck_interval:
            checked_at = loop.time()
            await core.recheck()
