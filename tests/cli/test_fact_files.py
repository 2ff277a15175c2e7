from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

Write = Callable[[str, str | bytes], Path]

RULES = """
Decl calls(Caller, Callee) bound [/string, /string].
Decl owner(Service, Team) bound [/string, /team].
reaches(A, B) :- calls(A, B).
reaches(A, C) :- calls(A, B), reaches(B, C).
"""


@pytest.fixture
def rules(write: Write) -> str:
    write("rules.mg", RULES)
    return "rules.mg"


def test_facts_of_several_files_and_formats_are_one_base(run: Run, write: Write, rules: str) -> None:
    write("calls.csv", "caller,callee\na,b\n")
    write("more.jsonl.gz", gzip.compress(b'{"pred": "calls", "args": ["b", "c"]}\n'))
    write("owner.mg", 'owner("a", /team/x).')
    files = ["--facts", "calls.csv", "--facts", "more.jsonl.gz", "--facts", "owner.mg"]
    shown = run("eval", rules, *files)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout.splitlines() == [
        'calls("a","b")',
        'calls("b","c")',
        'owner("a",/team/x)',
        'reaches("a","b")',
        'reaches("a","c")',
        'reaches("b","c")',
    ]
    assert run("query", rules, 'reaches("a", X)', *files).stdout == 'reaches("a","b")\nreaches("a","c")\n'


def test_they_come_from_the_server(run: Run, write: Write, rules: str) -> None:
    write("calls.csv", "caller,callee\na,b\n")
    shown = run("eval", rules, "--facts", "calls.csv", "--explain", 'reaches("a","b")', "--json")
    (premise,) = json.loads(shown.stdout)["proof"]["premises"]
    assert premise["origin"] == "server"


def test_a_table_may_have_any_name(run: Run, write: Write, rules: str) -> None:
    write("export=1.csv", "caller,callee\na,b\n")
    assert run("eval", rules, "--pred", "calls", "--facts", "calls=export=1.csv").stdout == 'calls("a","b")\n'
    unknown = run("eval", rules, "--facts", "export=1.csv")
    assert unknown.stderr.startswith("error[parse]: export=1.csv:1:1: unknown predicate export=1")


def test_all_errors_of_all_files_and_no_facts(run: Run, write: Write, rules: str) -> None:
    write("owner.csv", "service,team\na,/team/x\nb,red\nc\n")
    write("calls.jsonl", '{"pred": "calls", "args": [1, "b"]}\n')
    shown = run("eval", rules, "--facts", "owner.csv", "--facts", "calls.jsonl")
    assert shown.exit_code == 1
    assert shown.stdout == ""
    assert shown.stderr.splitlines() == [
        "error[parse]: owner.csv:3:3: column team: 'red' is not a name",
        "  3 | b,red",
        "    |   ^^^",
        "  fix: write '/red'",
        "error[parse]: owner.csv:4:1: 1 cell in this row",
        "  4 | c",
        "    | ^",
        "  fix: the header names 2",
        "error[parse]: calls.jsonl:1:1: $.args[0]: argument caller of calls takes /string, not the number '1'",
        '  1 | {"pred": "calls", "args": [1, "b"]}',
        "    | " + "^" * 35,
    ]


def test_bounds_can_be_switched_off(run: Run, write: Write, rules: str) -> None:
    write("owner.csv", "service,team\na,/user/x\n")
    assert run("eval", rules, "--facts", "owner.csv").exit_code == 1
    assert run("eval", rules, "--facts", "owner.csv", "--bounds", "off").stdout == 'owner("a",/user/x)\n'


def test_limits_count_what_the_base_derives(run: Run, write: Write, rules: str) -> None:
    write("calls.csv", "caller,callee\na,b\nb,c\n")
    assert run("eval", rules, "--facts", "calls.csv", "--limit", "3").exit_code == 0
    assert run("eval", rules, "--facts", "calls.csv", "--limit", "2").stderr.startswith("error[eval]: ")


def test_the_plan_and_the_cost_can_be_shown(run: Run, write: Write, rules: str) -> None:
    write("calls.csv", "caller,callee\na,b\n")
    assert "def " in run("eval", rules, "--facts", "calls.csv", "--show-plan").stdout
    assert "given" in run("eval", rules, "--facts", "calls.csv", "--time").stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--facts", "missing.csv"], "there is no file 'missing.csv'."),
        (["--facts", "calls=missing.csv"], "there is no file 'missing.csv'."),
        (["--facts", "."], "there is no file '.'."),
    ],
)
def test_wrong_command_lines(run: Run, rules: str, arguments: list[str], message: str) -> None:
    shown = run("eval", rules, *arguments)
    assert shown.exit_code == 2
    assert message in shown.stderr


def test_a_file_that_may_not_be_read(run: Run, write: Write, rules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write("calls.csv", "caller,callee\n")

    opened = Path.open

    def refuse(path: Path, *given: Any) -> Any:
        if path.suffix == ".csv":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *given)

    monkeypatch.setattr(Path, "open", refuse)
    shown = run("eval", rules, "--facts", "calls.csv")
    assert shown.exit_code == 2
    assert "cannot read calls.csv: Permission denied" in shown.stderr


def test_who_reads_no_fact_files_pays_for_none(write: Write, rules: str) -> None:  # noqa: ARG001
    script = (
        "import sys; from manglecp.cli import cli; cli(['eval', 'rules.mg'], standalone_mode=False);"
        "costly = ('msgspec', 'csv', 'manglecp.pack.', 'manglecp.wire.');"
        "print([name for name in sys.modules if name.startswith(costly)])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
