"""A lease for every call, and an audit event for each.

A host of ours was given a key when it was started; its leases are minted here for every call, whatever its tier. A
foreign host has no key of ours: above tier 0 its leases are requested on its pipe. It may rate an action higher than
we do (the C++ host rates every effect with "process" tier 2): if it answers that a lease is required, one is requested
then, and nothing has happened so far.

No lease is issued that the call has no authority for (:mod:`.rights`). None outlives ``not_after`` of its call: a call
that was held up between the lease and the pipe is refused by the host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from manglecp.toolhost.dispatch.messages import HostCall, is_unknown_action
from manglecp.toolhost.dispatch.process import HostProcess
from manglecp.toolhost.dispatch.responses import HostLost
from manglecp.toolhost.dispatch.rights import Right
from manglecp.toolhost.leases import MAX_TTL, Audit, mint


class LeaseIssuer:
    """The leases of one pool.

    Audit events, each with ``aid``, ``call_id`` and ``tier``:

    ================ ====================================================================================
    lease_granted    before anything is sent; if the auditor raises, nothing is sent
    lease_used       the answer shows that the host took the token
    lease_refused    the host refused it, or required one and got none; ``reason`` states which
    lease_lost       the host was lost after it may have seen the token, which is spent
    ================ ====================================================================================
    """

    def __init__(self, audit: Audit | None, *, on_pipe: bool) -> None:
        self._audit = audit
        self._on_pipe = on_pipe  # the host issues leases itself, on its pipe
        self._loop = asyncio.get_running_loop()

    async def issue(
        self, host: HostProcess, call: HostCall, right: Right, deadline: float, required: Mapping[str, Any] | None
    ) -> str | None:
        """Spend the authority of the call and return its token; None where the call goes without.

        ``required`` is the answer of a foreign host that demands one. Raises :class:`.CallRefused` if the call may not
        be made, and :class:`.HostLost` if it is too late.
        """
        ttl = min(deadline - self._loop.time(), MAX_TTL)
        if ttl <= 0:
            raise HostLost("timeout", "the deadline passed before the request could be sent", sent=False, suspect=False)
        if call.not_after is not None:
            ttl = min(ttl, call.not_after() - self._loop.time())
            if ttl <= 0:
                raise HostLost("timeout", "the time to begin it is over; nothing was sent", sent=False, suspect=False)
        effect = call.exclusive or required is not None
        right.spend(effect=effect)
        if host.lease_key is None:
            return await self._request(host, call, ttl, deadline, required) if self._on_pipe and effect else None
        return mint(
            host.lease_key,
            aid=call.aid,
            input_digest=right.input_digest,
            call_id=call.call_id,
            tier=call.tier,
            ttl=ttl,
            audit=self._audit,
        )

    async def _request(
        self, host: HostProcess, call: HostCall, ttl: float, deadline: float, required: Mapping[str, Any] | None
    ) -> str | None:
        """Request a token from the host; None if it issues none."""
        tier = required.get("tier") if required else None
        request = {
            "aid": "_lease.issue",
            "tool_aid": call.aid,
            "tier": max(call.tier, tier) if type(tier) is int else call.tier,
            "ttl_ms": max(1_000, int(ttl * 1_000)),
        }
        try:
            line = msgspec.json.encode(request) + b"\n"
            # Shared where the call is: cancelling one of many must not end the host for all.
            answer = await host.exchange(line, deadline=deadline, shared=not call.exclusive)
        except HostLost as lost:
            raise HostLost(lost.loss, lost.detail, sent=False, suspect=False) from lost
        token = answer.get("token_id")
        if not isinstance(token, str):
            return None
        if self._audit is not None:
            self._audit("lease_granted", _details(call, issuer="host"))
        return token

    def is_required(self, token: str | None, document: Mapping[str, Any]) -> bool:
        """Return whether this answer to a call without a token only demands one."""
        return (
            self._on_pipe
            and token is None
            and document.get("ok") is False
            and document.get("error") == "lease_required"
        )

    def audit_answer(self, call: HostCall, token: str | None, document: Mapping[str, Any]) -> None:
        if self._audit is None:
            return
        error = document.get("error") if document.get("ok") is not True else None
        if error in ("lease_required", "lease_rejected"):
            self._notify("lease_refused", _details(call, reason=str(document.get("reason", error))))
        elif token is not None and not is_unknown_action(call.aid, document):
            self._notify("lease_used", _details(call))

    def audit_loss(self, call: HostCall, token: str | None, lost: HostLost) -> None:
        if self._audit is not None and token is not None and lost.sent:
            self._notify("lease_lost", _details(call))

    def _notify(self, event: str, details: Mapping[str, object]) -> None:
        """Call the auditor. Its failure does not undo what happened: the caller still gets the result."""
        assert self._audit is not None
        try:
            self._audit(event, details)
        except Exception as error:
            self._loop.call_exception_handler({"message": f"the auditor failed on {event}", "exception": error})


def _details(call: HostCall, **more: object) -> dict[str, object]:
    return {"aid": call.aid, "call_id": call.call_id, "tier": call.tier, **more}
