"""Issues leases for calls.

Our hosts receive a key when they start; their leases are minted here for every call, at every tier. A foreign host has
no key: it issues leases itself, and they are requested on its pipe for calls above tier 0. It may assign a higher tier
to an action than we do (the C++ host assigns tier 2 to every effect with "process"): if it then refuses a call because
a lease is required, the action has not run, and dispatch requests a lease and sends the call again.

A lease is issued only for a call with authority (:mod:`.rights`), and expires at ``not_after`` of the call at the
latest: the host refuses a call that was delayed between the lease and the pipe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from manglecp.toolhost.dispatch.messages import HostCall
from manglecp.toolhost.dispatch.process import HostProcess
from manglecp.toolhost.dispatch.responses import HostLost, Loss
from manglecp.toolhost.dispatch.rights import Right
from manglecp.toolhost.leases import MAX_TTL, Audit, mint


class LeaseIssuer:
    """The leases of one pool. ``audit`` is called with each grant; if it raises, the request is not sent."""

    def __init__(self, audit: Audit | None, *, on_pipe: bool) -> None:
        self._audit = audit
        self._on_pipe = on_pipe  # the host issues leases itself, on its pipe
        self._loop = asyncio.get_running_loop()

    async def issue(
        self, host: HostProcess, call: HostCall, right: Right, deadline: float, required_tier: int | None = None
    ) -> str | None:
        """Spend the authority of the call and return its token; None if it needs no token.

        ``required_tier`` is that of :meth:`required_tier`, after a foreign host has refused the call without a token.
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
        """Request a token from the host; None if it does not issue one."""
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
        """Return the tier of the lease that a foreign host requires in its answer; None if it requires none."""
        if not self._on_pipe or document.get("ok") is not False or document.get("error") != "lease_required":
            return None
        tier = document.get("tier")
        return max(call.tier, tier) if type(tier) is int else call.tier
