from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.test_eval import ENDLESS, WARNS

Write = Callable[[str, str | bytes], Path]


def test_a_sound_program(run: Run, write: Write) -> None:
    write("a.mg", "p(1). p(2).")
    write("b.mg", "q(X) :- p(X).")
    shown = run("check", "a.mg", "b.mg")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "2 files, 1 rule, 2 facts: ok\n", "")


def test_nothing_is_evaluated(run: Run) -> None:
    assert run("check", "-", stdin=ENDLESS).stdout == "1 file, 1 rule, 1 fact: ok\n"


def test_warnings_are_not_errors(run: Run) -> None:
    shown = run("check", "-", stdin=WARNS)
    assert shown.exit_code == 0
    assert shown.stdout == "1 file, 1 rule, 1 fact: ok, 1 warning\n"
    assert shown.stderr.startswith("warning[analysis]: <stdin>:4:")


def test_errors_of_all_files(run: Run, write: Write) -> None:
    write("a.mg", "p(")
    write("b.mg", "p(1). q(].\nr({).")
    shown = run("check", "a.mg", "b.mg")
    assert shown.exit_code == 1
    assert shown.stdout == "2 files: 3 errors\n"
    assert shown.stderr.count("error[parse]: ") == 3
    assert "  1 | p(1). q(].\n    |         ^\n" in shown.stderr


def test_stages(run: Run) -> None:
    assert run("check", "-", stdin="q(X) :- p(Y).").stderr.startswith("error[analysis]: ")
    assert run("check", "-", stdin="p(1). q(X) :- p(X), !q(X).").stderr.startswith("error[stratification]: ")


def test_json_of_a_sound_program(run: Run) -> None:
    shown = run("check", "-", "--json", stdin="p(1).")
    assert shown.exit_code == 0
    assert json.loads(shown.stdout) == {"ok": True, "diagnostics": []}


def test_json(run: Run, write: Write) -> None:
    write("a.mg", "p(1).\nq(X) :-\n  p(1), r(X).\n")
    shown = run("check", "a.mg", "--json")
    assert shown.exit_code == 1
    assert shown.stderr == ""
    document = json.loads(shown.stdout)
    assert document["ok"] is False
    diagnostic = document["diagnostics"][0]
    assert list(diagnostic) == [
        *("severity", "stage", "message", "file", "line", "column", "end_line", "end_column", "clause", "fix")
    ]
    assert (diagnostic["severity"], diagnostic["stage"]) == ("error", "analysis")
    assert "r" in diagnostic["message"]
    assert diagnostic["file"] == "a.mg"
    assert (diagnostic["line"], diagnostic["column"]) == (3, 9)
    assert (diagnostic["end_line"], diagnostic["end_column"]) == (3, 13)


def test_json_of_warnings(run: Run) -> None:
    document = json.loads(run("check", "-", "--json", stdin=WARNS).stdout)
    assert document["ok"] is True
    assert [d["severity"] for d in document["diagnostics"]] == ["warning"]
