"""Texts, their names, and what is told by their shape."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256

import pytest
from hypothesis import given, strategies as st

from manglecp.harness.shapes import Shape, Shapes, Template, Unclear, mark_of, names_in, spans_of

NOTHING: frozenset[bytes] = frozenset()
START = Shape(None, (), b"", fixed=NOTHING)


def name(text: str) -> bytes:
    return sha256(text.encode()).hexdigest().encode()


A, B, C, D = map(name, "ABCD")


def shape_of(text: bytes, fixed: frozenset[bytes] = NOTHING, **more: object) -> Shape:
    return Shape(START, (), text, fixed=fixed, **more)  # type: ignore[arg-type]


@given(st.lists(st.binary(max_size=5) | st.text("0123456789abcdef", min_size=28, max_size=40).map(str.encode)))
def test_names_are_runs_of_digits(parts: list[bytes]) -> None:
    text = b"".join(parts)
    found, place = [], 0
    while place < len(text):
        end = place
        while text[end : end + 1] and text[end : end + 1] in b"0123456789abcdef":
            end += 1
        if end - place >= 32:
            found.append((place, end))
        place = end + 1
    assert spans_of(text) == found
    assert list(names_in(text)) == list(dict.fromkeys(text[start:end] for start, end in found))


@given(st.lists(st.sampled_from([A, B, C, b"%", b"%b", b"%%", b" ", b"abc", b'"'])))
def test_a_template_is_filled_with_what_it_was_made_of(parts: list[bytes]) -> None:
    text = b"".join(parts)
    numbers = {one: number for number, one in enumerate((A, B))}
    assert Template(text, numbers).fill([A, B]) == text
    if not any(len(one) != 64 for one in names_in(text)):
        assert Template(text, numbers).fill([b"x", b"y"]) == text.replace(A, b"x").replace(B, b"y")


def test_a_text_of_the_same_shape() -> None:
    shape = shape_of(b"%b-%b-%b" % (A, B, A))
    assert shape.match((), b"%b-%b-%b" % (C, D, C)) == [C, D]
    for other in ((C, D, D), (C, C, C), (C, D, C.upper()), (C, D.upper(), C), (C, D[:-1] + b"g", C)):
        assert shape.match((), b"%b-%b-%b" % other) is None
    assert shape.match((), b"%b+%b-%b" % (C, D, C)) is None


def test_a_name_that_is_fixed_stays() -> None:
    shape = shape_of(b"%b-%b" % (A, B), frozenset({A, D}))
    assert shape.match((), b"%b-%b" % (A, C)) == [C]
    for other in ((C, B), (A, A), (A, D)):
        assert shape.match((), b"%b-%b" % other) is None


def test_names_of_texts_before_it_are_known() -> None:
    first = shape_of(b"<%b>" % A)
    second = Shape(first, [A], b"%b-%b" % (A, B), fixed=NOTHING)
    assert second.match([C], b"%b-%b" % (C, D)) == [C, D]
    assert second.match([C], b"%b-%b" % (D, C)) is None
    assert second.match([C], b"%b-%b" % (C, C)) is None


def test_digests_of_digests_are_told() -> None:
    def hashed(text: bytes) -> tuple[list[bytes], bytes]:
        inner = b"in:" + text
        outer = b"out:%b of %b" % (sha256(inner).hexdigest().encode(), text)
        constant = b"the same %b" % C
        return [inner, constant, outer, inner], b"%b!" % sha256(outer).hexdigest().encode()

    preimages, said = hashed(A)
    shape = shape_of(A, preimages=preimages, told=[said, b"always"])
    values = shape.match((), B)
    assert values is not None
    assert [template.fill(values) for template in shape.told] == [hashed(B)[1], b"always"]


def test_a_digest_that_stands_in_its_own_text_is_unclear() -> None:
    preimage = b"of %b" % A
    digest = sha256(preimage).hexdigest().encode()
    for text, fixed in ((b"%b %b" % (A, digest), NOTHING), (A, frozenset({digest}))):
        with pytest.raises(Unclear):
            shape_of(text, fixed, preimages=[preimage])
    shape = shape_of(b"%b %b" % (A, B), preimages=[preimage])
    assert shape.match((), b"%b %b" % (A, C)) is not None
    assert shape.match((), b"%b %b" % (A, digest)) is None


@pytest.mark.parametrize("text", [A.upper(), A[:20] + A[20:].upper(), b"F" + A])
def test_capitals_are_unclear(text: bytes) -> None:
    with pytest.raises(Unclear):
        shape_of(text)


def test_names_after_a_mark_are_told_in_order() -> None:
    def said(*names: bytes) -> bytes:
        return b" ".join(b'm:%b"' % one for one in sorted(names)) + b" first " + names[0]

    three = b'm:%b" m:%b" m:%b"'
    shape = shape_of(three % (A, B, C), told=[said(A, B, C)], mark=b"m:")
    for names in ((B, C, D), (D, C, B), (C, D, A)):
        values = shape.match((), three % names)
        assert values is not None
        assert shape.told[0].fill(values) == said(*names)
    after = Shape(shape, shape.match((), three % (A, B, C)) or (), D, fixed=NOTHING)
    assert after.match(shape.match((), three % (C, B, A)) or (), D) is not None
    with pytest.raises(Unclear, match="fixed"):
        shape_of(b'm:%b" m:%b"' % (A, B), frozenset({B}), mark=b"m:")
    with pytest.raises(Unclear, match="after a name"):  # it would move with the name
        shape_of(b'm:%bx" m:%by"' % (A, B), told=[b'm:%bx" m:%by"' % (A, B)], mark=b"m:")


# --- keeping -------------------------------------------------------------------------------------------------------


def numbered(number: int) -> bytes:
    return b"%03d %b" % (number, A)


def test_what_came_last_stays() -> None:
    shapes = Shapes(most=3, most_bytes=10_000)
    kept = {number: shape_of(b"x" * number + numbered(0)) for number in range(5)}
    for number in range(3):
        shapes.keep("k", 68 + number, kept[number])
    assert shapes.find(START, "k", (), numbered(0)) is not None  # asked for, and so the newest
    for number in (3, 4):
        shapes.keep("k", 68 + number, kept[number])
    found = [shapes.find(START, "k", (), b"x" * number + numbered(0)) is not None for number in range(5)]
    assert found == [True, False, False, True, True]
    assert shapes.find(START, "another", (), numbered(0)) is None
    assert shapes.find(kept[1], "k", (), numbered(0)) is None


def test_long_ones_leave_less_room() -> None:
    shapes = Shapes(most=100, most_bytes=1_200)
    for number in range(10):
        shapes.keep("k", 468 + number, shape_of(b"y" * (400 + number) + numbered(0)))
    found = [shapes.find(START, "k", (), b"y" * (400 + number) + numbered(0)) is not None for number in range(10)]
    assert found == [False] * 8 + [True] * 2


def test_many_names_take_room_too() -> None:
    """A text of nothing but names is short without them."""
    texts = [b" ".join(b"%032x" % (number + one) for one in range(1_000)) for number in range(10)]
    tracemalloc.start()
    try:
        kept = [shape_of(text) for text in texts]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / 2 < sum(one.size for one in kept) < held * 4


def test_of_one_length_only_some_are_tried() -> None:
    shapes = Shapes(most=100, most_bytes=100_000)
    for number in range(20):
        shapes.keep("k", 68, shape_of(numbered(number)))
    found = [shapes.find(START, "k", (), numbered(number)) is not None for number in range(20)]
    assert found == [False] * 12 + [True] * 8


def test_a_text_is_learnt_when_one_like_it_comes_again() -> None:
    shapes = Shapes(most=2, most_bytes=100_000)
    one, other = (mark_of(START, "k", (), numbered(number), NOTHING) for number in (1, 2))
    assert [shapes.again(one), shapes.again(other), shapes.again(one)] == [False, False, True]
    shapes.refuse(one)
    assert not shapes.again(one)
    shapes.keep("k", 68, shape_of(numbered(2)), other)
    assert [shapes.again(other), shapes.again(other)] == [False, True], "as if it had never been there"
    for number in range(3, 2_000):
        shapes.again(mark_of(START, "k", (), numbered(number), NOTHING))
    assert not shapes.again(one)
    assert shapes.again(one), "that it was refused is forgotten"


def test_texts_of_one_shape_have_one_mark() -> None:
    def mark(*names: bytes, values: tuple[bytes, ...] = (D,), kind: str = "k", between: bytes = b" ") -> int:
        return mark_of(START, kind, values, between.join(names), frozenset({C}))

    assert mark(A, B, A) == mark(B, A, B)
    assert mark(A, D) == mark(B, A, values=(A,))
    others = [mark(A, B, A), mark(A, B, B), mark(A, B, C), mark(A, B, D), mark(A, C, B), mark(A, B)]
    others += [mark(A, B, kind="l"), mark(A, B, between=b"+"), mark_of(shape_of(A), "k", (D,), A + b" " + B, NOTHING)]
    assert len(set(others)) == len(others)
