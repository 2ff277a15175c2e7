"""The first page, README.md: its recording is what happens, its pack can be pasted, its figures have a source."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from manglecp.cli import cli
from tests.docs.snippets import ROOT, blocks, commands
from tests.docs.walking import Pasting, comparable
from tools.recording import COMMANDS, recorded, recording

PAGE = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.no_cover
def test_the_recording_is_what_happens() -> None:
    shown = comparable(recorded())
    (block,) = (block for block in blocks("README.md") if block.language == "console")
    assert comparable(block.body) == shown, "run: .venv/bin/python -m tools.recording"
    assert block.body in recording()
    for command in COMMANDS:
        assert f"$ {command}\n" in block.body
    assert len(block.body.splitlines()) < 75, "nobody reads more than that in a minute"


@pytest.mark.no_cover
def test_the_pack_can_be_pasted(tmp_path: Path) -> None:
    page = Pasting("README.md")
    page.blocks = [("sh", body) for language, body in page.blocks if language == "sh" and "cat > " in body]
    ((shown, _),) = page.paste(tmp_path)
    assert "desk, 4 rules, 2 actions, 0 skills: ok" in shown
    assert "exclusion: the permission refund is missing" in shown


@pytest.mark.process
def test_the_commands_by_hand_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    lines = [line for block in blocks("README.md") for line in commands(block) if line.startswith(".venv/bin/manglecp")]
    assert len(lines) == 3
    for line in lines:
        done = CliRunner().invoke(cli, shlex.split(line)[1:], catch_exceptions=False)
        assert (done.exit_code, done.stderr) == (0, ""), line


def test_every_test_that_it_names_is_there() -> None:
    section = PAGE.partition("## What it guarantees")[2].partition("\n## ")[0]
    named = re.findall(r"`((?:tests/|test_)[^`]+)`", section)
    assert len(named) > 8
    for name in named:
        path = name if name.startswith("tests/") else f"tests/adversarial/{name}"
        assert (ROOT / path).exists(), name


def test_every_benchmark_that_it_names_is_there() -> None:
    section = PAGE.partition("## Beside a plain MCP server")[2].partition("\n## ")[0]
    named = re.findall(r"`(?:benchmarks/)?(\w+\.py)`", section)
    assert len(named) == 3
    assert all((ROOT / "benchmarks" / name).exists() for name in named)


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE)
    assert len(links) > 20
    assert [link for link in links if not (ROOT / link).exists()] == []
