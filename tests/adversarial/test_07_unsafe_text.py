"""Case 7: values with quotes, newlines and code. None of them ever becomes source text, and each stays what it is."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, strategies as st

from manglecp.mangle import Base, Bytes, Fact, List, Map, Name, Program, Source, Value, value_text
from manglecp.wire import Profile, decode
from tests.effort import examples

NASTY: Final[list[Value]] = [
    '"',
    "'",
    '"""',
    "\\",
    "\n",
    "\r\n\t\x00\x7f\u2028",
    '"); import os; os.abort() #',
    "'''\nraise SystemExit\n'''",
    "views[0]",
    "{cap[1]()}",
    "%s {0} {!r} f'{now}'",
    '"). denied(X) :- user(X). p("',
    "fn:plus(1, 2)",
    "../../etc/passwd",
    "\ud7ff\U0001f600",
    "",
    "x" * 5_000,
    "__import__('os')",
    Bytes(b"\x00\xff\"'\\\n"),
    Name("/a.b/c~d%20"),
    -(1 << 63),
    (1 << 63) - 1,
]
NESTED: Final[list[tuple[Value, Value]]] = [
    (List(("\n", List(('"',)))), List((Name("/a"), List((Name("/b"),))))),
    (Map((('"k"', "'v'"),)), Map(((Name("/a"), Name("/b")),))),
]
"""A value in which others stand is written as a call with those; beside it the same shape without harm."""


def rules(value: str) -> str:
    """A program with the value in every place a value can have."""
    return f"""
    Decl e(X, Y).
    Decl bad(X).
    e({value}, 1).
    p(X) :- e(X, Y), X = {value}, !bad(X).
    p({value}) :- e({value}, Y), !bad({value}).
    p(X) :- e(X, _), X != {value}.
    q(X, {value}) :- e(X, Y).
    q(X, Z) :- q(X, Y), e(Y, Z).
    n(X, N) :- e(X, Y), X = {value} |> do fn:group_by(X), let N = fn:collect(Y).
    t({value})@[now] :- e({value}, _).
    s(Z) :- e(X, Y) |> let Z = fn:list(X, {value}).
    m(X) :- e(X, Y), :list:member(X, [{value}]).
    """


def sources(base: Base) -> list[str]:
    """The source of every function that was made; equal constants may share a number or not."""
    found = []
    for component in base.compiled.components:
        found += [function.compiled.source for function in component.functions()]
        for rule in component.rules:
            found += [function.source for function in rule.functions.values() if function is not None]
    return [re.sub(r"\bK\d+\b", "K", source) for source in found]


def exercised(value: str, fact: Value) -> tuple[list[str], list[str]]:
    """The sources that a program leads to when a base and requests use it, and its facts."""
    program = Program.load([Source("a.mg", rules(value))], bounds="off")
    base = program.base([Fact("e", (fact, 2))])
    base.evaluate([Fact("bad", (fact,))], now=0)
    more = base.with_facts([Fact("e", (7, fact))], [Fact("e", (fact, 2))])
    more.evaluate([Fact("bad", (fact,)), Fact("e", (7, 8))], now=0)
    return sources(base), base.evaluate([Fact("e", (7, fact))], now=0).facts()


PLAIN: Final = exercised("/harmless", Name("/harmless"))[0]


def unharmed(value: Value, plain: list[str]) -> None:
    text = value_text(value)
    made, facts = exercised(text, value)
    assert made == plain  # the same functions, whatever the value
    assert f"p({text})" in facts
    assert f"q({text},{text})" in facts
    assert f"n({text},[1, 2])" in facts
    assert f"s([{text}, {text}])" in facts
    assert f"e(7,{text})" in facts


def test_functions_are_made() -> None:
    assert len(PLAIN) > 12


@pytest.mark.parametrize("value", NASTY, ids=[f"{type(v).__name__}-{i}" for i, v in enumerate(NASTY)])
def test_nasty_values(value: Value) -> None:
    unharmed(value, PLAIN)


@pytest.mark.parametrize(("value", "harmless"), NESTED, ids=["list", "map"])
def test_nasty_values_inside_others(value: Value, harmless: Value) -> None:
    unharmed(value, exercised(value_text(harmless), harmless)[0])


@examples(40)
@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_any_string(value: str) -> None:
    unharmed(value, PLAIN)


SENT: Final = Program.load(
    [
        Source(
            "a.mg",
            """
            Decl e(Any, Number) temporal descr [direction("input")] bound [/any, /number].
            p(X) :- e(X, 1)@[_, _].
            q(X, Y) :- p(X), p(Y).
            """,
        )
    ]
)
SENT_BASE: Final = SENT.base()
PROFILE: Final = Profile.of(SENT.predicates)


def sent(value: Any) -> Value:
    """What the value of a request is to the rules; it comes back as it was sent."""
    fact = {"pred": "e", "args": [value, 1]}
    request = decode(msgspec.json.encode([fact, {"pred": "e", "named_args": {"any": value, "number": 1}}]))
    assert isinstance(request, list)
    (read,) = PROFILE.read(request, now=0)
    result = SENT_BASE.evaluate([read], now=0)
    ((args, _),) = result.relations[("p", 1)]
    assert args[0] == read.args[0]
    assert PROFILE.write(read) == fact
    assert len(result.facts()) == 3  # e, p and q: none came from inside the value
    return args[0]


@pytest.mark.parametrize("value", [v for v in NASTY if isinstance(v, str)])
def test_nasty_values_of_a_request(value: str) -> None:
    sent("harmless")
    harmless = sources(SENT_BASE)
    assert harmless
    assert sent(value) == value
    assert sent([value, {value: value}]) == List((value, Map(((value, value),))))
    assert sources(SENT_BASE) == harmless


@examples(60)
@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_any_string_of_a_request(value: str) -> None:
    assert sent(value) == value


def test_names_of_the_program_are_not_trusted_either() -> None:
    """Predicates and variables that are words of Python, or names the functions use themselves."""
    text = """
    Decl import(None, True) bound [/number, /number].
    Decl lambda(X, Y) bound [/number, /number].
    Decl views(X) bound [/number].
    Decl cap(X) bound [/number].
    Decl class(X, Y) bound [/number, /number].
    import(1, 2). import(2, 3).
    lambda(Views, Cap) :- import(Views, Cap).
    lambda(Rows, Known) :- lambda(Rows, Now), import(Now, Known).
    views(Fact) :- lambda(Fact, E), E > 2, !cap(Fact).
    cap(Chain) :- lambda(_, Chain), Chain = 2.
    class(None, False) :- import(None, True) |> do fn:group_by(None), let False = fn:max(True).
    """
    base = Program.load([Source("a.mg", text)]).base()
    result = base.evaluate([Fact("import", (3, 4))], now=0)
    assert result.facts("views") == ["views(1)", "views(3)"]
    assert result.facts("class") == ["class(1,2)", "class(2,3)", "class(3,4)"]
