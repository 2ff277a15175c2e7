"""What a client might put in the place of a WebSocket frame, by a seed; and what comes of it, where that is certain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.fuzz.frames import SENTINEL
from tests.fuzz.requests import mutant
from tests.load.wires import BINARY, CLOSE, CONTINUATION, PING, PONG, UPGRADE, frame, request

__all__ = ["ANSWERED", "JOINED", "Odd", "handshake", "odd"]

ANSWERED: Final = b"malformed_message"
JOINED: Final = b"a message that came in several frames"
"""Stands for that answer; everything else is what a pong repeats."""
_PROTOCOL, _UNSUPPORTED, _NO_TEXT, _TOO_BIG = 1002, 1003, 1007, 1009
_DATA: Final = SENTINEL.data
_HANDSHAKE: Final = request(b"GET", b"/ws", None, UPGRADE)
_PATHS: Final = (b"/", b"/nothing", b"/\xff", b"/%ff", b"*", b"/ws?\xff", b"http://localhost/ws", b"/ws/../ws")
_HEADERS: Final = (
    b"sec-websocket-extensions: permessage-deflate; server_max_window_bits=99",
    b"sec-websocket-extensions: \xff",
    b"sec-websocket-protocol: \xff, a",
    b"sec-websocket-key: x",
    b"sec-websocket-version: 14",
    b"authorization: Bearer \xff",
    b"origin: http://evil.example",
    b"origin: \xff",
    b"content-length: 5",
    b"transfer-encoding: chunked",
    b"x\xff: y",
    b"host: evil.example",
)


@dataclass(frozen=True)
class Odd:
    data: bytes
    answers: tuple[bytes, ...] | None = None
    """What is heard on a connection that lives."""
    codes: frozenset[int] = frozenset()
    """One of which ends the connection; if there are none, it ends when the client does."""


def odd(seed: int) -> Odd:
    random = Random(seed)
    return random.choice(_WAYS)(random)


def handshake(seed: int) -> bytes:
    random = Random(seed)
    lines = _HANDSHAKE.split(b"\r\n")
    how = random.randrange(4)
    if how == 0:
        lines[0] = b"GET %s HTTP/1.1" % mutant(random, random.choice(_PATHS))
    elif how == 1:
        lines.insert(random.randrange(1, 5), mutant(random, random.choice(_HEADERS)))
    elif how == 2:
        del lines[random.randrange(1, 6)]
    else:
        return mutant(random, _HANDSHAKE)
    return b"\r\n".join(lines)


def _ends(data: bytes, *codes: int) -> Odd:
    return Odd(data, codes=frozenset(codes))


# --- what is no offence ----------------------------------------------------------------------------------------------


def _ping(random: Random) -> Odd:
    said = random.randbytes(random.randrange(126))
    return Odd(frame(said, PING, mask=random.randbytes(4)), (said,))


def _pong(random: Random) -> Odd:
    return Odd(frame(random.randbytes(random.randrange(126)), PONG), ())


def _nothing(_: Random) -> Odd:
    return Odd(frame(b""), (ANSWERED,))


def _in_parts(random: Random) -> Odd:
    """With a ping in the middle of it, which is allowed."""
    cuts = sorted(random.randrange(len(_DATA) + 1) for _ in range(random.randrange(1, 5)))
    parts = [_DATA[start:end] for start, end in zip([0, *cuts], [*cuts, len(_DATA)], strict=True)]
    data = frame(parts[0], fin=False)
    for part in parts[1:-1]:
        data += frame(part, CONTINUATION, fin=False, mask=random.randbytes(4))
    said = random.randbytes(4)
    return Odd(data + frame(said, PING) + frame(parts[-1], CONTINUATION), (said, JOINED))


# --- what ends the connection ----------------------------------------------------------------------------------------


def _goodbye(random: Random) -> Odd:
    code = random.choice((1000, 1001, 1003, 1011, 3000, 4999))
    return _ends(frame(code.to_bytes(2) + b"bye", CLOSE), code)


def _wrong_goodbye(random: Random) -> Odd:
    said = random.choice(
        (b"\x03", b"\0\0", b"\x03\xe7", b"\x03\xed", b"\x03\xee", b"\x07\xd0\xff", b"\x03\xe8\xff\xfe")
    )
    return _ends(frame(said, CLOSE), _PROTOCOL, _NO_TEXT)


def _unknown_kind(random: Random) -> Odd:
    return _ends(frame(_DATA, random.choice((3, 4, 5, 6, 7, 11, 12, 13, 14, 15))), _PROTOCOL)


def _no_mask(random: Random) -> Odd:
    return _ends(frame(_DATA, random.choice((1, 2, 9, 10)), mask=None), _PROTOCOL)


def _reserved(random: Random) -> Odd:
    return _ends(frame(_DATA, reserved=random.randrange(1, 8)), _PROTOCOL)


def _control(random: Random) -> Odd:
    """Control frames are short, and whole."""
    kind = random.choice((CLOSE, PING, PONG))
    return _ends(random.choice((frame(b"x" * 126, kind), frame(b"\x03\xe8", kind, fin=False))), _PROTOCOL)


def _going_on_with_nothing(random: Random) -> Odd:
    return _ends(frame(_DATA, CONTINUATION, fin=random.random() < 0.5), _PROTOCOL)


def _one_in_another(random: Random) -> Odd:
    return _ends(frame(_DATA[:9], fin=False) + frame(_DATA, random.choice((1, 2))), _PROTOCOL)


def _no_text(random: Random) -> Odd:
    wrong = random.choice((b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\x80"))
    at = random.randrange(len(_DATA))
    return _ends(frame(_DATA[:at] + wrong + _DATA[at:]), _NO_TEXT)


def _binary(random: Random) -> Odd:
    data = random.choice((_DATA, b"", random.randbytes(300)))
    return _ends(frame(data, BINARY) + random.choice((b"", frame(_DATA), frame(b"", PING))), _UNSUPPORTED)


def _endless(random: Random) -> Odd:
    length = random.choice((1 << 63, (1 << 64) - 1, 1 << 40, 1 << 30))
    return _ends(b"\x81\xff" + length.to_bytes(8) + bytes(4), _PROTOCOL, _TOO_BIG)


def _cut(random: Random) -> Odd:
    data = frame(_DATA, mask=random.randbytes(4))
    return Odd(data[: random.randrange(len(data))])


def _chance(random: Random) -> Odd:
    return Odd(random.randbytes(random.randrange(1, 200)))


_WAYS: Final[tuple[Callable[[Random], Odd], ...]] = (
    _ping,
    _pong,
    _nothing,
    _in_parts,
    _in_parts,
    _goodbye,
    _wrong_goodbye,
    _unknown_kind,
    _no_mask,
    _reserved,
    _control,
    _going_on_with_nothing,
    _one_in_another,
    _no_text,
    _binary,
    _endless,
    _cut,
    _chance,
)
