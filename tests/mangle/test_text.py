"""Canonical text: one spelling for every value, which reads back as that value."""

from __future__ import annotations

import math
import struct
import sys

import pytest
from hypothesis import given, settings, strategies as st

from manglecp.base.source import Source
from manglecp.mangle.errors import ParseError
from manglecp.mangle.parser import MAX_NESTING, parse
from manglecp.mangle.printer import duration_text, fact_text, instant_text, interval_text, value_text
from manglecp.mangle.program import Program
from manglecp.mangle.values import (
    INT_MAX,
    INT_MIN,
    Bytes,
    Duration,
    Float,
    List,
    Map,
    Name,
    Pair,
    Struct,
    Time,
    Value,
)
from tests.effort import examples
from tests.mangle.builtins.strategies import INT64, VALUES
from tests.mangle.naive import evaluate


def read(text: str) -> dict[int, Value]:
    """What the facts ``p(number, value)`` of a program say."""
    result = evaluate(Program.load([Source("text.mg", text)]), now=0)
    found: dict[int, Value] = {}
    for (number, value), _ in result.relations["p", 2]:
        assert isinstance(number, int)
        found[number] = value
    return found


def comes_back(*values: Value) -> None:
    """Each as a fact of its own, and all of them in one list, map and so on."""
    many = [
        *values,
        List(values),
        Pair(List(values), 0),
        Struct(tuple((Name(f"/f{i}"), v) for i, v in enumerate(values))),
    ]
    many += [Map(((v, v),)) for v in values]
    found = read("\n".join(f"{fact_text('p', (number, value))}." for number, value in enumerate(many)))
    assert found == dict(enumerate(many))
    for number, value in enumerate(many):
        assert type(found[number]) is type(value)
        assert value_text(found[number]) == value_text(value)


@examples(150)
@given(st.lists(VALUES, max_size=8))
def test_any_value_comes_back(values: list[Value]) -> None:
    comes_back(*values)


@examples(100)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=6))
def test_any_text_comes_back(texts: list[str]) -> None:
    comes_back(*texts)


@examples(60)
@given(st.lists(st.one_of(st.floats(), st.integers(0, 2**64 - 1).map(lambda bits: _from_bits(bits))), max_size=10))
def test_any_float_comes_back(numbers: list[float]) -> None:
    comes_back(*map(Float, numbers))


def _from_bits(bits: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return number


@examples(60)
@given(st.lists(INT64, max_size=6))
def test_any_instant_and_duration_comes_back(numbers: list[int]) -> None:
    comes_back(*numbers, *map(Time, numbers), *map(Duration, numbers))


def test_every_character_below_256_comes_back() -> None:
    comes_back(*(chr(code) for code in range(256)), "".join(map(chr, range(256))))
    comes_back(
        "".join(map(chr, reversed(range(256)))), "\r\n\r", "\\n", "\\", '"', "'\"`", "\\x00", "\\u{1f600}", "#", "/a."
    )


def test_every_byte_comes_back() -> None:
    comes_back(
        *(Bytes(bytes([code])) for code in range(256)), Bytes(bytes(range(256))), Bytes(b"\r\n\r\\x41"), Bytes(b"")
    )
    comes_back(*(Bytes(bytes([92, code])) for code in range(256)))


def test_characters_of_every_plane_come_back() -> None:
    edges = [0xD7FF, 0xE000, 0xFEFF, 0xFFFD, 0xFFFE, 0xFFFF, 0x10000, 0x1F600, 0x10FFFE, 0x10FFFF, 0x85, 0x2028, 0x2029]
    comes_back(
        *map(chr, edges),
        "".join(map(chr, edges)),
        "e\u0301",
        "\u202eabc",
        *map(Bytes, (chr(c).encode() for c in edges)),
    )


def test_extreme_floats_come_back() -> None:
    smallest, largest = math.ulp(0.0), sys.float_info.max
    numbers = [0.0, smallest, 2 * smallest, sys.float_info.min, sys.float_info.min - smallest, sys.float_info.epsilon]
    numbers += [0.1, 1 / 3, 1.0, 1.5, 1e15, 1e16, 1e17, 2.0**53, 2.0**53 + 2, 1e22, 1e23, 1e-4, 1e-5, 1e100, largest]
    numbers += [math.nextafter(x, math.inf) for x in numbers[:-1]] + [math.nextafter(largest, 0.0), math.inf]
    comes_back(*(Float(sign * x) for x in numbers for sign in (1.0, -1.0)), Float(math.nan))


def test_extreme_instants_and_durations_come_back() -> None:
    edges = [INT_MIN, INT_MIN + 1, -(10**18), -(10**9) - 1, -(10**9), -1, 0, 1, 999, 10**3, 10**6, 10**9 - 1, 10**9]
    edges += [60 * 10**9, 3599 * 10**9, 3600 * 10**9, 86400 * 10**9, 1_768_478_400_000_000_001, INT_MAX - 1, INT_MAX]
    comes_back(*edges, *map(Time, edges), *map(Duration, edges))


def test_names_come_back() -> None:
    comes_back(
        *map(Name, ["/a", "/a.", "/a..", "/.", "/a./b.", "/-1", "/1", "/~%_", "/a/b/c", "/Decl", "/now", "/a.b.c."])
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Name("/a/b.c"), "/a/b.c"),
        ("", '""'),
        ("it's", '"it\'s"'),
        ('say "hi" \\ `', '"say \\"hi\\" \\\\ `"'),
        ("a\nb\tc\rd", '"a\\nb\\tc\\x0dd"'),
        ("\0\x1f\x7f\x80é\u2028\U0001f600", '"\\x00\\x1f\\x7f\x80é\u2028\U0001f600"'),
        (Bytes(b"a b"), 'b"a b"'),
        (Bytes(b"\"'\\\n\t\x80\xff"), 'b"\\x22\\x27\\x5c\\x0a\\x09\\x80\\xff"'),
        (0, "0"),
        (INT_MIN, "-9223372036854775808"),
        (Float(1.0), "1.0"),
        (Float(-0.0), "-0.0"),
        (Float(0.1), "0.1"),
        (Float(1e22), "1.0e+22"),
        (Float(1.5e-7), "1.5e-07"),
        (Float(5e-324), "5.0e-324"),
        (Float(123456789.0), "123456789.0"),
        (Float(math.nan), "fn:sqrt(-1.0)"),
        (Float(math.inf), "fn:float:mult(1.0e+308, 10.0)"),
        (Float(-math.inf), "fn:float:mult(-1.0e+308, 10.0)"),
        (Time(0), 'fn:time:parse_rfc3339("1970-01-01T00:00:00Z")'),
        (Time(-1), 'fn:time:parse_rfc3339("1969-12-31T23:59:59.999999999Z")'),
        (Time(1_500_000_000), 'fn:time:parse_rfc3339("1970-01-01T00:00:01.5Z")'),
        (Duration(5_400_000_000_000), 'fn:duration:parse("1h30m0s")'),
        (Pair(1, "a"), 'fn:pair(1, "a")'),
        (Pair(1, Pair(2, 3)), "fn:pair(1, fn:pair(2, 3))"),
        (List(), "[]"),
        (List((1, List((Name("/a"), "b")))), '[1, [/a, "b"]]'),
        (Map(), "fn:map()"),
        (Map(((2, "b"), (1, "a"), ("1", 0))), '["1" : 0, 1 : "a", 2 : "b"]'),
        (Struct(), "{}"),
        (Struct(((Name("/b"), 1), (Name("/a"), Map()))), "{/a : fn:map(), /b : 1}"),
        (List((-1, -2)), "[-1, -2]"),
        (List((Map(), Struct(), List())), "[fn:map(), {}, []]"),
    ],
)
def test_the_spelling(value: Value, text: str) -> None:
    assert value_text(value) == text
    comes_back(value)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (-1, "-1ns"),
        (999, "999ns"),
        (1_000, "1µs"),
        (1_500, "1.5µs"),
        (2_500_000, "2.5ms"),
        (250_000, "250µs"),
        (10**9, "1s"),
        (1_000_000_001, "1.000000001s"),
        (60 * 10**9, "1m0s"),
        (3600 * 10**9, "1h0m0s"),
        (-(3661 * 10**9 + 500_000_000), "-1h1m1.5s"),
        (86_400 * 10**9, "24h0m0s"),
        (INT_MAX, "2562047h47m16.854775807s"),
        (INT_MIN, "-2562047h47m16.854775808s"),
    ],
)
def test_durations(ns: int, text: str) -> None:
    assert duration_text(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (INT_MIN, "1677-09-21T00:12:43.145224192Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (951_782_400 * 10**9, "2000-02-29T00:00:00Z"),
        (1_768_478_400 * 10**9 + 10, "2026-01-15T12:00:00.00000001Z"),
        (INT_MAX, "2262-04-11T23:47:16.854775807Z"),
    ],
)
def test_instants(ns: int, text: str) -> None:
    assert instant_text(ns) == text


def test_facts() -> None:
    assert fact_text("p", ()) == "p()"
    assert fact_text("zoo.p", (1, Name("/a"), List((1, 2)))) == "zoo.p(1,/a,[1, 2])"
    assert fact_text("p", (1,), (0, 0)) == "p(1)@[1970-01-01T00:00:00Z]"
    assert fact_text("p", (1,), (INT_MIN, INT_MAX)) == "p(1)@[_, _]"


def test_intervals() -> None:
    assert interval_text((0, 1)) == "@[1970-01-01T00:00:00Z, 1970-01-01T00:00:00.000000001Z]"
    assert interval_text((INT_MIN, 0)) == "@[_, 1970-01-01T00:00:00Z]"
    ends = interval_text((INT_MIN + 1, INT_MAX - 1))  # almost infinite
    assert ends == "@[1677-09-21T00:12:43.145224193Z, 2262-04-11T23:47:16.854775806Z]"
    assert interval_text((0, INT_MAX)) == "@[1970-01-01T00:00:00Z, _]"


@examples(50)
@given(st.lists(st.tuples(VALUES, INT64, INT64), max_size=6))
def test_temporal_facts_come_back(found: list[tuple[Value, int, int]]) -> None:
    """Any interval that holds somewhere, the infinite ones included."""
    facts = [
        fact_text("p", (value,), (min(a, b), max(a, b)))
        for value, a, b in found
        if min(a, b) != INT_MAX and max(a, b) != INT_MIN
    ]
    text = "Decl p(X) temporal.\n" + "\n".join(f"{fact}." for fact in facts)
    once = evaluate(Program.load([Source("once.mg", text)]), now=0).facts()
    again = "Decl p(X) temporal.\n" + "\n".join(f"{fact}." for fact in once)
    assert evaluate(Program.load([Source("again.mg", again)]), now=0).facts() == once


@settings(deadline=None)
@given(st.lists(VALUES, min_size=2, max_size=2, unique_by=value_text))
def test_different_values_have_different_texts(two: list[Value]) -> None:
    left, right = two
    assert left != right or type(left) is not type(right)


def test_the_parser_reads_values_nested_up_to_its_limit() -> None:
    """Deeper values can be computed and printed, but their text is refused."""
    value: Value = 0
    for _ in range(MAX_NESTING - 1):  # the parentheses of the fact are one level
        value = List((value,))
    source = Source("deep.mg", f"p({value_text(value)}).")
    ((args, _),) = evaluate(Program.load([source]), now=0).relations["p", 1]
    assert args == (value,)
    with pytest.raises(ParseError, match=f"nested more than {MAX_NESTING} deep"):
        parse(Source("deeper.mg", f"p({value_text(List((value,)))})."))
