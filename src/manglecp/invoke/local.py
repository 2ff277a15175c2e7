"""Packs opened on this machine, ready to be asked and invoked: for a shell, a worker or a server.

One context manager reads the packs, starts the hosts of their Python files, locked in, and opens the store that all of
them share; when it is left, runs under way have ended and no process is left behind.

The confirmation secret of this machine's user is a file that nobody else can read. Whoever can read it speaks for the
person; an agent that is locked in cannot.
"""

from __future__ import annotations

import asyncio
import os
import secrets as chance
import stat
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from manglecp.intent import Domain, OfferService
from manglecp.invoke.approval import Secrets
from manglecp.invoke.fact_refresh import kept_up_to_date
from manglecp.invoke.invoker import Invoker
from manglecp.invoke.retention import Housekeeping, tidy
from manglecp.invoke.settings import InvokeSettings
from manglecp.pack import Pack, read_pack
from manglecp.store import Store, StoreError, Unusable, open_store, state_directory
from manglecp.toolhost import (
    Answer,
    Dispatcher,
    DispatchError,
    Generated,
    Looking,
    profile_of,
    serve_actions,
    serve_externals,
    serve_facts,
)

__all__ = ["SECRET_FILE", "Opened", "local_secrets", "open_packs"]

SECRET_FILE: Final = "confirmation.key"
OnFailure: TypeAlias = Callable[[str, str], None]
"""Told the name of an action, and what went wrong."""
_SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Opened:
    """Packs in their order, and what they share."""

    store: Store
    secrets: Secrets
    invokers: tuple[Invoker, ...]


@asynccontextmanager
async def open_packs(
    folders: Sequence[Path | str],
    where: str | Path | None = None,
    *,
    params: Mapping[str, str] | None = None,
    workspace: Sequence[Path | str] = (),
    programs: Sequence[str] = (),
    degrade: bool = False,
    allow_weaker: bool = False,
    cache: Path | bool = True,
    key: bytes | None = None,
    settings: InvokeSettings | None = None,
    secrets: Secrets | None = None,
    clock: Callable[[], int] = time.time_ns,
    on_failure: OnFailure | None = None,
    looking: Callable[[Looking], None] | None = None,
) -> AsyncIterator[Opened]:
    """``where`` is a store as :func:`open_store` takes it, ``key`` what values in it are sealed with.

    ``workspace`` are the folders that actions may write, and the first is the one they work in; ``programs`` those that
    they may start. ``cache`` is where generators of facts keep things, by default in this user's cache; False: nowhere.
    ``looking`` hears how far they are. ``on_failure`` is told what hosts say of calls that failed: clients get a text
    of ours, for theirs may hold anything, but whoever owns the machine may know.

    :class:`manglecp.pack.diagnostics.PackError` and :class:`manglecp.store.errors.StoreError` say what is wrong.
    """
    async with AsyncExitStack() as stack:
        store = await asyncio.to_thread(open_store, where, key=key)
        stack.callback(store.close)
        await stack.enter_async_context(_kept_tidy(store))
        known = local_secrets() if secrets is None else secrets
        invokers = []
        for folder in folders:
            pack = await asyncio.to_thread(read_pack, folder, params, degrade=degrade)
            serving = stack.enter_context(ExitStack())
            facts = serve_facts(pack, cache=cache, programs=programs, degrade=degrade, told=looking)
            generated = await asyncio.to_thread(serving.enter_context, facts)
            domain = await asyncio.to_thread(_load, pack, serving, generated, degrade, allow_weaker)
            hosts = serve_actions(
                pack, workspace=workspace, programs=programs, degrade=degrade, allow_weaker=allow_weaker
            )
            dispatcher = await stack.enter_async_context(hosts)
            if on_failure is not None:
                dispatcher = cast(Dispatcher, _Overheard(dispatcher, pack, on_failure))
            invoker = Invoker(
                OfferService(domain, store, clock=clock),
                store,
                dispatcher,
                secrets=known,
                settings=settings,
                sandbox=profile_of(pack, programs=programs, allow_weaker=allow_weaker),
                clock=clock,
            )
            invokers.append(await stack.enter_async_context(invoker))
            await stack.enter_async_context(kept_up_to_date(invoker, generated))
        yield Opened(store, known, tuple(invokers))


@asynccontextmanager
async def _kept_tidy(store: Store) -> AsyncIterator[None]:
    """While it is open, and once more at the end: a shell is never open for long."""
    keeping = Housekeeping(store, time.time_ns)
    keeping.begin()
    try:
        yield
    finally:
        await keeping.end()
        with suppress(StoreError):
            await asyncio.to_thread(tidy, store, time.time_ns() // 1_000_000)


class _Overheard:
    """All that an invoker asks of a dispatcher, and somebody listens."""

    def __init__(self, dispatcher: Dispatcher, pack: Pack, tell: OnFailure) -> None:
        self._dispatcher = dispatcher
        self._names = {action.aid: action.name for action in pack.actions.values()}
        self._tell = tell

    async def call(self, aid: str, **asked: Any) -> Answer | DispatchError:
        answer = await self._dispatcher.call(aid, **asked)
        if not isinstance(answer, Answer):
            self._tell(self._names.get(aid, aid), answer["detail"])
        return answer

    def cancel(self, call_id: str) -> bool:
        return self._dispatcher.cancel(call_id)


def _load(pack: Pack, hosts: ExitStack, generated: Generated | None, degrade: bool, allow_weaker: bool) -> Domain:
    externals = hosts.enter_context(serve_externals(pack, degrade=degrade, allow_weaker=allow_weaker))
    return Domain.load(pack, externals=externals, generated=generated)


def local_secrets(folder: Path | None = None) -> Secrets:
    """The confirmation secret of this user, made when it is first needed."""
    path = (folder or state_directory()) / SECRET_FILE
    if not path.exists():
        _make_secret(path)
    try:
        about = path.stat()
        secret = path.read_bytes()
    except OSError as error:
        raise Unusable(f"the confirmation secret {path} cannot be read: {error.strerror}") from None
    if stat.S_IMODE(about.st_mode) & 0o077:
        raise Unusable(f"the confirmation secret {path} is open to others; remove it, and a new one is made")
    if len(secret) != _SECRET_BYTES:
        raise Unusable(f"the confirmation secret {path} is damaged; remove it, and a new one is made")
    return Secrets(local=secret)


def _make_secret(path: Path) -> None:
    """Whole or not at all; of two that make one at the same time, the first wins."""
    mine = path.with_name(f".{path.name}.{chance.token_hex(8)}")
    try:
        descriptor = os.open(mine, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, chance.token_bytes(_SECRET_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with suppress(FileExistsError):
            path.hardlink_to(mine)
    except OSError as error:
        raise Unusable(f"the confirmation secret {path} cannot be made: {error.strerror}") from None
    finally:
        mine.unlink(missing_ok=True)
