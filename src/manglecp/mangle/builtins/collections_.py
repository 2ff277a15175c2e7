"""Lists, pairs, maps and structs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from manglecp.mangle.builtins.registry import Function, describe, items, mapping, number, pure, struct
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.values import FALSE, TRUE, List, Map, Pair, RepeatedKey, Struct, Value, tuple_of


def _append(op: str, front: Value, last: Value) -> Value:
    return List((*items(op, front), last))


def _cons(op: str, first: Value, tail: Value) -> Value:
    return List((first, *items(op, tail)))


def _list_get(op: str, sequence: Value, index: Value) -> Value:
    elements, position = items(op, sequence), number(op, index)
    if not 0 <= position < len(elements):
        raise ValueFault(f"{op} takes an index of {describe(sequence)}, not {describe(index)}")
    return elements[position]


def _len(op: str, sequence: Value) -> Value:
    return len(items(op, sequence))


def _contains(op: str, sequence: Value, element: Value) -> Value:
    return TRUE if element in items(op, sequence) else FALSE


def _tuple(_op: str, *parts: Value) -> Value:
    return tuple_of(parts)


def _make_constructor(kind: type[Map | Struct], key_noun: str) -> Callable[..., Value]:
    def body(op: str, *keys_and_values: Value) -> Value:
        try:
            return kind(tuple(zip(keys_and_values[::2], keys_and_values[1::2], strict=True)))
        except RepeatedKey as repeated:
            raise ValueFault(f"{op} takes each {key_noun} once, but {describe(repeated.key)} is repeated") from None

    return body


def _get(read_container: Callable[[str, Value], Map | Struct], key_noun: str) -> Callable[..., Value]:
    def body(op: str, entries: Value, key: Value) -> Value:
        value = read_container(op, entries).get(key)
        if value is None:
            raise ValueFault(f"{op} takes a {key_noun} of {describe(entries)}, not {describe(key)}")
        return value

    return body


def _some(_op: str, value: Value) -> Value:
    return value  # at run time an option is its value


_L: Final = "fn:List(X)"
_BOOL: Final = "fn:Union(fn:Singleton(/true), fn:Singleton(/false))"

COLLECTIONS: Final[tuple[Function, ...]] = (
    pure("fn:list", (), _L, lambda _op, *args: List(args), "The list of the arguments; also written [a, b].", rest="X"),
    pure("fn:list:append", (_L, "X"), _L, _append, "The list with one more element at its end."),
    pure("fn:list:cons", ("X", _L), _L, _cons, "The list with one more element in front."),
    pure("fn:list:get", (_L, "/number"), "X", _list_get, "The element at an index, from 0."),
    pure("fn:list:len", (_L,), "/number", _len, "How many elements the list has."),
    pure("fn:list:contains", (_L, "X"), _BOOL, _contains, "/true if the value is in the list, else /false."),
    pure("fn:pair", ("X", "Y"), "fn:Pair(X, Y)", lambda _op, left, right: Pair(left, right), "The pair of two values."),
    pure("fn:tuple", ("X",), "/any", _tuple, "Nested pairs; of one value, the value itself.", rest="/any"),
    pure(
        "fn:map",
        (),
        "fn:Map(/any, /any)",
        _make_constructor(Map, "key"),
        "The map of keys and values in turn; also written [k : v].",
        rest="/any",
        even=True,
    ),
    pure(
        "fn:struct",
        (),
        "fn:Struct()",
        _make_constructor(Struct, "label"),
        "The struct of labels and values in turn; also written {/l : v}.",
        rest="/any",
        even=True,
    ),
    pure("fn:map:get", ("fn:Map(K, V)", "K"), "V", _get(mapping, "key"), "The value under a key that the map has."),
    pure("fn:struct:get", ("/any", "/name"), "/any", _get(struct, "label"), "The value under a label of the struct."),
    pure("fn:some", ("X",), "X", _some, "The value as an option, which is the value itself."),
)
