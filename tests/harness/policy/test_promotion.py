"""A package is promoted over another one by evidence, under the rules of the other one, and in no other way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from manglecp.harness.policy import Pin, PolicyError, PolicyPackage, observe_package
from manglecp.harness.policy.promotion import (
    PackageUnchanged,
    candidate_ref,
    inapplicable_reports,
    promote,
    ready_to_promote,
)
from manglecp.harness.states import ForgedState, MutationReady, TurnBlocked, WrongMutation, replay_turn
from tests.harness.evidence import VECTORS
from tests.harness.policy.packages import AT, brought, careful, changed, reports

PIN = Pin.first(careful(), at=AT)
CANDIDATE = changed(careful(), stop={"maxTurns": 30})
Edit = Callable[[dict[str, Any]], object]


def classes(pin: Pin, candidate: PolicyPackage, documents: dict[str, Any]) -> list[str]:
    with pytest.raises(TurnBlocked) as caught:
        promote(pin, candidate, reports(documents), at=AT)
    return sorted({finding.failure.name for finding in caught.value.findings})


@pytest.mark.req("SLICE-15", "HARN-77", "HARN-33", "HARN-34")
def test_a_promotion() -> None:
    promoted = promote(PIN, CANDIDATE, reports(brought(PIN, CANDIDATE)), at=AT)
    assert promoted.digest == CANDIDATE.digest
    assert promoted.history[0] == PIN.history[0]


def test_instructions_and_approvals_are_good_for_one_promotion() -> None:
    there = brought(PIN, CANDIDATE)
    promoted = promote(PIN, CANDIDATE, reports(there), at=AT)
    back = promote(promoted, careful(), reports(brought(promoted, careful())), at=AT)
    assert [row["act"] for row in back.history] == ["pin", "promote", "promote"]
    assert [*inapplicable_reports(back, CANDIDATE, reports(there)).values()] == [
        "the instruction was used before; a repeated promotion needs a new instruction",
        "the approval was used before; a repeated promotion needs a new approval",
    ]
    assert classes(back, CANDIDATE, there) == [
        "governance.risk_tier_profile_missing",
        "mutation.capability_claim_missing",
        "mutation.use_evidence_missing",
    ]
    there["approval"]["approvedBy"] = "lee, again"
    assert classes(back, CANDIDATE, there) == ["mutation.capability_claim_missing", "mutation.use_evidence_missing"]
    there["instruction"]["intent"] = "shorter sessions after all"
    assert promote(back, CANDIDATE, reports(there), at=AT).digest == CANDIDATE.digest


@pytest.mark.req("SLICE-15", "HARN-77", "FAIL-28", "FAIL-29", "FAIL-33", "FAIL-35", "FAIL-41", "FAIL-42")
@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda d: d["evaluation"].update(passed=False), ["governance.eval_gate_unmet"]),
        (lambda d: d["evaluation"]["metrics"].update(recall=0.61), ["governance.eval_gate_unmet"]),
        (lambda d: d["evaluation"]["metrics"].pop("f1"), ["governance.eval_gate_unmet"]),
        (lambda d: d["evaluation"].pop("graderConfigLineageRef"), ["governance.eval_lineage_missing"]),
        (lambda d: d["evaluation"].update(profileRef="bench://other"), ["governance.eval_lineage_missing"]),
        (
            lambda d: d["evaluation"].update(packageDigest=careful().digest),
            ["governance.eval_gate_unmet", "governance.eval_lineage_missing"],
        ),
        (
            lambda d: d["evaluation"].pop("profileRef"),
            ["governance.eval_gate_unmet", "governance.eval_lineage_missing"],
        ),
        (
            lambda d: d["evaluation"].update(dataset="easy"),
            ["governance.eval_gate_unmet", "governance.eval_lineage_missing"],
        ),
        (lambda d: d["red_team"].update(passed=False), ["governance.redteam_gate_unmet"]),
        (lambda d: d["red_team"].update(probes=40), ["governance.redteam_gate_unmet"]),
        (lambda d: d["red_team"].update(failures=1), ["governance.redteam_gate_unmet"]),
        (lambda d: d["red_team"].update(plugins=["tool-abuse"]), ["governance.redteam_gate_unmet"]),
        (lambda d: d["red_team"].pop("reportRef"), ["governance.redteam_gate_unmet"]),
        (lambda d: d["red_team"].update(packageDigest=careful().digest), ["governance.redteam_gate_unmet"]),
        (lambda d: d.pop("instruction"), ["mutation.capability_claim_missing", "mutation.use_evidence_missing"]),
        (
            lambda d: d["instruction"].update(pinnedDigest="sha256:0"),
            ["mutation.capability_claim_missing", "mutation.use_evidence_missing"],
        ),
        (lambda d: d["instruction"]["capabilityClaims"].pop(), ["mutation.capability_claim_missing"]),
        (lambda d: d.pop("approval"), ["governance.risk_tier_profile_missing"]),
        (lambda d: d["approval"].update(tier="low"), ["governance.risk_tier_profile_missing"]),
        (
            lambda d: d["approval"].update(packageDigest=careful().digest),
            ["governance.risk_tier_profile_missing"],
        ),
    ],
)
def test_evidence_that_does_not_carry_it(edit: Edit, expected: list[str]) -> None:
    documents = copy.deepcopy(brought(PIN, CANDIDATE))
    edit(documents)
    assert classes(PIN, CANDIDATE, documents) == expected


@pytest.mark.req("FAIL-30", "FAIL-31", "FAIL-32")
def test_an_automated_promotion_is_bounded() -> None:
    documents = copy.deepcopy(brought(PIN, CANDIDATE))
    documents["instruction"]["automated"] = True
    assert classes(PIN, CANDIDATE, documents) == [
        "governance.self_evolution_escalation_missing",
        "governance.self_evolution_retry_missing",
        "governance.self_evolution_rollback_missing",
    ]
    documents["instruction"]["selfEvolution"] = {
        "maxAttempts": 3,
        "terminalEscalation": "page the owner",
        "rollbackRef": f"policy-package://{PIN.digest}",
    }
    assert promote(PIN, CANDIDATE, reports(documents), at=AT).digest == CANDIDATE.digest


def test_a_package_cannot_lower_the_bar_that_it_has_to_pass() -> None:
    easy = changed(
        careful(),
        eval_gate={"thresholds": {"f1": 0.0}, "dataset": "easy"},
        red_team={"minProbes": 1, "requiredPlugins": []},
        risk_tiers={"tiers": {"moderate": {"controlProfileRef": "controls://none"}}},
        mutation={"requiredCapabilityClaims": ["capabilities.anything"]},
    )
    documents = brought(PIN, easy)
    documents["evaluation"]["metrics"] = {"precision": 0.5, "recall": 0.5, "f1": 0.5}
    documents["red_team"].update(probes=1, plugins=[])
    del documents["approval"]
    documents["instruction"]["capabilityClaims"] = ["capabilities.anything"]
    assert classes(PIN, easy, documents) == [
        "governance.eval_gate_unmet",
        "governance.redteam_gate_unmet",
        "governance.risk_tier_profile_missing",
        "mutation.capability_claim_missing",
    ]


def test_its_own_floors_come_on_top() -> None:
    strict = changed(careful(), eval_gate={"thresholds": {"precision": 0.99}})
    assert classes(PIN, strict, brought(PIN, strict)) == ["governance.eval_gate_unmet"]


@pytest.mark.req("SLICE-09")
def test_a_change_of_loading_is_measured() -> None:
    eager = changed(careful(), deferral={"eager": ["issues.search"], "deferred": []})
    documents = brought(PIN, eager)
    assert classes(PIN, eager, documents) == ["governance.eval_gate_unmet", "governance.eval_lineage_missing"]
    assert [*inapplicable_reports(PIN, eager, reports(documents)).values()] == [
        "the loading or filtering of tools changes, and the evaluation has no member loading"
    ]
    documents["evaluation"]["loading"] = {
        "samples": 120,
        "accuracyBefore": 0.9,
        "accuracyAfter": 0.91,
        "tokensBefore": 81_000,
        "tokensAfter": 64_000,
    }
    assert promote(PIN, eager, reports(documents), at=AT).digest == eager.digest


def test_packages_without_gates() -> None:
    """Where the pinned package has no gate that of the new one holds; where there is none at all nothing passes."""
    loose = changed(careful(), version="0", eval_gate=None, red_team=None)
    pin = Pin.first(loose, at=AT)
    assert promote(pin, CANDIDATE, reports(brought(pin, CANDIDATE)), at=AT).digest == CANDIDATE.digest
    weak = brought(pin, CANDIDATE)
    weak["red_team"]["probes"] = 3
    assert classes(pin, CANDIDATE, weak) == ["governance.redteam_gate_unmet"]
    other = changed(loose, version="0.1", stop={"maxTurns": 3})
    assert classes(pin, other, brought(pin, other)) == [
        "governance.eval_gate_unmet",
        "governance.eval_lineage_missing",
        "governance.redteam_gate_unmet",
    ]


def test_a_package_that_only_observes_is_not_promoted_over() -> None:
    pin = Pin.first(changed(careful(), mutation={"mode": "observe_only"}), at=AT)
    assert classes(pin, CANDIDATE, brought(pin, CANDIDATE)) == ["mutation.policy_digest_mismatch"]


def test_packages_that_demand_little() -> None:
    """Neither guardrails nor views, queues, tiers or a claim are needed to be promoted over."""
    plain = changed(
        careful(),
        version="0",
        risk_tiers=None,
        guardrail_stages=None,
        observability=None,
        governance={"claimed": False, "requiredControls": []},
        queue={"requiredQueueIds": []},
        views={"requiredStateViewIds": []},
        decomposition={"allowedPatterns": ["parallel", "chain"]},
    )
    pin = Pin.first(plain, at=AT)
    documents = brought(pin, CANDIDATE)
    assert promote(pin, CANDIDATE, reports(documents), at=AT).digest == CANDIDATE.digest
    del documents["approval"]
    assert promote(pin, CANDIDATE, reports(documents), at=AT).digest == CANDIDATE.digest


@pytest.mark.req("HARN-03")
def test_a_promotion_can_be_computed_again() -> None:
    brought_then = reports(brought(PIN, CANDIDATE))
    first, again = (ready_to_promote(PIN, CANDIDATE, brought_then).judgement for _ in range(2))
    assert first.witness_id == again.witness_id
    assert first.witness_id == promote(PIN, CANDIDATE, brought_then, at=AT).history[1]["joinWitnessRef"]


def test_an_approval_that_is_not_owed() -> None:
    tiers = {"moderate": {"controlProfileRef": "controls://one"}}
    pin = Pin.first(changed(careful(), risk_tiers={"tiers": tiers}), at=AT)
    assert promote(pin, CANDIDATE, reports(brought(pin, CANDIDATE)), at=AT).digest == CANDIDATE.digest


def test_what_is_pinned_already() -> None:
    with pytest.raises(PackageUnchanged, match="is pinned already"):
        promote(PIN, careful(), reports(brought(PIN, careful())), at=AT)


@pytest.mark.req("HARN-02", "SLICE-15")
def test_the_right_is_for_one_promotion_once() -> None:
    ready = ready_to_promote(PIN, CANDIDATE, reports(brought(PIN, CANDIDATE)))
    other = changed(careful(), stop={"maxTurns": 999})
    with pytest.raises(WrongMutation, match="is for another package"):
        PIN.promoted(other, ready, at=AT)
    with pytest.raises(WrongMutation, match="another package than the one that is pinned"):
        Pin.first(other, at=AT).promoted(CANDIDATE, ready, at=AT)
    assert PIN.promoted(CANDIDATE, ready, at=AT).digest == CANDIDATE.digest
    with pytest.raises(ForgedState):
        PIN.promoted(CANDIDATE, ready, at=AT)
    with pytest.raises(ForgedState):
        PIN.promoted(CANDIDATE, object.__new__(MutationReady), at=AT)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d["evaluation"].update(passd=True), "evaluation.json: /passd: the key 'passd' is unknown"),
        (
            lambda d: d["evaluation"].update(metrics={"f1": 7}),
            "evaluation.json: /metrics/f1: 7 is greater than the maximum of 1",
        ),
        (lambda d: d["red_team"].pop("probes"), "red_team.json: probes is missing"),
        (lambda d: d["instruction"].pop("requestedBy"), "instruction.json: requestedBy is missing"),
        (lambda d: d["approval"].update(evidenceKind="aproval"), "did you mean approval"),
        (lambda d: d["approval"].update(evidenceKind="instruction"), "a second instruction"),
    ],
)
def test_reports_are_read_strictly(edit: Edit, message: str) -> None:
    documents = copy.deepcopy(brought(PIN, CANDIDATE))
    edit(documents)
    with pytest.raises(PolicyError, match=message):
        reports(documents)


def test_a_turn_made_under_other_gates_promotes_nothing() -> None:
    """A right from a turn of one's own making, bound to the pinned package but judged by gentler documents."""
    pin = Pin.first(careful(), at=AT)
    candidate = observe_package()
    document = copy.deepcopy(VECTORS["019-accept-governance-policy-promotion"]["input"])
    document["evidence"]["callSpec"]["governancePolicyDigest"] = pin.digest
    provenance = document["governanceProfile"]["policyProvenance"]
    provenance["expectedDigest"] = provenance["boundDigest"] = pin.digest
    ref = candidate_ref(candidate)
    document["evidence"]["mutation"] |= {"inputRefs": [ref]}
    document["evidence"]["toolUse"][0]["mutationInputRef"] = ref
    with pytest.raises(WrongMutation, match="under another mutation document"):
        pin.promoted(candidate, replay_turn(document), at=AT)
