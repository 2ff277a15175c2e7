"""What must not happen does not: the gate stays shut, and says which class keeps it so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from manglecp.harness import TurnState
from manglecp.harness.policy import package_of
from manglecp.invoke.evidence import BASE_CLAIM
from manglecp.invoke.gate import GateRefused, Resumption, Turn, Turns
from manglecp.pack import default_governance
from tests.invoke.turns import ACTIONS, action, call, changed, claims, outcome, run_tier_0, terms


def refusal(step: Callable[[], Any]) -> tuple[TurnState, tuple[str, ...]]:
    with pytest.raises(GateRefused) as refused:
        step()
    assert refused.value.classes == tuple(sorted({finding.failure.name for finding in refused.value.findings}))
    return refused.value.state, refused.value.classes


def admitted(turns: Turns, **how: Any) -> Turn:
    turn = turns.open(**how)
    turn.admit()
    return turn


# --- before anything runs ------------------------------------------------------------------------------------------


@pytest.mark.req("FAIL-03")
def test_a_read_outside_of_the_stored_chain_is_not_permitted() -> None:
    turns = Turns(terms("read"))
    turn = admitted(turns)
    assert refusal(lambda: turn.request([call("look", 1)])) == (
        TurnState.TOOL_REQUESTS,
        ("tool.unknown_or_disallowed",),
    )
    run_tier_0(turn, call("read", 1))  # what was refused leaves no trace
    assert turn.finish()["result"] == "accepted"


@pytest.mark.req("FAIL-03")
def test_an_effect_outside_of_the_stored_chain_is_not_authorised() -> None:
    turn = admitted(Turns(terms("read", "write")))
    effect = call("send", 1)
    found = refusal(lambda: turn.authorize([effect], claims=claims(["write", "send"])))
    assert found == (TurnState.TOOL_REQUESTS, ("tool.unknown_or_disallowed",))


@pytest.mark.req("FAIL-02")
def test_an_action_under_another_schema_is_not_called() -> None:
    turn = admitted(Turns(terms("read")))
    other = replace(ACTIONS["read"], input_schema={"type": "object"})
    found = refusal(lambda: turn.request([call("read", 1, described=other)]))
    assert found == (TurnState.TOOL_REQUESTS, ("tool.schema_invalid",))


def test_an_effect_is_never_requested_like_a_read() -> None:
    turn = admitted(Turns(terms("write")))
    with pytest.raises(ValueError, match="needs an authorisation"):
        turn.request([call("write", 1)])
    with pytest.raises(ValueError, match="no calls to authorise"):
        turn.authorize([], claims=claims([]))


@pytest.mark.req("FAIL-35")
@pytest.mark.parametrize("said", ["high", "moderate", "low"])
def test_the_highest_tier_needs_an_approval(said: str) -> None:
    """Whoever says that the chain is harmless does not make it so."""
    turns = Turns(terms("destroy", risk_tier=said))
    assert refusal(turns.open) == (TurnState.CALL_SPEC, ("governance.risk_tier_profile_missing",))


def test_a_package_cannot_do_without_the_approval() -> None:
    lax = changed(default_governance(), risk_tiers={"tiers": {"high": {"controlProfileRef": "controls://none"}}})
    turns = Turns(terms("destroy", package=lax))
    assert refusal(turns.open) == (TurnState.CALL_SPEC, ("governance.risk_tier_profile_missing",))


def test_a_checkpoint_of_the_package_is_met_by_an_approval() -> None:
    package = changed(default_governance(), stop={"requireCheckpoint": True})
    write = call("write", 1)
    turn = admitted(Turns(terms("write", package=package)))
    found = refusal(lambda: turn.authorize([write], claims=claims(["write"])))
    assert found == (TurnState.JOIN_CLOSED, ("protocol.stop_reason_unhandled",))
    admitted(Turns(terms("write", package=package, approval="confirm:n1"))).authorize([write], claims=claims(["write"]))


def test_a_package_without_a_mode_of_observability_opens_nothing() -> None:
    contents = {kind: content for kind, content in default_governance().contents.items() if kind != "observability"}
    package = package_of({"name": "lax", "version": "1"}, contents | {"governance": {"claimed": False}})
    assert refusal(Turns(terms("read", package=package)).open)[1] == ("governance.trace_mode_violation",)


def test_a_tier_that_is_none_opens_nothing() -> None:
    classes = refusal(Turns(terms("read", risk_tier="harmless")).open)[1]
    assert classes == ("governance.risk_tier_profile_missing",)


# --- policies ------------------------------------------------------------------------------------------------------


@pytest.mark.req("FAIL-24", "FAIL-25")
def test_a_package_that_is_not_pinned_opens_nothing() -> None:
    unpinned = refusal(Turns(terms("read", pinned=None)).open)
    assert unpinned == (TurnState.CALL_SPEC, ("governance.policy_package_unpinned",))
    other = refusal(Turns(terms("read", pinned="sha256:" + "9" * 64)).open)
    assert other == (TurnState.CALL_SPEC, ("governance.policy_package_mismatch",))


def test_nothing_is_authorised_under_a_package_that_only_observes() -> None:
    package = changed(default_governance(), mutation={"mode": "observe_only"})
    turn = admitted(Turns(terms("write", package=package)))
    found = refusal(lambda: turn.authorize([call("write", 1)], claims=claims(["write"])))
    assert found == (TurnState.MUTATION_READY, ("mutation.policy_digest_mismatch",))


def test_what_the_package_says_of_tools_is_heeded() -> None:
    tools = [{"toolName": one.aid, "inputSchema": dict(one.input_schema)} for one in ACTIONS.values()]
    barred = [{**tool, "allowed": tool["toolName"] != "desk.look"} for tool in tools]
    package = changed(default_governance(), tools={"catalogId": "desk", "tools": barred})
    turn = admitted(Turns(terms("read", "look", package=package)))
    run_tier_0(turn, call("read", 1))
    assert refusal(lambda: turn.request([call("look", 2)]))[1] == ("tool.unknown_or_disallowed",)
    package = changed(default_governance(), callers={"tools": {"desk.look": ["code_execution"]}})
    turn = admitted(Turns(terms("read", "look", package=package)))
    assert refusal(lambda: turn.request([call("look", 2)]))[1] == ("tool.caller_not_allowed",)


# --- claims --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [claims([]), claims(["send"]), claims(["write"])[1:]], ids=["base", "other", "no base"]
)
@pytest.mark.req("FAIL-41")
def test_an_effect_that_is_denied_has_no_claim_and_no_gate(given: list[str]) -> None:
    turn = admitted(Turns(terms("write", "send")))
    found = refusal(lambda: turn.authorize([call("write", 1)], claims=given))
    assert found == (TurnState.MUTATION_READY, ("mutation.capability_claim_missing",))


def test_every_effect_of_a_group_needs_its_claim() -> None:
    turn = admitted(Turns(terms("write", "send", pattern="parallel")))
    both = [call("write", 1), call("send", 2)]
    found = refusal(lambda: turn.authorize(both, claims=claims(["write"])))
    assert found == (TurnState.MUTATION_READY, ("mutation.capability_claim_missing",))
    turn.authorize(both, claims=claims(["write", "send"]))


def test_a_claim_of_the_package_s_own_is_demanded_too() -> None:
    package = changed(default_governance(), mutation={"requiredCapabilityClaims": ["capabilities.desk"]})
    turn = admitted(Turns(terms("write", package=package)))
    found = refusal(lambda: turn.authorize([call("write", 1)], claims=claims(["write"])))
    assert found == (TurnState.MUTATION_READY, ("mutation.capability_claim_missing",))
    turn.authorize([call("write", 1)], claims=[*claims(["write"]), "capabilities.desk"])
    assert BASE_CLAIM in claims([])


# --- evidence ------------------------------------------------------------------------------------------------------


@pytest.mark.req("FAIL-08", "FAIL-10")
def test_a_call_without_a_result_leaves_the_turn_open() -> None:
    turns = Turns(terms("read", "write"))
    turn = admitted(turns)
    turn.request([call("read", 1)])
    missing = ("tool.join_incomplete", "tool.result_missing")
    assert refusal(lambda: turn.authorize([call("write", 2)], claims=claims(["write"]))) == (
        TurnState.JOIN_CLOSED,
        missing,
    )
    assert refusal(turn.finish) == (TurnState.JOIN_CLOSED, missing)
    turn.record_outcomes([outcome(call("read", 1))])
    assert turn.finish()["result"] == "accepted"


def test_a_branch_without_a_result_leaves_the_turn_open() -> None:
    turn = admitted(Turns(terms("read", pattern="parallel")), parallel=True)
    both = [call("read", 1), call("read", 2)]
    turn.request(both)
    turn.record_outcomes([outcome(both[0])])
    with pytest.raises(GateRefused) as refused:
        turn.finish()
    assert refused.value.classes == ("tool.join_incomplete", "tool.result_missing")
    assert {finding.where for finding in refused.value.findings} == {"toolRequests/run-7~1s2~11", "branchJoins/s2"}


@pytest.mark.req("FAIL-09")
def test_an_answer_that_nobody_asked_for_leaves_the_turn_open() -> None:
    turn = admitted(Turns(terms("read")))
    turn.record_outcomes([outcome(call("read", 1))])
    assert refusal(turn.finish) == (TurnState.JOIN_CLOSED, ("tool.join_incomplete", "tool.result_orphan"))


def test_two_answers_to_one_call_say_nothing() -> None:
    turn = admitted(Turns(terms("read")))
    read = call("read", 1)
    turn.request([read])
    turn.record_outcomes([outcome(read), outcome(read, "failed", "crash")])
    with pytest.raises(GateRefused, match="another row under") as refused:
        turn.finish()
    assert refused.value.classes == ()


def test_what_was_authorised_is_owed_a_result() -> None:
    turns = Turns(terms("write"))
    turn = admitted(turns)
    turn.authorize([call("write", 1)], claims=claims(["write"]))
    turn = turns.open()
    assert refusal(turn.finish)[1] == ("tool.join_incomplete", "tool.result_missing")
    turn.record_calls([call("write", 1)], [outcome(call("write", 1))])
    assert turn.finish()["result"] == "accepted"


def test_an_effect_that_no_gate_opened_for_is_never_part_of_a_closed_turn() -> None:
    turns = Turns(terms("write"))
    turn = admitted(turns)
    write = call("write", 1)
    turn.record_calls([write], [outcome(write)])
    assert refusal(turn.finish)[1] == ("tool.unknown_or_disallowed",)

    turns = Turns(terms("write"))
    admitted(turns).authorize([write], claims=claims(["write"]))
    turn = turns.open()
    turn.record_calls([write], [outcome(write)])
    turn.record_calls([other := call("write", 2)], [outcome(other)])
    assert refusal(turn.finish)[1] == ("tool.unknown_or_disallowed",)

    turns = Turns(terms("write"))
    admitted(turns).authorize([write], claims=claims(["write"]))
    turn = turns.open()
    other = msgspec.structs.replace(write, input_digest="sha256:" + "5" * 64)  # not what was authorised
    turn.record_calls([other], [outcome(write)])
    assert refusal(turn.finish)[1] == ("tool.unknown_or_disallowed",)


@pytest.mark.req("FAIL-42")
def test_what_arguments_come_from_has_to_be_there() -> None:
    turn = admitted(Turns(terms("write")))
    found = refusal(lambda: turn.authorize([call("write", 2, sources=(1,))], claims=claims(["write"])))
    assert found == (TurnState.MUTATION_READY, ("mutation.use_evidence_missing",))


def test_nothing_is_authorised_that_nobody_admitted() -> None:
    turn = Turns(terms("write")).open()
    found = refusal(lambda: turn.authorize([call("write", 1)], claims=claims(["write"])))
    assert found == (TurnState.MUTATION_READY, ("mutation.use_evidence_missing",))


# --- order and width -----------------------------------------------------------------------------------------------


@pytest.mark.req("FAIL-18")
def test_calls_do_not_run_side_by_side_in_a_turn_that_is_said_to_be_sequential() -> None:
    turn = admitted(Turns(terms("read", pattern="parallel")))
    both = [call("read", 1), call("read", 2)]
    turn.request(both)
    turn.record_outcomes([outcome(one) for one in both])
    assert refusal(turn.finish) == (TurnState.JOIN_CLOSED, ("protocol.parallel_transport_order_invalid",))


@pytest.mark.req("FAIL-18")
def test_answers_out_of_order_are_told_where_the_package_is_strict() -> None:
    strict = changed(default_governance(), transport={"ordering": "strict"})
    for order, refused in ((1, False), (-1, True)):
        turn = admitted(Turns(terms("read", package=strict, pattern="parallel")), parallel=True)
        both = [call("read", 1), call("read", 2)]
        turn.request(both)
        turn.record_outcomes([outcome(one) for one in both[::order]])
        if refused:
            assert refusal(turn.finish)[1] == ("protocol.parallel_transport_order_invalid",)
        else:
            turn.finish()


@pytest.mark.req("FAIL-23")
def test_what_is_said_to_be_a_chain_does_not_split() -> None:
    found = (TurnState.TOOL_REQUESTS, ("coordination.decomposition_policy_violation",))
    turn = admitted(Turns(terms("read", "write", pattern="chain")), parallel=True)
    assert refusal(lambda: turn.request([call("read", 1), call("read", 2)])) == found
    effects = [call("write", 1), call("write", 2)]
    assert refusal(lambda: turn.authorize(effects, claims=claims(["write"]))) == found


@pytest.mark.req("FAIL-14")
def test_no_effect_is_authorised_that_the_next_turn_could_not_hold() -> None:
    narrow = changed(default_governance(), parallel={"maxBranches": 2})
    turn = admitted(Turns(terms("write", package=narrow, pattern="parallel")))
    three = [call("write", number) for number in (1, 2, 3)]
    found = refusal(lambda: turn.authorize(three, claims=claims(["write"])))
    assert found == (TurnState.TOOL_REQUESTS, ("tool.parallel_policy_violation",))
    turn.authorize(three[:2], claims=claims(["write"]))


@pytest.mark.req("HARN-42", "FAIL-17")
def test_a_run_does_not_go_on_for_ever() -> None:
    turns = Turns(terms("put", spare_turns=0))
    used = tuple(f"jw1_{number:064}" for number in range(turns.terms.chain.max_turns - 1))
    turn = admitted(turns, resumed=Resumption(fence=9, witnesses=used))
    found = refusal(lambda: turn.authorize([call("put", 1)], claims=claims(["put"])))
    assert found == (TurnState.JOIN_CLOSED, ("protocol.stop_reason_unhandled",))
    assert turn.finish(paused=True)["result"] == "accepted"


def test_another_action_of_the_same_name_is_another_chain() -> None:
    """What is remembered of a chain is not taken for what is loaded now."""
    Turns(terms("read"))
    other = replace(action("read"), input_schema={"type": "object", "title": "changed"})
    turn = admitted(Turns(terms("read", actions={"read": other})))
    turn.request([call("read", 1, described=other)])
    assert refusal(lambda: turn.request([call("read", 2)]))[1] == ("tool.schema_invalid",)
