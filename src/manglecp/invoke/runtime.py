"""The composition root of a pack: its hosts, its offers and its invoker over a store.

Servers, shells, workers and tests open packs here. When the context of a runtime exits, its runs have ended or were
handed over to other processes, and its host processes have ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Self

from manglecp.base.digest import digest
from manglecp.intent import Domain, Identity, OfferService
from manglecp.invoke.fact_refresh import OnStaleFacts, refresh_facts
from manglecp.invoke.invoker import Invoker, InvokeSettings
from manglecp.invoke.pack_loader import PackOptions, load_domain
from manglecp.invoke.shared_facts import SharedFacts
from manglecp.pack import Pack
from manglecp.store import Store, StoreError
from manglecp.toolhost import Dispatcher, profile_of, serve_actions


@dataclass(frozen=True, slots=True, eq=False)
class PackRuntime:
    """A loaded pack, ready for requests. Only its generated facts change."""

    domain: Domain
    """The domain as it was loaded; the domain of ``offers`` may have newer facts."""
    offers: OfferService
    invoker: Invoker
    facts: SharedFacts | None = None
    """The facts that all servers of the store share; None if the pack has no such source."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        options: PackOptions,
        store: Store,
        *,
        prepare: Callable[[Domain], object] | None = None,
        refresh_identity: Callable[[Identity], Identity] = Identity.current_without_tokens,
        settings: InvokeSettings | None = None,
        clock: Callable[[], int] = time.time_ns,
        on_stale_facts: OnStaleFacts | None = None,
        on_outage: Callable[[str | None], None] = lambda _: None,
    ) -> AsyncIterator[Self]:
        """Open the pack as it is in its folder now, and refresh its generated facts. Raises :class:`PackError`.

        ``prepare`` is called in a thread before actions are served, for example to fill caches; its exception ends
        the opening. ``on_stale_facts`` is called when facts are out of date; ``on_outage`` with the reason when no
        host can be started, and with None when the outage is over. The other arguments are those of :class:`Invoker`.
        The default of ``refresh_identity`` is for a process without a file of tokens: it revokes an identity whose
        access token has expired, or whose token comes from such a file.
        """
        async with AsyncExitStack() as stack:
            host_stack = stack.enter_context(ExitStack())
            domain, generators = await asyncio.to_thread(partial(load_domain, options, host_stack, shares_facts=True))
            facts = None
            if domain.pack.settings.fact_sources:
                lease_ms = (settings or InvokeSettings()).claim_ms
                facts = SharedFacts(store, domain, generators, lease_ms=lease_ms, on_stale=on_stale_facts)
                domain = await asyncio.to_thread(facts.load, domain)
            if prepare is not None:
                await asyncio.to_thread(prepare, domain)
            dispatcher = await stack.enter_async_context(serve_pack_actions(domain.pack, options, on_outage))
            runtime = cls.from_domain(
                domain, dispatcher, options, store, refresh_identity=refresh_identity, settings=settings, clock=clock
            )
            await stack.enter_async_context(runtime.invoker)
            await stack.enter_async_context(refresh_facts(runtime.invoker, generators, on_stale_facts))
            if facts is not None:
                await stack.enter_async_context(facts.serve(runtime.offers))
            yield replace(runtime, facts=facts)

    @classmethod
    def from_domain(
        cls,
        domain: Domain,
        dispatcher: Dispatcher,
        options: PackOptions,
        store: Store,
        *,
        refresh_identity: Callable[[Identity], Identity] = Identity.current_without_tokens,
        settings: InvokeSettings | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> Self:
        """Return a runtime of a loaded domain; the caller enters its invoker."""
        offers = OfferService(domain, store, clock=clock)
        sandbox = profile_of(domain.pack, programs=options.programs, sandbox=options.sandbox)
        workspace = [str(Path(folder).resolve()) for folder in options.workspace]
        invoker = Invoker(
            offers,
            store,
            dispatcher,
            refresh_identity=refresh_identity,
            settings=settings,
            sandbox=sandbox,
            server_digest=digest([workspace, sorted(options.programs), sandbox]),
            clock=clock,
        )
        return cls(domain, offers, invoker)


def serve_pack_actions(
    pack: Pack, options: PackOptions, on_outage: Callable[[str | None], None] = lambda _: None
) -> AbstractAsyncContextManager[Dispatcher]:
    """Return the dispatcher of the actions of a pack, as a context manager."""
    return serve_actions(
        pack,
        workspace=options.workspace,
        programs=options.programs,
        sandbox=options.sandbox,
        secrets=options.secrets,
        on_outage=on_outage,
    )


@dataclass(frozen=True, slots=True)
class OpenPacks:
    """The invokers of open packs, in the order of their options, and their common store."""

    store: Store
    invokers: tuple[Invoker, ...]


@asynccontextmanager
async def open_packs(
    packs: Sequence[PackOptions],
    open_store: Callable[[], Store],
    *,
    refresh_identity: Callable[[Identity], Identity] = Identity.current_without_tokens,
    settings: InvokeSettings | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> AsyncIterator[OpenPacks]:
    """Open packs over one store. The keyword arguments are those of :meth:`PackRuntime.open`.

    Raises :class:`PackError` and :class:`StoreError`.
    """
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store_with_retention(open_store))
        # A command-line process ends before the first periodic sweep.
        stack.push_async_callback(_sweep_at_exit, store)
        invokers = []
        for options in packs:
            opening = PackRuntime.open(
                options, store, refresh_identity=refresh_identity, settings=settings, clock=clock
            )
            invokers.append((await stack.enter_async_context(opening)).invoker)
        yield OpenPacks(store, tuple(invokers))


@asynccontextmanager
async def open_store_with_retention(
    open_store: Callable[[], Store], keep_decisions_ns: int | None = None
) -> AsyncIterator[Store]:
    """Open a store in a thread, and delete expired rows in the background while it is open.

    Without ``keep_decisions_ns`` no decisions are deleted: only the servers of the store know how long to keep them.
    """
    store = await asyncio.to_thread(open_store)
    retention = asyncio.create_task(run_retention(store, keep_decisions_ns=keep_decisions_ns))
    try:
        yield store
    finally:
        retention.cancel()
        with suppress(asyncio.CancelledError):
            await retention
        store.close()


async def _sweep_at_exit(store: Store) -> None:
    with suppress(StoreError):
        await asyncio.to_thread(sweep_store, store, time.time_ns() // 1_000_000)


# --- retention -----------------------------------------------------------------------------------------------------

# A sweep consists of small transactions, so that requests do not wait long. Several processes may sweep in parallel.

SWEEP_SECONDS: Final = 60.0
"""Seconds between two sweeps."""
MAX_OFFERS: Final = 1_000_000
_MAX_TRANSACTIONS: Final = 50
"""One sweep uses at most this many transactions to delete offers, and as many again to delete runs."""
_log = logging.getLogger(__name__)


class SweepCounts(NamedTuple):
    offers: int
    approvals: int
    runs: int
    responses: int
    decisions: int


def sweep_store(
    store: Store, now_ms: int, *, max_offers: int = MAX_OFFERS, decisions_before_ms: int | None = None
) -> SweepCounts:
    """Delete expired offers, approvals, runs, responses and decisions, and the oldest offers above ``max_offers``."""
    offers = runs = responses = 0
    for _ in range(_MAX_TRANSACTIONS):
        with store.write_transaction() as tx:
            swept = store.registry.sweep(tx, now_ms, max_offers)
        offers += swept.lapsed + swept.evicted
        if not swept.more:
            break
    with store.write_transaction() as tx:
        approvals = store.approvals.sweep(tx, now_ms)
    for _ in range(_MAX_TRANSACTIONS):
        with store.write_transaction() as tx:
            swept_runs = store.runs.sweep(tx)  # no time is passed: the database has a clock of its own
        responses += swept_runs.answers
        runs += swept_runs.runs
        if not swept_runs.answers and not swept_runs.runs:
            break
    decisions = 0 if decisions_before_ms is None else prune_decisions(store, decisions_before_ms)
    return SweepCounts(offers, approvals, runs, responses, decisions)


def prune_decisions(store: Store, before_ms: int) -> int:
    """Delete the decisions that were made before a time, in several transactions, and return their number. Blocks."""
    total = 0
    while True:
        with store.write_transaction() as tx:
            count = store.decisions.prune(tx, before_ms)
        if not count:
            return total
        total += count


async def run_retention(
    store: Store,
    *,
    clock: Callable[[], int] = time.time_ns,
    pause: float = SWEEP_SECONDS,
    keep_decisions_ns: int | None = None,
) -> None:
    """Sweep the store in a thread, periodically, until cancelled."""
    while True:
        await asyncio.sleep(pause)
        now_ns = clock()
        before_ms = None if keep_decisions_ns is None else (now_ns - keep_decisions_ns) // 1_000_000
        try:
            counts = await asyncio.to_thread(sweep_store, store, now_ns // 1_000_000, decisions_before_ms=before_ms)
        except StoreError as error:
            _log.warning("expired rows could not be deleted: %s", error)
            continue
        if any(counts):
            _log.info("deleted %d offers, %d approvals, %d runs, %d stored responses and %d decisions", *counts)
