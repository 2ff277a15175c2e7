import math

import pytest
from hypothesis import given, strategies as st

from manglecp.mangle.values import INT_MAX, INT_MIN, Bytes, Float, List, Name, Value

from .helpers import call, fault, lst, names


@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("fn:string:concat", (), ""),
        ("fn:string:concat", ("user-", "ann", "#", 7), "user-ann#7"),
        ("fn:string:concat", (Name("/name/x"), Float(1.5), 7), "/name/x1.57"),
        ("fn:string:concat", ('"\n', Float(2.0), Float(1e22)), '"\n2.01.0e+22'),
        ("fn:string:concat", (Float(math.nan),), "fn:sqrt(-1.0)"),
        ("fn:string:replace", ("a-b-c", "-", "+", 1), "a+b-c"),
        ("fn:string:replace", ("a-b-c", "-", "", -1), "abc"),
        ("fn:string:replace", ("aaa", "a", "b", 2), "bba"),
        ("fn:string:replace", ("aaa", "a", "b", 0), "aaa"),
        ("fn:string:replace", ("aaa", "a", "b", INT_MAX), "bbb"),
        ("fn:string:replace", ("aaa", "a", "b", INT_MIN), "bbb"),
        ("fn:string:replace", ("aaa", "aa", "b", -1), "ba"),
        ("fn:string:replace", ("añ", "", "-", -1), "-a-ñ-"),
        ("fn:string:replace", ("añ", "", "-", 2), "-a-ñ"),
        ("fn:string:replace", ("añ", "", "-", 3), "-a-ñ-"),
        ("fn:string:replace", ("", "", "-", 1), "-"),
        ("fn:string:replace", ("", "", "-", 0), ""),
        ("fn:string:lower", ("Straße ÄB",), "straße äb"),
        ("fn:string:upper", ("Straße äb",), "STRASSE ÄB"),
        ("fn:string:len", ("añ🙂",), 3),
        ("fn:string:len", ("",), 0),
        ("fn:string:split", ("a, b, ", ", "), lst("a", "b", "")),
        ("fn:string:split", ("abc", "-"), lst("abc")),
        ("fn:string:split", ("", "-"), lst("")),
        ("fn:string:split", ("añ", ""), lst("a", "ñ")),
        ("fn:number:to_string", (-12,), "-12"),
        ("fn:float64:to_string", (Float(100.0),), "100.0"),
        ("fn:name:to_string", (Name("/a/b"),), "/a/b"),
        ("fn:name:root", (Name("/a/b/c"),), Name("/a")),
        ("fn:name:root", (Name("/a"),), Name("/a")),
        ("fn:name:tip", (Name("/a/b/c"),), Name("/c")),
        ("fn:name:tip", (Name("/a"),), Name("/a")),
        ("fn:name:list", (Name("/a/b/c"),), names("/a", "/b", "/c")),
        ("fn:name:list", (Name("/a"),), names("/a")),
    ],
)
def test_strings(name: str, args: tuple[Value, ...], result: Value) -> None:
    assert call(name, *args) == result


@given(text=st.text("ab", max_size=8), old=st.text("ab", max_size=2), new=st.text("abc", max_size=2))
def test_replacing_all_is_replacing_as_often_as_it_occurs(text: str, old: str, new: str) -> None:
    assert call("fn:string:replace", text, old, new, text.count(old)) == call("fn:string:replace", text, old, new, -1)


@given(text=st.text(max_size=20), separator=st.text(max_size=2))
def test_what_was_split_can_be_joined(text: str, separator: str) -> None:
    parts = call("fn:string:split", text, separator)
    assert isinstance(parts, List)
    assert separator.join(map(str, parts.items)) == text


def test_upper_case_has_a_longest_text() -> None:
    assert "the limit is" in fault("fn:string:upper", "ß" * 6_000_000)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        (
            "fn:string:concat",
            ("x", lst(1)),
            "fn:string:concat takes strings, names, numbers and float64s, not the list [1]",
        ),
        (
            "fn:string:concat",
            (Bytes(b"x"),),
            'fn:string:concat takes strings, names, numbers and float64s, not the bytes b"x"',
        ),
        ("fn:string:replace", (Name("/a"), "", "", 1), "fn:string:replace takes a string, not the name /a"),
        ("fn:string:replace", ("a", "", "", "1"), 'fn:string:replace takes a number, not the string "1"'),
        ("fn:string:lower", (1,), "fn:string:lower takes a string, not the number 1"),
        ("fn:string:split", ("a", 1), "fn:string:split takes a string, not the number 1"),
        ("fn:number:to_string", (Float(1.0),), "fn:number:to_string takes a number, not the float64 1.0"),
        ("fn:float64:to_string", (1,), "fn:float64:to_string takes a float64, not the number 1"),
        ("fn:name:to_string", ("/a",), 'fn:name:to_string takes a name, not the string "/a"'),
        ("fn:name:root", (1,), "fn:name:root takes a name, not the number 1"),
    ],
)
def test_faults(name: str, args: tuple[Value, ...], message: str) -> None:
    assert fault(name, *args) == message
