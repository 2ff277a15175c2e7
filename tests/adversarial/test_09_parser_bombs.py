"""Case 9: messages made to break whoever reads them. Case 10, as far as messages go: schemas in them are only data.

Every one is answered with a typed error that is small, says nothing of the inside, and leaves the reader as it was.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from manglecp.wire import WireError, encode, receive, receive_from_server
from manglecp.wire.messages import VERSION, IntentRequest, IntentResponse
from tests.deadlines import patience
from tests.effort import effort

pytestmark = pytest.mark.no_cover

LIMIT = 1 << 24
PATIENCE = patience(30.0)
"""Seconds: far more than any of these takes, far less than what a quadratic reader would."""


def around(inside: bytes) -> bytes:
    """A good request but for what stands in its facts."""
    start = {"type": "intent_request", "id": "c-1", "manglecp": VERSION}
    frame = json.dumps({**start, "payload": {"intent": {"name": "observe"}, "facts": ["HERE"]}}).encode()
    return frame.replace(b'"HERE"', inside)


def wide(count: int) -> bytes:
    return b",".join(b'{"k%d":[%d]}' % (i, i) for i in range(count))


BOMBS: dict[str, bytes] = {
    "arrays": b"[" * 100_000,
    "closed arrays": b"[" * 100_000 + b"]" * 100_000,
    "objects": b'{"a":' * 100_000,
    "closed objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "arrays in facts": around(b"[" * 100_000 + b"]" * 100_000),
    "depth that a decoder bears": around(b"[" * 900 + b"]" * 900),
    "depth with a key twice": around(b'{"a":' * 900 + b'{"b":1,"b":2}' + b"}" * 900),
    "open string": b'{"type": "' + b"x" * 10_000_000,
    "open string of escapes": b'"' + rb"\"" * 5_000_000,
    "open string of backslashes": b'"' + b"\\" * 10_000_001,
    "long number": around(b"9" * 5_000),
    "longest number": around(b"9" * 10_000_000),
    "number out of range": around(b"1e999999999"),
    "NaN": around(b"NaN"),
    "Infinity": around(b"[Infinity]"),
    "minus Infinity": around(b"-Infinity"),
    "UTF-8 cut short": around(b'"\xf0\x9f\x98"'),
    "overlong UTF-8": around(b'"\xc0\x80"'),
    "surrogate in UTF-8": around(b'"\xed\xa0\x80"'),
    "half a surrogate pair": around(rb'"\ud800"'),
    "control character": around(b'"\x00"'),
    "NUL behind": around(b"1") + b"\0",
    "byte order mark": b"\xef\xbb\xbf" + around(b"1"),
    "UTF-16": around(b"1").decode().encode("utf-16"),
    "UTF-32": around(b"1").decode().encode("utf-32"),
    "key twice": around(b'{"pred":"p","args":[],"pred":"q"}'),
    "key twice, once escaped": around(rb'{"pred":"p","args":[],"p\u0072ed":"q"}'),
    "key twice at the end of many": around(wide(100_000) + b',{"a":1,"a":2}'),
    "two messages": around(b"1") + around(b"1"),
    "blanks only": b" " * 10_000_000,
    "nothing": b"",
}


def answered(data: bytes, limit: int = LIMIT) -> tuple[WireError, bytes]:
    started = time.monotonic()
    with pytest.raises(WireError) as refused:
        receive(data, limit)
    error = refused.value
    answer = encode(error.to_message(error.id))
    assert time.monotonic() - started < PATIENCE
    return error, answer


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_a_malformed_message(name: str) -> None:
    before = sys.getrecursionlimit()
    error, answer = answered(BOMBS[name])
    assert error.code == "malformed_message"
    is_outline_read = "key twice" in name or name.startswith("depth")
    assert error.id == ("c-1" if is_outline_read else None)  # the id is before what is wrong
    assert len(answer) < 600
    assert b"Traceback" not in answer
    assert b".py" not in answer
    assert sys.getrecursionlimit() == before
    assert isinstance(receive(around(b"1"), LIMIT), IntentRequest)  # and life goes on


@pytest.mark.parametrize("name", BOMBS)
def test_above_the_limit_nothing_is_even_read(name: str) -> None:
    data = BOMBS[name]
    if data:
        error, _ = answered(data, len(data) - 1)
        assert error.code == "message_too_large"


@pytest.mark.parametrize("depth", [0, 200, 400, 600])
def test_what_is_too_deep_does_not_depend_on_the_caller(depth: int) -> None:
    """A server reads messages from within a few hundred calls as well as from none."""

    def within(calls: int, then: Callable[[], Any]) -> Any:
        return within(calls - 1, then) if calls else then()

    nested = around(b"[" * 200 + b"]" * 200)
    deeper = around(b"[" * 330 + b"]" * 330)
    assert isinstance(within(depth, lambda: receive(nested, LIMIT)), IntentRequest)
    error, _ = within(depth, lambda: answered(deeper))
    assert error.code == "malformed_message"


@pytest.mark.parametrize("inside", [b'{"b":1,"b":2}', rb'{"b\u0022":1}'])
def test_no_depth_is_too_deep_to_be_told_so(inside: bytes) -> None:
    """Somewhere between what one reader bears and the next lies a depth that only one of them does."""
    for depth in range(600, 1_100, 500 // effort(500)):
        error, _ = answered(around(b'{"a":' * depth + inside + b"}" * depth))
        assert error.code == "malformed_message"


@pytest.mark.parametrize(
    ("member", "value"),
    [("type", "x" * 5_000_000), ("manglecp", "x" * 5_000_000), ("payload", {"x" * 5_000_000: 1})],
)
def test_what_was_sent_is_not_sent_back_at_length(member: str, value: Any) -> None:
    message = {"type": "intent_request", "id": "c-1", "manglecp": VERSION, "payload": {}, member: value}
    error, answer = answered(json.dumps(message).encode())
    assert error.id == "c-1"
    assert len(answer) < 600


def test_a_long_choice_is_not_sent_back_at_length() -> None:
    payload = {"intent": {"name": "a"}, "options": {"disclosure_preference": "x" * 5_000_000}}
    message = {"type": "intent_request", "id": "c-1", "manglecp": VERSION, "payload": payload}
    _, answer = answered(json.dumps(message).encode())
    assert len(answer) < 600


def test_integers_beyond_what_others_keep_exact_are_never_rounded() -> None:
    numbers = [2**53 + 1, -(2**53) - 1, 2**64 + 1, 10**400]
    message = receive(around(json.dumps(numbers).encode()), LIMIT)
    assert isinstance(message, IntentRequest)
    assert message.payload.facts == [numbers]
    assert json.loads(encode(message))["payload"]["facts"] == [numbers]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "https://schemas.invalid/bomb.json"},
        {"$ref": "file:///etc/passwd"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"oneOf": [{"oneOf": [{"type": "string"}] * 50}] * 50},
        {"type": "string", "pattern": "(a+)+$"},
    ],
    ids=["itself", "network", "file", "cycle", "explosion", "pattern"],
)
def test_a_schema_in_a_message_is_only_data(schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was looked up")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    tool = {
        "macro_id": "m-1",
        "name": "n",
        "description": "d",
        "disclosure_level": "full",
        "input_schema": schema,
        "safety": {"requires_user_confirmation": False, "side_effects": ["none"]},
    }
    payload = {"eval_time_used": "2026-03-02T09:20:00Z", "macro_tools": [tool]}
    data = json.dumps({"type": "intent_response", "id": "c-1", "manglecp": VERSION, "payload": payload}).encode()
    started = time.monotonic()
    message = receive_from_server(data, LIMIT)
    assert time.monotonic() - started < PATIENCE
    assert isinstance(message, IntentResponse)
    assert message.payload.macro_tools[0].input_schema == schema
