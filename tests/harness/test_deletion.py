"""From a rejected turn, deleting what no finding points at never gives an acceptance."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import pytest

from manglecp.harness.classes import row_pointer
from manglecp.harness.judgement import judge
from manglecp.harness.readers import InvalidEvidence
from tests.harness.evidence import MUTATION, PROFILE, VECTORS, changed, turn

IDS: Final = {
    "toolRequests": "toolCallId",
    "toolResults": "toolCallId",
    "toolUse": "toolCallId",
    "toolRender": "toolCallId",
    "reminderQueue": "queueId",
    "stateViews": "viewId",
    "guardrailDecisions": "sequence",
    "artifacts": "ref",
    "contextAccess": "ref",
    "branchJoins": "branchId",
    "traceExports": "sink",
}
OBJECTS: Final = ("mutation", "handoff", "continuity", "compaction", "decomposition")
HANDOFF: Final = {"target": "t", "requiredArtifactRefs": ["artifact://a"]}
MADE: Final[dict[str, dict[str, Any]]] = {
    "one stage of three": {
        "governanceProfile": PROFILE,
        "evidence.guardrailDecisions": [{"stage": "pre_flight", "guardrailId": "g", "sequence": 1}],
    },
    "an artifact that is gone": {
        "evidence.handoff": HANDOFF,
        "handoffConstraints": {"requireArtifactExistence": True},
    },
    "resumed from nothing": {
        "evidence.continuity": {"mode": "descent", "handoffRef": "h", "artifactRefs": ["artifact://a"]}
    },
    "promotion without gates": {**MUTATION, "evidence.mutation.kind": "governance_policy"},
    "automated promotion": {
        **MUTATION,
        "evidence.mutation.kind": "governance_policy",
        "evidence.mutation.automated": True,
    },
    "transfer without a packet": {**MUTATION, "evidence.mutation.kind": "transfer"},
    "consumed by nobody": {**MUTATION, "evidence.toolUse.0.summaryRef": None},
}
DOCUMENTS: Final = {name: case["input"] for name, case in VECTORS.items() if case["expect"]["result"] == "rejected"} | {
    name: changed(turn(), changes) for name, changes in MADE.items()
}


def without_one(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every document with one row, or one object, less; and the place of what was deleted."""
    for kind, member in IDS.items():
        rows = document["evidence"].get(kind) or []
        for number, row in enumerate(rows):
            smaller = copy.deepcopy(document)
            del smaller["evidence"][kind][number]
            yield row_pointer(kind, str(row.get(member, "")).strip()), smaller
    for name in OBJECTS:
        if document["evidence"].get(name) is not None:
            smaller = copy.deepcopy(document)
            del smaller["evidence"][name]
            yield name, smaller


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_no_finding_points_at_does_not_matter(name: str) -> None:
    document = DOCUMENTS[name]
    judgement = judge(document)
    assert judgement.result == "rejected"
    pointed = {finding.where for finding in judgement.findings}
    for deleted, smaller in without_one(document):
        if any(where == deleted or where.startswith(f"{deleted}/") for where in pointed):
            continue
        try:
            assert judge(smaller).result == "rejected", (deleted, pointed)
        except InvalidEvidence:
            continue
