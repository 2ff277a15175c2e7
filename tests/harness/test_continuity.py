"""Going on by descent or by compaction."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.harness.obstacles import obstacles_to_compact, obstacles_to_resume

POLICY = {"enabled": True, "requiredCarryForwardRefs": ["goal", "open-issues"]}
DIGEST = "sha256:22"
SOUND = {
    "invoked": True,
    "policyDigest": DIGEST,
    "summaryDigest": "sha256:33",
    "continuityRef": "continuity://1",
    "carryForwardRefs": ["goal", "open-issues"],
}


def compacting(policy: Any = POLICY, digest: str | None = DIGEST, **members: Any) -> list[str]:
    row = {name: value for name, value in {**SOUND, **members}.items() if value is not None}
    found = obstacles_to_compact(row, policy, policy_digest=digest, requested=["c1", "c2"])
    assert {one.failure.name for one in found} <= {"runtime.compaction_state_invalid"}
    return [one.reason for one in found]


@pytest.mark.req("HARN-27", "FAIL-20", "SLICE-12")
def test_compaction() -> None:
    assert compacting() == []
    assert compacting(invoked=False, summaryDigest=None) == []
    assert compacting(invoked=None) == []
    assert compacting(digest=None) == ["the call names no compaction policy"]
    assert compacting(policyDigest="sha256:44") == ["the context was compacted under another policy"]
    assert compacting(policy={"enabled": False}) == ["the policy does not allow compaction"]
    assert compacting(carryForwardRefs=["open-issues"]) == ["goal was not carried forward"]
    assert compacting(summaryDigest=" ", continuityRef=None) == ["summaryDigest is missing", "continuityRef is missing"]
    assert compacting(droppedToolCallIds=["c2", "c9"]) == ["the call c2 was requested and dropped"]
    assert compacting(policy=None) == []


def resuming(continuity: dict[str, Any], compaction: dict[str, Any] | None = None) -> list[str]:
    found = obstacles_to_resume(continuity, compaction, lookup={"artifact://brief": "sha256:11"}.get)
    return [str(one) for one in found]


@pytest.mark.req("SLICE-12", "HARN-05")
def test_resuming() -> None:
    assert resuming({"mode": "fresh"}) == resuming({}) == []
    assert resuming({"mode": "compaction"}, SOUND) == []
    lost = ["runtime.compaction_state_invalid: the turn resumes from a compaction that there is no record of"]
    assert resuming({"mode": "compaction"}) == resuming({"mode": "compaction"}, {"invoked": False}) == lost
    assert resuming({"mode": "descent", "handoffRef": "handoff://1", "artifactRefs": ["artifact://brief"]}) == []
    assert resuming({"mode": "descent", "artifactRefs": ["artifact://gone"]}) == [
        "handoff.required_artifact_missing: a descent resumes from a handoff, and none is named",
        "handoff.required_artifact_missing: artifact://gone is not there to resume from",
    ]
