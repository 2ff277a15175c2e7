from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from manglecp.base.digest import digest_text
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.judgement import judge
from tests.harness.evidence import ABSENT, MUTATION, VECTORS, changed, judged, turn

EMPTY = digest([])


def vector(number: str) -> dict[str, Any]:
    (found,) = [vector["input"] for name, vector in VECTORS.items() if name.startswith(number)]
    assert isinstance(found, dict)
    return found


@pytest.mark.req("HARN-67")
@pytest.mark.parametrize(
    ("number", "name", "value"),
    [
        ("002", "callSpecDigest", "sha256:e98249ae322a5afaa4711ecb9324de0a9dfe407692de9c8549dab1a1fc87d400"),
        ("002", "requestSetDigest", "sha256:7858f7115469f14719eafc9948f4d3db151e0964b31b5bbfa45dac4cc43427e8"),
        ("002", "resultSetDigest", "sha256:5cab2c4bdfa8bad4cee566f9e462afc237e5d305b0aafb59d14e05bae8824b4f"),
        ("002", "joinSetDigest", "sha256:98b150dd5860169d68af3e910236eb4654f60c70b04287605e13550310b2d277"),
        ("002", "protocolStateDigest", "sha256:b09cfc5398f291fac6f31a377f8c1bed711fa32c6784980d7fb449cb0a6918a8"),
        ("024", "joinSetDigest", "sha256:fd9df477deac6d04bc0775727b9dbec8c0a3ea5817e5611c1c8066bb46b01f73"),
    ],
)
def test_literal_values(number: str, name: str, value: str) -> None:
    """Written down by another implementation."""
    assert judge(vector(number)).digests[name] == value


def test_the_requests_of_upstreams_golden_turn() -> None:
    document = turn(toolRequests=[{"toolCallId": "tc-1", "toolName": "fs.read"}])
    expected = "sha256:71b386335e46180e05bc9b8174a6058a9816b80074e7cc5742fbf766b632b461"
    assert judge(document).digests["requestSetDigest"] == expected


def test_empty_sets_are_digests_of_the_empty_list() -> None:
    found = judge(vector("001")).digests
    names = ("requestSetDigest", "resultSetDigest", "useSetDigest", "toolRenderSetDigest", "reminderQueueSetDigest")
    assert {found[name] for name in names} == {EMPTY}
    assert EMPTY.startswith("sha256:4f53cda1")
    assert EMPTY.endswith("02b945")


def test_the_shape_of_each_v1_row() -> None:
    """Byte for byte: absent members are left out, an error is filled, dispositions are upstream's words."""
    document = turn("a", "b", handoff={"target": " t ", "requiredArtifactRefs": ["y", "x", "y"], "returnPathRef": " "})
    evidence = document["evidence"]
    evidence["toolRequests"][0] |= {"schemaDigest": "s", "callerId": "c", "searchRefDigest": "r", "toolKind": "mcp"}
    evidence["toolResults"][1] = {"toolCallId": "b", "status": "failed", "rawError": {"errorCode": " ", "code": "E"}}
    evidence["toolUse"][0] |= {"disposition": "discarded_with_reason", "reasonCode": "dup"}
    evidence["toolUse"][1] = {"toolCallId": "b", "disposition": "observed_only"}
    evidence["reminderQueue"][0]["entries"] = [{"reminderDigest": "r"}]
    evidence["stateViews"][0]["sourceRefs"] = ["z", "y", "z"]
    found = judge(document).digests
    assert found["requestSetDigest"] == digest(
        [
            {"toolCallId": "a", "toolName": "grep", "schemaDigest": "s", "callerId": "c", "searchRefDigest": "r"},
            {"toolCallId": "b", "toolName": "grep"},
        ]
    )
    filled = {"errorCode": "unknown_error", "retryable": False, "errorMessageDigest": digest_text("")}
    assert found["resultSetDigest"] == digest(
        [
            {"toolCallId": "a", "status": "ok", "resultDigest": "sha256:result-a"},
            {"toolCallId": "b", "status": "error", "error": filled},
        ]
    )
    assert found["useSetDigest"] == digest(
        [
            {"toolCallId": "a", "disposition": "discarded", "resultDigest": "sha256:result-a"},
            {"toolCallId": "b", "disposition": "observed"},
        ]
    )
    assert found["reminderQueueSetDigest"] == digest(
        [{"queueId": "q", "reducedDigest": "sha256:reduced", "policyDigest": "sha256:queue"}]
    )
    assert found["stateViewSetDigest"] == digest(
        [{"viewId": "v", "viewDigest": "sha256:state", "policyDigest": "sha256:view", "sourceRefs": ["y", "z"]}]
    )
    assert found["handoffDigest"] == digest({"target": "t", "requiredArtifactRefs": ["x", "y"]})
    bare = judge(turn(handoff={"target": "t", "requiredArtifactRefs": [], "returnPathRef": "r"})).digests
    assert bare["handoffDigest"] == digest({"target": "t", "returnPathRef": "r"})


UNREADY = {"continuationContextReady": False}


@pytest.mark.parametrize(
    ("changes", "members"),
    [
        ({}, {}),
        ({"evidence.toolUse.1": ABSENT}, {"usedCallIds": ["a"], "missingUseCallIds": ["b"]}),
        ({"evidence.toolUse.2": {"toolCallId": "z", "disposition": "observed"}},
         {"usedCallIds": ["a", "b", "z"], "unknownUseCallIds": ["z"]}),
        ({"evidence.toolRequests.0": ABSENT}, {"requestedCallIds": ["b"], "orphanResultCallIds": ["a"]}),
        ({"evidence.toolResults.0": ABSENT, "evidence.toolUse.0": ABSENT},
         {"resultCallIds": ["b"], "missingResultCallIds": ["a"], "usedCallIds": ["b"]}),
        ({"evidence.toolRender.0": ABSENT}, {"renderCallIds": ["b"], "missingRenderCallIds": ["a"], **UNREADY}),
        ({"evidence.reminderQueue": []}, {"queueIds": [], "queueReductionPresent": False, **UNREADY}),
        ({"evidence.stateViews": []}, {"stateViewIds": [], "stateViewPresent": False, **UNREADY}),
        ({"evidence.toolRender.0.policyDigest": "x"}, {"renderPolicyValid": False, **UNREADY}),
        ({"evidence.reminderQueue.0.policyDigest": "x"}, {"queuePolicyValid": False, **UNREADY}),
        ({"evidence.stateViews.0.policyDigest": "x"}, {"stateViewPolicyValid": False, **UNREADY}),
        ({"evidence.stateViews": [], "evidence.toolUse": [], "evidence.protocolState.continuationAllowed": False},
         {"stateViewIds": [], "stateViewPresent": False, "usedCallIds": [], "missingUseCallIds": ["a", "b"]}),
    ],
)  # fmt: skip
def test_the_join_digest_has_25_members(changes: dict[str, Any], members: dict[str, Any]) -> None:
    found = judged(turn("a", "b"), changes).digests
    names = ("request", "result", "use", "toolRender", "reminderQueue", "stateView")
    join = {
        **{f"{name}SetDigest": found[f"{name}SetDigest"] for name in names},
        "protocolStateDigest": found["protocolStateDigest"],
        "handoffDigest": None,
        "requestedCallIds": ["a", "b"],
        "resultCallIds": ["a", "b"],
        "usedCallIds": ["a", "b"],
        "renderCallIds": ["a", "b"],
        "queueIds": ["q"],
        "stateViewIds": ["v"],
        "missingResultCallIds": [],
        "orphanResultCallIds": [],
        "missingUseCallIds": [],
        "unknownUseCallIds": [],
        "missingRenderCallIds": [],
        "queueReductionPresent": True,
        "stateViewPresent": True,
        "renderPolicyValid": True,
        "queuePolicyValid": True,
        "stateViewPolicyValid": True,
        "continuationContextReady": True,
        **members,
    }
    assert len(join) == 25
    assert found["joinSetDigest"] == digest(join)
    assert "handoffDigest" not in found


@pytest.mark.req("HARN-64")
def test_the_use_digest_of_the_seed() -> None:
    document = turn()
    document["evidence"]["toolUse"][0] |= {"useReason": "dup", "disposition": "discarded_with_reason"}
    row = {"toolCallId": "a", "resultDigest": "sha256:result-a", "useDisposition": "discarded_with_reason",
           "useReason": "dup"}  # fmt: skip
    assert judge(document).digests["useSetDigestV2"] == digest([row])


@pytest.mark.req("HARN-52")
def test_a_payload_is_hashed_unless_its_digest_is_declared() -> None:
    payload = {"lines": ["ö", 1.5, None]}
    computed = {"evidence.toolResults.0": {"toolCallId": "a", "payload": payload}}
    declared = {"evidence.toolResults.0": {"toolCallId": "a", "resultDigest": digest(payload)}}
    cited = {"evidence.toolUse.0.resultDigest": digest(payload)}
    first, second = judged(turn(), computed | cited), judged(turn(), declared | cited)
    assert first.failure_classes == second.failure_classes == ()
    assert first.digests["resultSetDigest"] == second.digests["resultSetDigest"]


def test_what_v1_does_not_see_changes_v2() -> None:
    """Nothing enters a verdict without entering this digest."""
    document = changed(turn(), MUTATION)
    plain = judged(document).digests
    changes: list[dict[str, Any]] = [
        {"evidence.callSpec.riskTier": "low"},
        {"evidence.toolRequests.0.toolKind": "mcp"},
        {"evidence.toolRequests.0.input": {"a": 1}},
        {"evidence.toolResults.0.sequence": 1},
        {"evidence.toolUse.0.handoffRef": "h"},
        {"evidence.protocolState.turnIndex": 1},
        {"evidence.reminderQueue.0.entries": [{"reminderDigest": "r"}]},
        {"evidence.branchJoins": [{"branchId": "b", "joinClosed": True}]},
        {"evidence.guardrailDecisions": []},
        {"evidence.guardrailDecisions": [{"stage": "input", "sequence": 1}]},
        {"evidence.artifacts": [{"ref": "r"}]},
        {"evidence.contextAccess": [{"ref": "r"}]},
        {"evidence.traceExports": [{"sink": "s"}]},
        {"evidence.decomposition": {"mode": "loop"}},
        {"evidence.compaction": {"invoked": False}},
        {"evidence.continuity": {"mode": "fresh"}},
        {"evidence.mutation.joinWitnessRefs": ["j"]},
        {"evidence.sessionRefs": ["session://2"]},
        {"evidence.trajectoryRefs": ["t"]},
        {"toolConstraints.allowedTools": ["grep"]},
        {"governanceProfile.processorRef": "x"},
        {"policyDocuments.toolCatalog": {}},
    ]
    for change in changes:
        found = judged(document, change).digests
        assert found["joinSetDigest"] == plain["joinSetDigest"], change
        assert found["evidenceDigestV2"] != plain["evidenceDigestV2"], change


def test_the_witness_id_covers_call_join_evidence_and_classes() -> None:
    found = judged(turn())
    key = {name: found.digests[name] for name in ("callSpecDigest", "joinSetDigest", "evidenceDigestV2")}
    written = json.dumps({**key, "failureClasses": []}, sort_keys=True, separators=(",", ":"))
    assert found.witness_id == "jw1_" + hashlib.sha256(written.encode()).hexdigest()
