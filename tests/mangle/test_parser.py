"""The grammar (language section 1, D18, D19, D25): what is accepted, what is refused, and exactly where."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span
from manglecp.mangle import printer
from manglecp.mangle.errors import ParseError
from manglecp.mangle.parser import MAX_ERRORS, MAX_NESTING, argument_span, decode, parse
from manglecp.mangle.syntax import (
    NOW,
    Annotation,
    Apply,
    Atom,
    Clause,
    Decl,
    Equality,
    Let,
    Literal,
    Operator,
    Package,
    Term,
    TimeBound,
    Transform,
    Unit,
    Variable,
)
from manglecp.mangle.values import Bytes, Duration, Float, Name, Time
from tests.effort import examples
from tests.fuzz.inputs import CONFORMANCE
from tests.mangle import strategies

X, Y, Z = Variable("X"), Variable("Y"), Variable("Z")


def read(text: str) -> Unit:
    return parse(Source("test.mg", text))


def clause(text: str) -> Clause:
    (item,) = read(text).items
    assert isinstance(item, Clause)
    return item


def decl(text: str) -> Decl:
    (item,) = read(text).items
    assert isinstance(item, Decl)
    return item


def complaints(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(ParseError) as raised:
        read(text)
    for diagnostic in raised.value.diagnostics:
        assert diagnostic.code == "parse"
        assert diagnostic.message
        assert diagnostic.span is not None
        assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(text)
    return raised.value.diagnostics


def place(diagnostic: Diagnostic) -> tuple[int, int, str]:
    assert diagnostic.span is not None
    return diagnostic.span.line, diagnostic.span.column, diagnostic.span.text


# --- accepted ------------------------------------------------------------------------------------------------------


def test_facts() -> None:
    assert clause("p().") == Clause(Atom("p", ()))
    assert clause('p(1, -2, 1.5, /a, "s", b"t", X).') == Clause(
        Atom("p", (1, -2, Float(1.5), Name("/a"), "s", Bytes(b"t"), X))
    )
    assert clause("p(1,).") == clause("p(1).")
    assert [c.head.args for c in read("p(1).p(2). p(3).\np(4).").clauses] == [(1,), (2,), (3,), (4,)]


def test_brackets() -> None:
    assert clause("p([], [1], [1, 2,], [/a : 1], [1: 2, 3: 4,], {}, {/a : X}, {/a: 1, /b: 2,}).").head.args == (
        Apply("fn:list", ()),
        Apply("fn:list", (1,)),
        Apply("fn:list", (1, 2)),
        Apply("fn:map", (Name("/a"), 1)),
        Apply("fn:map", (1, 2, 3, 4)),
        Apply("fn:struct", ()),
        Apply("fn:struct", (Name("/a"), X)),
        Apply("fn:struct", (Name("/a"), 1, Name("/b"), 2)),
    )
    assert clause("p([,], {,}).") == clause("p([], {}).")  # the manual's empty list and struct
    assert clause("p(fn:f(), fn:f(fn:g(X), [Y]), fn:map(), fn:a.b:c(1)).").head.args == (
        Apply("fn:f", ()),
        Apply("fn:f", (Apply("fn:g", (X,)), Apply("fn:list", (Y,)))),
        Apply("fn:map", ()),
        Apply("fn:a.b:c", (1,)),
    )


def test_dot_types() -> None:
    assert clause("p(.List</number>, .X<>, .Map</a, .List</b>,>).").head.args == (
        Apply("fn:List", (Name("/number"),)),
        Apply("fn:X", ()),
        Apply("fn:Map", (Name("/a"), Apply("fn:List", (Name("/b"),)))),
    )
    assert clause("p(.Struct</a : /number, opt /b : /string>, .Struct</a: X, opt /b:Y,>).").head.args == (
        Apply("fn:Struct", (Name("/a"), Name("/number"), Apply("fn:opt", (Name("/b"), Name("/string"))))),
        Apply("fn:Struct", (Name("/a"), X, Apply("fn:opt", (Name("/b"), Y)))),
    )
    assert clause("p(.List<.List<.List</a>>>).") == clause("p(fn:List(fn:List(fn:List(/a)))).")


def test_premises() -> None:
    assert clause(
        "p(X) :- q(X, Y), !r(Y), X = Y, X != 1, X < Y, X <= 1, X > 2, X >= fn:f(Y), :lt(X, Y), !:lt(X, Y)."
    ) == (
        Clause(
            Atom("p", (X,)),
            premises=(
                Literal(Atom("q", (X, Y))),
                Literal(Atom("r", (Y,)), negated=True),
                Equality(X, Y),
                Equality(X, 1, negated=True),
                Literal(Atom(":lt", (X, Y))),
                Literal(Atom(":le", (X, 1))),
                Literal(Atom(":gt", (X, 2))),
                Literal(Atom(":ge", (X, Apply("fn:f", (Y,))))),
                Literal(Atom(":lt", (X, Y))),
                Literal(Atom(":lt", (X, Y)), negated=True),
            ),
        )
    )
    assert clause("p(X) :- q(X),.") == clause("p(X) ⟸ q(X) , .") == clause("p(X) :- q(X).")
    assert clause("p(X) :- q(X), |> let Y = fn:f(X).") == clause("p(X) :- q(X) |> let Y = fn:f(X).")
    assert clause("p() :- [1] = fn:f(), {/a: 1} != {}, 1 = 2.").premises == (
        Equality(Apply("fn:list", (1,)), Apply("fn:f", ())),
        Equality(Apply("fn:struct", (Name("/a"), 1)), Apply("fn:struct", ()), negated=True),
        Equality(1, 2),
    )


def test_transforms() -> None:
    found = clause("p(X) :- q(X) |> do fn:group_by(X), let Y = fn:count(), let Z = [Y] |> let _ = fn:f(Z).")
    assert found.transforms == (
        Transform(Apply("fn:group_by", (X,)), (Let(Y, Apply("fn:count", ())), Let(Z, Apply("fn:list", (Y,))))),
        Transform(None, (Let(Variable("_"), Apply("fn:f", (Z,))),)),
    )
    assert found.aggregates
    assert not clause("p(X) :- q(X) |> let Y = {}.").aggregates
    assert clause("p(X) :- q(X) |> do fn:group_by().").transforms == (Transform(Apply("fn:group_by", ()), ()),)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-15", Time(1_768_435_200_000_000_000)),
        ("2026-01-15T00:00:00", Time(1_768_435_200_000_000_000)),
        ("2026-01-15T00:00:00Z", Time(1_768_435_200_000_000_000)),
        ("2026-01-15T00:00:00.5", Time(1_768_435_200_500_000_000)),
        ("2026-01-15T00:00:00.000000001Z", Time(1_768_435_200_000_000_001)),
        ("2026-01-15T00:00:00.0000000019Z", Time(1_768_435_200_000_000_001)),
        ("1970-01-01", Time(0)),
        ("1677-09-22", Time(-9_223_286_400_000_000_000)),
        ("2262-04-11T23:47:16.854775807Z", Time(2**63 - 1)),
        ("2024-02-29", Time(1_709_164_800_000_000_000)),
        ("0ms", Duration(0)),
        ("5ms", Duration(5_000_000)),
        ("5s", Duration(5_000_000_000)),
        ("5m", Duration(300_000_000_000)),
        ("05h", Duration(18_000_000_000_000)),
        ("106751d", Duration(106_751 * 86_400 * 10**9)),
        ("0000000000000000000000000001s", Duration(10**9)),
        ("now", NOW),
        ("S", Variable("S")),
        ("_", Variable("_")),
    ],
)
def test_time_bounds(text: str, value: Time | Duration | Variable) -> None:
    bound = TimeBound(value, text)
    assert clause(f"p()@[{text}].").annotation == Annotation((bound,))
    assert clause(f"p()@[ {text} , {text} ].").annotation == Annotation((bound, bound))
    premise = clause(f"p() :- q()@[{text}, now].").premises[0]
    assert isinstance(premise, Literal)
    assert premise.annotation is not None
    assert (premise.annotation.start.value, premise.annotation.start.text) == (value, text)
    for kind in ("<-", "[-", "<+", "[+"):
        premise = clause(f"p() :- {kind}[{text}, {text}] q().").premises[0]
        assert isinstance(premise, Literal)
        assert premise.operator == Operator(kind, (bound, bound))


def test_annotations_and_operators() -> None:
    five, day, now = (
        TimeBound(Duration(300 * 10**9), "5m"),
        TimeBound(Duration(86_400 * 10**9), "1d"),
        TimeBound(NOW, "now"),
    )
    start, end, ever = TimeBound(Variable("S"), "S"), TimeBound(Variable("E"), "E"), TimeBound(Variable("_"), "_")
    both = Annotation((start, end))
    assert clause(
        "p(X)@[S, E] :- <-[5m, 1d] q(X)@[S, E], ![-[5m] r(X), !s(X)@[now], <+[now] t(), [+[5m,1d]u()."
    ) == Clause(
        Atom("p", (X,)),
        both,
        (
            Literal(Atom("q", (X,)), operator=Operator("<-", (five, day)), annotation=both),
            Literal(Atom("r", (X,)), negated=True, operator=Operator("[-", (five,))),
            Literal(Atom("s", (X,)), negated=True, annotation=Annotation((now,))),
            Literal(Atom("t", ()), operator=Operator("<+", (now,))),
            Literal(Atom("u", ()), operator=Operator("[+", (five, day))),
        ),
    )
    assert Annotation((ever, ever)).eternal
    assert Annotation((ever,)).eternal
    assert not Annotation((ever, now)).eternal
    assert clause("p() :- <-[5m] q()@[_].").premises[0].span is not None


def test_declarations() -> None:
    assert decl("Decl p().") == Decl(Atom("p", ()))
    assert decl("Decl p(X, _).") == Decl(Atom("p", (X, Variable("_"))))
    assert decl(
        'Decl p(X, Y) temporal descr [doc("d"), private(),] bound [/number, .List</a>] bound [/a, Z,] inclusion [q(X)].'
    ) == Decl(
        Atom("p", (X, Y)),
        True,
        (Atom("doc", ("d",)), Atom("private", ())),
        ((Name("/number"), Apply("fn:List", (Name("/a"),))), (Name("/a"), Z)),
        (Atom("q", (X,)),),
    )
    assert decl("Decl p() descr [] bound [] inclusion [].") == Decl(Atom("p", ()), bounds=((),))
    assert decl("Decl p(X, Y, Z) descr [mode(+, -, ?)].") == decl('Decl p(X, Y, Z) descr [mode("+", "-", "?")].')


def test_packages() -> None:
    assert read("Package zoo!") == Unit(Package("zoo"))
    assert read('Package a.b_1 [doc("x"), y(),]! Use c! Use d.e []! p(1).') == Unit(
        Package("a.b_1", (Atom("doc", ("x",)), Atom("y", ()))),
        (Package("c"), Package("d.e")),
        (Clause(Atom("p", (1,))),),
    )
    assert read("Use a!") == Unit(None, (Package("a"),))
    assert read("") == Unit()


def test_nesting_up_to_the_limit() -> None:
    for opening, closing in (("[", "]"), ("fn:f(", ")"), (".List<", ">"), ("{/a:", "}"), ("[1:", "]")):
        deep = MAX_NESTING - 1  # the parentheses of the fact are one level
        clause(f"p({opening * deep}1{closing * deep}).")
        (found,) = complaints(f"p({opening * (deep + 1)}1{closing * (deep + 1)}).")
        assert found.message == f"nested more than {MAX_NESTING} deep"
    many = "[1], " * 1_000
    assert len(clause(f"p({many}).").head.args) == 1_000  # side by side is not deep


# --- refused, and exactly where ------------------------------------------------------------------------------------
# «» mark what the diagnostic points at; an empty pair is the end of the text.

REFUSED = [
    # clauses
    "p(1)«»",
    "p(1«»",
    "«p»",
    "«p».",
    "«ready» :- p(1).",
    "p(X) :- «ready».",
    "«(»1).",
    "«X»(1).",
    "«/a»(1).",
    "«5».",
    "«[»1].",
    "«.» p(1).",
    "«fn:f(1)».",
    "p(1) «q»(2).",
    "p(1)«,»q(2).",
    "p(1) :- q(1) «:-» r(1).",
    "p(X) «|>» let Y = fn:f(X).",
    "p(«:-» q(1).",
    # arguments
    "p(«,»).",
    "p(1,«,»2).",
    "p(1 «2»).",
    "p(1«]».",
    "p(«q(1)»).",
    "p(1, fn:f(«q(1, 2)»)).",
    "p(«q»).",
    "p(«:»).",
    "p(«+»).",
    "p(«2026-01-15»).",
    "p(«7d»).",
    "p(«now»).",
    # premises
    "p(X) :- «.»",
    "p(X) :-«»",
    "p(X) :- «,»q(X).",
    "p(X) :- q(X),«,»r(X).",
    "p(X) :- q(X) «r»(X).",
    "p(X) :- «X».",
    "p(X) :- «5».",
    "p(X) :- «fn:f(X)».",
    "p(X) :- «Q»(X).",
    "p(X) :- q(X), «[1]», r(X).",
    "p(X) :- !«X».",
    "p(X) :- !«!»q(X).",
    "p(X) :- !«X» = 1.",
    "p(X) :- !«fn:f(X)».",
    "p(X) :- !q(X) «=» 1.",
    "p(X) :- «q(X)» = 1.",
    "p(X) :- «q(X)» < 1.",
    "p(X) :- X = «q(1)».",
    "p(X) :- X =«=» 1.",
    "p(X) :- X = Y «=» Z.",
    "p(X) :- 1 < X «<» 3.",
    "p(X) :- X =«<» 3.",
    "p(X) :- X <«>» 3.",
    "p(X) :- X =«.»",
    # transforms
    "p(X) :- «|>» let Y = fn:f(X).",
    "p(X) :- q(X) |> «.»",
    "p(X) :- q(X) |> «let Y = 5».",
    "p(X) :- q(X) |> let Z = fn:f(X), «let Y = X».",
    "p(X) :- q(X) |> let «y» = fn:f(X).",
    "p(X) :- q(X) |> let Y «fn:f»(X).",
    "p(X) :- q(X) |> do «5».",
    "p(X) :- q(X) |> do «q(X)».",
    "p(X) :- q(X) |> «fn:group_by»(X).",
    "p(X) :- q(X) |> do fn:group_by(X), «fn:f»(X).",
    "p(X) :- q(X) |> do fn:group_by(X),«.»",
    "p(X) :- q(X) |> let Y = fn:f(X), «do» fn:g().",
    # time
    "p(1)@«.»",
    "p(1)@[«]».",
    "p(1)@[«1»].",
    "p(1)@[«/a»].",
    'p(1)@[«"2026-01-01"»].',
    "p(1)@[2026-01-01,«]».",
    "p(1)@[2026-01-01, 2026-01-02«,» 2026-01-03].",
    "p(1)@[2026-01-01«.»",
    "p(1)@«2026-01-01».",
    "p(1)@[now]«@»[now].",
    "p(1)@[«2026-13-01»].",
    "p(1)@[«2026-02-30»].",
    "p(1)@[«2025-02-29»].",
    "p(1)@[«0000-01-01»].",
    "p(1)@[«2026-01-01T24:00:00»].",
    "p(1)@[«2026-01-01T23:60:00»].",
    "p(1)@[«2026-01-01T23:59:60»].",
    "p(1)@[2026-01-01T12:00:00«+»01:00].",
    "p(1)@[2026-01-01«T12»:00].",
    "p(1)@[«1500-01-01»].",
    "p(1)@[«1677-09-21»].",
    "p(1)@[«2300-01-01»].",
    "p(1)@[«2262-04-11T23:47:16.854775808Z»].",
    "p(1)@[1h«30m»].",
    "p(1)@[«-5»m].",
    "p(X) :- «<»-q(X).",
    "p(X) :- <-[«]» q(X).",
    "p(X) :- <-[«1»,2] q(X).",
    "p(X) :- <-[1m,2m«,»3m] q(X).",
    "p(X) :- <-[1m] «<-»[1m] q(X).",
    "p(X) :- <-[1m] «!»q(X).",
    "p(X) :- «<-[1m] X» = 1.",
    "p(X) :- «X@[now]» = 1.",
    "p(X) :- <-[«99999999999d»] q(X).",
    "p(X) :- <-[«106752d»] q(X).",
    # declarations
    "Decl«.»",
    "Decl «p».",
    "Decl p(X)«»",
    "Decl «p(1)».",
    "Decl «p(X, /a)».",
    "Decl p(«x»).",
    "Decl «fn:f(X)».",
    "Decl p(X)«@»[now].",
    "Decl p(X) «foo».",
    "Decl p(X) bound [/number] «temporal».",
    "Decl p(X) temporal «temporal».",
    'Decl p(X) bound [/number] «descr» [doc("x")].',
    "Decl p(X) descr [a()] «descr» [b()].",
    "Decl p(X) inclusion [q(X)] «bound» [/number].",
    "Decl p(X) inclusion [q(X)] «inclusion» [r(X)].",
    "Decl p(X) descr «doc»().",
    "Decl p(X) descr [«doc»].",
    "Decl p(X) descr [«5»].",
    "Decl p(X) descr [«temporal»()].",
    "Decl p(X) bound «/number».",
    "Decl p(X) descr [mode(+,«1»)].",
    "Decl p(X) descr [mode(+ «-»)].",
    # packages
    "Package«!»",
    "Package zoo«»",
    "Package zoo«.»",
    "Package «Zoo»!",
    "Package «zoO»!",
    "Package «:zoo»!",
    "Package «fn:zoo»!",
    "Package «1»!",
    "Package «let»!",
    "Package zoo [«1»]!",
    "Package zoo [a() «b»()]!",
    "Package zoo! «Package» zoo!",
    "Use«!»",
    "Use zoo«»",
    "Use a! «Package» b!",
    "p(1). «Use» zoo!",
    "p(1). «Package» zoo!",
    # brackets
    "p([1 «2»]).",
    "p([1,2«)».",
    "p([1«}»).",
    "p([1:2, 3«]»).",
    "p([1, 2«:»3]).",
    "p([,«1»]).",
    "p([1,«,»2]).",
    "p([«:»1]).",
    "p([1:«]»).",
    "p({1«}»).",
    "p({/a «1»}).",
    "p({/a: 1, /b«}»).",
    "p({/a: 1 «/b»: 2}).",
    "p({/a: «}»).",
    "p({«:»1}).",
    "p(«.List»).",
    "p(.List</number«)».",
    "p(.Struct<opt /a«>»).",
    "p(.Struct</a : «>»).",
    "p(.Struct<opt «:» /a>).",
    "p(.X<«,»>).",
    "p(1)«.Decl» q(X).",
]


@pytest.mark.parametrize("marked", REFUSED)
def test_refused(marked: str) -> None:
    before, rest = marked.split("«")
    inside, after = rest.split("»")
    first = complaints(before + inside + after)[0]
    assert first.span is not None
    assert (first.span.start, first.span.end) == (len(before), len(before) + len(inside))
    assert first.render().startswith(f"error[parse]: test.mg:1:{len(before) + 1}: {first.message}\n")


@pytest.mark.parametrize(
    "marked", [m for m in REFUSED if "«»" not in m and not m.lstrip("«").startswith(("Package", "Use"))]
)
def test_refused_in_the_middle_of_a_file(marked: str) -> None:
    """The same complaint, elsewhere; and reading goes on behind the clause."""
    text = marked.replace("«", "").replace("»", "")
    found = complaints(f"ok(1).\n\n  {text}\n.\nok(2).\nok(")
    assert place(found[0])[:2] == (3, marked.index("«") + 3)
    assert place(found[-1])[:2] == (6, 4)


# --- several mistakes ----------------------------------------------------------------------------------------------


def test_every_broken_clause_is_reported() -> None:
    text = """\
Package Zoo!
Use 1!
p(1).
p(2
q(3).
r(X) :- q(X,).
s(X) :- q(X), .
t(X) :- .
"never a clause".
Decl u(1).
v(/a) :- w(/b ; /c).
x("\\q").
y(99999999999999999999).
z(X) :- X = /a. z(/b.
fine(1).
last("""
    assert [place(diagnostic)[:2] for diagnostic in complaints(text)] == [
        (1, 9),
        (2, 5),
        (5, 1),
        (8, 9),
        (9, 1),
        (10, 6),
        (11, 15),
        (12, 4),
        (13, 3),
        (15, 1),
        (16, 6),
    ]


def test_a_broken_clause_ends_at_its_full_stop() -> None:
    text = 'p(1 2). q(3). r(4 5). s("a.b" "c"). t(1.5 2.5). u(/a.b /c). v(). w(1 # no. \n 2). x(7).'
    assert [place(diagnostic)[2] for diagnostic in complaints(text)] == ["2", "5", '"c"', "2.5", "/c", "2"]


def test_nothing_behind_an_open_string_is_trusted() -> None:
    found = complaints('p(1 2).\nq("open).\nr(1 2).\n')
    assert [place(diagnostic)[:2] for diagnostic in found] == [(1, 5), (2, 3)]
    found = complaints('p(1 2,\n "open).\nr(1 2).\n')
    assert [place(diagnostic)[:2] for diagnostic in found] == [(1, 5), (2, 2)]


def test_one_complaint_per_clause_is_enough() -> None:
    found = complaints("p(1 2 / 3 $ 4 \\ 5, 99999999999999999999, '\\q'). q(1). r(/ / /). s($")
    assert [place(diagnostic)[2] for diagnostic in found] == ["2", "/", "$"]


def test_there_is_an_end_to_complaints() -> None:
    assert len(complaints("p(.\n" * 1_000)) == MAX_ERRORS
    assert len(complaints("p(1 2).\n" * (MAX_ERRORS - 1))) == MAX_ERRORS - 1


def test_line_ends_of_all_kinds_end_a_broken_package_line() -> None:
    for end in ("\n", "\r\n"):
        found = complaints(f"Package Zoo!{end}Use Ant!{end}p(1 2).{end}")
        assert [place(diagnostic)[:2] for diagnostic in found] == [(1, 9), (2, 5), (3, 5)]


def test_a_rendered_error() -> None:
    with pytest.raises(ParseError) as raised:
        read("p(1).\n\tq(2,\t3 4).\n")
    assert raised.value.render().split("\n") == [
        "error[parse]: test.mg:2:9: ')' or ',' is needed here, found '4'",
        "  2 | \tq(2,\t3 4).",
        "    | \t    \t  ^",
    ]


# --- spans ---------------------------------------------------------------------------------------------------------


def nodes(unit: Unit) -> Iterator[tuple[str, object, Span | None]]:
    """Every node that has a span, and the text around which it can be read again."""
    if unit.package is not None:
        yield "{}", unit.package, unit.package.span
        for attribute in unit.package.attributes:
            yield from _atom(attribute)
    for use in unit.uses:
        yield "{}", use, use.span
    for item in unit.items:
        yield "{}", item, item.span
        if isinstance(item, Decl):
            for atom in (item.atom, *item.descr, *item.inclusion):
                yield from _atom(atom)
            for row in item.bounds:
                yield from _terms(row)
        else:
            yield from _clause(item)


def _clause(item: Clause) -> Iterator[tuple[str, object, Span | None]]:
    yield from _atom(item.head)
    yield from _annotation(item.annotation)
    for premise in item.premises:
        yield "p() :- {} .", premise, premise.span
        if isinstance(premise, Equality):
            yield from _terms((premise.left, premise.right))
            continue
        yield from _atom(premise.atom)
        yield from _annotation(premise.annotation)
        if premise.operator is not None:
            yield "p() :- {} q().", premise.operator, premise.operator.span
            for bound in premise.operator.bounds:
                yield "p()@[{}].", bound, bound.span
    for transform in item.transforms:
        yield "p() :- q() {} .", transform, transform.span
        for let in transform.lets:
            yield "p() :- q() |> {} .", let, let.span
            yield from _terms((let.variable, let.expression))
        if transform.do is not None:
            yield from _terms((transform.do,))


def _annotation(annotation: Annotation | None) -> Iterator[tuple[str, object, Span | None]]:
    if annotation is not None:
        yield "p(){}.", annotation, annotation.span
        for bound in annotation.bounds:
            yield "p()@[{}].", bound, bound.span


def _atom(atom: Atom) -> Iterator[tuple[str, object, Span | None]]:
    infix = atom.span is not None and not atom.span.text.startswith(atom.predicate)
    yield "p() :- {} ." if infix else "{} .", atom, atom.span
    yield from _terms(atom.args)


def _terms(terms: tuple[Term, ...]) -> Iterator[tuple[str, object, Span | None]]:
    for term in terms:
        if isinstance(term, Variable):
            yield "p({}).", term, term.span
        elif isinstance(term, Apply):
            optional = term.span is not None and term.span.text.startswith("opt")
            yield "p(.X<{}>)." if optional else "p({}).", term, term.span
            yield from _terms(term.args)


def same_again(unit: Unit) -> int:
    """Read the text of every node again: nothing is missing, and nothing is too much. The number of nodes."""
    count = 0
    for around, node, span in nodes(unit):
        assert span is not None, node
        assert span.text == span.text.strip(" \t\r\n\f"), node
        assert not span.text.startswith("#")
        again = [found for _, found, _ in nodes(read(around.replace("{}", span.text)))]
        assert any(type(found) is type(node) and found == node for found in again), (node, span.text)
        count += 1
    return count


def test_spans_in_the_conformance_programs() -> None:
    count = 0
    for path in sorted(CONFORMANCE.glob("*.mg")):
        if path.stat().st_size < 5_000:
            try:
                unit = parse(decode(path.name, path.read_bytes()))
            except ParseError:
                continue
            count += same_again(unit)
    assert count > 10_000


@examples(40)
@given(strategies.units)
def test_spans_of_anything(unit: Unit) -> None:
    same_again(read(printer.unit(unit)))


def test_spans_that_are_easily_wrong() -> None:
    text = "p(X)  :-  q( X )  @[ now ] , X <-1 , <- [ 5m ]  r( {/a:fn:plus(1,2)} ) , Y = /a.  # end\n"
    unit = read(text)
    assert same_again(unit) > 10
    (rule,) = unit.clauses
    assert [premise.span.text for premise in rule.premises if premise.span is not None] == [
        "q( X )  @[ now ]",
        "X <-1",
        "<- [ 5m ]  r( {/a:fn:plus(1,2)} )",
        "Y = /a",
    ]
    assert rule.span is not None
    assert rule.span.text == text.removesuffix("  # end\n")


def test_the_spans_of_arguments() -> None:
    text = 'p( /a , -1,"x, y", [1, 2], X, fn:f(1, 2), /b. , {/c: 1}, 7 ).'
    (fact,) = read(text).clauses
    found = [argument_span(fact.head, index) for index in range(len(fact.head.args))]
    assert [span.text for span in found if span is not None] == [
        "/a",
        "-1",
        '"x, y"',
        "[1, 2]",
        "X",
        "fn:f(1, 2)",
        "/b.",
        "{/c: 1}",
        "7",
    ]
