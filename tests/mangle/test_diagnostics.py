"""What a person sees when a program is refused (D28)."""

from __future__ import annotations

from textwrap import dedent

import pytest
from hypothesis import given, strategies as st

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span, Trust
from manglecp.base.suggestions import closest_match
from manglecp.mangle import printer
from manglecp.mangle.errors import MangleError, ParseError
from manglecp.mangle.program import Program
from manglecp.mangle.syntax import Unit
from tests.effort import examples
from tests.mangle import strategies
from tests.mangle.loading import complaints, is_presentable, load, refusal


def shown(*texts: str | Source) -> str:
    """The whole report."""
    with pytest.raises(MangleError) as caught:
        load(*texts)
    return caught.value.render()


def pointed(line: str, start: int, end: int) -> tuple[str, str]:
    """The two lines that point at a stretch of a one-line source."""
    source = Source("x.mg", line)
    _, text, carets = Diagnostic("analysis", "wrong", Span(source, start, end)).render().split("\n")
    return text, carets


# --- whole reports ---------------------------------------------------------------------------------------------------


def test_a_misspelled_predicate() -> None:
    assert shown("customer(/ann).\ngood(X) :- custmer(X).") == dedent("""\
        error[analysis]: a.mg:2:12: unknown predicate custmer
          2 | good(X) :- custmer(X).
            |            ^^^^^^^^^^
          in: good(X) :- custmer(X).
          fix: did you mean customer?""")


def test_an_unbound_variable_under_negation() -> None:
    assert shown("q(1).\nbad(2).\np(X) :- q(X), !bad(Y).") == dedent("""\
        error[analysis]: a.mg:3:20: Y is bound nowhere outside the negation !bad(Y)
          3 | p(X) :- q(X), !bad(Y).
            |                    ^
          in: p(X) :- q(X), !bad(Y).
          fix: write _ for 'no such fact at all', or bind Y in a positive premise""")


def test_a_fact_of_the_wrong_type() -> None:
    assert shown('Decl age(P, N) bound [/name, /number].\nage(/ann, "thirty").') == dedent("""\
        error[analysis]: a.mg:2:11: argument 2 of age is /number, but "thirty" is /string
          2 | age(/ann, "thirty").
            |           ^^^^^^^^
          in: age(/ann, "thirty").""")


def test_a_name_that_is_its_own_type() -> None:
    assert shown("Decl animal(A) bound [/animal].\nanimal(/animal).") == dedent("""\
        error[analysis]: a.mg:2:8: argument 1 of animal is /animal, but /animal is /name
          2 | animal(/animal).
            |        ^^^^^^^
          in: animal(/animal).
          fix: write a name below /animal, such as /animal/x""")


def test_arithmetic_on_a_string() -> None:
    assert shown('s("x").\np(Y) :- s(X), Y = fn:plus(X, 1).') == dedent("""\
        error[analysis]: a.mg:2:19: fn:plus takes /number, but X is /string
          2 | p(Y) :- s(X), Y = fn:plus(X, 1).
            |                   ^^^^^^^^^^^^^
          in: p(Y) :- s(X), Y = fn:plus(X, 1).""")


def test_a_head_that_forgets_to_group() -> None:
    assert shown("v(/a, 1).\np(K, X, N) :- v(K, X) |> do fn:group_by(K), let N = fn:count().") == dedent("""\
        error[analysis]: a.mg:2:6: X is neither grouped by nor computed
          2 | p(K, X, N) :- v(K, X) |> do fn:group_by(K), let N = fn:count().
            |      ^
          in: p(K, X, N) :- v(K, X) |> do fn:group_by(K), let N = fn:count().
          fix: add X to fn:group_by(…), or aggregate it with a let""")


def test_a_temporal_premise_without_time() -> None:
    assert shown("Decl on(X) temporal.\np(X) :- on(X).") == dedent("""\
        error[analysis]: a.mg:2:9: on is temporal: say when
          2 | p(X) :- on(X).
            |         ^^^^^
          in: p(X) :- on(X).
          fix: write on(X)@[now], or @[_, _] for any time""")


def test_a_negative_cycle() -> None:
    assert shown("person(/a).\nhappy(X) :- person(X), !sad(X).\nsad(X) :- person(X), !happy(X).") == dedent("""\
        error[stratification]: a.mg:2:24: happy depends on itself through the negation !sad(X): happy -> sad -> happy
          2 | happy(X) :- person(X), !sad(X).
            |                        ^^^^^^^
          in: happy(X) :- person(X), !sad(X).
          fix: break the cycle: a negation needs a relation that is finished before""")


def test_a_clause_that_a_domain_may_not_write() -> None:
    policy = Source("policy.mg", "barred(/rm).", Trust.POLICY)
    domain = Source("domain.mg", "# our own\nbarred(/ls).", Trust.DOMAIN)
    assert shown(policy, domain) == dedent("""\
        error[analysis]: domain.mg:2:1: barred belongs to policy (see policy.mg:1), a domain source may not add to it
          2 | barred(/ls).
            | ^^^^^^^^^^^
          in: barred(/ls).
          fix: move the clause to that level, or derive another predicate""")


def test_a_syntax_error() -> None:
    report = shown("p(1.\n")
    assert report.startswith("error[parse]: a.mg:1:")
    assert report.count("^") == 1


# --- all of a stage, in order ----------------------------------------------------------------------------------------


def test_everything_a_stage_finds_is_reported_in_file_order() -> None:
    assert complaints("""\
        Decl n(X) bound [/number, /number].
        n(1, 2).
        p(X, Y) :- n(X), m(X).
        m("a", X).
        Decl m(X) bound [/number].
        q(X) :- n(X), !n(Z) |> let W = fn:nope(X).
        m("b").
    """) == [
        "1:6 bound has 2 types for 1 argument",
        "2:1 n has 2 arguments here and 1 argument in a.mg:1",
        "3:6 Y in the head is bound by no premise",
        "4:1 m has 2 arguments here and 1 argument in a.mg:5",
        "4:8 a fact has no variables, found X",
        "6:18 Z is bound nowhere outside the negation !n(Z)",
        "6:32 unknown function fn:nope",
        '7:3 argument 1 of m is /number, but "b" is /string',
    ]  # fmt: skip


def test_files_come_in_the_order_in_which_they_were_loaded() -> None:
    found = complaints(
        "p(X) :- nowhere(X).",  # found while looking at clauses
        "Decl q(X) bound [fn:List()].",  # found before that, while looking at declarations
        "Package zoo!\nUse zoo!\nr(1).",  # found first of all
    )
    assert found == [
        "1:9 unknown predicate nowhere",
        "b.mg:1:18 fn:List takes 1 argument, not 0",
        "c.mg:2:1 package zoo uses itself",
    ]


def test_two_files_may_have_one_name() -> None:
    texts = [Source("rules.mg", "\np(X)."), Source("rules.mg", "q(X).")]
    assert [(d.span.line, d.message) for d in refusal(*texts) if d.span is not None] == [
        (2, "a fact has no variables, found X"),
        (1, "a fact has no variables, found X"),
    ]


def test_every_broken_file_is_reported() -> None:
    assert [found.split()[0] for found in complaints("p(", "q(1).", "r(", stage="parse")] == ["1:3", "c.mg:1:3"]


def test_a_later_stage_waits_for_the_earlier_ones() -> None:
    texts = ["p(", "q(X) :- nowhere(X).", "n(1). r(X) :- n(X), !r(X)."]
    assert {d.code for d in refusal(*texts, stage="parse")} == {"parse"}
    assert {d.code for d in refusal(*texts[1:])} == {"analysis"}
    assert {d.code for d in refusal(*texts[2:], stage="stratification")} == {"stratification"}


def test_the_exception_shows_the_report() -> None:
    with pytest.raises(ParseError) as caught:
        Program.load([Source("a.mg", "p("), Source("b.mg", "q(")])
    assert str(caught.value) == caught.value.render()
    assert caught.value.render() == "\n".join(d.render() for d in caught.value.diagnostics)
    assert len(caught.value.diagnostics) == 2


@given(st.lists(strategies.units, min_size=1, max_size=3))
@examples(20)
def test_any_program_is_accepted_or_refused_with_presentable_diagnostics_in_order(units: list[Unit]) -> None:
    try:
        load(*map(printer.unit, units))
    except MangleError as error:
        found = error.diagnostics
    else:
        return
    places = []
    for diagnostic in found:
        is_presentable(diagnostic)
        assert diagnostic.span is not None
        places.append((diagnostic.span.source.name, diagnostic.span.start))
    assert places == sorted(places)


# --- the caret -------------------------------------------------------------------------------------------------------


def test_the_caret_stands_under_the_place() -> None:
    assert pointed("p(X) :- q(X).", 8, 12) == ("  1 | p(X) :- q(X).", "    |         ^^^^")
    assert pointed("p(1).", 0, 1) == ("  1 | p(1).", "    | ^")


def test_the_caret_of_an_empty_place() -> None:
    assert pointed("p(1)", 4, 4) == ("  1 | p(1)", "    |     ^")
    assert pointed("", 0, 0) == ("  1 | ", "    | ^")


def test_tabs_stay_tabs() -> None:
    assert pointed("\tp(\tX).", 4, 5) == ("  1 | \tp(\tX).", "    | \t  \t^")


def test_wide_characters_take_two_columns() -> None:
    assert pointed('p("日本", X).', 8, 9) == ('  1 | p("日本", X).', "    |           ^")
    assert pointed('p("日本").', 2, 6) == ('  1 | p("日本").', "    |   ^^^^^^")
    assert pointed('p("e\u0301", X).', 8, 9)[1] == "    |        ^"


def test_what_cannot_be_printed_is_replaced() -> None:
    assert pointed('p("\x07", X).', 7, 8) == ('  1 | p("\N{REPLACEMENT CHARACTER}", X).', "    |        ^")


def test_nothing_speaks_to_the_terminal() -> None:
    """Texts of programs hold any character: escape sequences and changes of direction are not passed on."""
    source = Source("x.mg", 'p("\x9b31m \u202e").')
    diagnostic = Diagnostic("analysis", "\x1b[31m and \x9b", Span(source, 2, 5), 'p("\u202e").', "\x07")
    assert all(line.isprintable() for line in diagnostic.render().split("\n"))


def test_a_place_of_several_lines_is_underlined_on_its_first() -> None:
    source = Source("x.mg", "p(X) :-\n  q(X).")
    assert Diagnostic("analysis", "wrong", Span(source, 0, 15)).render().split("\n")[1:] == [
        "  1 | p(X) :-",
        "    | ^^^^^^^",
    ]


def test_the_margin_is_as_wide_as_the_number() -> None:
    source = Source("x.mg", "\n" * 99 + "p(X).")
    assert Diagnostic("analysis", "wrong", Span(source, 101, 102)).render().split("\n")[1:] == [
        "  100 | p(X).",
        "      |   ^",
    ]


@pytest.mark.parametrize("at", [0, 30, 500, 960, 999])
def test_a_long_line_is_shown_around_the_place(at: int) -> None:
    line = "".join(chr(ord("a") + i % 26) for i in range(1000))
    text, carets = pointed(line, at, at + 1)
    assert len(text) <= 170
    assert carets.count("^") == 1
    assert text[carets.index("^")] == line[at]
    assert text[6:].startswith("…") == (at > 100)
    assert text.endswith("…") == (at < 900)


def test_carets_end_where_the_window_ends() -> None:
    text, carets = pointed("p(" + "1, " * 400 + "1).", 0, 1200)
    assert len(carets) == len(text)


def test_windows_line_ends() -> None:
    source = Source("x.mg", "q(1).\r\np(X).\r\n")
    assert Diagnostic("analysis", "wrong", Span(source, 9, 10)).render().split("\n")[1:] == ["  2 | p(X).", "    |   ^"]


def test_a_long_clause_is_shortened() -> None:
    (diagnostic,) = refusal("p(" + "1, " * 200 + "X).")
    assert diagnostic.clause is not None
    last = diagnostic.render().split("\n")[3]
    assert last.startswith("  in: p(1, 1, ")
    assert last.endswith("…")
    assert len(last) < 180


def test_a_diagnostic_without_a_place() -> None:
    assert Diagnostic("eval", "too much", fix="ask for less").render() == "error[eval]: too much\n  fix: ask for less"


# --- did you mean ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("custmer", ["customer", "order"], "customer"),
        ("xyz", ["customer", "order"], None),
        ("fn:lst:len", ["fn:list:len", "fn:list:get"], "fn:list:len"),
        ("fn:foo", ["fn:mod", "fn:plus", "fn:div"], None),  # what all have in common is no likeness
        (":list:memeber", [":list:member", ":lt"], ":list:member"),
        (":x", [":lt", ":le"], None),
        ("fn:sum", ["sum"], None),
        ("p", [], None),
    ],
)
def test_the_nearest_name(name: str, known: list[str], found: str | None) -> None:
    assert closest_match(name, known) == found


@pytest.mark.parametrize(
    ("rule", "fix"),
    [
        ("p(X) :- numbr(X).", "did you mean number?"),
        ("p(X) :- number(X), !numbers(X).", "did you mean number?"),
        ("p(X) :- xyz(X, X).", "declare it: Decl xyz(X1, X2)."),
        ("p() :- xyz().", "declare it: Decl xyz()."),
        ("p(Y) :- number(X), Y = fn:pluss(X, 1).", "did you mean fn:plus?"),
        ("p(Y) :- number(X) |> let Y = fn:strng:concat(X).", "did you mean fn:string:concat?"),
        ("p(fn:pls(1, 2)).", "did you mean fn:plus?"),
        ('p(fn:time:parse("x")).', "did you mean fn:time:parse_civil or fn:time:parse_rfc3339?"),
        ("p(X) :- number(X), :string:start_with(X, X).", "did you mean :string:starts_with?"),
        ("Decl p(X) inclusion [numbr(X)].", "did you mean number?"),
    ],
)
def test_suggestions(rule: str, fix: str) -> None:
    first = refusal(f"number(1).\n{rule}", bounds="off")[0]
    assert first.fix == fix


@pytest.mark.parametrize("lines", ["Package zoo!\nUse farm!\n", ""])
def test_a_package_that_is_not_there_is_to_be_loaded(lines: str) -> None:
    (diagnostic,) = refusal(f"{lines}p(X) :- farm.cow(X).")
    assert diagnostic.fix == "load a unit of package farm that defines it"


def test_a_name_type_in_place_of_a_base_type() -> None:
    (diagnostic,) = refusal("Decl p(X) bound [/int]. p(1).")
    assert diagnostic.fix == "/int is the type of the names below it; the type of the value is /number"
    (diagnostic,) = refusal("Decl p(X) bound [/int]. p(/a).")
    assert diagnostic.fix == "write a name below /int, such as /int/x"


def test_premises_are_not_joined_by_words() -> None:
    (diagnostic,) = refusal("q(3). p(Y) :- q(Y), Y > 2 and Y < 5.", stage="parse")
    assert diagnostic.fix == "write a comma for `and`, and one clause for each alternative of `or`"
