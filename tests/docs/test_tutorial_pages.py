"""Whoever follows the tutorials about a policy and about a transcript sees what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.snippets import blocks
from tests.docs.walking import Pasting, follow
from tests.testing.test_plugin import run_pytest

pytestmark = pytest.mark.no_cover  # whole processes, and the code in them is tested elsewhere


def test_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    writing, rules, *_ = (body for language, body in Pasting("docs/tutorial/ten-minutes.md").blocks if language == "sh")
    pasted = Pasting("docs/tutorial/ten-minutes.md")
    pasted.blocks = [("sh", writing), ("sh", rules)]
    pasted.paste(tmp_path)
    page = "docs/tutorial/policy.md"
    assert follow(page) == 8
    (command,) = (block.body for block in blocks(page) if block.language == "sh")
    (shown,) = (block.body for block in blocks(page) if block.language == "text")
    ended = run_pytest(tmp_path, *command.split()[1:])
    assert ended.returncode == 0, ended.stdout
    assert shown in ended.stdout


def test_a_transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert follow("docs/tutorial/transcript.md") == 17
