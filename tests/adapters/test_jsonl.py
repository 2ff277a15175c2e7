from __future__ import annotations

import json

import pytest

from manglecp.adapters import LogError, records as log_records
from tests.adapters.checking import classes, lines, log, turns, verdicts

NEUTRAL = log("neutral.jsonl")
END = {"protocolState": {"stopReason": "end_turn"}}


def test_documents_and_rows() -> None:
    assert verdicts(NEUTRAL, "jsonl") == [(), (), ("tool.join_incomplete", "tool.result_missing")]


def test_a_document_is_passed_on_as_it_is() -> None:
    document = json.loads(NEUTRAL.splitlines()[0])
    (found,) = turns(lines([document]), "jsonl")
    assert found == {**document, "turn": {"number": 1, "line": 1}}


def test_what_was_ingested_can_be_read_again() -> None:
    documents = turns(log("anthropic-exchanges.jsonl"))
    again = turns(lines(documents), "jsonl")
    assert [one["evidence"] for one in again] == [one["evidence"] for one in documents]
    assert [classes(one) for one in again] == [classes(one) for one in documents]


def test_rows_of_a_turn_add_up() -> None:
    second, third = turns(NEUTRAL, "jsonl")[1:]
    assert second["turn"] == {"number": 2, "line": 2}
    assert second["evidence"]["callSpec"]["callId"] == "t-1"
    assert second["evidence"]["callSpec"]["modelRef"] == "atlas-coder@2026-02-11"
    assert len(second["evidence"]["toolResults"]) == 1
    assert third["evidence"]["callSpec"]["modelRef"] == "unrecorded"


def test_strict_leaves_out_rows_that_say_that_they_are_derived() -> None:
    record = {"turn": 1, "toolUse": [{"toolCallId": "a", "derived": True}, {"toolCallId": "b"}], **END}
    (document,) = turns(lines([record]), "jsonl", strict=True)
    assert document["evidence"]["toolUse"] == [{"toolCallId": "b"}]


def test_own_digests_replace_those_of_the_policy_and_its_documents() -> None:
    own = {"turn": 1, "callSpec": {"stateViewPolicyDigest": "sha256:own"}, **END}
    (document,) = turns(lines([own]), "jsonl")
    assert classes(document) == ()
    assert "policyDocuments" not in document
    assert "policyDocuments" in turns(lines([{"turn": 1, **END}]), "jsonl")[0]


def test_turns_are_given_in_the_order_in_which_they_began() -> None:
    records = [{"turn": name, "toolRequests": {"toolCallId": name, "toolName": "f"}} for name in "abc"]
    assert [one["evidence"]["callSpec"]["callId"] for one in turns(lines(records), "jsonl")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("records", "line", "path"),
    [
        ([{"turn": ""}], 1, "$.turn"),
        ([{"turn": 1, "toolResult": {}}], 1, "$.toolResult"),
        ([{"turn": 1, "callSpec": []}], 1, "$.callSpec"),
        ([{"turn": 1, **END}, {"turn": 1, "protocolState": {}}], 2, "$.protocolState"),
        ([{"turn": "a"}, {"turn": "b"}, {"turn": "a"}], 3, "$.turn"),
        ([[]], 1, "$"),
    ],
)
def test_what_cannot_be_read_says_where(
    records: list[object], line: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_records, "MAX_OPEN_TURNS", 1)
    with pytest.raises(LogError) as refused:
        turns(lines(records), "jsonl")
    assert (refused.value.line, refused.value.path) == (line, path)
