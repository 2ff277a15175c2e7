"""The canonical JSON of harness v1: golden values, and properties held against a plain description of it."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from manglecp.base.json import Uncanonical
from manglecp.harness.canonical_v1 import canonical, digest_v1

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text() | st.just("\ud800"),
    lambda some: st.lists(some) | st.lists(some).map(tuple) | st.dictionaries(st.text() | st.just("\udfff"), some),
    max_leaves=8,
)


def test_golden_values() -> None:
    """The bytes are a format that others define: they never change."""
    value = {"b": 1.0, "a": [1e16, 1e-7, -0.0, 0.5], "\ufb33": 1, "\U0001f600": "ü", "id": 2**63}
    text = '{"a":["1e+16","1e-07","-0.0",0.5],"b":1.0,"id":9223372036854775808,"\ufb33":1,"\U0001f600":"ü"}'
    assert canonical(value) == text.encode()
    assert digest_v1(value) == "sha256:ebc6d8983c882846fe437a221b882881207c88d524b502052eff40ebe36e3515"
    assert digest_v1({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def plainly(value: Any) -> Any:
    """The value that is written; a ValueError if it has no canonical form."""
    if isinstance(value, str):
        value.encode()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError
        if "e" in repr(value) or str(value) == "-0.0":
            return repr(value)
    if isinstance(value, dict):
        return {key: plainly(value[key]) for key in sorted(value) if plainly(key) == key}
    if isinstance(value, list | tuple):
        return [plainly(item) for item in value]
    return value


@given(values)
@example({"a": 1e16, "b": 9.9e15, "c": 1e-4, "d": 9e-5, "e": -0.0, "f": -0.5, "g": 0.0})
@example([{"é": ["…"], "z": {"ÿ": None}}])
@example([{"a": ["\ud800"]}])
@example([{"\ud800": 1}])
@example({"a": (1, 2.5)})
def test_every_value_is_written_in_one_way(value: Any) -> None:
    try:
        plain = plainly(value)
    except ValueError:
        with pytest.raises(Uncanonical):
            canonical(value)
        return
    expected = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    assert json.loads(canonical(value)) == json.loads(expected)
    assert list(_keys(json.loads(canonical(value)))) == list(_keys(json.loads(expected)))


def _keys(value: Any) -> Any:
    if isinstance(value, dict):
        for key, part in value.items():
            yield key
            yield from _keys(part)
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item)


@pytest.mark.parametrize("odd", [{1: 2}, {"a": b"bytes"}, [{"a": {1.5: 1}}], {"a": [float("nan")]}, [{2}]])
def test_what_json_does_not_have_is_refused(odd: Any) -> None:
    with pytest.raises(Uncanonical):
        canonical(odd)


def test_what_is_nested_very_deep_is_refused() -> None:
    def nested(depth: int) -> Any:
        value: Any = []
        for _ in range(depth):
            value = [value]
        return value

    assert canonical(nested(200)) == b"[" * 201 + b"]" * 201
    with pytest.raises(Uncanonical):
        canonical(nested(201))


@given(st.dictionaries(st.text(), values, max_size=4), st.text())
def test_what_was_written_before_may_be_a_part(rest: dict[str, Any], name: str) -> None:
    part = {"b": [1e-9, "…"], "a": {"z": None}}
    written = msgspec.Raw(canonical(part))
    try:
        whole = canonical({**rest, name: part, "also": [part]})
    except Uncanonical:
        with pytest.raises(Uncanonical):
            canonical({**rest, name: written, "also": [written]})
    else:
        assert canonical({**rest, name: written, "also": [written]}) == whole
