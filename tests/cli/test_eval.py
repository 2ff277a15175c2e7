from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from manglecp.cli import cli
from tests.cli.conftest import Run

Write = Callable[[str, str | bytes], Path]

SERVICES = """
depends(/shop, /payments). depends(/payments, /ledger).
needs(A, B) :- depends(A, B).
needs(A, C) :- depends(A, B), needs(B, C).
"""
ENDLESS = "Decl n(X) bound [/number]. n(0). n(Y) :- n(X), Y = fn:plus(X, 1)."
# Recursion through time is worth a warning.
WARNS = """
Decl on(X) temporal bound [/number].
on(1)@[2026-01-01, 2026-01-02].
on(X)@[S, E] :- on(X)@[S, E].
"""


def test_every_fact_is_printed_sorted(run: Run, write: Write) -> None:
    write("a.mg", SERVICES)
    shown = run("eval", "a.mg")
    assert shown.exit_code == 0
    assert shown.stderr == ""
    assert shown.stdout.splitlines() == [
        "depends(/payments,/ledger)",
        "depends(/shop,/payments)",
        "needs(/payments,/ledger)",
        "needs(/shop,/ledger)",
        "needs(/shop,/payments)",
    ]


def test_output_ends_with_one_newline_unless_empty(run: Run, write: Write) -> None:
    write("a.mg", "p(1).")
    write("empty.mg", "# nothing\n")
    assert run("eval", "a.mg").stdout == "p(1)\n"
    assert run("eval", "empty.mg").stdout == ""


def test_several_files_and_standard_input_are_one_program(run: Run, write: Write) -> None:
    write("rules.mg", "q(X) :- p(X).")
    assert run("eval", "rules.mg", "-", stdin="p(2).").stdout == "p(2)\nq(2)\n"


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ("parse", "p(1). q("),
        ("analysis", "p(1). q(X) :- p(Y)."),
        ("stratification", "p(1). q(X) :- p(X), !r(X). r(X) :- p(X), !q(X)."),
        ("eval", "p(0). q(Y) :- p(X), Y = fn:div(1, X)."),
    ],
)
def test_an_error_prints_no_facts(run: Run, stage: str, text: str) -> None:
    shown = run("eval", "-", stdin=text)
    assert shown.exit_code == 1
    assert shown.stdout == ""
    assert shown.stderr.startswith(f"error[{stage}]: <stdin>:1:")


def test_all_errors_of_a_stage_are_shown(run: Run, write: Write) -> None:
    write("a.mg", "p(. q(1).\nr(]).")
    write("b.mg", "s(1)")
    shown = run("eval", "a.mg", "b.mg")
    places = re.findall(r"^error\[parse\]: (\S+?:\d+)", shown.stderr, re.MULTILINE)
    assert places == ["a.mg:1", "a.mg:2", "b.mg:1"]


def test_warnings_come_after_errors_and_refuse_nothing(run: Run) -> None:
    shown = run("eval", "-", stdin=WARNS)
    assert shown.exit_code == 0
    assert shown.stdout == "on(1)@[2026-01-01T00:00:00Z, 2026-01-02T00:00:00Z]\n"
    assert shown.stderr.startswith("warning[analysis]: <stdin>:4:")
    shown = run("eval", "-", stdin=WARNS + "z(0). d(Y) :- z(X), Y = fn:div(1, X).")
    assert shown.exit_code == 1
    assert shown.stdout == ""
    assert re.findall(r"^\w+\[\w+\]", shown.stderr, re.MULTILINE) == ["error[eval]", "warning[analysis]"]


class TestNow:
    PROGRAM = "clock(T) :- one(_), T = fn:time:now(). one(1)."

    def now(self, run: Run, *options: str) -> str:
        shown = run("eval", "-", "--pred", "clock", *options, stdin=self.PROGRAM)
        assert shown.exit_code == 0
        found = re.fullmatch(r'clock\(fn:time:parse_rfc3339\("(.*)"\)\)\n', shown.stdout)
        assert found is not None
        return found[1]

    @pytest.mark.parametrize(
        ("text", "instant"),
        [
            ("2026-01-15T12:00:00Z", "2026-01-15T12:00:00Z"),
            ("2026-01-15t12:00:00z", "2026-01-15T12:00:00Z"),
            ("2026-01-15T12:00:00+01:30", "2026-01-15T10:30:00Z"),
            ("2026-01-15T12:00:00.123456789-00:01", "2026-01-15T12:01:00.123456789Z"),
        ],
    )
    def test_rfc3339(self, run: Run, text: str, instant: str) -> None:
        assert self.now(run, "--now", text) == instant

    def test_default_is_the_clock(self, run: Run) -> None:
        before = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        found = self.now(run)
        after = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))
        assert before <= found <= after

    @pytest.mark.parametrize("text", ["noon", "2026-01-15", "2026-01-15T12:00:00", "2026-02-30T12:00:00Z", ""])
    def test_anything_else_is_a_usage_error(self, run: Run, text: str) -> None:
        shown = run("eval", "-", "--now", text, stdin=self.PROGRAM)
        assert shown.exit_code == 2
        assert shown.stdout == ""
        assert "Invalid value for '--now'" in shown.stderr
        assert "such as 2026-01-31T12:00:00Z" in shown.stderr

    def test_out_of_range(self, run: Run) -> None:
        shown = run("eval", "-", "--now", "2263-01-01T00:00:00Z", stdin=self.PROGRAM)
        assert shown.exit_code == 2
        assert "between 1677-09-21 and 2262-04-11" in shown.stderr


class TestLimit:
    def test_n_pass_and_one_more_does_not(self, run: Run) -> None:
        assert run("eval", "-", "--limit", "3", stdin=SERVICES).exit_code == 0
        shown = run("eval", "-", "--limit", "2", stdin=SERVICES)
        assert shown.exit_code == 1
        assert shown.stdout == ""
        assert shown.stderr.startswith("error[eval]: <stdin>:4:1: limit of 2 derived facts passed (3 reached)")

    def test_it_is_a_number(self, run: Run) -> None:
        assert run("eval", "-", "--limit", "-1", stdin="").exit_code == 2
        assert run("eval", "-", "--limit", "many", stdin="").exit_code == 2


def test_bounds(run: Run) -> None:
    text = "Decl p(X) bound [/number]. p(/a)."
    assert run("eval", "-", stdin=text).stderr.startswith("error[analysis]: <stdin>:1:")
    assert run("eval", "-", "--bounds", "off", stdin=text).stdout == "p(/a)\n"
    assert run("eval", "-", "--bounds", "maybe", stdin=text).exit_code == 2


def test_one_predicate(run: Run) -> None:
    assert run("eval", "-", "--pred", "depends", stdin=SERVICES).stdout.count("\n") == 2
    assert run("eval", "-", "--pred", "p", stdin="Decl p(X).").stdout == ""


def test_an_unknown_predicate(run: Run) -> None:
    shown = run("eval", "-", "--pred", "neds", stdin=SERVICES)
    assert shown.exit_code == 2
    assert shown.stdout == ""
    assert "Invalid value for '--pred': the program has no predicate 'neds'. Did you mean 'needs'?" in shown.stderr
    assert "Did you mean" not in run("eval", "-", "--pred", "xyz", stdin=SERVICES).stderr


def test_time(run: Run) -> None:
    shown = run("eval", "-", "--time", stdin=SERVICES)
    assert shown.stdout.count("\n") == 5
    words = [line.split() for line in shown.stderr.splitlines()]
    assert [line[0] for line in words] == ["given", "derived", "strata", "rounds", "load", "evaluation"]
    assert words[0] == ["given", "2", "facts"]
    assert words[1] == ["derived", "3", "facts"]
    assert words[4][2] == "s"


def test_the_plan_shows_what_was_compiled() -> None:
    shown = CliRunner().invoke(cli, ["eval", "-", "--show-plan"], input="n(1). p(X) :- n(X), X > 0.")
    assert shown.exit_code == 0
    assert "# p/1: not recursive" in shown.stdout
    assert "def rule_0_0(views, now, limits, rows, known=None):" in shown.stdout


def test_the_costs_of_rules() -> None:
    rules = "n(1). n(2). p(X) :- n(X). q(X, Y) :- p(X), p(Y). c(N) :- q(_, _) |> do fn:group_by(), let N = fn:count()."
    shown = CliRunner().invoke(cli, ["eval", "-", "--profile", "--json"], input=rules)
    costs = {cost["text"].partition("(")[0]: cost for cost in json.loads(shown.stdout)["rules"]}
    assert {name: (cost["runs"], cost["rows"], cost["place"]) for name, cost in costs.items()} == {
        "p": (1, 2, "<stdin>:1"),
        "q": (1, 4, "<stdin>:1"),
        "c": (1, 4, "<stdin>:1"),
    }
    assert all(cost["seconds"] > 0 for cost in costs.values())
    chain = "e(1, 2). e(2, 3). e(3, 4). t(X, Y) :- e(X, Y). t(X, Z) :- t(X, Y), e(Y, Z)."
    lines = CliRunner().invoke(cli, ["eval", "-", "--profile"], input=chain).stdout.splitlines()
    assert lines[0].split() == ["TIME", "RUNS", "ROWS", "PLACE", "RULE"]
    assert sorted(line.split()[2:4] for line in lines[1:]) == [["1", "3"], ["3", "3"]]
    deferred = 'Decl more(X, Y) descr [mode("+", "-"), deferred()] bound [/number, /number].'
    deferred += "n(1). more(X, Y) :- Y = fn:plus(X, 1). p(Y) :- n(X), more(X, Y)."
    shown = CliRunner().invoke(cli, ["eval", "-", "--profile"], input=deferred)
    assert re.search(r"ms +1 +0 +p/1 +interpreted rules$", shown.stdout, re.MULTILINE)


def test_a_profile_is_not_combined() -> None:
    for other in (["--show-plan"], ["--coverage"], ["--explain", "n(1)"]):
        assert CliRunner().invoke(cli, ["eval", "-", "--profile", *other], input="n(1).").exit_code == 2
