"""A kept turn reaches MutationReady exactly if it is judged to, by way of every state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from manglecp.harness.classes import CLASSES, TurnState
from manglecp.harness.judgement import judge
from manglecp.harness.readers import InvalidEvidence
from manglecp.harness.states import TurnBlocked, replay_turn
from tests.issues.turns import POLICY, turn

VECTORS = sorted((Path(__file__).parents[1] / "conformance" / "harness").glob("*.json"))


@pytest.mark.req("FAIL-01", "HARN-02")
@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_only_what_is_ready_gets_a_right(path: Path) -> None:
    vector = json.loads(path.read_text(encoding="utf-8"))
    if vector["expect"]["mutation_ready"]:
        ready = replay_turn(vector["input"])
        assert ready.judgement.as_json() == judge(vector["input"]).as_json()
        return
    with pytest.raises(TurnBlocked) as caught:
        replay_turn(vector["input"])
    found = {finding.failure.name for finding in caught.value.findings}
    assert found <= set(vector["expect"]["failure_classes"])
    assert bool(found) == bool(vector["expect"]["failure_classes"])
    blocked = {CLASSES[name].blocks for name in vector["expect"]["failure_classes"]}
    assert caught.value.state is (
        TurnState.MUTATION_READY if vector["expect"]["join_closed"] else max(min(blocked), caught.value.state)
    )


def test_the_policy_in_force_replaces_what_the_turn_says_and_nothing_else() -> None:
    document = turn("issue.close", "issue://a")
    document["mutationConstraints"]["requiredCapabilityClaims"] = ["capabilities.rare"]
    with pytest.raises(TurnBlocked, match=r"mutation\.capability_claim_missing$"):
        replay_turn(document, POLICY)
    with pytest.raises(TurnBlocked, match=r"mutation\.policy_digest_mismatch$"):
        replay_turn(turn("issue.close", "issue://a"), "sha256:other")
    del document["mutationConstraints"]
    with pytest.raises(TurnBlocked, match=r"mutation\.policy_digest_mismatch$"):
        replay_turn(document)
    assert replay_turn(document, POLICY).judgement.mutation_ready


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (None, ""),
        ([], ""),
        ({}, "/evidence"),
        ({"evidence": {}}, "/evidence"),
        ({"evidence": {"callSpec": None, "protocolState": {}}}, "/evidence/callSpec"),
    ],
)
def test_what_is_no_evidence(document: Any, path: str) -> None:
    with pytest.raises(InvalidEvidence) as caught:
        replay_turn(document)
    assert caught.value.path.startswith(path)


@pytest.mark.parametrize("name", ["toolRequests", "toolResults", "toolUse", "mutation", "toolRender", "sessionRefs"])
def test_null_is_the_same_as_absent(name: str) -> None:
    without, null = turn("issue.close", "issue://a", call_id="t"), turn("issue.close", "issue://a", call_id="t")
    del without["evidence"][name]
    null["evidence"][name] = None
    findings = []
    for document in (without, null):
        with pytest.raises(TurnBlocked) as caught:
            replay_turn(document)
        findings.append((caught.value.state, caught.value.findings))
    assert findings[0] == findings[1]
