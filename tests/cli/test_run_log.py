"""`manglecp run-log`: what it finds, what it prints, and that it starts nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manglecp.runner import RunHeader, RunLog, verify
from tests.cli.conftest import Run
from tests.runner.playing import COUNT, NOOP, ROLL, Played, play
from tests.runner.test_log import chained

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def played(write: Write) -> Played:
    """A run whose log is run.jsonl."""
    run = play(None, COUNT, ROLL, COUNT, NOOP, key=b"k" * 32)
    write("run.jsonl", b"".join(run.lines))
    write("key", b"k" * 32)
    write("other", b"x" * 32)
    write("empty", b"")
    return run


def answer(run: Run, *args: str, status: int = 0) -> Any:
    shown = run("run-log", *args, "--json")
    assert (shown.exit_code, shown.stderr) == (status, ""), shown.stdout
    return json.loads(shown.stdout)


def test_a_log_verifies(run: Run, played: Played) -> None:
    shown = run("run-log", "verify", "run.jsonl", "--key-file", "key", "--head", played.head)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout == f"ok: run {'ab' * 16}, {len(played.lines)} records, noop, head {played.head}\n"
    document = answer(run, "verify", "run.jsonl")
    assert document == {
        "ok": True,
        "spec_version": "1.4.2",
        "profile_id": "A",
        "run_id": "ab" * 16,
        "request_id": "req-1",
        "records": len(played.lines),
        "steps": 4,
        "reason": "noop",
        "head": played.head,
    }


def test_a_log_is_played_again(run: Run, played: Played) -> None:
    shown = run("run-log", "replay", "-", "--key-file", "key", stdin=b"".join(played.lines))
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "ok: noop after 4 steps\n", "")
    assert answer(run, "replay", "run.jsonl") == {"ok": True, **played.result.members()}


@pytest.mark.parametrize("verb", ["verify", "replay"])
@pytest.mark.parametrize(
    ("cut", "options", "line", "why"),
    [
        (slice(0, -1), [], 20, "the end of the run is missing"),
        (slice(1, None), [], 1, "the hash does not match"),
        (slice(None), ["--key-file", "other"], 21, "the seal is not by this key"),
        (slice(None), ["--head", "0" * 64], 21, "the last hash is not the expected head"),
    ],
)
def test_a_broken_log_is_refused(
    run: Run, played: Played, write: Write, verb: str, cut: slice, options: list[str], line: int, why: str
) -> None:
    write("run.jsonl", b"".join(played.lines[cut]))
    shown = run("run-log", verb, "run.jsonl", *options)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr.startswith(f"run.jsonl:{line}: {why}")
    document = answer(run, verb, "run.jsonl", *options, status=1)
    assert (document["ok"], document["line"]) == (False, line)
    assert why in document["error"]


def test_a_forged_log_verifies_and_does_not_play(run: Run, played: Played, folder: Path) -> None:
    with RunLog.create(folder / "forged.jsonl", RunHeader("ab" * 16, "req-1")) as log:
        for record in verify(played.lines).records:
            payload = {name: value for name, value in record.payload.items() if name not in ("records", "seal")}
            log.write(record.event, record.step, {**payload, "reason": "goal_done"} if "reason" in payload else payload)
    assert run("run-log", "verify", "forged.jsonl").exit_code == 0
    shown = run("run-log", "replay", "forged.jsonl")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr.startswith("forged.jsonl:21: the replay differs from the record\n  recorded: {")
    document = answer(run, "replay", "forged.jsonl", status=1)
    assert (document["recorded"]["payload"]["reason"], document["replayed"]["payload"]["reason"]) == (
        "goal_done",
        "noop",
    )


def test_a_log_without_an_end_is_taken_if_one_says_so(run: Run, played: Played, write: Write) -> None:
    write("run.jsonl", b"".join(played.lines[:4]))
    document = answer(run, "verify", "run.jsonl", "--no-end")
    assert (document["records"], document["reason"]) == (4, None)
    assert "4 records, head" in run("run-log", "verify", "run.jsonl", "--no-end").stdout
    assert run("run-log", "verify", "run.jsonl").stderr.endswith(
        "the end of the run is missing; --no-end (end_required=False) accepts that\n"
    )


def test_a_log_that_was_cut_off_is_replayed_up_to_there(run: Run, played: Played, folder: Path) -> None:
    """At every record: the run may have been killed anywhere."""
    for count in range(1, len(played.lines)):
        (folder / "cut.jsonl").write_bytes(b"".join(played.lines[:count]))
        refused = answer(run, "replay", "cut.jsonl", status=1)
        assert refused["error"] == "the end of the run is missing; --no-end (end_required=False) accepts that"
        assert answer(run, "replay", "cut.jsonl", "--no-end") == {"ok": True, "reason": None}
    assert "the log has no end" in run("run-log", "replay", "cut.jsonl", "--no-end").stdout
    assert answer(run, "replay", "run.jsonl", "--no-end") == {"ok": True, **played.result.members()}


def test_a_log_that_was_cut_off_and_forged_does_not_replay(run: Run, played: Played, folder: Path) -> None:
    """A record is removed, and the chain is made anew."""
    records = ["{" + line.decode()[161:-1] for line in played.lines[:-1]]  # without the two members of the chain
    for gone in range(1, len(records) - 1):
        kept = [record for number, record in enumerate(records) if number != gone]
        (folder / "cut.jsonl").write_bytes(b"".join(chained(*kept)))
        answer(run, "verify", "cut.jsonl", "--no-end")
        assert run("run-log", "replay", "cut.jsonl", "--no-end").exit_code == 1, records[gone]


def test_an_empty_key_is_none(run: Run, played: Played) -> None:  # noqa: ARG001
    shown = run("run-log", "verify", "run.jsonl", "--key-file", "empty")
    assert shown.exit_code == 2
    assert "empty is empty" in shown.stderr


def test_verifying_does_not_load_the_language(played: Played) -> None:  # noqa: ARG001
    code = (
        "import sys\nfrom manglecp.cli import cli\n"
        "cli(['run-log', 'verify', 'run.jsonl'], standalone_mode=False)\nprint(*sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = shown.stdout.split()
    assert "manglecp.runner.log" in imported
    assert "manglecp.mangle.program" not in imported


@pytest.mark.usefixtures("played")
def test_a_log_is_read_line_by_line_and_not_without_end(run: Run) -> None:
    with open("long.jsonl", "wb") as file:  # noqa: PTH123
        file.truncate(1 << 40)  # more than any memory has, and one line
    shown = run("run-log", "verify", "long.jsonl")
    assert shown.exit_code == 1
    assert "long.jsonl:1: longer than" in shown.stderr


@pytest.mark.usefixtures("played")
def test_a_log_may_have_so_many_bytes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manglecp.cli.run_log._MAX_LOG_BYTES", 1_000)
    for verb in ("verify", "replay"):
        shown = run("run-log", verb, "run.jsonl")
        assert shown.exit_code == 2
        assert "has more than 1,000 bytes" in shown.stderr
