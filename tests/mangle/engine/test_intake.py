"""Facts from outside are checked, and everything that is wrong is said at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from manglecp.base.source import Source
from manglecp.mangle.engine import Base, evaluate
from manglecp.mangle.engine.compiled import MAX_ERRORS
from manglecp.mangle.errors import AnalysisError, EvalError
from manglecp.mangle.facts import Fact
from manglecp.mangle.model import Limits
from manglecp.mangle.program import Program
from manglecp.mangle.values import INT_MAX, INT_MIN, List, Name
from tests.mangle.engine.changing import NOW, load

PROGRAM = load("""
Decl item(X, N) bound [/name, /number].
Decl under(X) bound [/item].
Decl up(X) temporal bound [/name].
Decl many(X) bound [fn:List(/number)].
Decl two(X) bound [/name] bound [/string].
Decl loose(X).
Decl out(X) bound [/name].
out(X) :- item(X, N), N > 1.
""")
A = Name("/a")


def complaints(*facts: Fact) -> list[str]:
    base = PROGRAM.base()
    with pytest.raises(AnalysisError) as raised:
        base.evaluate(facts, now=NOW)
    attempts: list[Callable[[list[Fact]], Base]] = [PROGRAM.base, base.with_facts]
    for attempt in attempts:
        with pytest.raises(AnalysisError) as again:
            attempt(list(facts))
        assert str(again.value) == str(raised.value)
    return [diagnostic.message for diagnostic in raised.value.diagnostics]


def test_everything_at_once() -> None:
    found = complaints(
        Fact("itme", (A, 1)),
        Fact("item", (A,)),
        Fact("item", (A, "1")),
        Fact("item", (A, 1.5)),  # type: ignore[arg-type]
        Fact("item", (A, 1), (0, 1)),
        Fact("item", (A, 1)),
        Fact("up", (A,), (5, 4)),  # for the evaluation to say, which never starts
        Fact("under", (A,)),
        Fact("many", (List((1, "x")),)),
        Fact("two", (3,)),
    )
    assert found[0] == "unknown predicate itme"
    assert found[1] == "item takes 2 arguments, not 1"
    assert found[2].startswith("item takes (/name, /number), not (/name, ")
    assert found[3] == "argument 2 of item is a Python float, not a value"
    assert found[4] == "item is not temporal, but the fact has an interval"
    assert [message.split()[0] for message in found[5:]] == ["under", "many", "two"]


def test_intervals_that_end_before_they_start() -> None:
    """They belong to the evaluation, from outside as in a program."""
    backwards = [Fact("up", (A,), (5, 4)), Fact("up", (A,), (INT_MAX, INT_MAX)), Fact("up", (A,), (4, 5))]
    base = PROGRAM.base()
    attempts: list[Callable[[list[Fact]], object]] = [partial(base.evaluate, now=NOW), base.with_facts, PROGRAM.base]
    for attempt in attempts:
        with pytest.raises(EvalError) as raised:
            attempt(backwards)
        assert [d.message for d in raised.value.diagnostics] == ["the interval ends before it starts"] * 2
    with pytest.raises(EvalError) as stated:
        evaluate(load("Decl up(X) temporal. up(/a)@[2026-01-02, 2026-01-01].", "off"), now=NOW)
    assert stated.value.diagnostics[0].message == "the interval ends before it starts"


def test_a_name_that_is_nearly_right() -> None:
    with pytest.raises(AnalysisError) as raised:
        PROGRAM.base().evaluate([Fact("itme", (A, 1))], now=NOW)
    assert raised.value.diagnostics[0].fix == "did you mean item?"
    assert raised.value.diagnostics[0].clause == "itme(/a,1)"


@pytest.mark.parametrize("value", [True, None, 1.0, b"x", ["x"], ("x",), {"x": 1}, object(), ...])
@pytest.mark.parametrize("predicate", ["loose", "two", "under"])
def test_python_values_are_no_values(value: object, predicate: str) -> None:
    (message,) = complaints(Fact(predicate, (value,)))  # type: ignore[arg-type]
    assert message == f"argument 1 of {predicate} is a Python {type(value).__name__}, not a value"


def test_not_more_errors_than_anyone_reads() -> None:
    assert len(complaints(*[Fact("item", (A, str(i))) for i in range(10 * MAX_ERRORS)])) == MAX_ERRORS


def test_good_facts() -> None:
    facts = [
        Fact("item", (A, 2)),
        Fact("under", (Name("/item/x"),)),
        Fact("up", (A,)),
        Fact("up", (Name("/b"),), (0, 10**9)),
        Fact("many", (List(()),)),
        Fact("two", ("x",)),
        Fact("two", (A,)),
        Fact("loose", (List((A, "x")),)),
    ]
    answer = PROGRAM.base().evaluate(facts, now=NOW)
    assert answer.statistics.given == len(facts)
    assert answer.facts("out") == ["out(/a)"]
    assert answer.facts("up") == ["up(/a)@[_, _]", "up(/b)@[1970-01-01T00:00:00Z, 1970-01-01T00:00:01Z]"]


def test_kinds_once_seen_do_not_let_others_in() -> None:
    """What is remembered of good facts is their kinds, only where those are all that counts."""
    base = PROGRAM.base()
    base.evaluate([Fact("under", (Name("/item/x"),)), Fact("many", (List((1,)),)), Fact("item", (A, 1))], now=NOW)
    for wrong in (Fact("under", (A,)), Fact("many", (List(("x",)),)), Fact("item", ("a", 1))):
        with pytest.raises(AnalysisError):
            base.evaluate([wrong], now=NOW)


def test_unchecked_facts_still_need_a_predicate() -> None:
    base = PROGRAM.base()
    with pytest.raises(AnalysisError):
        base.evaluate([Fact("itme", (A,))], now=NOW, check=False)
    with pytest.raises(EvalError):
        base.evaluate([Fact("up", (A,), (INT_MAX, INT_MIN))], now=NOW, check=False)
    assert base.evaluate([Fact("under", (A,))], now=NOW, check=False).facts("under") == ["under(/a)"]


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        ("p(1)", "a str is not a fact"),
        (("p", (1,), None), "a tuple is not a fact"),
        (Fact("p", [1]), "the arguments of a fact are a list, not a tuple"),  # type: ignore[arg-type]
        (Fact("p", (2**63,)), "argument 1 of p is a number of more than 64 bits"),
        (Fact("p", (-(2**63) - 1,)), "argument 1 of p is a number of more than 64 bits"),
        (Fact("p", ("a\ud800",)), "argument 1 of p has half a character"),
        (Fact("t", (1,), 5), "the interval of a fact of t is not a pair of integers"),  # type: ignore[arg-type]
        (Fact("t", (1,), (1.0, 2)), "the interval of a fact of t is not a pair of integers"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_fact(fact: Any, message: str) -> None:
    program = Program.load([Source("p.mg", "Decl p(X) bound [/any]. Decl t(X) temporal bound [/number].")])
    with pytest.raises(AnalysisError, match=message):
        program.base([fact])
    with pytest.raises(AnalysisError, match=message):
        program.base([]).evaluate([fact])


def test_now_and_limits_are_numbers() -> None:
    base = Program.load([Source("p.mg", "p(1).")]).base([])
    with pytest.raises(ValueError, match="now is an integer"):
        base.evaluate([], now=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the limit rows is not a number: str"):
        Limits(rows="1")  # type: ignore[arg-type]
