"""Packets, and what keeps them from being handed over."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.obstacles import artifact_rows, handoff_ref, obstacles_to_hand_over, packet, packet_digest

CONTRACT = {
    "allowedTargets": ["specialist.soil", "orchestrator.main"],
    "allowedTargetsByRole": {"orchestrator": ["specialist.soil"], "specialist": ["orchestrator.main"]},
    "requiredArtifactRefs": ["artifact://brief"],
    "requireArtifactExistence": True,
    "requiredPacketFields": ["intent", "constraints"],
    "requireReturnPath": True,
}
STORE = {"artifact://brief": "sha256:11"}
WHOLE = packet(
    "specialist.soil",
    artifact_refs=["artifact://brief"],
    return_path_ref="return://main",
    intent="probe the beds",
    constraints=["read only"],
)


def obstacles(row: dict[str, Any] | None, role: str | None = "orchestrator", store: Any = STORE) -> list[str]:
    return [str(one) for one in obstacles_to_hand_over(row, CONTRACT, role=role, lookup=store.get)]


@pytest.mark.req("HARN-08", "HARN-72")
def test_a_whole_packet() -> None:
    assert obstacles(WHOLE) == []
    assert artifact_rows(WHOLE, STORE.get) == [{"ref": "artifact://brief", "exists": True, "digest": "sha256:11"}]


@pytest.mark.req("HARN-08")
def test_the_digest_is_that_of_everything_else() -> None:
    rest = {name: value for name, value in WHOLE.items() if name != "packetDigest"}
    assert WHOLE["packetDigest"] == packet_digest(WHOLE) == digest(rest)
    assert handoff_ref(WHOLE) == f"handoff://{WHOLE['packetDigest']}"
    assert packet("a", artifact_refs=["y", " x", "x"]) == packet(" a ", artifact_refs=["x", "y"])
    assert packet("a", intent="b")["packetDigest"] != packet("a", intent="c")["packetDigest"]


@pytest.mark.req("SLICE-17", "FAIL-36")
def test_what_is_missing() -> None:
    bare = packet("specialist.soil", return_path_ref="return://main")
    assert obstacles(bare) == [
        "handoff.required_artifact_missing: the packet does not carry artifact://brief",
        "handoff.required_artifact_missing: the packet has no intent",
        "handoff.required_artifact_missing: the packet has no constraints",
    ]
    assert obstacles(WHOLE, store={}) == [
        "handoff.required_artifact_missing: artifact://brief is carried and does not exist"
    ]
    assert artifact_rows(WHOLE, lambda _: None) == [{"ref": "artifact://brief", "exists": False}]


@pytest.mark.req("FAIL-37")
def test_targets() -> None:
    elsewhere = {**WHOLE, "target": "specialist.water"}
    assert obstacles(elsewhere) == [
        "handoff.target_not_allowed: specialist.water is not an allowed target",
        "handoff.target_not_allowed: specialist.water is not an allowed target of orchestrator",
    ]
    assert obstacles(WHOLE, role="specialist") == [
        "handoff.target_not_allowed: specialist.soil is not an allowed target of specialist"
    ]
    assert obstacles(WHOLE, role=None) == [
        "handoff.target_not_allowed: specialist.soil is not an allowed target of nobody"
    ]


@pytest.mark.req("FAIL-38")
def test_the_way_back() -> None:
    assert obstacles({**WHOLE, "returnPathRef": " "}) == [
        "handoff.return_path_missing: the contract demands a way back"
    ]


def test_no_packet() -> None:
    assert obstacles(None) == [
        "handoff.required_artifact_missing: the packet does not carry artifact://brief",
        "handoff.required_artifact_missing: the packet has no intent",
        "handoff.required_artifact_missing: the packet has no constraints",
        "handoff.target_not_allowed: the contract names targets and there is no packet",
        "handoff.return_path_missing: the contract demands a way back",
    ]
    assert obstacles_to_hand_over(None, {}, role=None, lookup=STORE.get) == ()
