"""Whoever follows the page about a chain that survives sees what it shows, with processes that are really killed."""

from __future__ import annotations

import shlex
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.deadlines import patience
from tests.docs.test_invocation_pages import comparable, newest_run, shell
from tests.docs.test_pages import ROOT
from tests.docs.walking import steps

pytestmark = pytest.mark.no_cover  # whole processes, and the code in them is tested elsewhere

PAGE = ROOT / "docs" / "tutorial" / "durable-chain.md"
PATIENCE = patience(60.0)


class Terminal:
    """The shell of whoever follows the page, as far as the page needs one."""

    def __init__(self) -> None:
        self._job: subprocess.Popen[bytes] | None = None

    def run(self, command: str, expected: str) -> str:
        match shlex.split(command):
            case ["manglecp", *args, "&"]:
                self._job = subprocess.Popen([sys.executable, "-m", "manglecp", *args])
            case ["kill", "-9", "%1"]:
                assert self._job is not None
                assert self._job.poll() is None, "it was over before it was killed"
                self._job.kill()
                self._job.wait()
                self._job = None
            case ["sleep", "15"]:
                lapse()
            case ["cat", file] if self._job is not None:
                return wait_for(Path(file), expected)
            case _:
                return shell(command, newest_run())
        return ""

    def close(self) -> None:
        if self._job is not None:
            self._job.kill()
            self._job.wait()


def lapse() -> None:
    """Let the time of every claim pass."""
    with sqlite3.connect(Path("state", "store.sqlite3")) as database:
        database.execute("UPDATE runs SET claim_until_ms = 0 WHERE state = 'running'")
    database.close()


def wait_for(file: Path, expected: str) -> str:
    """Look at a file as a person would who waits for something to be in it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if file.exists() and file.read_text().strip() == expected.strip():
            break
        time.sleep(0.05)
    return file.read_text() if file.exists() else ""


def test_a_chain_that_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("MANGLECP_STORE", raising=False)
    terminal = Terminal()
    commands = 0
    try:
        for command, expected in steps(PAGE.read_text("utf-8")):
            shown = terminal.run(command, expected)
            assert comparable(shown).strip() == comparable(expected).strip(), command
            commands += 1
    finally:
        terminal.close()
    assert commands == 27
