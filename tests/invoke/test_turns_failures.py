"""The turns of runs in which something goes wrong: recorded as it was, and closed nevertheless."""

from __future__ import annotations

import pytest

from manglecp.invoke.calls import StepOutcome
from manglecp.invoke.evidence import UsedSteps
from manglecp.invoke.gate import GateRefused, Resumption, Turns
from tests.invoke.turns import ADMISSION, RUN, call, check_witnesses, claims, outcome, rows, run_tier_0, terms

WITNESSES = ("jw1_" + "1" * 64, "jw1_" + "2" * 64)


def test_a_failed_read_that_the_chain_lives_with_is_an_error_that_was_looked_at() -> None:
    turns = Turns(terms("read", "look"))
    turn = turns.open()
    turn.admit()
    failing = [call("read", 1), call("look", 2)]
    turn.request(failing[:1])
    turn.record_outcomes([outcome(failing[0], "failed", "tool_error")])
    turn.request(failing[1:])
    turn.record_outcomes([outcome(failing[1], "failed", "timeout")])
    turn.record_outcomes([StepOutcome(call=None, number=3, action="read", status="skipped", why="nothing to read")])
    run_tier_0(turn, call("read", 4))
    states = {1: "failed", 2: "failed", 3: "skipped", 4: "done"}
    witness = turn.finish(used=UsedSteps(by_steps=frozenset({1}), by_response=frozenset({1, 4})), states=states)
    check_witnesses(turns, witness)
    assert list(rows(witness, "toolRequests")) == ["admit/1", "s1/1", "s2/1", "s4/1"]
    results = rows(witness, "toolResults")
    assert results["s1/1"]["error"]["errorCode"] == "tool_error"
    assert results["s1/1"]["error"]["retryable"] is False
    assert results["s2/1"]["error"]["retryable"] is True  # idempotent, and another time it may answer
    assert rows(witness, "toolUse")["s1/1"]["disposition"] == "observed_only"  # nobody reads what is not there


def test_a_code_that_is_no_code_stays_out_of_the_witness() -> None:
    turns = Turns(terms("read"))
    turn = turns.open()
    turn.admit()
    read = call("read", 1)
    turn.request([read])
    turn.record_outcomes([outcome(read, "failed", "zq-secret-words in a code, of all places")])
    witness = turn.finish()
    check_witnesses(turns, witness)
    assert rows(witness, "toolResults")["s1/1"]["error"]["errorCode"] == "unlisted_code"


def test_an_output_that_does_not_fit_is_blocked_by_its_guardrail() -> None:
    turns = Turns(terms("read"))
    turn = turns.open()
    turn.admit()
    read = call("read", 1)
    turn.request([read])
    turn.record_outcomes([outcome(read, "failed", "bad_output")])
    witness = turn.finish()
    check_witnesses(turns, witness)
    blocked = [row for row in witness["turn"]["evidence"]["guardrailDecisions"] if row["outcome"] == "block"]
    assert [(row["stage"], row["guardrailId"], row["toolCallId"]) for row in blocked] == [
        ("output", "result_schema", read.call_id)
    ]


def test_undoing_rests_on_the_error_and_on_what_is_undone() -> None:
    turns = Turns(terms("read", "write", "send", "erase", gates=2))
    may = claims(["write", "send", "erase"])
    turn = turns.open()
    turn.admit()
    write, send = call("write", 1), call("send", 2)
    _, one = turn.authorize([write], claims=may)
    turn = turns.open()
    turn.record_calls([write], [outcome(write)])
    _, two = turn.authorize([send], claims=may)
    turn = turns.open()
    turn.record_calls([send], [outcome(send, "failed", "tool_error")])
    back = call("erase", 1, kind="undo")
    _, three = turn.authorize([back], claims=may)
    turn = turns.open()
    turn.record_calls([back], [outcome(back)])
    four = turn.finish(states={1: "undone", 2: "failed"})
    check_witnesses(turns, one, two, three, four)
    assert turns.count == 3 + 1  # undoing has a gate of its own
    intent = three["turn"]["evidence"]["mutation"]
    assert intent["action"] == "desk.erase"
    assert rows(three, "toolUse")["s2/1"]["mutationInputRef"] == f"run://{RUN}/s2"
    assert set(intent["inputRefs"]) == {f"run://{RUN}/s2", one["id"], two["id"]}
    assert rows(four, "toolRequests").keys() == {"u1/1"}


def test_undoing_after_the_turn_of_the_error_rests_on_its_witness() -> None:
    turns = Turns(terms("write", "send", "erase"))
    may = claims(["write", "send", "erase"])
    turn = turns.open()
    turn.admit()
    witnesses = []
    for number in (1, 2):
        effect = call("write", number)
        witnesses.append(turn.authorize([effect], claims=may)[1])
        turn = turns.open()
        turn.record_calls([effect], [outcome(effect)])
    for number in (2, 1):
        back = call("erase", number, kind="undo")
        witnesses.append(turn.authorize([back], claims=may)[1])
        turn = turns.open()
        turn.record_calls([back], [outcome(back)])
    witnesses.append(turn.finish())
    check_witnesses(turns, *witnesses)
    first_undo, second_undo = (witness["turn"]["evidence"]["mutation"]["inputRefs"] for witness in witnesses[2:4])
    assert set(first_undo) == {f"run://{RUN}/s2", witnesses[1]["id"], witnesses[0]["id"]}
    # the step that is undone, the turn before, and the admission
    assert set(second_undo) == {witnesses[1]["id"], witnesses[2]["id"], witnesses[0]["id"]}


def test_a_run_that_waits_for_a_decision_is_closed_as_one() -> None:
    turns = Turns(terms("write"))
    turn = turns.open()
    turn.admit()
    write = call("write", 1)
    _, one = turn.authorize([write], claims=claims(["write"]))
    turn = turns.open()
    turn.record_calls([write], [outcome(write, "unknown")])
    two = turn.finish(states={1: "unknown"}, paused=True)
    check_witnesses(turns, one, two)
    assert rows(two, "toolResults")["s1/1"]["error"]["errorCode"] == "outcome_unknown"
    assert rows(two, "toolResults")["s1/1"]["error"]["retryable"] is False
    assert rows(two, "toolUse")["s1/1"]["disposition"] == "observed_only"
    state = two["turn"]["evidence"]["protocolState"]
    assert (state["stopReason"], state.get("continuationAllowed", False)) == ("pause_turn", False)


def test_a_failed_read_is_no_input_of_an_effect() -> None:
    turns = Turns(terms("read", "write"))
    turn = turns.open()
    turn.admit()
    read = call("read", 1)
    turn.request([read])
    turn.record_outcomes([outcome(read, "failed", "tool_error")])
    _, witness = turn.authorize([call("write", 2)], claims=claims(["write"]), used=UsedSteps(by_steps=frozenset({1})))
    check_witnesses(turns, witness)
    assert rows(witness, "toolUse")["s1/1"]["disposition"] == "observed_only"


def test_a_turn_after_a_pause_owes_nothing_to_the_one_before() -> None:
    turns = Turns(terms("write"))
    turn = turns.open()
    turn.admit()
    write = call("write", 1)
    turn.authorize([write], claims=claims(["write"]))
    turn = turns.open()
    turn.record_calls([write], [outcome(write, "unknown")])
    turn.finish(paused=True)
    check_witnesses(turns, turns.open().finish())


def test_whoever_resumes_owes_what_the_journal_says() -> None:
    turns = Turns(terms("write"))
    turn = turns.open()
    turn.admit()
    turn.authorize([call("write", 1)], claims=claims(["write"]))
    turn = turns.open(resumed=Resumption(fence=2, witnesses=WITNESSES[:1]))
    turn.admit()
    check_witnesses(turns, turn.finish())


@pytest.mark.req("SLICE-12")
def test_whoever_resumes_opens_a_turn_that_says_so() -> None:
    turns = Turns(terms("read", "write", "send"))
    turn = turns.open(resumed=Resumption(fence=2, witnesses=WITNESSES))
    assert turn.number == 3
    turn.admit()
    write, send = call("write", 2), call("send", 4, sources=(1, 2, 3))
    turn.record_calls([write], [outcome(write)])
    run_tier_0(turn, call("read", 3))
    _, one = turn.authorize([send], claims=claims(["write", "send"]))
    turn = turns.open()
    turn.record_calls([send], [outcome(send)])
    two = turn.finish()
    check_witnesses(turns, one, two)
    assert one["turn"]["evidence"]["continuity"] == {"mode": "descent", "handoffRef": f"journal://{RUN}/2"}
    assert "continuity" not in two["turn"]["evidence"]
    intent = one["turn"]["evidence"]["mutation"]
    assert set(intent["joinWitnessRefs"]) == set(WITNESSES)
    # step 1 is in one of the turns that someone else made
    assert set(intent["inputRefs"]) == {
        f"admission:{ADMISSION}", f"run://{RUN}/s2", f"run://{RUN}/s3", *WITNESSES
    }  # fmt: skip
    other = Turns(terms("read", "write", "send")).open(resumed=Resumption(fence=3, witnesses=WITNESSES))
    other.admit()
    spec = other.finish()["turn"]["evidence"]["callSpec"]
    assert spec["callId"] != one["turn"]["evidence"]["callSpec"]["callId"]  # another coordinator, another turn


def test_an_attempt_that_nobody_knows_the_end_of_is_made_again_if_that_changes_nothing() -> None:
    turns = Turns(terms("put"))
    turn = turns.open(resumed=Resumption(fence=2, witnesses=WITNESSES[:1]))
    turn.admit()
    lost, again = call("put", 1), call("put", 1, attempt=2)
    turn.record_retry(lost, outcome(lost, "unknown"))
    _, one = turn.authorize([again], claims=claims(["put"]))
    turn = turns.open()
    turn.record_calls([again], [outcome(again)])
    two = turn.finish(used=UsedSteps(by_response=frozenset({1})))
    check_witnesses(turns, one, two)
    assert rows(one, "toolUse")["s1/1"]["disposition"] == "retry_scheduled"
    assert rows(one, "toolUse")["s1/1"]["retryRef"] == again.call_id
    assert rows(one, "toolResults")["s1/1"]["error"] | {"errorMessageDigest": ""} == {
        "errorCode": "outcome_unknown", "retryable": True, "errorMessageDigest": ""
    }  # fmt: skip
    assert rows(two, "toolUse")["s1/2"]["disposition"] == "consumed"


def test_nothing_rests_on_an_attempt_that_is_made_again() -> None:
    turns = Turns(terms("put"))
    turn = turns.open(resumed=Resumption(fence=2, witnesses=WITNESSES))
    turn.admit()
    turn.record_retry(lost := call("put", 1), outcome(lost, "unknown"))
    with pytest.raises(GateRefused) as refused:
        turn.authorize([call("put", 2, sources=(1,))], claims=claims(["put"]))
    assert refused.value.classes == ("mutation.use_evidence_missing",)


def test_an_attempt_at_what_is_not_idempotent_is_not_made_again() -> None:
    turns = Turns(terms("write"))
    turn = turns.open(resumed=Resumption(fence=2, witnesses=WITNESSES[:1]))
    turn.admit()
    lost = call("write", 1)
    turn.record_retry(lost, outcome(lost, "unknown"))
    with pytest.raises(GateRefused) as refused:
        turn.authorize([call("write", 1, attempt=2)], claims=claims(["write"]))
    assert refused.value.classes == ("tool.schema_invalid",)


def test_what_an_operator_decided_says_who() -> None:
    turns = Turns(terms("write"))
    turn = turns.open(resumed=Resumption(fence=2, witnesses=WITNESSES[:1]))
    turn.admit()
    write = call("write", 1)
    turn.record_calls([write], [outcome(write, by="kim")])
    witness = turn.finish(used=UsedSteps(by_response=frozenset({1})))
    check_witnesses(turns, witness)
    assert rows(witness, "toolResults")["s1/1"]["provenance"] == {"kind": "runtime_route", "ref": "operator/kim"}


def test_what_an_operator_says_did_not_happen_is_tried_again() -> None:
    turns = Turns(terms("write"))
    turn = turns.open(resumed=Resumption(fence=2, witnesses=WITNESSES[:1]))
    turn.admit()
    lost, again = call("write", 1), call("write", 1, attempt=2)
    turn.record_calls([lost], [outcome(lost, "failed", "operator", by="kim")])
    _, one = turn.authorize([again], claims=claims(["write"]))
    turn = turns.open()
    turn.record_calls([again], [outcome(again)])
    check_witnesses(turns, one, turn.finish())
    assert rows(one, "toolResults")["s1/1"]["error"]["errorCode"] == "operator"


def test_a_turn_whose_gate_stays_shut_can_still_be_finished() -> None:
    turns = Turns(terms("read", "write"))
    turn = turns.open()
    turn.admit()
    run_tier_0(turn, call("read", 1))
    write = call("write", 2)
    with pytest.raises(GateRefused):
        turn.authorize([write], claims=claims([]))
    witness = turn.finish()
    check_witnesses(turns, witness)
    assert turns.authorised == {}
    with pytest.raises(RuntimeError):
        turn.finish()
    with pytest.raises(RuntimeError):
        turn.admit()
