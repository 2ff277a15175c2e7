"""Running a server: from the command line to the last answer.

One process listens, or several on one socket, which share the store and know nothing of each other. SIGTERM and SIGINT
drain: nothing new is taken, what is under way is answered, everybody is told. A second one ends at once. SIGHUP reads
the pack, the file of tokens and the certificate again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from manglecp.invoke import local_secrets
from manglecp.pack import Settings
from manglecp.server.assembly import Source, open_core
from manglecp.server.auth.tokens import TokensFile
from manglecp.server.binding import Listening, Refused, refuse_open
from manglecp.server.core import Core
from manglecp.server.guards import Guards
from manglecp.server.reloading import watch_credentials
from manglecp.server.settings import ServerSettings
from manglecp.server.stdio import serve_stdio
from manglecp.server.streams import Streams
from manglecp.server.who import Who

if TYPE_CHECKING:
    from manglecp.server.tls import Tls

__all__ = ["serve_http", "serve_streams"]

_log = logging.getLogger(__name__)


async def serve_http(
    source: Source,
    listening: Listening,
    who: Who,
    bound: socket.socket,
    *,
    settings: ServerSettings | None = None,
    watch: Callable[[Core], Awaitable[None]] | None = None,
    started: Callable[[str], None] | None = None,
) -> None:
    """Until a signal; PackError, StoreError or Refused if it cannot be begun. ``watch`` runs beside it.

    ``started`` is told the address once the pack is loaded, or before that where somebody watches it.
    """
    from manglecp.server.app import App
    from manglecp.server.listening import Listener
    from manglecp.server.memory import keep_small
    from manglecp.server.metrics import Metrics
    from manglecp.server.tls import Tls
    from manglecp.server.tracing import tracing

    keep_small()
    required = who.auth is not None
    refuse_open(listening, auth=required)
    guards = Guards(listening.host, hosts=listening.hosts, origins=listening.origins, auth=required)
    metrics = Metrics()
    tls = Tls.of(listening)
    async with open_core(
        source,
        auth=who.auth,
        secrets=who.secrets or local_secrets(),
        auto_confirm=who.auto_confirm,
        settings=settings,
        observers=(metrics, *tracing()),
    ) as core:
        app = App(core, guards, metrics=metrics, metadata=who.metadata, max_age=listening.max_age)
        listener = Listener(app, bound, tls=tls)
        stop = _stop_on_signals(core, who.tokens, tls)
        await listener.begin()
        host, port = listener.address
        url = f"{'http' if tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"
        _log.info("listening at %s; the pack is being loaded", url)
        try:
            async with _credentials_watched(core, who):
                await _until(stop, core, watch, lambda: started and started(url))
        finally:
            over = await listener.end()
            _log.info("drained" if over else "some requests did not end in time")


async def serve_streams(
    source: Source,
    who: Who,
    streams: Streams,
    *,
    outline: Settings | None = None,
    said: bytes | None = None,
    settings: ServerSettings | None = None,
) -> None:
    """``said`` is the manifest that was written already."""
    async with (
        open_core(
            source,
            outline=outline,
            auth=who.auth,
            secrets=who.secrets or local_secrets(),
            auto_confirm=who.auto_confirm,
            settings=settings,
        ) as core,
        _credentials_watched(core, who),
    ):
        await serve_stdio(core, streams, said=said, stop=_stop_on_signals(core, who.tokens))


@contextlib.asynccontextmanager
async def _credentials_watched(core: Core, who: Who) -> AsyncIterator[None]:
    if who.auth is None:
        yield
        return
    watching = asyncio.create_task(watch_credentials(core, who.tokens))
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
    """The signal, or what keeps the pack from being loaded at all; whoever watches waits for its repair."""
    from manglecp.server.memory import set_apart

    async def beside() -> None:
        if watch is not None:
            started()
            await watch(core)
        else:
            await core.serving.ready()
            set_apart()
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
    """The first signal asks, the second is obeyed as usual."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    asking = (signal.SIGTERM, signal.SIGINT)
    reloading: set[asyncio.Task[None]] = set()

    def ask() -> None:
        for one in asking:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)
        stop.set()

    def reload() -> None:
        task = asyncio.create_task(_reload(core, tokens, tls))
        reloading.add(task)
        task.add_done_callback(reloading.discard)

    with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread: nobody sends signals there
        for one in asking:
            loop.add_signal_handler(one, ask)
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
    _log.info("the pack was read again: %s", await core.serving.reload())
