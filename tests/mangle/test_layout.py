"""What `manglecp fmt` writes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings, strategies as st

from manglecp.base.source import Source
from manglecp.mangle import printer
from manglecp.mangle.errors import ParseError
from manglecp.mangle.formatter import WIDTH, layout
from manglecp.mangle.lexer import find_comments
from manglecp.mangle.parser import decode, parse
from manglecp.mangle.syntax import Unit
from tests.mangle import strategies

PROGRAMS = sorted(Path(__file__).parents[1].joinpath("conformance", "mangle").glob("*.mg"))


def laid_out(text: str) -> str:
    return layout(Source("test.mg", text))


def unchanged(text: str) -> None:
    text = dedent(text)
    assert laid_out(text) == text


def becomes(before: str, after: str) -> None:
    assert laid_out(dedent(before)) == dedent(after)
    unchanged(after)


def comment_texts(source: Source) -> list[str]:
    return [comment.text.rstrip() for comment in find_comments(source)]


def check(source: Source) -> None:
    """What must hold for every layout."""
    text = layout(source)
    again = Source(source.name, text)
    assert parse(again) == parse(source)
    assert comment_texts(again) == comment_texts(source)
    assert layout(again) == text
    assert not text.startswith("\n")
    assert "\n\n\n" not in text
    assert text == "" or (text.endswith("\n") and not text.endswith("\n\n"))


# --- always --------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(strategies.units, st.data())
def test_any_program_keeps_its_meaning_and_its_comments(unit: Unit, data: st.DataObject) -> None:
    check(Source("test.mg", data.draw(strategies.spaced(printer.unit(unit)))))


@settings(deadline=None)
@given(strategies.units)
def test_one_statement_per_line_is_a_layout_unless_too_long(unit: Unit) -> None:
    text = printer.unit(unit)
    if max(map(len, text.split("\n"))) <= WIDTH:
        assert laid_out(text) == text


@given(st.lists(st.sampled_from(["n(1).", "m(2, /a)."]), min_size=1, max_size=40))
def test_a_line_of_facts_is_filled(facts: list[str]) -> None:
    lines = laid_out(" ".join(facts)).splitlines()
    assert " ".join(lines).split() == " ".join(facts).split()
    assert all(len(line) <= WIDTH for line in lines)
    for line, following in pairwise(lines):
        assert len(line) + 1 + len(following.split(".")[0]) + 1 > WIDTH


@pytest.mark.no_cover
def test_conformance_programs() -> None:
    laid = 0
    for path in PROGRAMS:
        source = decode(path.name, path.read_bytes())
        try:
            parse(source)
        except ParseError:
            with pytest.raises(ParseError):
                layout(source)
        else:
            check(source)
            laid += 1
    assert laid > 300


@pytest.mark.parametrize("text", ["p(1)", "p(1). q(", 'p("', "p(X) :- .", "#\n.", "p(1e999)."])
def test_broken_text_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        laid_out(text)


# --- statements ----------------------------------------------------------------------------------------------------


def test_spaces() -> None:
    becomes(
        'p( 1,/a ,\n\n"x" ).\nq(X):-p(X,_,_),X<3,!r( X )|>do fn:group_by(),let N=fn:count().\n',
        'p(1, /a, "x").\nq(X) :- p(X, _, _), X < 3, !r(X) |> do fn:group_by(), let N = fn:count().\n',
    )


def test_a_long_rule_is_broken() -> None:
    becomes(
        "busy(Team, Count) :- alert(Id, Service, Severity)@[now], owned_by(Service, Team), Severity < 3, !muted(Id)"
        " |> do fn:group_by(Team), let Count = fn:count() |> let Twice = fn:mult(Count, 2).\n",
        """\
        busy(Team, Count) :-
          alert(Id, Service, Severity)@[now],
          owned_by(Service, Team),
          Severity < 3,
          !muted(Id)
          |> do fn:group_by(Team), let Count = fn:count()
          |> let Twice = fn:mult(Count, 2).
        """,
    )


def test_a_rule_is_broken_only_if_it_must() -> None:
    rest = " :- q(X), r(X)."
    fits = f"{'p' * (WIDTH - len(rest) - 3)}(X){rest}\n"
    unchanged(fits)
    assert laid_out(f"p{fits}").count("\n") == 3


def test_a_long_step_is_broken() -> None:
    lets = [f"let Number{n} = fn:collect_distinct(Some_variable{n})" for n in range(3)]
    becomes(
        f"p(X) :- q(X) |> do fn:group_by(X), {', '.join(lets)} |> {lets[0]}, {lets[1]}.\n",
        """\
        p(X) :-
          q(X)
          |> do fn:group_by(X),
             let Number0 = fn:collect_distinct(Some_variable0),
             let Number1 = fn:collect_distinct(Some_variable1),
             let Number2 = fn:collect_distinct(Some_variable2)
          |> let Number0 = fn:collect_distinct(Some_variable0),
             let Number1 = fn:collect_distinct(Some_variable1).
        """,
    )


def test_a_full_stop_after_a_name_stands_free() -> None:
    unchanged(f"p(X) :- X = /a .\np(X) :-\n  {'q' * WIDTH}(X),\n  X = /a .  # why\n")


def test_declarations() -> None:
    becomes(
        """\
        Package zoo!  Use farm!
        Decl p( X,Y )   temporal bound[/name,/number] .
        Decl q(X) descr [doc("What a long explanation this is, so long that no line can take it all.")] bound [/name].
        Decl r(X) descr [doc("What a long explanation this is, so long that one line"), arg(X, "cannot take it all")]
          bound [/name] bound [/number] inclusion [q(X)].
        """,
        """\
        Package zoo!
        Use farm!
        Decl p(X, Y) temporal bound [/name, /number].
        Decl q(X)
          descr [doc("What a long explanation this is, so long that no line can take it all.")]
          bound [/name].
        Decl r(X)
          descr [
            doc("What a long explanation this is, so long that one line"),
            arg(X, "cannot take it all"),
          ]
          bound [/name]
          bound [/number]
          inclusion [q(X)].
        """,
    )


def test_facts_that_stood_on_one_line_stay_there() -> None:
    unchanged("n(1). n(2). m(/a)@[2026-01-01, _].\nn(3).\nn(4). n(5).\n")
    becomes(
        "n(1). p(X) :- n(X). n(2). n(3). Decl n(X). n(4).\n", "n(1).\np(X) :- n(X).\nn(2). n(3).\nDecl n(X).\nn(4).\n"
    )
    becomes("n(1). n(\n2). n(3).\n", "n(1). n(2). n(3).\n")


# --- blank lines and comments --------------------------------------------------------------------------------------


def test_blank_lines() -> None:
    assert laid_out("") == ""
    assert laid_out(" \n\t\n") == ""
    becomes("\n\n\nn(1).\n\n \n\nn(2).\nn(3).\n\n\n# end\n\n\n", "n(1).\n\nn(2).\nn(3).\n\n# end\n")
    becomes("n(1).\r\n\r\n\r\nn(2).", "n(1).\n\nn(2).\n")
    becomes("p(X) :-\n\n  q(X),\n\n  r(X).\n", "p(X) :- q(X), r(X).\n")


def test_comments_around_statements() -> None:
    becomes(
        """\
        # the file

          # the first
        n(1).# one
        n(2).        # two
                     # and more of it
        # the third \t

        n(3). n(4).\t#three, four
        """,
        """\
        # the file

        # the first
        n(1).  # one
        n(2).  # two
               # and more of it
        # the third

        n(3). n(4).  #three, four
        """,
    )


def test_comments_in_a_rule_stay_with_its_premises() -> None:
    becomes(
        """\
        p(X) :- # if
          q(X), # q
                # and so on
          # then
          r(X) # r
          , s(X)
          # count
          |> # do
          do fn:group_by(X), # by X
          let N = fn:count() # of all
          .
        """,
        """\
        p(X) :-  # if
          q(X),  # q
                 # and so on
          # then
          r(X),  # r
          s(X)
          # count
          # do
          |> do fn:group_by(X),  # by X
             let N = fn:count().  # of all
        """,
    )


def test_comments_in_a_declaration_stay_with_its_parts() -> None:
    becomes(
        """\
        Decl p(X) # p
          temporal # always
          descr [ # what
            doc("x"), # x
            # nothing else
          ]
          # a name
          bound [ # or
            /name
          ] # see?
          inclusion [q(X)].
        """,
        """\
        # p
        Decl p(X) temporal  # always
          descr [  # what
            doc("x"),  # x
          # nothing else
          ]
          # a name
          # or
          bound [/name]  # see?
          inclusion [q(X)].
        """,
    )


def test_a_comment_that_has_no_place_moves_a_little() -> None:
    becomes("n(1). n( # two\n 2). n(3).\n", "n(1).\n# two\nn(2). n(3).\n")
    becomes("n(1) # one\n . # two\nn(2).\n", "n(1).  # one\n# two\nn(2).\n")
    becomes("n(1)\n\n # one\n . # two\n", "n(1).\n# one\n# two\n")
    becomes("n(1)\n# one\n.\nn(2).\n", "n(1).\n# one\nn(2).\n")
    becomes("p(X) :- q(X, # one\n 1), # two\n r(X).\n", "p(X) :-\n  # one\n  q(X, 1),  # two\n  r(X).\n")
    becomes("Package # one\n zoo!\nn(1).\n", "# one\nPackage zoo!\nn(1).\n")


def test_only_a_comment_right_below_belongs_to_the_one_above() -> None:
    becomes("n(1). # one\n\n      # two\n", "n(1).  # one\n\n# two\n")
    becomes("n(1). # one\n     # two\n", "n(1).  # one\n# two\n")


def test_strings_and_names_are_not_comments() -> None:
    unchanged('p("# no", "it\'s").  # yes "\nq(/a.).\n')
    becomes("p('#', `#\n`). # yes\n", 'p("#", "#\\n").  # yes\n')
