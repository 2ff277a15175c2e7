"""The right to make a call, which its *authority* grants: an object that names call id, action and perhaps input bytes.

Above tier 0 the only valid authority is a ``MutationReady`` of the harness whose mutation names the call. It is spent
once, just before the request is sent, also under concurrency. A call that was sent is never sent again under the same
authority, because its effect may have happened; a retry needs a new turn and a new call id. A call of tier 0 needs no
authority; if it has one (a :class:`PlanPermit`, the ``ToolRequests`` of a turn, or a ``MutationReady``), that has to
permit the call, and permits it once. An authority is checked before the call waits for a host, and checked again and
spent when its lease is issued.
"""

from __future__ import annotations

from typing import final

import msgspec

from manglecp.harness import ForgedState, MutationReady, ToolRequests, WrongMutation, redeem_call
from manglecp.toolhost.dispatch.messages import CallRefused, HostCall
from manglecp.toolhost.leases import input_digest


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
