from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from manglecp.mangle import ParseError, Program, Source
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.fact_parser import parse_facts, read_literal
from manglecp.mangle.facts import Fact
from manglecp.mangle.printer import fact_text, value_text
from manglecp.mangle.values import INT_MAX, Float, List, Map, Name, Pair, Value
from tests.mangle.naive import evaluate
from tests.mangle.strategies import constants, predicates

NEW_YEAR = 1767225600 * 10**9


def texts(text: str) -> list[str]:
    return [fact.text for fact in parse_facts(Source("a.mg", text)).facts]


def test_facts_in_every_way_they_can_be_written() -> None:
    text = (
        'p(1). p( -2 )  .# note\nq("a", /b,\n c:d). '.replace("c:d", '"c\\n"')
        + "r([1, fn:plus(1, 1)], {/a : 1.5}). s()."
    )
    assert texts(text) == ["p(1)", "p(-2)", 'q("a",/b,"c\\n")', "r([1, 2],{/a : 1.5})", "s()"]


def test_where_each_of_them_begins() -> None:
    source = Source("a.mg", "p(1).\n  p(2). q(fn:list()).\np(3).")
    read = parse_facts(source)
    assert [source.text[start:].split(".")[0] for start in read.starts] == ["p(1)", "p(2)", "q(fn:list())", "p(3)"]


def test_intervals() -> None:
    read = parse_facts(Source("a.mg", "p(1)@[2026-01-01, _]. p(1)@[2026-01-01]. p(1)@[_, _]. p(1)."))
    assert [fact.interval for fact in read.facts] == [(NEW_YEAR, INT_MAX), (NEW_YEAR, NEW_YEAR), None, None]


def test_a_package_is_a_prefix() -> None:
    assert texts("Package zoo.birds! bird(/owl). bird(fn:list()).") == ["zoo.birds.bird(/owl)", "zoo.birds.bird([])"]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("p(1).\nDecl q(X).", (2, 1), "a file of facts has no declarations"),
        ("p(1). q(X) :- p(X).", (1, 7), "a file of facts has no rules"),
        ("p(X).", (1, 1), "a fact has no variables, found X"),
        ("p(fn:time:now()).", (1, 1), "the evaluation time is known only when a request is evaluated"),
        ("p(1)@[now].", (1, 1), "now is known only when a request is evaluated"),
        ("p(1)@[5m].", (1, 1), "5m is a duration, an annotation needs instants"),
        ("p(1)@[T].", (1, 1), "T has no value"),
        ("p(1)@[2026-01-02, 2026-01-01].", (1, 1), "the interval ends before it starts"),
        ("p(fn:div(1, 0)).", (1, 1), "fn:div"),
        ("p(fn:nothing()).", (1, 1), "unknown function fn:nothing"),
        ("p(1", (1, 4), "needed here"),
    ],
)
def test_what_is_refused(text: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(ParseError) as refused:
        parse_facts(Source("a.mg", text))
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.column) == place
    assert message in diagnostic.message


def test_all_errors_are_reported() -> None:
    with pytest.raises(ParseError) as refused:
        parse_facts(Source("a.mg", "p(X).\np(1).\nDecl q(X).\nq(."))
    assert [d.span.line for d in refused.value.diagnostics if d.span is not None] == [1, 3, 4]


@given(st.lists(st.tuples(predicates, st.lists(constants, max_size=3)), max_size=4))
def test_the_same_facts_as_a_program_states(facts: list[tuple[str, list[Value]]]) -> None:
    text = "\n".join(f"{fact_text(name, args)}." for name, args in facts)
    assert texts(text) == [fact_text(name, args) for name, args in facts]


def test_a_program_and_a_file_of_facts_agree() -> None:
    text = 'p(1, "a"). p(fn:mult(2, 3), "b"). t(/x).'
    stated = evaluate(Program.load([Source("a.mg", text)]), now=0).facts()
    assert sorted(texts(text)) == stated


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        (" /a/b ", Name("/a/b")),
        ('"x"', "x"),
        ("1.0", Float(1.0)),
        ("[1, [2]]", List((1, List((2,))))),
        ("fn:pair(1, 2)", Pair(1, 2)),
        ("fn:map()", Map()),
    ],
)
def test_literals(text: str, value: Value) -> None:
    assert read_literal(text) == value
    assert read_literal(value_text(value)) == value


@pytest.mark.parametrize(
    "text", ["", "X", "_", "1 2", "p(1)", "fn:time:now()", "fn:div(1, 0)", "[", '"a', "[1 : 1, 1 : 2]"]
)
def test_what_is_no_literal(text: str) -> None:
    with pytest.raises(ValueFault):
        read_literal(text)


def test_facts_are_facts() -> None:
    assert parse_facts(Source("a.mg", "p(1, /a).")).facts == [Fact("p", (1, Name("/a")))]
