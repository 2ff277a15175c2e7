"""The turns of runs that go well: closed without a finding, as many as there are gates and one more."""

from __future__ import annotations

from manglecp.harness.states import MutationReady, ToolRequests
from manglecp.invoke.turns import Reads, Turns
from tests.invoke.turns import ADMISSION, RUN, call, check_witnesses, claims, event, outcome, rows, run_tier_0, terms


def test_a_read_only_chain_is_one_turn() -> None:
    turns = Turns(terms("read", "look"))
    turn = turns.open()
    turn.admit()
    done = run_tier_0(turn, call("read", 1), call("look", 2, sources=(1,)), call("read", 3))
    witness = turn.finish(
        reads=Reads(steps=frozenset({1}), answer=frozenset({3})),
        events=[event(one) for one in done],
        states={1: "done", 2: "done", 3: "done"},
    )
    check_witnesses(turns, witness)
    assert turns.count == 1
    assert witness["joinClosed"] is True
    assert witness["mutationReady"] is False
    uses = rows(witness, "toolUse")
    assert uses["admit/1"]["summaryRef"] == f"admission:{ADMISSION}"
    assert uses["s1/1"]["summaryRef"] == uses["s3/1"]["summaryRef"] == f"response:{RUN}"
    assert uses["s2/1"]["disposition"] == "observed_only"


def test_an_effect_is_the_mutation_of_one_turn_and_a_row_of_the_next() -> None:
    turns = Turns(terms("read", "write"))
    read, write = call("read", 1), call("write", 2, sources=(1,))
    first = turns.open()
    first.admit()
    permit = first.request([read])
    assert isinstance(permit, ToolRequests)
    assert permit.permits(read.call_id, read.action.aid, read.input_digest)
    first.answer([outcome(read)])
    ready, authorised = first.authorize([write], claims=claims(["write"]), states={1: "done", 2: "waiting"})
    assert isinstance(ready, MutationReady)
    assert ready.permits(write.call_id, write.action.aid, write.input_digest)
    assert write.call_id not in {row["toolCallId"] for row in authorised["turn"]["evidence"]["toolRequests"]}

    second = turns.open()
    second.effects([write], [outcome(write)])
    last = second.finish(reads=Reads(answer=frozenset({2})), states={1: "done", 2: "done"})
    check_witnesses(turns, authorised, last)
    assert turns.count == turns.terms.gates + 1
    assert rows(last, "toolUse")["s2/1"]["disposition"] == "consumed"
    intent = authorised["turn"]["evidence"]["mutation"]
    assert intent["inputRefs"] == [f"admission:{ADMISSION}", f"run://{RUN}/s1"]
