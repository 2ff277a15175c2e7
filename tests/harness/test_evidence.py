"""What is read, what is not given, and what cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manglecp.harness import readers
from manglecp.harness.call_spec import UPSTREAM_FIELDS, CallSpec
from manglecp.harness.judgement import judge
from manglecp.harness.readers import InvalidEvidence
from manglecp.harness.turn import read_turn
from manglecp.harness.witness import verify, witness_of
from tests.harness.evidence import ABSENT, VECTORS, changed, judged, turn

GUARDRAIL = {"evidence.guardrailDecisions": [{"stage": "input", "sequence": 1}]}


def refused(changes: dict[str, Any]) -> str:
    with pytest.raises(InvalidEvidence) as caught:
        judged(turn(), changes)
    assert str(caught.value).startswith(caught.value.path)
    return caught.value.path


REQUIRED = [
    *(f"evidence.callSpec.{name}" for name in UPSTREAM_FIELDS),
    "evidence.toolRequests.0.toolCallId",
    "evidence.toolRequests.0.toolName",
    "evidence.toolResults.0.toolCallId",
    "evidence.toolUse.0.toolCallId",
    "evidence.toolRender.0.toolCallId",
    "evidence.toolRender.0.operatorPayloadDigest",
    "evidence.toolRender.0.reminderRenderDigest",
    "evidence.toolRender.0.injectionPoint",
    "evidence.toolRender.0.policyDigest",
    "evidence.reminderQueue.0.queueId",
    "evidence.reminderQueue.0.reducedDigest",
    "evidence.reminderQueue.0.policyDigest",
    "evidence.stateViews.0.viewId",
    "evidence.stateViews.0.viewDigest",
    "evidence.stateViews.0.policyDigest",
    "evidence.protocolState.stopReason",
    "evidence.handoff.target",
    "evidence.artifacts.0.ref",
    "evidence.contextAccess.0.ref",
    "evidence.guardrailDecisions.0.stage",
]


@pytest.mark.parametrize("path", REQUIRED)
@pytest.mark.parametrize("value", [ABSENT, None, " \u2003", 5, True, [], {}])
def test_required_members(path: str, value: object) -> None:
    rows = {"evidence.artifacts": [{"ref": "a"}], "evidence.contextAccess": [{"ref": "a"}], **GUARDRAIL}
    assert refused({**rows, path: value}) == "/" + path.replace(".", "/")


@pytest.mark.parametrize("path", ["evidence", "evidence.callSpec", "evidence.protocolState"])
@pytest.mark.parametrize("value", [ABSENT, None, [], "text"])
def test_required_objects(path: str, value: object) -> None:
    assert refused({path: value}) == "/" + path.replace(".", "/")


@pytest.mark.parametrize("value", [ABSENT, None, "1", 1.0, True, []])
def test_the_sequence_of_a_guardrail_is_an_integer(value: object) -> None:
    changes = {**GUARDRAIL, "evidence.guardrailDecisions.0.sequence": value}
    assert refused(changes) == "/evidence/guardrailDecisions/0/sequence"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("evidence.toolResults.0.status", "done"),
        ("evidence.toolResults.0.status", 5),
        ("evidence.toolResults.0.status", ["ok"]),
        ("evidence.toolUse.0.disposition", "eaten"),
        ("evidence.toolUse.0.disposition", {}),
        ("evidence.toolRequests", {}),
        ("evidence.toolRequests", "none"),
        ("evidence.toolRequests.0", []),
        ("evidence.toolRequests.0", "a"),
        ("evidence.toolRequests.0.searchRef", "q"),
        ("evidence.toolRequests.0.searchRef", []),
        ("evidence.toolRequests.0.schemaValid", []),
        ("evidence.toolRequests.0.ordinal", {}),
        ("evidence.toolResults.0.shell", "sh"),
        ("evidence.toolResults.0.truncation", True),
        ("evidence.toolResults.0.errorCode", ["E"]),
        ("evidence.toolResults.0.payloadBytes", []),
        ("evidence.stateViews.0.sourceRefs", "s"),
        ("evidence.callSpec.stopPolicy", 3),
        ("evidence.callSpec.toolChoice", ["any"]),
        ("evidence.callSpec.parallelPolicy", ["allow"]),
        ("evidence.callSpec.toolPolicy", {"allowedTools": ["grep"]}),
        ("evidence.sessionRefs", "s"),
        ("evidence.mutation", "close"),
        ("toolConstraints", []),
        ("toolConstraints.allowedTools", "grep"),
        ("toolConstraints.allowedCallers", ["grep"]),
        ("governanceProfile", "claimed"),
        ("governanceProfile.observabilityMode", []),
        ("governanceProfile.evalGate", True),
        ("governanceConstraints.evalThresholds", [1]),
        ("policyDocuments", []),
        ("policyDocuments.toolCatalog", []),
        ("policyDocuments.toolCatalogue", {}),
    ],
)
def test_one_kind_where_another_belongs(path: str, value: object) -> None:
    found = refused({path: value})
    assert found.startswith("/" + path.replace(".", "/"))


def test_paths_lead_to_the_place() -> None:
    assert refused({"toolConstraints.allowedCallers": {"a/b": [5, {}]}}) == "/toolConstraints/allowedCallers/a~1b/1"
    assert refused({"evidence.sessionRefs": ["a", ["b"]]}) == "/evidence/sessionRefs/1"
    assert refused({"evidence.toolResults.0": {"toolCallId": "a", "rawError": {"code": []}, "status": "error"}}) == (
        "/evidence/toolResults/0/rawError/code"
    )
    assert refused({"evidence.toolUse.0": {"toolCallId": "a"}}) == "/evidence/toolUse/0/useDisposition"


@pytest.mark.parametrize(
    ("path", "row"),
    [
        ("evidence.toolRequests.1", {"toolCallId": "a", "toolName": "sed"}),
        ("evidence.toolRequests.1", {"toolCallId": "a", "toolName": "grep", "ordinal": 1}),
        ("evidence.toolResults.1", {"toolCallId": "a", "status": "ok"}),
        ("evidence.toolResults.1", {"toolCallId": "a", "status": "error"}),
        ("evidence.toolUse.1", {"toolCallId": "a", "disposition": "observed"}),
        ("evidence.toolRender.1", {"toolCallId": "a", "operatorPayloadDigest": "x", "reminderRenderDigest": "x",
                                   "injectionPoint": "x", "policyDigest": "x"}),
        ("evidence.reminderQueue.1", {"queueId": "q", "reducedDigest": "x", "policyDigest": "x"}),
        ("evidence.stateViews.1", {"viewId": "v", "viewDigest": "x", "policyDigest": "x"}),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-44", "HARN-65")
def test_two_rows_under_one_id_are_a_contradiction(path: str, row: dict[str, Any]) -> None:
    assert refused({path: row}) == "/" + path.removesuffix(".1").replace(".", "/")


def test_branches_contradict_one_another_too() -> None:
    rows = [{"branchId": "b", "joinClosed": True}, {"branchId": "b", "joinClosed": False}]
    assert refused({"evidence.branchJoins": rows}) == "/evidence/branchJoins"


def test_members_that_are_one_after_trimming() -> None:
    assert refused({"toolConstraints.schemaDigests": {"a": "x", " a": "y"}}) == "/toolConstraints/schemaDigests/ a"
    assert judged(turn(), {"toolConstraints.schemaDigests": {"a": "x", " a": "x "}}).result == "accepted"


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("evidence.callSpec.callId", "\ud800", "/evidence/callSpec/callId"),
        ("evidence.toolRequests.0.input", {"x": float("nan")}, "/evidence/toolRequests/0/input/x"),
        ("evidence.toolRequests.0.input", {1: 2}, "/evidence/toolRequests/0/input"),
        ("evidence.toolRequests.0.input", {"x": b"bytes"}, "/evidence/toolRequests/0/input/x"),
    ],
)  # fmt: skip
def test_what_has_no_canonical_form(path: str, value: object, where: str) -> None:
    assert refused({path: value}) == where


def test_deep_values_are_refused_and_not_followed() -> None:
    deep: Any = []
    for _ in range(200_000):
        deep = [deep]
    assert refused_whole({**turn(), "policyDocuments": {"toolCatalog": {"x": deep}}}) == "/policyDocuments/toolCatalog"
    document = turn()
    document["evidence"]["toolRequests"][0]["input"] = deep
    assert refused_whole(document) == "/evidence/toolRequests/0/input"
    document["evidence"]["toolRequests"][0]["input"] = 1
    document["unknown"] = deep
    assert judge(document).result == "accepted"


def refused_whole(document: dict[str, Any]) -> str:
    with pytest.raises(InvalidEvidence) as caught:
        judge(document)
    return caught.value.path


@pytest.mark.parametrize("document", [None, [], "text", 5])
def test_a_document_is_an_object(document: Any) -> None:
    for read in (judge, verify):
        with pytest.raises(InvalidEvidence) as caught:
            read(document)
        assert (caught.value.path, str(caught.value)) == ("", "/: an object is expected")


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in {"_MAX_ENTRIES": 3, "_MAX_TEXT_LENGTH": 100, "_MAX_VERBATIM_BYTES": 50}.items():
        monkeypatch.setattr(readers, name, limit)
    judge(turn("a", "b", "c"))
    for changes, where in (
        ({"evidence.sessionRefs": ["a", "b", "c", "d"]}, "/evidence/sessionRefs"),
        ({"toolConstraints.schemaDigests": dict.fromkeys("abcd", "x")}, "/toolConstraints/schemaDigests"),
        ({"evidence.callSpec.callId": "x" * 101}, "/evidence/callSpec/callId"),
        ({"evidence.toolRequests.0.input": {"x": "y" * 50}}, "/evidence/toolRequests/0/input"),
    ):
        with pytest.raises(InvalidEvidence) as caught:
            judge(changed(turn(), changes))
        assert caught.value.path == where


@pytest.mark.req("HARN-09", "HARN-10", "HARN-11", "HARN-41")
def test_the_call_spec_has_35_fields() -> None:
    assert len(CallSpec.__struct_fields__) == 35
    assert set(UPSTREAM_FIELDS) == {
        "callId", "modelRef", "actionMode", "executionPattern", "toolRenderProtocolDigest",
        "reminderQueuePolicyDigest", "stateViewPolicyDigest", "decompositionPolicyDigest", "governancePolicyDigest",
        "mutationPolicyDigest", "normalizerId",
    }  # fmt: skip


def row(name: str, **raw: Any) -> Any:
    document = turn()
    document["evidence"][name][0] |= raw
    return judge(document).normalized["evidence"][name][0]


@pytest.mark.parametrize(
    ("written", "status"),
    [
        ("ok", "ok"), (" SUCCESS ", "ok"), ("failure", "error"), ("failed", "error"), ("timeout", "error"),
        ("Cancelled", "error"), ("denied", "error"), (None, "ok"), (" ", "ok"), ("running", "running"),
        ("pending", "pending"), ("streaming", "streaming"),
    ],
)  # fmt: skip
def test_statuses(written: str | None, status: str) -> None:
    assert row("toolResults", status=written)["status"] == status


@pytest.mark.parametrize(
    "changes",
    [
        {"evidence.toolResults.0.payload": [1e-7, -0.0, {"größe": 2**70}]},
        {"evidence.toolRequests.0.input": {"ä": 1, "eps": 1e300}},
        {"evidence.toolRequests.0.ordinal": 2**63},
        {"evidence.toolRequests.0.input": {"n": 10**400}},
    ],
)
def test_unusual_numbers_and_keys_are_evidence_too(changes: dict[str, Any]) -> None:
    judgement = judged(turn(), {"evidence.toolUse.0.resultDigest": ABSENT, **changes})
    assert judgement.result == "accepted"
    assert verify(witness_of(judgement)).holds


@pytest.mark.parametrize("score", [1, 0, -1, 1.0, 1e-9, -0.0])
def test_a_score_is_a_number_however_it_is_written(score: float) -> None:
    document = VECTORS["019-accept-governance-policy-promotion"]["input"]
    judgement = judged(document, {"governanceProfile.evalGate.metrics.precision": score})
    assert verify(witness_of(judgement)).holds
    assert (judgement.result == "accepted") == (score >= 0.9)


@pytest.mark.parametrize(
    "given", [{"rawError": "boom"}, {"rawError": 7}, {"errorCode": "  "}, {"retryable": "yes"}, {"errorMessage": None}]
)
def test_what_counts_as_not_given_makes_no_error(given: dict[str, Any]) -> None:
    assert row("toolResults", status=None, **given)["status"] == "ok"


@pytest.mark.parametrize("member", ["errorCode", "errorMessage", "errorMessageDigest", "errorSummary"])
def test_a_row_with_an_error_member_is_an_error(member: str) -> None:
    assert row("toolResults", status=None, rawError={})["status"] == "error"
    assert row("toolResults", status=None, **{member: "x"})["status"] == "error"
    assert row("toolResults", status=None, retryable=False)["status"] == "error"
    assert row("toolResults", status="ok", **{member: "x"})["status"] == "ok"


@pytest.mark.req("HARN-61", "HARN-62", "HARN-63")
@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ({"disposition": " Consumed"}, "consumed"),
        ({"disposition": "observed"}, "observed_only"),
        ({"disposition": "discarded"}, "discarded"),
        ({"disposition": "discarded", "useReason": "r"}, "discarded_with_reason"),
        ({"disposition": "retry_scheduled"}, "retry_scheduled"),
        ({"disposition": None, "useDisposition": "observed_only"}, "observed_only"),
        ({"disposition": " ", "useDisposition": "observed_only"}, "observed_only"),
    ],
)
def test_dispositions(raw: dict[str, Any], word: str) -> None:
    assert row("toolUse", **raw)["disposition"] == word


def test_members_of_a_wrong_type_are_not_given() -> None:
    raw = {"schemaDigest": 5, "ordinal": "1", "schemaValid": "no", "actionIndex": 1.0, "branchId": " ", "toolKind": 7}
    assert row("toolRequests", **raw) == {"toolCallId": "a", "toolName": "grep"}
    assert judged(turn(), {"evidence.sessionRefs": [" b", None, 5, "", "a", "b"]}).normalized["evidence"][
        "sessionRefs"
    ] == ["a", "b"]


def test_empty_places_in_lists_are_not_given() -> None:
    document = turn()
    for rows in ("toolRequests", "toolResults", "toolUse", "toolRender"):
        document["evidence"][rows].append(None)
    assert judge(document).digests == judge(turn()).digests


def test_nothing_of_payload_arguments_or_messages_is_kept() -> None:
    document = turn()
    document["evidence"]["toolRequests"][0]["input"] = {"secret": "hunter2"}
    document["evidence"]["toolResults"][0] = {
        "toolCallId": "a", "status": "error", "payload": "hunter2", "errorMessage": "hunter2",
        "errorSummary": "hunter2", "rawError": {"message": "hunter2"},
    }  # fmt: skip
    assert "hunter2" not in json.dumps(judge(document).normalized)


def test_unfinished_rows_count_until_there_is_a_terminal_one() -> None:
    running = {"toolCallId": "a", "status": "running"}
    streaming = {"toolCallId": "a", "status": "streaming"}
    with_result = judged(turn(), {"evidence.toolResults.1": running, "evidence.toolResults.2": streaming})
    assert with_result.digests == judged(turn()).digests
    without = read_turn(changed(turn(), {"evidence.toolResults": [running, streaming, running]}))
    assert [one.status for one in without.evidence.tool_results] == ["running", "streaming"]
    assert not without.results
