"""docs/reference/runner.md says what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manglecp.runner import ControlMode, EndReason, SelectionKind, parse_selection
from tests.runner.playing import COUNT, FAIL, NOOP, play

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/runner.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("code", [code for language, code in FENCES if language == "python"])
def test_the_examples_print_what_they_say(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(code, {})  # our own page
    assert capsys.readouterr().out.strip() == code.strip().rpartition("# ")[2]


def test_the_first_example_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    code = next(code for language, code in FENCES if language == "python")
    exec(code.replace("return name\n", "return name\n\nraise ValueError('broken')\n"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("tool_error plugin ")
    assert printed.endswith("ValueError: broken (line 10)\n")


def test_the_selections_shown_are_valid() -> None:
    (selections,) = (text for language, text in FENCES if not language)
    assert [parse_selection(line).kind for line in selections.splitlines()] == [
        SelectionKind.ASK_SUP,
        SelectionKind.NOOP,
        *[SelectionKind.PICK] * 3,
    ]


def test_every_mode_end_and_event_is_named() -> None:
    events = {event for said in ((COUNT, NOOP), (FAIL,), ("junk",)) for event in play(None, *said).events()}
    for word in (*ControlMode, *EndReason, *events):
        assert f"`{word}`" in PAGE
