from __future__ import annotations

import base64
import hashlib

from manglecp.harness.canonical_v1 import canonical
from manglecp.harness.classes import CLASSES, Finding, row_pointer, sort_findings
from tests.harness.evidence import judged, turn

USE = CLASSES["tool.use_missing"]
SCHEMA = CLASSES["tool.schema_invalid"]


def test_an_id_depends_on_class_place_and_turn() -> None:
    finding = Finding(USE, "toolResults/a", "words", "turn-1", "sha256:j")
    key = {
        "schema": 1,
        "class": "tool.use_missing",
        "lawRef": "HARNESS-TYPESTATE-4.5",
        "tokenPath": "toolResults/a",
        "context": {"callId": "turn-1", "joinSetDigest": "sha256:j"},
    }
    hashed = base64.b32hexencode(hashlib.sha256(canonical(key)).digest()).decode().lower().rstrip("=")
    assert finding.id == f"w1_{hashed}"
    assert Finding(USE, "toolResults/a", "other words", "turn-1", "sha256:j").id == finding.id
    assert Finding(USE, "toolResults/b", "words", "turn-1", "sha256:j").id != finding.id
    assert Finding(SCHEMA, "toolResults/a", "words", "turn-1", "sha256:j").id != finding.id
    assert Finding(USE, "toolResults/a", "words", "turn-2", "sha256:j").id != finding.id


def test_a_class_is_found_once_per_place() -> None:
    found = sort_findings(
        [Finding(USE, "b", "2"), Finding(SCHEMA, "z", "1"), Finding(USE, "b", "1"), Finding(USE, "a", "1")], "t", "j"
    )
    assert [(one.failure.name, one.where, one.message) for one in found] == [
        ("tool.schema_invalid", "z", "1"),
        ("tool.use_missing", "a", "1"),
        ("tool.use_missing", "b", "1; 2"),
    ]
    assert {(one.call_id, one.join_digest) for one in found} == {("t", "j")}


def test_places_are_pointers() -> None:
    assert row_pointer("toolUse", "g1") == "toolUse/g1"
    assert row_pointer("artifacts", "a/b~c") == "artifacts/a~1b~0c"


def test_a_finding_says_what_to_do() -> None:
    (finding, _) = judged(turn(), {"evidence.toolUse": []}).findings[::-1]
    assert finding.as_json() == {
        "id": finding.id,
        "class": "tool.use_missing",
        "lawRef": "HARNESS-TYPESTATE-4.5",
        "where": "toolResults/a",
        "message": "the result has no use row",
        "remedy": USE.remedy,
        "retry": "evidence",
        "blocks": "JoinClosed",
    }
