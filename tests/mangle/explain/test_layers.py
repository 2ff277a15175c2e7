"""Explanations of a request over a base: the same as over everything together, and no dearer if the base is large."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from manglecp.base.source import Source
from manglecp.mangle.facts import Fact
from manglecp.mangle.program import Program
from manglecp.mangle.result import Result
from tests.mangle import naive

from .asking import instant

NOW = instant("2026-01-15T12:00:00Z")

RULES = """
Decl room(X, Floor) bound [/string, /number].
Decl noise(X) bound [/string].
Decl wish(X) bound [/string].
Decl lit(X) temporal bound [/string].
Decl near(X, Y) bound [/string, /string].
quiet(X) :- room(X, _), !noise(X).
calm(X, F) :- quiet(X), room(X, F).
floor(F) :- calm(_, F).
calm_rooms(F, N) :- calm(X, F) |> do fn:group_by(F), let N = fn:count().
asked(X) :- wish(X).
seen(X) :- <-[0s, 1h] lit(X), room(X, _).
burning(X)@[S, E] :- lit(X)@[S, E].
burning(Y)@[S, E] :- burning(X)@[S, E], near(X, Y).
reach(X, Y) :- near(X, Y).
reach(X, Z) :- reach(X, Y), near(Y, Z).
rooms(F, N) :- room(_, F) |> do fn:group_by(F), let N = fn:count().
never(X) :- room(X, 99), noise(X).
"""


def lit(room: str, start: str, end: str) -> Fact:
    return Fact("lit", (room,), (instant(f"2026-01-15T{start}:00Z"), instant(f"2026-01-15T{end}:00Z")))


BELOW = [
    Fact("room", ("a", 1)),
    Fact("room", ("b", 1)),
    Fact("room", ("c", 2)),
    Fact("noise", ("c",)),
    Fact("near", ("a", "b")),
    lit("a", "10:00", "11:10"),
    Fact("floor", (1,)),
    Fact("reach", ("x", "y")),
]
ABOVE = [
    Fact("wish", ("e",)),
    Fact("floor", (7,)),
    Fact("burning", ("a",), (NOW, NOW)),
    lit("a", "10:10", "10:20"),
    Fact("noise", ("a",)),
    Fact("room", ("d", 2)),
    Fact("near", ("b", "d")),
    lit("a", "11:00", "11:30"),
    lit("b", "11:20", "11:40"),
]


def as_text(facts: list[Fact]) -> str:
    return "\n".join(f"{fact.text}." for fact in facts)


@pytest.fixture(scope="module")
def layered() -> Result:
    return Program.load([Source("rules.mg", RULES)]).base(BELOW).evaluate(ABOVE, now=NOW)


@pytest.fixture(scope="module")
def together() -> Result:
    return naive.evaluate(Program.load([Source("rules.mg", RULES + as_text(BELOW + ABOVE))]), now=NOW)


def test_a_layered_model_has_the_same_facts(layered: Result, together: Result) -> None:
    assert layered.facts() == together.facts()
    assert 'calm("a",1)' not in layered.facts(), "the request takes a conclusion of the base away"


def test_proofs_of_every_fact(layered: Result, together: Result) -> None:
    def told(result: Result, fact: str) -> Any:
        found = result.explainer.explain(fact)
        assert found is not None, fact
        return [(node.fact, [premise.fact for premise in node.premises]) for node in found.nodes()]

    for fact in together.facts():
        assert told(layered, fact) == told(together, fact), fact
        assert layered.explainer.alternatives(fact) == together.explainer.alternatives(fact), fact


@pytest.mark.parametrize("fact", ['calm("a",1)', 'quiet("c")', 'seen("c")', 'reach("d","a")', "rooms(1,3)", "floor(3)"])
def test_why_something_does_not_hold(layered: Result, together: Result, fact: str) -> None:
    assert layered.explainer.explain(fact) is None
    assert layered.explainer.why_not(fact).as_json() == together.explainer.why_not(fact).as_json()


def test_coverage(layered: Result, together: Result) -> None:
    assert layered.explainer.coverage().as_json() == together.explainer.coverage().as_json()
    fired = {rule.rule.text.split(" ")[0]: rule.fired for rule in layered.explainer.coverage().rules}
    assert fired["calm(X,"] == 2


WITHIN = Fact("burning", ("a",), (instant("2026-01-15T10:10:00Z"), instant("2026-01-15T10:20:00Z")))
"""When it burns anyway."""


def test_coverage_of_one_request_says_nothing_about_the_next() -> None:
    base = Program.load([Source("rules.mg", RULES)]).base(BELOW)

    def together(facts: list[Fact], now: int) -> Any:
        program = Program.load([Source("rules.mg", RULES + as_text(BELOW + facts))])
        return naive.evaluate(program, now=now).explainer.coverage().as_json()["rules"]

    later = instant("2026-01-16T12:00:00Z")
    requests: list[tuple[list[Fact], int]] = [([], NOW), (ABOVE, NOW), ([WITHIN], NOW), ([], later)]
    for facts, now in requests + requests[::-1]:
        assert base.evaluate(facts, now=now).explainer.coverage().as_json()["rules"] == together(facts, now)
    other = base.with_facts(ABOVE).evaluate(now=NOW)
    assert other.explainer.coverage().as_json()["rules"] == together(ABOVE, NOW)


def test_facts_that_nobody_used(layered: Result, together: Result) -> None:
    facts = BELOW + ABOVE
    assert layered.explainer.unused(facts) == together.explainer.unused(facts)


# --- what it costs ---------------------------------------------------------------------------------------------------


def calls(action: Callable[[], object]) -> int:
    """How many functions are called, and generators resumed: a measure of work that no other process changes."""
    count = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    "question",
    [
        lambda result: result.explainer.explain('calm("a",1)'),
        lambda result: result.explainer.alternatives('calm("a",1)'),
        lambda result: result.explainer.unused([Fact("noise", ("b",)), Fact("wish", ("a",))]),
        lambda result: result.explainer.coverage(),
    ],
    ids=["explain", "alternatives", "unused", "coverage"],
)
def test_a_large_base_makes_questions_no_dearer(question: Callable[[Result], object]) -> None:
    text = """
    Decl room(X, Floor) bound [/string, /number].
    Decl noise(X) bound [/string].
    Decl wish(X) bound [/string].
    Decl hush(X) bound [/string].
    calm(X, F) :- wish(X), room(X, F), !noise(X).
    loud(X) :- noise(X), room(X, _).
    wanted(X) :- wish(X), room(X, F), room(_, F), hush(X).
    upstairs(X) :- room(X, F), F > 5.
    """

    def cost(rooms: int) -> int:
        program = Program.load([Source("rules.mg", text)])
        base = program.base([Fact("room", ("a", 1)), *(Fact("room", (f"r{i}", i + 2)) for i in range(rooms))])
        session = [Fact("wish", ("a",)), Fact("noise", ("b",))]
        question(base.evaluate(session, now=NOW))  # what the base keeps is made
        result = base.evaluate(session, now=NOW)
        return calls(lambda: question(result))

    assert cost(3_000) < 1.5 * cost(30) + 100
