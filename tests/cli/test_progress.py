from __future__ import annotations

import io
import time

import pytest

from manglecp.cli import output
from manglecp.cli.output import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def wait_for(stream: io.StringIO, text: str) -> None:
    deadline = time.monotonic() + 10
    while text not in stream.getvalue():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_terminal_is_told_after_a_while_and_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(output, "PROGRESS_DELAY", 0.01)
    with ProgressLine("loading") as progress:
        wait_for(terminal, "\rloading … 0 s")
        progress.doing = "evaluating"
        wait_for(terminal, "\revaluating … 1 s")
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_what_is_quick_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with ProgressLine("loading"):
        pass
    assert terminal.getvalue() == ""


def test_only_a_terminal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    monkeypatch.setattr(output, "PROGRESS_DELAY", 0.0)
    with ProgressLine("loading"):
        time.sleep(0.05)
    assert log.getvalue() == ""


def test_an_error_leaves_the_terminal_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(output, "PROGRESS_DELAY", 0.0)

    def fail() -> None:
        with ProgressLine("loading"):
            wait_for(terminal, "loading")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert terminal.getvalue().endswith("\r\x1b[K")
