"""A text that is kept as its pattern and its names comes back to the letter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.harness.patterns import expanded, read_pattern, write_pattern
from manglecp.harness.shapes import Filled, Template, names_in

A, B, C = (sha256(one).hexdigest().encode() for one in (b"A", b"B", b"C"))

between = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["%", "%b", "%%", "%%b", '"', "\\", '\\"', "\x1a", "\n", "…", "[0,64]", '",[0,64],"', "\U0001f600", "ab", "\x7f"]
)
digits = st.text("0123456789abcdef", min_size=32, max_size=70).map(str.encode)


def unpacked(filled: Filled) -> bytes | None:
    """Made again of what is kept of it."""
    if filled.names is None:
        return None
    parts = read_pattern(filled.written_pattern, filled.pattern.digest)
    return expanded(parts, filled.names, len(filled.text)).encode()


def filled(text: bytes, *values: bytes) -> Filled:
    """A text with the places of A and B, and of what comes there instead."""
    return Filled(Template(text, {A: 0, B: 1}), values or (A, B))


@given(st.lists(between | digits))
def test_a_text_comes_back(parts: list[str | bytes]) -> None:
    """Any text: every second of its names is one of the pattern."""
    text = b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)
    names = [*names_in(text)][::2]
    template = Template(text, {name: number for number, name in enumerate(names)})
    even = sum(map(len, names)) % 2 == 0
    assert unpacked(Filled(template, names)) == (text if even else None)
    others = [name.translate(bytes.maketrans(b"0123456789abcdef", b"5a0f9c3b1d7e2846")) for name in names]
    again = Filled(template, others)
    assert unpacked(again) == (template.fill(others) if even else None)


@given(st.lists(st.sampled_from([A, B, C, b"%b", b'"', b" "])))
def test_what_is_its_own_is_each_name_once(parts: list[bytes]) -> None:
    text = b" ".join(parts)
    names = filled(text).names
    assert names is not None
    assert len(names) == 32 * len({A, B} & {*parts})


def test_texts_that_differ_in_names_have_one_pattern() -> None:
    def digest(text: bytes) -> bytes:
        return filled(text).pattern.digest

    one = filled(b'["%b","%b","%b"]' % (A, B, A))
    other = Filled(Template(b'["%b","%b","%b"]' % (C, B, C), {C: 5, B: 3}), [b"", b"", b"", B, b"", C])
    assert one.pattern.digest == other.pattern.digest
    assert one.names != other.names
    assert len({digest(b'["%b"]' % A), digest(b'["%b" ]' % A), digest(b'["%b","%b"]' % (A, A)), digest(b"[]")}) == 4


@pytest.mark.parametrize(
    "values",
    [
        (A.upper(), B),
        (A[:-1] + b"g", B),
        (A[:-1] + b" ", B),
        (A[:-1] + "é".encode()[:1], B),
        (A[:-2], B + b"00"),
        (A + b"0", B),
        (A, B[:-1]),
    ],
)
def test_what_is_no_name_of_the_pattern_is_not_kept_by_it(values: tuple[bytes, bytes]) -> None:
    one = filled(b'["%b","%b"]' % (A, B))
    assert one.names is not None
    assert Filled(one.template, values).names is None
    assert unpacked(one) == one.text


def test_names_of_an_odd_length_are_not_kept() -> None:
    odd = A[:-1]
    assert Filled(Template(b'["%b"]' % odd, {odd: 0}), [odd]).names is None
    both = Filled(Template(b'["%b","%b"]' % (odd, B[:-1]), {odd: 0, B[:-1]: 1}), [odd, B[:-1]])
    assert unpacked(both) == both.text


class Meanwhile(list[bytes]):
    """Values; while they are looked at, somebody else asks for the pattern of others."""

    def __init__(self, values: Sequence[bytes], other: Filled) -> None:
        super().__init__(values)
        self.other = other

    def __getitem__(self, number: Any) -> Any:
        assert self.other.names is not None
        return super().__getitem__(number)


def test_of_two_who_find_out_at_once_one_is_right() -> None:
    """Whatever is told of a pattern is told of the same one."""
    template = Template(b'["%b","%b"]' % (A, B[:32]), {A: 0, B[:32]: 1})
    first = Filled(template, [A, B[:32]])
    second = Filled(template, Meanwhile([A[:32], B], first))
    assert second.names is None
    assert unpacked(first) == first.text


def test_as_json() -> None:
    one = filled('{"é":"%b","b":["%b","%b"]}'.encode() % (A, B, A))
    assert json.loads(one.written_pattern) == ['{"é":"', [0, 64], '","b":["', [64, 128], '","', [0, 64], '"]}']


# --- patterns that somebody else wrote ------------------------------------------------------------------------------


def read(parts: object) -> str:
    written = json.dumps(parts).encode()
    return expanded(read_pattern(written, sha256(written).digest()), bytes(32), 1_000)


def test_another_one_is_not_taken_for_it() -> None:
    written = write_pattern(["a", "b"], [(0, 2)])
    assert read_pattern(written, sha256(written).digest()) == ["a", (0, 2), "b"]
    with pytest.raises(ValueError, match="another pattern"):
        read_pattern(written.replace(b"b", b"c"), sha256(written).digest())


@pytest.mark.parametrize(
    "parts",
    [
        *[None, {}, "text", [1], [None], [["a", 1]], [[0]], [[0, 1, 2]], [[0, 1.5]], [["0", "1"]]],
        *[[[-1, 2]], [[0, 65]], [[3, 2]], [[0, -1]], [[64, 65]], [[2**70, 2**70]]],
    ],
)
def test_one_that_is_none(parts: object) -> None:
    with pytest.raises(ValueError, match=r"Expected|out of range|not among the names"):
        read(parts)


def test_one_that_would_make_very_much_of_a_few_names() -> None:
    assert read([[0, 64]] * 15) == "0" * 960
    for parts in ([[0, 64]] * 16, ["x" * 1_001], [[0, 64], "x" * 937], [[0, 64]] * 100_000):
        with pytest.raises(ValueError, match="too long"):
            read(parts)
