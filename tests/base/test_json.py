"""Canonical JSON: the examples of RFC 8785, and properties held against a plain description of it."""

from __future__ import annotations

import json
import math
import struct
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from manglecp.base.digest import digest
from manglecp.base.json import Uncanonical, canonical

NUMBERS = {  # appendix B: IEEE 754 bits, and what ECMAScript writes
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text() | st.just("\ud800"),
    lambda some: st.lists(some) | st.lists(some).map(tuple) | st.dictionaries(st.text() | st.just("\udfff"), some),
    max_leaves=8,
)


@pytest.mark.parametrize(("bits", "text"), NUMBERS.items())
def test_numbers_of_the_rfc(bits: str, text: str) -> None:
    [number] = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical([number]) == f"[{text}]".encode()
    assert canonical(number) == text.encode()


def test_the_example_of_the_rfc() -> None:
    given = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    expected = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical(given) == expected.encode()


def test_keys_are_sorted_as_the_rfc_sorts_them() -> None:
    given = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }
    assert list(json.loads(canonical(given))) == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, -(2**63), 2**64 + 1, 10**30])
def test_integers_are_written_with_all_digits(number: int) -> None:
    """The one difference to the RFC, which has no integers."""
    assert canonical({"id": number}) == canonical({"id": number, "é": 0.5})[:-10] + b"}"
    assert canonical([number]) == f"[{number}]".encode()


def test_a_digest_is_of_the_canonical_bytes() -> None:
    """A client in another language can compute it."""
    assert digest({"b": 1.0, "a": "ü", "id": 9007199254740993}) == digest({"id": 9007199254740993, "a": "ü", "b": 1})
    assert digest({"amount": 12.50, "to": "kim"}) == (
        "sha256:998bb2c33619d276b0f21314499552f32c8af2b8c77baca604b58660d665585e"
    )


def plainly(value: Any) -> Any:
    """The value that is written; a ValueError if it has no canonical form."""
    if isinstance(value, str):
        value.encode()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError
        return int(Decimal(repr(value))) if value.is_integer() and abs(value) < 1e21 else value  # its digits, and zeros
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return {key: plainly(value[key]) for key in keys if plainly(key) == key}
    if isinstance(value, list | tuple):
        return [plainly(item) for item in value]
    return value


@given(values)
@example({"a": 1e16, "b": 9.9e15, "c": 1e-4, "d": 9e-5, "e": -0.0, "f": -0.5, "g": 0.0, "h": 1.0})
@example([{"é": ["…"], "z": {"ÿ": None}}])
@example([{"a": ["\ud800"]}])
@example([{"\ud800": 1}])
@example({"a": (1, 2.5)})
@example({"\ufb33": 1, "\U0001f600": 2})
def test_every_value_is_written_in_one_way(value: Any) -> None:
    try:
        plain = plainly(value)
    except ValueError:
        with pytest.raises(Uncanonical):
            canonical(value)
        return
    expected = json.loads(json.dumps(plain))
    written = json.loads(canonical(value))
    assert written == expected
    assert list(_keys(written)) == list(_keys(expected))
    assert canonical(written) == canonical(value)


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
