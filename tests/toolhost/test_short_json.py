"""JSON by the short way: the same values, the same texts and the same refusals as by the long one."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.toolhost.canonical import unique
from manglecp.toolhost.short_json import reader, writer

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
spaces = st.text(" \t\n\r\v\u00a0", max_size=3)


def outcome(read: Callable[[str], Any], text: str) -> tuple[str, Any]:
    try:
        return "read", repr(read(text))
    except (ValueError, RecursionError) as error:
        return type(error).__name__, str(error)


def strict() -> dict[str, Any]:
    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    return {"parse_constant": refuse, "object_pairs_hook": unique}


@given(before=spaces, value=values, after=spaces | st.text(max_size=3), cut=st.integers(0, 3))
def test_any_text_is_read_or_refused_as_by_the_library(before: str, value: Any, after: str, cut: int) -> None:
    text = before + json.dumps(value)[cut:] + after
    assert outcome(reader(), text) == outcome(json.JSONDecoder().decode, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 2",
        "[1]]",
        "[1,]",
        "{",
        '{"a":1} x',
        '{"a":1,"a":2}',
        "NaN",
        "[-Infinity]",
        "tru",
        "\ufeff1",
        "[" * 9_999,
    ],
)
def test_what_is_no_json_is_refused_in_the_same_words(text: str) -> None:
    for options in ({}, strict()):
        assert outcome(reader(**options), text) == outcome(json.JSONDecoder(**options).decode, text)


@given(value=st.dictionaries(st.text(), values), ensure_ascii=st.booleans())
def test_any_object_is_written_as_by_the_library(value: dict[str, Any], ensure_ascii: bool) -> None:
    library = json.JSONEncoder(separators=(",", ":"), ensure_ascii=ensure_ascii).encode
    assert writer(ensure_ascii=ensure_ascii)(value) == library(value)


@pytest.mark.parametrize(
    ("value", "error"), [(float("nan"), ValueError), (float("-inf"), ValueError), ({1}, TypeError)]
)
def test_what_json_has_no_word_for_is_not_written(value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        writer()({"a": [value]})


def test_without_its_part_in_c_the_library_writes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"a": ["ü", 1.5, None], "b": {}}
    quick = writer(ensure_ascii=False)(value)
    monkeypatch.setattr("json.encoder.c_make_encoder", None)
    assert writer(ensure_ascii=False)(value) == quick == '{"a":["ü",1.5,null],"b":{}}'
