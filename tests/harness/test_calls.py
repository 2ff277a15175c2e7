"""The right to a call: named by a mutation or a request, spent once, and for those bytes only."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.readers import InvalidEvidence
from manglecp.harness.states import (
    ForgedState,
    MutationReady,
    ToolRequests,
    TurnBlocked,
    WrongMutation,
    redeem,
    redeem_call,
)
from manglecp.harness.witness import verify, witness_of
from tests.harness.evidence import MUTATION, changed, judged, turn
from tests.toolhost.rights import Named, closed, effect, opened

PAY = Named("r1/s1/1", "AID.SHOP.PAY.v1", digest({"amount": 1}))
SHIP = Named("r1/s2/1", "AID.SHOP.SHIP.v1", digest({"to": "ann"}))
OTHERS = [
    pytest.param(PAY._replace(call_id="r1/s1/2"), id="another id"),
    pytest.param(PAY._replace(tool_name="AID.SHOP.SHIP.v1"), id="another tool"),
    pytest.param(PAY._replace(input_digest=digest({"amount": 2})), id="other bytes"),
]


def ready(*named: Named, **changes: Any) -> MutationReady:
    return closed().authorize(effect(*named, **changes))


def spend(authority: MutationReady | ToolRequests, call: Named) -> None:
    redeem_call(authority, call_id=call.call_id, tool_name=call.tool_name, input_digest=call.input_digest)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("kind", ["mutation", "request"])
def test_a_right_is_to_the_call_that_it_names_once(kind: str, other: Named) -> None:
    authority = ready(PAY) if kind == "mutation" else opened().request([PAY.row])
    assert not authority.permits(*other)
    with pytest.raises(WrongMutation, match=other.tool_name):
        spend(authority, other)
    assert authority.permits(*PAY), "what was refused has spent nothing"
    spend(authority, PAY)
    assert not authority.permits(*PAY)
    with pytest.raises(ForgedState, match="redeemed already"):
        spend(authority, PAY)


def test_a_group_has_a_right_for_each_of_its_calls() -> None:
    right = ready(PAY, SHIP)
    spend(right, SHIP)
    assert right.permits(*PAY)
    spend(right, PAY)


def test_only_an_effect_is_a_right_to_calls() -> None:
    right = ready(PAY, kind="issue")
    assert not right.permits(*PAY)
    with pytest.raises(WrongMutation):
        spend(right, PAY)


def test_a_right_that_was_spent_as_a_whole_is_a_right_to_nothing() -> None:
    right = ready(PAY)
    redeem(right, "effect", PAY.tool_name)
    with pytest.raises(ForgedState):
        spend(right, PAY)


@pytest.mark.parametrize("kind", [MutationReady, ToolRequests])
def test_a_forged_state_is_a_right_to_nothing(kind: type[Any]) -> None:
    forged = object.__new__(kind)
    with pytest.raises(ForgedState):
        forged.permits(*PAY)
    with pytest.raises(ForgedState):
        spend(forged, PAY)


@pytest.mark.parametrize("nothing", [None, object(), {"calls": [PAY.row]}, PAY])
def test_what_is_no_state_is_a_right_to_nothing(nothing: Any) -> None:
    with pytest.raises(ForgedState):
        spend(nothing, PAY)


def test_a_state_before_the_right_is_none() -> None:
    before: Any = closed()
    with pytest.raises(ForgedState):
        spend(before, PAY)
    object.__setattr__(before, "__class__", MutationReady)
    with pytest.raises(ForgedState):
        spend(before, PAY)


def test_a_request_whose_bytes_nobody_knows_permits_nothing() -> None:
    requests = opened().request([{"toolCallId": PAY.call_id, "toolName": PAY.tool_name}])
    with pytest.raises(WrongMutation):
        spend(requests, PAY)


def test_all_states_of_a_turn_share_what_was_spent() -> None:
    """A call is no new one because its turn has gone on, or was led on twice."""
    turn_ = opened()
    first, second = turn_.request([PAY.row]), turn_.request([PAY.row])
    spend(first, PAY)
    grown = first.request([SHIP.row])
    for state in (second, grown):
        with pytest.raises(ForgedState):
            spend(state, PAY)
    spend(grown, SHIP)


def test_a_turn_that_is_closed_twice_has_its_effect_once() -> None:
    requests = opened().request([{"toolCallId": "a", "toolName": "look"}])
    seen = {"toolCallId": "a", "resultDigest": digest("seen")}
    used = requests.answer([{**seen, "status": "ok"}]).use(
        [{**seen, "disposition": "consumed", "mutationInputRef": "seen://1"}]
    )
    end = {"stopReason": "tool_use", "continuationAllowed": False}
    evidence = {
        "toolRender": [
            {
                "toolCallId": "a",
                "operatorPayloadDigest": "d",
                "reminderRenderDigest": "d",
                "injectionPoint": "tool_response",
                "policyDigest": digest("toolRenderProtocol"),
            }
        ],
        "reminderQueue": [{"queueId": "q", "reducedDigest": "d", "policyDigest": digest("reminderQueue")}],
        "stateViews": [{"viewId": "v", "viewDigest": "d", "policyDigest": digest("stateView")}],
        "sessionRefs": ["session://1"],
    }
    first, second = (used.close(end, evidence).authorize(effect(PAY)) for _ in range(2))
    spend(first, PAY)
    with pytest.raises(ForgedState):
        spend(second, PAY)


@pytest.mark.parametrize("kind", ["mutation", "request"])
def test_of_many_threads_one_has_the_call(kind: str) -> None:
    authority = ready(PAY) if kind == "mutation" else opened().request([PAY.row])
    start, spent = threading.Barrier(16), []

    def race() -> None:
        start.wait()
        try:
            spend(authority, PAY)
        except ForgedState:
            return
        spent.append(True)

    threads = [threading.Thread(target=race) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(spent) == 1


def test_a_call_of_another_action_has_to_be_claimed() -> None:
    claims = effect(PAY)["capabilityClaims"]
    with pytest.raises(TurnBlocked, match=r"mutation\.capability_claim_missing"):
        ready(PAY, SHIP, capabilityClaims=claims)
    with pytest.raises(TurnBlocked, match=r"mutation\.capability_claim_missing"):
        closed().authorize(
            effect(PAY, SHIP, capabilityClaims=claims),
            {"requiredCapabilityClaims": claims, "activePolicyDigest": digest("mutation")},
        )
    assert ready(PAY, SHIP, capabilityClaims=[claims[0], f"{claims[0]}.all"]).permits(*SHIP)


def test_calls_are_part_of_what_was_judged() -> None:
    right = ready(SHIP, PAY, PAY)
    calls = right.judgement.normalized["evidence"]["mutation"]["calls"]
    assert calls == [PAY.row, SHIP.row], "each once, by their ids"
    assert verify(witness_of(right.judgement)).holds
    assert right.judgement.witness_id != ready(PAY, action=PAY.tool_name).judgement.witness_id


def test_without_calls_a_mutation_is_what_it_was() -> None:
    plain = judged(changed(turn(), MUTATION))
    assert judged(changed(turn(), {**MUTATION, "evidence.mutation.calls": []})).as_json() == plain.as_json()
    assert "calls" not in plain.normalized["evidence"]["mutation"]


@pytest.mark.parametrize(
    ("calls", "path"),
    [
        ([PAY.row, {**PAY.row, "inputDigest": digest("x")}], "/evidence/mutation/calls"),
        ([{**PAY.row, "inputDigest": " "}], "/evidence/mutation/calls/0/inputDigest"),
        ([{"toolCallId": "a"}], "/evidence/mutation/calls/0/toolName"),
        ({}, "/evidence/mutation/calls"),
    ],
)
def test_calls_that_contradict_or_lack_something_are_no_evidence(calls: Any, path: str) -> None:
    with pytest.raises(InvalidEvidence) as refused:
        judged(changed(turn(), {**MUTATION, "evidence.mutation.calls": calls}))
    assert refused.value.path == path
