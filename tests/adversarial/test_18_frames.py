"""Case 18: frames that come twice, late, out of order, interleaved, for nobody, or twice with different answers."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest

from manglecp.harness import InvalidEvidence, judge
from tests.harness.evidence import classes, judged, turn

CALLS = ("a", "b", "c")
KINDS = ("toolRequests", "toolResults", "toolUse", "toolRender")


@pytest.mark.parametrize("order", list(itertools.permutations(CALLS))[1:])
def test_order_and_repetition_of_frames_change_nothing(order: tuple[str, ...]) -> None:
    document = turn(*CALLS)
    wanted = judge(document)
    for kind in KINDS:
        rows = {row["toolCallId"]: row for row in document["evidence"][kind]}
        document["evidence"][kind] = [rows[name] for name in order] + [rows[order[0]]]
        assert judge(document).witness_id == wanted.witness_id
        assert judge(document).result == "accepted"


def test_an_answer_for_nobody_is_an_orphan() -> None:
    stray = {"toolCallId": "zz", "status": "ok", "resultDigest": "sha256:z"}
    found = classes(turn(*CALLS), {"evidence.toolResults.3": stray})
    assert {"tool.result_orphan", "tool.join_incomplete", "tool.use_missing"} <= found
    assert not judged(turn(*CALLS), {"evidence.toolResults.3": stray}).join_closed


@pytest.mark.parametrize("name", CALLS)
def test_a_frame_that_never_came_is_missing(name: str) -> None:
    document = turn(*CALLS)
    document["evidence"]["toolResults"] = [r for r in document["evidence"]["toolResults"] if r["toolCallId"] != name]
    judgement = judge(document)
    assert {"tool.result_missing", "tool.use_without_result"} <= set(judgement.failure_classes)
    assert not judgement.join_closed


def test_two_answers_for_one_call_are_no_evidence() -> None:
    other = {"toolCallId": "a", "status": "ok", "resultDigest": "sha256:another"}
    with pytest.raises(InvalidEvidence) as caught:
        judged(turn(*CALLS), {"evidence.toolResults.3": other})
    assert (caught.value.path, caught.value.message) == ("/evidence/toolResults", "another row under 'a' differs")


def test_a_late_answer_replaces_what_was_under_way_and_nothing_else() -> None:
    running = {"toolCallId": "a", "status": "streaming"}
    assert classes(turn(*CALLS), {"evidence.toolResults.3": running}) == set(), "the terminal row counts"
    document = turn(*CALLS)
    document["evidence"]["toolResults"][0] = running
    assert {"tool.result_missing", "tool.use_unknown_result"} <= set(judge(document).failure_classes)


def test_no_shuffle_of_damaged_frames_closes_a_turn() -> None:
    """Frames dropped, doubled under other ids or answered differently, in any order."""
    rnd = Random(18)
    closed = 0
    for _ in range(500):
        document: dict[str, Any] = turn(*CALLS)
        damage = rnd.choice(("drop", "rename", "answer"))
        row = rnd.choice(document["evidence"]["toolResults"])
        match damage:
            case "drop":
                document["evidence"]["toolResults"].remove(row)
            case "rename":
                row["toolCallId"] = "zz"
            case _:
                document["evidence"]["toolResults"].append({**row, "resultDigest": "sha256:another"})
        for kind in KINDS:
            rnd.shuffle(document["evidence"][kind])
        try:
            closed += judge(document).join_closed
        except InvalidEvidence:
            assert damage == "answer"
    assert closed == 0
