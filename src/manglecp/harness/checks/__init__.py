"""The checks: each examines one aspect of a turn and yields a finding for every row that violates it.

A check depends on the evidence and the terms in force, never on other checks; :mod:`manglecp.harness.classes` defines
which state a class blocks. A finding points at the offending row. Where two rows contradict each other it points at
both, so that removing a row without a finding never makes a turn acceptable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from manglecp.harness.checks import execution, governance, mutation, tool
from manglecp.harness.classes import Finding, State
from manglecp.harness.turn import Turn

Check: TypeAlias = Callable[[Turn], Iterator[Finding]]

_FIRST: Final[dict[State, tuple[Check, ...]]] = {
    State.CALL_SPEC: (
        *(tool.call_shape, tool.request_shape, tool.one_call_per_action, tool.result_shape, tool.use_shape),
        *(tool.allowed_tools, tool.blocked_calls, tool.discovery, tool.examples, tool.callers, tool.width),
        *(execution.pattern, execution.fan_out, governance.governance, mutation.drift),
    ),
    State.TOOL_RESULTS: (
        *(tool.caller_edges, tool.truncation),
        *(execution.shell_boundary, execution.edit_surface, execution.scope),
    ),
    State.JOIN_CLOSED: (
        *(tool.join, execution.stop_reason, execution.stop_policy, execution.transport, execution.compaction),
        *(execution.owed_context, execution.queues, execution.context_filter, governance.guardrails),
        *(mutation.contract, mutation.packet, mutation.no_packet, mutation.descent),
    ),
    State.MUTATION_READY: (governance.promotion, mutation.policy, mutation.claims, mutation.use_evidence),
}
"""Every check, under the first state that a class of it can block."""

CHECKS_UPTO: Final = {
    state: tuple(check for first, checks in _FIRST.items() if first <= state for check in checks) for state in State
}
"""The checks that can block a state."""
CHECKS: Final = CHECKS_UPTO[State.MUTATION_READY]
