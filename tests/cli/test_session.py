"""`manglecp harness session` and `work`: leases, judged turns, features, escalation, on both stores."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli.conftest import Run
from tests.store.postgres import postgres_url

__all__ = ["postgres_url"]

LOGS = Path(__file__).resolve().parents[1] / "adapters" / "logs"
CALL = {"toolCallId": "c1", "toolName": "repo.grep", "input": {"pattern": "x"}}
RESULT = {"toolCallId": "c1", "status": "ok", "payload": {"hits": 3}}


@pytest.fixture(autouse=True, params=["file", "postgresql"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stored = request.getfixturevalue("postgres_url") if request.param == "postgresql" else str(tmp_path / "issues.db")
    monkeypatch.setenv("MANGLECP_ISSUES", stored)
    monkeypatch.setenv("MANGLECP_ACTOR", "kim")
    monkeypatch.delenv("MANGLECP_FENCE", raising=False)


in_a_file = pytest.mark.parametrize("memory", ["file"], indirect=True)


def answer(result: Result, status: int = 0) -> Any:
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def lines(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def add(run: Run, *issues: str) -> None:
    for issue in issues:
        assert run("issue", "add", f"do {issue}", "--id", issue).exit_code == 0


def turn(**evidence: Any) -> str:
    given = {"callSpec": {"modelRef": "atlas@7"}, "protocolState": {"stopReason": "end_turn"}}
    return json.dumps({"evidence": {**given, **evidence}})


def give(run: Run, issue: str, document: str, *options: str, fence: int = 1) -> Result:
    return run("harness", "session", "turn", issue, "--fence", str(fence), "--input", "-", *options, stdin=document)


UNANSWERED = turn(toolRequests=[CALL])
ANSWERED = turn(
    toolRequests=[CALL],
    toolResults=[RESULT],
    toolUse=[{"toolCallId": "c1", "disposition": "observed_only"}],
)


@pytest.mark.req("FAIL-11", "SLICE-12", "HARN-05")
def test_only_an_accepted_turn_advances_the_chain(run: Run) -> None:
    add(run, "pump")
    begun = answer(run("harness", "session", "start", "pump"))
    assert (begun["state"], begun["turns"], begun["fence"]) == ("active", 0, 1)
    rejected = answer(give(run, "pump", UNANSWERED), status=1)
    assert rejected["failureClasses"] == ["tool.join_incomplete", "tool.result_missing"]
    assert (rejected["retry"]["next"], rejected["retry"]["attempts_left"]) == ("same_turn", 1)
    assert rejected["session"]["turns"] == 0
    accepted = answer(give(run, "pump", ANSWERED))
    assert (accepted["resultClass"], accepted["session"]["turns"]) == ("accepted", 1)
    assert answer(give(run, "pump", ANSWERED))["session"]["turns"] == 2
    ended = run("harness", "session", "stop", "pump", "--fence", "1", "--summary", "half", "--next-step", "the rest")
    assert answer(ended)["state"] == "stopped"
    assert run("issue", "ready").stdout.startswith("pump")
    assert give(run, "pump", ANSWERED).exit_code == 1, "the session is stopped"
    resumed = answer(run("harness", "session", "start"))
    assert (resumed["summary"], resumed["nextStep"], resumed["turns"]) == ("half", "the rest", 2)
    assert resumed["startedAt"] == begun["startedAt"]
    steps = lines(run("harness", "session", "trajectory"))
    assert [step["resultClass"] for step in steps] == ["accepted", "accepted", "tool.join_incomplete"]
    assert {step["stepKind"] for step in steps} == {"premath.harness.step.v1"}
    for mode in ("failed", "retry-needed"):
        assert lines(run("harness", "session", "trajectory", "--mode", mode)) == steps[-1:]
    assert len(lines(run("harness", "session", "trajectory", "--limit", "1"))) == 1
    assert run("issue", "verify").exit_code == 0


def test_turns_of_a_log_are_judged_as_by_check(run: Run) -> None:
    add(run, "log")
    run("harness", "session", "start", "log")
    source = [str(LOGS / "anthropic-exchanges.jsonl"), "--from", "anthropic"]
    documents = run("harness", "ingest", *source).stdout.splitlines()
    checked = run("harness", "check", "--log", *source, "--json").stdout.splitlines()
    assert len(documents) > 2
    for document, verdict in zip(documents, checked, strict=True):
        expected = json.loads(verdict)["failureClasses"]
        assert answer(give(run, "log", document), status=1 if expected else 0)["failureClasses"] == expected


def closing(issue: str) -> dict[str, Any]:
    base = "capabilities.change_morphisms"
    return {
        "toolRequests": [CALL],
        "toolResults": [RESULT],
        "toolUse": [{"toolCallId": "c1", "disposition": "consumed", "mutationInputRef": f"issue://{issue}"}],
        "mutation": {
            "kind": "issue",
            "action": "issue.close",
            "instructionRef": "i://1",
            "inputRefs": [f"issue://{issue}"],
            "capabilityClaims": [base, f"{base}.issue_close"],
        },
    }


def with_context(package: Any, evidence: dict[str, Any]) -> dict[str, Any]:
    """The rows that a consumed result owes."""
    shown = "sha256:" + "0" * 64
    row = {"toolCallId": "c1", "operatorPayloadDigest": shown, "reminderRenderDigest": shown}
    return {
        **evidence,
        "toolRender": [{**row, "injectionPoint": "tool_response", "policyDigest": package["render"]}],
        "reminderQueue": [{"queueId": "q", "reducedDigest": shown, "policyDigest": package["queue"]}],
        "stateViews": [{"viewId": "v", "viewDigest": shown, "policyDigest": package["views"]}],
    }


@pytest.mark.req("HARN-02", "SLICE-15")
def test_a_turn_closes_the_issue_on_its_evidence(run: Run) -> None:
    add(run, "pump")
    run("harness", "session", "start", "pump")
    refused = give(run, "pump", ANSWERED, "--close")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "error[mutation_missing]" in refused.stderr
    assert lines(run("harness", "session", "trajectory")) == [], "a refused change leaves no step"
    digests = answer(run("policy", "show", "work", "--json"))["documents"]
    closed = answer(give(run, "pump", turn(**with_context(digests, closing("pump"))), "--close"))
    assert (closed["changed"], closed["session"]["state"]) == ("pump", "stopped")
    assert answer(run("issue", "show", "pump", "--json"))["status"] == "closed"
    (event,) = [e for e in answer(run("issue", "history", "pump", "--json")) if e["change"]["type"] == "issue.close"]
    assert event["mutation"]["trajectory_refs"] == ["trajectory://hs1_pump/1"]
    assert event["mutation"]["witness_id"] == closed["witnessRefs"][0]


@pytest.mark.req("FAIL-37")
def test_the_policy_of_the_session_overrides_that_of_the_document(run: Run) -> None:
    """A document may not bring the active policy under which its mutation would be admissible."""
    add(run, "pump")
    run("harness", "session", "start", "pump", "--policy", "observe")
    digests = answer(run("policy", "show", "observe", "--json"))["documents"]
    document = json.loads(turn(**with_context(digests, closing("pump"))))
    document["mutationConstraints"] = {"activePolicyDigest": digests["mutation"]}
    rejected = answer(give(run, "pump", json.dumps(document), "--close"), status=1)
    assert rejected["failureClasses"] == ["mutation.policy_digest_mismatch"]
    assert answer(run("issue", "show", "pump", "--json"))["status"] == "open", "and observe permits no escalation"


def test_the_last_attempt_is_escalated(run: Run) -> None:
    add(run, "pump")
    run("harness", "session", "start", "pump")
    give(run, "pump", UNANSWERED)
    last = answer(give(run, "pump", UNANSWERED), status=1)
    assert (last["retry"]["escalation"], last["session"]["state"]) == ("issue_discover", "stopped")
    (child,) = answer(run("issue", "list", "--label", "escalation", "--json"))
    parent = answer(run("issue", "show", "pump", "--json"))
    assert (parent["status"], parent["lease"]) == ("open", None)
    assert parent["depends_on"] == [{"type": "waits-for", "issue": child["id"]}]
    assert parent["dependents"] == [{"type": "discovered-from", "issue": child["id"]}]


def test_what_is_never_retried_blocks_the_issue(run: Run) -> None:
    add(run, "pump")
    run("harness", "session", "start", "pump")
    other = {"callSpec": {"modelRef": "atlas@7", "toolChoice": {"mode": "specific", "toolName": "repo.read"}}}
    assert answer(give(run, "pump", turn(**other, toolRequests=[CALL])), status=1)["retry"]["next"] == "stop"
    issue = answer(run("issue", "show", "pump", "--json"))
    assert (issue["status"], issue["notes"]) == ("blocked", "blocked: tool.unknown_or_disallowed")


def test_features(run: Run) -> None:
    add(run, "pump")

    def feature(*args: str, status: int = 0) -> Any:
        return answer(run("harness", "session", "feature", "pump", *args), status)

    assert feature(status=1)["failureClasses"] == ["harness_feature_ledger.empty"]
    feature("b")
    assert feature("a", "--summary", "first")["nextFeatureId"] == "a"
    assert feature("b", "--status", "in_progress")["nextFeatureId"] == "b"
    second = run("harness", "session", "feature", "pump", "a", "--status", "in_progress")
    assert (second.exit_code, "error[feature_in_progress]" in second.stderr) == (1, True)
    unproven = run("harness", "session", "feature", "pump", "b", "--status", "completed")
    assert (unproven.exit_code, "needs a verification reference" in unproven.stderr) == (2, True)
    feature("b", "--status", "completed", "--verification-ref", "test://b")
    assert feature("--require-closure", status=1)["failureClasses"] == ["harness_feature_ledger.closure_incomplete"]
    ledger = feature("a", "--status", "completed", "--verification-ref", "test://a", "--require-closure")
    assert (ledger["ledgerKind"], ledger["nextFeatureId"]) == ("premath.harness.feature_ledger.v1", None)
    assert [(row["featureId"], row["status"]) for row in ledger["features"]] == [("a", "completed"), ("b", "completed")]


def test_work_closes_what_it_verified(run: Run, folder: Path) -> None:
    add(run, "pump", "seal")
    for name in ("f1", "f2"):
        run("harness", "session", "feature", "pump", name)
    work = ["harness", "work", "--verify", "test -f $MANGLECP_ISSUE$MANGLECP_FEATURE", "--"]
    command = ["sh", "-c", "touch $MANGLECP_ISSUE$MANGLECP_FEATURE"]
    states = [answer(run(*work, *command)) for _ in range(3)]
    assert [(step["issueId"], step["status"]) for step in states] == [
        ("pump", "open"),
        ("pump", "closed"),
        ("seal", "closed"),
    ]
    assert sorted(path.name for path in folder.glob("[ps]*")) == ["pumpf1", "pumpf2", "seal"]
    nothing = run(*work, *command)
    assert (nothing.exit_code, nothing.stderr) == (3, "no issue can be claimed\n")
    ledger = answer(run("harness", "session", "feature", "pump", "--require-closure"))
    assert [row["verificationRefs"] for row in ledger["features"]] == [
        ["trajectory://hs1_pump/1"],
        ["trajectory://hs1_pump/2"],
    ]
    assert run("issue", "verify").exit_code == 0


def test_work_that_fails_ends(run: Run) -> None:
    """Two attempts, an issue about the failure, two attempts at that, and it is blocked."""
    add(run, "pump")
    for _ in range(4):
        failed = answer(run("harness", "work", "--verify", "false", "--", "true"), status=1)
        assert failed["resultClass"] == "verify_failed"
    assert run("harness", "work", "--no-verify", "--", "false").exit_code == 3
    (child,) = answer(run("issue", "list", "--label", "escalation", "--json"))
    assert (child["title"], child["status"]) == ("verify_failed: do pump", "blocked")
    assert [issue["id"] for issue in answer(run("issue", "list", "--status", "open", "--json"))] == ["pump"]
    assert len(lines(run("harness", "session", "trajectory", "--mode", "retry-needed"))) == 2


@pytest.mark.parametrize("options", [(), ("--verify", "true", "--no-verify")])
def test_work_without_a_verification_has_to_be_asked_for(run: Run, options: tuple[str, ...]) -> None:
    add(run, "pump")
    refused = run("harness", "work", *options, "--", "true")
    assert (refused.exit_code, "--verify TEXT" in refused.stderr, "--no-verify" in refused.stderr) == (2, True, True)
    assert run("issue", "ready").stdout.startswith("pump")
    assert answer(run("harness", "work", "--no-verify", "--", "true"))["status"] == "closed"


def test_a_feature_of_a_leased_issue_needs_the_fence(run: Run) -> None:
    add(run, "pump")
    feature = ("harness", "session", "feature", "pump", "a")
    answer(run(*feature))
    fence = str(answer(run("harness", "session", "start", "pump"))["fence"])
    for wrong in ((), ("--fence", "99"), ("--fence", fence, "--actor", "mallory")):
        refused = run(*feature, "--summary", "x", *wrong)
        assert (refused.exit_code, "error[lease_id_mismatch]" in refused.stderr) == (1, True)
        assert "--fence N" in refused.stderr
    ledger = answer(run("harness", "session", "feature", "pump"))  # reading needs none
    assert "summary" not in ledger["features"][0]
    assert answer(run(*feature, "--summary", "x", "--fence", fence))["features"][0]["summary"] == "x"
    answer(run("harness", "session", "stop", "pump", "--fence", fence))
    late = run(*feature, "--summary", "y", "--fence", fence)
    assert (late.exit_code, "error[lease_stale]" in late.stderr) == (1, True)
    assert answer(run(*feature, "--summary", "y"))["features"][0]["summary"] == "y"


def test_a_command_that_is_missing_claims_nothing(run: Run) -> None:
    add(run, "pump")
    assert run("harness", "work", "--no-verify", "--", "no-such-command").exit_code == 2
    assert run("issue", "ready").stdout.startswith("pump")


def test_workers_race_for_one_issue(run: Run, folder: Path) -> None:
    """Four processes of one actor: one of them gets the lease, however they interleave."""
    add(run, "pump")
    wait = "echo $MANGLECP_FENCE >> claims; while [ ! -f go ]; do sleep 0.02; done"
    argv = [sys.executable, "-m", "manglecp", "harness", "work", "--no-verify", "sh", "-c", wait]
    workers = [
        subprocess.Popen(argv, cwd=folder, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    ended: set[int] = set()
    while len(ended) < 3:
        ended |= {number for number, worker in enumerate(workers) if worker.poll() is not None}
    (winner,) = set(range(4)) - ended
    (folder / "go").touch()
    outputs = [worker.communicate(timeout=60) for worker in workers]
    assert [worker.returncode for number, worker in enumerate(workers) if number != winner] == [3, 3, 3]
    assert workers[winner].returncode == 0, outputs[winner]
    assert json.loads(outputs[winner][0])["status"] == "closed"
    assert (folder / "claims").read_text() == "1\n"


@in_a_file
def test_a_changed_event_is_found(run: Run, tmp_path: Path) -> None:
    add(run, "pump")
    run("harness", "session", "start", "pump")
    give(run, "pump", ANSWERED)
    with sqlite3.connect(tmp_path / "issues.db") as database:
        change = "UPDATE session_event SET row = replace(row, 'accepted', 'rejected') WHERE seq = 2"
        with pytest.raises(sqlite3.IntegrityError, match="are not changed"):
            database.execute(change)
        database.execute("DROP TRIGGER session_event_stays")
        assert run("issue", "verify").exit_code == 0
        database.execute(change)
    database.close()
    found = run("issue", "verify")
    assert found.exit_code == 1
    assert "session event pump 2: its hash does not match its contents" in found.stdout


@in_a_file
@pytest.mark.parametrize("document", ["[]", '{"evidence": []}', '{"evidence": {"callSpec": 1}}', "{}"])
def test_a_document_that_is_no_turn(run: Run, document: str) -> None:
    add(run, "pump")
    run("harness", "session", "start", "pump")
    assert give(run, "pump", document).exit_code == 2
    assert lines(run("harness", "session", "trajectory")) == []
