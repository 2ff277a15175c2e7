"""The right to make a call, and its lease. An *authority* grants the right: for a call id, an action, perhaps an input.

Above tier 0 the only valid authority is a ``MutationReady`` of the harness whose mutation names the call. It is spent
once, just before the request is sent, also under concurrency. A call that was sent is never sent again under the same
authority, because its effect may have happened; a retry needs a new turn and a new call id. A call of tier 0 needs no
authority; if it has one (a :class:`PlanPermit`, the ``ToolRequests`` of a turn, or a ``MutationReady``), the authority
has to permit the call, and permits it once. An authority is checked before the call waits for a host, and checked again
and spent when the lease of the call is issued.

Our hosts receive a key when they start; their leases are minted here for every call, at every tier. A foreign host has
no key: it issues leases itself, and dispatch requests them on its pipe for calls above tier 0. A foreign host may
assign a higher tier to an action than we do (the C++ host assigns tier 2 to every effect with "process"): if it refuses
a call because a lease is required, the action has not run, and dispatch requests a lease and sends the call again. A
lease expires at ``not_after`` of the call at the latest: the host refuses a call that was delayed between the lease and
the pipe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, final

import msgspec

from manglecp.harness import ForgedState, MutationReady, ToolRequests, WrongMutation, redeem_call
from manglecp.toolhost.dispatch.messages import CallRefused, HostCall
from manglecp.toolhost.dispatch.process import HostProcess
from manglecp.toolhost.dispatch.responses import HostLost, Loss
from manglecp.toolhost.leases import MAX_TTL, Audit, input_digest, mint


@final
class PlanPermit(msgspec.Struct):
    """The right to the tier 0 calls of an admitted plan, each once. It permits no call above tier 0."""

    unspent: dict[str, str]
    """The action id of each call that was not made yet, by call id (run, step and attempt)."""

    def permits(self, call_id: str, tool_name: str, _input_digest: str) -> bool:
        """Return whether the plan has this unspent call. A plan does not fix input bytes when it is admitted."""
        return self.unspent.get(call_id) == tool_name

    def spend(self, call_id: str, tool_name: str) -> bool:
        """Spend the right to a call; return False if there is none."""
        if self.unspent.get(call_id) != tool_name:
            return False
        return self.unspent.pop(call_id, None) is not None  # atomic: only one of several threads gets the right


class Right:
    """The right to one call, while dispatch works on it."""

    __slots__ = ("_call", "_call_name", "_spent", "input_digest")

    def __init__(self, call: HostCall) -> None:
        self.input_digest = input_digest(call.input_json)
        self._call = call
        # What the authority has to name: call id, action, input.
        self._call_name = (call.call_id, call.aid, f"sha256:{self.input_digest}")
        self._spent = False

    def check(self) -> None:
        """Raise :class:`.CallRefused` if the call may not be made. The right is not spent."""
        call = self._call
        self._check_type(effect=call.above_tier_0)
        if call.authority is None:
            return
        try:
            permitted = call.authority.permits(*self._call_name)
        except ForgedState as forged:
            raise _refused(str(forged)) from None
        if not permitted:
            raise _refused("its authority does not name this call, or was spent")

    def spend(self, *, effect: bool) -> None:
        """Spend the authority, if there is one; raises :class:`.CallRefused`. ``effect``: the call is above tier 0.

        If the call was not sent after that, the spent authority still covers the next attempt.
        """
        self._check_type(effect=effect)
        authority = self._call.authority
        if authority is None or self._spent:
            return
        call_id, tool_name, digest = self._call_name
        try:
            if not isinstance(authority, PlanPermit):
                redeem_call(authority, call_id=call_id, tool_name=tool_name, input_digest=digest)
            elif not authority.spend(call_id, tool_name):
                raise _refused("its plan does not have this call, or the call was made already")
        except (ForgedState, WrongMutation) as refusal:
            raise _refused(str(refusal)) from None
        self._spent = True

    def _check_type(self, *, effect: bool) -> None:
        authority = self._call.authority
        if authority is None:
            if effect:
                raise _refused("above tier 0 a call needs a MutationReady that names it")
        elif not isinstance(authority, MutationReady if effect else (MutationReady, ToolRequests, PlanPermit)):
            raise _refused(f"a {type(authority).__name__} does not permit it")


def _refused(why: str) -> CallRefused:
    return CallRefused("tool_error", f"the call has no lease: {why}", "lease_refused")


class LeaseIssuer:
    """The leases of one pool. ``audit`` is called with each grant; if ``audit`` raises, the request is not sent."""

    def __init__(self, audit: Audit | None, *, on_pipe: bool) -> None:
        self._audit = audit
        self._on_pipe = on_pipe  # the host issues leases itself, on its pipe
        self._loop = asyncio.get_running_loop()

    async def issue(
        self, host: HostProcess, call: HostCall, right: Right, deadline: float, required_tier: int | None = None
    ) -> str | None:
        """Spend the authority of the call and return its token; None if the call needs no token.

        ``required_tier``: the result of :meth:`required_tier`, after a foreign host has refused the call without token.
        Raises :class:`.CallRefused` without authority, :class:`.HostLost` after the deadline or the latest start.
        """
        ttl = min(deadline - self._loop.time(), MAX_TTL)  # seconds
        if ttl <= 0:
            raise HostLost(Loss("timeout", "the deadline passed before the request could be sent"))
        if call.not_after is not None:
            ttl = min(ttl, call.not_after() - self._loop.time())
            if ttl <= 0:
                raise HostLost(Loss("timeout", "the latest start has passed; nothing was sent"))
        above_tier_0 = call.above_tier_0 or required_tier is not None
        right.spend(effect=above_tier_0)
        if host.lease_key is None:
            if not (self._on_pipe and above_tier_0):
                return None
            return await self._request(host, call, call.tier if required_tier is None else required_tier, ttl, deadline)
        return mint(
            host.lease_key,
            aid=call.aid,
            input_digest=right.input_digest,
            call_id=call.call_id,
            tier=call.tier,
            ttl=ttl,
            audit=self._audit,
        )

    async def _request(self, host: HostProcess, call: HostCall, tier: int, ttl: float, deadline: float) -> str | None:
        """Request a token from the host; None if the host does not issue one."""
        request = {
            "aid": "_lease.issue",
            "tool_aid": call.aid,
            "tier": tier,
            "ttl_ms": max(1_000, int(ttl * 1_000)),  # a host grants at least a second
        }
        try:
            line = msgspec.json.encode(request) + b"\n"
            answer = await host.exchange(line, deadline=deadline)
        except HostLost as lost:  # the call itself was not sent
            raise HostLost(lost.loss) from lost
        token = answer.get("token_id")
        if not isinstance(token, str):
            return None
        if self._audit is not None:
            details = {"aid": call.aid, "call_id": call.call_id, "tier": tier, "issuer": "host"}
            self._audit("lease_granted", details)
        return token

    def required_tier(self, call: HostCall, document: Mapping[str, Any]) -> int | None:
        """Return the tier of the lease that a foreign host requires in its answer; None if it requires no lease."""
        if not self._on_pipe or document.get("ok") is not False or document.get("error") != "lease_required":
            return None
        tier = document.get("tier")
        return max(call.tier, tier) if type(tier) is int else call.tier
