"""The entry to dispatch: several plugins, looked up by action id, and a value for every call.

A call is checked in this order; nothing is raised to the caller:

    budget of the run   spent: BREAKER_TRIP
    lookup by AID       unknown: INVALID_PICK
    JSON                no object: INVALID_PICK
    authority           absent, spent or another's: lease_refused
    breaker             open: BREAKER_TRIP
    slot, lease, host   the pool of the plugin
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, Unpack

from manglecp.toolhost.dispatch.breakers import Breakers
from manglecp.toolhost.dispatch.catalogue import ActionProfile, Catalogue
from manglecp.toolhost.dispatch.launch import HostCommand, PoolLimits, check_settings
from manglecp.toolhost.dispatch.messages import Answer, Call, DispatchError, failure
from manglecp.toolhost.dispatch.pool import Pool, Run
from manglecp.toolhost.leases import Audit
from manglecp.toolhost.state import Artifact, Slots

if TYPE_CHECKING:
    from manglecp.harness import MutationReady, ToolRequests
    from manglecp.toolhost.dispatch.rights import PlanPermit

CALLS_PER_RUN: Final = 64  # the budget of a run, as upstream has it
_LARGE: Final = 1 << 19  # characters of an input that is parsed in a thread, so that it does not block the event loop


class Served(NamedTuple):
    """One plugin: what it offers, and the command of a host that serves it."""

    catalogue: Catalogue
    command: HostCommand


class Prepared(NamedTuple):
    pool: Pool
    call: Call


class CallOptions(TypedDict, total=False):
    """What a caller may set for one call. Everything else comes from the catalogue."""

    inputs: Mapping[str, Any]
    input_json: str
    """The input as text; give one of the two."""
    idempotency_key: str | None
    call_id: str
    timeout: float
    """Seconds; can only shorten the time of the action."""
    authority: MutationReady | ToolRequests | PlanPermit | None
    """What permits the call under its ``call_id``; above tier 0 a ``MutationReady`` that names it."""
    not_after: Callable[[], float] | None
    """Until when it may begin, on the monotonic clock; called when its lease is issued, which ends there."""


_OPTIONS: Final = CallOptions.__annotations__.keys()


class Dispatcher:
    """Pools for several plugins; an async context manager. Hosts are started when it is entered.

    Two plugins that offer the same action are refused: the choice between them would be a guess.
    """

    def __init__(
        self,
        plugins: Iterable[Served],
        *,
        size: int | None = None,
        timeout: float | None = None,
        limits: PoolLimits | None = None,
        breakers: Breakers | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        audit: Audit | None = None,
    ) -> None:
        check_settings(size, timeout)
        if limits is not None:
            limits.check()
        self._plugins = tuple(plugins)
        self._of: dict[str, int] = {}
        for number, served in enumerate(self._plugins):
            for aid in served.catalogue:
                if aid in self._of:
                    raise ValueError(f"{aid} is offered by two plugins")
                self._of[aid] = number
        self._options: dict[str, Any] = {
            "size": size,
            "timeout": timeout,
            "limits": limits,
            "on_event": on_event,
            "audit": audit,
        }
        self._breakers = breakers
        self._pools: list[Pool] = []
        self._stack = AsyncExitStack()
        self._entered = False

    async def __aenter__(self) -> Dispatcher:
        if self._entered:
            raise RuntimeError("a dispatcher is entered once; make another one")
        self._entered = True
        breakers = self._breakers or Breakers(asyncio.get_running_loop().time)
        async with AsyncExitStack() as stack:
            for served in self._plugins:
                pool = Pool(served.command, breakers=breakers, **self._options)
                self._pools.append(await stack.enter_async_context(pool))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def actions(self) -> dict[str, ActionProfile]:
        return {aid: self._plugins[number].catalogue[aid] for aid, number in self._of.items()}

    @property
    def pools(self) -> tuple[Pool, ...]:
        return tuple(self._pools)

    async def call(
        self,
        aid: str,
        *,
        identity: str = "",
        slots: Mapping[int, Artifact] | None = None,
        **options: Unpack[CallOptions],
    ) -> Answer | DispatchError:
        """Run one action on any host of its plugin."""
        text = options.get("input_json")
        if isinstance(text, str) and len(text) > _LARGE:
            prepared = await asyncio.to_thread(self.prepare, aid, identity, slots or {}, options)
        else:
            prepared = self.prepare(aid, identity, slots or {}, options)
        return await prepared.pool.call(prepared.call) if isinstance(prepared, Prepared) else prepared

    def run(
        self, *, identity: str = "", slots: Mapping[int, Artifact] | None = None, calls: int = CALLS_PER_RUN
    ) -> DispatchedRun:
        """Return an async context manager for up to ``calls`` calls that share their slots."""
        return DispatchedRun(self, identity, dict(slots or {}), calls)

    def cancel(self, call_id: str) -> bool:
        """Cancel a call: its caller gets an error. Returns whether there was such a call."""
        return any(pool.cancel(call_id) for pool in self._pools)

    def prepare(
        self, aid: str, identity: str, slots: Mapping[int, Artifact], options: CallOptions
    ) -> Prepared | DispatchError:
        """Look up the action and build its call; return it with its pool, or an error."""
        if not isinstance(aid, str):
            return failure("", "exception", "aid is no text")
        if not options.keys() <= _OPTIONS:
            return failure(aid, "exception", f"a call has no {', '.join(sorted(options.keys() - _OPTIONS))}")
        number = self._of.get(aid)
        if number is None:
            return failure(aid, "not_found", f"tool not found: {aid}", status="INVALID_PICK")
        if not self._pools:
            return failure(aid, "exception", "the dispatcher has not been entered")
        call = self._plugins[number].catalogue.prepare(aid, slots=slots, identity=identity, **options)
        return Prepared(self._pools[number], call) if isinstance(call, Call) else call


class DispatchedRun:
    """One run of one identity. :attr:`slots` is its state, which every success replaces and no failure changes.

    It holds one host at a time, that of the plugin it called last, so two runs can never deadlock on hosts.
    """

    def __init__(self, dispatcher: Dispatcher, identity: str, slots: Slots, calls: int) -> None:
        self._dispatcher = dispatcher
        self._identity = identity
        self._calls = calls
        self._made = 0
        self._busy = False
        self._entered = False
        self._over = False
        self._pool: Pool | None = None
        self._run: Run | None = None
        self.slots = slots

    async def __aenter__(self) -> DispatchedRun:
        if self._entered:
            raise RuntimeError("a run is entered once; make another one")
        self._entered = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        await self._leave()

    async def call(self, aid: str, **options: Unpack[CallOptions]) -> Answer | DispatchError:
        """As :meth:`Dispatcher.call`, with the identity and the slots of this run, one call at a time."""
        if self._over or not self._entered:
            return failure(aid, "exception", "the run is over" if self._over else "the run has not been entered")
        if self._busy:
            return failure(aid, "exception", "a call of this run is running")
        if self._made >= self._calls:
            return failure(aid, "tool_error", f"the run has made its {self._made} calls", status="BREAKER_TRIP")
        self._made += 1
        prepared = self._dispatcher.prepare(aid, self._identity, self.slots, options)
        if not isinstance(prepared, Prepared):
            return prepared
        self._busy = True
        try:
            run = await self._at(prepared.pool)
            result = await run.call(prepared.call)
        finally:
            self._busy = False
        if isinstance(result, Answer):
            self.slots = result.slots
        return result

    async def _at(self, pool: Pool) -> Run:
        """Return the run of this pool; a host of another pool is released."""
        if self._run is None or self._pool is not pool:
            await self._leave()
            self._pool, self._run = pool, await pool.run().__aenter__()
        return self._run

    async def _leave(self) -> None:
        if self._run is not None:
            await self._run.__aexit__(None, None, None)
        self._pool, self._run = None, None
