"""A lease for every call, and a word to the auditor about each.

A host of ours was given a key when it was started: its leases are made here, for every call, whatever its tier. A
foreign host has none of our keys. If it wants leases it is asked for one on its pipe, above tier 0 only, as the
contract has it. It may rate an action higher than we do (to the C++ host, whatever has "process" in an effect is tier
2): if it says that a lease is required for a call that brought none, it is asked then. Nothing has happened so far.

No lease is made, or asked for, that the call has no right to; above tier 0 the right is spent by it (:mod:`.rights`).
None outlives the time until which its call may begin: whoever was held up between the lease and the pipe comes too
late, and the host says so.

What the auditor hears, each with ``aid``, ``call_id`` and ``tier``:

================ ====================================================================================
lease_granted    before anything is sent; if the auditor fails, nothing is
lease_used       the host answered in a way that shows that it took the token
lease_refused    the host refused it, or wanted one and got none; ``reason`` says which
lease_lost       the host was lost after it may have seen the token, which nobody can use any more
================ ====================================================================================

The host tells its own side of it on its descriptor for reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from manglecp.toolhost.dispatch.messages import Call, unknown
from manglecp.toolhost.dispatch.process import HostLost, HostProcess
from manglecp.toolhost.dispatch.rights import Right
from manglecp.toolhost.leases import MAX_TTL, Audit, mint

__all__ = ["Lending"]


class Lending:
    """The leases of one pool."""

    def __init__(self, audit: Audit | None, *, asks: bool) -> None:
        self._audit = audit
        self._asks = asks
        self._loop = asyncio.get_running_loop()

    def grant(
        self, host: HostProcess, call: Call, right: Right, deadline: float, required: Mapping[str, Any] | None
    ) -> str | float:
        """A token for this call on this host or, where the host has none of our keys, the seconds that one may live.

        ``required`` is the answer that wants one. :class:`~.line.Refused` if the call may not be made.
        """
        ttl = min(deadline - self._loop.time(), MAX_TTL)
        if ttl <= 0:
            raise HostLost("timeout", "the deadline passed before the request could be sent", sent=False, suspect=False)
        if call.not_after is not None:
            ttl = min(ttl, call.not_after() - self._loop.time())
            if ttl <= 0:
                raise HostLost("timeout", "the time to begin it is over; nothing was sent", sent=False, suspect=False)
        right.spend(effect=call.exclusive or required is not None)
        if host.lease_key is not None:
            return mint(
                host.lease_key,
                aid=call.aid,
                input_digest=right.input_digest,
                call_id=call.call_id,
                tier=call.tier,
                ttl=ttl,
                audit=self._audit,
            )
        return ttl

    async def ask(
        self, host: HostProcess, call: Call, ttl: float, deadline: float, required: Mapping[str, Any] | None
    ) -> str | None:
        """A token that the host itself issues; None where the call has to go without.

        The request on the pipe is shared where the call is: to cancel one of many must not end the host for all.
        """
        if not self._asks or not (call.exclusive or required):
            return None
        tier = required.get("tier") if required else None
        request = {
            "aid": "_lease.issue",
            "tool_aid": call.aid,
            "tier": max(call.tier, tier) if type(tier) is int else call.tier,
            "ttl_ms": max(1_000, int(ttl * 1_000)),
        }
        try:
            line = msgspec.json.encode(request) + b"\n"
            answer = await host.exchange(line, deadline=deadline, shared=not call.exclusive)
        except HostLost as lost:
            raise HostLost(lost.loss, lost.detail, sent=False, suspect=False) from lost
        token = answer.get("token_id")
        if not isinstance(token, str):
            return None
        if self._audit is not None:
            self._audit("lease_granted", _details(call, issuer="host"))
        return token

    def wanted(self, token: str | None, document: Mapping[str, Any]) -> bool:
        """Whether this answer to a call without a token says only that one should be asked for."""
        return (
            self._asks and token is None and document.get("ok") is False and document.get("error") == "lease_required"
        )

    def answered(self, call: Call, token: str | None, document: Mapping[str, Any]) -> None:
        """The host has said something: whether it took the token can be read from it."""
        if self._audit is None:
            return
        error = document.get("error") if document.get("ok") is not True else None
        if error in ("lease_required", "lease_rejected"):
            self._tell("lease_refused", _details(call, reason=str(document.get("reason", error))))
        elif token is not None and not unknown(call.aid, document):
            self._tell("lease_used", _details(call))

    def lost(self, call: Call, token: str | None, lost: HostLost) -> None:
        """No answer will come."""
        if self._audit is not None and token is not None and lost.sent:
            self._tell("lease_lost", _details(call))

    def _tell(self, event: str, details: Mapping[str, object]) -> None:
        """What has happened is not undone by an auditor who fails: the result of the call is still the caller's."""
        assert self._audit is not None
        try:
            self._audit(event, details)
        except Exception as error:
            self._loop.call_exception_handler({"message": f"the auditor failed on {event}", "exception": error})


def _details(call: Call, **more: object) -> dict[str, object]:
    return {"aid": call.aid, "call_id": call.call_id, "tier": call.tier, **more}
