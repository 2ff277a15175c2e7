"""Lines: however a stream is cut into pieces, the same lines come out, and never more is kept than a line may have."""

import pytest
from hypothesis import given, strategies as st

from manglecp.toolhost.dispatch.responses import MAX_OUTPUT, LineBuffer


@given(st.lists(st.binary(max_size=8)), st.binary(max_size=8))
def test_pieces_do_not_matter(pieces: list[bytes], end: bytes) -> None:
    whole = b"".join(pieces) + end
    lines = LineBuffer()
    got = [line for piece in (*pieces, end) for line in lines.feed(piece)]
    assert [*got, lines.partial] == whole.split(b"\n")


def test_a_line_ends_at_byte_0a_and_nowhere_else() -> None:
    text = "a\u2028b\u2029c\x85d\r\ve\ff".encode()
    assert LineBuffer().feed(text + b"\r\n") == [text + b"\r"]


@pytest.mark.req("IPC-36")
@pytest.mark.parametrize("piece", [1_000, 65_536, 2 * MAX_OUTPUT])
def test_the_longest_line_passes_and_one_byte_more_ends_the_stream(piece: int) -> None:
    for size, overflowed in ((MAX_OUTPUT, False), (MAX_OUTPUT + 1, True)):
        stream = b"first\n" + b"x" * size + b"\nlast\n"
        lines = LineBuffer()
        got = [line for at in range(0, len(stream), piece) for line in lines.feed(stream[at : at + piece])]
        assert lines.overflowed is overflowed
        assert [len(line) for line in got] == ([5] if overflowed else [5, size, 4])


def test_a_flood_without_a_newline_is_given_up_while_it_is_read() -> None:
    lines = LineBuffer(100)
    for _ in range(1_000):
        assert lines.feed(b"x" * 64) == []
        assert len(lines.partial) <= 100
    assert lines.overflowed
