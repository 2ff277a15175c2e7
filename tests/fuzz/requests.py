"""What a client might put in the place of an HTTP request, by a seed; and how it is answered, where that is certain."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.fuzz.frames import SENTINEL, sent
from tests.load.wires import JSON, request

__all__ = ["mutant", "raw"]

Raw = tuple[bytes, frozenset[int] | None]
_UNSURE: Final = None
_BODY: Final = SENTINEL.data
_GOOD: Final = request(b"POST", b"/evaluate", _BODY, JSON)
_METHODS: Final = (b"GET", b"", b"P\xd6ST", b"get", b"A" * 70_000)
_VERSIONS: Final = (b"HTTP/9.9", b"HTTP/1.", b"HTTQ/1.1", b"", b"http/1.1")
_LENGTHS: Final = (b"-1", b"+5", b"0x5", b"5, 5", b"5 5", b"", b"9" * 40, b"1e3")
_ENDS: Final = (b"\n", b"\r", b"\r\n\r\n", b"\r\n ", b"\0\r\n")
_HOSTS: Final = (b"host: evil.example", b"x: y", b"host:", b"host: a,b")
_KINDS: Final = (b"text/plain", b"application/jsonx", b"", b"application/xml", b"multipart/form-data")
_HEADERS: Final = (
    b"transfer-encoding: chunked",
    b"content-length: 5",
    b"expect: 100-continue",
    b"connection: upgrade\r\nupgrade: h2c",
    b"connection: upgrade\r\nupgrade: websocket",
    b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: x",
    b"authorization: Bearer \xff\xfe",
    b"x-manglecp-api-key: \x80",
    b"origin: null",
    b"origin: http://[::1",
    b"accept: text/html",
    b"accept: application/json;q=0",
    b"content-encoding: gzip",
    b"traceparent: 00-zz-zz-zz",
    b"if-none-match: *",
    b"cookie: " + b"a" * 5_000,
    b"x: y" + b"\r\nx: y" * 300,
)
_PATHS: Final = (
    b"*",
    b"/",
    b"//evaluate",
    b"/evaluate?x=%00",
    b"/%65valuate",
    b"/evaluate/../invoke",
    b"/\xff\xfe",
    b"/%ff%fe",
    b"http://localhost/evaluate",
    b"http://[::1",
    b"/skills/../../etc/passwd",
    b"/skills/plain_style",
    b"/skills/%2e%2e%2f",
    b"/.well-known/manglecp/manifest.json",
    b"/metrics",
    b"/ws",
    b"/" + b"a" * 9_000,
)


def raw(seed: int) -> Raw:
    """What is sent, and the status with which it is certainly answered; None if perhaps not at all."""
    random = Random(seed)
    return random.choice(_WAYS)(random)


def mutant(random: Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 3))):
        at = random.randrange(len(made) + 1)
        made[at : at + random.randrange(3)] = random.randbytes(random.randrange(3))
    return bytes(made)


def _chance(random: Random) -> Raw:
    return random.randbytes(random.randrange(1, 400)), _UNSURE


def _method(random: Random) -> Raw:
    return random.choice(_METHODS) + _GOOD[4:], _UNSURE


def _version(random: Random) -> Raw:
    return _GOOD.replace(b"HTTP/1.1", random.choice(_VERSIONS), 1), _UNSURE


def _cut(random: Random) -> Raw:
    return _GOOD[: random.randrange(len(_GOOD))], _UNSURE


def _header(random: Random) -> Raw:
    lines = _GOOD.split(b"\r\n")
    lines.insert(random.randrange(1, 4), mutant(random, random.choice(_HEADERS)))
    return b"\r\n".join(lines), _UNSURE


def _path(random: Random) -> Raw:
    return _GOOD.replace(b"/evaluate", mutant(random, random.choice(_PATHS)), 1), _UNSURE


def _line_ends(random: Random) -> Raw:
    return _GOOD.replace(b"\r\n", random.choice(_ENDS), random.randrange(1, 5)), _UNSURE


def _changed(random: Random) -> Raw:
    return mutant(random, _GOOD), _UNSURE


def _other_host(random: Random) -> Raw:
    return _GOOD.replace(b"host: localhost", random.choice(_HOSTS)), frozenset({400, 421})


def _other_method(random: Random) -> Raw:
    method = random.choice((b"GET", b"PUT", b"DELETE", b"PATCH", b"TRACE"))
    return method + _GOOD[4:], frozenset({405})


def _other_kind(random: Random) -> Raw:
    return request(b"POST", b"/evaluate", _BODY, ((b"content-type", random.choice(_KINDS)),)), frozenset({415})


# --- how long it is --------------------------------------------------------------------------------------------------


def _resized(length: bytes) -> bytes:
    return request(b"POST", b"/evaluate", None, (*JSON, (b"content-length", length))) + _BODY


def _too_short(random: Random) -> Raw:
    """The rest of it is taken for another request."""
    return _resized(b"%d" % random.randrange(len(_BODY))), frozenset({400})


def _too_long(random: Random) -> Raw:
    return _resized(b"%d" % (len(_BODY) + random.randrange(1, 1_000_000_000))), _UNSURE


def _no_length(random: Random) -> Raw:
    return _resized(random.choice(_LENGTHS)), _UNSURE


def _in_chunks(random: Random) -> Raw:
    return _chunked(random, _BODY, (0,), b"0\r\n\r\n"), frozenset({200})


def _in_wrong_chunks(random: Random) -> Raw:
    last = random.choice((b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"zz\r\n", b""))
    return _chunked(random, sent(random.randrange(10_000)).data, (-1, 0, 1, 9, 1 << 40), last), _UNSURE


def _chunked(random: Random, body: bytes, lies: tuple[int, ...], last: bytes) -> bytes:
    parts, left = [], body
    while left:
        size = random.randrange(1, len(left) + 1)
        said = max(0, size + random.choice(lies))
        parts.append(b"%x%s\r\n%s\r\n" % (said, random.choice((b"", b";a=b")), left[:size]))
        left = left[size:]
    head = request(b"POST", b"/evaluate", None, (*JSON, (b"transfer-encoding", b"chunked")))
    return head + b"".join(parts) + last


_WAYS: Final[tuple[Callable[[Random], Raw], ...]] = (
    _chance,
    _method,
    _version,
    _cut,
    _header,
    _header,
    _path,
    _path,
    _line_ends,
    _changed,
    _other_host,
    _other_method,
    _other_kind,
    _too_short,
    _too_long,
    _no_length,
    _in_chunks,
    _in_wrong_chunks,
)
