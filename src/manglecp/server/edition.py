"""One loaded edition of a pack: its rules warm, its hosts running, its invoker open.

An edition never changes. Another one takes its place, and this one ends when nothing it was asked is under way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from manglecp.intent.domain import Domain
from manglecp.invoke.confirmation import AutoConfirm, Secrets
from manglecp.invoke.invoker import Invoker
from manglecp.invoke.settings import InvokeSettings
from manglecp.pack.reading import read_pack
from manglecp.store.opening import Store
from manglecp.toolhost.externals import serve_externals
from manglecp.toolhost.packs import profile_of, serve_actions

__all__ = ["Edition", "open_edition"]


@dataclass(frozen=True, slots=True, eq=False)
class Edition:
    domain: Domain
    invoker: Invoker


@asynccontextmanager
async def open_edition(
    folder: Path | str,
    store: Store,
    *,
    params: Mapping[str, str] | None = None,
    workspace: Sequence[Path | str] = (),
    programs: Sequence[str] = (),
    degrade: bool = False,
    secrets: Secrets | None = None,
    auto_confirm: AutoConfirm | None = None,
    settings: InvokeSettings | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> AsyncIterator[Edition]:
    """The pack as it is in its folder now; :class:`manglecp.pack.problems.PackError` says what is wrong with it.

    ``workspace`` are the folders that actions may write, and the first is the one they work in; ``programs`` those that
    they may start.
    """
    async with AsyncExitStack() as stack:
        pack = await asyncio.to_thread(read_pack, folder, params, degrade=degrade)
        hosts = stack.enter_context(ExitStack())

        def load() -> Domain:
            loaded = Domain.load(pack, externals=hosts.enter_context(serve_externals(pack, degrade=degrade)))
            loaded.warm_up()
            return loaded

        domain = await asyncio.to_thread(load)
        actions = serve_actions(pack, workspace=workspace, programs=programs, degrade=degrade)
        dispatcher = await stack.enter_async_context(actions)
        invoker = Invoker(
            domain,
            store,
            dispatcher,
            secrets=secrets,
            auto_confirm=auto_confirm,
            settings=settings,
            sandbox=profile_of(pack, programs=programs),
            clock=clock,
        )
        yield Edition(domain, await stack.enter_async_context(invoker))
