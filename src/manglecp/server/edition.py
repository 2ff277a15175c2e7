"""One loaded edition of a pack: its rules warm, its hosts running, its invoker open.

An edition never changes, but for what its pack finds out: its invoker answers by the newest facts. Another one takes
its place, and this one ends when nothing it was asked is under way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from manglecp.intent import Domain, warm_up
from manglecp.invoke import AutoConfirm, Invoker, InvokeSettings, Secrets, Troubled, kept_up_to_date
from manglecp.pack import read_pack
from manglecp.store import Store
from manglecp.toolhost import Generated, Looking, profile_of, serve_actions, serve_externals, serve_facts

__all__ = ["Edition", "open_edition"]


@dataclass(frozen=True, slots=True, eq=False)
class Edition:
    """The pack as it was at one moment, ready to answer."""

    domain: Domain
    """As it was opened; that of the invoker may know more."""
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
    allow_weaker: bool = False,
    cache: Path | bool = True,
    secrets: Secrets | None = None,
    auto_confirm: AutoConfirm | None = None,
    settings: InvokeSettings | None = None,
    clock: Callable[[], int] = time.time_ns,
    looking: Callable[[Looking], None] | None = None,
    troubled: Troubled | None = None,
) -> AsyncIterator[Edition]:
    """The pack as it is in its folder now; :class:`manglecp.pack.diagnostics.PackError` says what is wrong with it.

    ``workspace`` are the folders that actions may write, and the first is the one they work in; ``programs`` those that
    they may start. ``cache`` is where generators of facts keep things; ``looking`` hears how far they are, and
    ``troubled`` when the facts of one are old.
    """
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
        invoker = Invoker(
            domain,
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
        yield Edition(domain, invoker)
