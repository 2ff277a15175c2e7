"""The checks: each examines one aspect of a turn and yields a finding for every row that violates it.

A check depends on the evidence and the terms in force, never on other checks; :mod:`manglecp.harness.classes` defines
which state a class blocks. A finding names the offending row. If two rows contradict each other, both get a finding, so
that removing a row without a finding never makes a turn acceptable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from manglecp.harness.checks import execution, governance, mutation, tool
from manglecp.harness.classes import Finding, TurnState
from manglecp.harness.turn import Turn

Check: TypeAlias = Callable[[Turn], Iterator[Finding]]

_CHECKS_BY_FIRST_STATE: Final[dict[TurnState, tuple[Check, ...]]] = {
    TurnState.CALL_SPEC: (
        tool.check_call_shape,
        tool.check_request_shape,
        tool.check_one_call_per_action,
        tool.check_result_shape,
        tool.check_use_shape,
        tool.check_allowed_tools,
        tool.check_blocked_calls,
        tool.check_discovery,
        tool.check_examples,
        tool.check_callers,
        tool.check_width,
        execution.check_pattern,
        execution.check_fan_out,
        governance.check_profile,
        mutation.check_drift,
    ),
    TurnState.TOOL_RESULTS: (
        tool.check_caller_edges,
        tool.check_truncation,
        execution.check_shell_boundary,
        execution.check_edit_surface,
        execution.check_scope,
    ),
    TurnState.JOIN_CLOSED: (
        tool.check_join,
        execution.check_stop_reason,
        execution.check_stop_policy,
        execution.check_transport,
        execution.check_compaction,
        execution.check_owed_context,
        execution.check_queues,
        execution.check_context_filter,
        governance.check_guardrails,
        mutation.check_contract,
        mutation.check_packet,
        mutation.check_missing_packet,
        mutation.check_descent,
    ),
    TurnState.MUTATION_READY: (
        governance.check_promotion,
        mutation.check_policy,
        mutation.check_claims,
        mutation.check_use_evidence,
    ),
}
"""Every check, by the first state that one of its classes can block."""

CHECKS_UPTO: Final = {
    state: tuple(check for first, checks in _CHECKS_BY_FIRST_STATE.items() if first <= state for check in checks)
    for state in TurnState
}
"""The checks that can block a state or an earlier one."""
CHECKS: Final = CHECKS_UPTO[TurnState.MUTATION_READY]
