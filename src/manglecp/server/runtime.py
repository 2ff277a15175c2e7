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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from manglecp.intent import Domain, OfferService, warm_up
from manglecp.invoke import (
    AutoConfirm,
    Housekeeping,
    Invoker,
    InvokeSettings,
    Secrets,
    Troubled,
    kept_up_to_date,
    local_secrets,
)
from manglecp.pack import FolderWatcher, PackError, Settings, read_outline, read_pack
from manglecp.server.auth import Auth
from manglecp.server.auth.tokens import TokensFile
from manglecp.server.auth_config import AuthConfig
from manglecp.server.binding import Listening, Refused, refuse_open
from manglecp.server.config import ServerSettings
from manglecp.server.core import Core, HandledRequest
from manglecp.server.revisions import STORE, ReloadResult, Revision, RevisionManager
from manglecp.server.stdio import serve_stdio
from manglecp.server.streams import Streams
from manglecp.store import Store, open_store
from manglecp.toolhost import Generated, Looking, profile_of, serve_actions, serve_externals, serve_facts

if TYPE_CHECKING:
    from manglecp.server.tls import Tls

__all__ = ["Source", "open_core", "reload_on_change", "serve_http", "serve_streams", "watch_credentials"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The pack that is served, and its resources."""

    folder: Path
    where: str | None = None
    """The store, as :func:`open_store` takes it."""
    key: bytes | None = field(default=None, repr=False)
    params: Mapping[str, str] = field(default_factory=dict)
    workspace: Sequence[Path] = ()
    programs: Sequence[str] = ()
    degrade: bool = False
    allow_weaker: bool = False
    cache: Path | bool = True
    """The cache of fact generators: in this user's cache folder, elsewhere, or none."""
    looking: Callable[[Looking], None] | None = field(default=None, compare=False)
    """Called with their progress."""


@asynccontextmanager
async def open_core(
    source: Source,
    *,
    outline: Settings | None = None,
    auth: Auth | None = None,
    secrets: Secrets | None = None,
    auto_confirm: AutoConfirm | None = None,
    settings: ServerSettings | None = None,
    observers: Sequence[Callable[[HandledRequest], None]] = (),
    clock: Callable[[], int] = time.time_ns,
) -> AsyncIterator[Core]:
    """Open a core that is booting. The caller drains it; it is closed here. ``clock`` is the invoker's."""
    async with AsyncExitStack() as stack:
        opened: list[Store] = []

        @asynccontextmanager
        async def opening() -> AsyncIterator[Revision]:
            if not opened:  # with the first revision: the manifest does not wait for the store
                store = await asyncio.to_thread(open_store, source.where, key=source.key)
                opened.append(store)
                keeping = Housekeeping(store, time.time_ns)
                keeping.begin()
                stack.callback(store.close)
                stack.push_async_callback(keeping.end)
            async with open_revision(
                source.folder,
                opened[0],
                params=source.params,
                workspace=source.workspace,
                programs=source.programs,
                degrade=source.degrade,
                allow_weaker=source.allow_weaker,
                cache=source.cache,
                looking=source.looking,
                troubled=troubled,
                secrets=secrets or local_secrets(),
                auto_confirm=auto_confirm,
                settings=InvokeSettings(claim_ms=round(revisions.settings.claim * 1_000)),
                clock=clock,
            ) as revision:
                yield revision

        troubles: Counter[str] = Counter()

        def troubled(generator: str, why: str | None) -> None:
            """Two revisions may be open and have the same trouble."""
            troubles[generator] += -1 if why is None else 1
            if not troubles[generator]:
                revisions.restore(f"facts: {generator}")
            else:
                how = f"What {generator} finds out is not up to date; older facts are used"
                revisions.degrade(f"facts: {generator}", how)

        def probe() -> None:
            """A store that failed may still be readable, on a full disk for example: it recovers with a write."""
            for store in opened:
                if STORE not in revisions.troubles:
                    with store.read_transaction():
                        pass
                else:
                    with store.write_transaction() as tx:
                        store.nonces.burn(tx, "", "", 0)
                        store.nonces.sweep(tx, 0)

        if outline is None:
            outline = await asyncio.to_thread(read_outline, source.folder)

        def shared() -> bool:
            return any(store.database.dialect == "postgresql" for store in opened)

        revisions = RevisionManager(opening, outline, settings, probe=probe, shared=shared)
        core = Core(revisions, auth, auto_confirm=auto_confirm, observers=observers)
        revisions.begin()
        try:
            yield core
        finally:
            await core.close()


@asynccontextmanager
async def open_revision(
    folder: Path | str,
    store: Store,
    *,
    params: Mapping[str, str] | None = None,
    workspace: Sequence[Path | str] = (),
    programs: Sequence[str] = (),
    degrade: bool = False,
    allow_weaker: bool = False,
    cache: Path | bool = True,
    secrets: Secrets | None = None,
    auto_confirm: AutoConfirm | None = None,
    settings: InvokeSettings | None = None,
    clock: Callable[[], int] = time.time_ns,
    looking: Callable[[Looking], None] | None = None,
    troubled: Troubled | None = None,
) -> AsyncIterator[Revision]:
    """Open the pack as it is in its folder now. Raises PackError."""
    async with AsyncExitStack() as stack:
        pack = await asyncio.to_thread(read_pack, folder, params, degrade=degrade)
        hosts = stack.enter_context(ExitStack())

        def load() -> tuple[Domain, Generated | None]:
            facts = serve_facts(pack, cache=cache, programs=programs, degrade=degrade, told=looking)
            generated = hosts.enter_context(facts)
            externals = hosts.enter_context(serve_externals(pack, degrade=degrade, allow_weaker=allow_weaker))
            loaded = Domain.load(pack, externals=externals, generated=generated)
            warm_up(loaded)
            return loaded, generated

        domain, generated = await asyncio.to_thread(load)
        actions = serve_actions(
            pack, workspace=workspace, programs=programs, degrade=degrade, allow_weaker=allow_weaker
        )
        dispatcher = await stack.enter_async_context(actions)
        offers = OfferService(domain, store, clock=clock)
        invoker = Invoker(
            offers,
            store,
            dispatcher,
            secrets=secrets,
            auto_confirm=auto_confirm,
            settings=settings,
            sandbox=profile_of(pack, programs=programs, allow_weaker=allow_weaker),
            clock=clock,
        )
        await stack.enter_async_context(invoker)
        await stack.enter_async_context(kept_up_to_date(invoker, generated, troubled))
        yield Revision(domain, offers, invoker)


async def serve_http(
    source: Source,
    listening: Listening,
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
    from manglecp.server.tracing import tracing

    required = auth.auth is not None
    refuse_open(listening, auth=required)
    guards = Guards(listening.host, hosts=listening.hosts, origins=listening.origins, auth=required)
    metrics = Metrics()
    tls = Tls.of(listening)
    async with open_core(
        source,
        auth=auth.auth,
        secrets=auth.secrets or local_secrets(),
        auto_confirm=auth.auto_confirm,
        settings=settings,
        observers=(metrics, *tracing()),
    ) as core:
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
    source: Source,
    auth: AuthConfig,
    streams: Streams,
    *,
    outline: Settings | None = None,
    said: bytes | None = None,
    settings: ServerSettings | None = None,
) -> None:
    """Serve until the input ends or a signal. ``said`` is the manifest that was written already."""
    async with (
        open_core(
            source,
            outline=outline,
            auth=auth.auth,
            secrets=auth.secrets or local_secrets(),
            auto_confirm=auth.auto_confirm,
            settings=settings,
        ) as core,
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
        except Refused as error:
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
