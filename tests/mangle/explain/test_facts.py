"""Facts as people write them."""

from __future__ import annotations

import pytest

from manglecp.base.source import Source
from manglecp.mangle.errors import AnalysisError, MangleError, ParseError
from manglecp.mangle.explain import read_fact
from manglecp.mangle.facts import Fact
from manglecp.mangle.program import Program
from manglecp.mangle.values import INT_MAX, List, Name, Time

from .asking import instant

PROGRAM = Program.load(
    [
        Source(
            "rules.mg",
            """
            Decl on(X) temporal bound [/name].
            edge(/a, /b). size("x", 1). order([/pen, 2]). at(fn:time:now()).
            """,
        )
    ]
)
NOW = instant("2026-01-15T12:00:00Z")


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("edge(/a,/b)", Fact("edge", (Name("/a"), Name("/b")))),
        ("edge( /a , /z ).", Fact("edge", (Name("/a"), Name("/z")))),
        ("order([/pen, 2])", Fact("order", (List((Name("/pen"), 2)),))),
        ("at(fn:time:now())", Fact("at", (Time(NOW),))),
        ("on(/x)@[now]", Fact("on", (Name("/x"),), (NOW, NOW))),
        ("on(/x)@[2026-01-15T12:00:00Z, _]", Fact("on", (Name("/x"),), (NOW, INT_MAX))),
    ],
)
def test_read(text: str, fact: Fact) -> None:
    assert read_fact(text, PROGRAM, NOW) == fact
    assert read_fact(fact.text, PROGRAM, NOW) == fact


@pytest.mark.parametrize(
    ("text", "message", "error"),
    [
        ("edge(/a, X)", "a fact has no variables, found X", AnalysisError),
        ("edge(/a)", "edge takes 2 arguments, not 1", AnalysisError),
        ("edgy(/a, /b)", "unknown predicate edgy", AnalysisError),
        ("!edge(/a, /b)", "a fact is not negated", AnalysisError),
        ("<-[1d] on(/x)", "a fact has no operator", AnalysisError),
        ("on(/x)", "on is temporal: say when it holds", AnalysisError),
        ("on(/x)@[2d]", "2d is a duration", AnalysisError),
        ("on(/x)@[2026-01-02, 2026-01-01]", "the interval ends before it starts", AnalysisError),
        ("edge(/a, /b)@[now]", "edge is not temporal", AnalysisError),
        ("edge(/a, fn:plus(1, /a))", "fn:plus", AnalysisError),
        ("1 < 2", "this is a test, not a fact", AnalysisError),
        ("X = 2", "this is a test, not a fact", AnalysisError),
        ("edge(/a,", "", ParseError),
        ("edge(/a, /b), edge(/b, /c)", "one premise is enough", ParseError),
    ],
)
def test_refused(text: str, message: str, error: type[MangleError]) -> None:
    with pytest.raises(error) as raised:
        read_fact(text, PROGRAM, NOW)
    (diagnostic,) = raised.value.diagnostics
    assert message in diagnostic.message
    assert diagnostic.span is not None
    assert diagnostic.clause is None


def test_a_similar_name_is_offered() -> None:
    with pytest.raises(AnalysisError) as raised:
        read_fact("edgee(/a, /b)", PROGRAM, NOW)
    assert raised.value.diagnostics[0].fix == "did you mean edge?"
