"""``manglecp eval --explain``, ``--why-not`` and ``--coverage``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run

Write = Callable[[str, str | bytes], Path]

PETS = """cat(/tom). dog(/tom). dog(/rex). tired(/rex).
pet(X) :- cat(X).
pet(X) :- dog(X), !tired(X).
loved(X) :- pet(X).
"""
TIMED = """Decl cert(U) temporal bound [/name].
user(/bob). cert(/bob)@[2025-01-01, 2025-02-01].
may(U) :- user(U), cert(U)@[now].
"""


@pytest.fixture(autouse=True)
def _programs(write: Write) -> None:
    write("pets.mg", PETS)
    write("timed.mg", TIMED)


def test_explain_as_json_has_the_documented_shape(run: Run) -> None:
    shown = run("eval", "pets.mg", "--explain", "loved(/tom)", "--json")
    assert shown.exit_code == 0
    document = json.loads(shown.stdout)
    rules = [document["proof"]["rule"], document["proof"]["premises"][0]["rule"]]
    places = [(rule["head"], rule["file"], rule["line"]) for rule in rules]
    assert places == [("loved", "pets.mg", 4), ("pet", "pets.mg", 2)]
    assert document == {
        "fact": "loved(/tom)",
        "proof": {
            "fact": "loved(/tom)",
            "origin": "derived",
            "rule": rules[0],
            "bindings": {"X": "/tom"},
            "premises": [
                {
                    "fact": "pet(/tom)",
                    "origin": "derived",
                    "rule": rules[1],
                    "bindings": {"X": "/tom"},
                    "premises": [
                        {"fact": "cat(/tom)", "origin": "given", "rule": None, "bindings": {}, "premises": []}
                    ],
                }
            ],
        },
    }
    assert set(rules[0]) == {"id", "head", "file", "line"}


def test_explain_as_text(run: Run) -> None:
    assert run("eval", "pets.mg", "--explain", "loved(/tom)").stdout == (
        "loved(/tom)  with X = /tom\n"
        "  by loved(X) :- pet(X).  (pets.mg:4)\n"
        "  pet(/tom)  with X = /tom\n"
        "    by pet(X) :- cat(X).  (pets.mg:2)\n"
        "    cat(/tom)  [given]\n"
    )


def test_every_proof(run: Run) -> None:
    document = json.loads(run("eval", "pets.mg", "--explain", "loved(/tom)", "--all", "--json").stdout)
    leaves = [[n["fact"] for n in proof["premises"][0]["premises"]] for proof in document["alternatives"]]
    assert leaves == [["cat(/tom)"], ["dog(/tom)", "!tired(/tom)"]]
    assert document["alternatives"][1]["premises"][0]["premises"][1]["origin"] == "absent"
    assert document["complete"] is True
    assert run("eval", "pets.mg", "--explain", "loved(/tom)", "--all").stdout.count("loved(/tom)") == 2


def test_a_fact_that_does_not_hold_has_no_proof(run: Run) -> None:
    shown = run("eval", "pets.mg", "--explain", "loved(/rex)")
    assert (shown.exit_code, shown.stdout) == (1, "loved(/rex) does not hold; --why-not prints what is missing\n")
    shown = run("eval", "pets.mg", "--explain", "loved(/rex)", "--json")
    assert (shown.exit_code, json.loads(shown.stdout)) == (1, {"fact": "loved(/rex)", "proof": None})


def test_why_not_as_json(run: Run) -> None:
    shown = run("eval", "pets.mg", "--why-not", "pet(/rex)", "--json")
    assert shown.exit_code == 0
    document = json.loads(shown.stdout)
    assert [(b["rule"]["line"], b["premise"], b["bindings"]) for b in document["blocked"]] == [
        (2, "cat(/rex)", {"X": "/rex"}),
        (3, "!tired(/rex)", {"X": "/rex"}),
    ]
    assert (document["fact"], document["would_unlock"], document["complete"]) == ("pet(/rex)", [["cat(/rex)"]], True)


def test_why_not_as_text(run: Run) -> None:
    assert run("eval", "pets.mg", "--why-not", "loved(/rex)").stdout == (
        "loved(/rex) does not hold\n"
        "  loved(X) :- pet(X).  (pets.mg:4)\n"
        "    stops at pet(/rex)  with X = /rex\n"
        "  it would hold with cat(/rex)\n"
    )


def test_a_premise_about_time_is_written_as_in_the_source(run: Run) -> None:
    shown = run("eval", "timed.mg", "--why-not", "may(/bob)", "--json", "--now", "2026-01-15T12:00:00Z")
    document = json.loads(shown.stdout)
    assert [blocked["premise"] for blocked in document["blocked"]] == ["cert(/bob)@[now]"]
    assert document["would_unlock"] == [["cert(/bob)@[2026-01-15T12:00:00Z]"]]


def test_why_not_what_holds(run: Run) -> None:
    shown = run("eval", "pets.mg", "--why-not", "loved(/tom)")
    assert (shown.exit_code, shown.stdout) == (1, "loved(/tom) holds\n")


def test_coverage(run: Run) -> None:
    shown = run("eval", "pets.mg", "--coverage", "--json")
    assert shown.exit_code == 0
    document = json.loads(shown.stdout)
    assert [(rule["rule"]["line"], rule["status"], rule["fired"]) for rule in document["rules"]] == [
        (2, "fired", 1),
        (3, "fired", 1),
        (4, "fired", 1),
    ]
    assert run("eval", "pets.mg", "--coverage").stdout.startswith("pets.mg:2: fired, 1 fact\n    pet(X) :- cat(X).\n")


def test_coverage_with_a_selector(run: Run, write: Write) -> None:
    write("intents.mg", 'intent("fix"). go(1) :- intent("fix"). stay(1) :- intent("wait").\n')
    rules = json.loads(run("eval", "intents.mg", "--coverage", "--selector", "intent", "--json").stdout)["rules"]
    assert [rule["status"] for rule in rules] == ["fired", "inapplicable"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--explain", "loved(/tom)", "--coverage"], "give either --explain or --coverage"),
        (["--json", "--show-plan"], "leave --json out"),
        (["--all"], "--all goes with --explain"),
        (["--selector", "x"], "--selector goes with --coverage"),
        (["--coverage", "--selector", "pat"], "Did you mean 'pet'?"),
        (["--coverage", "--pred", "pet"], "leave them out"),
        (["--explain", "lovd(/tom)"], "did you mean loved?"),
        (["--why-not", "loved(X)"], "X"),
        (["--why-not", "loved("], "error[parse]"),
        (["--explain", "loved(/tom, 1)"], "takes 1 argument"),
    ],
)
def test_what_cannot_be_asked(run: Run, options: list[str], said: str) -> None:
    shown = run("eval", "pets.mg", *options)
    assert shown.exit_code == 2
    assert said in shown.stderr
    assert shown.stdout == ""


@pytest.mark.no_cover
def test_a_deep_proof_is_written_whole(run: Run, write: Write) -> None:
    write("deep.mg", "n(0). n(Y) :- n(X), X < 3000, Y = fn:plus(X, 1).\n")
    shown = run("eval", "deep.mg", "--explain", "n(3000)", "--json")
    assert shown.exit_code == 0
    assert shown.stdout.count('"premises"') == 3001
    assert run("eval", "deep.mg", "--explain", "n(3000)").stdout.count("\n") == 6001
