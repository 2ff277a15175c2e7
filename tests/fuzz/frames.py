"""What a client might put in the place of a message, by a seed; and what may be answered to it.

Half of it follows the schemas (:mod:`tests.fuzz.messages`). The other half is bytes: chance, messages with damage,
and what breaks readers of JSON: depth, long numbers, keys twice, other encodings.

What may be answered is found without the reader that is under test: with Python's own, told to be strict. Where the
two may differ on whether an id can be read, both are right.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.fuzz.messages import TYPES, WORDS, anything, broken, fits, fitting

__all__ = ["SENTINEL", "Sent", "judged", "sent"]

DEPTH: Final = 200
"""What every reader bears."""
_SIGNS: Final = b'{}[]",:\\ \n\t0123456789-+.eEtrufalsn\x00\x7f\x80\xc0\xff\xed\xa0'
_TOKENS: Final = (
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b'"type"', b'"id"', b'"manglecp"', b'"payload"', b"null", b"true"),
    *(b'"intent_request"', b'"2026-02-draft"', b"0", b"-1", b"1e9", b"NaN", b"Infinity", b'"\\ud800"', b'"a"', b" "),
)


@dataclass(frozen=True)
class Sent:
    data: bytes
    ids: frozenset[str | None]
    """Those that its answer may have."""
    silent: bool = False
    """Is it never answered?"""
    fitting: bool = False
    """Does the schema of its type take it?"""


SENTINEL: Final = Sent(
    b'{"type":"intent_request","id":"sentinel","manglecp":"2026-02-draft","payload":{"intent":{"name":"review"}}}',
    frozenset({"sentinel"}),
    fitting=True,
)
"""What is sent in between, and has to be answered as ever."""


def sent(seed: int, tool: str | None = None, carried: Callable[[bytes], bytes] = lambda data: data) -> Sent:
    """The same seed makes the same. ``tool`` is one that exists, ``carried`` makes of it what a transport can carry."""
    random = Random(seed)
    while True:
        data = _written(random, _message(random, f"f-{seed}", tool))
        made = judged(carried(data if random.random() < 0.5 else random.choice(_WAYS)(random, data)))
        if made is not None:
            return made


def _message(random: Random, request: str, tool: str | None) -> dict[str, Any]:
    type_ = random.choices(TYPES, (6, 4, 1, 1))[0]
    made = (fitting if random.random() < 0.5 else broken)(random, type_, request)
    if not isinstance(made.get("payload"), dict):
        return made
    if type_ == "intent_request" and random.random() < 0.3:
        fact = {"pred": "draft", "args": [random.choice(WORDS), random.choice(("open", "final", "private"))]}
        made["payload"]["facts"] = [fact, *([anything(random)] if random.random() < 0.2 else [])]
    if (
        tool is not None
        and type_ == "invoke_request"
        and random.random() < 0.1
        and isinstance(made.get("payload"), dict)
    ):
        made["payload"]["macro_id"] = tool
    return made


def _written(random: Random, value: Any) -> bytes:
    blanks = random.choice((None, None, (" ,  ", " :\t")))
    return json.dumps(value, ensure_ascii=random.random() < 0.5, separators=blanks).encode()


# --- bytes -----------------------------------------------------------------------------------------------------------


def _chance(random: Random, _: bytes) -> bytes:
    return random.randbytes(random.randrange(200))


def _soup(random: Random, _: bytes) -> bytes:
    return b"".join(random.choice(_TOKENS) for _ in range(random.randrange(40)))


def _cut(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data))]


def _changed(random: Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(made) + 1)
        end = min(len(made), at + random.choice((0, 1, 1, 5, 40)))
        made[at:end] = bytes(random.choice(_SIGNS) for _ in range(random.randrange(4)))
    return bytes(made)


def _twisted(random: Random, data: bytes) -> bytes:
    start, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
    return random.choice((data[:end] + data[start:], data[:start] + data[end:], data[start:] + data[:start]))


def _inside(random: Random, data: bytes) -> bytes:
    """Something in the place of a value."""
    depth = random.choice((50, 330, 900, 5_000))
    bombs = (
        b"[" * depth + b"]" * depth,
        b'{"a":' * depth + b"1" + b"}" * depth,
        b"[" * depth,
        b"9" * random.choice((20, 400, 5_000)),
        b"1e999",
        b"-1e-999",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b'{"a":1,"a":2}',
        rb'{"a":1,"\u0061":2}',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        rb'"\ud800"',
        b'"\x01"',
        b"01",
        b"1.",
        b"+1",
        b"'a'",
        b"undefined",
        b'"' + b"x" * 20_000 + b'"',
        json.dumps(anything(random)).encode(),
    )
    members = [part for part in (b'"payload":', b'"payload" :\t', b'"id":', b'"facts":', b'"args":') if part in data]
    if not members:
        return random.choice(bombs)
    member = random.choice(members)
    return data.replace(member, member + random.choice(bombs) + random.choice((b',"y":', b"")), 1)


def _encoded(random: Random, data: bytes) -> bytes:
    text = data.decode()
    return random.choice(
        (text.encode("utf-16"), text.encode("utf-32"), text.encode("utf-8-sig"), text.encode("latin-1", "replace"))
    )


def _doubled(random: Random, data: bytes) -> bytes:
    end = data.rindex(b"}")
    key = random.choice((b"id", b"type", b"payload", b"manglecp", b"other"))
    return random.choice((data + data, data + b" " + data, data[:end] + b',"%s":"z","%s":1}' % (key, key)))


def _not_an_object(random: Random, data: bytes) -> bytes:
    return random.choice((b"[" + data + b"]", json.dumps(data.decode()).encode(), b"null", b"7", b'""', b"[]", b"{}"))


_WAYS: Final[tuple[Callable[[Random, bytes], bytes], ...]] = (
    _chance,
    _soup,
    _cut,
    _changed,
    _changed,
    _twisted,
    _inside,
    _inside,
    _encoded,
    _doubled,
    _not_an_object,
)

# --- what may be answered --------------------------------------------------------------------------------------------


def judged(data: bytes) -> Sent | None:
    """A message whose id can be read is answered under it; a cancel that is one, not at all.

    None: perhaps a cancel, so that nobody can say whether it is answered.
    """
    doubts: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) < len(found):
            doubts.append("a key twice")
        return made

    def number(text: str) -> float:
        value = float(text)
        if math.isinf(value):
            doubts.append("a number out of range")
        return value

    def constant(text: str) -> Any:
        raise ValueError(text)

    try:
        text = data.decode()
        if text.startswith("\ufeff"):
            raise ValueError("a byte order mark")
        decoded = json.loads(text, object_pairs_hook=pairs, parse_float=number, parse_constant=constant)
    except (ValueError, RecursionError):
        return Sent(data, frozenset({None}))
    try:
        json.dumps(decoded, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        doubts.append("half a surrogate pair")
    if text.count("[") + text.count("{") > DEPTH:
        doubts.append("perhaps deep")
    if not isinstance(decoded, dict):
        return Sent(data, frozenset({None}))
    request, type_ = decoded.get("id"), decoded.get("type")
    readable = isinstance(request, str) and request != "" and type_ != "cancel"
    known = request if readable else None
    if type_ == "cancel" and (doubts or "x-request_key" in text):  # one that names a key is looked at more closely
        return None
    if doubts:
        return Sent(data, frozenset({None, known}))
    takes = type_ in TYPES and fits(str(type_), decoded)
    return Sent(data, frozenset({known}), silent=type_ == "cancel" and takes, fitting=takes)
