from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manglecp.cli import harness
from tests.adapters.checking import LOGS, exchanges, lines, message, tool_result, tool_use
from tests.cli.conftest import Run

Write = Callable[[str, str | bytes], Path]
GOOD = str(LOGS / "anthropic-exchanges.jsonl")
BAD = str(LOGS / "anthropic-failures.jsonl")
NEUTRAL = str(LOGS / "neutral.jsonl")


@pytest.fixture
def turn(write: Write) -> dict[str, Any]:
    """An accepted turn, in turn.json."""
    document: dict[str, Any] = json.loads(Path(NEUTRAL).read_text().splitlines()[0])
    write("turn.json", json.dumps(document))
    return document


class TestCheck:
    @pytest.mark.req("SLICE-02")
    def test_accepted(self, run: Run, turn: dict[str, Any]) -> None:
        shown = run("harness", "check", "--input", "turn.json", "--json")
        assert shown.exit_code == 0
        answer = json.loads(shown.stdout)
        assert answer["result"] == "accepted"
        assert (answer["failureClasses"], answer["joinClosed"], answer["mutationReady"]) == ([], True, False)
        assert answer["witnessId"].startswith("jw1_")
        assert answer["digests"]["joinSetDigest"].startswith("sha256:")
        assert run("harness", "check", "--input", "-", "--json", stdin=json.dumps(turn)).stdout == shown.stdout

    def test_what_is_too_large_is_no_evidence(
        self, run: Run, turn: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(harness, "MAX_EVIDENCE_BYTES", 100)
        for name, stdin in (("turn.json", None), ("-", json.dumps(turn))):
            shown = run("harness", "check", "--input", name, stdin=stdin)
            assert shown.exit_code == 2
            assert "has more than 100 bytes" in shown.stderr

    def test_rejected(self, run: Run, write: Write, turn: dict[str, Any]) -> None:
        turn["evidence"]["toolUse"] = []
        write("turn.json", json.dumps(turn))
        shown = run("harness", "check", "--input", "turn.json", "--json")
        assert shown.exit_code == 1
        answer = json.loads(shown.stdout)
        assert answer["failureClasses"] == ["tool.join_incomplete", "tool.use_missing"]
        assert {"class", "where", "remedy"} <= answer["findings"][0].keys()
        for_people = run("harness", "check", "--input", "turn.json")
        assert for_people.exit_code == 1
        assert for_people.stdout.startswith("rejected  jw1_")
        assert "tool.use_missing  toolResults/g1" in for_people.stdout

    @pytest.mark.parametrize(
        ("text", "path"),
        [
            ('{"evidence": {"callSpec": []}}', "/evidence/callSpec"),
            ("{}", "/evidence"),
            ("[]", ""),
            ("{", ""),
            ('{"a": 1, "a": 2}', ""),
        ],
    )
    def test_invalid(self, run: Run, write: Write, text: str, path: str) -> None:
        write("turn.json", text)
        shown = run("harness", "check", "--input", "turn.json", "--json")
        assert shown.exit_code == 2
        assert json.loads(shown.stdout)["path"] == path
        assert shown.stderr.startswith(f"error: turn.json: {path or '/'}: ")
        assert run("harness", "check", "--input", "turn.json").stdout == ""

    @pytest.mark.parametrize(
        "options",
        [
            [],
            ["--input", "turn.json", "--log", "turn.json"],
            ["--log", "turn.json"],
            ["--input", "turn.json", "--strict"],
            ["--log", "turn.json", "--from", "jsonl", "--witness", "w.json"],
            ["--input", "none.json"],
        ],
    )
    def test_command_lines_that_make_no_sense(self, run: Run, turn: object, options: list[str]) -> None:  # noqa: ARG002
        assert run("harness", "check", *options).exit_code == 2


class TestCheckLog:
    def test_one_line_for_each_turn(self, run: Run) -> None:
        shown = run("harness", "check", "--log", GOOD, "--from", "anthropic")
        assert shown.exit_code == 0
        assert shown.stdout.splitlines() == [f"turn {n} (line {n}): accepted" for n in (1, 2, 3, 4)]
        assert shown.stderr == "4 turns: 4 accepted\n"

    def test_some_are_rejected(self, run: Run) -> None:
        shown = run("harness", "check", "--log", BAD, "--from", "anthropic")
        assert shown.exit_code == 1
        assert shown.stdout.splitlines()[1] == "turn 2 (line 2): rejected tool.schema_invalid"
        as_json = run("harness", "check", "--log", BAD, "--from", "anthropic", "--json")
        assert as_json.exit_code == 1
        second = json.loads(as_json.stdout.splitlines()[1])
        assert (second["number"], second["line"], second["result"]) == (2, 2, "rejected")

    def test_strict(self, run: Run) -> None:
        shown = run("harness", "check", "--log", GOOD, "--from", "anthropic", "--strict")
        assert shown.exit_code == 1
        assert "tool.use_missing" in shown.stdout

    def test_a_turn_that_cannot_be_read_is_named_and_the_others_are_judged(self, run: Run, write: Write) -> None:
        clash = exchanges(
            message(tool_use("toolu_1")),
            [tool_result("toolu_1"), tool_result("toolu_1", "other")],
            message(stop="end_turn"),
        )
        write("log.jsonl", lines(clash))
        shown = run("harness", "check", "--log", "log.jsonl", "--from", "anthropic")
        assert shown.exit_code == 2
        assert shown.stdout.splitlines() == ["turn 1 (line 1): invalid", "turn 2 (line 2): accepted"]
        assert "error: turn 1 (line 1): /evidence/toolResults: another row under 'toolu_1' " in shown.stderr

    def test_a_damaged_log(self, run: Run, write: Write) -> None:
        write("log.jsonl", Path(GOOD).read_bytes()[:-30])
        shown = run("harness", "check", "--log", "log.jsonl", "--from", "anthropic", "--json")
        assert shown.exit_code == 2
        *turns, error = map(json.loads, shown.stdout.splitlines())
        assert len(turns) == 3
        assert (error["result"], error["line"], error["path"]) == ("invalid", 4, "$")
        assert "error: log.jsonl: line 4: $: not JSON" in shown.stderr

    def test_an_empty_log(self, run: Run, write: Write) -> None:
        write("log.jsonl", b"")
        shown = run("harness", "check", "--log", "log.jsonl", "--from", "mcp")
        reason = "error: log.jsonl: /: no turn in this log; is it in the format mcp?\n"
        assert (shown.exit_code, shown.stdout, shown.stderr) == (2, "", f"0 turns: nothing to check\n{reason}")
        assert run("harness", "ingest", "log.jsonl", "--from", "mcp").exit_code == 2

    def test_the_policy_for_transcripts(self, run: Run, write: Write) -> None:
        write("log.jsonl", b'[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]')
        arguments = ("harness", "check", "--log", "log.jsonl", "--from", "openai")
        rejected = run(*arguments)
        assert "protocol.stop_reason_unhandled" in rejected.stdout
        assert rejected.stderr.endswith("the log has no stop reasons; --policy transcript is for such logs\n")
        assert run(*arguments, "--policy", "transcript").stderr == "1 turn: 1 accepted\n"

    def test_standard_input(self, run: Run) -> None:
        shown = run("harness", "check", "--log", "-", "--from", "anthropic", stdin=Path(GOOD).read_bytes())
        assert shown.exit_code == 0
        assert len(shown.stdout.splitlines()) == 4


class TestPolicy:
    def test_a_file_of_fields_and_constraints(self, run: Run, write: Write) -> None:
        write("policy.json", json.dumps({"toolConstraints": {"allowedTools": ["search_logs"]}}))
        shown = run("harness", "check", "--log", GOOD, "--from", "anthropic", "--policy", "policy.json")
        assert shown.exit_code == 1
        assert "turn 1 (line 1): rejected tool.unknown_or_disallowed" in shown.stdout

    def test_the_built_in_package(self, run: Run) -> None:
        assert run("harness", "check", "--log", GOOD, "--from", "anthropic", "--policy", "observe").exit_code == 0

    def test_what_is_no_policy(self, run: Run, write: Write, folder: Path) -> None:
        write("policy.json", json.dumps({"toolConstraints": []}))
        shown = run("harness", "check", "--log", GOOD, "--from", "anthropic", "--policy", "policy.json")
        assert (shown.exit_code, shown.stderr.splitlines()[-1]) == (
            2,
            "error: policy.json: /toolConstraints: expected an object",
        )
        assert run("harness", "check", "--log", GOOD, "--from", "anthropic", "--policy", "none").exit_code == 2
        (folder / "package").mkdir()
        assert run("harness", "check", "--log", GOOD, "--from", "anthropic", "--policy", "package").exit_code == 2


class TestIngest:
    def test_what_it_prints_can_be_checked(self, run: Run, write: Write) -> None:
        shown = run("harness", "ingest", BAD, "--from", "anthropic")
        assert shown.exit_code == 0
        write("turns.jsonl", shown.stdout)
        again = run("harness", "check", "--log", "turns.jsonl", "--from", "jsonl")
        assert again.stdout == run("harness", "check", "--log", BAD, "--from", "anthropic").stdout
        write("turn.json", shown.stdout.splitlines()[1])
        assert run("harness", "check", "--input", "turn.json").exit_code == 1

    def test_to_a_file(self, run: Run, folder: Path) -> None:
        shown = run("harness", "ingest", GOOD, "--from", "anthropic", "--out", "out.jsonl")
        assert (shown.exit_code, shown.stdout) == (0, "")
        assert len((folder / "out.jsonl").read_text().splitlines()) == 4

    def test_a_damaged_log_leaves_the_file_alone(self, run: Run, write: Write, folder: Path) -> None:
        write("out.jsonl", "before")
        write("log.jsonl", Path(GOOD).read_bytes()[:-30])
        shown = run("harness", "ingest", "log.jsonl", "--from", "anthropic", "--out", "out.jsonl")
        assert shown.exit_code == 2
        assert "line 4" in shown.stderr
        assert (folder / "out.jsonl").read_text() == "before"
        assert sorted(path.name for path in folder.iterdir()) == ["log.jsonl", "out.jsonl"]

    def test_a_folder_that_is_not_there(self, run: Run) -> None:
        assert run("harness", "ingest", GOOD, "--from", "anthropic", "--out", "no/out.jsonl").exit_code == 2


class TestVerify:
    @pytest.fixture(autouse=True)
    def witness(self, run: Run, turn: object) -> None:  # noqa: ARG002
        assert run("harness", "check", "--input", "turn.json", "--witness", "witness.json").exit_code == 0

    def test_it_holds(self, run: Run) -> None:
        shown = run("harness", "verify", "witness.json")
        assert shown.exit_code == 0
        assert shown.stdout.startswith("holds  jw1_")
        assert json.loads(run("harness", "verify", "witness.json", "--json").stdout)["holds"] is True

    def test_what_was_changed_is_named(self, run: Run, write: Write, folder: Path) -> None:
        witness = json.loads((folder / "witness.json").read_text())
        witness["turn"]["evidence"]["protocolState"]["stopReason"] = "refusal"
        write("witness.json", json.dumps(witness))
        shown = run("harness", "verify", "witness.json")
        assert shown.exit_code == 1
        assert '/result: "accepted" is not "rejected"' in shown.stdout
        assert "does not hold" in shown.stdout

    def test_what_is_no_witness(self, run: Run, write: Write) -> None:
        write("witness.json", "{}")
        shown = run("harness", "verify", "witness.json", "--json")
        assert shown.exit_code == 2
        assert json.loads(shown.stdout) == {
            "result": "invalid",
            "path": "/turn",
            "message": "is absent or not an object",
        }
