"""What the pages about logs show is what happens."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from manglecp.adapters import ingest, records
from manglecp.adapters.conversation import RETRYABLE
from manglecp.cli import cli
from manglecp.harness import judge
from tests.docs.test_pages import ROOT, fences


def test_checking_a_transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log, *steps = fences("how-to/check-a-transcript.md")
    Path("agent.jsonl").write_text(log, encoding="utf-8")
    commands = 0
    for step in steps:
        if not step.startswith("$ "):  # what the tool should have said
            prose = '"content": "Sorry, the ledger did not answer. Please try again later."'
            mended = f'"content": {json.dumps(step.strip())}'
            assert prose in log
            log = log.replace(prose, mended)
            continue
        command, _, expected = step.partition("\n")
        if command == "$ head -n 1 turns.jsonl > turn.json":
            Path("turn.json").write_text(Path("turns.jsonl").read_text().splitlines()[0])
            continue
        if command.startswith("$ sed"):
            subprocess.run(["bash", "-c", command.removeprefix("$ ")], check=True)
            assert Path("agent.jsonl").read_text(encoding="utf-8") == log
            continue
        result = CliRunner().invoke(cli, shlex.split(command)[2:])
        assert re.sub("jw1_[0-9a-f]+", "jw1_…", result.stdout + result.stderr) == expected, command
        assert result.exit_code == ("rejected" in expected), command
        commands += 1
    assert commands == 5


def test_rows_of_the_reference() -> None:
    (rows,) = (body for body in fences("reference/harness-logs.md") if body.startswith('{"turn"'))
    (document,) = ingest(rows, "jsonl")
    assert judge(document).result == "accepted"


def test_the_table_of_codes_is_current() -> None:
    again, never = (set(body.split()) for body in fences("reference/harness-logs.md")[-2:])
    assert again == {code for code, answer in RETRYABLE.items() if answer}
    assert never == {code for code, answer in RETRYABLE.items() if not answer}


def test_the_limits_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "reference" / "harness-logs.md").read_text(encoding="utf-8")
    assert f"a log {records.MAX_LOG_BYTES >> 30} GiB" in text
    assert f"at most {records.MAX_LINE_BYTES >> 20} MiB" in text
    assert f"at most {records.MAX_NESTING} deep" in text
    assert f"{records.MAX_OPEN_TURNS} turns may be open" in text
