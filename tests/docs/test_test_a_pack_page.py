"""Whoever follows the page about testing a pack sees what it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from manglecp.cli import cli
from manglecp.testing import Answer, Delta, OfferedTool, Pack, Proof, Run
from tests.docs.test_pages import ROOT, fences
from tests.testing.test_plugin import run_pytest

PAGE = "how-to/test-a-pack.md"


@pytest.fixture
def drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    new, make = fences(PAGE)[0].splitlines()
    assert CliRunner().invoke(cli, new.split()[1:]).exit_code == 0
    subprocess.run(make.split(), check=True)
    (code,) = (body for body in fences(PAGE) if body.startswith("import pytest"))
    (tmp_path / "drafts/tests/test_review.py").write_text(code)
    return tmp_path


def test_the_tests_of_the_page_pass_and_show_the_rule_that_never_fires(drafts: Path) -> None:
    (command,) = (body for body in fences(PAGE) if "--pack-coverage" in body)
    assert f"{command.partition(' --')[0]}\n" in fences(PAGE), "the first command is the same without the report"
    ended = run_pytest(drafts, *command.split()[1:])
    assert ended.returncode == 0, ended.stdout
    assert "5 passed" in ended.stdout
    (shown,) = (body for body in fences(PAGE) if "rules fired" in body)
    assert shown in ended.stdout


def test_the_failure_of_the_page(drafts: Path) -> None:
    (drafts / "drafts/tests/test_review.py").write_text(
        'def test_it(pack):\n    pack.intent("review", facts=[\'draft("d", "private")\']).offers("measure_text")\n'
    )
    ended = run_pytest(drafts, "drafts")
    assert ended.returncode == 1
    (shown,) = (body for body in fences(PAGE) if body.startswith("AssertionError"))
    lines = [re.sub(r"^E +", "", line) for line in ended.stdout.splitlines() if line.startswith("E ")]
    assert lines == [line.strip() for line in shown.splitlines()]


@pytest.mark.usefixtures("drafts")
def test_the_commands() -> None:
    (body,) = (body for body in fences(PAGE) if body.startswith("$ manglecp intent"))
    commands = [shlex.split(line)[2:] for line in body.splitlines()]
    intent, call = (CliRunner().invoke(cli, command, catch_exceptions=False) for command in commands)
    assert "exclusion: private drafts are not looked at" in intent.stdout
    assert (call.exit_code, call.stderr) == (0, "")
    assert "sentences: 2" in call.stdout


def test_what_the_page_names_is_there() -> None:
    text = (ROOT / "docs" / PAGE).read_text("utf-8")
    homes = {"pack": Pack, "answer": Answer, "run": Run, "run.delta": Delta}
    named = set(re.findall(r"`(pack|answer|run\.delta|run)\.(\w+)", text)) - {("pack", "toml")}
    assert len(named) > 15
    for home, name in named:
        assert hasattr(homes[home], name), f"{home}.{name}"
    (listed,) = re.findall(r"would be shown: (.*?)\. `answer", text, re.DOTALL)
    for name in re.findall(r"`(\w+)`", listed):
        assert hasattr(OfferedTool, name), name
    for name in ("facts", "rules", "tree", "uses"):
        assert hasattr(Proof, name)
