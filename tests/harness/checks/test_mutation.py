from __future__ import annotations

from typing import Any

import pytest

from tests.harness.checks.cases import accepts, raises
from tests.harness.evidence import MUTATION, changed, classes, judged, turn

POLICY = "mutation.policy_digest_mismatch"
CLAIM = "mutation.capability_claim_missing"
EVIDENCE = "mutation.use_evidence_missing"

BASE = "capabilities.change_morphisms"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        accepts("ready"),
        raises("another policy is active", POLICY, mutationConstraints__activePolicyDigest="x"),
        raises("no policy is active", POLICY, mutationConstraints=None),
        raises("the intent cites another", POLICY, evidence__mutation__policyDigest="x"),
        accepts("the intent cites it", evidence__mutation__policyDigest="sha256:mutation"),
        raises("base only", CLAIM, evidence__mutation__capabilityClaims=[BASE]),
        raises("action only", CLAIM, evidence__mutation__capabilityClaims=[f"{BASE}.issue_update"]),
        raises("all without base", CLAIM, evidence__mutation__capabilityClaims=[f"{BASE}.all"]),
        raises("another action", CLAIM, evidence__mutation__action="issue.close"),
        raises("no action", CLAIM, evidence__mutation__action=None),
        accepts("all", evidence__mutation__capabilityClaims=[BASE, f"{BASE}.all"]),
        raises("demanded claims", CLAIM, mutationConstraints__requiredCapabilityClaims=["x"]),
        accepts("demanded claims replace the default", mutationConstraints__requiredCapabilityClaims=["x"],
                evidence__mutation__capabilityClaims=["x"]),
        raises("no instruction", EVIDENCE, evidence__mutation__instructionRef=""),
        raises("no inputs", EVIDENCE, evidence__mutation__inputRefs=[]),
        raises("an input not covered", EVIDENCE, evidence__mutation__inputRefs=["note://a", "note://b"]),
        accepts("covered by an earlier join", evidence__mutation__inputRefs=["note://a", "jw1_x"],
                evidence__mutation__joinWitnessRefs=["jw1_x"]),
        raises("consumed without provenance", EVIDENCE, use__summaryRef=None,
               evidence__mutation__joinWitnessRefs=["note://a"]),
        accepts("covered by a handoff", use__summaryRef=None, use__handoffRef="note://a"),
        accepts("covered as an input", use__summaryRef=None, use__mutationInputRef="note://a"),
        accepts("observed without provenance", use__summaryRef=None, use__disposition="observed",
                evidence__mutation__joinWitnessRefs=["note://a"]),
        raises("what was only observed covers nothing", EVIDENCE, use__disposition="observed"),
        raises("no link", EVIDENCE, evidence__sessionRefs=[" "]),
        accepts("linked by a trajectory", evidence__sessionRefs=[], evidence__trajectoryRefs=["t"]),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-40", "HARN-73", "HARN-74")
def test_a_mutation(changes: dict[str, Any], expected: set[str]) -> None:
    found = judged(changed(turn(), MUTATION), changes)
    assert set(found.failure_classes) == expected
    assert found.mutation_ready is (not expected)
    assert found.join_closed, "these classes forbid only the mutation"


@pytest.mark.req("FAIL-40")
def test_an_active_policy_binds_without_an_intent() -> None:
    assert classes(turn(), {"mutationConstraints.activePolicyDigest": "x"}) == {POLICY}


@pytest.mark.req("HARN-02")
def test_who_intends_nothing_is_not_ready() -> None:
    found = judged(turn())
    assert found.result == "accepted"
    assert not found.mutation_ready
