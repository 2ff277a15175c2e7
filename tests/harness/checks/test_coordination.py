from __future__ import annotations

from typing import Any

import pytest

from tests.harness.checks.cases import accepts, raises
from tests.harness.evidence import classes, turn

SPLIT = "coordination.decomposition_policy_violation"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        raises("the runtime says so", SPLIT, decompositionConstraints={"admissible": False}),
        accepts("the runtime is content", decompositionConstraints={"admissible": True}),
        raises("pattern not known", SPLIT, call__executionPattern="swarm"),
        raises("pattern not known although admissible", SPLIT, call__executionPattern="swarm",
               decompositionConstraints={"admissible": True}),
        accepts("another case", call__executionPattern=" Chain "),
        raises("another pattern expected", SPLIT, decompositionConstraints={"expectedExecutionPattern": "chain"}),
        accepts("pattern expected", decompositionConstraints={"expectedExecutionPattern": "SINGLE"}),
        raises("pattern not admitted", SPLIT, decompositionConstraints={"allowedPatterns": ["chain"]}),
        raises("no pattern admitted", SPLIT, decompositionConstraints={"allowedPatterns": []}),
        accepts("pattern admitted", decompositionConstraints={"allowedPatterns": ["chain", "single"]}),
        raises("another policy expected", SPLIT, decompositionConstraints={"expectedPolicyDigest": "p"}),
        accepts("policy expected", decompositionConstraints={"expectedPolicyDigest": "sha256:decomposition"}),
        raises("loop with two workers", SPLIT, evidence__decomposition={"mode": "loop", "workers": ["w", "x"]}),
        raises("loop with the same worker twice", SPLIT,
               evidence__decomposition={"mode": "loop", "workers": ["w", "w"]}),
        raises("loop that fans out", SPLIT, evidence__decomposition={"mode": "loop", "fanOut": 2, "workers": ["w"]}),
        accepts("loop", evidence__decomposition={"mode": "loop", "workers": ["w"]}),
        raises("single splits", SPLIT, evidence__decomposition={"mode": "split"}),
        raises("chain splits", SPLIT, call__executionPattern="chain", evidence__decomposition={"mode": "split"}),
        raises("optimizer splits", SPLIT, call__executionPattern="evaluator_optimizer",
               evidence__decomposition={"mode": "split"}),
        raises("single does something unknown", SPLIT, evidence__decomposition={"mode": "fork"}),
        accepts("route splits", call__executionPattern="route",
                evidence__decomposition={"mode": "split", "fanOut": 9}),
        raises("wider than the cap", SPLIT, call__executionPattern="parallel",
               evidence__decomposition={"mode": "split", "fanOut": 3}, decompositionConstraints={"maxFanOut": 2}),
        accepts("as wide as the cap", call__executionPattern="parallel",
                evidence__decomposition={"mode": "split", "fanOut": 2}, decompositionConstraints={"maxFanOut": 2}),
        raises("autonomous without row", SPLIT, call__executionPattern="orchestrator_workers",
               decompositionConstraints={"requireEscalationTrigger": True}),
        raises("autonomous without trigger", SPLIT, call__executionPattern="orchestrator_workers",
               decompositionConstraints={"requireEscalationTrigger": True}, evidence__decomposition={"mode": "split"}),
        raises("optimizer without trigger", SPLIT, call__executionPattern="evaluator_optimizer",
               decompositionConstraints={"requireEscalationTrigger": True}),
        accepts("autonomous with trigger", call__executionPattern="orchestrator_workers",
                decompositionConstraints={"requireEscalationTrigger": True},
                evidence__decomposition={"escalationTriggerRef": "eval://1"}),
        accepts("workflow without trigger", call__executionPattern="chain",
                decompositionConstraints={"requireEscalationTrigger": True}),
        accepts("trigger not required", call__executionPattern="orchestrator_workers"),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-12", "HARN-30", "SLICE-08")
def test_decomposition(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(), changes) == expected
