"""What holds of every turn: of the vectors, of turns put together from them at random, and of nonsense."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.harness.classes import row_pointer
from manglecp.harness.judgement import Judgement, judge
from manglecp.harness.readers import InvalidEvidence
from manglecp.harness.witness import verify, witness_of
from tests.harness.evidence import VECTORS, turn

IDS = {
    "toolRequests": "toolCallId",
    "toolResults": "toolCallId",
    "toolUse": "toolCallId",
    "toolRender": "toolCallId",
    "reminderQueue": "queueId",
    "stateViews": "viewId",
    "branchJoins": "branchId",
    "guardrailDecisions": "sequence",
    "artifacts": "ref",
    "contextAccess": "ref",
    "traceExports": "sink",
}
names = st.sampled_from(sorted(VECTORS))


def rows(document: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for kind in IDS:
        for index in range(len(document["evidence"].get(kind) or ())):
            yield kind, index


def without(document: dict[str, Any], kind: str, index: int) -> dict[str, Any]:
    result = copy.deepcopy(document)
    del result["evidence"][kind][index]
    return result


@given(names, st.randoms(use_true_random=False))
@pytest.mark.req("HARN-47", "HARN-67")
def test_order_and_repetition_of_rows_do_not_count(name: str, chance: random.Random) -> None:
    document = copy.deepcopy(VECTORS[name]["input"])
    found = judge(document)
    for kind in IDS:
        listed = document["evidence"].get(kind)
        if listed:
            listed += chance.choices(listed, k=chance.randrange(3))
            chance.shuffle(listed)
    again = judge(document)
    assert again.as_json() == found.as_json()
    assert again.normalized == found.normalized


@given(names, st.data())
def test_a_row_that_says_something_else_is_a_contradiction(name: str, data: st.DataObject) -> None:
    document = copy.deepcopy(VECTORS[name]["input"])
    kinds = ("toolRequests", "toolResults", "toolUse", "toolRender", "reminderQueue", "stateViews", "branchJoins")
    places = [(kind, index) for kind, index in rows(document) if kind in kinds]
    if not places:
        return
    kind, index = data.draw(st.sampled_from(places))
    row = document["evidence"][kind][index]
    other = {
        "toolRequests": {"toolName": "another"},
        "toolResults": {"resultDigest": "sha256:another"},
        "toolUse": {"resultDigest": "sha256:another"},
        "toolRender": {"reminderRenderDigest": "sha256:another"},
        "reminderQueue": {"reducedDigest": "sha256:another"},
        "stateViews": {"viewDigest": "sha256:another"},
        "branchJoins": {"joinDigest": "sha256:another"},
    }[kind]
    if row.get("status") in ("running", "streaming", "pending"):
        return
    document["evidence"][kind].insert(data.draw(st.integers(0, len(document["evidence"][kind]))), {**row, **other})
    with pytest.raises(InvalidEvidence) as caught:
        judge(document)
    assert caught.value.path == f"/evidence/{kind}"


def owed(document: dict[str, Any], found: Judgement) -> Iterator[tuple[str, int]]:
    """The rows of an accepted turn that nothing can do without."""
    evidence, read = document["evidence"], found.turn
    for kind, index in rows(document):
        row = evidence[kind][index]
        name = str(row.get(IDS[kind])).strip()
        alone = [str(other.get(IDS[kind])).strip() for other in evidence[kind]].count(name) == 1
        if (
            (kind in ("toolResults", "toolUse") and alone)
            or (kind == "toolRender" and alone and read.needs_context and name in read.results)
            or (kind in ("reminderQueue", "stateViews") and len(evidence[kind]) == 1 and read.needs_context)
        ):
            yield kind, index
        if kind == "guardrailDecisions" and (
            read.constraints.governance_profile is not None and read.constraints.governance_profile.claimed
        ):
            stages = [other["stage"] for other in evidence[kind]]
            if row["stage"] in read.terms.required_stages and stages.count(row["stage"]) == 1:
                yield kind, index


@pytest.mark.parametrize("name", [name for name, vector in VECTORS.items() if vector["expect"]["result"] == "accepted"])
def test_an_accepted_turn_cannot_do_without_what_it_owes(name: str) -> None:
    document = VECTORS[name]["input"]
    for kind, index in owed(document, judge(document)):
        assert judge(without(document, kind, index)).result == "rejected", (kind, index)


def pointed_at(found: Judgement) -> set[str]:
    return {finding.where for finding in found.findings}


def check_deletions(document: dict[str, Any]) -> None:
    found = judge(document)
    if found.result == "accepted":
        return
    where = pointed_at(found)
    for kind, index in rows(document):
        row = document["evidence"][kind][index]
        name = row.get(IDS[kind])
        if row_pointer(kind, "" if name is None else str(name).strip()) not in where:
            assert judge(without(document, kind, index)).result == "rejected", (kind, index, sorted(where))


@pytest.mark.parametrize("name", [name for name, vector in VECTORS.items() if vector["expect"]["result"] == "rejected"])
def test_deleting_what_nobody_complains_about_mends_nothing(name: str) -> None:
    check_deletions(VECTORS[name]["input"])


@st.composite
def mixtures(draw: st.DrawFn) -> dict[str, Any]:
    """A vector with parts of others: their constraints, policies, rows and single members."""
    document: dict[str, Any] = copy.deepcopy(VECTORS[draw(names)]["input"])
    for _ in range(draw(st.integers(1, 4))):
        other = copy.deepcopy(VECTORS[draw(names)]["input"])
        level = draw(st.sampled_from(["top", "evidence", "callSpec", "row"]))
        if level == "top":
            document |= {key: value for key, value in other.items() if key != "evidence" and draw(st.booleans())}
        elif level == "evidence":
            kept = {key: value for key, value in other["evidence"].items() if draw(st.booleans())}
            document["evidence"] |= {key: value for key, value in kept.items() if key != "callSpec"}
        elif level == "callSpec":
            document["evidence"]["callSpec"] |= {
                key: value for key, value in other["evidence"]["callSpec"].items() if draw(st.booleans())
            }
        else:
            kind = draw(st.sampled_from(sorted(IDS)))
            theirs, ours = other["evidence"].get(kind), document["evidence"].get(kind)
            if theirs and ours:
                row = draw(st.sampled_from(theirs))
                index = draw(st.integers(0, len(ours) - 1))
                ours[index] |= {key: value for key, value in row.items() if key != IDS[kind] and draw(st.booleans())}
    return document


@given(mixtures())
def test_mixtures_behave(document: dict[str, Any]) -> None:
    """Whatever is put together: a verdict that its witness repeats, and that no innocent deletion mends."""
    found = verdict_or_path(document)
    if isinstance(found, str):
        assert found.startswith("/")
        return
    checked = verify(witness_of(found))
    assert checked.holds, checked.differences
    assert checked.judgement.result == found.result
    check_deletions(document)


def verdict_or_path(document: dict[str, Any]) -> Judgement | str:
    """There is nothing else that judging may end in."""
    try:
        return judge(document)
    except InvalidEvidence as bad:
        return bad.path


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["a", "ok", "consumed"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in entries:
        yield from places(part, (*path, step))


@given(names, st.data())
def test_nonsense_gets_a_verdict_or_a_path(name: str, data: st.DataObject) -> None:
    document = copy.deepcopy(VECTORS[name]["input"])
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from([path for path in places(document) if path] or [("evidence",)]))
        target: Any = document
        for step in way:
            target = target[step]
        if data.draw(st.booleans()):
            target[last] = data.draw(json_values)
        elif isinstance(target, list) or last in target:
            del target[last]
    check_verdict_or_path(document)


@given(st.dictionaries(st.sampled_from(["evidence", "toolConstraints", "policyDocuments"]), json_values))
def test_pure_nonsense_gets_a_path(document: dict[str, Any]) -> None:
    check_verdict_or_path(document)


@given(st.sampled_from(sorted(turn()["evidence"])), json_values)
def test_nonsense_in_place_of_a_member_gets_a_verdict_or_a_path(member: str, value: Any) -> None:
    document = turn()
    document["evidence"][member] = value
    check_verdict_or_path(document)


def check_verdict_or_path(document: dict[str, Any]) -> None:
    found = verdict_or_path(document)
    assert found.startswith("/") if isinstance(found, str) else verify(witness_of(found)).holds
