"""The loop of an agent: evidence as it happens, turns that close or say why not, rows that cannot be changed."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp import harness
from manglecp.base.digest import digest_text
from manglecp.harness.classes import NextStep
from manglecp.harness.policy import PolicyPackage, package_of
from manglecp.harness.sessions import AgentSession, OpenTurn, StepRefused, handoff_packet, verify_trajectory
from manglecp.harness.states import TurnBlocked, redeem
from tests.harness.policy.packages import careful

MUTATION = {
    "kind": "issue",
    "action": "issue.update",
    "instructionRef": "instructions/1.json",
    "inputRefs": ["note://1"],
    "capabilityClaims": ["capabilities.change_morphisms", "capabilities.change_morphisms.issue_update"],
}


@pytest.fixture
def policy() -> PolicyPackage:
    return careful()


def opened(policy: PolicyPackage, journal: list[Any] | None = None, **more: Any) -> AgentSession:
    rows: list[Any] = [] if journal is None else journal
    return AgentSession(policy, "s-1", model_ref="atlas@7", journal=rows, pinned=policy.digest, **more)


def guard(turn: OpenTurn, *stages: str) -> None:
    passed = {"guardrailId": "g", "triggered": False, "outcome": "pass"}
    order = ("pre_flight", "input", "output")
    turn.add("guardrailDecisions", *({**passed, "stage": s, "sequence": order.index(s)} for s in stages))


def grep(turn: OpenTurn, call: str = "c1") -> dict[str, Any]:
    examples = turn.session.terms["toolConstraints"]["exampleDigests"]["repo.grep"]
    return {"toolCallId": call, "toolName": "repo.grep", "input": {"pattern": "x"}, "exampleDigest": examples}


def search(turn: OpenTurn, call: str = "c1") -> None:
    """One call from beginning to end."""
    guard(turn, "pre_flight", "input")
    turn.request(grep(turn, call))
    turn.answer(
        {"toolCallId": call, "status": "ok", "payload": {"hits": 3}, "provenance": {"kind": "api", "ref": "grep://1"}}
    )
    guard(turn, "output")
    turn.render(call, {"hits": 3}, "3 hits")
    turn.use({"toolCallId": call, "useDisposition": "consumed", "mutationInputRef": "note://1"})
    turn.view("open-work", {"open": 1}, ["issues://events"])
    turn.queue("reminders", ["3 hits"])


def test_a_turn_from_request_to_right(policy: PolicyPackage) -> None:
    journal: list[Any] = []

    with opened(policy, journal) as s:
        turn = s.turn(prompt_digest=digest_text("find x"))
        search(turn)
        ready = turn.close("tool_use").authorize(MUTATION)
    evidence = ready.document["evidence"]
    assert evidence["sessionRefs"] == ["session://s-1"]
    assert evidence["trajectoryRefs"] == ["trajectory://s-1/1"]
    assert redeem(ready, "issue", "issue.update").mutation_ready
    assert [row["kind"] for row in journal] == ["session.start", "turn", "session.stop"]
    assert journal[1]["closed"] is True
    assert journal[1]["ref"] == "trajectory://s-1/1"
    assert journal[1]["witnessId"].startswith("jw1_")
    assert verify_trajectory(journal) == []
    assert "hits" not in str(journal), "payloads stay out of the trajectory"


@pytest.mark.req("HARN-50", "FAIL-03")
def test_what_may_not_run_is_refused_before_it_runs(policy: PolicyPackage) -> None:
    with opened(policy) as s:
        turn = s.turn()
        with pytest.raises(TurnBlocked, match=r"tool\.unknown_or_disallowed"):
            turn.request({"toolCallId": "c1", "toolName": "repo.force_push"})


@pytest.mark.req("HARN-46", "FAIL-02")
def test_arguments_are_checked_before_the_call_runs(policy: PolicyPackage) -> None:
    with opened(policy) as s, pytest.raises(TurnBlocked, match=r"tool\.schema_invalid"):
        s.turn().request({"toolCallId": "c1", "toolName": "repo.grep", "input": {}})


@pytest.mark.req("FAIL-11")
def test_missing_evidence_can_be_brought(policy: PolicyPackage) -> None:
    with opened(policy) as s:
        turn = s.turn()
        guard(turn, "pre_flight", "input", "output")
        turn.request(grep(turn))
        turn.answer({"toolCallId": "c1", "status": "ok", "payload": 1, "provenance": {"kind": "api", "ref": "g"}})
        turn.render("c1", 1, "one")
        turn.view("open-work", {})
        turn.queue("reminders", [])
        with pytest.raises(TurnBlocked, match=r"tool\.use_missing"):
            turn.close("tool_use")
        decision = turn.retry()
        assert (decision.next, decision.attempts_left) == (NextStep.SAME_TURN, 1)
        turn.use({"toolCallId": "c1", "useDisposition": "observed_only"})
        assert turn.close("tool_use").judgement.join_closed


def test_a_failed_turn_leaves_its_row_too(policy: PolicyPackage) -> None:
    journal: list[Any] = []
    with opened(policy, journal) as s:
        turn = s.turn()
        guard(turn, "pre_flight")
        turn.request(grep(turn))
        with pytest.raises(TurnBlocked):
            turn.close("tool_use")
    (row,) = [row for row in journal if row["kind"] == "turn"]
    assert row["closed"] is False
    assert "tool.result_missing" in row["failureClasses"]
    with pytest.raises(RuntimeError, match="the turn has ended"):
        turn.use({"toolCallId": "c1", "useDisposition": "observed_only"})


@pytest.mark.req("HARN-42", "HARN-43", "SLICE-07")
def test_the_stop_policy_ends_the_loop(policy: PolicyPackage) -> None:
    with opened(policy) as s:
        turn = s.turn()
        search(turn)
        turn.close("end_turn")
        with pytest.raises(StepRefused, match="continues after end_turn, which must stop it"):
            s.turn()


@pytest.mark.req("SLICE-07")
def test_a_checkpoint_is_due_every_ten_turns(policy: PolicyPackage) -> None:
    with opened(policy) as s:
        for number in range(1, 11):
            turn = s.turn()
            search(turn, f"c{number}")
            turn.close("tool_use")
        with pytest.raises(StepRefused, match="the checkpoint that is due after this turn"):
            s.turn()
        turn.close("tool_use", checkpoint_ref="human://ann")
        assert s.turn().number == 11


@pytest.mark.req("HARN-09")
def test_a_turn_has_a_deterministic_identity(policy: PolicyPackage) -> None:
    with opened(policy) as one, opened(policy) as other:
        assert one.turn().call_spec == other.turn().call_spec


def test_the_model_may_be_named_by_each_turn(policy: PolicyPackage) -> None:
    with harness.AgentSession(policy, "s-1", pinned=policy.digest) as s:
        with pytest.raises(ValueError, match="the model is missing"):
            s.turn()
        assert s.turn({"modelRef": "atlas@8"}).call_spec["modelRef"] == "atlas@8"


def test_the_policy_cannot_be_overridden(policy: PolicyPackage) -> None:
    with opened(policy) as s:
        with pytest.raises(ValueError, match="mutationPolicyDigest is fixed by the policy"):
            s.turn({"mutationPolicyDigest": digest_text("another")})
        assert s.turn({"x-note": 1}).call_spec["x-note"] == 1


@pytest.mark.req("FAIL-24", "SLICE-14")
def test_an_unpinned_package_begins_no_turn(policy: PolicyPackage) -> None:
    with (
        AgentSession(policy, "s-1", model_ref="atlas@7") as s,
        pytest.raises(TurnBlocked, match="policy_package_unpinned"),
    ):
        s.turn()


@pytest.mark.req("HARN-72", "SLICE-12", "SLICE-17")
def test_a_handoff_needs_its_artifacts(policy: PolicyPackage) -> None:
    row = handoff_packet(
        "specialist.code",
        artifact_refs=["artifact://brief"],
        return_path_ref="return://1",
        intent="probe",
        constraints=["read only"],
    )
    with opened(policy, role="orchestrator") as s:
        turn = s.turn()
        with pytest.raises(StepRefused, match=r"handoff\.required_artifact_missing"):
            turn.hand_over(row, lambda _: None)
        search(turn)
        turn.hand_over(row, lambda _: digest_text("brief"))
        assert turn.close("tool_use").judgement.join_closed


@pytest.mark.req("HARN-08")
def test_a_packet_is_normalised_and_has_a_digest() -> None:
    assert handoff_packet("a", artifact_refs=["y", " x", "x"]) == handoff_packet(" a ", artifact_refs=["x", "y"])
    assert handoff_packet("a", intent="b")["packetDigest"] != handoff_packet("a", intent="c")["packetDigest"]


@pytest.mark.req("SLICE-12")
def test_a_descent_resumes_from_artifacts_that_exist(policy: PolicyPackage) -> None:
    with opened(policy) as s:
        turn = s.turn()
        continuity = {"mode": "descent", "handoffRef": "handoff://1", "artifactRefs": ["artifact://plan"]}
        with pytest.raises(StepRefused, match="artifact://plan does not exist"):
            turn.resume(continuity, lambda _: None)
        with pytest.raises(StepRefused, match="a handoff that it does not name"):
            turn.resume({"mode": "descent"}, lambda _: None)
        turn.resume(continuity, lambda _: digest_text("plan"))
        search(turn)
        assert turn.close("tool_use").judgement.join_closed


@pytest.mark.req("SLICE-07", "HARN-42")
def test_a_turn_past_the_budget_does_not_start(policy: PolicyPackage) -> None:
    contents = {**policy.contents, "stop": {"maxTurns": 1}}
    limited = package_of({"name": policy.name, "version": policy.version}, contents)
    with opened(limited) as s:
        s.turn()  # and it is never closed
        with pytest.raises(StepRefused, match="turn 2 of 1"):
            s.turn()


@pytest.mark.req("FAIL-20")
def test_compaction_must_carry_what_is_open(policy: PolicyPackage) -> None:
    with opened(policy) as s:
        turn = s.turn()
        search(turn)
        with pytest.raises(StepRefused, match="compaction_state_invalid"):
            turn.compact({"policyDigest": digest_text("another"), "summaryDigest": "s", "continuityRef": "c"})
        with pytest.raises(StepRefused, match="a compaction that is not recorded"):
            turn.resume({"mode": "compaction"}, lambda _: None)


@pytest.mark.parametrize("damage", ["change", "drop", "swap", "insert"])
def test_a_changed_trajectory_is_found(policy: PolicyPackage, damage: str) -> None:
    journal: list[Any] = []
    with opened(policy, journal) as s:
        for number in range(3):
            turn = s.turn()
            search(turn, f"c{number}")
            turn.close("tool_use")
    rows = [dict(row) for row in journal]
    assert verify_trajectory(rows) == []
    match damage:
        case "change":
            rows[2]["closed"] = False
        case "drop":
            del rows[2]
        case "swap":
            rows[1], rows[2] = rows[2], rows[1]
        case "insert":
            rows.insert(2, dict(rows[1]))
    assert verify_trajectory(rows) != []
