"""Tokens and literals (language section 1, D25): what is read as what, what is refused, and where."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from manglecp.base.source import Source
from manglecp.mangle.errors import ParseError
from manglecp.mangle.lexer import KEYWORDS, find_comments
from manglecp.mangle.parser import decode, parse
from manglecp.mangle.syntax import Apply, Clause, Equality, Literal, Term, Variable
from manglecp.mangle.values import Bytes, Float, Name


def clauses(text: str) -> list[Clause]:
    return list(parse(Source("test.mg", text)).clauses)


def args(text: str) -> tuple[Term, ...]:
    """The arguments of the one fact of a text."""
    (clause,) = clauses(text)
    return clause.head.args


def refused(text: str) -> list[tuple[int, int, str]]:
    """Line, column and message of everything that is wrong with a text."""
    with pytest.raises(ParseError) as raised:
        parse(Source("test.mg", text))
    found = []
    for diagnostic in raised.value.diagnostics:
        assert diagnostic.code == "parse"
        assert diagnostic.span is not None
        assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(text)
        assert diagnostic.render()
        found.append((diagnostic.span.line, diagnostic.span.column, diagnostic.message))
    return found


def place(text: str) -> tuple[int, int]:
    """Line and column of the one thing that is wrong."""
    ((line, column, _),) = refused(text)
    return line, column


# --- numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("007", 7),
        ("-007", -7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0" * 10_000 + "1", 1),
        ("-" + "0" * 10_000 + "9223372036854775808", -(2**63)),
        ("0" * 10_000, 0),
        ("1.0", Float(1.0)),
        ("-1.5", Float(-1.5)),
        (".5", Float(0.5)),
        ("-.5", Float(-0.5)),
        ("1.0e5", Float(1e5)),
        ("1.0E+5", Float(1e5)),
        ("1.5e-3", Float(0.0015)),
        (".5e1", Float(5.0)),
        ("1e5", Float(1e5)),  # D25
        ("1E-5", Float(1e-5)),
        ("-1e5", Float(-1e5)),
        ("0.0", Float(0.0)),
        ("-0.0", Float(-0.0)),
        ("1.7976931348623157e308", Float(1.7976931348623157e308)),
        ("5.0e-324", Float(5e-324)),
        ("1.0e-999", Float(0.0)),
        ("0" * 10_000 + "1.5", Float(1.5)),
    ],
)
def test_numbers(text: str, value: int | Float) -> None:
    assert args(f"p({text}).") == (value,)
    assert args(f"p([{text}, 1]).") == (Apply("fn:list", (value, 1)),)
    (rule,) = clauses(f"p(X) :- q(X), X={text}, X!={text}, X<{text} .")
    (_, equal, different, less) = rule.premises
    assert isinstance(equal, Equality)
    assert isinstance(different, Equality)
    assert isinstance(less, Literal)
    assert equal.right == different.right == less.atom.args[1] == value


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("p(9223372036854775808).", (1, 3)),
        ("p(-9223372036854775809).", (1, 3)),
        ("p(1,\n  99999999999999999999999999).", (2, 3)),
        ("p(1e).", (1, 4)),
        ("p(1.0e999).", (1, 3)),  # infinity has no literal
        ("p(0,-1e999).", (1, 5)),
        ("p(1 e5).", (1, 5)),
        ("p(--1).", (1, 3)),
        ("p(+1).", (1, 3)),
        ("p(1-1).", (1, 4)),
        ("p(0x10).", (1, 4)),
        ("p(1_000).", (1, 4)),
        ("p(- 1).", (1, 3)),
        ("p(٣).", (1, 3)),  # digits of other scripts are not digits
        ("p(1²).", (1, 4)),
    ],
)
def test_what_is_no_number(text: str, at: tuple[int, int]) -> None:
    assert place(text) == at


def test_a_fraction_has_digits() -> None:
    assert refused("p(1.).")[0] == (1, 4, "')' or ',' is needed here, found '.'")
    assert refused("p(1.e5).")[0] == (1, 4, "')' or ',' is needed here, found '.'")


# --- strings and bytes ---------------------------------------------------------------------------------------------

ESCAPES = [
    (r"\n", "\n"),
    (r"\t", "\t"),
    (r"\"", '"'),
    (r"\'", "'"),
    (r"\\", "\\"),
    (r"\x00", "\0"),
    (r"\x41", "A"),
    (r"\x7f", "\x7f"),
    (r"\x7F", "\x7f"),  # upper case: D25
    (r"\u{0041}", "A"),
    (r"\u{00e9}", "é"),
    (r"\u{1f600}", "\U0001f600"),
    (r"\u{01F600}", "\U0001f600"),
    (r"\u{10ffff}", "\U0010ffff"),
    ("\\\n", "\n"),
    ("\\\r\n", "\n"),
    ("a\nb", "a\nb"),
    ("é\U0001f600", "é\U0001f600"),
    (r"\\n", "\\n"),
    (r"\x410", "A0"),
    ("#", "#"),
    ("", ""),
]


@pytest.mark.parametrize(("written", "meant"), ESCAPES)
@pytest.mark.parametrize("quote", ['"', "'", "`"])
def test_strings_and_bytes(quote: str, written: str, meant: str) -> None:
    assert args(f"p({quote}{written}{quote}).") == (meant,)
    assert args(f"p(b{quote}{written}{quote}, {quote}z{quote}).") == (Bytes(meant.encode()), "z")


def test_each_quote_may_hold_the_others() -> None:
    assert args("""p("'`", '"`', `"'`).""") == ("'`", '"`', "\"'")


@pytest.mark.parametrize("quote", ['"', "'", "`"])
def test_line_ends_in_strings(quote: str) -> None:
    assert args(f"p({quote}a\r\nb\rc\nd\r\r\n{quote}).") == ("a\nb\nc\nd\n\n",)
    assert args(f"p(b{quote}a\r\nb\rc{quote}).") == (Bytes(b"a\r\nb\rc"),)


@given(st.binary(max_size=20), st.sampled_from(['"', "'", "`"]))
@settings(deadline=None)
def test_any_bytes_can_be_written(data: bytes, quote: str) -> None:
    written = "".join(f"\\x{byte:02x}" for byte in data)
    assert args(f"p(b{quote}{written}{quote}).") == (Bytes(data),)


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        (r'p("\x80").', (1, 4), r"\x80 is above 7f"),
        (r'p("ab\xff").', (1, 6), r"\xff is above 7f"),
        (r'p("\r").', (1, 4), r"unknown escape \r"),
        (r"p(`\``).", (1, 4), r"unknown escape \`"),
        (r'p("\a").', (1, 4), r"unknown escape \a"),
        (r'p("\x4").', (1, 4), r"unknown escape \x"),
        (r'p("\x4g").', (1, 4), r"unknown escape \x"),
        (r'p("\u{041}").', (1, 4), r"unknown escape \u"),
        (r'p("\u{0000041}").', (1, 4), r"unknown escape \u"),
        (r'p("\u0041").', (1, 4), r"unknown escape \u"),
        (r'p("\u{110000}").', (1, 4), r"\u{110000} is not a character"),
        (r'p("\u{d800}").', (1, 4), r"\u{d800} is not a character"),
        (r'p("\u{DFFF}").', (1, 4), r"\u{DFFF} is not a character"),
        (r'p(b"\u{d800}").', (1, 5), r"\u{d800} is not a character"),
        (r'p(b"a\q").', (1, 6), r"unknown escape \q"),
        ('p(1,\n"a\n\\é").', (3, 1), "unknown escape \\é"),
        ('p("\\\0").', (1, 4), "unknown escape \\U+0000"),
        ('p("abc).', (1, 3), "string is never closed"),
        ("p(1).\nq('abc\n).\nr(2).", (2, 3), "string is never closed"),
        ('p(b"abc).', (1, 3), "string is never closed"),
        (r'p("abc\").', (1, 3), "string is never closed"),
    ],
)
def test_what_is_no_string(text: str, at: tuple[int, int], message: str) -> None:
    found = refused(text)
    assert found[0][:2] == at
    assert found[0][2] == message


# --- names, variables, words ---------------------------------------------------------------------------------------


def test_names() -> None:
    assert args("p(/a, /a/b, /A1, /a.b, /1, /-, /~, /%, /_, /a-b.c_d~e%20/x).") == tuple(
        map(Name, ["/a", "/a/b", "/A1", "/a.b", "/1", "/-", "/~", "/%", "/_", "/a-b.c_d~e%20/x"])
    )


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("p(/).", (1, 3)),
        ("p(//a).", (1, 3)),
        ("p(/a/).", (1, 5)),
        ("p(/a//b).", (1, 5)),
        ("p(/é).", (1, 3)),
        ("p(/a:b).", (1, 5)),
        ("p(/a b).", (1, 6)),
    ],
)
def test_what_is_no_name(text: str, at: tuple[int, int]) -> None:
    assert place(text) == at


def test_variables() -> None:
    (rule,) = clauses("p(X, Yes, X1, Some_name, _) :- q(My_Var_2, A_).")
    assert [v.name for v in rule.head.args if isinstance(v, Variable)] == ["X", "Yes", "X1", "Some_name", "_"]
    (premise,) = rule.premises
    assert isinstance(premise, Literal)
    assert premise.atom.args == (Variable("My_Var_2"), Variable("A_"))


@pytest.mark.parametrize("text", ["p(_x).", "p(_1).", "p(É).", "p(X').", "p(?x)."])
def test_what_is_no_variable(text: str) -> None:
    assert place(text)[0] == 1


@pytest.mark.parametrize(
    "name",
    [
        "p",
        "p1",
        "camelCase",
        "with_under",
        "zoo.bird",
        "a.b.c",
        "a:b",
        "a:",
        "a.1",
        "letx",
        "doing",
        "nowhere",
        "b",
        "opt1",
    ],
)
def test_predicate_names(name: str) -> None:
    (clause,) = clauses(f"{name}(1).")
    assert clause.head.predicate == name
    assert clauses(f"{name}() :- {name}().")[0].head.args == ()
    assert clauses(f"{name}(1).q(2).{name}(3).")[2].head.args == (3,)


@pytest.mark.parametrize("word", sorted(KEYWORDS))
def test_reserved_words(word: str) -> None:
    assert place(f"{word}(1).")[0] == 1
    assert place(f"p(X) :- {word}(X).") == (1, 9)
    assert place(f"p({word}).") == (1, 3)
    assert place(f"Decl {word}(X).") == (1, 6)
    assert place(f"p(1). {word}(2).")[0] == 1
    assert clauses(f"x{word}(1).")[0].head.predicate == f"x{word}"
    assert args(f"p(/{word}).") == (Name(f"/{word}"),)


@pytest.mark.parametrize("text", ["Foo(1).", "1p(1).", "_p(1).", "p-q(1).", "é(1).", ".p(1).", "p.(1).", "fn:f(1)."])
def test_what_is_no_predicate(text: str) -> None:
    assert refused(text)


# --- the final dot of a name (D25) ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("p(X) :- X = /a.", "/a"),
        ("p(X) :- X = /a .", "/a"),
        ("p(X) :- X = /a.\n", "/a"),
        ("p(X) :- X = /a.\r\n", "/a"),
        ("p(X) :- X = /a.\tq(1).", "/a"),
        ("p(X) :- X = /a.\fq(1).", "/a"),
        ("p(X) :- X = /a. q(1).", "/a"),
        ("p(X) :- X = /a.# comment", "/a"),
        ("p(X) :- X = /a.# comment\nq(1).", "/a"),
        ("p(X) :- X = /a. # comment\n  # another\nq(1).", "/a"),
        ("p(X) :- X = /a. Decl q(Y).", "/a"),
        ("p(X) :- X = /a. :q(1).", "/a"),
        ("p(X) :- X = /a/b.c.", "/a/b.c"),
        ("p(X) :- X = /a..", "/a."),
        ("p(X) :- X = /a. .", "/a."),  # as in the reference
        ("p(X) :- X = /a. # comment\n.", "/a."),
        ("p(X) :- X = /a., q(X).", "/a."),
        ("p(X) :- X = /a. , q(X).", "/a."),
        ("p(X) :- X = /a. |> let Y = fn:plus(1).", "/a."),
        ("p(X) :- X = /.. q(1).", "/."),
        ("p(X) :- X = /. .", "/."),
        ("p(X) :- X = /a/. .", "/a/."),
    ],
)
def test_a_dot_behind_a_name(text: str, name: str) -> None:
    premise = clauses(text)[0].premises[0]
    assert isinstance(premise, Equality)
    assert premise.right == Name(name)


def test_a_dot_behind_a_name_inside_brackets_is_its_own() -> None:
    assert args("p(/a. ).") == (Name("/a."),)
    assert args("p(/a.\n,/b. # comment\n).") == (Name("/a."), Name("/b."))
    assert args("p([/a. , /b.], {/c. : /d. }, fn:f(/e. )).")[0] == Apply("fn:list", (Name("/a."), Name("/b.")))
    (rule,) = clauses("p(X) :- q(/a. ), X = [/b. ].")
    assert isinstance(rule.premises[0], Literal)
    assert rule.premises[0].atom.args == (Name("/a."),)


def test_a_dot_before_a_capital_starts_a_type() -> None:
    assert place("p(1).Decl q(X).") == (1, 5)
    assert "leave a space" in _fix("p(1).Decl q(X).")
    assert len(clauses("p(1).q(2).")) == 2
    assert len(clauses("p(1). Decl q(X). q(2).")) == 2


def _fix(text: str) -> str:
    with pytest.raises(ParseError) as raised:
        parse(Source("test.mg", text))
    return raised.value.diagnostics[0].fix or ""


# --- signs that look like operators (D25) --------------------------------------------------------------------------


def test_a_minus_behind_a_bracket_or_less_than() -> None:
    assert args("p([-1, 2]).") == args("p([ -1, 2]).") == (Apply("fn:list", (-1, 2)),)
    assert args("p([-1: 2]).") == args("p([ -1 : 2]).") == (Apply("fn:map", (-1, 2)),)
    assert args("p([-.5]).") == (Apply("fn:list", (Float(-0.5),)),)
    assert clauses("p(X) :- q(X), X<-1.") == clauses("p(X) :- q(X), X < -1.")
    assert clauses("p(X) :- q(X), X<-1, X>-2, X=-3, X!=-4, X<=-5, X>=-6.") == clauses(
        "p(X) :- q(X), X < -1, X > -2, X = -3, X != -4, X <= -5, X >= -6."
    )
    assert refused("p(X) :- q(X), X<-[1].")  # an operator in front of its window


def test_operators_are_single_tokens() -> None:
    for kind in ("<-", "[-", "<+", "[+"):
        for gap in ("", " ", "\n", "# comment\n"):
            (rule,) = clauses(f"p(X) :- {kind}{gap}[5m] q(X).")
            premise = rule.premises[0]
            assert isinstance(premise, Literal)
            assert premise.operator is not None
            assert premise.operator.kind == kind
        assert refused(f"p(X) :- {kind[0]} {kind[1]}[5m] q(X).")


def test_colons() -> None:
    assert args("p([X: 1]).") == args("p([X : 1]).") == (Apply("fn:map", (Variable("X"), 1)),)
    assert args("p([X:1, Y:2]).") == (Apply("fn:map", (Variable("X"), 1, Variable("Y"), 2)),)
    assert args("p({/a:fn:plus(1,2)}).") == args("p({/a : fn:plus(1, 2)}).")
    assert args('p([1: 2], ["k":1], {/a: 1}).') == (
        Apply("fn:map", (1, 2)),
        Apply("fn:map", ("k", 1)),
        Apply("fn:struct", (Name("/a"), 1)),
    )
    assert args("p([X:Y]).") == (Apply("fn:map", (Variable("X"), Variable("Y"))),)
    assert args("p([fn:f(1):fn:g(2)]).") == (Apply("fn:map", (Apply("fn:f", (1,)), Apply("fn:g", (2,)))),)
    assert args("p([/a:/b]).") == (Apply("fn:map", (Name("/a"), Name("/b"))),)
    assert args("p([[1]:{}]).") == (Apply("fn:map", (Apply("fn:list", (1,)), Apply("fn:struct", ()))),)


# --- space, comments, encodings ------------------------------------------------------------------------------------


def test_both_arrows() -> None:
    assert clauses("p(X) ⟸ q(X).") == clauses("p(X) :- q(X).")
    assert clauses("p(X)⟸q(X).") == clauses("p(X):-q(X).")


def test_space_and_comments() -> None:
    assert clauses("#c\n\t p ( 1 ,\f2 ) # c\r\n . # end") == clauses("p(1, 2).")
    assert clauses("") == clauses(" \n\t\r\f") == clauses("# only a comment") == []
    assert args('p("# no comment"). # "no string') == ("# no comment",)
    assert clauses("p(1).#c") == clauses("p(1).")


@pytest.mark.parametrize("character", ["\v", "\u00a0", "\u2003", "\u200b", "\x1c", "\x85", "\u2028"])
def test_other_space_is_no_space(character: str) -> None:
    assert place(f"p(1).\nq({character}2).") == (2, 3)


@pytest.mark.parametrize(
    "character", ["\0", "\x01", "\x7f", "$", "%", "&", "*", ";", "\\", "^", "~", "|", "é", "\U0001f600"]
)
def test_unknown_characters(character: str) -> None:
    line, column, message = refused(f"p(1).\n\nq(2, {character}3).\nr(4).")[0]
    assert (line, column) == (3, 6)
    assert message.startswith("unexpected character")
    assert refused(character)[0][:2] == (1, 1)


def test_carriage_returns() -> None:
    unix = 'Package zoo!\nUse a!\n# c\np(1).\nq(X) :-\n  p(X),\n  X = /a.\nr("x").\n'
    assert parse(Source("test.mg", unix.replace("\n", "\r\n"))) == parse(Source("test.mg", unix))
    assert place("p(1).\r\nq(2,\r\n  $).\r\n") == (3, 3)
    with pytest.raises(ParseError) as raised:
        parse(Source("test.mg", "p(1).\r\nq($).\r\n"))
    assert "\r" not in raised.value.render()


def test_comments_end_at_a_line_feed_only() -> None:
    assert clauses("p(1). # one\rq(2).\nr(3).") == clauses("p(1). r(3).")


def test_comments_are_found() -> None:
    text = '# one\np("#no", \'#no\', `#no`, b"#no"). # two # still two\n#three'
    assert [span.text for span in find_comments(Source("test.mg", text))] == ["# one", "# two # still two", "#three"]


def test_a_byte_order_mark_is_dropped() -> None:
    assert decode("test.mg", b"\xef\xbb\xbfp(1).").text == "p(1)."
    assert decode("test.mg", b"p(1).").text == "p(1)."
    assert decode("test.mg", b"").text == ""
    with pytest.raises(ParseError) as raised:
        parse(decode("test.mg", b"\xef\xbb\xbfp($)."))
    assert raised.value.diagnostics[0].span is not None
    assert raised.value.diagnostics[0].span.column == 3
    assert refused("\ufeffp(1).") == [(1, 1, "unexpected character U+FEFF")]
    assert refused("p(1).\ufeff")[0][:2] == (1, 6)


@pytest.mark.parametrize(
    ("data", "at", "byte"),
    [
        (b"\xff", (1, 1), "0xff"),
        (b"p(1).\nq(\xff2).", (2, 3), "0xff"),
        (b"p(\xc3\xa9\xc3).", (1, 4), "0xc3"),
        ("é# \U0001f600".encode() + b"\x80", (1, 5), "0x80"),
        (b"\xef\xbb\xbfp(\xf0\x9f).", (1, 3), "0xf0"),
        (b"# \xed\xa0\x80", (1, 3), "0xed"),
        (b"\xff\xfep\x00(\x001\x00)\x00.\x00", (1, 1), "0xff"),
        (b"p(1).\r\n\xfe", (2, 1), "0xfe"),
    ],
)
def test_bytes_that_are_not_utf8(data: bytes, at: tuple[int, int], byte: str) -> None:
    with pytest.raises(ParseError) as raised:
        decode("test.mg", data)
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.column) == at
    assert diagnostic.message == f"not UTF-8: byte {byte}"
    assert diagnostic.render().startswith("error[parse]: test.mg:")


@pytest.mark.parametrize("text", ['p("\ud800").', "p(1). # \udfff", "\ud83d\ude00"])
def test_lone_surrogates_are_refused(text: str) -> None:
    line, column, message = refused(text)[0]
    assert (line, column) == (1, next(i for i, c in enumerate(text, 1) if 0xD800 <= ord(c) <= 0xDFFF))
    assert message == "lone surrogates are not text"
