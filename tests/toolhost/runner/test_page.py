"""docs/reference/runner.md says what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manglecp.toolhost.runner import ControlMode, EndReason, Kind, parse
from tests.toolhost.runner.playing import COUNT, FAIL, NOOP, play

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/runner.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(FENCES[0], {})  # our own page
    assert capsys.readouterr().out.strip() == FENCES[0].strip().rpartition("# ")[2]


def test_the_selections_shown_are_valid() -> None:
    assert [parse(line).kind for line in FENCES[1].splitlines()] == [Kind.ASK_SUP, Kind.NOOP, *[Kind.PICK] * 3]


def test_every_mode_end_and_event_is_named() -> None:
    events = {event for said in ((COUNT, NOOP), (FAIL,), ("junk",)) for event in play(None, *said).events()}
    for word in (*ControlMode, *EndReason, *events):
        assert f"`{word}`" in PAGE
