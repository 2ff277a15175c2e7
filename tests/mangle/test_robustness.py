"""Nothing but a MangleError comes out, whatever goes in, and it comes out soon."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from manglecp.base.source import Source
from manglecp.mangle.errors import MangleError, ParseError
from manglecp.mangle.parser import MAX_NESTING, decode, parse
from manglecp.mangle.program import Program
from tests.effort import effort
from tests.fuzz import fuzz_parser
from tests.mangle.naive import evaluate

pytestmark = pytest.mark.no_cover

INPUTS = effort(100_000)  # make fuzz and make soak try as many as one has time for
CHUNKS = 4
DEEP = 100_000
LONG = effort(10_000_000)
LONGEST_RENDERING = 5_000


@contextmanager
def soon(seconds: float = 20.0) -> Iterator[None]:
    """A few seconds at most, on a slow machine; anything quadratic takes hours."""
    started = time.process_time()
    yield
    assert time.process_time() - started < seconds


def run(text: str | bytes) -> list[str]:
    source = Source("test.mg", text) if isinstance(text, str) else decode("test.mg", text)
    return evaluate(Program.load([source]), now=0).facts()


def refused(text: str | bytes) -> MangleError:
    """The error of a program, which must be sound and short."""
    with soon(), pytest.raises(MangleError) as raised:
        run(text)
    with soon():
        fuzz_parser.sound(raised.value)
    assert all(len(diagnostic.render()) < LONGEST_RENDERING for diagnostic in raised.value.diagnostics)
    return raised.value


def no_text(text: str | bytes) -> ParseError:
    error = refused(text)
    assert isinstance(error, ParseError)
    return error


def accepted(text: str) -> list[str]:
    with soon():
        return run(text)


# --- fuzz ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_broken_programs(chunk: int) -> None:
    """See tests/fuzz/fuzz_parser.py to repeat a single input."""
    fuzz_parser.run(chunk * (INPUTS // CHUNKS), INPUTS // CHUNKS)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(100))
def test_many_more_broken_programs(chunk: int) -> None:
    fuzz_parser.run(10_000_000 + chunk * 50_000, 50_000)


def test_a_crash_tells_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_source: Source) -> None:
        raise ZeroDivisionError("not a MangleError")

    monkeypatch.setattr(fuzz_parser, "parse", broken)
    with pytest.raises(fuzz_parser.Crash) as raised:
        fuzz_parser.run(1, 8)
    assert "input 1 is b'" in str(raised.value)
    assert "ZeroDivisionError: not a MangleError" in str(raised.value)


def test_the_fuzzer_reaches_every_stage() -> None:
    """Of its programs some can be evaluated, and some fail at each stage."""
    reached = set()
    for number in range(0, 8_000, 8):
        try:
            program = Program.load([decode("test.mg", fuzz_parser.generate(number))], bounds="off")
            evaluate(program, now=0, limits=fuzz_parser.LIMITS)
            reached.add("ok")
        except MangleError as error:
            reached.add(error.stage)
    assert reached == {"ok", "parse", "analysis", "stratification", "eval"}


# --- depth ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("around", ["{}", "p({}", "p(X) :- {}"])
@pytest.mark.parametrize(
    "opening", ["[", "(", "{", ".List<", "fn:f(", "p(", "!", "@[", "<-[", "[1:", "{/a:", "[-", ".Struct<opt /a : "]
)
def test_deep_nesting(opening: str, around: str) -> None:
    no_text(around.replace("{}", opening * DEEP))


def test_deep_nesting_that_is_closed() -> None:
    for opening, closing in (("[", "]"), ("(", ")"), ("{/a:", "}"), (".List<", ">"), ("fn:f(", ")")):
        error = no_text(f"p({opening * DEEP}1{closing * DEEP}). q(")
        assert len(error.diagnostics) == 2


@pytest.mark.parametrize(
    ("opening", "closing", "type_"),
    [
        ("[", "]", ".List<{}>"),
        ("[1 : ", "]", ".Map</number, {}>"),
        ("{/a : ", "}", ".Struct</a : {}>"),
        ("{/a : ", "}", ".Struct<opt /a : {}>"),
        ("fn:pair(", ", 1)", ".Pair<{}, /number>"),
        ("fn:some(", ")", "fn:Union(/name, {})"),
    ],
)
def test_nested_types_and_values(opening: str, closing: str, type_: str) -> None:
    depth = MAX_NESTING - 2
    bound = "/number"
    for _ in range(depth):
        bound = type_.replace("{}", bound)
    value = f"{opening * depth}1{closing * depth}"
    rules = f"q(X) :- p(X). r(X) :- p(X), q(X). s({opening * depth}X{closing * depth}) :- n(X). n(1)."
    assert len(accepted(f"Decl p(X) bound [{bound}]. p({value}). {rules}")) == 5


def test_long_chains_of_predicates() -> None:
    count = 1_500
    for heads in (range(count), range(count - 1, -1, -1)):
        names = [f"p{number:04d}" for number in heads]
        rules = [f"{head}(X) :- {body}(X)." for body, head in pairwise(names)]
        assert len(accepted(f"{names[0]}(1). " + " ".join(rules))) == count


def test_long_cycles_of_predicates() -> None:
    count = 120
    rules = " ".join(f"p{number}(X) :- p{(number + 1) % count}(X)." for number in range(count))
    assert len(accepted(f"p7(1). {rules}")) == count
    error = refused(f"p7(1). {rules} p0(X) :- p7(X), !p9(X).")
    assert error.stage == "stratification"


# --- length --------------------------------------------------------------------------------------------------------


# What stands before, in and behind: the middle is repeated until it is LONG.


@pytest.mark.parametrize(
    ("before", "part", "behind"),
    [
        ('p("', "a", '").'),
        ("p(b'", "a", "')."),
        ('p("', "\r\n", '").'),
        ('p("', "\\x41", '").'),
        ("p(/", "a", ")."),
        ("p(", "/a", ")."),
        ("", "a", "(1)."),
        ("p(", "0", "1)."),
        ("p(-", "0", ")."),
        ("p(0.", "1", ")."),
        ("p(", "0", ".5)."),
        ("#", "a", "\np(1)."),
        ("", "#\t\t\t\t\t\t\t\t\n", "p(1)."),
        ("", " ", "p(1)."),
        ("p(1", "\n", ")."),
        ("p(X) :- X = /a", ".", "."),
        ("Decl p() temporal. p()@[2026-01-01T00:00:00.", "1", "]."),
        ("Decl p() temporal. p()@[now]. q() :- <-[", "0", "1s] p()."),
    ],
)
def test_long_tokens(before: str, part: str, behind: str) -> None:
    assert accepted(before + part * (LONG // len(part)) + behind)


@pytest.mark.parametrize(
    ("before", "part", "behind"),
    [
        ('p("', "a", ""),
        ("p(b`", "a", ""),
        ('p("', '\\"..', ""),
        ('p("', "\\x41", '\\q").'),
        ("p(/", "a", ""),
        ("p(/", "a", ":b)."),
        ("", "a", ""),
        ("p(X) :- ", "a", "."),
        ("p(", "a", "(1))."),
        ("p(X) :- ", "a", "(X) = 1."),
        ("fn:", "a", "(1)."),
        ("", "A", ""),
        (".", "A", ""),
        ("Package ", "a", "B!"),
        ("p(", "1", ")."),
        ("p(", "1", "."),
        ("p(", "1", ".5)."),
        ("p(1.0e", "1", ")."),
        ("p()@[", "1", "d]."),
        ("p()@[9999-12-31T23:59:59.", "1", "]."),
        ("#", "a", "\np(1"),
        ("p(1 #", "a", ""),
    ],
)
def test_long_tokens_that_are_refused(before: str, part: str, behind: str) -> None:
    no_text(before + part * (LONG // len(part)) + behind)


@pytest.mark.parametrize("character", [*"()[]{}<>,.:;?+-|=@\\/!\0é\U0001f600", "<-", "|>", ":-", "\r"])
def test_millions_of_times_the_same(character: str) -> None:
    no_text(character * (LONG // len(character)) + "$")


@pytest.mark.parametrize(
    "word", ["_ ", "X ", "a ", "1 ", "/a ", "''", '""', "a.", "1.", ".X", "/ ", "! ", "!\n", "p(1 2).\n", "$#\n", "$ /"]
)
def test_many_times_the_same_word(word: str) -> None:
    no_text(word * (LONG // 5 // len(word)) + "$")


def test_names_of_any_length_in_messages() -> None:
    name = "a" * 1_000_000
    for text in (
        f"p(X) :- {name}(X).",
        f"{name}(1). {name}(1, 2).",
        f"{name}(1). p(X) :- {name}b(X).",
        f"p(fn:{name}(1)).",
        f"p(1). q(X) :- p(X), Y = fn:{name}(X).",
        f"p(1). q(X) :- p(X), :{name}(X).",
        f"p(1). q({name.upper()}) :- p(X).",
        f'p(fn:plus("{name}")).',
        f"Decl p(X) bound [/number]. p(/{name}).",
        f"Decl p(X) descr [fundep([X], [{name.upper()}])].",
        f"Decl p(X) inclusion [q(X)]. Decl q(X). p(/{name}).",
        f"Decl p(X) bound [fn:{name}(/a)].",
    ):
        refused(text)


def test_an_error_in_the_middle_of_a_long_line() -> None:
    filler = "p(1). " * 83_333
    error = no_text(f"{filler}q(1 2). {filler}")
    (diagnostic,) = error.diagnostics
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.column) == (1, len(filler) + 5)
    lines = error.render().split("\n")
    assert all(len(line) < 300 for line in lines)
    assert lines[1][lines[2].index("^")] == "2"  # the caret stands under it all the same


def test_an_error_behind_strange_characters() -> None:
    error = no_text("p('\0\x1b[31m\u202e\t') q.")
    assert "\x1b" not in error.render()
    assert "\0" not in error.render()
    assert "\u202e" not in error.render()


def test_many_errors_in_one_long_line() -> None:
    assert len(refused("p(1 2). " * 100_000).diagnostics) == 50


# --- bytes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"p(1).\0",
        b"p(\0).",
        b"\xef\xbb\xbf\xef\xbb\xbf",
        b"\xef\xbb",
        "p(1).".encode("utf-16"),
        "p(1).".encode("utf-32"),
        bytes(range(256)),
    ],
)
def test_bytes_that_are_no_program(data: bytes) -> None:
    no_text(data)


@pytest.mark.parametrize("byte", [b"\0", b"\x80", b"\xc3", b"\xff"])
def test_many_bytes_that_are_no_program(byte: bytes) -> None:
    no_text(byte * LONG)
    no_text(b"p(1). # " + byte * LONG + b"\n$")


def test_every_byte_alone_and_in_a_fact() -> None:
    for byte in range(256):
        one = bytes([byte])
        for data in (
            one,
            b"p(" + one + b").",
            b"p(1)." + one,
            b'p("' + one + b'").',
            b"p(/" + one + b").",
            b"# " + one,
        ):
            try:
                parse(decode("test.mg", data))
            except ParseError as error:
                fuzz_parser.sound(error)
