from __future__ import annotations

from typing import Any

import pytest

from tests.harness.checks.cases import accepts, raises
from tests.harness.evidence import MUTATION, classes, turn

ARTIFACT = "handoff.required_artifact_missing"
TARGET = "handoff.target_not_allowed"
RETURN = "handoff.return_path_missing"

PACKET = {"target": "soil", "requiredArtifactRefs": ["brief"], "returnPathRef": "home", "intent": "probe"}
BRIEF = {"ref": "brief", "digest": "sha256:brief"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        accepts("no contract"),
        raises("target not allowed", TARGET, handoffConstraints={"allowedTargets": ["water"]}),
        accepts("target allowed", handoffConstraints={"allowedTargets": ["water", "soil"]}),
        accepts("upstream's empty list allows all", handoffConstraints={"allowedTargets": []}),
        raises("target not allowed for the role", TARGET, call__orchestrationRole="specialist",
               handoffConstraints={"allowedTargetsByRole": {"specialist": ["water"], "orchestrator": ["soil"]}}),
        raises("role without targets", TARGET, call__orchestrationRole="specialist",
               handoffConstraints={"allowedTargetsByRole": {"orchestrator": ["soil"]}}),
        raises("no role", TARGET, handoffConstraints={"allowedTargetsByRole": {"orchestrator": ["soil"]}}),
        accepts("target of the role", call__orchestrationRole="orchestrator",
                handoffConstraints={"allowedTargetsByRole": {"Orchestrator": ["soil"]}}),
        raises("another contract expected", TARGET, handoffConstraints={"expectedContractDigest": "c"}),
        accepts("contract expected", call__handoffContractDigest="c",
                handoffConstraints={"expectedContractDigest": "c"}),
        raises("no way back", RETURN, evidence__handoff__returnPathRef=" ",
               handoffConstraints={"requireReturnPath": True}),
        accepts("a way back", handoffConstraints={"requireReturnPath": True}),
        accepts("no way back needed", evidence__handoff__returnPathRef=None),
        raises("not carried", ARTIFACT, handoffConstraints={"requiredArtifactRefs": ["brief", "map"]}),
        accepts("carried", handoffConstraints={"requiredArtifactRefs": ["brief"]}),
        raises("not there", ARTIFACT, handoffConstraints={"requireArtifactExistence": True}),
        raises("gone", ARTIFACT, evidence__artifacts=[{**BRIEF, "exists": False}],
               handoffConstraints={"requireArtifactExistence": True}),
        raises("without digest", ARTIFACT, evidence__artifacts=[{"ref": "brief"}],
               handoffConstraints={"requireArtifactExistence": True}),
        accepts("there", evidence__artifacts=[BRIEF], handoffConstraints={"requireArtifactExistence": True}),
        raises("field empty", ARTIFACT, handoffConstraints={"requiredPacketFields": ["intent", "constraints"]}),
        raises("field not known", ARTIFACT, handoffConstraints={"requiredPacketFields": ["colour"]}),
        accepts("fields full", evidence__handoff__constraints=["read only"], evidence__handoff__packetDigest="d",
                handoffConstraints={"requiredPacketFields": [
                    "target", "requiredArtifactRefs", "returnPathRef", "intent", "constraints", "packetDigest"]}),
    ],
)  # fmt: skip
@pytest.mark.req("HARN-08", "HARN-39", "HARN-51", "HARN-72", "SLICE-17")
def test_a_packet(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(handoff=PACKET), changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        raises("artifacts demanded", ARTIFACT, handoffConstraints={"requiredArtifactRefs": ["brief"]}),
        raises("fields demanded", ARTIFACT, handoffConstraints={"requiredPacketFields": ["intent"]}),
        raises("targets demanded", TARGET, handoffConstraints={"allowedTargets": ["soil"]}),
        raises("targets of the role demanded", TARGET, call__orchestrationRole="specialist",
               handoffConstraints={"allowedTargetsByRole": {"specialist": ["soil"]}}),
        accepts("targets of another role", call__orchestrationRole="specialist",
                handoffConstraints={"allowedTargetsByRole": {"orchestrator": ["soil"]}}),
        raises("return path demanded", RETURN, handoffConstraints={"requireReturnPath": True}),
        accepts("existence of nothing", handoffConstraints={"requireArtifactExistence": True}),
        accepts("nothing demanded", handoffConstraints={"requiredArtifactRefs": [], "allowedTargets": []}),
    ],
)  # fmt: skip
def test_no_packet(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(), changes) == expected


@pytest.mark.req("FAIL-37", "HARN-77")
def test_a_transfer_needs_a_packet() -> None:
    transfer = {**MUTATION, "evidence.mutation.kind": "transfer"}
    assert classes(turn(), transfer) == {TARGET}
    assert classes(turn(handoff=PACKET), transfer) == set()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        accepts("nothing listed", evidence__continuity={"mode": "descent", "handoffRef": "h"}),
        raises("no handoff named", ARTIFACT, evidence__continuity={"mode": "descent"}),
        raises("artifact not there", ARTIFACT,
               evidence__continuity={"mode": "descent", "handoffRef": "h", "artifactRefs": ["brief"]}),
        raises("artifact without digest", ARTIFACT, evidence__artifacts=[{"ref": "brief"}],
               evidence__continuity={"mode": "descent", "handoffRef": "h", "artifactRefs": ["brief"]}),
        raises("artifact recorded as absent", ARTIFACT, evidence__artifacts=[{**BRIEF, "exists": False}],
               evidence__continuity={"mode": "descent", "handoffRef": "h", "artifactRefs": ["brief"]}),
        accepts("artifact there", evidence__artifacts=[BRIEF],
                evidence__continuity={"mode": "descent", "handoffRef": "h", "artifactRefs": ["brief"]}),
        accepts("fresh", evidence__continuity={"mode": "fresh", "artifactRefs": ["brief"]}),
    ],
)  # fmt: skip
@pytest.mark.req("SLICE-12")
def test_descent(changes: dict[str, Any], expected: set[str]) -> None:
    assert classes(turn(), changes) == expected
