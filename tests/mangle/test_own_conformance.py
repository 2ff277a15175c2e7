"""Our own conformance programs, in the form of those in ``tests/conformance/mangle``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manglecp.base.source import Source
from manglecp.mangle.errors import MangleError
from manglecp.mangle.program import Program
from tests.mangle.loading import NOW
from tests.mangle.naive import evaluate

PROGRAMS = sorted(Path(__file__).parents[1].joinpath("conformance", "language").glob("*.mg"))


def outcome(path: Path) -> str:
    text = path.read_text("utf-8")
    header = dict(re.findall(r"^# (now|bounds): (.+)$", text, re.MULTILINE))
    assert header.get("now", "2026-01-15T12:00:00Z") == "2026-01-15T12:00:00Z"
    try:
        program = Program.load([Source(path.name, text)], bounds="off" if header.get("bounds") == "off" else "error")
        facts = evaluate(program, now=NOW).facts()
    except MangleError as error:
        return f"ERROR {error.stage}\n"
    return "".join(f"{fact}\n" for fact in facts)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_program(path: Path) -> None:
    want = path.with_suffix(".want").read_text("utf-8")
    expect = f"error {want.split()[1]}" if want.startswith("ERROR ") else "ok"
    assert path.read_text("utf-8").startswith(f"# expect: {expect}\n")
    assert outcome(path) == want


def test_there_are_programs() -> None:
    assert len(PROGRAMS) > 80
