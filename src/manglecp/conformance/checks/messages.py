"""Envelopes and sizes of messages."""

from __future__ import annotations

import json
from typing import Any, Final

from manglecp.conformance.bench import SESSIONS, Bench, Untested, check, encode, message
from manglecp.conformance.connections import Disconnected
from manglecp.wire.messages import VERSION

_NO_INTENT: Final = {"intent": {"name": "conformance_envelope"}}


def _request(**changes: Any) -> dict[str, Any]:
    return message("intent_request", _NO_INTENT, **changes)


@check("WIRE-04", "WIRE-17", "ERR-04")
async def ids_come_back(b: Bench) -> None:
    """An id comes back character for character"""
    for request in ("a", "0", " blank ", "ümläut", "Κ\u0301", "𝄞 beyond", 'quote " and \\', "x" * 200):
        answer = await b.ask(_request(id=request))
        for row in ("WIRE-04", "ERR-04"):
            b.note(row, answer.message.get("id") == request, f"the id {request!r}", answer.message.get("id"))
    escaped = json.dumps(_request(id="𝄞"), ensure_ascii=True).encode()
    answer = await b.ask(escaped)
    b.note("WIRE-17", answer.message.get("id") == "𝄞", "a pair of escaped surrogates as one character", answer)
    wrong = await b.ask(message("invoke_request", {"macro_id": "conformance-none", "args": {}}, id="é-1"), "invoke")
    b.note("ERR-04", wrong.message.get("id") == "é-1", "the id of the request on its error", wrong)


@check("WIRE-01", "WIRE-06", "ERR-06")
async def messages_are_objects(b: Bench) -> None:
    """What is no object is malformed"""
    for data in (b"[]", b'"text"', b"1", b"true", b"null", b"[{}]"):
        answer = await b.ask(data)
        b.refused(answer, "malformed_message", "WIRE-01", about=data.decode())
        b.note("WIRE-06", answer.message.get("id", "absent") is None, f"id null for {data.decode()}", answer)


@check("WIRE-16", "WIRE-06", "ERR-06")
async def messages_are_json(b: Bench) -> None:
    """What is no JSON is malformed"""
    good = encode(_request())
    broken = {
        "half a message": good[: len(good) // 2],
        "two messages": good + good,
        "something after it": good + b" x",
        "single quotes": good.replace(b'"', b"'"),
        "a trailing comma": good[:-1] + b",}",
        "a comment": good[:-1] + b"/* */}",
        "a control character in a text": good.replace(b"conformance_envelope", b"a\x01b"),
    }
    for about, data in broken.items():
        answer = await b.ask(data)
        b.refused(answer, "malformed_message", "WIRE-16", about=about)
        if about in ("half a message", "single quotes"):
            b.note("WIRE-06", answer.message.get("id", "absent") is None, f"id null for {about}", answer)


@check("WIRE-18", "ERR-06")
async def numbers_are_json(b: Bench) -> None:
    """Numbers are JSON numbers"""
    for number in (b"NaN", b"Infinity", b"-Infinity", b"0x10", b"+1", b"01", b"1.", b".5"):
        data = encode(_request()).replace(b'"conformance_envelope"', b'"n", "params": {"a": ' + number + b"}")
        b.refused(await b.ask(data), "malformed_message", "WIRE-18", about=number.decode())


@check("WIRE-24", "ERR-06")
async def no_byte_order_mark(b: Bench) -> None:
    """Messages are UTF-8 without a byte order mark"""
    answer = await b.ask(b"\xef\xbb\xbf" + encode(_request()))
    b.refused(answer, "malformed_message", "WIRE-24", about="a byte order mark")
    if (await b.connection()).transport != "websocket":  # there it is an error of that protocol
        answer = await b.ask(encode(_request()).replace(b"conformance_envelope", b"a\xff\xfeb"))
        b.refused(answer, "malformed_message", "WIRE-24", about="bytes that are not UTF-8")


@check("WIRE-02", "ERR-06", "ERR-08")
async def types_are_known(b: Bench) -> None:
    """Messages have a known type"""
    for about, type_ in (("no type", ...), ("type null", None), ("type 1", 1), ("type []", [])):
        b.refused(await b.ask(_request(type=type_)), "malformed_message", "WIRE-02", about=about)
    for type_name in ("x-unknown", "", "Intent_Request", "intent_request "):
        b.refused(await b.ask(_request(type=type_name)), "invalid_type", "WIRE-02", about=f"the type {type_name!r}")


@check("WIRE-15", "ERR-08")
async def types_have_a_direction(b: Bench) -> None:
    """Messages of servers are not taken from clients"""
    for type_ in ("manifest", "intent_response", "invoke_response", "progress", "error", "authenticate_response"):
        b.refused(await b.ask(_request(type=type_)), "invalid_type", "WIRE-15", about=f"a client's {type_}")


@check("WIRE-03", "ERR-06")
async def requests_have_ids(b: Bench) -> None:
    """Requests have an id"""
    for about, request_id in (("no id", ...), ("id null", None), ("an empty id", ""), ("a number as id", 7)):
        answer = await b.ask(_request(id=request_id))
        b.refused(answer, "malformed_message", "WIRE-03", about=about)
        b.note("WIRE-03", answer.message.get("id", "absent") is None, f"id null for {about}", answer)


@check("WIRE-09", "WIRE-11", "ERR-05", "ERR-41")
async def versions_are_checked(b: Bench) -> None:
    """Other versions are refused, with the list of supported ones"""
    for version in ("1999-01-draft", "2026-02-DRAFT", ""):
        answer = await b.ask(_request(manglecp=version))
        b.refused(answer, "unsupported_version", "WIRE-11", about=f"the version {version!r}")
        if answer.code == "unsupported_version":
            repeated = answer.details.get("requested_version") == version
            listed = answer.details.get("supported_versions")
            fits = repeated and isinstance(listed, list) and VERSION in listed
            b.note(("WIRE-11", "ERR-41"), fits, "requested_version and supported_versions", answer.details)
    answer = await b.ask(_request(manglecp=...))
    b.note("WIRE-09", answer.type == "error", "no answer to a message without a version", answer)


@check("WIRE-12", "ERR-06")
async def payloads_are_objects(b: Bench) -> None:
    """A payload is an object"""
    for about, payload in (("no payload", ...), ("null", None), ("a list", []), ("a text", "x"), ("a number", 1)):
        answer = await b.ask(_request(payload=payload))
        b.refused(answer, "malformed_message", "WIRE-12", about=f"a payload that is {about}")


@check("EVAL-01", "ERR-06")
async def intents_have_names(b: Bench) -> None:
    """An intent request has an intent with a name"""
    cases: dict[str, dict[str, Any]] = {
        "no intent": {},
        "an intent without a name": {"intent": {}},
        "a number as name": {"intent": {"name": 1}},
        "a text as intent": {"intent": "observe"},
        "facts that are no list": {**_NO_INTENT, "facts": {}},
        "an unknown preference": {**_NO_INTENT, "options": {"disclosure_preference": "everything"}},
    }
    for about, payload in cases.items():
        b.refused(await b.ask(message("intent_request", payload)), "malformed_message", "EVAL-01", about=about)


@check("OPEN-58")
async def unknown_members(b: Bench) -> None:
    """Unknown members are passed over and never repeated; the same key twice is malformed"""
    word = "conformance-unknown-member"
    payload = {**_NO_INTENT, "later": {"a": word}}
    answer = await b.ask(message("intent_request", payload, later=word))
    b.note("OPEN-58", answer.code != "malformed_message", "unknown members passed over", answer)
    b.note("OPEN-58", word.encode() not in answer.data, "unknown members not repeated", answer)
    data = encode(_request())
    twice = data.replace(b'"payload"', b'"payload": {}, "payload"')
    b.refused(await b.ask(twice), "malformed_message", "OPEN-58", about="the same key twice")


@check("WIRE-14", "OPEN-59", level=2, transports=SESSIONS)
async def cancels_are_notifications(b: Bench) -> None:
    """A cancel of what is unknown is passed over, and one without request_id is malformed"""
    connection = await b.session()
    await connection.write(encode(message("cancel", {"request_id": "conformance-nobody"}, id=None)))
    after = _request()
    answer = await b.ask(after)
    fits = answer.message.get("id") == after["id"]
    b.note(("WIRE-14", "OPEN-59"), fits, "no answer to a cancel of an unknown request", answer)
    answer = await b.ask(message("cancel", {}, id=None))
    b.refused(answer, "malformed_message", "OPEN-59", about="a cancel without request_id")
    b.note("OPEN-59", answer.message.get("id", "absent") is None, "id null on it", answer)


LEAST: Final = 16_777_216
_MOST: Final = 64 << 20  # bytes that a check sends at most


def _of_size(size: int) -> bytes:
    data = encode(message("intent_request", {"intent": {"name": "conformance_size"}}))
    return data[:-1] + b" " * (size - len(data)) + b"}"


@check("WIRE-21", patience=3)
async def large_messages(b: Bench) -> None:
    """A message of 16 MiB is taken"""
    small = await b.ask(_of_size(1_000))
    limit = b.limit("max_message_bytes")
    for size in (LEAST, limit) if LEAST < limit <= _MOST else (LEAST,):
        answer = await b.ask(_of_size(size))
        alike = (answer.type, answer.code) == (small.type, small.code)
        b.note("WIRE-21", alike, f"the same answer as to a small message for {size} bytes: {small}", answer)


@check("WIRE-22", "ERR-07", "MANI-24", "CONF-03", patience=3)
async def too_large_messages(b: Bench) -> None:
    """A message beyond limits.max_message_bytes is refused"""
    limit = b.limit("max_message_bytes")
    if limit >= _MOST:
        raise Untested(f"limits.max_message_bytes is {limit}")
    about = f"{limit + 1} bytes, one more than limits.max_message_bytes"
    try:
        answer = await b.ask(_of_size(limit + 1))
    except Disconnected as error:  # the server may close the connection
        b.note(("WIRE-22", "MANI-24", "CONF-03"), True, "", error)
        await b.drop()
        return
    b.refused(answer, "message_too_large", "WIRE-22", "MANI-24", "CONF-03", about=about)
    answer = await b.ask(message("intent_request", {"intent": {"name": "conformance_size"}}))
    b.note("WIRE-22", answer.code != "message_too_large", "the next message taken again", answer)
