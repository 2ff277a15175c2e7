"""What became of each rule, and which given facts nobody used."""

from __future__ import annotations

import pytest

from manglecp.base.source import Source
from manglecp.mangle.externals import External
from manglecp.mangle.facts import Fact
from manglecp.mangle.program import Program
from manglecp.mangle.values import Name

from .asking import evaluated

INTENTS = """
Decl intent(I) bound [/string].
Decl never(X). Decl gone(X).
intent("fix"). file(/a). file(/b). risky(/c).
plan(F) :- intent("fix"), file(F).
deploy(F) :- intent("deploy"), file(F).
ship(F) :- I = "ship", intent(I), file(F).
any(I) :- intent(I), never(_).
both(F) :- file(F), risky(F).
dead(X) :- never(X), gone(X).
"""


def test_the_state_of_each_rule() -> None:
    found = evaluated(INTENTS).explainer.coverage(selector="intent")
    assert [(rule.rule.head, rule.status, rule.fired, rule.missing) for rule in found.rules] == [
        ("plan", "fired", 2, ()),
        ("deploy", "inapplicable", 0, ("intent",)),
        ("ship", "inapplicable", 0, ()),
        ("any", "partially_alive", 0, ("never",)),
        ("both", "partially_alive", 0, ()),
        ("dead", "dead", 0, ("never", "gone")),
    ]
    assert found.as_json()["rules_fired"] == 1
    assert found.as_json()["rules_dormant"] == 3
    assert found.as_json()["rules_inapplicable"] == 2


def test_without_a_selector_no_rule_is_inapplicable() -> None:
    assert {rule.status for rule in evaluated(INTENTS).explainer.coverage().rules} == {
        "fired",
        "partially_alive",
        "dead",
    }


def test_a_selector_without_facts_makes_nothing_inapplicable() -> None:
    found = evaluated('Decl intent(I) bound [/string]. f(1). p(F) :- intent("x"), f(F).').explainer.coverage(
        selector="intent"
    )
    assert [(rule.status, rule.missing) for rule in found.rules] == [("partially_alive", ("intent",))]


@pytest.mark.parametrize(
    ("rule", "fired"),
    [
        ("r(X) :- e(X, Y).", 2),
        ("r(X, Y) :- e(X, Y).", 3),
        ("r(X, N) :- e(X, Y) |> do fn:group_by(X), let N = fn:count().", 2),
        ("r(X, Y) :- e(X, Y). r(X, Z) :- r(X, Y), r(Y, Z).", 3),
    ],
)
def test_how_often_a_rule_fired(rule: str, fired: int) -> None:
    """The distinct facts that it derives."""
    assert evaluated(f"e(1, 2). e(1, 3). e(2, 3). {rule}").explainer.coverage().rules[0].fired == fired


def test_unused_facts() -> None:
    text = "Decl s(X). Decl t(X). p(X) :- e(X, Y), f(Y). q(X) :- s(X). e(1, 2). e(3, 4). f(2). f(9). lonely(1). s(7)."
    result = evaluated(text)
    given = ["e(1,2)", "e(3,4)", "f(2)", "f(9)", "lonely(1)", "s(7)"]
    assert [(unused.fact.text, unused.reason) for unused in result.explainer.unused(given)] == [
        ("e(3,4)", "nothing joined"),
        ("f(9)", "nothing joined"),
        ("lonely(1)", "no rule mentions it"),
    ]


def test_unused_facts_of_a_request() -> None:
    base = Program.load([Source("r.mg", "Decl a(X). Decl b(X). p(X) :- a(X), b(X).")]).base([Fact("a", (1,))])
    session = [Fact("b", (1,)), Fact("b", (2,))]
    assert [unused.fact for unused in base.evaluate(session).explainer.unused(session)] == [Fact("b", (2,))]


def test_what_is_counted_or_denied_is_used() -> None:
    result = evaluated("e(1). e(2). n(N) :- e(X) |> do fn:group_by(), let N = fn:count(). m(1). k(X) :- m(X), !e(X).")
    assert result.explainer.unused(["e(1)", "e(2)"]) == []
    assert [unused.fact.text for unused in result.explainer.unused(["m(1)"])] == ["m(1)"]


def test_external_answers_are_leaves() -> None:
    text = """
    Decl like(X, Y) descr [external(), mode('+', '-')] bound [/name, /name].
    w(/a). w(/b).
    p(X, Y) :- w(X), like(X, Y).
    """
    program = Program.load([Source("r.mg", text)])
    calls: list[tuple[Name, ...]] = []

    def answer(inputs: tuple[Name, ...]) -> list[tuple[Name, ...]]:
        calls.append(inputs)
        return [(Name("/c"),)] if inputs == (Name("/a"),) else []

    result = program.base([], externals={"like": External(answer)}).evaluate([])
    asked = list(calls)
    proof = result.explainer.explain("p(/a,/c)")
    assert proof is not None
    premises = [(node.fact, node.origin) for node in proof.root.premises]
    assert premises == [("w(/a)", "given"), ("like(/a,/c)", "external")]
    found = result.explainer.why_not("p(/b,/c)")
    assert found.blocked[0].premise == "like(/b,/c)"
    assert not found.complete
    assert result.explainer.coverage().rules[0].status == "fired"
    assert calls == asked, "explanations ask nobody again"
