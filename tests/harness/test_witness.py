from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from manglecp.harness.canonical_v1 import canonical
from manglecp.harness.judgement import Judgement, judge, judge_turn
from manglecp.harness.readers import InvalidEvidence
from manglecp.harness.turn import TurnBuilder
from manglecp.harness.witness import KIND, verify, witness_of
from tests.harness.evidence import MUTATION, VECTORS, changed, turn


def recorded(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(witness_of(judge(document))))
    return found


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.req("SLICE-01", "HARN-03")
def test_a_witness_says_what_its_rows_say(name: str) -> None:
    judgement = judge(VECTORS[name]["input"])
    found = verify(recorded(VECTORS[name]["input"]))
    assert found.holds, found.differences
    assert found.judgement.as_json() == judgement.as_json()


def full() -> dict[str, Any]:
    schema = {"type": "object", "required": ["p"]}
    return changed(turn("a", "b"), {
        **MUTATION,
        "evidence.callSpec.toolPolicy": {"allowedTools": [{"toolName": "grep", "inputSchema": schema}]},
        "evidence.toolRequests.0.input": {"p": "secret"},
        "evidence.toolResults.0": {"toolCallId": "a", "payload": "secret"},
        "evidence.toolUse.0.resultDigest": None,
        "evidence.toolResults.1": {"toolCallId": "b", "errorCode": "E", "retryable": False, "errorMessage": "secret"},
        "evidence.toolUse.1": {"toolCallId": "b", "disposition": "observed"},
        "policyDocuments.toolCatalog": {"tools": []},
    })  # fmt: skip


def test_what_it_believes_is_listed() -> None:
    witness = recorded(full())
    assert "secret" not in json.dumps(witness)
    assert verify(witness).on_record == (
        "/turn/evidence/toolRequests/0/inputDigest",
        "/turn/evidence/toolResults/0/resultDigest",
        "/turn/evidence/toolResults/0/payloadBytes",
        "/turn/evidence/toolResults/1/error/errorMessageDigest",
        "/turn/schemaVerdicts/a",
    )


def test_a_changed_conclusion_is_named() -> None:
    witness = recorded(full()) | {"joinClosed": "yes"}
    (difference,) = verify(witness).differences
    assert (difference.where, difference.expected, difference.found) == ("/joinClosed", False, "yes")


def test_a_changed_row_changes_what_follows() -> None:
    witness = recorded(turn())
    witness["turn"]["evidence"]["toolUse"] = []
    found = verify(witness)
    where = {difference.where for difference in found.differences}
    assert {"/id", "/result", "/failureClasses", "/joinClosed", "/digests/joinSetDigest", "/findings"} <= where
    assert found.as_json()["holds"] is False
    assert found.as_json()["failureClasses"] == ["tool.join_incomplete", "tool.use_missing"]


def test_a_changed_verdict_of_a_schema_changes_what_follows() -> None:
    witness = recorded(full())
    witness["turn"]["schemaVerdicts"]["a"] = False
    assert "/failureClasses" in {difference.where for difference in verify(witness).differences}


@pytest.mark.parametrize("member", ["kind", "id", "result", "failureClasses", "digests", "findings", "mutationReady"])
def test_nothing_may_be_left_out(member: str) -> None:
    witness = recorded(full())
    del witness[member]
    assert [difference.where for difference in verify(witness).differences] == [f"/{member}"]


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("turn", None, "/turn"),
        ("turn.evidence", None, "/turn/evidence"),
        ("turn.evidence.toolUse.0.disposition", "eaten", "/turn/evidence/toolUse/0/disposition"),
        ("turn.evidence.toolResults.0.status", "success", "/turn/evidence/toolResults/0/status"),
        ("turn.evidence.toolRequests.0.surprise", 1, "/turn/evidence/toolRequests/0"),
        ("turn.evidence.callSpec.callId", "\ud800", "/turn"),
        ("turn.constraints.toolConstraints", [], "/turn/constraints/toolConstraints"),
        ("turn.schemaVerdicts", {"a": "yes"}, "/turn/schemaVerdicts"),
        ("turn.policyDocuments.nonsense", {}, "/turn/policyDocuments/nonsense"),
    ],
)
def test_rows_that_are_none(path: str, value: object, where: str) -> None:
    with pytest.raises(InvalidEvidence) as caught:
        verify(changed(recorded(full()), {path: value}))
    assert caught.value.path == where


def test_rows_that_contradict_one_another_or_are_out_of_order() -> None:
    witness = recorded(full())
    rows = witness["turn"]["evidence"]["toolRequests"]
    for swapped in (rows[::-1], [*rows, rows[0]], [*rows, {**rows[1], "toolName": "sed"}]):
        forged = copy.deepcopy(witness)
        forged["turn"]["evidence"]["toolRequests"] = swapped
        with pytest.raises(InvalidEvidence) as caught:
            verify(forged)
        assert caught.value.path.startswith("/turn/evidence/toolRequests")


def test_its_shape() -> None:
    witness = witness_of(judge(turn()))
    assert witness["kind"] == KIND
    assert witness["id"].startswith("jw1_")
    assert set(witness["turn"]) == {"evidence", "constraints", "policyDocuments", "schemaVerdicts"}


def grown(document: dict[str, Any]) -> Judgement:
    """Judged as a turn that was read step by step: it shares what stands beside it with other turns."""
    evidence = dict(document["evidence"])
    beside = {name: value for name, value in document.items() if name != "evidence"}
    return judge_turn(TurnBuilder.open(evidence.pop("callSpec"), beside).with_evidence(evidence).turn)


@pytest.mark.parametrize("name", VECTORS)
def test_it_is_written_in_its_canonical_form(name: str) -> None:
    document = VECTORS[name]["input"]
    for judgement in (judge(document), grown(document)):
        witness = witness_of(judgement)
        assert bytes(witness.raw_json) == canonical(dict(witness))
        assert witness.id == judgement.witness_id


def test_numbers_are_carried_wherever_they_stand() -> None:
    """An exponent has no canonical form: in a schema, a constraint or a document it becomes a text."""
    tiny = {"type": "number", "minimum": 1e-9}
    document = changed(turn("a"), {
        "evidence.callSpec.toolPolicy": {"allowedTools": [{"toolName": "grep", "inputSchema": tiny}]},
        "governanceConstraints": {"evalThresholds": {"score": 1e-9}},
        "policyDocuments.evalGatePolicy": {"thresholds": {"score": 1e-9}},
    })  # fmt: skip
    for judgement in (judge(document), grown(document)):
        written = bytes(witness_of(judgement).raw_json)
        assert written.count(b'"1e-09"') == 3
