"""Issues a lease for every call, and an audit event for each.

Our hosts receive a key when they start; their leases are minted here for every call, at every tier. A foreign host has
no key: above tier 0 its leases are requested on its pipe. It may assign a higher tier to an action (the C++ host
assigns tier 2 to every effect with "process"): if it answers that a lease is required, the action has not run, and a
lease is requested then.

A lease is issued only for a call with authority (:mod:`.rights`), and expires at ``not_after`` of the call at the
latest: the host refuses a call that was delayed between the lease and the pipe.
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
    lease_granted    before the request is sent; if the auditor raises, it is not sent
    lease_used       the answer shows that the host took the token
    lease_refused    the host refused it, or requires one; ``reason`` states which
    lease_lost       the host was lost after the token was sent; it is spent
    ================ ====================================================================================
    """

    def __init__(self, audit: Audit | None, *, on_pipe: bool) -> None:
        self._audit = audit
        self._on_pipe = on_pipe  # the host issues leases itself, on its pipe
        self._loop = asyncio.get_running_loop()

    async def issue(
        self, host: HostProcess, call: HostCall, right: Right, deadline: float, required: Mapping[str, Any] | None
    ) -> str | None:
        """Spend the authority of the call and return its token; None if it needs no token.

        ``required`` is the answer of a foreign host that requires one. Raises :class:`.CallRefused` if the call may not
        be made, and :class:`.HostLost` if it is too late.
        """
        ttl = min(deadline - self._loop.time(), MAX_TTL)
        if ttl <= 0:
            raise HostLost("timeout", "the deadline passed before the request could be sent", sent=False, suspect=False)
        if call.not_after is not None:
            ttl = min(ttl, call.not_after() - self._loop.time())
            if ttl <= 0:
                raise HostLost("timeout", "the latest start has passed; nothing was sent", sent=False, suspect=False)
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
        """Request a token from the host; None if it does not issue one."""
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
        """Return whether this answer only states that the call requires a token."""
        lacks_token = document.get("ok") is False and document.get("error") == "lease_required"
        return self._on_pipe and token is None and lacks_token

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
        """Call the auditor. An error of the auditor does not change the result of the call."""
        assert self._audit is not None
        try:
            self._audit(event, details)
        except Exception as error:
            self._loop.call_exception_handler({"message": f"the auditor failed on {event}", "exception": error})


def _details(call: HostCall, **more: object) -> dict[str, object]:
    return {"aid": call.aid, "call_id": call.call_id, "tier": call.tier, **more}
