"""Declarations: what each part means, and every way to get it wrong."""

from __future__ import annotations

import pytest

from manglecp.mangle.declarations import FunctionalDependency, Predicate as Known
from manglecp.mangle.types import ANY, NUMBER, STRING
from manglecp.mangle.values import Name
from tests.mangle.loading import complaints, facts, load, refusal


def known(text: str) -> Known:
    """What is known of the one predicate that is declared."""
    (predicate,) = load(text).predicates.values()
    return predicate


# --- what is accepted ------------------------------------------------------------------------------------------------


def test_a_bare_declaration() -> None:
    predicate = known("Decl p(X, Y).")
    assert predicate.key == ("p", 2)
    assert predicate.rows == ((ANY, ANY),)
    assert predicate.modes is None
    flags = (predicate.temporal, predicate.deferred, predicate.external, predicate.extensional, predicate.private)
    assert flags == (False,) * 5


def test_the_whole_declaration() -> None:
    predicate = known("""
        Decl stock(Item, Qty) temporal
          descr [doc("What is left.", "Counted daily."), arg(Item, "what"), arg(Qty, "how many", "in units"),
                 extensional(), private(), fundep([Item], [Qty]), owner("policy"), mode("-", "?"), colour(/red)]
          bound [/name, /number]
          bound [/string, /number].
    """)
    assert predicate.temporal
    assert predicate.extensional
    assert predicate.private
    assert predicate.doc == "What is left.\nCounted daily."
    assert predicate.fundeps == (FunctionalDependency((0,), (1,)),)
    assert predicate.modes == "-?"
    assert [tuple(map(str, row)) for row in predicate.rows] == [("/name", "/number"), ("/string", "/number")]


def test_a_predicate_without_arguments_needs_no_bound() -> None:
    assert known("Decl ready().").rows == ((),)
    assert known("Decl ready() bound [].").rows == ((),)
    assert facts("Decl ready(). ready(). go() :- ready().") == ["go()", "ready()"]


@pytest.mark.parametrize(
    ("modes", "merged"),
    [
        ('mode("+", "-")', "+-"),
        ('mode("+", "-"), mode("+", "-")', "+-"),
        ('mode("+", "-"), mode("-", "-")', "?-"),
        ('mode("+", "+"), mode("+", "-"), mode("-", "+")', "??"),
        ('mode("?", "?")', "??"),
        ('mode("+", "-"), mode("in", "out")', "+-"),  # any other string: the descriptor says nothing
        ('mode("in", "out")', None),
        ('mode("in")', None),
    ],
)
def test_modes_are_merged_position_by_position(modes: str, merged: str | None) -> None:
    assert known(f"Decl p(X, Y) descr [{modes}].").modes == merged


def test_a_mode_of_a_predicate_without_arguments() -> None:
    assert known("Decl p() descr [mode(), external()].").modes == ""


def test_reflects() -> None:
    assert known("Decl animal(X) descr [reflects(/animal)].").reflects is Name("/animal")


def test_columns_are_found_by_name() -> None:
    predicate = known("Decl p(A, B, C, D) descr [fundep([D, A], [C])] bound [/any, /any, /any, /any].")
    assert predicate.fundeps == (FunctionalDependency((3, 0), (2,)),)
    merged = (
        load("""
        Decl best(V, K) descr [fundep([K], [V]), merge([V], "pick")].
        pick(1, 2, 2).
    """)
        .predicates["best", 2]
        .merge
    )
    assert merged is not None
    assert (merged.column, merged.predicate) == (0, ("pick", 3))


def test_several_functional_dependencies() -> None:
    assert known("Decl p(A, B) descr [fundep([A], [B]), fundep([B], [A])].").fundeps == (
        FunctionalDependency((0,), (1,)),
        FunctionalDependency((1,), (0,)),
    )


def test_unknown_descriptors_are_ignored() -> None:
    assert facts('Decl p(X) descr [colour(/red), name("q"), desugared(), synthetic()]. p(1).') == ["p(1)"]


def test_an_undeclared_predicate_is_known_by_its_clauses() -> None:
    program = load("p(1, 2).\nq(X)@[now] :- p(X, _).\nq(1)@[2026-01-01].")
    assert program.predicates["p", 2].decl is None
    assert not program.predicates["p", 2].temporal
    assert program.predicates["q", 1].temporal


def test_a_declaration_may_stand_anywhere() -> None:
    assert complaints('p("a").\nDecl p(X) bound [/number].') == ['1:3 argument 1 of p is /number, but "a" is /string']


# --- what is not -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declaration", "found"),
    [
        # arguments
        ("Decl p(X, X).", ["1:6 p names an argument twice"]),
        # doc
        ("Decl p(X) descr [doc()].", ["1:18 doc takes one or more strings"]),
        ("Decl p(X) descr [doc(1)].", ["1:18 doc takes one or more strings"]),
        ('Decl p(X) descr [doc("a", X)].', ["1:18 doc takes one or more strings"]),
        ('Decl p(X) descr [doc("a"), doc("b")].', ["1:28 doc occurs twice"]),
        # arg
        ('Decl p(X, Y) descr [arg(X, "x")].', ["1:6 arg is missing for Y"]),
        ('Decl p(X) descr [arg(X, "x"), arg(Z, "z")].', ["1:31 Z is not an argument of p"]),
        (
            "Decl p(X) descr [arg(X)].",
            ["1:6 arg is missing for X", "1:18 arg takes an argument and one or more strings"],
        ),
        (
            "Decl p(X) descr [arg()].",
            ["1:6 arg is missing for X", "1:18 arg takes an argument and one or more strings"],
        ),
        (
            "Decl p(X) descr [arg(X, /x)].",
            ["1:6 arg is missing for X", "1:18 arg takes an argument and one or more strings"],
        ),
        (
            'Decl p(X) descr [arg(/x, "x")].',
            ["1:6 arg is missing for X", "1:18 arg takes an argument and one or more strings"],
        ),
        # mode
        ('Decl p(X, Y) descr [mode("+")].', ["1:21 mode has 1 string for 2 arguments"]),
        ('Decl p(X) descr [mode("+", "-", "?")].', ["1:18 mode has 3 strings for 1 argument"]),
        ("Decl p(X) descr [mode()].", ["1:18 mode has 0 strings for 1 argument"]),
        # external, deferred
        ("Decl p(X) descr [external()].", ["1:6 an external predicate needs exactly one mode"]),
        ('Decl p(X) descr [external(), mode("in")].', ["1:6 an external predicate needs exactly one mode"]),
        ('Decl p(X) descr [external(), mode("+"), mode("-")].', ["1:6 an external predicate needs exactly one mode"]),
        ("Decl p(X) descr [deferred()].", ["1:6 a deferred predicate needs a mode"]),
        ('Decl p(X) temporal descr [deferred(), mode("+")].', ["1:6 a deferred predicate cannot be temporal"]),
        ('Decl p(X) descr [deferred(), external(), mode("+")].', ["1:6 a predicate is deferred or external, not both"]),
        # reflects, owner
        ('Decl p(X) descr [reflects("/p")].', ["1:18 reflects takes one name"]),
        ("Decl p(X) descr [reflects()].", ["1:18 reflects takes one name"]),
        ("Decl p(X, Y) descr [reflects(/p)].", ["1:6 reflects is for predicates with one argument"]),
        ('Decl p(X) descr [owner("boss")].', ["1:18 owner takes the name of a trust level"]),
        ("Decl p(X) descr [owner(/policy)].", ["1:18 owner takes the name of a trust level"]),
        ("Decl p(X) descr [owner()].", ["1:18 owner takes the name of a trust level"]),
        # fundep
        ("Decl p(X, Y) descr [fundep([X])].", ["1:21 fundep takes two lists"]),
        ("Decl p(X, Y) descr [fundep(X, Y)].", ["1:21 columns are written as a list of arguments, such as [X, Y]"] * 2),
        ("Decl p(X, Y) descr [fundep([Z], [Y])].", ["1:21 Z is not an argument of p"]),
        ("Decl p(X, Y) descr [fundep([X], [1])].", ["1:21 1 is not an argument of p"]),
        ("Decl p(_, Y) descr [fundep([_], [Y])].", ["1:21 _ is not an argument of p"]),
        # bounds
        ("Decl p(X, Y) bound [/number].", ["1:6 bound has 1 type for 2 arguments"]),
        ("Decl p(X) bound [/number, /any].", ["1:6 bound has 2 types for 1 argument"]),
        ("Decl p() bound [/number].", ["1:6 bound has 1 type for 0 arguments"]),
        ("Decl p(X) bound [/number] bound [].", ["1:6 bound has 0 types for 1 argument"]),
        # inclusion
        ("Decl p(X) inclusion [q(Y)]. q(1).", ["1:24 Y in the inclusion is not an argument of p"]),
        ("Decl p(X) inclusion [q(X)].", ["1:22 unknown predicate q/1 in an inclusion"]),
        ("Decl p(X) inclusion [q(X, _)]. q(1).", ["1:22 unknown predicate q/2 in an inclusion"]),
        ("Decl p(X) inclusion [:lt(X, 5)].", ["1:22 an inclusion asks for facts, :lt has none"]),
    ],
)
def test_what_is_wrong_with_a_declaration(declaration: str, found: list[str]) -> None:
    assert complaints(declaration) == found


MERGED = 'Decl pick(A, B, C) descr [mode("+", "+", "-"), deferred()].\npick(A, B, C) :- A < B, C = B.\n'


@pytest.mark.parametrize(
    ("descriptors", "found"),
    [
        ("fundep([K], [V]), merge([V])", ["3:42 merge takes a column and a predicate"]),
        ("fundep([K], [V]), merge([V], /pick)", ["3:42 merge takes a column and a predicate"]),
        ('fundep([K], [V]), merge(V, "pick")', ["3:42 columns are written as a list of arguments, such as [X, Y]"]),
        ('fundep([K], [V]), merge([W], "pick")', ["3:42 W is not an argument of best"]),
        ('fundep([K], [V]), merge([K, V], "pick")', ["3:42 merge takes exactly one column"]),
        ('fundep([K], [V]), merge([], "pick")', ["3:42 merge takes exactly one column"]),
        ('merge([V], "pick")', ["3:24 merge needs exactly one fundep, whose target is the merged column"]),
        (
            'fundep([K], [V]), merge([K], "pick")',
            ["3:42 merge needs exactly one fundep, whose target is the merged column"],
        ),
        (
            'fundep([K], [V]), fundep([V], [K]), merge([V], "pick")',
            ["3:60 merge needs exactly one fundep, whose target is the merged column"],
        ),
        ('fundep([K], [V]), merge([V], "pick"), merge([V], "pick")', ["3:62 merge occurs twice"]),
        ('fundep([Z], [V]), merge([V], "pick")', ["3:24 Z is not an argument of best"]),  # said once
        ('fundep([K], [V]), merge([V], "pik")', ["3:42 merge predicate pik with three arguments does not exist"]),
    ],
)
def test_what_is_wrong_with_a_merge(descriptors: str, found: list[str]) -> None:
    assert complaints(f"{MERGED}Decl best(K, V) descr [{descriptors}].") == found


def test_a_temporal_predicate_cannot_be_merged() -> None:
    text = f'{MERGED}Decl best(K, V) temporal descr [fundep([K], [V]), merge([V], "pick")].'
    assert complaints(text) == ["3:51 a temporal predicate cannot be merged"]


def test_a_merge_predicate_must_answer_with_its_third_argument() -> None:
    text = """\
        Decl best(K, V) descr [fundep([K], [V]), merge([V], "pick")] bound [/name, /number].
        Decl pick(A, B, C) descr [mode("+", "+", "+"), deferred()].
        pick(A, B, C) :- A < B, C = B.
        best(/a, 1).
        best(/a, 2).
    """
    (diagnostic,) = refusal(text)
    assert diagnostic.message == "merge predicate pick takes its third argument as input, but a merge computes it"
    assert diagnostic.fix == 'declare pick with mode("+", "+", "-")'


def test_everything_wrong_with_one_declaration_is_reported() -> None:
    text = """\
        Decl p(X, Y)
          descr [doc(), mode("+"), arg(X, "x"), owner("boss"), fundep([Z], [Y])]
          bound [/number]
          bound [fn:List(), fn:Map(/number)]
          inclusion [q(Z)].
    """
    assert complaints(text) == [
        "1:6 bound has 1 type for 2 arguments",
        "1:6 arg is missing for Y",
        "2:10 doc takes one or more strings",
        "2:17 mode has 1 string for 2 arguments",
        "2:41 owner takes the name of a trust level",
        "2:56 Z is not an argument of p",
        "4:10 fn:List takes 1 argument, not 0",
        "4:21 fn:Map takes 2 arguments, not 1",
        "5:14 unknown predicate q/1 in an inclusion",
        "5:16 Z in the inclusion is not an argument of p",
    ]


def test_a_wrong_declaration_says_nothing_about_the_clauses() -> None:
    text = """\
        Decl v(X) bound [fn:List(/number, /number)].
        Decl w(X) bound [/number, /number] bound [/string].
        v([1]).
        w(1).
        p(Y) :- v(L), :list:member(X, L), Y = fn:plus(X, 1).
        q(Y) :- p(X), Y = fn:plus(X, 1).
    """
    assert complaints(text) == [
        "1:18 fn:List takes 1 argument, not 2",
        "2:6 bound has 2 types for 1 argument",
    ]


def test_a_predicate_is_declared_once() -> None:
    first, second = "Decl p(X) bound [/number].", "\nDecl p(Y) bound [/string]."
    (diagnostic,) = refusal(first, second)
    assert diagnostic.message == "p/1 is declared twice (first in a.mg:1)"
    assert diagnostic.fix == "remove one declaration"
    assert diagnostic.clause == "Decl p(Y) bound [/string]."
    assert complaints("Decl p(X).\nDecl p(X).\nDecl p(X).") == [
        "2:6 p/1 is declared twice (first in a.mg:1)",
        "3:6 p/1 is declared twice (first in a.mg:1)",
    ]


# --- one name, one arity ---------------------------------------------------------------------------------------------


def test_a_second_arity_is_an_error_at_every_clause() -> None:
    assert complaints("p(1).\np(1, 2).\nq(1).\np(X, Y) :- q(X), q(Y).") == [
        "2:1 p has 2 arguments here and 1 argument in a.mg:1",
        "4:1 p has 2 arguments here and 1 argument in a.mg:1",
    ]


def test_a_declaration_decides_the_arity() -> None:
    assert complaints("p(1, 2).", "Decl p(X).") == ["1:1 p has 2 arguments here and 1 argument in b.mg:1"]
    assert complaints("Decl p(X).\np(1).\np(1, 2).") == ["3:1 p has 2 arguments here and 1 argument in a.mg:1"]


def test_both_arities_may_be_declared() -> None:
    assert facts("Decl p(X). Decl p(X, Y). p(1). p(1, 2).") == ["p(1)", "p(1,2)"]
    assert complaints("Decl p(X).\nDecl p(X, Y).\np(1).\np(1, 2).\np(1, 2, 3).") == [
        "5:1 p has 3 arguments here and 1 argument in a.mg:1"
    ]


def test_a_premise_with_another_arity() -> None:
    assert complaints("p(1).\nq() :- p(1, 2), p(), !p(1, 2, 3).") == [
        "2:8 p takes 1 argument, not 2",
        "2:17 p takes 1 argument, not 0",
        "2:23 p takes 1 argument, not 3",
    ]
    assert complaints("Decl p(X). Decl p(X, Y).\nq() :- p().") == ["2:8 p takes 1 or 2 arguments, not 0"]


# --- what the descriptors do -----------------------------------------------------------------------------------------


def test_an_extensional_predicate_takes_facts_only() -> None:
    (diagnostic,) = refusal("Decl p(X) descr [extensional()].\np(1).\np(X) :- q(X).\nq(1).")
    assert diagnostic.message == "p is extensional: it takes facts, not rules"
    assert diagnostic.span is not None
    assert diagnostic.span.line == 3


def test_an_external_predicate_has_no_rules() -> None:
    text = 'Decl p(X) descr [external(), mode("-")].\nq(1).\np(X) :- q(X).'
    assert complaints(text) == ["3:1 p is external: it is answered from outside, not by rules"]
    assert facts('Decl p(X) descr [external(), mode("-")].\np(1).\nq(X) :- p(X).') == ["p(1)", "q(1)"]


def test_an_inclusion_in_a_deferred_predicate_has_its_inputs() -> None:
    deferred = 'Decl big(X, Y) descr [deferred(), mode("+", "-")].\nbig(X, Y) :- X > 3, Y = X.\n'
    assert complaints(f"{deferred}Decl p(X) inclusion [big(_, X)].\np(1).") == ["3:22 big needs a value where _ stands"]
    assert facts(f"{deferred}Decl p(X) inclusion [big(X, _)].\np(5).") == ["p(5)"]
    assert complaints(f"{deferred}Decl p(X) inclusion [big(X, _)].\np(1).", stage="eval") == [
        "3:1 inclusion violated: p(1) needs big(1, _)"
    ]


def test_functional_dependencies_are_enforced_in_both_directions() -> None:
    decl = "Decl p(A, B) descr [fundep([A], [B]), fundep([B], [A])].\n"
    assert facts(f"{decl}p(1, 2). p(2, 1).") == ["p(1,2)", "p(2,1)"]
    assert complaints(f"{decl}p(1, 2). p(2, 2).", stage="eval") == [
        "1:1 functional dependency violated by p(1,2) and p(2,2)"
    ]


def test_a_temporal_predicate_may_change_its_value_over_time() -> None:
    decl = "Decl price(K, V) temporal descr [fundep([K], [V])].\n"
    then = "price(/tea, 1)@[2026-01-01, 2026-01-05]. "
    assert len(facts(f"{decl}{then}price(/tea, 2)@[2026-01-06, 2026-01-07].")) == 2
    assert len(complaints(f"{decl}{then}price(/tea, 2)@[2026-01-05, 2026-01-07].", stage="eval")) == 1


# --- types that are none ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "found"),
    [
        ('"even"', '1:6 "even" is not a type'),
        ("1", "1:6 1 is not a type"),
        ("[/number]", "1:18 fn:list is not a type constructor"),
        ("{/a: /number}", "1:18 fn:struct is not a type constructor"),
        ("fn:Set(/number)", "1:18 fn:Set is not a type constructor"),
        ("fn:plus(1, 2)", "1:18 fn:plus is not a type constructor"),
        ("fn:Singleton()", "1:18 fn:Singleton takes one constant"),
        ("fn:Singleton(1, 2)", "1:18 fn:Singleton takes one constant"),
        ("fn:Singleton(X)", "1:18 fn:Singleton takes one constant"),
        ("fn:Singleton([1])", "1:18 fn:Singleton takes one constant"),
        ("fn:Union()", "1:18 fn:Union needs at least one alternative"),
        ("fn:Pair(/number)", "1:18 fn:Pair takes 2 arguments, not 1"),
        ("fn:Pair(/number, /number, /number)", "1:18 fn:Pair takes 2 arguments, not 3"),
        ("fn:Tuple(/number, /number)", "1:18 fn:Tuple takes three or more arguments; two make a fn:Pair"),
        ("fn:Tuple()", "1:18 fn:Tuple takes three or more arguments; two make a fn:Pair"),
        ("fn:List()", "1:18 fn:List takes 1 argument, not 0"),
        ("fn:List(/number, /number)", "1:18 fn:List takes 1 argument, not 2"),
        ("fn:Map(/number)", "1:18 fn:Map takes 2 arguments, not 1"),
        ("fn:Option()", "1:18 fn:Option takes 1 argument, not 0"),
        ("fn:Struct(/a)", "1:18 field /a of the struct has no type"),
        ("fn:Struct(/a, /number, /b)", "1:18 field /b of the struct has no type"),
        ('fn:Struct("a", /number)', "1:18 the label of a struct field is a name"),
        ("fn:Struct(X, /number)", "1:18 the label of a struct field is a name"),
        ("fn:Struct(fn:opt(/a))", "1:18 fn:opt takes a label and a type"),
        ("fn:Struct(fn:opt(1, /number))", "1:18 the label of a struct field is a name"),
        ("fn:opt(/a, /number)", "1:18 fn:opt is not a type constructor"),
        ("fn:TaggedUnion()", "1:18 fn:TaggedUnion takes a field and then tags with their structs"),
        ("fn:TaggedUnion(/k)", "1:18 fn:TaggedUnion takes a field and then tags with their structs"),
        ("fn:TaggedUnion(/k, /a)", "1:18 fn:TaggedUnion takes a field and then tags with their structs"),
        ('fn:TaggedUnion("k", /a, fn:Struct())', "1:18 the label of a struct field is a name"),
        ("fn:TaggedUnion(/k, 1, fn:Struct())", "1:18 a tag of fn:TaggedUnion is a name"),
        ("fn:TaggedUnion(/k, /a, /number)", "1:18 the variant of tag /a is not a struct"),
        ("fn:TaggedUnion(/k, /a, fn:Struct(), /a, fn:Struct())", "1:18 tag /a occurs twice"),
        ("fn:TaggedUnion(/k, /a, fn:Struct(/k, /any))", "1:18 the variant of tag /a has a field /k of its own"),
        ("fn:TaggedUnion(/k, /a, fn:Struct(fn:opt(/k, /any)))", "1:18 the variant of tag /a has a field /k of its own"),
        # inside another type, the place is the inner one
        ("fn:List(fn:Set(/number))", "1:26 fn:Set is not a type constructor"),
        ("fn:Union(/number, fn:Pair(/any, fn:Map()))", "1:50 fn:Map takes 2 arguments, not 0"),
        (".Struct</a : .List<>>", "1:31 fn:List takes 1 argument, not 0"),
        ("fn:List(1)", "1:18 1 is not a type"),
    ],
)
def test_malformed_types(bound: str, found: str) -> None:
    assert complaints(f"Decl p(X) bound [{bound}].") == [found]


@pytest.mark.parametrize(
    "bound",
    [
        "/any", "/bot", "/number", "/float64", "/string", "/bytes", "/time", "/duration", "/name", "/foo/bar", "X", "_",
        "fn:Singleton(/a)", "fn:Singleton(1)", 'fn:Singleton("s")', "fn:Union(/any)", "fn:Union(X, fn:List(X))",
        "fn:Pair(/number, X)", "fn:Tuple(X, Y, Z)", "fn:List(_)", "fn:Map(/name, /any)", "fn:Option(/number)",
        "fn:Struct()", "fn:Struct(/a, /number, fn:opt(/b, X), /c, /any)", ".Struct<opt /a : /number>", ".List</number>",
        "fn:TaggedUnion(/k, /a, fn:Struct(), /b, fn:Struct(/x, /number))",
    ],
)  # fmt: skip
def test_well_formed_types(bound: str) -> None:
    assert load(f"Decl p(X) bound [{bound}].").predicates["p", 1].decl is not None


def test_base_types_are_shared() -> None:
    assert known("Decl p(X, Y) bound [/number, /string].").rows == ((NUMBER, STRING),)
