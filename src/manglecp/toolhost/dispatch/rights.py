"""The right to make a call, and its lease. An *authority* grants it: call id, action and perhaps input bytes.

Above tier 0 the only valid authority is a ``MutationReady`` of the harness whose mutation names the call. It is spent
once, just before the request is sent, also under concurrency. A call that was sent is never sent again under the same
authority, because its effect may have happened; a retry needs a new turn and a new call id. A call of tier 0 needs no
authority; if it has one (a :class:`PlanPermit`, the ``ToolRequests`` of a turn, or a ``MutationReady``), that has to
permit the call, and permits it once. An authority is checked before the call waits for a host, and checked again and
spent when its lease is issued.

Each lease has an audit event. Our hosts receive a key when they start; their leases are minted here for every call, at
every tier. A foreign host has no key: it issues leases itself, and they are requested on its pipe for calls above tier
0. It may assign a higher tier to an action than we do (the C++ host assigns tier 2 to every effect with "process"): if
it then refuses a call because a lease is required, the action has not run, and dispatch requests a lease and sends the
call again. A lease expires at ``not_after`` of the call at the latest: the host refuses a call that was delayed between
the lease and the pipe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeAlias, final

import msgspec

from manglecp.harness import ForgedState, MutationReady, ToolRequests, WrongMutation, redeem_call
from manglecp.toolhost.dispatch.messages import CallRefused, HostCall, is_unknown_action
from manglecp.toolhost.dispatch.process import HostProcess
from manglecp.toolhost.dispatch.responses import HostLost
from manglecp.toolhost.leases import MAX_TTL, Audit, input_digest, mint

Demand: TypeAlias = Mapping[str, Any] | None  # the answer of a foreign host that requires a lease


@final
class PlanPermit(msgspec.Struct):
    """The right to the tier 0 calls of an admitted plan, each once. It permits no call above tier 0."""

    unspent: dict[str, str]
    """The action ids by call id, which names run, step and attempt. The permit changes it."""

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

        If the call was then not sent, the spent authority still covers the next attempt.
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
    """The leases of one pool.

    Audit events, each with ``aid``, ``call_id`` and ``tier``, which is that of the host if it demands a higher one:

    ================ ====================================================================================
    lease_granted    before the request is sent; if ``audit`` raises, the request is not sent
    lease_used       the answer shows that the host accepted the token
    lease_refused    the host refused the token, or requires one; ``reason`` states which
    lease_lost       the host was lost after the token was sent; the token is spent
    ================ ====================================================================================
    """

    def __init__(self, audit: Audit | None, *, on_pipe: bool) -> None:
        self._audit = audit
        self._on_pipe = on_pipe  # the host issues leases itself, on its pipe
        self._loop = asyncio.get_running_loop()

    async def issue(
        self, host: HostProcess, call: HostCall, right: Right, deadline: float, lease_demand: Demand
    ) -> str | None:
        """Spend the authority of the call and return its token; None if it needs no token.

        ``lease_demand`` is the answer of a foreign host that has refused the call without a token. Raises
        :class:`.CallRefused` without authority, :class:`.HostLost` after the deadline or the latest start of the call.
        """
        ttl = min(deadline - self._loop.time(), MAX_TTL)  # seconds
        if ttl <= 0:
            raise HostLost("timeout", "the deadline passed before the request could be sent")
        if call.not_after is not None:
            ttl = min(ttl, call.not_after() - self._loop.time())
            if ttl <= 0:
                raise HostLost("timeout", "the latest start has passed; nothing was sent")
        above_tier_0 = call.above_tier_0 or lease_demand is not None
        right.spend(effect=above_tier_0)
        if host.lease_key is None:
            if not (self._on_pipe and above_tier_0):
                return None
            return await self._request(host, call, ttl, deadline, lease_demand)
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
        self, host: HostProcess, call: HostCall, ttl: float, deadline: float, lease_demand: Demand
    ) -> str | None:
        """Request a token from the host; None if it does not issue one."""
        request = {
            "aid": "_lease.issue",
            "tool_aid": call.aid,
            "tier": _tier(call, lease_demand),
            "ttl_ms": max(1_000, int(ttl * 1_000)),  # a host grants at least a second
        }
        try:
            line = msgspec.json.encode(request) + b"\n"
            answer = await host.exchange(line, deadline=deadline)
        except HostLost as lost:  # the call itself was not sent
            raise HostLost(lost.loss, lost.detail) from lost
        token = answer.get("token_id")
        if not isinstance(token, str):
            return None
        if self._audit is not None:
            self._audit("lease_granted", _details(call, lease_demand, issuer="host"))
        return token

    def is_required(self, token: str | None, document: Mapping[str, Any]) -> bool:
        """Return whether the host has refused a call without a token because it requires one."""
        refused = document.get("ok") is False and document.get("error") == "lease_required"
        return self._on_pipe and token is None and refused

    def audit_answer(self, call: HostCall, token: str | None, document: Mapping[str, Any], demand: Demand) -> None:
        if self._audit is None:
            return
        error = document.get("error") if document.get("ok") is not True else None
        if error in ("lease_required", "lease_rejected"):
            reason = str(document.get("reason", error))
            self._notify("lease_refused", _details(call, demand or document, reason=reason))
        elif token is not None and not is_unknown_action(call.aid, document):
            self._notify("lease_used", _details(call, demand))

    def audit_loss(self, call: HostCall, token: str | None, lost: HostLost, demand: Demand) -> None:
        if self._audit is not None and token is not None and lost.sent:
            self._notify("lease_lost", _details(call, demand))

    def _notify(self, event: str, details: Mapping[str, object]) -> None:
        """Call ``audit``. If it raises, the result of the call does not change."""
        assert self._audit is not None
        try:
            self._audit(event, details)
        except Exception as error:
            self._loop.call_exception_handler({"message": f"the auditor failed on {event}", "exception": error})


def _tier(call: HostCall, demand: Demand) -> int:
    tier = demand.get("tier") if demand else None
    return max(call.tier, tier) if type(tier) is int else call.tier


def _details(call: HostCall, demand: Demand, **others: object) -> dict[str, object]:
    return {"aid": call.aid, "call_id": call.call_id, "tier": _tier(call, demand), **others}
