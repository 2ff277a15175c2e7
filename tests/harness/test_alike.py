"""Texts that come again but for their names, and what is told of them."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given, strategies as st

from manglecp.harness.alike import Alike
from manglecp.harness.patterns import expanded, read_pattern


def name(text: object) -> bytes:
    return sha256(str(text).encode()).hexdigest().encode()


def told(alike: Alike, text: bytes) -> bool:
    """Is it told by what it has in common with others? Then it is made again of that, and is the same."""
    filled = alike.filled(text)
    if filled is None:
        return False
    assert filled.text == text
    assert filled.names is not None
    parts = read_pattern(filled.written_pattern, filled.pattern.digest)
    assert expanded(parts, filled.names, len(text)).encode() == text
    return True


def test_from_the_second_time_on() -> None:
    alike = Alike(10)
    texts = [b'["%b","%b","%b"]' % (name(n), name(-n), name(n)) for n in range(1, 5)]
    assert [told(alike, text) for text in texts] == [False, True, True, True]
    digests = {filled.pattern.digest for text in texts if (filled := alike.filled(text))}
    assert len(digests) == 1


@pytest.mark.parametrize(
    "other",
    [
        b'["%b","%b","%b" ]' % (name(1), name(2), name(1)),
        b'["%b","%b","%b"]' % (name(1), name(2), name(2)),
        b'["%b","%b","%b"]' % (name(1), name(2), name(3)),
        b'["%b","%b","%b"]' % (name(1), name(2), name(1)[:31]),
        b'["%b","%b","%b"]' % (name(1), name(2)[:40], name(1)),
        b'["%b","%b","%b"]' % (name(1), name(2).upper(), name(1)),
    ],
)
def test_other_texts_are_of_another_kind(other: bytes) -> None:
    alike = Alike(10)
    for n in range(3):
        told(alike, b'["%b","%b","%b"]' % (name(n), name(-1), name(n)))
    assert not told(alike, other)
    assert told(alike, other)


def test_what_was_long_ago_is_forgotten() -> None:
    alike = Alike(3)
    assert [told(alike, b"[%d]" % n) for n in (1, 1, 2, 3, 1)] == [False, True, False, False, True]
    assert not told(alike, b"[4]")
    assert [told(alike, b"[%d]" % n) for n in (1, 3, 2)] == [True, True, False]


def test_long_texts_are_not_remembered() -> None:
    alike = Alike(3)
    assert [told(alike, b'["%b"]' % (b"x" * 65_532)) for _ in range(2)] == [False, True]
    assert [told(alike, b'["%b"]' % (b"x" * 65_533)) for _ in range(3)] == [False] * 3


@given(st.lists(st.lists(st.sampled_from([b"a", b"%b", "é".encode(), b'"', *map(name, range(4))]), max_size=5)))
def test_whatever_comes_is_told_as_it_is(texts: list[list[bytes]]) -> None:
    alike = Alike(4)
    for parts in texts:
        told(alike, b" ".join(parts))
