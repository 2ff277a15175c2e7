"""Checks of envelopes and message sizes. The ids name requirements of ``docs/reference/requirements.md``."""

from __future__ import annotations

import json
from typing import Any, Final

from manglecp.conformance.bench import SESSIONS, Bench, Untested, check, encode, message
from manglecp.conformance.connections import Disconnected
from manglecp.wire.messages import VERSION

_UNKNOWN_INTENT: Final = {"intent": {"name": "conformance_envelope"}}  # a valid payload; it brings no tools


def _request(**changes: Any) -> dict[str, Any]:
    return message("intent_request", _UNKNOWN_INTENT, **changes)


@check("WIRE-04", "WIRE-17", "ERR-04")
async def ids_come_back(b: Bench) -> None:
    """An id comes back character for character"""
    for id_ in ("a", "0", " blank ", "ümläut", "Κ\u0301", "𝄞 beyond", 'quote " and \\', "x" * 200):
        answer = await b.request(_request(id=id_))
        b.note(("WIRE-04", "ERR-04"), answer.id == id_, f"the id {id_!r}", answer.id)
    answer = await b.request(json.dumps(_request(id="𝄞"), ensure_ascii=True).encode())
    b.note("WIRE-17", answer.id == "𝄞", "a pair of escaped surrogates as one character", answer)
    error = await b.request(message("invoke_request", {"macro_id": "conformance-none", "args": {}}, id="é-1"), "invoke")
    b.note("ERR-04", error.id == "é-1", "the id of the request on its error", error)


@check("WIRE-01", "WIRE-06", "ERR-06")
async def messages_are_objects(b: Bench) -> None:
    """A message that is no object is malformed"""
    for data in (b"[]", b'"text"', b"1", b"true", b"null", b"[{}]"):
        answer = await b.request(data)
        b.note_error(answer, "malformed_message", "WIRE-01", about=data.decode())
        b.note("WIRE-06", answer.has_null_id, f"id null for {data.decode()}", answer)


@check("WIRE-16", "WIRE-06", "ERR-06")
async def messages_are_json(b: Bench) -> None:
    """A message that is not JSON is malformed"""
    good = encode(_request())
    broken = {
        "half a message": good[: len(good) // 2],
        "two messages": good + good,
        "a text after the message": good + b" x",
        "single quotes": good.replace(b'"', b"'"),
        "a trailing comma": good[:-1] + b",}",
        "a comment": good[:-1] + b"/* */}",
        "a control character in a text": good.replace(b"conformance_envelope", b"a\x01b"),
    }
    for about, data in broken.items():
        answer = await b.request(data)
        b.note_error(answer, "malformed_message", "WIRE-16", about=about)
        if about in ("half a message", "single quotes"):  # a server may read the id of the others
            b.note("WIRE-06", answer.has_null_id, f"id null for {about}", answer)


@check("WIRE-18", "ERR-06")
async def numbers_are_json(b: Bench) -> None:
    """Numbers are JSON numbers"""
    for number in (b"NaN", b"Infinity", b"-Infinity", b"0x10", b"+1", b"01", b"1.", b".5"):
        data = encode(_request()).replace(b'"conformance_envelope"', b'"n", "params": {"a": ' + number + b"}")
        b.note_error(await b.request(data), "malformed_message", "WIRE-18", about=number.decode())


@check("WIRE-24", "ERR-06")
async def no_byte_order_mark(b: Bench) -> None:
    """Messages are UTF-8 without a byte order mark"""
    answer = await b.request(b"\xef\xbb\xbf" + encode(_request()))
    b.note_error(answer, "malformed_message", "WIRE-24", about="a byte order mark")
    if (await b.connection()).transport != "websocket":  # WebSocket itself forbids them in a text frame
        answer = await b.request(encode(_request()).replace(b"conformance_envelope", b"a\xff\xfeb"))
        b.note_error(answer, "malformed_message", "WIRE-24", about="bytes that are not UTF-8")


@check("WIRE-02", "ERR-06", "ERR-08")
async def types_are_known(b: Bench) -> None:
    """Messages have a known type"""
    for about, type_ in (("no type", ...), ("type null", None), ("type 1", 1), ("type []", [])):
        b.note_error(await b.request(_request(type=type_)), "malformed_message", "WIRE-02", about=about)
    for type_name in ("x-unknown", "", "Intent_Request", "intent_request "):
        answer = await b.request(_request(type=type_name))
        b.note_error(answer, "invalid_type", "WIRE-02", about=f"the type {type_name!r}")


@check("WIRE-15", "ERR-08")
async def types_have_a_direction(b: Bench) -> None:
    """Messages of servers are not accepted from clients"""
    for type_ in ("manifest", "intent_response", "invoke_response", "progress", "error", "authenticate_response"):
        b.note_error(await b.request(_request(type=type_)), "invalid_type", "WIRE-15", about=f"a client's {type_}")


@check("WIRE-03", "ERR-06")
async def requests_have_ids(b: Bench) -> None:
    """Requests have an id"""
    for about, request_id in (("no id", ...), ("id null", None), ("an empty id", ""), ("a number as id", 7)):
        answer = await b.request(_request(id=request_id))
        b.note_error(answer, "malformed_message", "WIRE-03", about=about)
        b.note("WIRE-03", answer.has_null_id, f"id null for {about}", answer)


@check("WIRE-09", "WIRE-11", "ERR-05", "ERR-41")
async def versions_are_checked(b: Bench) -> None:
    """Other versions are refused, with the list of supported ones"""
    for version in ("1999-01-draft", "2026-02-DRAFT", ""):
        answer = await b.request(_request(manglecp=version))
        b.note_error(answer, "unsupported_version", "WIRE-11", about=f"the version {version!r}")
        if answer.code == "unsupported_version":
            is_repeated = answer.details.get("requested_version") == version
            supported = answer.details.get("supported_versions")
            holds = is_repeated and isinstance(supported, list) and VERSION in supported
            b.note(("WIRE-11", "ERR-41"), holds, "requested_version and supported_versions", answer.details)
    answer = await b.request(_request(manglecp=...))
    b.note("WIRE-09", answer.type == "error", "an error for a message without a version", answer)


@check("WIRE-12", "ERR-06")
async def payloads_are_objects(b: Bench) -> None:
    """A payload is an object"""
    for about, payload in (("no payload", ...), ("null", None), ("a list", []), ("a text", "x"), ("a number", 1)):
        answer = await b.request(_request(payload=payload))
        b.note_error(answer, "malformed_message", "WIRE-12", about=f"a payload that is {about}")


@check("EVAL-01", "ERR-06")
async def intents_have_names(b: Bench) -> None:
    """An intent request has an intent with a name"""
    cases: dict[str, dict[str, Any]] = {
        "no intent": {},
        "an intent without a name": {"intent": {}},
        "a number as name": {"intent": {"name": 1}},
        "a text as intent": {"intent": "observe"},
        "facts that are no list": {**_UNKNOWN_INTENT, "facts": {}},
        "an unknown preference": {**_UNKNOWN_INTENT, "options": {"disclosure_preference": "everything"}},
    }
    for about, payload in cases.items():
        b.note_error(await b.request(message("intent_request", payload)), "malformed_message", "EVAL-01", about=about)


@check("OPEN-58")
async def unknown_members(b: Bench) -> None:
    """Unknown members are ignored and never repeated; the same key twice is malformed"""
    value = "conformance-unknown-member"
    payload = {**_UNKNOWN_INTENT, "later": {"a": value}}
    answer = await b.request(message("intent_request", payload, later=value))
    b.note("OPEN-58", answer.code != "malformed_message", "unknown members ignored", answer)
    b.note("OPEN-58", value.encode() not in answer.data, "unknown members not repeated", answer)
    two_payloads = encode(_request()).replace(b'"payload"', b'"payload": {}, "payload"')
    b.note_error(await b.request(two_payloads), "malformed_message", "OPEN-58", about="the same key twice")


@check("WIRE-14", "OPEN-59", level=2, transports=SESSIONS)
async def cancels_are_notifications(b: Bench) -> None:
    """A cancel of an unknown request is ignored, and one without request_id is malformed"""
    connection = await b.session()
    await connection.write(encode(message("cancel", {"request_id": "conformance-nobody"}, id=None)))
    next_request = _request()
    answer = await b.request(next_request)
    holds = answer.id == next_request["id"]
    b.note(("WIRE-14", "OPEN-59"), holds, "no answer to a cancel of an unknown request", answer)
    answer = await b.request(message("cancel", {}, id=None))
    b.note_error(answer, "malformed_message", "OPEN-59", about="a cancel without request_id")
    b.note("OPEN-59", answer.has_null_id, "id null on the error for it", answer)


_GUARANTEED_BYTES: Final = 16 << 20  # every server accepts messages of this size
_MAX_SENT_BYTES: Final = 64 << 20  # a higher limit of the server is not tested


def _request_of_size(size_bytes: int) -> bytes:
    data = encode(message("intent_request", {"intent": {"name": "conformance_size"}}))
    return data[:-1] + b" " * (size_bytes - len(data)) + b"}"


@check("WIRE-21", time_factor=3)
async def large_messages(b: Bench) -> None:
    """A message of 16 MiB is accepted"""
    small = await b.request(_request_of_size(1_000))
    sizes, limit = [_GUARANTEED_BYTES], b.manifest_limit("max_message_bytes")
    if _GUARANTEED_BYTES < limit <= _MAX_SENT_BYTES:
        sizes.append(limit)
    for size in sizes:
        answer = await b.request(_request_of_size(size))
        is_same = (answer.type, answer.code) == (small.type, small.code)
        b.note("WIRE-21", is_same, f"for {size} bytes the same answer as to a small message: {small}", answer)


@check("WIRE-22", "ERR-07", "MANI-24", "CONF-03", time_factor=3)
async def too_large_messages(b: Bench) -> None:
    """A message beyond limits.max_message_bytes is refused"""
    limit = b.manifest_limit("max_message_bytes")
    if limit >= _MAX_SENT_BYTES:
        raise Untested(f"limits.max_message_bytes is {limit}")
    about = f"{limit + 1} bytes, one more than limits.max_message_bytes"
    try:
        answer = await b.request(_request_of_size(limit + 1))
    except Disconnected as error:  # the server may close the connection
        b.note(("WIRE-22", "MANI-24", "CONF-03"), True, "", error)
        await b.disconnect()
        return
    b.note_error(answer, "message_too_large", "WIRE-22", "MANI-24", "CONF-03", about=about)
    answer = await b.request(message("intent_request", {"intent": {"name": "conformance_size"}}))
    b.note("WIRE-22", answer.code != "message_too_large", "the next message accepted", answer)
