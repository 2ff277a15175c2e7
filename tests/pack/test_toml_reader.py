"""Where keys stand: the line that is told is the line that was written."""

from __future__ import annotations

import tomllib

from hypothesis import given, strategies as st

from manglecp.pack.toml_reader import KeyPath, KeyPositions

VALUES = st.sampled_from(
    [
        "1",
        '"a # [b]"',
        "'c = {'",
        '"\\" ]"',
        '"""one\n[two]\nthree = \\""" 4\n"" five"""',
        '"""six"""""',
        "'''seven\n[[eight]]\n''nine'''",
        "[ # ten ]\n  1, [2,\n 3],\n]",
        "[{ a = 1 }, { b = '}' }]",
        '{ c = "]", d = [1] }',
        "1979-05-27T07:32:00Z",
    ]
)
NOISE = st.sampled_from(["", "\n", "# [comment]\n", "  \n\t\n"])


KEYS: list[tuple[str, KeyPath]] = [
    ("plain", ("plain",)),
    ('"quoted \\u0041"', ("quoted A",)),
    ("'literal.key'", ("literal.key",)),
    ("dotted . key", ("dotted", "key")),
]
TABLES: list[tuple[str, KeyPath]] = [
    ("[table]", ("table",)),
    ("[ outer . 'in.ner' ] # why", ("outer", "in.ner")),
    ("[[list]]", ("list", 0)),
    ("[[list]]", ("list", 1)),
    ("[list.inner]", ("list", 1, "inner")),
]


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[KeyPath, int]]:
    """A text, and the line of every table and key in it."""
    text, lines = "", {}
    for header, table in [("", ()), *TABLES]:
        text += draw(NOISE)
        if header:
            lines[table] = text.count("\n") + 1
            text += header + "\n"
        for written, key in draw(st.lists(st.sampled_from(KEYS), unique=True)):
            text += draw(NOISE)
            lines[(*table, *key)] = text.count("\n") + 1
            text += f"{written} = {draw(VALUES)}\n"
    return text, lines


@given(documents())
def test_every_key_is_found_on_its_line(document: tuple[str, dict[KeyPath, int]]) -> None:
    text, lines = document
    tomllib.loads(text)
    places = KeyPositions(text)
    assert {path: places.of(path)[0] for path in lines} == lines


def test_what_is_inside_of_a_value_stands_where_the_value_does() -> None:
    places = KeyPositions("a = 1\nb = { c = { d = [\n1, 2] } }\n")
    assert places.of(("b", "c", "d", 1)) == (2, 1)
    assert places.of(("nothing",)) == (None, None)
