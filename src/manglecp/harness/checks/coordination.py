"""Coordination: may the work be split, looped or left to itself like this?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from manglecp.harness.classes import CLASSES
from manglecp.harness.findings import Finding
from manglecp.harness.turn import Turn

__all__ = ["CHECKS"]

_DECOMPOSITION: Final = CLASSES["coordination.decomposition_policy_violation"]

_PATTERNS: Final = ("single", "chain", "route", "parallel", "orchestrator_workers", "evaluator_optimizer")
_UNSPLIT: Final = ("single", "chain", "evaluator_optimizer")
_AUTONOMOUS: Final = ("orchestrator_workers", "evaluator_optimizer")


def pattern(turn: Turn) -> Iterator[Finding]:
    """The pattern is known and admitted, under the policy that is expected; autonomy has its measured trigger."""
    terms, call = turn.terms.decomposition, turn.call
    if terms.admissible is False:
        yield Finding(_DECOMPOSITION, "decompositionConstraints", "the runtime says that it is not admissible")
    where = "callSpec/executionPattern"
    if call.execution_pattern not in _PATTERNS:
        yield Finding(_DECOMPOSITION, where, f"the pattern {call.execution_pattern} is not known")
    if terms.expected_execution_pattern not in (None, call.execution_pattern):
        yield Finding(_DECOMPOSITION, where, f"the pattern {terms.expected_execution_pattern} is expected")
    if terms.allowed_patterns is not None and call.execution_pattern not in terms.allowed_patterns:
        yield Finding(_DECOMPOSITION, where, f"the pattern {call.execution_pattern} is not admitted")
    if terms.expected_policy_digest not in (None, call.decomposition_policy_digest):
        yield Finding(_DECOMPOSITION, "callSpec/decompositionPolicyDigest", "another policy is expected")
    if terms.require_escalation_trigger and call.execution_pattern in _AUTONOMOUS:
        split = turn.evidence.decomposition
        if split is None or split.escalation_trigger_ref is None:
            yield Finding(_DECOMPOSITION, "decomposition", "the pattern is autonomous without a measured trigger")


def fan_out(turn: Turn) -> Iterator[Finding]:
    """A loop has one worker, only some patterns split, and no split is wider than admitted."""
    split, cap = turn.evidence.decomposition, turn.terms.decomposition.max_fan_out
    if split is None:
        return
    if split.mode == "loop" and split.width > 1:
        yield Finding(_DECOMPOSITION, "decomposition", f"a loop with {split.width} workers")
    # A mode that is not known is not taken for the harmless one.
    if split.mode not in (None, "loop") and turn.call.execution_pattern in _UNSPLIT:
        yield Finding(_DECOMPOSITION, "decomposition", f"the pattern {turn.call.execution_pattern} does not split")
    if cap is not None and split.width > cap:
        yield Finding(_DECOMPOSITION, "decomposition", f"{split.width} workers; at most {cap} are admitted")


CHECKS: Final = (pattern, fan_out)
