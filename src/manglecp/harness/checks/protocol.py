"""The protocol: may the turn end like this, and were calls and outputs transported in order?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from manglecp.harness.classes import CLASSES
from manglecp.harness.findings import Finding, place
from manglecp.harness.rows import ToolRequest
from manglecp.harness.turn import Turn

__all__ = ["CHECKS"]

_STOP: Final = CLASSES["protocol.stop_reason_unhandled"]
_ORDER: Final = CLASSES["protocol.parallel_transport_order_invalid"]

_STOP_REASONS: Final = ("tool_use", "pause_turn", "max_tokens", "end_turn")


def stop_reason(turn: Turn) -> Iterator[Finding]:
    """The reason is one that the policy handles, and permits what comes next."""
    state, policy = turn.evidence.protocol_state, turn.call.protocol_state_policy
    if state is None:
        return
    handled = policy.handled_stop_reasons if policy is not None else None
    if state.stop_reason not in (_STOP_REASONS if handled is None else handled):
        yield Finding(_STOP, "protocolState", f"the stop reason {state.stop_reason} is not handled")
    continuation = (policy and policy.continuation) or {}
    if turn.continuing and continuation.get(state.stop_reason) == "stop":
        yield Finding(_STOP, "protocolState", f"the turn goes on after {state.stop_reason}, which has to stop it")


def stop_policy(turn: Turn) -> Iterator[Finding]:
    """Budgets of turns and iterations are kept, and a checkpoint that is due is there."""
    state, policy = turn.evidence.protocol_state, turn.call.stop_policy
    if state is None or policy is None:
        return
    index = state.turn_index
    if policy.max_turns is not None and index is not None:
        if index > policy.max_turns:
            yield Finding(_STOP, "protocolState", f"turn {index} of {policy.max_turns}")
        if index == policy.max_turns and turn.continuing:
            yield Finding(_STOP, "protocolState", f"the last of {policy.max_turns} turns goes on")
    if policy.max_iterations is not None and state.iteration is not None and state.iteration > policy.max_iterations:
        yield Finding(_STOP, "protocolState", f"iteration {state.iteration} of {policy.max_iterations}")
    if policy.require_checkpoint and turn.continuing and state.checkpoint_ref is None:
        every = policy.checkpoint_every_turns or 0
        # A period that is no number of turns is none: the checkpoint is due every time.
        if every < 1 or (index is not None and index % every == 0):
            yield Finding(_STOP, "protocolState", "a checkpoint is due, and none is recorded")


def transport(turn: Turn) -> Iterator[Finding]:
    """Outputs come in the order of their calls, and calls come one at a time where the transport is told so."""
    if turn.constraints.protocol_constraints.parallel_transport_order_valid is False:
        yield Finding(_ORDER, "protocolConstraints", "the runtime says that the order was broken")
    policy = turn.call.tool_transport_policy
    if policy is None:
        return
    if policy.parallel_tool_calls is False:
        direct = list(turn.direct)
        groups = Counter(row.call_group_id for row in direct)
        for row in direct:
            if groups[row.call_group_id] > 1:
                where = place("toolRequests", row.tool_call_id)
                yield Finding(_ORDER, where, f"one of {groups[row.call_group_id]} calls at once; one is admitted")
    if policy.ordering not in (None, "any"):  # a word that is not known admits no other order
        by_group: dict[str | None, list[ToolRequest]] = defaultdict(list)
        for row in turn.evidence.tool_requests:
            by_group[row.call_group_id].append(row)
        for rows in by_group.values():
            yield from _in_order(turn, rows)


def _in_order(turn: Turn, rows: list[ToolRequest]) -> Iterator[Finding]:
    """Of one group: every call and output has a position, and both count the same way."""
    positions = []
    for row in rows:
        result = turn.results.get(row.tool_call_id)
        if row.ordinal is None:
            yield Finding(_ORDER, place("toolRequests", row.tool_call_id), "the call has no position")
        elif result is not None and result.sequence is not None:
            positions.append((row.ordinal, result.sequence, row.tool_call_id))
        if result is not None and result.sequence is None:
            yield Finding(_ORDER, place("toolResults", row.tool_call_id), "the output has no position")
    positions.sort()
    for (ordinal, sequence, _), (next_ordinal, next_sequence, name) in pairwise(positions):
        if ordinal == next_ordinal or sequence >= next_sequence:
            yield Finding(_ORDER, place("toolResults", name), "the output is not in the order of its call")


CHECKS: Final = (stop_reason, stop_policy, transport)
