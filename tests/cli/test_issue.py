"""`manglecp issue`: what it prints, what it refuses, and how that ends."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from manglecp.harness.policy import observe_package
from manglecp.issues import open_issues
from manglecp.store import StoreError, open_store
from tests.cli.conftest import Run
from tests.issues.turns import POLICY, turn
from tests.store.postgres import postgres_url

__all__ = ["postgres_url"]

Write = Callable[[str, str | bytes], Path]
Evidence = Callable[..., str]


@pytest.fixture(autouse=True)
def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGLECP_ACTOR", "kim")
    monkeypatch.delenv("MANGLECP_ISSUES", raising=False)
    monkeypatch.delenv("MANGLECP_PIN", raising=False)
    monkeypatch.setenv("MANGLECP_ACTIVE_POLICY", POLICY)


@pytest.fixture
def evidence(write: Write) -> Evidence:
    """`evidence("issue.close", "issue://a")` is the name of a file with a fresh turn."""
    files = iter(range(1_000))

    def evidence(action: str, *refs: str) -> str:
        return write(f"turn{next(files)}.json", json.dumps(turn(action, *refs))).name

    return evidence


def answer(run: Run, *args: str) -> Any:
    shown = run("issue", *args, "--json")
    assert (shown.exit_code, shown.stderr) == (0, ""), shown.stderr
    return json.loads(shown.stdout)


def refusal(run: Run, *args: str, status: int = 1) -> str:
    shown = run("issue", *args)
    assert (shown.exit_code, shown.stdout) == (status, ""), shown.output
    return shown.stderr


def add(run: Run, *issues: str) -> None:
    for issue in issues:
        assert run("issue", "add", f"do {issue}", "--id", issue).exit_code == 0


def test_a_life_of_an_issue(run: Run, evidence: Evidence) -> None:
    add(run, "seal", "pump")
    edge = evidence("dep.add", "dependency://pump/blocks/seal")
    assert run("issue", "dep", "add", "pump", "seal", "--evidence", edge).exit_code == 0
    assert run("issue", "ready").stdout == "seal  P2 open         do seal\n"
    shown = run("issue", "blocked").stdout
    assert shown == "pump  P2 open         do pump\n    waits for seal (blocks, open)\n"
    (waiting,) = answer(run, "blocked")
    assert (waiting["id"], waiting["blockers"]) == ("pump", [{"type": "blocks", "issue": "seal", "status": "open"}])
    lease = answer(run, "claim", "--next", "--ttl", "60")
    assert (lease["issue"], lease["owner"], lease["fence"], lease["lease_id"]) == ("seal", "kim", 1, "lease1_seal_1")
    assert answer(run, "renew", "seal", "--fence", "1")["renewed_at"] is not None
    found = evidence("issue.discover", "issue://seal")
    child = answer(run, "discover", "seal", "The box is empty", "--evidence", found, "--id", "box", "--label", "x")
    assert (child["id"], child["labels"]) == ("box", ["x"])
    changed = evidence("issue.update", "issue://seal")
    note = answer(run, "update", "seal", "--evidence", changed, "--note", "half way", "--fence", "1")
    assert note["notes"] == "half way"
    done = evidence("issue.close", "issue://seal")
    assert answer(run, "close", "seal", "--evidence", done, "--fence", "1")["status"] == "closed"
    assert [issue["id"] for issue in answer(run, "ready")] == ["pump", "box"]
    assert [issue["id"] for issue in answer(run, "ready", "--as-of", "3")] == ["seal"]
    gone = evidence("dep.remove", "dependency://pump/blocks/seal")
    assert run("issue", "dep", "remove", "pump", "seal", "--evidence", gone).exit_code == 0
    actions = [event["change"]["type"] for event in answer(run, "history", "seal")]
    assert actions == ["issue.add", "issue.claim", "issue.renew", "issue.update", "issue.close"]
    assert run("issue", "verify").stdout.endswith(": ok\n")


def test_the_first_issue_makes_the_memory(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = refusal(run, "list", status=2)
    assert (
        "there is no .manglecp/issues.db in this folder or above; create one with `manglecp issue add`, or give --db"
        in message
    )
    add(run, "a")
    assert (folder / ".manglecp" / "issues.db").is_file()
    (folder / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(folder / "deep" / "down")
    add(run, "b")
    assert [issue["id"] for issue in answer(run, "list")] == ["a", "b"]


def test_another_place(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no issue memory x.db" in refusal(run, "list", "--db", "x.db", status=2)
    assert run("issue", "add", "t", "--id", "a", "--db", "x.db").exit_code == 0
    monkeypatch.setenv("MANGLECP_ISSUES", str(folder / "x.db"))
    assert [issue["id"] for issue in answer(run, "list")] == ["a"]
    assert not (folder / ".manglecp").exists()


def test_a_place_that_cannot_be(run: Run, write: Write) -> None:
    write("file", "x")
    assert "cannot create file: File exists" in refusal(run, "add", "t", "--db", "file/x.db", status=2)


def test_a_fresh_id(run: Run) -> None:
    first, second = (answer(run, "add", "t")["id"] for _ in range(2))
    assert first != second
    assert first.startswith("i-")


def test_who_does_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError

    add(run, "a")
    run("issue", "add", "t", "--id", "b", "--actor", "lou")
    monkeypatch.delenv("MANGLECP_ACTOR")
    monkeypatch.setattr("getpass.getuser", lambda: "pat")
    add(run, "c")
    monkeypatch.setattr("getpass.getuser", nobody)
    add(run, "d")
    assert [event["actor"] for event in answer(run, "history")] == ["kim", "lou", "pat", f"uid-{os.getuid()}"]


def test_show(run: Run, evidence: Evidence) -> None:
    run("issue", "add", "Fix it", "--id", "a", "--description", "First line\nSecond", "--label", "wet")
    run("issue", "add", "Other", "--id", "b")
    run(
        "issue",
        "dep",
        "add",
        "a",
        "b",
        "--type",
        "waits-for",
        "--evidence",
        evidence("dep.add", "dependency://a/waits-for/b"),
    )
    run("issue", "claim", "b", "--ttl", "30")
    lines = run("issue", "show", "a").stdout.splitlines()
    assert lines[0] == "a  P2 open         Fix it  [wet]"
    assert lines[2:4] == ["  depends on b (waits-for)", "  waits for b, which is in_progress"]
    assert lines[4].startswith("  issue://a@sha256:")
    assert lines[5:] == ["  description:", "    First line", "    Second"]
    document = answer(run, "show", "a")
    assert document["depends_on"] == [{"type": "waits-for", "issue": "b"}]
    assert document["blockers"] == [{"type": "waits-for", "issue": "b", "status": "in_progress"}]
    assert lines[4] == f"  issue://a@{document['snapshot']}"
    other = answer(run, "show", "b")
    assert other["dependents"] == [{"type": "waits-for", "issue": "a"}]
    assert other["lease"]["owner"] == "kim"
    shown = run("issue", "show", "b").stdout
    assert "  leased to kim until " in shown
    assert "  a depends on it (waits-for)" in shown


def test_update(run: Run, evidence: Evidence) -> None:
    add(run, "a")

    def update(*options: str) -> Any:
        return answer(run, "update", "a", "--evidence", evidence("issue.update", "issue://a"), *options)

    changed = update(
        *("--title", "T", "--description", "D", "--priority", "0", "--status", "blocked"),
        *("--label", "y", "--label", "x", "--assignee", "lou"),
    )
    names = ("title", "description", "priority", "status", "labels", "assignee")
    assert [changed[name] for name in names] == ["T", "D", 0, "blocked", ["x", "y"], "lou"]
    assert run("issue", "blocked").stdout.endswith("    waits for an update of its status\n")
    changed = update("--label", "", "--assignee", "")
    assert (changed["labels"], changed["assignee"]) == ([], None)
    nothing = refusal(run, "update", "a", "--evidence", evidence("issue.update", "issue://a"), status=2)
    assert "update: it changes nothing" in nothing


def test_lists(run: Run) -> None:
    run("issue", "add", "one", "--id", "a", "--label", "red")
    run("issue", "add", "two", "--id", "b")
    run("issue", "claim", "b")
    assert run("issue", "list", "--label", "red").stdout == "a  P2 open         one  [red]\n"
    assert run("issue", "list", "--status", "in_progress").stdout == "b  P2 in_progress  two  @kim\n"
    assert [issue["id"] for issue in answer(run, "list", "--assignee", "kim")] == ["b"]
    assert answer(run, "blocked") == []
    assert "error[event_unknown]: event 9 does not exist; the last is 3" in refusal(run, "list", "--as-of", "9")


def test_leases(run: Run) -> None:
    add(run, "a")
    assert "a  fence 1  kim  until 20" in run("issue", "claim", "a").stdout
    assert "error[lease_contention_active]: issue a is leased until" in refusal(run, "claim", "a", "--actor", "lou")
    assert refusal(run, "claim", "--next") == "no issue can be claimed\n"
    assert "error[lease_owner_mismatch]" in refusal(run, "release", "a", "--fence", "1", "--actor", "lou")
    assert "error[lease_id_mismatch]" in refusal(run, "renew", "a", "--fence", "2")
    assert "ttl: a lease lasts from 30 to 86,400 seconds" in refusal(
        run, "renew", "a", "--fence", "1", "--ttl", "5", status=2
    )
    assert run("issue", "release", "a", "--fence", "1").stdout == "a  P2 open         do a\n"
    for args in (["claim"], ["claim", "a", "--next"]):
        assert "Give an ID or --next." in refusal(run, *args, status=2)


class TestEvidence:
    @pytest.mark.parametrize(
        "args",
        [
            ["close", "a"],
            ["update", "a", "--note", "x"],
            ["discover", "a", "x"],
            ["dep", "add", "a", "b"],
            ["dep", "remove", "a", "b"],
        ],
    )
    def test_there_is_no_way_without(self, run: Run, args: list[str]) -> None:
        add(run, "a", "b")
        assert "Missing option '--evidence'" in refusal(run, *args, status=2)
        for override in ("--force", "--override", "--no-evidence", "--yes"):
            assert "No such option" in refusal(run, *args, override, status=2)

    def test_it_is_used_once(self, run: Run, evidence: Evidence) -> None:
        add(run, "a")
        file = evidence("issue.update", "issue://a")
        assert run("issue", "update", "a", "--evidence", file, "--note", "once").exit_code == 0
        message = refusal(run, "update", "a", "--evidence", file, "--note", "twice")
        assert message.startswith("error[mutation_evidence_spent]: ")
        assert answer(run, "show", "a")["notes"] == "once"

    def test_a_turn_that_is_told_otherwise_is_used_as_well(self, run: Run, write: Write) -> None:
        add(run, "a")
        document = turn("issue.update", "issue://a")
        write("turn.json", json.dumps(document))
        assert run("issue", "update", "a", "--evidence", "turn.json", "--note", "once").exit_code == 0
        document["evidence"]["sessionRefs"] = ["session://orchard/13"]
        write("turn.json", json.dumps(document))
        message = refusal(run, "update", "a", "--evidence", "turn.json", "--note", "twice")
        assert message.startswith("error[mutation_evidence_spent]: ")
        assert answer(run, "show", "a")["notes"] == "once"
        assert answer(run, "verify")["ok"]

    def test_it_is_for_one_issue(self, run: Run, evidence: Evidence) -> None:
        add(run, "a", "b")
        message = refusal(run, "close", "b", "--evidence", evidence("issue.close", "issue://a"))
        assert message == "error[mutation_subject_other]: the evidence does not authorise a change of issue://b\n"
        message = refusal(run, "close", "a", "--evidence", evidence("issue.update", "issue://a"))
        assert message == "error[mutation_other]: the evidence does not authorise issue.close\n"

    def test_a_turn_that_is_not_closed(self, run: Run, write: Write) -> None:
        add(run, "a")
        document = turn("issue.close", "issue://a")
        document["evidence"]["toolUse"] = []
        write("turn.json", json.dumps(document))
        message = refusal(run, "close", "a", "--evidence", "turn.json")
        assert "  tool.use_missing at " in message
        assert message.endswith("error[blocked]: JoinClosed is not reached: the evidence does not prove the change\n")

    def test_a_turn_that_wants_nothing(self, run: Run, write: Write) -> None:
        add(run, "a")
        document = turn("issue.close", "issue://a")
        del document["evidence"]["mutation"]
        write("turn.json", json.dumps(document))
        message = refusal(run, "close", "a", "--evidence", "turn.json")
        assert message == "error[blocked]: MutationReady is not reached: the turn requests no mutation\n"

    def test_the_policy_in_force(self, run: Run, evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
        add(run, "a")
        file = evidence("issue.close", "issue://a")
        other = "sha256:" + "0" * 64
        message = refusal(run, "close", "a", "--evidence", file, "--active-policy", other)
        assert "mutation.policy_digest_mismatch" in message
        monkeypatch.delenv("MANGLECP_ACTIVE_POLICY")
        message = refusal(run, "close", "a", "--evidence", file, status=2)
        assert "the mutation policy in force is missing" in message, "evidence does not speak for itself"
        monkeypatch.setenv("MANGLECP_ACTIVE_POLICY", other)
        assert "mutation.policy_digest_mismatch" in refusal(run, "close", "a", "--evidence", file)
        assert run("issue", "close", "a", "--evidence", file, "--active-policy", POLICY).exit_code == 0

    def test_the_policy_in_force_is_that_of_a_pin(
        self, run: Run, write: Write, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add(run, "a")
        monkeypatch.delenv("MANGLECP_ACTIVE_POLICY")
        assert run("policy", "pin", "observe", "--pin", "pin.json").exit_code == 0
        file = evidence("issue.close", "issue://a")
        assert "mutation.policy_digest_mismatch" in refusal(run, "close", "a", "--evidence", file, "--pin", "pin.json")
        document = turn("issue.close", "issue://a")
        document["evidence"]["callSpec"]["mutationPolicyDigest"] = observe_package().digests["mutation"]
        write("turn.json", json.dumps(document))
        monkeypatch.setenv("MANGLECP_PIN", "pin.json")
        assert answer(run, "close", "a", "--evidence", "turn.json")["status"] == "closed"
        write("pin.json", "{}")
        assert "Error: " in refusal(run, "close", "a", "--evidence", "turn.json", status=2)

    @pytest.mark.parametrize("content", ["", "{", "null", "[]", "{}", '{"evidence": []}', '{"a": 1, "a": 1}', b"\xff"])
    def test_what_is_none(self, run: Run, write: Write, content: str | bytes) -> None:
        add(run, "a")
        write("turn.json", content)
        assert "Error: turn.json: " in refusal(run, "close", "a", "--evidence", "turn.json", status=2)

    def test_from_standard_input(self, run: Run) -> None:
        add(run, "a")
        document = json.dumps(turn("issue.close", "issue://a"))
        assert run("issue", "close", "a", "--evidence", "-", stdin=document).exit_code == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_memory_may_be_part_of_any_store(run: Run, kind: str, request: pytest.FixtureRequest, folder: Path) -> None:
    where = request.getfixturevalue("postgres_url") if kind == "postgresql" else f"sqlite:///{folder / 'store.db'}"
    open_store(where).close()
    assert run("issue", "add", "t", "--id", "a", "--db", where).exit_code == 0
    assert [one["id"] for one in answer(run, "list", "--db", where)] == ["a"]
    assert answer(run, "verify", "--db", where)["events"] == 1
    assert not (folder / ".manglecp").exists()


def test_there_is_no_store_of_every_kind(run: Run) -> None:
    assert "error[store]: there is no store of the kind redis://" in refusal(run, "list", "--db", "redis://here")


class TestLog:
    def test_there_and_back(self, run: Run, folder: Path, evidence: Evidence) -> None:
        add(run, "a", "b")
        run("issue", "close", "a", "--evidence", evidence("issue.close", "issue://a"))
        text = run("issue", "export").stdout
        assert run("issue", "export", "log.jsonl").stdout == ""
        assert (folder / "log.jsonl").read_text(encoding="utf-8") == text
        imported = answer(run, "import", "log.jsonl", "--db", "other.db")
        assert imported["events"] == 3
        assert run("issue", "export", "--db", "other.db").stdout == text
        assert answer(run, "verify", "--db", "other.db")["head"] == imported["head"]
        assert (
            run("issue", "import", "log.jsonl", "--db", "third.db").stdout == f"3 events, head 3:{imported['head']}\n"
        )
        assert "error[memory_not_empty]" in refusal(run, "import", "log.jsonl", "--db", "other.db")
        assert [path.name for path in folder.glob(".log*")] == []

    def test_a_bad_file(self, run: Run, write: Write) -> None:
        write("log.jsonl", "{\n[]\n")
        message = refusal(run, "import", "log.jsonl", "--db", "x.db", status=2)
        assert [line.split(" ")[0] for line in message.splitlines()] == ["log.jsonl:1:", "log.jsonl:2:"]
        assert answer(run, "list", "--db", "x.db") == []

    def test_a_place_that_is_no_file(self, run: Run) -> None:
        add(run, "a")
        assert run("issue", "export", os.devnull).exit_code == 0
        assert Path(os.devnull).is_char_device()

    def test_a_place_that_cannot_be_written(self, run: Run) -> None:
        add(run, "a")
        assert "cannot write nowhere/log: No such file" in refusal(run, "export", "nowhere/log", status=2)

    def test_an_export_that_fails_leaves_the_old_file(
        self, run: Run, write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: object) -> Iterator[bytes]:
            yield b"half"
            raise StoreError("the disk is gone")

        add(run, "a")
        write("log.jsonl", "old")
        monkeypatch.setattr("manglecp.issues.export_log", fail)
        assert refusal(run, "export", "log.jsonl") == "error[store]: the disk is gone\n"
        assert sorted(path.name for path in folder.iterdir()) == [".manglecp", "log.jsonl"]
        assert (folder / "log.jsonl").read_text() == "old"

    def test_an_edit_is_found(self, run: Run) -> None:
        add(run, "a")
        head = answer(run, "verify")["head"]
        assert run("issue", "verify", "--head", f"1:{head}").exit_code == 0
        connection = sqlite3.connect(".manglecp/issues.db")
        connection.execute("UPDATE issue SET title = 'other'")
        connection.commit()
        connection.close()
        shown = run("issue", "verify")
        assert shown.exit_code == 1
        finding = "issue a: title is stored as 'other' and is 'do a' by the events"
        assert shown.stdout == f"{finding}\n1 event, 1 issue, head 1:{head}: 1 difference\n"
        shown = run("issue", "verify", "--json", "--head", "2:" + head)
        assert shown.exit_code == 1
        assert json.loads(shown.stdout) == {
            "ok": False,
            "events": 1,
            "head": head,
            "issues": 1,
            "findings": [finding, "event 2: the log does not contain the expected event"],
        }
        for head in ("x", "1", ":x", "9" * 30 + ":x"):
            assert "--head takes a number and a hash" in refusal(run, "verify", "--head", head, status=2)

    def test_history_for_people(self, run: Run, evidence: Evidence) -> None:
        add(run, "a")
        run("issue", "close", "a", "--evidence", evidence("issue.close", "issue://a"))
        first, second = run("issue", "history").stdout.splitlines()
        assert first.startswith("1  20")
        assert first.endswith("Z  issue.add a  kim")
        assert "  issue.close a  kim  by jw1_" in second


def test_what_is_wrong_is_said_without_repeating_it(run: Run) -> None:
    add(run, "a")
    secret = "hunter2 " * 30
    for args in (["add", secret], ["show", secret], ["add", "t", "--id", secret], ["add", "t", "--label", secret]):
        assert "hunter2" not in refusal(run, *args, status=2)


def test_a_busy_memory(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(run, "a")
    store = open_issues(folder / ".manglecp" / "issues.db")
    monkeypatch.setattr("manglecp.cli.issue_memory.open_issues", lambda path: open_issues(path, patience=0.05))
    with store.write_transaction():
        message = refusal(run, "claim", "a")
        assert "is being written to by another process" in message
        assert "Try again" in message
        assert run("issue", "list").exit_code == 0, "readers do not wait"
    store.close()


def test_asking_loads_nothing_that_judges() -> None:
    code = "import sys, manglecp.cli.issue\nprint(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = shown.stdout.split()
    assert "manglecp.issues" in imported
    assert "manglecp.harness.judgement" not in imported
    assert "manglecp.mangle.program" not in imported
