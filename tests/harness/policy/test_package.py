"""What a package binds a turn to."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from manglecp.harness.canonical_v1 import canonical, digest_v1 as digest
from manglecp.harness.policy import PolicyPackage, observe_package
from manglecp.harness.policy.kinds import KINDS
from tests.harness.policy.packages import careful, changed

FIELDS = [
    "callId",
    "modelRef",
    "actionMode",
    "executionPattern",
    "toolChoice",
    "toolPolicy",
    "toolCatalogDigest",
    "deferPolicyDigest",
    "toolExampleDigest",
    "allowedCallersDigest",
    "preContextFilterPolicy",
    "evalProfileRef",
    "parallelPolicy",
    "toolTransportPolicy",
    "toolResponseTruncationPolicy",
    "toolRenderProtocolDigest",
    "executionBoundaryPolicy",
    "runtimeSandboxRef",
    "compactionPolicyDigest",
    "reminderQueuePolicyDigest",
    "stateViewPolicyDigest",
    "decompositionPolicyDigest",
    "governancePolicyDigest",
    "guardrailStagePolicyDigest",
    "evalGatePolicyDigest",
    "redTeamPolicyDigest",
    "observabilityMode",
    "riskTier",
    "orchestrationRole",
    "contextScopeDigest",
    "handoffContractDigest",
    "mutationPolicyDigest",
    "normalizerId",
    "stopPolicy",
    "protocolStatePolicy",
]
REQUIRED = [
    "callId",
    "modelRef",
    "actionMode",
    "executionPattern",
    "toolRenderProtocolDigest",
    "reminderQueuePolicyDigest",
    "stateViewPolicyDigest",
    "decompositionPolicyDigest",
    "governancePolicyDigest",
    "mutationPolicyDigest",
    "normalizerId",
]


def spec(package: PolicyPackage, **more: Any) -> dict[str, Any]:
    return package.call_spec(
        session_id="s1", turn_index=1, model_ref="atlas@2026-02-11", prompt_digest="sha256:00", **more
    )


@pytest.mark.req("HARN-09")
def test_the_call_id_says_which_turn_it_is() -> None:
    named = {
        "sessionId": "s1",
        "turnIndex": 1,
        "modelRef": "atlas@2026-02-11",
        "promptDigest": "sha256:00",
    }
    expected = "turn1_" + hashlib.sha256(canonical(named)).hexdigest()
    assert spec(careful())["callId"] == spec(observe_package())["callId"] == expected


@pytest.mark.req(*(f"HARN-{number:02d}" for number in range(14, 44)))
def test_a_full_package_gives_all_35_fields() -> None:
    fields = {**spec(careful()), "orchestrationRole": "orchestrator"}  # the turn chooses its role
    assert len(FIELDS) == 35
    assert sorted(fields) == sorted(FIELDS)
    assert all(fields.values())


def test_observe_gives_what_is_required_and_demands_nothing() -> None:
    fields = spec(observe_package())
    assert sorted(fields) == sorted([*REQUIRED, "toolChoice"])
    assert list(observe_package().constraints()) == ["decompositionConstraints"]
    assert not observe_package().may_mutate


def test_choices_of_a_turn() -> None:
    fields = spec(careful(), execution_pattern="parallel", risk_tier="high")
    assert (fields["executionPattern"], fields["riskTier"]) == ("parallel", "high")


def test_every_digest_has_its_document() -> None:
    package = careful()
    fields, documents = spec(package), package.documents()
    named = {
        KINDS[kind].document_name: KINDS[kind].digest_field for kind in package.contents if KINDS[kind].document_name
    }
    named |= {"toolCatalog": "toolCatalogDigest", "governancePolicy": "governancePolicyDigest"}
    assert sorted(documents) == sorted(str(name) for name in named)
    for name, field in named.items():
        assert digest(documents[str(name)]) == fields[str(field)], name


@pytest.mark.req("HARN-31", "SLICE-14")
def test_the_governance_digest_is_that_of_the_package() -> None:
    package = careful()
    assert spec(package)["governancePolicyDigest"] == package.digest
    for kind in package.contents:
        other = {**package.digests, kind: "sha256:0"}
        assert digest({**package.inventory, "documents": other}) != package.digest
    assert changed(package, stop={"maxTurns": 41}).digest != changed(package).digest != package.digest


@pytest.mark.req("HARN-26")
def test_a_sandbox_is_named_with_its_digest() -> None:
    package = careful()
    assert spec(package)["runtimeSandboxRef"] == f"sandbox/container@{package.digests['sandbox']}"
    other = changed(package, sandbox={"network": "open"})
    assert spec(other)["runtimeSandboxRef"] != spec(package)["runtimeSandboxRef"]


@pytest.mark.req("HARN-14", "HARN-15")
def test_tools_that_are_known_but_not_allowed() -> None:
    fields = spec(careful())
    allowed = {tool["toolName"] for tool in fields["toolPolicy"]["allowedTools"]}
    catalogue = {tool["toolName"]: tool["schemaDigest"] for tool in careful().documents()["toolCatalog"]["tools"]}
    assert catalogue.keys() - allowed == {"repo.force_push"}
    for tool in fields["toolPolicy"]["allowedTools"]:
        assert tool["schemaDigest"] == catalogue[tool["toolName"]] == digest(tool["inputSchema"])


def test_a_parser_profile() -> None:
    package = changed(careful(), tools={"parserProfileId": "react-json@1"})
    assert spec(package)["toolPolicy"]["parserProfileId"] == "react-json@1"


def test_what_is_handed_out_does_not_change_the_package() -> None:
    package = careful()
    fields, terms = spec(package), package.terms(pinned=package.digest)
    fields["stopPolicy"]["maxTurns"] = 10**6
    fields["toolPolicy"]["allowedTools"].clear()
    terms["policyDocuments"]["evalGatePolicy"]["thresholds"].clear()
    terms["contextConstraints"]["requiredQueueIds"].clear()
    assert package == careful()
    assert package.terms(pinned=package.digest) == careful().terms(pinned=package.digest)


def test_a_tier_without_control_profile_is_not_bound() -> None:
    package = changed(careful(), risk_tiers={"tiers": {"moderate": {"controlProfileRef": "controls://one"}}})
    assert package.highest_tier() == "moderate"
    assert package.governance_profile(None, "high")["riskTier"] == {"tier": "high", "controlProfileBound": False}


def test_an_unpinned_package_says_so() -> None:
    provenance = careful().constraints()["governanceProfile"]["policyProvenance"]
    assert provenance["pinned"] is False
