"""Whoever follows the page about a first pack sees what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from manglecp.cli import cli

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-pack.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"`(notes/[^`]+)`")


def comparable(shown: str, clocked: bool) -> str:
    """Without what differs from one machine and moment to the next: who counts tokens, and the clock if it was read."""
    counted = re.sub(r"\d+ tokens by \w+", "N tokens", shown)
    return re.sub(r" at \S+Z,", " at NOW,", counted) if clocked else counted


@pytest.mark.process
def test_the_page_shows_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    statuses = []
    for fence in FENCE.finditer(text):
        language, body = fence.groups()
        command, _, expected = body.partition("\n")
        if command.startswith("$ manglecp "):
            done = CliRunner().invoke(cli, shlex.split(command)[2:], catch_exceptions=False)
            clocked = "--now" not in command
            shown = done.stderr + done.stdout
            assert comparable(shown, clocked) == comparable(expected, clocked), command
            statuses.append(done.exit_code)
            continue
        file = Path(FILE.findall(text[: fence.start()])[-1])  # the one that was named last
        file.parent.mkdir(parents=True, exist_ok=True)
        before = file.read_text("utf-8") + "\n\n" * bool(language) if file.exists() else ""
        file.write_text(before + body, "utf-8")
    assert statuses == [0, 0, 1, 0, 1, 0, 0, 0, 1]
