"""The typestate: each state only from the one before it, a right only once."""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.classes import CLASSES, TurnState
from manglecp.harness.judgement import judge_turn
from manglecp.harness.readers import InvalidEvidence
from manglecp.harness.states import (
    CallSpec,
    ForgedState,
    JoinClosed,
    MutationReady,
    ToolRequests,
    ToolResults,
    ToolUse,
    TurnBlocked,
    WrongMutation,
    redeem,
    redeem_call,
    replay_turn,
)
from manglecp.harness.turn import TurnBuilder

VECTORS: Final = Path(__file__).parents[1] / "conformance" / "harness"
TYPES: Final = (CallSpec, ToolRequests, ToolResults, ToolUse, JoinClosed, MutationReady)


def vector(name: str) -> dict[str, Any]:
    (path,) = VECTORS.glob(f"{name}-*.json")
    document: dict[str, Any] = json.loads(path.read_text())["input"]
    return document


def walk(document: dict[str, Any]) -> list[Any]:
    """Every state of a turn, in order."""
    constraints = {name: value for name, value in document.items() if name != "evidence"}
    evidence = dict(document["evidence"])
    spec, protocol, mutation = evidence.pop("callSpec"), evidence.pop("protocolState"), evidence.pop("mutation", None)
    rows = [evidence.pop(name, []) for name in ("toolRequests", "toolResults", "toolUse")]
    opened = CallSpec.open(spec, constraints)
    requested = opened.request(rows[0])
    answered = requested.answer(rows[1])
    used = answered.use(rows[2])
    ready = used.close(protocol, evidence).authorize(mutation)
    return [opened, requested, answered, used, used.close(protocol, evidence), ready]


@pytest.fixture
def states() -> list[Any]:
    return walk(vector("017"))


@pytest.mark.req("HARN-01", "HARN-03")
def test_a_turn_goes_through_six_states(states: list[Any]) -> None:
    assert [type(state) for state in states] == list(TYPES)
    assert [state.title for state in TurnState] == [kind.__name__ for kind in TYPES]
    assert states[-1].judgement.mutation_ready
    assert states[-2].judgement.join_closed


@pytest.mark.req("HARN-02")
@pytest.mark.parametrize("kind", TYPES)
def test_no_state_is_made_by_hand(kind: type[Any]) -> None:
    with pytest.raises(ForgedState, match=f"{kind.__name__} is issued by the step before it"):
        kind()
    with pytest.raises(TypeError, match="cannot be subclassed"):
        type("Mine", (kind,), {})


@pytest.mark.req("HARN-02")
@pytest.mark.parametrize("number", range(6))
def test_no_state_is_copied_or_changed(number: int, states: list[Any]) -> None:
    state = states[number]
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="can be neither copied nor pickled"):
            copying(state)
    with pytest.raises(TypeError):
        dataclasses.replace(state)
    with pytest.raises(AttributeError, match="does not change"):
        state._credential = None
    with pytest.raises(AttributeError, match="does not change"):
        del state._credential


@pytest.mark.req("HARN-02")
@pytest.mark.parametrize("kind", TYPES)
def test_a_forged_state_is_refused_by_everyone(kind: type[Any]) -> None:
    forged = object.__new__(kind)
    steps: dict[type[Any], Callable[[], object]] = {
        CallSpec: lambda: forged.request(),
        ToolRequests: lambda: forged.answer(),
        ToolResults: lambda: forged.use(),
        ToolUse: lambda: forged.close({"stopReason": "end_turn"}),
        JoinClosed: lambda: forged.authorize(),
        MutationReady: lambda: redeem(forged, "issue", "issue.update"),
    }
    with pytest.raises(ForgedState, match=f"not a {kind.__name__} that a turn has reached"):
        steps[kind]()


@pytest.mark.req("HARN-02")
def test_the_credential_of_another_instance_is_no_right(states: list[Any]) -> None:
    forged = object.__new__(MutationReady)
    object.__setattr__(forged, "_credential", states[-1]._credential)
    with pytest.raises(ForgedState):
        redeem(forged, "issue", "issue.update")
    with pytest.raises(ForgedState):
        _ = forged.judgement


def test_a_state_cannot_pass_for_a_later_one(states: list[Any]) -> None:
    for state in states[:-1]:
        object.__setattr__(state, "__class__", MutationReady)
        with pytest.raises(ForgedState):
            redeem(state, "issue", "issue.update")
        with pytest.raises(ForgedState):
            _ = state.judgement


def test_what_was_judged_does_not_change(states: list[Any]) -> None:
    judgement = states[-1].judgement
    with pytest.raises(AttributeError):
        judgement.turn.evidence = None
    with pytest.raises(AttributeError):
        judgement.turn.evidence.mutation.action = "issue.close"
    with pytest.raises(TypeError):
        judgement.digests["joinSetDigest"] = "another"
    with pytest.raises(AttributeError):
        judgement.findings = ()


def test_a_turn_authorises_one_mutation() -> None:
    closed = walk_to_close(vector("017"))
    mutation = vector("017")["evidence"]["mutation"]
    closed.authorize(mutation)
    with pytest.raises(ForgedState):
        closed.authorize({**mutation, "action": "issue.close"})


def test_who_judges_can_only_demand_more() -> None:
    document = vector("017")
    document["mutationConstraints"]["requiredCapabilityClaims"] = ["capabilities.never"]
    closed = walk_to_close(document)
    active = {"activePolicyDigest": document["mutationConstraints"]["activePolicyDigest"]}
    for demanded in ([], ["capabilities.change_morphisms"]):
        with pytest.raises(TurnBlocked, match=r"mutation\.capability_claim_missing"):
            closed.authorize(document["evidence"]["mutation"], {**active, "requiredCapabilityClaims": demanded})


@pytest.mark.req("HARN-02")
def test_another_state_is_no_right(states: list[Any]) -> None:
    for state in (*states[:-1], object(), None, {"mutation_ready": True}):
        with pytest.raises(ForgedState):
            redeem(state, "issue", "issue.update")


def test_a_right_is_spent_once(states: list[Any]) -> None:
    ready = states[-1]
    kind, action = "issue", "issue.update"
    with pytest.raises(WrongMutation, match="the turn authorises"):
        redeem(ready, kind, "issue.close")
    with pytest.raises(WrongMutation):
        redeem(ready, "dependency", action)
    assert redeem(ready, kind, action).mutation_ready
    with pytest.raises(ForgedState):
        redeem(ready, kind, action)
    with pytest.raises(ForgedState):
        _ = ready.judgement


def test_of_many_threads_one_spends_the_right(states: list[Any]) -> None:
    ready = states[-1]
    kind, action = "issue", "issue.update"
    spent: list[bool] = []

    def spend() -> None:
        try:
            redeem(ready, kind, action)
        except ForgedState:
            spent.append(False)
        else:
            spent.append(True)

    threads = [threading.Thread(target=spend) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spent.count(True) == 1


def test_a_new_object_does_not_inherit_an_old_place() -> None:
    """Instances are known themselves, not by where they lie in memory."""
    for _ in range(200):
        walk(vector("017"))
    gc.collect()
    for _ in range(200):
        with pytest.raises(ForgedState):
            redeem(object.__new__(MutationReady), "issue", "issue.update")


@pytest.mark.req("HARN-65", "HARN-74", "HARN-76")
@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("067", TurnState.TOOL_REQUESTS),  # fan-out that the policy forbids
        ("083", TurnState.TOOL_RESULTS),  # a shell outside of its root
        ("061", TurnState.JOIN_CLOSED),  # a result that nobody accounted for
        ("137", TurnState.MUTATION_READY),  # another policy than the active one
    ],
)
def test_a_class_stops_the_turn_at_its_place(name: str, state: TurnState) -> None:
    with pytest.raises(TurnBlocked) as caught:
        walk(vector(name))
    assert caught.value.state is state
    assert caught.value.findings
    for finding in caught.value.findings:
        assert finding.failure is CLASSES[finding.failure.name]
        assert finding.failure.blocks <= state
        assert finding.failure.name in str(caught.value)


def test_every_vector_reaches_what_its_verdict_says() -> None:
    """The states and the verdict over the whole document are of one mind."""
    for path in sorted(VECTORS.glob("*.json")):
        case = json.loads(path.read_text())
        blocked_at: TurnState | None = None
        try:
            replay_turn(case["input"])
        except TurnBlocked as blocked:
            blocked_at = blocked.state
        assert (blocked_at is None) == case["expect"]["mutation_ready"], path.name
        if case["expect"]["join_closed"]:
            assert blocked_at in (None, TurnState.MUTATION_READY), path.name


def walk_to_close(document: dict[str, Any]) -> JoinClosed:
    without = {**document, "evidence": {k: v for k, v in document["evidence"].items() if k != "mutation"}}
    with pytest.raises(TurnBlocked) as caught:
        walk(without)
    assert caught.value.state is TurnState.MUTATION_READY, "a turn without an intent may change nothing"
    evidence = dict(without["evidence"])
    spec, protocol = evidence.pop("callSpec"), evidence.pop("protocolState")
    rows = [evidence.pop(name, []) for name in ("toolRequests", "toolResults", "toolUse")]
    constraints = {name: value for name, value in document.items() if name != "evidence"}
    return CallSpec.open(spec, constraints).request(rows[0]).answer(rows[1]).use(rows[2]).close(protocol, evidence)


def test_a_document_that_was_kept_can_be_walked_again() -> None:
    assert replay_turn(vector("017")).judgement.mutation_ready


SKIPS: Final = """
from manglecp.harness.states import CallSpec, JoinClosed, MutationReady, redeem

def close(issue: str, ready: MutationReady) -> None:
    redeem(ready, "issue", "issue.close")

def main(spec: CallSpec, closed: JoinClosed) -> None:
    close("1", closed.authorize())
    close("1", closed)
    close("1", spec)
    spec.answer([])
    closed.close({})
"""


def test_a_type_checker_refuses_what_skips_a_state(tmp_path: Path) -> None:
    file = tmp_path / "skips.py"
    file.write_text(SKIPS)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(tmp_path),
        "--follow-imports=silent",
        str(file),
    ]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    refused = sorted(int(line.split(":")[1]) for line in run.stdout.splitlines() if ": error:" in line)
    assert refused == [9, 10, 11, 12], run.stdout


def _opened_as(path: Path, call_id: str, *, of_another: bool) -> object:
    """The rows and the verdict of a turn under this id, or what kept it from being opened."""
    document = json.loads(path.read_text())["input"]
    beside = {name: value for name, value in document.items() if name != "evidence"}
    evidence = dict(document["evidence"])
    spec = evidence.pop("callSpec")
    try:
        if of_another:
            builder = TurnBuilder.open(spec, beside).with_call_id(call_id)
        else:
            builder = TurnBuilder.open({**spec, "callId": call_id}, beside)
        CallSpec.of(builder)
    except TurnBlocked as blocked:
        return [(finding.failure, finding.where, finding.message) for finding in blocked.findings]
    judgement = judge_turn(builder.with_evidence(evidence).turn)
    return judgement.normalized, judgement.as_json()


def test_what_is_said_twice_at_the_end_is_all_judged() -> None:
    """A decision that belongs to the results is not lost where there are others that belong to the end."""
    document = vector("017")
    evidence = document["evidence"]
    blocked = [{"stage": "pre_flight", "sequence": 0, "outcome": "block"}]
    passed = [{"stage": "output", "sequence": 1, "outcome": "pass"}]
    shown = {name: evidence[name] for name in ("toolRender", "reminderQueue", "stateViews") if name in evidence}
    state = CallSpec.open(evidence["callSpec"]).request(evidence["toolRequests"])

    def close(found: list[dict[str, Any]], others: list[dict[str, Any]]) -> JoinClosed:
        answered = state.answer(evidence["toolResults"], {"guardrailDecisions": found})
        used = answered.use(evidence["toolUse"])
        return used.close(evidence["protocolState"], {**shown, "guardrailDecisions": others})

    assert close([], passed).judgement.join_closed
    for found, others in ((blocked, passed), (passed, blocked)):
        with pytest.raises(TurnBlocked):
            close(found, others)


def test_a_turn_keeps_its_call_spec() -> None:
    """What it says of itself is what was judged."""
    evidence = vector("017")["evidence"]
    opened = CallSpec.open(evidence["callSpec"])
    with pytest.raises(InvalidEvidence, match="callSpec"):
        opened.request(evidence["toolRequests"], {"callSpec": {**evidence["callSpec"], "actionMode": "none"}})


def test_a_turn_of_many_is_the_turn_that_is_opened_by_itself() -> None:
    found = [
        (_opened_as(path, " another ", of_another=True), _opened_as(path, " another ", of_another=False))
        for path in sorted(VECTORS.glob("[0-9]*.json"))
        if "protocolState" in json.loads(path.read_text())["input"].get("evidence", {})
    ]
    assert all(of_many == alone for of_many, alone in found)
    assert {type(of_many) for of_many, _ in found} == {tuple, list}, "some are opened and some are blocked"


def test_turns_of_many_share_nothing_that_happens() -> None:
    document = vector("017")
    beside = {name: value for name, value in document.items() if name != "evidence"}
    template = TurnBuilder.open(document["evidence"]["callSpec"], beside)
    one, other = (CallSpec.of(template.with_call_id(name)) for name in ("one", "other"))
    row = {**document["evidence"]["toolRequests"][0], "inputDigest": digest({})}
    requested = one.request([row])
    named = {"call_id": row["toolCallId"], "tool_name": row["toolName"], "input_digest": row["inputDigest"]}
    redeem_call(requested, **named)
    redeem_call(other.request([row]), **named)
    with pytest.raises(ForgedState, match="redeemed already"):
        redeem_call(requested, **named)
    assert template.evidence.call_spec.call_id == document["evidence"]["callSpec"]["callId"]
    for blank in ("", "  "):
        with pytest.raises(InvalidEvidence):
            template.with_call_id(blank)
