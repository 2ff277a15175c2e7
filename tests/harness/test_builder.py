"""A turn that is read as it grows is the turn that is read as a whole; the plain reading is the oracle."""

from __future__ import annotations

import copy
import random
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.classes import TurnState
from manglecp.harness.judgement import find_blocking, judge, judge_turn
from manglecp.harness.readers import InvalidEvidence
from manglecp.harness.states import CallSpec, TurnBlocked
from manglecp.harness.turn import TurnBuilder
from tests.harness.evidence import VECTORS, changed, open_findings, turn

names = st.sampled_from(sorted(VECTORS))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=3), some, max_size=3),
    max_leaves=5,
)
NAN: Final = float("nan")


def split(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Call spec, evidence without it, and what stands beside."""
    evidence = dict(document["evidence"])
    return evidence.pop("callSpec"), evidence, {name: value for name, value in document.items() if name != "evidence"}


def pieces(evidence: dict[str, Any], chance: random.Random) -> list[dict[str, Any]]:
    """The same evidence, in the course of several steps."""
    found: list[dict[str, Any]] = [{} for _ in range(chance.randint(1, 5))]
    for name, value in evidence.items():
        if isinstance(value, list):
            for row in value:  # rows of one list keep their order
                chance.choice(found).setdefault(name, []).append(row)
            found[0].setdefault(name, [])  # an empty list says something, too
        else:
            chance.choice(found)[name] = value
    return found


@given(names, st.randoms(use_true_random=False))
def test_every_vector_grows_to_what_it_is(name: str, chance: random.Random) -> None:
    document = VECTORS[name]["input"]
    spec, evidence, beside = split(document)
    builder = TurnBuilder.open(spec, beside)
    so_far: dict[str, Any] = {"callSpec": spec}
    for piece in pieces(evidence, chance):
        builder = builder.with_evidence(piece)
        for member, value in piece.items():
            so_far[member] = [*so_far.get(member, []), *value] if isinstance(value, list) else value
        state = chance.choice(list(TurnState))
        assert find_blocking(builder.turn, state) == open_findings({**beside, "evidence": so_far}, state)
    found = judge_turn(builder.turn)
    assert found.as_json() == judge(document).as_json()
    assert found.normalized == judge(document).normalized


def test_a_result_says_something_about_a_request_that_was_judged() -> None:
    """The edge of a result names the caller of its call."""
    spec, _, beside = split(changed(turn(), {"toolConstraints.allowedCallers": {"read": ["direct"]}}))
    requested = TurnBuilder.open(spec, beside).with_evidence(
        {"toolRequests": [{"toolCallId": "c9", "toolName": "read"}]}
    )
    assert not find_blocking(requested.turn, TurnState.TOOL_REQUESTS)
    edge = {"callerKind": "code_execution", "parentToolCallId": "c1"}
    result = {"toolCallId": "c9", "status": "ok", "resultDigest": digest("r"), "callerEdge": edge}
    after = requested.with_evidence({"toolResults": [result]})
    assert [one.failure.name for one in find_blocking(after.turn, TurnState.TOOL_REQUESTS)] == [
        "tool.caller_not_allowed"
    ]


def test_a_request_comes_again_with_arguments_that_do_not_fit() -> None:
    """It is no other request, and now there is something to say about it."""
    schema = {"type": "object", "required": ["path"]}
    pinned = {"evidence.callSpec.toolPolicy": {"allowedTools": [{"toolName": "read", "inputSchema": schema}]}}
    spec, _, beside = split(changed(turn(), pinned))
    row = {"toolCallId": "c9", "toolName": "read", "inputDigest": digest({})}
    before = TurnBuilder.open(spec, beside).with_evidence({"toolRequests": [row]})
    assert not find_blocking(before.turn, TurnState.TOOL_REQUESTS)
    after = before.with_evidence({"toolRequests": [{**row, "input": {}}]})
    assert after.evidence.tool_requests == before.evidence.tool_requests
    assert find_blocking(after.turn, TurnState.TOOL_REQUESTS)


@given(names, st.sampled_from(["toolRequests", "toolResults", "handoff", "mutation", "sessionRefs"]), json_values)
def test_nonsense_is_refused_as_the_plain_reading_refuses_it(name: str, member: str, value: Any) -> None:
    document = copy.deepcopy(VECTORS[name]["input"])
    document["evidence"][member] = value
    spec, evidence, beside = split(document)
    assert outcome(lambda: judge_turn(TurnBuilder.open(spec, beside).with_evidence(evidence).turn)) == outcome(
        lambda: judge(document)
    )


@given(names, st.sampled_from(["toolConstraints", "policyDocuments", "governanceProfile"]), json_values)
def test_so_is_nonsense_beside_the_evidence(name: str, member: str, value: Any) -> None:
    document = copy.deepcopy(VECTORS[name]["input"])
    document[member] = value
    spec, evidence, beside = split(document)
    assert outcome(lambda: judge_turn(TurnBuilder.open(spec, beside).with_evidence(evidence).turn)) == outcome(
        lambda: judge(document)
    )


def outcome(judging: Any) -> Any:
    try:
        return judging().as_json()
    except InvalidEvidence as bad:
        return str(bad)


POLICY: Final = {"deferred": ["later"]}
GIVEN: Final = {"evidence.callSpec.deferPolicyDigest": digest(POLICY), "policyDocuments.deferPolicy": POLICY}


@pytest.mark.parametrize(
    "changes",
    [
        {"policyDocuments.deferPolicy": {"deferred": ["grep"]}},
        {"policyDocuments.deferPolicy.deferred": ["grep"]},
        {"evidence.callSpec.deferPolicyDigest": digest("another")},
        {"evidence.callSpec.riskTier": "immense"},
        {"toolConstraints.allowedTools": ["read"]},
        {"policyDocuments.deferPolicy.more": NAN},
        {"policyDocuments.deferPolicy": {1: 2}},
        {"policyDocuments.deferPolicy.more": object()},
        {"policyDocuments.deferPolicy.more": "\ud800"},
        {"policyDocuments.other": {}},
        {"evidence.callSpec.toolPolicy": {"allowedTools": [{"toolName": "grep", "inputSchema": {"minimum": NAN}}]}},
        {"evidence.callSpec.callId": " "},
        {"evidence.callSpec.callId": 7},
    ],
)
def test_what_was_read_before_is_not_taken_for_something_else(changes: dict[str, Any]) -> None:
    good = changed(turn(), GIVEN)
    spec, _, beside = split(good)
    assert not find_blocking(TurnBuilder.open(spec, beside).turn, TurnState.CALL_SPEC)
    other = changed(good, changes)
    spec, evidence, beside = split(other)
    assert outcome(lambda: judge_turn(TurnBuilder.open(spec, beside).with_evidence(evidence).turn)) == outcome(
        lambda: judge(other)
    )
    assert outcome(lambda: judge(other)) != outcome(lambda: judge(good))


def test_what_was_given_may_change_afterwards() -> None:
    document = changed(turn(), GIVEN)
    plain = judge(document).as_json()
    spec, evidence, beside = split(copy.deepcopy(document))
    builder = TurnBuilder.open(spec, beside).with_evidence(evidence)
    spec["toolChoice"] = "sometimes"
    beside["policyDocuments"]["deferPolicy"]["deferred"].append("grep")
    evidence["toolUse"].clear()
    evidence["toolRequests"][0]["toolName"] = "rm"
    assert judge_turn(builder.turn).as_json() == plain
    again = split(document)
    assert judge_turn(TurnBuilder.open(again[0], again[2]).with_evidence(again[1]).turn).as_json() == plain


def test_tuples_are_lists() -> None:
    document = changed(turn(), GIVEN)
    spec, evidence, beside = split(document)
    rows = {name: tuple(value) if isinstance(value, list) else value for name, value in evidence.items()}
    documents = {"policyDocuments": {"deferPolicy": {"deferred": ("later",)}}}
    builder = TurnBuilder.open(spec, {**beside, **documents}).with_evidence(rows)
    assert judge_turn(builder.turn).as_json() == judge(document).as_json()


def test_a_number_that_json_lacks_is_refused_where_it_counts() -> None:
    builder = TurnBuilder.open(*split(turn())[::2])
    row = {"toolCallId": "a", "toolName": "grep"}
    assert builder.with_evidence({"toolRequests": [{**row, "ordinal": NAN}]}).evidence.tool_requests[0].ordinal is None
    with pytest.raises(InvalidEvidence, match="/evidence/toolRequests/0/input: nan is not a number"):
        builder.with_evidence({"toolRequests": [{**row, "input": NAN}]})


def test_an_error_names_the_added_row() -> None:
    row = {"toolCallId": "a", "toolName": "grep"}
    builder = TurnBuilder.open(*split(turn())[::2]).with_evidence({"toolRequests": [row]})
    with pytest.raises(InvalidEvidence, match="/evidence/toolRequests/1/toolName: is absent"):
        builder.with_evidence({"toolRequests": [row, {"toolCallId": "b"}]})
    with pytest.raises(InvalidEvidence, match="/evidence/toolRequests: another row under 'a' differs"):
        builder.with_evidence({"toolRequests": [{"toolCallId": "a", "toolName": "rm"}]})


def test_a_turn_asks_for_more_once_it_has_answers() -> None:
    document = turn("a", "b")
    spec, evidence, beside = split(document)
    first, second = evidence["toolRequests"]
    requested = CallSpec.open(spec, beside).request([first])
    requested = requested.request([second], {"toolResults": evidence["toolResults"][:1]})
    rest = {name: evidence[name] for name in ("toolRender", "reminderQueue", "stateViews")}
    closed = (
        requested.answer(evidence["toolResults"][1:]).use(evidence["toolUse"]).close(evidence["protocolState"], rest)
    )
    assert closed.judgement.as_json() == judge(document).as_json()


def test_a_further_request_is_judged_like_the_first() -> None:
    spec, evidence, _ = split(turn("a"))
    requested = CallSpec.open(spec, {"toolConstraints": {"allowedTools": ["grep"]}}).request(evidence["toolRequests"])
    with pytest.raises(TurnBlocked) as blocked:
        requested.request([{"toolCallId": "b", "toolName": "rm"}])
    assert blocked.value.state is TurnState.TOOL_REQUESTS
    assert [finding.failure.name for finding in blocked.value.findings] == ["tool.unknown_or_disallowed"]


@pytest.mark.parametrize("inputs", [("x", "y"), ("x", 1), (1, None), (None, 1)])
def test_arguments_are_held_against_their_schema_whenever_they_come(inputs: tuple[Any, Any]) -> None:
    schema = {"properties": {"pattern": {"type": "string"}}}
    document = changed(
        turn("a", "b"),
        {"evidence.callSpec.toolPolicy": {"allowedTools": [{"toolName": "grep", "inputSchema": schema}]}}
        | {f"evidence.toolRequests.{i}.input": {"pattern": one} for i, one in enumerate(inputs) if one is not None},
    )
    spec, evidence, beside = split(document)
    builder = TurnBuilder.open(spec, beside)
    for row in evidence["toolRequests"]:
        builder = builder.with_evidence({"toolRequests": [row]})
    found = judge_turn(builder.with_evidence({**evidence, "toolRequests": []}).turn)
    assert found.normalized == judge(document).normalized
    assert found.as_json() == judge(document).as_json()
