"""docs/reference/fact-files.md says what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from manglecp.cli import cli
from manglecp.mangle import Program, Source
from manglecp.pack.factfiles import FileLimits
from manglecp.pack.factfiles.reader import SUFFIXES
from manglecp.wire import Schemas, decode, read_fact, to_json, to_value

PAGE = Path(__file__).resolve().parents[3].joinpath("docs/reference/fact-files.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def fence(language: str, start: str) -> str:
    found: list[str] = [body for name, body in FENCES if name == language and body.startswith(start)]
    assert len(found) == 1
    return found[0]


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("calls.csv").write_text(fence("", "line,caller"))
    names: dict[str, object] = {}
    exec(fence("python", "from pathlib"), names)
    facts = names["facts"]
    assert isinstance(facts, list)
    assert [fact.text for fact in facts] == ['calls("main","init",7)', 'calls("main","run, then stop",12)']


def test_the_facts_are_facts() -> None:
    text = (
        "Decl calls(Caller, CalleeName, Line) bound [/string, /string, /number]. "
        "Decl state(Service, Level) temporal bound [/string, /name]."
    )
    schemas = Schemas(Program.load([Source("a.mg", text)]).predicates)
    first, second, third = (read_fact(decode(line.encode()), schemas) for line in fence("json", '{"pred"').splitlines())
    assert first == second
    assert third.text == 'state("shop",/up)@[2026-01-01T00:00:00Z, _]'


def test_the_wrappers_are_read() -> None:
    kinds = set()
    for line in fence("json", '{"_type"').splitlines():
        data = decode(line.encode())
        assert isinstance(data, dict)
        kinds.add(data["_type"])
        assert to_value(to_json(to_value(data))) == to_value(data)
    assert len(kinds) == 11


def test_the_error_looks_like_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.mg").write_text("Decl owner(Service, Team) bound [/string, /team].")
    Path("owner.csv").write_text("service,team\na,/team/x\nb,red\n")
    shown = CliRunner().invoke(cli, ["eval", "rules.mg", "--facts", "owner.csv"])
    assert shown.stderr == fence("", "error[parse]")


def test_the_tables_are_those_of_the_code() -> None:
    assert re.findall(r"^\| `(\.\w+)` \|", PAGE, re.MULTILINE) == [".csv", ".jsonl", ".mg", ".sc"]
    assert set(SUFFIXES) == {".csv", ".jsonl", ".mg", ".sc"}
    limits = FileLimits()
    assert limits.bytes == 1 << 30
    for limit in (limits.facts, limits.line, limits.errors):
        assert f"| {limit:,} |" in PAGE
