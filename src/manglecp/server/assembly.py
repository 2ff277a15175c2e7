"""A pack in a folder becomes a message core: its store, its editions, who may ask, and who watches."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from manglecp.invoke import AutoConfirm, Housekeeping, InvokeSettings, Secrets, local_secrets
from manglecp.pack import Settings, read_outline
from manglecp.server.auth import Auth
from manglecp.server.core import Core, Handled
from manglecp.server.edition import Edition, open_edition
from manglecp.server.serving import STORE, Serving
from manglecp.server.settings import ServerSettings
from manglecp.store import Store, open_store
from manglecp.toolhost import Looking

__all__ = ["Source", "open_core"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is served, and with what."""

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
    """Where generators of facts keep things: in this user's cache, elsewhere, or nowhere."""
    looking: Callable[[Looking], None] | None = field(default=None, compare=False)
    """Hears how far they are."""


@asynccontextmanager
async def open_core(
    source: Source,
    *,
    outline: Settings | None = None,
    auth: Auth | None = None,
    secrets: Secrets | None = None,
    auto_confirm: AutoConfirm | None = None,
    settings: ServerSettings | None = None,
    observers: Sequence[Callable[[Handled], None]] = (),
    clock: Callable[[], int] = time.time_ns,
) -> AsyncIterator[Core]:
    """A core that is booting. It is drained by whoever leaves, and closed here. ``clock`` is what invocations go by."""
    async with AsyncExitStack() as stack:
        opened: list[Store] = []

        @asynccontextmanager
        async def opening() -> AsyncIterator[Edition]:
            if not opened:  # with the first edition, one at a time: the manifest does not wait for it
                store = await asyncio.to_thread(open_store, source.where, key=source.key)
                opened.append(store)
                keeping = Housekeeping(store, time.time_ns)
                keeping.begin()
                stack.callback(store.close)
                stack.push_async_callback(keeping.end)
            async with open_edition(
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
                settings=InvokeSettings(claim_ms=round(serving.settings.claim * 1_000)),
                clock=clock,
            ) as edition:
                yield edition

        troubles: Counter[str] = Counter()

        def troubled(generator: str, why: str | None) -> None:
            """Two editions may be there, and have the same trouble."""
            troubles[generator] += -1 if why is None else 1
            if not troubles[generator]:
                serving.restore(f"facts: {generator}")
            else:
                how = f"What {generator} finds out is not up to date; older facts are used"
                serving.degrade(f"facts: {generator}", how)

        def probe() -> None:
            """One that failed may still be read, on a full disk for example: it is well once it can be written."""
            for store in opened:
                if STORE not in serving.troubles:
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

        serving = Serving(opening, outline, settings, probe=probe, shared=shared)
        core = Core(serving, auth, auto_confirm=auto_confirm, observers=observers)
        serving.begin()
        try:
            yield core
        finally:
            await core.close()
