"""The entry point of dispatch: finds the pool of an action by its id, and returns a result or an error for every call.

The checks of a call, in this order:

    action id           unknown: INVALID_PICK
    input               not a JSON object: INVALID_PICK
    authority           absent, spent or of another call: lease_refused
    breaker             open: BREAKER_TRIP
    host, lease         see :mod:`.pool`
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, Unpack

import msgspec

from manglecp.base.strict_json import Fault, decode
from manglecp.toolhost.dispatch.breakers import Breakers
from manglecp.toolhost.dispatch.catalogue import ActionProfile, Catalogue
from manglecp.toolhost.dispatch.launch import HostCommand, check_settings
from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError, HostCall, OnReport, failure
from manglecp.toolhost.dispatch.pool import Pool, PoolOptions
from manglecp.toolhost.state import Artifact

if TYPE_CHECKING:
    from manglecp.harness import MutationReady, ToolRequests
    from manglecp.toolhost.dispatch.rights import PlanPermit

_MAX_INLINE: Final = 1 << 19  # characters; a longer input is parsed in a thread, to keep the event loop responsive


class ServedPlugin(NamedTuple):
    """The actions of a plugin, and the command of its host."""

    catalogue: Catalogue
    command: HostCommand


class CallOptions(TypedDict, total=False):
    """The options of a call; the other members of the call come from the catalogue."""

    inputs: Mapping[str, Any]
    input_json: str  # ``inputs`` as JSON text; pass one of the two
    idempotency_key: str | None
    call_id: str
    timeout: float
    """Seconds that the caller waits; the timeout of the action still applies."""
    authority: MutationReady | ToolRequests | PlanPermit | None
    """The permission for ``call_id``; above tier 0 a ``MutationReady`` that names the call."""
    not_after: Callable[[], float] | None
    """Called when the lease is issued; returns the latest start of the action, on the monotonic clock, in seconds."""
    on_report: OnReport | None
    """Called with each report (progress, log) of the action, until the call ends. A host can forge reports."""


_OPTIONS: Final = CallOptions.__annotations__.keys()


class Dispatcher:
    """Pools for several plugins; an async context manager. Entering it starts the hosts.

    A plugin has a pool for each set of secrets that its actions take.
    Raises ValueError for two plugins with the same action. ``options`` apply to each pool.
    """

    def __init__(self, plugins: Iterable[ServedPlugin], **options: Unpack[PoolOptions]) -> None:
        check_settings(options.get("size"), options.get("timeout"))
        self._profiles: dict[str, ActionProfile] = {}
        self._indexes: dict[str, int] = {}  # into _commands and _pools, by action id
        self._commands: list[HostCommand] = []
        for served in plugins:
            indexes: dict[frozenset[str], int] = {}  # by secrets: a process holds those of one group of actions
            for aid, profile in served.catalogue.items():
                if aid in self._profiles:
                    raise ValueError(f"{aid} is offered by two plugins")
                if profile.secrets and served.command.lease_key_option is None:
                    raise ValueError(f"{aid} takes secrets, which only hosts of manglecp receive")
                index = indexes.setdefault(frozenset(use.name for use in profile.secrets), len(self._commands))
                if index == len(self._commands):
                    self._commands.append(served.command)
                self._profiles[aid] = profile
                self._indexes[aid] = index
        self._options = options
        self._pools: list[Pool] = []
        self._stack = AsyncExitStack()
        self._entered = False

    async def __aenter__(self) -> Dispatcher:
        if self._entered:
            raise RuntimeError("a dispatcher is entered once; create another one")
        self._entered = True
        if self._options.get("breakers") is None:
            self._options["breakers"] = Breakers(asyncio.get_running_loop().time)
        async with AsyncExitStack() as stack:
            for command in self._commands:
                self._pools.append(await stack.enter_async_context(Pool(command, **self._options)))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def actions(self) -> dict[str, ActionProfile]:
        return dict(self._profiles)

    async def call(
        self,
        aid: str,
        *,
        identity: str = "",
        slots: Mapping[int, Artifact] | None = None,
        **options: Unpack[CallOptions],
    ) -> ActionResult | DispatchError:
        """Run an action with the state ``slots``; ``identity`` is the caller, the scope of idempotency keys."""
        if not isinstance(aid, str):
            return failure("", "exception", "aid is not a text")
        if not options.keys() <= _OPTIONS:
            return failure(aid, "exception", f"a call has no {', '.join(sorted(options.keys() - _OPTIONS))}")
        index = self._indexes.get(aid)
        if index is None:
            return failure(aid, "not_found", f"tool not found: {aid}", status="INVALID_PICK")
        prepare = partial(prepare_call, self._profiles, aid, slots=slots, identity=identity, **options)
        text = options.get("input_json")
        is_large = isinstance(text, str) and len(text) > _MAX_INLINE
        call = await asyncio.to_thread(prepare) if is_large else prepare()
        if not isinstance(call, HostCall):
            return call
        if not self._pools:
            return failure(aid, "exception", "the dispatcher has not been entered")
        return await self._pools[index].call(call)

    def cancel(self, call_id: str) -> bool:
        """Cancel a call: its caller gets an error. Returns whether there was such a call."""
        return any(pool.cancel(call_id) for pool in self._pools)


def prepare_call(
    catalogue: Catalogue,
    aid: str,
    *,
    inputs: Mapping[str, Any] | None = None,
    input_json: str | None = None,
    slots: Mapping[int, Artifact] | None = None,
    timeout: float | None = None,
    **members: Any,
) -> HostCall | DispatchError:
    """Return the call of an action, or an error.

    Input is an object (``inputs``) or its JSON text (``input_json``), not both. ``timeout`` is how many seconds the
    caller waits, which may be less than the timeout in the profile. ``members`` are other members of the call. The
    caller and the host validate the input against the schema of the action.
    """
    profile = catalogue.get(aid)
    if profile is None:
        return failure(aid, "not_found", f"tool not found: {aid}", status="INVALID_PICK")
    if inputs is not None and input_json is not None:
        return failure(aid, "exception", "inputs and input_json are both given")
    try:
        if input_json is None:
            input_json = msgspec.json.encode({} if inputs is None else inputs).decode()
        value = decode(input_json.encode())
    except (TypeError, ValueError, RecursionError, Fault) as error:
        return failure(aid, "tool_error", f"the input is not JSON: {error}", status="INVALID_PICK")
    if not isinstance(value, dict):
        return failure(aid, "tool_error", "the input is not a JSON object", status="INVALID_PICK")
    return HostCall(
        aid=aid,
        input_json=input_json,
        tier=profile.tier,
        idempotent=profile.idempotent,
        slots={} if slots is None else slots,
        timeout=profile.timeout,
        wait_timeout=timeout,
        secrets=profile.secrets,
        **members,
    )
