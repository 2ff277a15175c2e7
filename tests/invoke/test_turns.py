"""The turns of runs that go well: closed without a finding, as many as there are gates and one more."""

from __future__ import annotations

import pytest

from manglecp.harness import ForgedState, MutationReady, ToolRequests
from manglecp.harness.call_spec import CallSpec
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.states import redeem_call
from manglecp.invoke.calls import ActionCall
from manglecp.invoke.evidence import UsedSteps
from manglecp.invoke.gate import Turns
from manglecp.pack import default_governance
from tests.invoke.turns import (
    ADMISSION,
    RUN,
    call,
    changed,
    check_witnesses,
    claims,
    event,
    outcome,
    rows,
    run_tier_0,
    terms,
)


@pytest.mark.req("HARN-01", "HARN-65", "HARN-67", "HARN-70", "HARN-71")
def test_a_read_only_chain_is_one_turn() -> None:
    turns = Turns(terms("read", "look"))
    turn = turns.open()
    turn.admit()
    done = run_tier_0(turn, call("read", 1), call("look", 2, sources=(1,)), call("read", 3))
    events = [event(one) for one in done]
    witness = turn.finish(
        used=UsedSteps(by_steps=frozenset({1}), by_response=frozenset({3})),
        events=events,
        states={1: "done", 2: "done", 3: "done"},
    )
    check_witnesses(turns, witness)
    assert turns.count == turns.terms.chain.gates + 1 == 1
    assert (witness["joinClosed"], witness["mutationReady"]) == (True, False)
    requests, results, uses = (rows(witness, kind) for kind in ("toolRequests", "toolResults", "toolUse"))
    assert list(requests) == ["admit/1", "s1/1", "s2/1", "s3/1"]
    assert (
        [row["ordinal"] for row in requests.values()] == [row["sequence"] for row in results.values()] == [0, 1, 2, 3]
    )
    assert len({row["callGroupId"] for row in requests.values()}) == 4  # nothing ran side by side
    assert results["admit/1"]["resultDigest"] == ADMISSION
    assert results["s1/1"]["resultDigest"] == done[0].output_digest
    assert results["s1/1"]["provenance"]["ref"] == f"toolhost/{turns.terms.chain.plugin_digest}"
    assert uses["admit/1"]["summaryRef"] == f"admission:{ADMISSION}"
    assert uses["s1/1"]["summaryRef"] == uses["s3/1"]["summaryRef"] == f"response:{RUN}"
    assert uses["s2/1"]["disposition"] == "observed_only"
    evidence = witness["turn"]["evidence"]
    assert evidence["protocolState"]["stopReason"] == "end_turn"
    assert [row["stage"] for row in sorted(evidence["guardrailDecisions"], key=lambda row: row["sequence"])] == [
        "pre_flight", "pre_flight", "input", "input", "output", "output"
    ]  # fmt: skip
    (queue,) = evidence["reminderQueue"]
    assert {entry["reminderDigest"] for entry in queue["entries"]} == {digest(one) for one in events}
    assert rows(witness, "toolRender")["s2/1"]["reminderRenderDigest"] == digest(events[1])


@pytest.mark.req("HARN-03", "HARN-09", "HARN-10")
def test_the_call_spec_has_all_its_fields_and_its_own_id_in_every_turn() -> None:
    turns = Turns(terms("read", "write", approval="confirm:n1"))
    first = turns.open()
    first.admit()
    write = call("write", 1)
    _, one = first.authorize([write], claims=claims(["write"]))
    second = turns.open()
    second.record_calls([write], [outcome(write)])
    two = second.finish()
    check_witnesses(turns, one, two)
    specs = [witness["turn"]["evidence"]["callSpec"] for witness in (one, two)]
    assert set(specs[0]) == set(CallSpec.__struct_encode_fields__)
    assert len(specs[0]) == 35
    assert specs[0]["callId"] != specs[1]["callId"]
    assert specs[0]["modelRef"] == turns.terms.chain.model_ref
    assert specs[0]["riskTier"] == "moderate"
    allowed = {tool["toolName"] for tool in specs[0]["toolPolicy"]["allowedTools"]}
    assert allowed == {"manglecp.admit", "desk.read", "desk.write"}
    profile = one["turn"]["constraints"]["governanceProfile"]
    assert profile["riskTier"]["approvalRef"] == "confirm:n1"
    again = Turns(terms("read", "write", approval="confirm:n1")).open()
    again.admit()
    assert again.authorize([write], claims=claims(["write"]))[1] == one  # the same turn has the same witness


@pytest.mark.req("HARN-76", "SLICE-03")
def test_an_effect_is_the_mutation_of_one_turn_and_a_row_of_the_next() -> None:
    turns = Turns(terms("read", "write"))
    read, write = call("read", 1), call("write", 2, sources=(1,))
    first = turns.open()
    first.admit()
    permit = first.request([read])
    assert isinstance(permit, ToolRequests)
    assert permit.permits(read.call_id, read.action.aid, read.input_digest)
    first.record_outcomes([outcome(read)])
    ready, authorised = first.authorize([write], claims=claims(["write"]), states={1: "done", 2: "waiting"})
    assert isinstance(ready, MutationReady)
    assert "s2/1" not in rows(authorised, "toolRequests")
    assert redeemed(ready, write)
    assert not redeemed(ready, write)

    second = turns.open()
    second.record_calls([write], [outcome(write)])
    last = second.finish(used=UsedSteps(by_response=frozenset({2})), states={1: "done", 2: "done"})
    check_witnesses(turns, authorised, last)
    assert turns.count == turns.terms.chain.gates + 1
    assert rows(last, "toolUse")["s2/1"]["disposition"] == "consumed"
    assert rows(authorised, "toolUse")["s1/1"]["mutationInputRef"] == f"run://{RUN}/s1"
    intent = authorised["turn"]["evidence"]["mutation"]
    assert intent["kind"] == "effect"
    assert intent["action"] == "desk.write"
    assert intent["instructionRef"] == f"instr1_{ADMISSION.removeprefix('sha256:')}"
    assert intent["inputRefs"] == [f"admission:{ADMISSION}", f"run://{RUN}/s1"]
    assert intent["calls"] == [
        {"toolCallId": write.call_id, "toolName": "desk.write", "inputDigest": write.input_digest}
    ]
    assert authorised["turn"]["evidence"]["sessionRefs"] == [f"run://{RUN}"]
    assert last["turn"]["evidence"]["trajectoryRefs"] == [f"run://{RUN}/2"]


def redeemed(ready: MutationReady, one: ActionCall) -> bool:
    try:
        redeem_call(ready, call_id=one.call_id, tool_name=one.action.aid, input_digest=one.input_digest)
    except ForgedState:
        return False
    return True


def test_steps_of_earlier_turns_are_the_witnesses_of_those_turns() -> None:
    turns = Turns(terms("read", "write", "send", "look"))
    turn = turns.open()
    turn.admit()
    done = run_tier_0(turn, call("read", 1))
    write = call("write", 2, sources=(1,))
    _, one = turn.authorize([write], claims=claims(["write", "send"]), events=[event(one) for one in done])
    turn = turns.open()
    turn.record_calls([write], [outcome(write)])
    run_tier_0(turn, call("look", 3, sources=(2,)))
    run_tier_0(turn, call("look", 6))
    send = call("send", 4, sources=(1, 2, 3))
    _, two = turn.authorize([send], claims=claims(["write", "send"]), used=UsedSteps(by_steps=frozenset({2, 3, 6})))
    turn = turns.open()
    turn.record_calls([send], [outcome(send)])
    run_tier_0(turn, call("read", 5))
    three = turn.finish(used=UsedSteps(by_response=frozenset({4, 5})))
    check_witnesses(turns, one, two, three)
    assert turns.count == turns.terms.chain.gates + 1 == 3
    intent = two["turn"]["evidence"]["mutation"]
    assert set(intent["inputRefs"]) == {f"run://{RUN}/s2", f"run://{RUN}/s3", one["id"]}
    assert intent["joinWitnessRefs"] == [one["id"]]
    assert rows(two, "toolUse")["s6/1"]["mutationInputRef"] == f"run://{RUN}/s6"  # read on the way, by another step
    assert [w["turn"]["evidence"]["protocolState"]["turnIndex"] for w in (one, two, three)] == [1, 2, 3]


@pytest.mark.req("HARN-66")
def test_a_group_of_reads_is_one_group_with_a_branch_each() -> None:
    turns = Turns(terms("read", "look", pattern="parallel"))
    turn = turns.open(parallel=True)
    turn.admit()
    together = [call("read", 1), call("look", 2), call("read", 3)]
    permit = turn.request(together)
    assert all(permit.permits(one.call_id, one.action.aid, one.input_digest) for one in together)
    turn.record_outcomes([outcome(one) for one in reversed(together)])  # whoever is first
    run_tier_0(turn, call("read", 4, sources=(1, 2, 3)))
    witness = turn.finish(used=UsedSteps(by_steps=frozenset({1, 2, 3}), by_response=frozenset({4})))
    check_witnesses(turns, witness)
    requests = rows(witness, "toolRequests")
    assert len({requests[f"s{number}/1"]["callGroupId"] for number in (1, 2, 3)}) == 1
    assert requests["s4/1"]["callGroupId"] != requests["s1/1"]["callGroupId"]
    assert [requests[f"s{number}/1"]["branchId"] for number in (1, 2, 3)] == ["s1", "s2", "s3"]
    evidence = witness["turn"]["evidence"]
    assert [(row["branchId"], row["joinClosed"]) for row in evidence["branchJoins"]] == [
        ("s1", True), ("s2", True), ("s3", True)
    ]  # fmt: skip
    assert evidence["callSpec"]["toolTransportPolicy"]["ordering"] == "any"


def test_effects_that_run_side_by_side_share_a_gate_that_names_them_all() -> None:
    turns = Turns(terms("read", "write", "send", pattern="parallel", gates=1))
    turn = turns.open()
    turn.admit()
    run_tier_0(turn, call("read", 1))
    together = [call("write", 2, sources=(1,)), call("send", 3, sources=(1,)), call("write", 4)]
    ready, one = turn.authorize(together, claims=claims(["write", "send"]))
    assert all(redeemed(ready, effect) for effect in together)
    turn = turns.open(parallel=True)
    turn.record_calls(together, [outcome(effect) for effect in together])
    two = turn.finish(used=UsedSteps(by_response=frozenset({2, 3, 4})))
    check_witnesses(turns, one, two)
    assert turns.count == turns.terms.chain.gates + 1 == 2
    demanded = one["turn"]["constraints"]["mutationConstraints"]["requiredCapabilityClaims"]
    assert set(demanded) == set(claims(["write", "send"]))
    assert {row["branchId"] for row in rows(two, "toolRequests").values()} == {"s2", "s3", "s4"}
    assert two["turn"]["evidence"]["decomposition"]["fanOut"] == 3


def test_approval_lets_the_highest_tier_pass() -> None:
    turns = Turns(terms("destroy", approval="confirm:n1"))
    turn = turns.open()
    turn.admit()
    effect = call("destroy", 1)
    _, one = turn.authorize([effect], claims=claims(["destroy"]))
    turn = turns.open()
    turn.record_calls([effect], [outcome(effect)])
    check_witnesses(turns, one, turn.finish())


def test_what_every_turn_shows_does_not_depend_on_the_package() -> None:
    lax = changed(default_governance(), governance={"claimed": False, "requiredControls": []})
    turns = Turns(terms("read", package=lax))
    turn = turns.open()
    turn.admit()
    witness = turn.finish()
    check_witnesses(turns, witness)
    constraints = witness["turn"]["constraints"]
    assert constraints["governanceProfile"]["claimed"] is True
    assert set(constraints["governanceConstraints"]["requiredControls"]) == {
        "policyProvenance", "guardrailStages", "observabilityMode", "riskTier"
    }  # fmt: skip
    assert constraints["governanceConstraints"]["bindGovernanceDigest"] is True
    assert constraints["governanceConstraints"]["humanCheckpointTiers"] == ["high"]
    assert constraints["toolConstraints"]["requireResultProvenance"] is True


def test_an_event_that_was_told_twice_is_told_once_where_the_package_wants_it() -> None:
    package = changed(default_governance(), queue={"dedup": True})
    turns = Turns(terms("read", package=package))
    turn = turns.open()
    turn.admit()
    done = run_tier_0(turn, call("read", 1), call("read", 2))
    witness = turn.finish(events=[event(one) for one in done])
    check_witnesses(turns, witness)
    assert len(witness["turn"]["evidence"]["reminderQueue"][0]["entries"]) == 1
