"""Lines: however a stream is cut into pieces, the same lines come out, and never more is kept than a line may have."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manglecp.toolhost.dispatch.framing import MAX_OUTPUT, Lines
from manglecp.toolhost.dispatch.messages import Answer, Call, decode, judge


@given(st.lists(st.binary(max_size=8)), st.binary(max_size=8))
def test_pieces_do_not_matter(pieces: list[bytes], end: bytes) -> None:
    whole = b"".join(pieces) + end
    lines = Lines()
    got = [line for piece in (*pieces, end) for line in lines.feed(piece)]
    assert [*got, lines.half()] == whole.split(b"\n")


def test_a_line_ends_at_byte_0a_and_nowhere_else() -> None:
    text = "a\u2028b\u2029c\x85d\r\ve\ff".encode()
    assert Lines().feed(text + b"\r\n") == [text + b"\r"]


@pytest.mark.req("IPC-36")
@pytest.mark.parametrize("piece", [1_000, 65_536, 2 * MAX_OUTPUT])
def test_the_longest_line_passes_and_one_byte_more_ends_the_stream(piece: int) -> None:
    for size, overflowed in ((MAX_OUTPUT, False), (MAX_OUTPUT + 1, True)):
        stream = b"first\n" + b"x" * size + b"\nlast\n"
        lines = Lines()
        got = [line for at in range(0, len(stream), piece) for line in lines.feed(stream[at : at + piece])]
        assert lines.overflowed is overflowed
        assert [len(line) for line in got] == ([5] if overflowed else [5, size, 4])


def test_a_flood_without_a_newline_is_given_up_while_it_is_read() -> None:
    lines = Lines(100)
    for _ in range(1_000):
        assert lines.feed(b"x" * 64) == []
        assert len(lines.half()) <= 100
    assert lines.overflowed


def _streams(count: int, seed: int) -> None:
    """Byte streams as broken hosts make them: whole answers, cut, doubled, damaged, mixed with noise."""
    chance = random.Random(seed)
    good = b'{"ok":true,"status":"OK","output_json":"{}","error":"","ds_state":{"delta":true,"slots":{}}}'
    scraps = [
        b"",
        b"\n",
        b"\r\n",
        b"\x00",
        b"\xff\xfe",
        b"{",
        b"[" * 500,
        b'"',
        b"null",
        b"1e999",
        b"\xe2\x80\xa8",
        good,
    ]
    scraps += [
        b'{"ok":true,"status":"OK","output_json":7}',
        b'{"ok":1}',
        b'{"ds_state":{"slots":[]},' + good[1:],
        b"{}",
    ]
    call = Call(aid="AID.X.v1")
    for _ in range(count):
        stream = bytearray(b"\n".join(chance.choices(scraps, k=chance.randrange(1, 8))))
        for _ in range(chance.randrange(4)):
            if stream:
                stream[chance.randrange(len(stream))] = chance.randrange(256)
        lines = Lines(256)
        at = 0
        while at < len(stream):
            step = chance.randrange(1, 200)
            for line in lines.feed(bytes(stream[at : at + step])):
                assert len(line) <= 256
                try:
                    document = decode(line)
                except ValueError:
                    continue
                result = judge(call, document)
                assert isinstance(result, Answer) or result["error"] is True
            assert len(lines.half()) <= 256
            at += step


@pytest.mark.req("IPC-30")
def test_no_stream_of_bytes_does_harm() -> None:
    _streams(3_000, seed=19)


@pytest.mark.soak
def test_no_stream_of_bytes_does_harm_at_length() -> None:
    _streams(100_000, seed=20)
