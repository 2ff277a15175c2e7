import pytest

from manglecp.mangle.values import FALSE, TRUE, Float, List, Map, Name, Pair, Struct, Value

from .helpers import call, fault, lst

A, B = Name("/a"), Name("/b")
MAP = Map((("a", 1), ("b", 2)))
STRUCT = Struct(((A, 1), (B, "x")))


@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("fn:list", (), List()),
        ("fn:list", (1, "a"), lst(1, "a")),
        ("fn:list:append", (lst(1, 2), 3), lst(1, 2, 3)),
        ("fn:list:cons", (0, lst(1, 2)), lst(0, 1, 2)),
        ("fn:list:get", (lst(7, 8), 0), 7),
        ("fn:list:get", (lst(7, 8), 1), 8),
        ("fn:list:len", (lst(7, 8),), 2),
        ("fn:list:contains", (lst(1, 2), 2), TRUE),
        ("fn:list:contains", (lst(1, 2), Float(2.0)), FALSE),
        ("fn:list:contains", (lst(Float(0.0)), Float(-0.0)), FALSE),
        ("fn:list:contains", (List(), 1), FALSE),
        ("fn:pair", (1, "a"), Pair(1, "a")),
        ("fn:tuple", (7,), 7),
        ("fn:tuple", (1, 2), Pair(1, 2)),
        ("fn:tuple", (1, 2, 3), Pair(1, Pair(2, 3))),
        ("fn:map", (), Map()),
        ("fn:map", ("b", 2, "a", 1), MAP),
        ("fn:struct", (), Struct()),
        ("fn:struct", (B, "x", A, 1), STRUCT),
        ("fn:map:get", (MAP, "b"), 2),
        ("fn:struct:get", (STRUCT, B), "x"),
        ("fn:some", (3,), 3),
    ],
)
def test_collections(name: str, args: tuple[Value, ...], result: Value) -> None:
    assert call(name, *args) == result


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("fn:list:append", (1, 2), "fn:list:append takes a list, not the number 1"),
        ("fn:list:cons", (1, Pair(1, 2)), "fn:list:cons takes a list, not the pair fn:pair(1, 2)"),
        ("fn:list:get", (lst(1, 2), 2), "fn:list:get takes an index of the list [1, 2], not the number 2"),
        ("fn:list:get", (lst(1, 2), -1), "fn:list:get takes an index of the list [1, 2], not the number -1"),
        ("fn:list:get", (lst(1), "0"), 'fn:list:get takes a number, not the string "0"'),
        ("fn:list:len", (STRUCT,), 'fn:list:len takes a list, not the struct {/a : 1, /b : "x"}'),
        ("fn:map", ("a", 1, "a", 1), 'fn:map takes each key once, but the string "a" is repeated'),
        ("fn:struct", (A, 1, A, 2), "fn:struct takes each label once, but the name /a is repeated"),
        ("fn:map:get", (STRUCT, A), 'fn:map:get takes a map, not the struct {/a : 1, /b : "x"}'),
        ("fn:map:get", (MAP, A), 'fn:map:get takes a key of the map ["a" : 1, "b" : 2], not the name /a'),
        ("fn:struct:get", (MAP, A), 'fn:struct:get takes a struct, not the map ["a" : 1, "b" : 2]'),
        (
            "fn:struct:get",
            (Struct(), A),
            "fn:struct:get takes a label of the struct {}, not the name /a",
        ),
    ],
)
def test_faults(name: str, args: tuple[Value, ...], message: str) -> None:
    assert fault(name, *args) == message
