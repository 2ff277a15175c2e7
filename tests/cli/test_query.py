from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

PROGRAM = """
edge(1, 2). edge(2, 2). edge(2, 3).
Decl up(Service) temporal bound [/name].
up(/a)@[2026-01-01, 2026-01-10].
up(/b)@[2026-01-05, _].
"""


@pytest.mark.parametrize(
    ("query", "facts"),
    [
        ("edge(X, Y)", ["edge(1,2)", "edge(2,2)", "edge(2,3)"]),
        ("edge(_, _)", ["edge(1,2)", "edge(2,2)", "edge(2,3)"]),
        ("edge(X, X)", ["edge(2,2)"]),
        ("edge(2, X).", ["edge(2,2)", "edge(2,3)"]),
        ("edge(fn:plus(1, 1), 3)", ["edge(2,3)"]),
        ("edge(7, _)", []),
        ("up(X)", ["up(/a)@[2026-01-01T00:00:00Z, 2026-01-10T00:00:00Z]", "up(/b)@[2026-01-05T00:00:00Z, _]"]),
        ("up(X)@[now]", ["up(/b)@[2026-01-05T00:00:00Z, _]"]),
        ("up(X)@[2026-01-02]", ["up(/a)@[2026-01-01T00:00:00Z, 2026-01-10T00:00:00Z]"]),
        ("[-[1d] up(X)", ["up(/b)@[2026-01-05T00:00:00Z, _]"]),
    ],
)
def test_matching_facts_are_printed(run: Run, query: str, facts: list[str]) -> None:
    shown = run("query", "-", query, "--now", "2026-01-15T12:00:00Z", stdin=PROGRAM)
    assert shown.exit_code == 0
    assert shown.stderr == ""
    assert shown.stdout.splitlines() == facts


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("edge(", "error[parse]"),
        ("", "error[parse]"),
        ("edge(1, 2), edge(2, 3)", "error[parse]"),
        ("!edge(1, 2)", "error[analysis]"),
        ("edge(X)", "error[analysis]"),
        ("egde(X, Y)", "error[analysis]"),
        ("edge(fn:plus(X, 1), 2)", "error[analysis]"),
    ],
)
def test_a_bad_query(run: Run, query: str, error: str) -> None:
    shown = run("query", "-", query, stdin=PROGRAM)
    assert shown.exit_code == 1
    assert shown.stdout == ""
    assert shown.stderr.startswith(error)


def test_the_program_may_be_bad_too(run: Run) -> None:
    assert run("query", "-", "p(X)", stdin="p(").stderr.startswith("error[parse]: <stdin>:1:")
    assert run("query", "-", "p(X)", "--limit", "0", stdin="q(1). p(X) :- q(X).").stderr.startswith("error[eval]")
    assert run("query", "-", "p(X)", "--bounds", "off", stdin="Decl p(X) bound [/name]. p(1).").stdout == "p(1)\n"


def test_a_forgotten_query_is_noticed(run: Run, folder: Path) -> None:
    folder.joinpath("a.mg").write_text(PROGRAM)
    for files in (["a.mg"], ["a.mg", "a.mg"], ["a.mg", "-"]):
        shown = run("query", *files)
        assert shown.exit_code == 2
        assert "the last argument is the query" in shown.stderr


def test_facts_as_json_can_be_read_again(run: Run, tmp_path: Path) -> None:
    shown = run("query", "-", "up(X)", "--json", stdin=PROGRAM)
    assert shown.stdout.splitlines() == [
        '{"pred": "up", "args": ["/a"], "t": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-10T00:00:00Z"}}',
        '{"pred": "up", "args": ["/b"], "t": {"start": "2026-01-05T00:00:00Z", "end": "_"}}',
    ]
    rules = tmp_path / "rules.mg"
    rules.write_text("Decl edge(X, Y) bound [/any, /any].\nDecl up(Service) temporal bound [/name].\n")
    saved = tmp_path / "all.jsonl"
    mixed = PROGRAM + 'edge(/name, 1.0). edge("1", ["a" : {/b : 9007199254740993}]).'
    saved.write_text(run("eval", "-", "--json", stdin=mixed).stdout)
    again = run("eval", str(rules), "--facts", str(saved))
    assert again.stdout == run("eval", "-", stdin=mixed).stdout


def test_nothing_is_no_line_of_json(run: Run) -> None:
    assert run("query", "-", "edge(7, _)", "--json", stdin=PROGRAM).stdout == ""
