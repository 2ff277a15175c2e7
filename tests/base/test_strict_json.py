from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.base.strict_json import Fault, brackets, decode, is_deeper_than

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
tricky = st.sampled_from(['":', '\\"', "a: ", ": ", '\\":'])
documents = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), texts, tricky),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=10,
)


@given(documents, st.booleans())
def test_what_json_writes_is_read(document: Any, ascii_only: bool) -> None:
    assert decode(json.dumps(document, ensure_ascii=ascii_only).encode()) == document


@pytest.mark.req("WIRE-17")
def test_characters_beyond_the_first_plane_survive() -> None:
    assert decode(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1, "a": 2}', "an object has the key 'a' twice"),
        (b'{"a": 1, "\\u0061": 2}', "an object has the key 'a' twice"),
        (b'[{"b": {"x": 1, "y": 2, "x" : 3}}]', "an object has the key 'x' twice"),
        (rb'{"a\\": 1, "a\\": 2}', "an object has the key 'a\\' twice"),
        (rb'[{"a": ":", "a": 1}, "\":", ":"]', "an object has the key 'a' twice"),
        (rb'{"a": 1, "a": "\u003a"}', "an object has the key 'a' twice"),
        (rb'{"a": 1, "a": "\u003A"}', "an object has the key 'a' twice"),
        (rb'{"a": 1, "a": "\u0022:"}', "an object has the key 'a' twice"),
        (rb'{"a": 1, "a": "\u0020:"}', "an object has the key 'a' twice"),
        (b'{"a"\n: 1, "a" :\t2, "b": " :"}', "an object has the key 'a' twice"),
        (b'"\xff"', "not UTF-8: byte 0xff"),
        (b"[" * 100_000, "nested too deeply"),
        (b'"\\ud800"', "not JSON"),
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"1 2", "not JSON: trailing characters"),
        (b"NaN", "not JSON"),
        (b"[1e999]", "not JSON"),
    ],
)
def test_what_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(Fault) as refused:
        decode(data)
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b'{"a": 1, "a": 2}', "$"),
        (b'[{"a": 1}, {"b": [0, {"c": [], "x": 1, "x": 2}]}, {"a": 1, "a": 2}]', "$[1].b[1]"),
        (b'{"a": {"b": 1, "b": 2}, "a": 1}', "$"),
        (b'{"a": {"b": {}}, "c": [[], [{}, {"b": 1, "b": 2}]]}', "$.c[1][1]"),
    ],
)
def test_the_way_to_the_object_that_has_a_key_twice(data: bytes, path: str) -> None:
    with pytest.raises(Fault) as refused:
        decode(data)
    assert refused.value.path == path


def test_the_same_key_in_two_objects_is_fine() -> None:
    assert decode(b'[{"a": 1}, {"a": {"a": "a"}}]') == [{"a": 1}, {"a": {"a": "a"}}]


_spellings = st.sampled_from(
    [
        r'"a"',
        r'"\u0061"',
        r'":"',
        r'"\u003a"',
        r'"\u003A"',
        r'" :"',
        r'"\u0020:"',
        r'"\":"',
        r'"\u0022:"',
        r'"\\"',
        r'"\\\":"',
    ]
)
_blanks = st.sampled_from(["", " ", "\n", "\t \r"])
_entries = st.tuples(_spellings, _blanks, _blanks).map(lambda parts: f"{parts[0]}{parts[1]}:{parts[2]}")
written = st.recursive(
    st.one_of(_spellings, st.just("1")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(_entries, inner).map("".join), max_size=3).map(lambda entries: f"{{{' ,'.join(entries)}}}"),
    ),
    max_leaves=8,
)


@given(written)
def test_a_key_that_stands_twice_is_found_however_it_is_written(text: str) -> None:
    twice = False

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        twice = twice or len(dict(pairs)) < len(pairs)
        return dict(pairs)

    document = json.loads(text, object_pairs_hook=look)
    if twice:
        with pytest.raises(Fault, match="twice"):
            decode(text.encode())
    else:
        assert decode(text.encode()) == document


@given(st.binary(max_size=30))
def test_any_bytes_are_json_or_a_fault(data: bytes) -> None:
    with suppress(Fault):
        decode(data)


# --- depth and number ------------------------------------------------------------------------------------------------

_nasty = st.text(st.sampled_from('[]{}"\\/,: a\u00e9\u2028'), max_size=6)
_trees: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.integers(0, 9), _nasty),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_nasty, inner, max_size=3)),
    max_leaves=12,
)


def _parts(tree: Any) -> list[Any]:
    return list(tree.values()) if isinstance(tree, dict) else tree if isinstance(tree, list) else []


def _count(tree: Any) -> int:
    return isinstance(tree, dict | list) + sum(map(_count, _parts(tree)))


def _depth(tree: Any) -> int:
    return isinstance(tree, dict | list) and 1 + max(map(_depth, _parts(tree)), default=0)


@given(_trees, st.integers(0, 12), st.booleans(), st.sampled_from([None, 2]))
def test_brackets_are_counted_in_the_text(tree: Any, around: int, ascii_: bool, indent: int | None) -> None:
    for step in range(around):
        tree = [tree] if step % 2 else {'"]}': tree}
    outline = brackets(json.dumps(tree, ensure_ascii=ascii_, indent=indent).encode())
    assert len(outline) == 2 * _count(tree)
    depth = _depth(tree)
    assert depth < 9 or is_deeper_than(depth - 1, outline)  # no limit is as low as that
    assert not is_deeper_than(max(depth, 8), outline)
