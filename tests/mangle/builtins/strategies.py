"""Values of every kind, and values that an entry asks for."""

import re

from hypothesis import strategies as st

from manglecp.mangle.builtins.calendar import CIVIL_UNITS, FIXED_UNITS, FORMAT_LENGTHS
from manglecp.mangle.values import (
    FALSE,
    INT_MAX,
    INT_MIN,
    NEG_INF,
    POS_INF,
    TRUE,
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

# The edges are where integers overflow; a uniform draw would hardly ever meet them.
INT64 = st.one_of(
    st.integers(INT_MIN, INT_MAX), st.integers(-3, 3), st.sampled_from([INT_MIN, INT_MIN + 1, INT_MAX - 1, INT_MAX])
)
_PART = st.text("abz09._-~%", min_size=1, max_size=4)
_UNITS = sorted({*CIVIL_UNITS, *FIXED_UNITS, *FORMAT_LENGTHS})
_ODD_TEXTS = [
    *[
        "",
        "UTC",
        "Europe/Berlin",
        "America/Sao_Paulo",
        "Local",
        "../x",
        "/etc/localtime",
        "Europe/",
        "Europe",
        "posixrules",
        "a\0b",
        "é",
        "tzdata",
        ".",
    ],
    *["2026-01-15T12:00:00Z", "2026-02-30T12:00:00Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59.9-23:59"],
    *["2026-03-08T02:30:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59"],
    *["0", "-0", "+", "1.s", ".5s", ".s", "1h30m", "-2.5ms", "1d", "9" * 30 + "h", "0." + "9" * 30 + "h"],
]

NAMES = st.one_of(
    st.lists(_PART, min_size=1, max_size=3).map(lambda parts: Name("/" + "/".join(parts))),
    st.sampled_from([TRUE, FALSE, *map(Name, _UNITS)]),
)
STRINGS = st.one_of(st.text(max_size=6), st.sampled_from(_ODD_TEXTS))
FLOATS = st.floats().map(Float)
TIMES = st.one_of(INT64.map(Time), st.sampled_from([NEG_INF, POS_INF]))
DURATIONS = INT64.map(Duration)
ATOMS: st.SearchStrategy[Value] = st.one_of(
    INT64, STRINGS, NAMES, FLOATS, TIMES, DURATIONS, st.binary(max_size=4).map(Bytes)
)


def _entries(keys: st.SearchStrategy[Value], values: st.SearchStrategy[Value]) -> st.SearchStrategy[dict[Value, Value]]:
    return st.dictionaries(keys, values, max_size=3)


def _nested(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.one_of(
        st.builds(Pair, inner, inner),
        st.lists(inner, max_size=3).map(lambda items: List(tuple(items))),
        _entries(inner, inner).map(lambda entries: Map(tuple(entries.items()))),
        _entries(NAMES, inner).map(lambda entries: Struct(tuple(entries.items()))),
    )


VALUES: st.SearchStrategy[Value] = st.recursive(ATOMS, _nested, max_leaves=6)

_OF_TYPE: dict[str, st.SearchStrategy[Value]] = {
    "/number": INT64,
    "/float64": FLOATS,
    "/string": STRINGS,
    "/name": NAMES,
    "/time": TIMES,
    "/duration": DURATIONS,
}


def of_type(text: str) -> st.SearchStrategy[Value]:
    """Mostly values of a type, and now and then any other."""
    return st.one_of(_exactly(text), _exactly(text), VALUES)


def _exactly(text: str) -> st.SearchStrategy[Value]:
    if text in _OF_TYPE:
        return _OF_TYPE[text]
    of_parts = re.fullmatch(r"fn:(\w+)\((.*)\)", text)
    if of_parts is None:
        return VALUES
    constructor, parts = of_parts[1], [part for part in of_parts[2].split(", ") if part]
    match constructor:
        case "Union":
            return st.one_of([_exactly(part) for part in parts])
        case "List":
            return st.lists(_exactly(parts[0]), max_size=4).map(lambda items: List(tuple(items)))
        case "Pair":
            return st.builds(Pair, _exactly(parts[0]), _exactly(parts[1]))
        case "Map":
            return _entries(_exactly(parts[0]), _exactly(parts[1])).map(lambda e: Map(tuple(e.items())))
        case "Struct":
            return _entries(NAMES, VALUES).map(lambda e: Struct(tuple(e.items())))
        case "Singleton":
            return st.just(Name(parts[0]))
    raise AssertionError(f"no values known for {text}")
