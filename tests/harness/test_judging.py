from __future__ import annotations

import copy
from types import CodeType, FunctionType
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.harness.checks import CHECKS, CHECKS_UPTO
from manglecp.harness.classes import CLASSES, FailClass, TurnState, sort_findings
from manglecp.harness.judgement import find_blocking, judge
from manglecp.harness.readers import InvalidEvidence
from manglecp.harness.turn import read_turn
from tests.harness.evidence import MUTATION, VECTORS, changed, judged, open_findings, turn


@pytest.mark.req("HARN-01", "HARN-76")
def test_join_and_mutation_follow_from_what_the_classes_block() -> None:
    for vector in VECTORS.values():
        found = judge(vector["input"])
        blocked = {CLASSES[name].blocks for name in found.failure_classes}
        assert found.join_closed is all(state is TurnState.MUTATION_READY for state in blocked)
        assert found.mutation_ready <= found.join_closed


def test_the_answer_of_the_command() -> None:
    found = judged(changed(turn(), MUTATION))
    assert found.as_json() == {
        "result": "accepted",
        "failureClasses": [],
        "joinClosed": True,
        "mutationReady": True,
        "digests": found.digests,
        "witnessId": found.witness_id,
        "findings": [],
    }


def until(*names: str) -> dict[str, Any]:
    document = turn()
    kept = {"callSpec", *names}
    document["evidence"] = {name: rows for name, rows in document["evidence"].items() if name in kept}
    return document


@pytest.mark.req("HARN-01", "HARN-50")
def test_a_turn_under_way_owes_nothing_of_later_states() -> None:
    assert not open_findings(until(), TurnState.CALL_SPEC)
    assert not open_findings(until("toolRequests"), TurnState.TOOL_REQUESTS)
    assert not open_findings(until("toolRequests", "toolResults"), TurnState.TOOL_RESULTS)
    assert not open_findings(until("toolRequests", "toolResults", "toolUse"), TurnState.TOOL_USE)


def test_branches_may_still_come() -> None:
    """Until the turn has ended there can be too many of them, and not too few."""
    under_way = until("toolRequests")
    expected = "evidence.callSpec.parallelPolicy.expectedBranches"
    assert not open_findings(changed(under_way, {expected: 2}), TurnState.TOOL_REQUESTS)
    assert not open_findings(changed(under_way, {expected: 1}), TurnState.TOOL_REQUESTS)
    assert open_findings(changed(under_way, {expected: 0}), TurnState.TOOL_REQUESTS)
    assert judged(turn(), {expected: 2}).failure_classes == ("tool.parallel_policy_violation",)


def test_a_stop_policy_waits_for_the_stop() -> None:
    stop = {"evidence.callSpec.stopPolicy": {"maxTurns": 0, "requireCheckpoint": True}}
    assert not open_findings(changed(until("toolRequests"), stop), TurnState.TOOL_USE)


@pytest.mark.parametrize(
    ("state", "changes", "names"),
    [
        (TurnState.CALL_SPEC, {"evidence.callSpec.riskTier": "x"}, ["governance.risk_tier_profile_missing"]),
        (TurnState.CALL_SPEC, {"evidence.callSpec.actionMode": "x"}, []),
        (TurnState.TOOL_REQUESTS, {"evidence.callSpec.actionMode": "x"}, ["tool.schema_invalid"]),
        (TurnState.TOOL_REQUESTS, {"toolConstraints.allowedTools": []}, ["tool.unknown_or_disallowed"]),
        (TurnState.TOOL_REQUESTS, {"evidence.toolResults": [{"toolCallId": "z"}]}, []),
    ],
)
def test_what_blocks_a_state_blocks_it_early(state: TurnState, changes: dict[str, Any], names: list[str]) -> None:
    found = open_findings(changed(until("toolRequests"), changes), state)
    assert [finding.failure.name for finding in found] == names


def test_a_turn_that_ended_says_how() -> None:
    with pytest.raises(InvalidEvidence) as caught:
        judge(until("toolRequests"))
    assert caught.value.path == "/evidence/protocolState"


@given(st.sampled_from(sorted(VECTORS)), st.sampled_from(TurnState), st.data())
def test_a_state_is_judged_by_all_that_could_block_it(name: str, state: TurnState, data: st.DataObject) -> None:
    """Checks that have nothing to say about a state are not asked. Asking all of them would find the same."""
    document = copy.deepcopy(VECTORS[name]["input"])
    evidence = document["evidence"]
    for part in data.draw(st.sets(st.sampled_from(sorted(evidence.keys() - {"callSpec"})), max_size=3)):
        del evidence[part]
    read = read_turn(document, under_way=True)
    everything = [finding for check in CHECKS for finding in check(read) if finding.failure.blocks <= state]
    assert find_blocking(read, state) == sort_findings(everything, read.call.call_id, None)


def classes_of(check: FunctionType, seen: set[FunctionType]) -> set[FailClass]:
    """The classes that a check names, itself or by way of functions of its module."""
    seen.add(check)
    codes, found = [check.__code__], set()
    while codes:
        code = codes.pop()
        codes += [const for const in code.co_consts if isinstance(const, CodeType)]
        for name in code.co_names:
            named = check.__globals__.get(name)
            if isinstance(named, FailClass):
                found.add(named)
            elif isinstance(named, FunctionType) and named.__module__ == check.__module__ and named not in seen:
                found |= classes_of(named, seen)
    return found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_check_is_asked_as_soon_as_one_of_its_classes_blocks(check: FunctionType) -> None:
    """Whatever the vectors bring about: the classes that stand in a check are none of earlier states."""
    asked = min(state for state in TurnState if check in CHECKS_UPTO[state])
    assert all(asked <= failure.blocks for failure in classes_of(check, set()))
