"""The bounds checker: what it infers, what it refuses (D10, D11), and that it refuses nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import event, given, strategies as st

from manglecp.mangle.errors import AnalysisError, EvalError, StratificationError
from manglecp.mangle.model import Limits
from manglecp.mangle.printer import fact_text
from tests.effort import examples
from tests.mangle.loading import NOW, complaints, facts, load, refusal
from tests.mangle.membership import is_member
from tests.mangle.naive import evaluate

BASE: Final = """\
Decl any(X) bound [/any].
Decl n(X) bound [/number].
Decl f(X) bound [/float64].
Decl s(X) bound [/string].
Decl b(X) bound [/bytes].
Decl name(X) bound [/name].
Decl animal(X) bound [/animal].
Decl plant(X) bound [/plant].
Decl time(X) bound [/time].
Decl span(X) bound [/duration].
Decl either(X) bound [fn:Union(/number, /string)].
Decl being(X) bound [fn:Union(/animal, /plant)].
Decl colour(X) bound [fn:Union(fn:Singleton(/red), fn:Singleton(/green))].
Decl ln(X) bound [fn:List(/number)].
Decl ls(X) bound [fn:List(/string)].
Decl pair(X) bound [fn:Pair(/number, /string)].
Decl map(X) bound [fn:Map(/string, /number)].
Decl struct(X) bound [fn:Struct(/a, /number, fn:opt(/b, /string))].
Decl structs(X) bound [fn:Union(fn:Struct(/a, /number, /k, /name), fn:Struct(/b, /string, /k, /name))].
Decl shape(X) bound [fn:TaggedUnion(/kind, /circle, fn:Struct(/r, /number), /box, fn:Struct(/w, /number))].
"""
RULE_LINE: Final = BASE.count("\n") + 1


def accepted(rules: str) -> None:
    load(BASE + rules)


def refused(rules: str) -> list[str]:
    """What is wrong with rules behind the declarations above; lines counted from the first rule."""

    def local(found: str) -> str:
        line, rest = found.split(":", 1)
        return f"{int(line) - RULE_LINE + 1}:{rest}"

    return [local(found) for found in complaints(BASE + rules)]


def inferred(expression: str, body: str) -> str:
    """The type a head expression has: what is said when it is put where only one string may be."""
    (found,) = refused(f'Decl probe(X) bound [fn:Singleton("never")].\nprobe({expression}) :- {body}.')
    match = re.fullmatch(r"2:\d+ argument 1 of probe is .*, but .* is (.*)", found)
    assert match is not None, found
    return match[1]


# --- facts -----------------------------------------------------------------------------------------------------------


def test_a_fact_fits_a_declared_row() -> None:
    accepted('n(1). f(1.5). s("x"). b(b"x"). name(/x). animal(/animal/cat). either(1). either("x"). colour(/red).')
    accepted('ln([]). ln([1]). pair(fn:pair(1, "x")). map(fn:map()). map(["a": 1]). struct({/a: 1, /b: "x", /c: 9}).')
    accepted('time(fn:time:now()). span(fn:duration:parse("1h")). shape({/kind: /box, /w: 1}).')


@pytest.mark.parametrize(
    ("fact", "found"),
    [
        ('n("x").', '1:3 argument 1 of n is /number, but "x" is /string'),
        ("n(1.0).", "1:3 argument 1 of n is /number, but 1.0 is /float64"),
        ("name(1).", "1:6 argument 1 of name is /name, but 1 is /number"),
        ("animal(/animal).", "1:8 argument 1 of animal is /animal, but /animal is /name"),
        ("animal(/plant/rose).", "1:8 argument 1 of animal is /animal, but /plant/rose is /plant"),
        ("either(/x).", "1:8 argument 1 of either is /number or /string, but /x is /name"),
        (
            "colour(/blue).",
            "1:8 argument 1 of colour is fn:Singleton(/red) or fn:Singleton(/green), but /blue is /name",
        ),
        ('ln(["x"]).', '1:4 argument 1 of ln is fn:List(/number), but ["x"] is fn:List(/string)'),
        (
            'struct({/b: "x"}).',
            "1:8 argument 1 of struct is fn:Struct(/a, /number, fn:opt(/b, /string)),"
            ' but {/b : "x"} is fn:Struct(/b, /string)',
        ),
        ("n(fn:list:len([])). n(fn:list(1)).", "1:23 argument 1 of n is /number, but [1] is fn:List(/number)"),
    ],
)
def test_a_fact_that_does_not(fact: str, found: str) -> None:
    assert refused(fact) == [found]


def test_one_row_has_to_fit_as_a_whole() -> None:
    decl = "Decl p(X, Y) bound [/number, /number] bound [/string, /string].\n"
    accepted(f'{decl}p(1, 2). p("a", "b").')
    assert refused(f'{decl}p(1, "b").') == [
        "2:1 p takes (/number, /number) or (/string, /string), not (/number, /string)"
    ]


def test_every_wrong_fact_is_reported() -> None:
    assert [found.split()[0] for found in refused('n(1).\nn("a").\nn(2).\nn("b").\ns(1).')] == ["2:3", "4:3", "5:3"]


def test_a_fact_that_depends_on_the_time_is_checked_too() -> None:
    assert refused("n(fn:time:now()).") == ["1:3 argument 1 of n is /number, but fn:time:now() is /time"]


# --- type variables --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "args", "fits"),
    [
        ("X, X", "1, 2", True),
        ("X, X", '1, "a"', False),
        ("X, X", "[1], [2]", True),
        ("X, X", '[1], ["a"]', False),
        ("X, X", "[], [2]", True),
        ("X, X", "/animal/cat, /animal/dog", True),
        ("X, X", "/animal/cat, /other", True),
        ("X, Y", '1, "a"', True),
        ("_, _", '1, "a"', True),
        ("fn:List(T), T", "[1, 2], 1", True),
        ("fn:List(T), T", '[1, 2], "a"', False),
        ("fn:List(T), T", "[], 1", True),
        ("T, fn:List(T)", "1, [2]", True),
        ("T, fn:List(T)", '"a", [2]', False),
        ("fn:Pair(S, T), fn:Pair(T, S)", 'fn:pair(1, "a"), fn:pair("b", 2)', True),
        ("fn:Pair(S, T), fn:Pair(T, S)", 'fn:pair(1, "a"), fn:pair(2, "b")', False),
        ("fn:Map(K, V), V", '["a": 1], 2', True),
        ("fn:Map(K, V), V", '["a": 1], "b"', False),
        ("fn:Struct(/a, T, fn:opt(/b, T)), T", "{/a: 1, /b: 2}, 3", True),
        ("fn:Struct(/a, T, fn:opt(/b, T)), T", "{/a: 1}, 3", True),
        ("fn:Struct(/a, T, fn:opt(/b, T)), T", '{/a: 1, /b: "x"}, 3', False),
        ("fn:Struct(/a, T), T", "{/b: 1}, 3", False),
        ("fn:Option(T), T", "1, 2", True),
        ("fn:Union(/string, fn:List(T)), T", '["a"], "b"', True),
        ("fn:Union(/string, fn:List(T)), T", '["a"], 1', False),
    ],
)
def test_a_type_variable_used_twice_agrees(bound: str, args: str, fits: bool) -> None:
    text = f"Decl p(A, B) bound [{bound}].\np({args})."
    if fits:
        accepted(text)
    else:
        assert len(refused(text)) == 1


def test_a_rule_binds_type_variables_too() -> None:
    decl = "Decl member(L, X) bound [fn:List(T), T].\n"
    accepted(f"{decl}member(L, X) :- ln(L), :list:member(X, L).")
    lists = "Decl lists(L) bound [fn:Union(fn:List(/number), fn:List(/string))].\n"
    accepted(f"{lists}{decl}member(L, X) :- lists(L), :list:member(X, L).")
    assert len(refused(f"{decl}member(L, X) :- ln(L), s(X).")) == 1


def test_a_premise_gets_the_type_its_variable_stands_for() -> None:
    decl = "Decl member(L, X) bound [fn:List(T), T].\nmember([1], 2).\n"
    accepted(f"{decl}p(Y) :- ln(L), member(L, X), Y = fn:plus(X, 1).")
    assert len(refused(f"{decl}p(Y) :- ls(L), member(L, X), Y = fn:plus(X, 1).")) == 1


# --- expressions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "body", "type_"),
    [
        # constants and variables
        ("1", "n(_)", "/number"),
        ("1.5", "n(_)", "/float64"),
        ('"x"', "n(_)", "/string"),
        ('b"x"', "n(_)", "/bytes"),
        ("/x", "n(_)", "/name"),
        ("/animal/cat", "n(_)", "/animal"),
        ("/animal", "n(_)", "/name"),
        ("/red", "n(_)", "fn:Singleton(/red)"),
        ("X", "n(X)", "/number"),
        ("X", "any(X)", "/any"),
        ("X", "either(X)", "/number or /string"),
        # constructors
        ("[]", "n(_)", "fn:List(/bot)"),
        ("[1, X]", "n(X)", "fn:List(/number)"),
        ('[1, "x"]', "n(_)", "fn:List(fn:Union(/number, /string))"),
        ("[X, 1]", "any(X)", "fn:List(/any)"),
        ("fn:map()", "n(_)", "fn:Map(/bot, /bot)"),
        ('["a": X]', "n(X)", "fn:Map(/string, /number)"),
        ("{}", "n(_)", "fn:Struct()"),
        ("{/a: X}", "n(X)", "fn:Struct(/a, /number)"),
        ("{X: 1}", "name(X)", "/any"),
        ("fn:pair(X, Y)", "n(X), s(Y)", "fn:Pair(/number, /string)"),
        ("fn:tuple(X, Y)", "n(X), s(Y)", "fn:Pair(/number, /string)"),
        ("fn:tuple(X, Y, Z)", "n(X), s(Y), f(Z)", "fn:Pair(/number, fn:Pair(/string, /float64))"),
        ("fn:tuple(X)", "n(X)", "/number"),
        # arithmetic: exactly numbers, or nothing is known
        ("fn:plus(X, 1)", "n(X)", "/number"),
        ("fn:plus()", "n(_)", "/number"),
        ("fn:minus(X)", "n(X)", "/number"),
        ("fn:mult(X, X, X)", "n(X)", "/number"),
        ("fn:div(X, 2)", "n(X)", "/number"),
        ("fn:mod(X, 2)", "n(X)", "/number"),
        ("fn:plus(X, 1)", "any(X)", "/any"),
        ("fn:plus(X, 1)", "either(X)", "/any"),
        ("fn:plus(X, 1)", "s(X)", "/any"),
        ("fn:float:plus(X, 1.0)", "f(X)", "/float64"),
        ("fn:float:div(X)", "f(X)", "/float64"),
        ("fn:float:mult(X, 2)", "f(X)", "/any"),
        ("fn:sqrt(X)", "n(X)", "/float64"),
        ("fn:plus(fn:list:get(L, 0), 1)", "ln(L)", "/number"),
        # folds of lists: typed as if of their elements, so nothing is known
        ("fn:sum(L)", "ln(L)", "/any"),
        ("fn:float:max(L)", "ln(L)", "/any"),
        # lists, maps, structs
        ("fn:list:len(L)", "ln(L)", "/number"),
        ("fn:list:get(L, 0)", "ln(L)", "/number"),
        ("fn:list:append(L, 1)", "ln(L)", "fn:List(/number)"),
        ('fn:list:append(L, "x")', "ln(L)", "fn:List(fn:Union(/number, /string))"),
        ("fn:list:cons(1, [])", "n(_)", "fn:List(/number)"),
        ("fn:list:contains(L, 1)", "ln(L)", "fn:Singleton(/false) or fn:Singleton(/true)"),
        ("fn:list:len(X)", "any(X)", "/any"),
        ("fn:list:len(X)", "n(X)", "/any"),
        ('fn:map:get(M, "a")', "map(M)", "/number"),
        ('fn:map:get(M, "a")', "any(M)", "/any"),
        ("fn:struct:get(S, /a)", "struct(S)", "/number"),
        ("fn:struct:get(S, /b)", "struct(S)", "/string"),
        ("fn:struct:get(S, /c)", "struct(S)", "/any"),
        ("fn:struct:get(S, X)", "struct(S), name(X)", "/any"),
        ("fn:struct:get(S, /k)", "structs(S)", "/name"),
        ("fn:some(X)", "n(X)", "/number"),
        # text
        ("fn:string:concat(X, 1)", "any(X)", "/string"),
        ('fn:string:replace(X, "a", "b", 1)', "s(X)", "/string"),
        ("fn:number:to_string(X)", "s(X)", "/string"),  # kinds of arguments are looked at when it runs
        ("fn:name:root(X)", "animal(X)", "/name"),
        ("fn:name:list(X)", "animal(X)", "fn:List(/name)"),
        # time
        ("fn:time:now()", "n(_)", "/time"),
        ("fn:time:add(X, Y)", "time(X), span(Y)", "/time"),
        ("fn:time:sub(X, X)", "time(X)", "/duration"),
        ("fn:time:year(X)", "time(X)", "/number"),
        ("fn:time:format(X, /day)", "time(X)", "/string"),
        ("fn:duration:hours(X)", "span(X)", "/float64"),
        ("fn:interval:start(P)", "pair(P)", "/number"),
        ("fn:interval:end(P)", "pair(P)", "/string"),
        ("fn:interval:start(X)", "n(X)", "/any"),
        ("fn:interval:duration(fn:pair(X, X))", "time(X)", "/duration"),
        # what does not exist is an error when it is called
        ("fn:frobnicate(X)", "n(X)", "/any"),
        ("fn:pair(X)", "n(X)", "/any"),
        ("fn:struct(/a)", "n(X)", "/any"),
    ],
)  # fmt: skip
def test_the_type_of_an_expression(expression: str, body: str, type_: str) -> None:
    assert inferred(expression, body) == type_


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("any(X), Y = fn:plus(X, 1)", "1:21 fn:plus takes /number, but X is /any"),
        ("n(X), any(Z), Y = fn:plus(X, 1, Z)", "1:27 fn:plus takes /number, but Z is /any"),
        ("either(X), Y = fn:plus(X, 1)", "1:24 fn:plus takes /number, but X is /number or /string"),
        ("s(X), Y = fn:plus(X, 1)", "1:19 fn:plus takes /number, but X is /string"),
        ("s(X), fn:plus(X, 1) = Y", "1:15 fn:plus takes /number, but X is /string"),
        ("s(X), fn:plus(X, 1) != 5", "1:15 fn:plus takes /number, but X is /string"),
        ("f(X), Y = fn:float:plus(X, 1)", "1:19 fn:float:plus takes /float64, but 1 is /number"),
        ("ln(L), Y = fn:sum(L)", "1:20 fn:sum takes /number, but L is fn:List(/number)"),
        ("any(X), Y = fn:list:len(X)", "1:21 fn:list:len takes fn:List(X), but X is /any"),
        ("n(X), Y = fn:list:cons(X, X)", "1:19 fn:list:cons takes fn:List(X), but X is /number"),
        (
            "struct(S), Y = fn:struct:get(S, /c)",
            "1:24 fn:Struct(/a, /number, fn:opt(/b, /string)) has no field /c",
        ),
        ("any(S), Y = fn:struct:get(S, /c)", "1:21 fn:struct:get takes fn:Struct(), but S is /any"),
        ("ls(L), X = fn:list:get(L, 0), Y = fn:plus(X, 1)", "1:43 fn:plus takes /number, but X is /string"),
        ("any(X), Y = [fn:plus(X, 1)]", "1:22 fn:plus takes /number, but X is /any"),
        ("any(X), Y = fn:map:get(X, 1)", "1:21 fn:map:get takes fn:Map(K, V), but X is /any"),
    ],
)
def test_in_a_body_what_cannot_be_typed_is_an_error(body: str, found: str) -> None:
    assert refused(f"p(1) :- {body}.") == [found]


def test_the_fix_is_to_say_more() -> None:
    (diagnostic,) = refusal(f"{BASE}p(Y) :- any(X), Y = fn:plus(X, 1).")
    assert diagnostic.fix == "test it with :is_number(X), or declare a narrower type with Decl … bound […]"
    (diagnostic,) = refusal(f"{BASE}p(Y) :- ln(L), Y = fn:sum(L).")
    assert diagnostic.fix == "a list is folded in a fact, a head or a let"


# --- premises --------------------------------------------------------------------------------------------------------


def test_each_premise_narrows_its_variables() -> None:
    assert inferred("X", "any(X), n(X)") == "/number"
    assert inferred("X", "either(X), n(X)") == "/number"
    assert inferred("X", "name(X), animal(X)") == "/animal"
    assert inferred("X", "being(X), animal(X)") == "/animal"
    assert inferred("X", "n(X), X = Y") == "/number"
    assert inferred("Y", "n(X), X = Y") == "/number"
    assert inferred("Y", "Y = X, n(X)") == "/number"
    assert inferred("X", "any(X), X = 1") == "/number"
    assert inferred("X", "any(X), X = /red") == "fn:Singleton(/red)"


def test_a_negated_premise_narrows_nothing() -> None:
    assert inferred("X", "any(X), !n(X)") == "/any"
    assert inferred("X", "either(X), !n(X)") == "/number or /string"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("n(X), s(X)", "1:17 argument 1 of s is /string, but X is /number"),
        ("animal(X), plant(X)", "1:26 argument 1 of plant is /plant, but X is /animal"),
        ("n(X), !s(X)", "1:18 argument 1 of s is /string, but X is /number"),  # it can never hold, so it says nothing
        ('n("a")', '1:11 argument 1 of n is /number, but "a" is /string'),
        (
            "colour(/blue)",
            "1:16 argument 1 of colour is fn:Singleton(/red) or fn:Singleton(/green), but /blue is /name",
        ),
        ("animal(/animal)", "1:16 argument 1 of animal is /animal, but /animal is /name"),
        ("n(X), !either(/x)", "1:23 argument 1 of either is /number or /string, but /x is /name"),
        ('n(X), X = "a"', '1:15 X = "a": /number and /string are never equal'),
        ("n(X), s(Y), X = Y", "1:21 X = Y: /number and /string are never equal"),
        ('n(X), X != "a"', '1:15 X != "a": /number and /string always differ'),
        ("n(X), s(Y), Y != X", "1:21 Y != X: /string and /number always differ"),
        ("ln(L), :list:member(X, L), s(X)", "1:38 argument 1 of s is /string, but X is /number"),
        ("n(L), :list:member(X, L)", "1:31 argument 2 of :list:member is fn:List(X), but L is /number"),
        ("n(L), :match_nil(L)", "1:26 argument 1 of :match_nil is fn:List(X), but L is /number"),
        ("n(P), :match_pair(P, A, B)", "1:27 argument 1 of :match_pair is fn:Pair(X, Y), but P is /number"),
        ('n(X), :string:contains(X, "a")', "1:32 argument 1 of :string:contains is /string, but X is /number"),
        ("s(X), :string:contains(X, 5)", "1:35 argument 2 of :string:contains is /string, but 5 is /number"),
        ("s(X), :filter(X)", "1:23 argument 1 of :filter is"),
        ("n(X), :time:lt(X, X)", "1:24 argument 1 of :time:lt is /time, but X is /number"),
        ("pair(P), :interval:equals(P, P)", "1:35 argument 1 of :interval:equals is fn:Pair(/time, /time), but P is"),
        ("n(M), :match_entry(M, 1, V)", "1:31 /number has no entry 1"),
        ("map(M), :match_entry(M, 1, V)", "1:33 fn:Map(/string, /number) has no entry 1"),
        ('map(M), s(V), :match_entry(M, "a", V)', '1:44 V is /string, :match_entry(M, "a", V) wants /number'),
        ("n(S), :match_field(S, /a, V)", "1:31 /number has no field /a"),
        ("struct(S), :match_field(S, /c, V)", "1:36 fn:Struct(/a, /number, fn:opt(/b, /string)) has no field /c"),
        ("struct(S), s(V), :match_field(S, /a, V)", "1:46 V is /string, :match_field(S, /a, V) wants /number"),
        ("struct(S), !:match_field(S, /c, _)", "1:37 fn:Struct(/a, /number, fn:opt(/b, /string)) has no field /c"),
        ("structs(S), :match_field(S, /c, V)", "1:37 fn:Struct("),
    ],
)
def test_a_premise_that_can_never_hold(body: str, found: str) -> None:
    (message,) = refused(f"p(1) :- {body}.")
    assert message.startswith(found)


def test_alternatives_are_followed_together() -> None:
    decl = (
        "Decl kv(K, V) bound [/number, /string] bound [/string, /number].\nDecl out(K, V) bound [/number, /string].\n"
    )
    accepted(f"{decl}out(K, V) :- kv(K, V), n(K).")
    accepted(f"{decl}out(V, K) :- kv(K, V), s(K).")
    assert refused(f"{decl}out(K, V) :- kv(K, V), s(K).") == ["3:5 argument 1 of out is /number, but K is /string"]
    assert refused(f"{decl}out(K, V) :- kv(K, V), n(K), n(V).") == ["3:32 argument 1 of n is /number, but V is /string"]
    assert refused(f"{decl}p() :- kv(K, V), n(K), s(V), kv(V, K), kv(K, K).") == [
        "3:40 kv(K, K) can never hold: (/number, /string) or (/string, /number) never meets (/number, /number)"
    ]


def test_matches_give_their_outputs_types() -> None:
    assert inferred("X", "ln(L), :list:member(X, L)") == "/number"
    assert inferred("H", "ln(L), :match_cons(L, H, T)") == "/number"
    assert inferred("T", "ln(L), :match_cons(L, H, T)") == "fn:List(/number)"
    assert inferred("A", "pair(P), :match_pair(P, A, B)") == "/number"
    assert inferred("B", "pair(P), :match_pair(P, A, B)") == "/string"
    assert inferred("V", 'map(M), :match_entry(M, "a", V)') == "/number"
    assert inferred("V", "struct(S), :match_field(S, /a, V)") == "/number"
    assert inferred("V", "struct(S), :match_field(S, /b, V)") == "/string"
    assert inferred("V", "structs(S), :match_field(S, /b, V)") == "/string"
    assert inferred("V", "shape(S), :match_field(S, /w, V)") == "/number"
    assert inferred("V", "struct(S), name(K), :match_field(S, K, V)") == "/any"
    for body in (":list:member(V, X)", ":match_cons(X, V, _)", ":match_pair(X, V, _)", ":match_entry(X, 1, V)"):
        assert inferred("V", f"any(X), {body}") == "/any"
    assert inferred("V", "any(X), :match_field(X, /a, V)") == "/any"


def test_a_match_says_what_it_was_a_match_of() -> None:
    assert inferred("X", "any(X), :match_nil(X)") == "fn:List(/any)"
    assert inferred("X", 'any(X), :string:contains(X, "a")') == "/string"
    assert inferred("X", "any(X), :list:member(Y, X), n(Y)") == "fn:List(/any)"


def test_prefixes_narrow_names() -> None:
    assert inferred("X", "name(X), :match_prefix(X, /animal)") == "/animal"
    assert inferred("X", "any(X), :match_prefix(X, /animal)") == "/animal"
    assert inferred("X", "animal(X), :match_prefix(X, /animal/dog)") == "/animal/dog"
    assert inferred("X", "being(X), :match_prefix(X, /animal)") == "/animal"
    assert inferred("X", "being(X), !:match_prefix(X, /animal)") == "/plant"
    assert inferred("X", "being(X), !:match_prefix(X, /animal/dog)") == "/animal or /plant"
    assert inferred("X", "animal(X), :match_prefix(X, /anim)") == "/animal"  # texts are compared, not parts
    assert inferred("X", "colour(X), :match_prefix(X, /red)") == "/red"
    assert inferred("X", "colour(X), !:match_prefix(X, /r)") == "fn:Singleton(/green) or fn:Singleton(/red)"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("animal(X), :match_prefix(X, /plant)", "1:33 X is /animal, no such value is below /plant"),
        ("animal(X), !:match_prefix(X, /plant)", "1:34 X is /animal, no such value is below /plant"),
        ("animal(X), !:match_prefix(X, /animal)", "1:19 !:match_prefix(X, /animal) never holds: X is /animal"),
        ("animal(X), !:match_prefix(X, /anim)", "1:19 !:match_prefix(X, /anim) never holds: X is /animal"),
        ("n(X), :match_prefix(X, /a)", "1:28 X is /number, no such value is below /a"),
        ('name(X), :match_prefix(X, "a")', "1:34 :match_prefix takes a name as its second argument"),
        ("name(X), name(Y), :match_prefix(X, Y)", "1:43 :match_prefix takes a name as its second argument"),
    ],
)
def test_prefixes_that_cannot_be(body: str, found: str) -> None:
    assert refused(f"p() :- {body}.") == [found]


# --- comparisons (D10) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["n", "f", "s", "name", "animal", "time", "span"])
@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
def test_two_values_of_one_orderable_kind(kind: str, sign: str) -> None:
    accepted(f"p(X, Y) :- {kind}(X), {kind}(Y), X {sign} Y.")
    accepted(f"p(X, Y) :- {kind}(X), any(Y), X {sign} Y.")


def test_a_known_side_narrows_the_other() -> None:
    assert inferred("X", "any(X), X < 5") == "/number"
    assert inferred("X", 'any(X), "a" >= X') == "/string"
    assert inferred("Y", "any(X), f(Y), any(Y), X < Y") == "/float64"
    assert inferred("X", "any(X), n(Y), X < Y") == "/number"
    assert inferred("X", "either(X), X < 5") == "/number"
    assert inferred("X", "any(X), !:lt(X, 5)") == "/any"
    assert inferred("X", "any(X), any(Y), X < Y").startswith("/duration or /float64")
    accepted("p(Y) :- any(X), X < 5, Y = fn:plus(X, 1).")


def test_two_unknown_values_that_were_compared_may_be_added() -> None:
    rule = "p(Z) :- any(X), any(Y), X < Y, Z = fn:plus(X, Y)."
    accepted(rule)
    assert inferred("fn:plus(X, Y)", "any(X), any(Y), X < Y") == "/number"
    assert len(refused("n(X) :- any(X), any(Y), X < Y.")) == 1  # they need not be numbers, though
    assert len(complaints(f'{BASE}any("a"). any("b").\n{rule}', stage="eval")) == 1


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("s(X), X < 5", "1:14 X < 5 compares /string with /number"),
        ("f(X), X < 5", "1:14 X < 5 compares /float64 with /number"),
        ("ln(X), ln(Y), X < Y", "1:22 X < Y compares fn:List(/number) with fn:List(/number)"),
        ("b(X), b(Y), X < Y", "1:20 X < Y compares /bytes with /bytes"),
        ("pair(X), pair(Y), X >= Y", "1:26 X >= Y compares"),
        ('n(X), !:lt(X, "a")', '1:14 !:lt(X, "a") compares /number with /string'),
        ('1 < "a"', '1:8 1 < "a" compares /number with /string'),
        ("s(X), fn:string:concat(X) < 5", "1:14 fn:string:concat(X) < 5 compares /string with /number"),
    ],
)
def test_a_provable_mismatch(body: str, found: str) -> None:
    (message,) = refused(f"p() :- {body}.")
    assert message.startswith(found)


def test_the_fix_says_what_has_an_order() -> None:
    (diagnostic,) = refusal(f"{BASE}p() :- ln(X), ln(Y), X < Y.")
    assert diagnostic.fix == "what has an order is /duration or /float64 or /name or /number or /string or /time"
    (diagnostic,) = refusal(f"{BASE}p() :- n(X), s(Y), X < Y.")
    assert diagnostic.fix == "compare two values of one kind"


def test_an_unprovable_mismatch_is_found_at_eval() -> None:
    assert len(complaints(f'{BASE}any(1). any("a").\np(X) :- any(X), X < 5.', stage="eval")) == 1
    assert len(complaints(f"{BASE}any([1]).\np(X) :- any(X), any(Y), X <= Y.", stage="eval")) == 1


# --- transforms and heads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reducer", "body", "type_"),
    [
        ("fn:count()", "n(X)", "/number"),
        ("fn:count_distinct()", "any(X)", "/number"),
        ("fn:sum(X)", "n(X)", "/number"),
        ("fn:max(X)", "n(X)", "/number"),
        ("fn:sum(X)", "any(X)", "/any"),
        ("fn:sum(X)", "f(X)", "/any"),
        ("fn:float:sum(X)", "f(X)", "/float64"),
        ("fn:float:max(X)", "n(X)", "/any"),
        ("fn:duration:sum(X)", "span(X)", "/duration"),
        ("fn:time:max(X)", "time(X)", "/time"),
        ("fn:avg(X)", "n(X)", "/float64"),
        ("fn:pick_any(X)", "s(X)", "/string"),
        ("fn:collect(X)", "s(X)", "fn:List(/string)"),
        ("fn:collect_distinct(X, Y)", "s(X), n(Y)", "fn:List(fn:Pair(/string, /number))"),
        ("fn:collect(fn:plus(X, 1))", "n(X)", "fn:List(/number)"),
        ("fn:collect(fn:plus(X, 1))", "any(X)", "fn:List(/any)"),
        ("fn:collect_to_map(X, Y)", "s(X), n(Y)", "fn:Map(/string, /number)"),
    ],
)
def test_the_type_of_a_reducer(reducer: str, body: str, type_: str) -> None:
    assert inferred("R", f"{body} |> do fn:group_by(), let R = {reducer}") == type_


def test_lets_are_lenient() -> None:
    assert inferred("Y", "any(X) |> let Y = fn:plus(X, 1)") == "/any"
    assert inferred("Y", "n(X) |> let Y = fn:plus(X, 1)") == "/number"
    assert inferred("Z", "n(X) |> let Y = fn:plus(X, 1), let Z = [Y]") == "fn:List(/number)"
    assert inferred("fn:plus(S, 1)", "n(X) |> do fn:group_by(), let S = fn:sum(X)") == "/number"
    accepted("p(Y) :- any(X) |> let Y = fn:plus(X, 1).")


def test_a_head_declared_narrower_is_refused() -> None:
    assert refused("n(Y) :- any(X) |> let Y = fn:plus(X, 1).") == ["1:3 argument 1 of n is /number, but Y is /any"]
    assert refused("n(fn:plus(X, 1)) :- any(X).") == ["1:3 argument 1 of n is /number, but fn:plus(X, 1) is /any"]


def test_every_possibility_has_to_fit() -> None:
    assert refused("n(X) :- either(X).") == ["1:3 argument 1 of n is /number, but X is /number or /string"]
    accepted("Decl p(X) bound [/number] bound [/string].\np(X) :- n(X).\np(X) :- s(X).")
    decl = "Decl who(X) bound [/person] bound [/robot].\nDecl human(X) bound [/person].\n"
    assert refused(f"{decl}human(X) :- who(X).") == ["3:7 argument 1 of human is /person, but X is /robot"]
    accepted(f"{decl}human(X) :- who(X), :match_prefix(X, /person).")


def test_inputs_have_their_declared_types() -> None:
    text = 'Decl next(X, Y) descr [deferred(), mode("+", "-")] bound [/number, /number].\n'
    accepted(f"{text}next(X, Y) :- Y = fn:plus(X, 1).")
    accepted('Decl next(X, Y) descr [deferred(), mode("+", "-")] bound [/number, /number] bound [/string, /string].\n'
             "next(X, Y) :- n(X), Y = fn:plus(X, 1).")  # fmt: skip
    assert len(refused(f"{text}next(X, Y) :- s(X), Y = 1.")) == 1


# --- inference -------------------------------------------------------------------------------------------------------


def test_an_undeclared_predicate_is_what_its_facts_and_rules_give() -> None:
    text = "u(1). u(2).\nv(X) :- u(X).\np(Y) :- v(X), Y = fn:plus(X, 1)."
    accepted(text)
    assert refused('u(1). u("a").\np(Y) :- u(X), Y = fn:plus(X, 1).\nn(X) :- u(X).') == [
        "3:3 argument 1 of n is /number, but X is /string"
    ]


def test_possibilities_that_fail_are_dropped_while_one_remains() -> None:
    """u holds numbers and strings: arithmetic is possible for the numbers."""
    assert len(complaints('u(1). u("a").\np(Y) :- u(X), Y = fn:plus(X, 1).', stage="eval")) == 1
    assert facts('u(1). u("a"). p(Y) :- u(X), n(X), Y = fn:plus(X, 1). n(1).')[:2] == ["n(1)", "p(2)"]


def test_inference_goes_through_any_number_of_rules() -> None:
    rules = "".join(f"p{i}(X) :- p{i + 1}(X).\n" for i in range(50))
    accepted(f"{rules}p50(1).\nn(X) :- p0(X).")
    assert refused(f'{rules}p50("a").\nn(X) :- p0(X).') == ["52:3 argument 1 of n is /number, but X is /string"]


def test_while_it_is_being_inferred_a_predicate_may_hold_anything() -> None:
    assert refused("c(0).\nc(Y) :- c(X), Y = fn:plus(X, 1), Y < 5.") == ["2:19 fn:plus takes /number, but X is /any"]
    accepted("c(0).\nc(Y) :- c(X), X < 5, Y = fn:plus(X, 1).")
    accepted("Decl c(X) bound [/number].\nc(0).\nc(Y) :- c(X), Y = fn:plus(X, 1), Y < 5.")
    assert refused("even(0).\neven(Y) :- odd(X), Y = fn:plus(X, 1).\nodd(Y) :- even(X), Y = fn:plus(X, 1).") == [
        "3:24 fn:plus takes /number, but X is /any"
    ]


def test_what_is_known_of_a_recursion_counts_beside_what_is_not() -> None:
    path = "edge(1, 2). path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z). "
    accepted(path + "len(N) :- path(X, Y), N = fn:minus(Y, X).")
    accepted(path + "Decl far(X) bound [/number]. far(Y) :- path(1, Y), Y = fn:plus(Y, 0).")
    (message,) = refused(path.replace("edge(1, 2)", 'edge("a", "b")') + "len(N) :- path(X, Y), N = fn:minus(Y, X).")
    assert "fn:minus takes /number" in message
    mutual = 'even(0). odd(Y) :- even(X), Y = "one". even(Y) :- odd(X), Y = 2. sum(N) :- even(X), N = fn:plus(X, 1).'
    accepted(mutual)


def test_an_element_of_an_empty_list_has_every_type() -> None:
    for bound in ("/number", "/string", "fn:List(/name)"):
        accepted(f"todo([]). Decl item(X) bound [{bound}]. item(X) :- todo(L), :list:member(X, L).")
        accepted(f"todo([]). Decl item(X) bound [{bound}]. item(X) :- todo(L), :match_cons(L, X, _).")
    refused("todo([1]). todo([]). Decl item(X) bound [/string]. item(X) :- todo(L), :list:member(X, L).")


def test_a_narrower_alternative_counts_beside_a_wider_one() -> None:
    facts = 'thing({/x: 1}). thing({/x: 1, /y: "s"}). '
    accepted(facts + "y(V) :- thing(S), :match_field(S, /y, V).")
    accepted(facts + "y(V) :- thing(S), V = fn:struct:get(S, /y).")
    refused(facts + "y(V) :- thing(S), :match_field(S, /z, V).")
    accepted("some(1). some(X) :- either(X). p(Y) :- some(X), Y = fn:plus(X, 1).")


def test_each_alternative_of_a_union_is_taken_apart() -> None:
    lists = "Decl row(L) bound [fn:Union(fn:List(/string), fn:List(/number))]. "
    pairs = "Decl duo(P) bound [fn:Union(fn:Pair(/string, /name), fn:Pair(/number, /name))]. "
    for rule in (
        lists + "item(X) :- row(L), :list:member(X, L).",
        lists + "item(X) :- row(L), :match_cons(L, X, _).",
        pairs + "item(X) :- duo(P), :match_pair(P, X, _).",
    ):
        accepted(f"Decl item(X) bound [/string] bound [/number]. {rule}")
        for bound in ("/string", "/number"):
            (message,) = refused(f"Decl item(X) bound [{bound}]. {rule}")
            assert f"argument 1 of item is {bound}" in message


def test_a_list_or_pair_that_is_an_expression_is_taken_apart() -> None:
    accepted("p(Y) :- :list:member(X, [1, 2]), Y = fn:plus(X, 1).")
    accepted("p(Y) :- :match_cons([1, 2], X, _), Y = fn:plus(X, 1).")
    accepted('p(Y) :- :match_pair(fn:pair("a", 1), _, X), Y = fn:plus(X, 1).')
    refused('p(Y) :- :list:member(X, ["a"]), Y = fn:plus(X, 1).')


def test_what_an_empty_list_or_map_has_fits_everywhere() -> None:
    accepted("todo(fn:map()). Decl item(X) bound [/number]. item(V) :- todo(M), :match_entry(M, /a, V).")
    accepted("todo([]). item(X) :- todo(L), :list:member(X, L), :match_prefix(X, /a).")


def test_constants_that_always_differ() -> None:
    assert refused('p(1) :- "a" != 1.') == ['1:9 "a" != 1: /string and /number always differ']
    accepted("p(1) :- 2 != 1.")


def test_an_error_is_not_repeated_further_up() -> None:
    assert refused("p(Y) :- any(X), Y = fn:plus(X, 1).\nq(Y) :- p(X), Y = fn:plus(X, 1).\nn(X) :- q(X).") == [
        "1:21 fn:plus takes /number, but X is /any"
    ]


def test_errors_before_the_types_do_not_hide_them() -> None:
    text = """\
p(X) :- nowhere(X).
q(Y) :- p(X), Y = fn:plus(X, 1).
r(Y) :- q(X), Y = fn:plus(X, 1).
n("wrong").
t(Y) :- s(X), Y = fn:plus(X, 1).
u(X) :- n(X), !f(Z).
n(X) :- r(X).
"""
    assert refused(text) == [
        "1:9 unknown predicate nowhere",
        '4:3 argument 1 of n is /number, but "wrong" is /string',
        "5:19 fn:plus takes /number, but X is /string",
        "6:18 Z is bound nowhere outside the negation !f(Z)",
    ]


def test_without_the_checker_nothing_is_refused() -> None:
    assert facts('Decl n(X) bound [/number]. n("a"). p(X) :- n(X), X != 1.', bounds="off") == ['n("a")', 'p("a")']


def test_more_possibilities_than_are_worth_following() -> None:
    """Nothing is proven, so nothing is refused."""
    values = ["1", '"a"', "/x", "1.5", 'b"b"', "[1]"]
    text = "".join(f"v({value}).\n" for value in values)
    accepted(f"{text}n(A) :- v(A), v(B), v(C), v(D).")
    assert len(refused(f"{text}n(A) :- v(A), v(B).")) == 1


@pytest.mark.no_cover
def test_types_that_grow_with_every_rule_do_not_grow_for_ever() -> None:
    lists = "".join(f"p{i:04}([X]) :- p{i - 1:04}(X).\n" for i in range(1, 2_000))
    pairs = "".join(f"q{i:04}(fn:pair(X, X)) :- q{i - 1:04}(X).\n" for i in range(1, 100))
    chain = "".join(f", X{i} = {{/a: X{i - 1}, /b: X{i - 1}}}" for i in range(1, 100))
    accepted(f"p0000(1).\n{lists}q0000(1).\n{pairs}r(X0) :- n(X0){chain}.")


# --- nothing stricter ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules",
    [
        # constants are of their kind, whatever singletons are declared
        "p(X) :- name(X), X = /red, colour(X).",
        "p(X) :- X = /red, X != /green.",
        "p(X) :- X = /red, X = /green.",
        "p(X) :- colour(X), X != /red.",
        "p(X) :- colour(X), name(X).",
        "q(/red). p(X) :- q(X), X != /blue.",
        "q(/animal/cat). q(/x). p(X) :- q(X), animal(X).",
        "q([/red]). p(X) :- q(L), :list:member(X, L), X = /blue.",
        # arguments that are expressions are not followed
        "p(X) :- n(X), s(fn:plus(X, 1)).",
        "p(X) :- any(X), n(fn:plus(X, 1)).",
        "p(X) :- any(X), fn:plus(X, 1) < 5.",
        "p(X) :- any(X), :list:member(X, fn:list:append(X, 1)).",
        # equality of two expressions
        'p() :- 1 = "a".',
        "p(X) :- n(X), fn:plus(X, 1) = fn:list:len([]).",
        # the empty list and the empty map are of every type
        "p(X) :- X = [], ln(X), ls(X).",
        "p(X) :- ln(X), ls(X).",
        "p(M) :- M = fn:map(), map(M).",
        "ln(X) :- X = [].",
        "map(X) :- X = fn:map().",
        # an empty list has no elements to be wrong
        "q([]). p(X) :- q(L), :list:member(X, L), n(X).",
        # options and their values
        "p(X) :- ln(L), X = fn:list:get(L, 0), n(X).",
        "Decl o(X) bound [fn:Option(/number)]. o(1). o(X) :- n(X). o(X) :- ln(L), X = fn:list:get(L, 0).",
        # structs may have more fields than a type says
        "p(S) :- struct(S), S = {/a: 1, /z: 2}.",
        "Decl q(S) bound [fn:Struct(/a, /any)]. q(S) :- struct(S).",
        # a tag may come from a variable
        "shape({/kind: K, /r: X}) :- name(K), n(X).",
        # a declared predicate may be asked for what it does not have yet
        "Decl none(X). p(Y) :- none(X), n(X), Y = fn:plus(X, 1).",
        # any goes everywhere
        "p(X) :- any(X), n(X), any(Y), !s(Y).",
        "p(X, Y) :- any(X), any(Y), X != Y, X = Y.",
        "p() :- any(X), :match_entry(X, 1, _), :match_field(X, /a, _), !:match_cons(X, _, _).",
        # a negated match gives nothing away
        "p(X) :- any(X), !:match_nil(X), n(X).",
        # heads may call anything
        'p(fn:plus(X, 1)) :- s(X), X = "no", n(Y), Y > 5.',
        # joins of names
        "p(X) :- animal(X), name(X), being(X).",
        # unions are opened
        "either(X) :- n(X). either(X) :- s(X).",
        'Decl l(X) bound [fn:List(fn:Union(/number, /string))]. l(X) :- ln(X). l(X) :- ls(X). l([1, "a"]).',
        # comparing unknown things
        "p(X) :- any(X), any(Y), X < Y.",
        "p(X) :- ln(L), X = fn:list:get(L, 0), X < 5.",
        # recursion over lists
        "Decl sub(L) bound [fn:List(/number)]. sub(L) :- ln(L). sub(T) :- sub(L), :match_cons(L, _, T).",
        "sub(L) :- ln(L). sub(T) :- sub(L), :match_cons(L, _, T).",
        # time
        "Decl t(X) temporal bound [/number]. t(X)@[S, E] :- n(X), time(S), any(E).",
        "Decl t(X) temporal bound [/number]. p(S) :- t(X)@[S, _]. time(S) :- t(X)@[_, S].",
        "Decl t(X) temporal bound [/number]. p(X) :- span(D), any(E), <-[D, E] t(X).",
    ],
)
def test_what_must_be_accepted(rules: str) -> None:
    accepted(rules)


# --- soundness -------------------------------------------------------------------------------------------------------
#
# What passes the checker derives no fact outside the declared bounds. Three of its rules are deliberately
# loose and kept out: `!=` takes its two sides to be of one type, `:match_prefix` compares texts where types know
# boundaries, and optional fields are not looked for in a struct that may have more than its type says.

_TYPES: Final = [
    "/any", "/number", "/string", "/name", "/animal", "fn:Union(/number, /string)", "fn:List(/number)",
    "fn:List(fn:Union(/number, /string))", "fn:Pair(/number, /string)", "fn:Struct(/a, /number)",
    "fn:Union(fn:Singleton(/red), fn:Singleton(1))", "fn:Option(/number)", "fn:Map(/string, /number)", "T",
]  # fmt: skip
_VALUES: Final = [
    "1", "2", '"a"', "/red", "/animal/cat", "/animal", "[]", "[1]", '[1, "a"]', 'fn:pair(1, "a")', "{/a: 1}",
    '{/a: "a"}', "fn:map()", '["a": 1]',
]  # fmt: skip
_ATOMS: Final = ["p1({X})", "p2({X})", "u({X})", "q1({X}, {Y})", "q2({X}, {Y})"]
_PREMISES: Final = [  # X and Y have a value, N is new
    "{X} = {Y}", "{N} = {v}", "{X} = {v}", "{X} < {Y}", "{X} < 5", "{N} = fn:plus({X}, 1)", "{N} = fn:list:len({X})",
    "{N} = [{X}]", "{N} = fn:list:cons({X}, {Y})", "{N} = fn:list:get({X}, 0)", "{N} = fn:pair({X}, {Y})",
    "{N} = {{/a: {X}}}", "{N} = fn:struct:get({X}, /a)", '{N} = ["a": {X}]', '{N} = fn:map:get({X}, "a")',
    ":list:member({N}, {X})", ":match_cons({X}, {N}, _)", ":match_cons({X}, _, {N})", ":match_pair({X}, {N}, _)",
    ":match_pair({X}, {Y}, {N})", ":match_nil({X})", ":match_field({X}, /a, {N})", ':match_entry({X}, "a", {N})',
    ':string:contains({X}, "a")', ":filter(fn:list:contains({X}, {Y}))", "!p1({X})", "!q1({X}, _)",
]  # fmt: skip
_HEADS: Final = [
    "{X}",
    "{X}",
    "{X}",
    "{v}",
    "[{X}]",
    "fn:plus({X}, 1)",
    "fn:pair({X}, {Y})",
    "{{/a: {X}}}",
    "fn:some({X})",
]
_STEPS: Final = [
    "let R = fn:plus({X}, 1)", "do fn:group_by({X}), let R = fn:count()", "do fn:group_by(), let R = fn:collect({X})",
    "do fn:group_by({X}), let R = fn:pick_any({X})",
]  # fmt: skip


def _fitting(type_: str) -> list[str]:
    """The values that may be stated for a predicate of this type."""
    (predicate,) = load(f"Decl p(X) bound [{type_}].").predicates.values()
    values = [(text, fact.args) for text in _VALUES for fact in load(f"v({text}).").facts]
    return [text for text, args in values if args is not None and is_member(args[0], predicate.rows[0][0])]


_FACTS: Final = {type_: _fitting(type_) for type_ in _TYPES}


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Four declared predicates and an undeclared one, some facts, some rules."""

    def one(options: Sequence[str]) -> str:
        return draw(st.sampled_from(options))

    def some(most: int) -> range:
        return range(draw(st.integers(1, most)))

    def filled(template: str, names: Sequence[str], new: str = "") -> str:
        return template.format(X=one(names), Y=one(names), N=new, v=one(_VALUES))

    pool = [one(_TYPES) for _ in some(2)]
    bounds = {name: [one(pool) for _ in range(arity)] for name, arity in (("p1", 1), ("p2", 1), ("q1", 2), ("q2", 2))}
    lines = [f"Decl {name}({', '.join('XY'[: len(row)])}) bound [{', '.join(row)}]." for name, row in bounds.items()]
    lines += [f"u({one(_FACTS[pool[0]])})." for _ in some(2)]
    lines += [f"{name}({', '.join(one(_FACTS[t]) for t in row)})." for name, row in bounds.items() for _ in some(2)]
    for _ in some(3):
        body = [filled(one(_ATOMS), "AB") for _ in some(2)]
        for new in "CD"[: draw(st.integers(0, 2))]:
            bound = sorted({name for name in "ABCD" if any(name in premise for premise in body)})
            body.append(filled(one(_PREMISES), bound, new))
        bound = sorted({name for name in "ABCD" if any(name in premise for premise in body)})
        step = draw(st.integers(0, 7)) == 0
        transform = f" |> {filled(one(_STEPS), bound)}" if step else ""
        head = one([name for name, row in bounds.items() for _ in row] + ["u"])
        args = ["R" if step else filled(one(_HEADS), bound) for _ in bounds.get(head, ["u"])]
        lines.append(f"{head}({', '.join(args)}) :- {', '.join(body)}{transform}.")
    return "\n".join(lines)


def sound_lines(text: str) -> str:
    """The program without the clauses that are refused, one after the other."""
    for _ in range(12):
        try:
            load(text)
        except (AnalysisError, StratificationError) as error:
            lines = text.split("\n")
            wrong = {d.span.line for d in error.diagnostics if d.span is not None}
            text = "\n".join("" if number in wrong else line for number, line in enumerate(lines, 1))
        else:
            return text
    raise AssertionError(text)


def consistent(row: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
    return all(is_member(value, type_) for type_, value in zip(row, args, strict=True))


@given(programs())
@examples(400)
def test_what_passes_the_checker_stays_within_its_bounds(text: str) -> None:
    program = load(sound_lines(text))
    try:
        result = evaluate(program, now=NOW, limits=Limits(derived_facts=25))  # some of them never end
    except EvalError:
        return
    derived = 0
    for key, relation in result.relations.items():
        predicate = program.predicates[key]
        for args, _ in relation:
            derived += 1
            if predicate.decl is not None:
                assert any(consistent(row, args) for row in predicate.rows), fact_text(key[0], args)
    event(f"{min(len(program.rules), 3)} rules, {'more' if derived > len(program.facts) else 'no more'} facts")


def test_a_test_of_kind_narrows() -> None:
    assert inferred("X", "any(X), :is_list(X)") == "fn:List(/any)"
    assert inferred("E", "any(X), :is_list(X), E = fn:list:get(X, 0)") == "/any"
    assert inferred("Y", "any(X), :is_number(X), Y = fn:plus(X, 1)") == "/number"
    assert inferred("X", "ln(X), :is_list(X)") == "fn:List(/number)"
    assert inferred("X", "any(X), !:is_list(X)") == "/any"
    assert inferred("X", "being(X), !:is_string(X)") == "/animal or /plant"
    assert inferred("E", "ln(L), :list:enumerate(L, I, E)") == "/number"
    assert inferred("I", "any(L), :list:enumerate(L, I, E)") == "/number"
    assert inferred("E", "ln(L), :match_index(L, 0, E)") == "/number"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("n(X), :is_list(X)", "1:24 :is_list(X) never holds: X is /number"),
        ("n(X), !:is_number(X)", "1:24 !:is_number(X) never holds: X is /number"),
        ("n(X), :is_null(X)", "1:24 :is_null(X) never holds: X is /number"),
    ],
)
def test_a_test_of_kind_that_never_holds(body: str, found: str) -> None:
    (refusal_text,) = refused(f"p(1) :- {body}.")
    assert refusal_text.partition(" ")[2] == found.partition(" ")[2]


@pytest.mark.parametrize(
    ("rules", "function"),
    [
        ('Decl at(T) bound [/time]. at("2027-01-01").', "fn:time:parse_rfc3339"),
        ("p(X) :- s(X), X > fn:time:now().", "fn:time:parse_rfc3339"),
        ("p(X) :- s(X), :time:lt(X, fn:time:now()).", "fn:time:parse_rfc3339"),
        ("p(X) :- s(X), X = fn:time:now().", "fn:time:parse_rfc3339"),
        ("p(X) :- s(X), :duration:lt(X, X).", "fn:duration:parse"),
    ],
)
def test_a_text_in_place_of_a_time_is_to_be_read(rules: str, function: str) -> None:
    (diagnostic,) = refusal(BASE + rules)
    assert diagnostic.fix == f"read the text with {function}(…)"
