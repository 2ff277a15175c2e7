"""The right to make a call: what its authority says about this action, these input bytes, this call id.

Above tier 0 there is one kind of right: a ``MutationReady`` of the harness whose mutation names the call. It is spent
just before anything is sent, once, whoever else holds it at the same time; and a call that was sent is never sent
again for it, for nobody can tell that the first time had no effect. To try once more takes a new turn and a new id.
A call of tier 0 needs no right. If it brings an authority (the ``ToolRequests`` of a turn, or a ``MutationReady``),
that has to permit it, once as well.

A right is looked at twice. Before the call waits for a host, so that one without a right bothers nobody; and when its
lease is made, which is when it is spent.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from manglecp.toolhost.dispatch.messages import Call, CallRefused
from manglecp.toolhost.leases import input_digest

__all__ = ["Right"]


class Right:
    """The right to one call, for as long as dispatch is busy with it."""

    __slots__ = ("_call", "_demanded", "_named", "_spent", "input_digest")

    def __init__(self, call: Call) -> None:
        self.input_digest = input_digest(call.input_json)
        self._call = call
        self._named = (call.call_id, call.aid, f"sha256:{self.input_digest}")
        self._demanded: bool | None = None
        self._spent = False

    def check(self) -> None:
        """:class:`.Refused` if the call may not be made. Nothing is spent."""
        call = self._call
        self._demand(effect=call.exclusive)
        if call.authority is None:
            return
        try:
            permitted = call.authority.permits(*self._named)
        except _states().Forged as forged:
            raise _refused(str(forged)) from None
        if not permitted:
            raise _refused("its authority does not name this call, or was spent on it")

    def spend(self, *, effect: bool) -> None:
        """Use up the right, if there has to be one; :class:`.Refused` if there is none. ``effect``: above tier 0.

        What was spent on a call that was not sent after all is still the right to it.
        """
        self._demand(effect=effect)
        authority = self._call.authority
        if authority is None or self._spent:
            return
        states = _states()
        call_id, tool_name, digest = self._named
        try:
            states.redeem_call(authority, call_id=call_id, tool_name=tool_name, input_digest=digest)
        except (states.Forged, states.WrongMutation) as refusal:
            raise _refused(str(refusal)) from None
        self._spent = True

    def _demand(self, *, effect: bool) -> None:
        """An authority of the right kind."""
        if effect is self._demanded:
            return
        authority = self._call.authority
        if authority is None:
            if effect:
                raise _refused("above tier 0 it takes a MutationReady that names it")
            return
        states = _states()
        if not isinstance(authority, states.MutationReady if effect else (states.MutationReady, states.ToolRequests)):
            raise _refused(f"a {type(authority).__name__} is no right to it")
        self._demanded = effect


@cache
def _states() -> Any:
    """The states of the harness. Whoever has an authority has loaded them; who has none need not."""
    from manglecp.harness import states

    return states


def _refused(why: str) -> CallRefused:
    return CallRefused("tool_error", f"the call has no lease: {why}", "lease_refused")
