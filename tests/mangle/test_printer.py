"""Printing and parsing are inverse; so are the two ways in which the parser reads a fact."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from manglecp.base.source import Source
from manglecp.mangle import printer
from manglecp.mangle.parser import parse
from manglecp.mangle.syntax import Clause, Decl, Unit
from tests.mangle import strategies


def read(text: str) -> Unit:
    return parse(Source("test.mg", text))


def only(text: str) -> Clause | Decl:
    (item,) = read(text).items
    return item


@settings(deadline=None)
@given(strategies.units)
def test_what_is_printed_reads_back(unit: Unit) -> None:
    assert read(printer.unit(unit)) == unit


@settings(deadline=None)
@given(strategies.units, st.data())
def test_space_and_comments_between_tokens_mean_nothing(unit: Unit, data: st.DataObject) -> None:
    assert read(data.draw(strategies.spaced(printer.unit(unit)))) == unit


@given(
    strategies.predicates,
    st.lists(strategies.plain_constants, min_size=1, max_size=4),
    st.sampled_from(["", " ", "\n", "\t "]),
)
def test_the_short_cut_for_facts_changes_nothing(predicate: str, values: list[str], gap: str) -> None:
    args = f"{gap},{gap}".join(printer.term(value) for value in values)
    quick = read(f"{predicate}({gap}{args}{gap}). last(1).")
    assert quick == read(f"{predicate}(#\n{gap}{args}{gap}). last(1).")
    assert quick.items[0] == only(f"{predicate}({args}).")


@pytest.mark.parametrize(
    "fact",
    [
        "p(1).",
        "p(-0, 007, -12).",
        "p(123456789012345678).",
        "p(1234567890123456789).",
        "p(/a/b.c, /a., /1).",
        'p("a b", "", "#", "line\nbreak").',
        'p("tab\\t").',
        "p( 1 ,\n 2\n)\n.",
        "p(1,).",
    ],
)
def test_some_facts_on_both_ways(fact: str) -> None:
    assert only(fact) == only(fact.replace("(", "( # comment\n", 1))


def test_short_forms_are_written() -> None:
    rule = "p(X) :- q(X, [1, X], [/a : 1], {/b : X}), X < 3, X >= fn:plus(X, 1), X != 2, !:lt(X, 1)."
    assert printer.item(only(rule)) == rule
    assert (
        printer.item(only("p(fn:list(1), fn:map(/a, 1), fn:struct(), fn:map()).")) == "p([1], [/a : 1], {}, fn:map())."
    )
    assert printer.item(only("p(X) :- :lt(X, 1).")) == "p(X) :- X < 1."


def test_times_keep_their_text() -> None:
    rule = "p(X)@[S, now] :- <-[0s, 90m] q(X)@[S, _], ![-[2026-01-01, 2026-01-15T12:00:00.50] r(X)."
    assert printer.item(only(rule)) == rule


def test_a_space_keeps_the_full_stop_off_a_name() -> None:
    assert printer.item(only("p(X) :- X = /a.")) == "p(X) :- X = /a ."
    assert printer.item(only("p(X) :- X = /a. .")) == "p(X) :- X = /a. ."
    assert printer.item(only("p(X) :- X = 5.")) == "p(X) :- X = 5."


def test_a_unit_is_one_statement_per_line() -> None:
    decl = 'Decl p(X) temporal descr [doc("y")] bound [/name] inclusion [q(X)].'
    text = f'Package zoo [doc("x")]!\nUse a.b!\n{decl}\np(1).\n'
    assert printer.unit(read(text)) == text
    assert printer.unit(Unit()) == ""
