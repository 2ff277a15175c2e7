"""Built-in predicates: comparisons, tests of texts and intervals, and matches that destructure values.

A match fails for a value of another kind. A comparison with a value of the wrong kind, or a pattern that is not a
string, raises ValueFault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import eq, ge, gt, le, lt
from types import MappingProxyType
from typing import Any, Final

from manglecp.base import regex
from manglecp.base.text import escape_unprintable, truncate
from manglecp.mangle.builtins.registry import Predicate, describe, duration, instant, interval, name, number, string
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.values import NULL, TRUE, Bytes, Duration, Float, List, Map, Name, Pair, Struct, Time, Value

Solutions = Iterable[tuple[Value, ...]]

_HOLDS: Final = ((),)
_FAILS: Final = ()


def _test(op: str, params: tuple[str, ...], holds: Callable[..., bool], doc: str) -> Predicate:
    """Return a predicate without outputs. ``holds`` gets the name of the predicate, for messages, and the arguments."""

    def solve(args: tuple[Value, ...]) -> Solutions:
        return _HOLDS if holds(op, *args) else _FAILS

    return Predicate(op, "+" * len(params), params, solve, doc)


# By kind: a function that returns the Python value by which values are compared.
# Floats compare as IEEE doubles: every comparison with NaN is false.
_COMPARISON_KEYS: Final[dict[type, Callable[[Any], Any]]] = {
    int: lambda value: value,
    Float: lambda value: value.value,
    str: lambda value: value,
    Name: lambda value: value.text,
    Time: lambda value: value.ns,
    Duration: lambda value: value.ns,
}


def _comparison(holds: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def body(op: str, left: Value, right: Value) -> bool:
        kind = type(left)
        comparison_key = _COMPARISON_KEYS.get(kind)
        if comparison_key is None or type(right) is not kind:
            raise ValueFault(
                f"{op} takes two numbers, float64s, strings, names, times or durations, "
                f"not {describe(left)} and {describe(right)}"
            )
        return holds(comparison_key(left), comparison_key(right))

    return body


def _ns_comparison(read_ns: Callable[[str, Value], int], holds: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    return lambda op, left, right: holds(read_ns(op, left), read_ns(op, right))


def _match_prefix(op: str, value: Value, prefix: Value) -> bool:
    prefix_text = name(op, prefix)
    return isinstance(value, Name) and value.text.startswith(prefix_text) and value.text != prefix_text


def _text_test(holds: Callable[[str, str], bool]) -> Callable[..., bool]:
    def body(op: str, text: Value, pattern: Value) -> bool:
        pattern_text = string(op, pattern)
        return type(text) is str and holds(text, pattern_text)

    return body


def _pattern_test(holds: Callable[[str, str], bool]) -> Callable[..., bool]:
    def body(op: str, text: Value, pattern: Value) -> bool:
        pattern_text = string(op, pattern)
        if len(pattern_text) > regex.MAX_PATTERN:
            raise ValueFault(f"{op} takes a pattern of at most {regex.MAX_PATTERN} characters, not {len(pattern_text)}")
        if type(text) is not str:
            return False
        if len(text) > regex.MAX_TEXT:
            raise ValueFault(f"{op} takes a text of at most {regex.MAX_TEXT} characters, not {len(text)}")
        try:
            return holds(pattern_text, text)
        except regex.InvalidPattern as invalid:
            reason = truncate(escape_unprintable(str(invalid)))
            raise ValueFault(f"{op} takes a regular expression, not {describe(pattern)}: {reason}") from None

    return body


def _kind_test(kind: str, type_: str, class_: type, doc: str) -> Predicate:
    return _test(f":is_{kind}", (type_,), lambda _op, value: type(value) is class_, doc)


def _member(args: tuple[Value, ...]) -> Solutions:
    (sequence,) = args
    return [(item,) for item in dict.fromkeys(sequence.items)] if isinstance(sequence, List) else _FAILS


def _match_cons(args: tuple[Value, ...]) -> Solutions:
    (sequence,) = args
    if isinstance(sequence, List) and sequence.items:
        return ((sequence.items[0], List(sequence.items[1:])),)
    return _FAILS


def _match_index(args: tuple[Value, ...]) -> Solutions:
    sequence, index = args
    value = _step(sequence, index) if isinstance(sequence, List) else None
    return _FAILS if value is None else ((value,),)


def _enumerate(args: tuple[Value, ...]) -> Solutions:
    (sequence,) = args
    return list(enumerate(sequence.items)) if isinstance(sequence, List) else _FAILS


def _match_path(args: tuple[Value, ...]) -> Solutions:
    value, path = args
    current: Value | None = value
    for step in path.items if isinstance(path, List) else (None,):
        if current is None or step is None:
            return _FAILS
        current = _step(current, step)
    return _FAILS if current is None else ((current,),)


def _step(value: Value, step: Value) -> Value | None:
    """Return the element of a list, the value of a map or the field of a struct at ``step``; None without one."""
    if isinstance(value, List):
        return value.items[step] if type(step) is int and 0 <= step < len(value.items) else None
    return value.get(step) if isinstance(value, Map | Struct) else None


def _match_pair(args: tuple[Value, ...]) -> Solutions:
    (value,) = args
    return ((value.first, value.second),) if isinstance(value, Pair) else _FAILS


def _match_entry(kind: type[Map | Struct]) -> Callable[[tuple[Value, ...]], Solutions]:
    def solve(args: tuple[Value, ...]) -> Solutions:
        entries, key = args
        value = entries.get(key) if isinstance(entries, kind) else None
        return _FAILS if value is None else ((value,),)

    return solve


Ends = tuple[int, int]  # first and last point of a closed interval


def _relation(holds: Callable[[Ends, Ends], bool]) -> Callable[..., bool]:
    """Return a test of two closed intervals, each a pair of times or of numbers."""

    def body(op: str, left: Value, right: Value) -> bool:
        match left, right:
            case Pair(first=int(s1), second=int(e1)), Pair(first=int(s2), second=int(e2)):
                return holds((s1, e1), (s2, e2))
        (start, end), (other_start, other_end) = interval(op, left), interval(op, right)
        return holds((start.ns, end.ns), (other_start.ns, other_end.ns))

    return body


def _overlaps(i: Ends, j: Ends) -> bool:
    return i[0] <= j[1] and j[0] <= i[1]


_ORDERED: Final = ("fn:Union(/number, /float64, /string, /name, /time, /duration)",) * 2
_TIMES: Final = ("/time", "/time")
_SPANS: Final = ("/duration", "/duration")
_TEXTS: Final = ("/string", "/string")
_INTERVALS: Final = ("fn:Pair(/time, /time)",) * 2
_BOOL: Final = "fn:Union(fn:Singleton(/true), fn:Singleton(/false))"
_L: Final = "fn:List(X)"
_PATH: Final = ("/any", "fn:List(/any)", "/any")

_ENTRIES: Final = (
    _test(":lt", _ORDERED, _comparison(lt), "The first is less; also written <."),
    _test(":le", _ORDERED, _comparison(le), "The first is not greater; also written <=."),
    _test(":gt", _ORDERED, _comparison(gt), "The first is greater; also written >."),
    _test(":ge", _ORDERED, _comparison(ge), "The first is not less; also written >=."),
    _test(":time:lt", _TIMES, _ns_comparison(instant, lt), "The first is earlier."),
    _test(":time:le", _TIMES, _ns_comparison(instant, le), "The first is not later."),
    _test(":time:gt", _TIMES, _ns_comparison(instant, gt), "The first is later."),
    _test(":time:ge", _TIMES, _ns_comparison(instant, ge), "The first is not earlier."),
    _test(":duration:lt", _SPANS, _ns_comparison(duration, lt), "The first is shorter."),
    _test(":duration:le", _SPANS, _ns_comparison(duration, le), "The first is not longer."),
    _test(":duration:gt", _SPANS, _ns_comparison(duration, gt), "The first is longer."),
    _test(":duration:ge", _SPANS, _ns_comparison(duration, ge), "The first is not shorter."),
    _test(
        ":within_distance",
        ("/number",) * 3,
        lambda op, left, right, distance: abs(number(op, left) - number(op, right)) < number(op, distance),
        "Two numbers differ by less than the third.",
    ),
    _test(
        ":match_prefix",
        ("/name", "/name"),
        _match_prefix,
        "The text of a name starts with that of the other and is longer: /ab starts with /a.",
    ),
    _test(":string:starts_with", _TEXTS, _text_test(str.startswith), "A text starts with another."),
    _test(":string:ends_with", _TEXTS, _text_test(str.endswith), "A text ends with another."),
    _test(":string:contains", _TEXTS, _text_test(str.__contains__), "A text has another somewhere."),
    _test(":string:has_word", _TEXTS, _pattern_test(regex.has_word), "A text has a whole word or phrase, in any case."),
    _test(":string:matches", _TEXTS, _pattern_test(regex.searches), "A part of a text matches a regular expression."),
    _kind_test("string", "/string", str, "The value is a string."),
    _kind_test("number", "/number", int, "The value is a whole number."),
    _kind_test("float64", "/float64", Float, "The value is a float64."),
    _kind_test("name", "/name", Name, "The value is a name; /true, /false and /null are."),
    _kind_test("bytes", "/bytes", Bytes, "The value is a byte string."),
    _kind_test("time", "/time", Time, "The value is a time."),
    _kind_test("duration", "/duration", Duration, "The value is a duration."),
    _kind_test("list", "fn:List(/any)", List, "The value is a list."),
    _kind_test("map", "fn:Map(/any, /any)", Map, "The value is a map, as JSON objects are."),
    _kind_test("struct", "fn:Struct()", Struct, "The value is a struct."),
    _kind_test("pair", "fn:Pair(/any, /any)", Pair, "The value is a pair."),
    _test(
        ":is_null", ("fn:Singleton(/null)",), lambda _op, value: value is NULL, "The value is /null, as JSON null is."
    ),
    _test(":filter", (_BOOL,), lambda _op, value: value is TRUE, "The value is /true."),
    Predicate(":list:member", "-+", ("X", _L), _member, "Each element of a list, once."),
    Predicate(":list:enumerate", "+--", (_L, "/number", "X"), _enumerate, "Each index, from 0, and its element."),
    Predicate(":match_index", "++-", (_L, "/number", "X"), _match_index, "The element at an index, from 0."),
    Predicate(":match_path", "++-", _PATH, _match_path, "The value at a list of keys, labels and indices."),
    Predicate(":match_cons", "+--", (_L, "X", _L), _match_cons, "First element and rest."),
    _test(":match_nil", (_L,), lambda _op, list_: isinstance(list_, List) and not list_.items, "The list is empty."),
    Predicate(":match_pair", "+--", ("fn:Pair(X, Y)", "X", "Y"), _match_pair, "The two parts of a pair."),
    Predicate(":match_entry", "++-", ("fn:Map(K, V)", "K", "V"), _match_entry(Map), "The value of a key."),
    Predicate(":match_field", "++-", ("/any", "/name", "/any"), _match_entry(Struct), "The value of a label."),
    _test(":interval:before", _INTERVALS, _relation(lambda i, j: i[1] < j[0]), "I ends before J starts."),
    _test(":interval:after", _INTERVALS, _relation(lambda i, j: i[0] > j[1]), "I starts after J ends."),
    _test(":interval:meets", _INTERVALS, _relation(lambda i, j: i[1] == j[0]), "I ends where J starts."),
    _test(":interval:overlaps", _INTERVALS, _relation(_overlaps), "I and J share an instant."),
    _test(":interval:during", _INTERVALS, _relation(lambda i, j: j[0] <= i[0] and i[1] <= j[1]), "I lies in J."),
    _test(":interval:contains", _INTERVALS, _relation(lambda i, j: i[0] <= j[0] and j[1] <= i[1]), "J lies in I."),
    _test(":interval:starts", _INTERVALS, _relation(lambda i, j: i[0] == j[0]), "I and J start together."),
    _test(":interval:finishes", _INTERVALS, _relation(lambda i, j: i[1] == j[1]), "I and J end together."),
    _test(":interval:equals", _INTERVALS, _relation(eq), "I and J are the same."),
)

PREDICATES: Final[Mapping[str, Predicate]] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
