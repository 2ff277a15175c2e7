"""Checks of envelopes and message sizes. The ids (*rows*) are defined in ``docs/reference/requirements.md``."""

from __future__ import annotations

import json
from typing import Any, Final

from manglecp.client import ConnectionLost
from manglecp.conformance.server_test import SESSIONS, ServerTest, check, encode, invocation_message, message, require
from manglecp.wire.messages import VERSION

_UNKNOWN_INTENT: Final = {"intent": {"name": "conformance_envelope"}}  # a valid payload; it returns no tools


def _request(**changes: Any) -> dict[str, Any]:
    return message("intent_request", _UNKNOWN_INTENT, **changes)


@check("WIRE-04", "WIRE-17", "ERR-04")
async def ids_come_back(test: ServerTest) -> None:
    """An id comes back character for character"""
    for id_ in ("a", "0", " blank ", "ümläut", "Κ\u0301", "𝄞 beyond", 'quote " and \\', "x" * 200):
        answer = await test.request(_request(id=id_))
        test.note(("WIRE-04", "ERR-04"), answer.id == id_, f"the id {id_!r}", answer.id)
    answer = await test.request(json.dumps(_request(id="𝄞"), ensure_ascii=True).encode())
    test.note("WIRE-17", answer.id == "𝄞", "a pair of escaped surrogates as one character", answer)
    error = await test.request({**invocation_message("conformance-none", {}), "id": "é-1"})
    test.note("ERR-04", error.id == "é-1", "the id of the request on its error", error)


@check("WIRE-01", "WIRE-06", "WIRE-16", "ERR-06")
async def messages_are_json_objects(test: ServerTest) -> None:
    """A message that is not one JSON object is malformed"""
    valid_message = encode(_request())
    cases = {
        "WIRE-01": {text: text.encode() for text in ("[]", '"text"', "1", "true", "null", "[{}]")},
        "WIRE-16": {
            "half a message": valid_message[: len(valid_message) // 2],
            "single quotes": valid_message.replace(b'"', b"'"),
            "two messages": valid_message + valid_message,
            "a text after the message": valid_message + b" x",
            "a trailing comma": valid_message[:-1] + b",}",
            "a comment": valid_message[:-1] + b"/* */}",
            "a control character in a text": valid_message.replace(b"conformance_envelope", b"a\x01b"),
        },
    }
    for row, requests in cases.items():
        for about, data in requests.items():
            answer = await test.expect_error(data, "malformed_message", row, about=about)
            if row == "WIRE-01" or about in ("half a message", "single quotes"):  # otherwise the id may be readable
                test.note("WIRE-06", answer.has_null_id, f"id null for {about}", answer)


@check("WIRE-18", "WIRE-24", "ERR-06")
async def numbers_and_texts(test: ServerTest) -> None:
    """Numbers are JSON numbers, and texts are UTF-8 without a byte order mark"""
    valid_message = encode(_request())
    for number in ("NaN", "Infinity", "-Infinity", "0x10", "+1", "01", "1.", ".5"):
        data = valid_message.replace(b'"conformance_envelope"', f'"n", "params": {{"a": {number}}}'.encode())
        await test.expect_error(data, "malformed_message", "WIRE-18", about=number)
    await test.expect_error(b"\xef\xbb\xbf" + valid_message, "malformed_message", "WIRE-24", about="a byte order mark")
    if test.report.transport != "websocket":  # WebSocket itself forbids other bytes in a text frame
        data = valid_message.replace(b"conformance_envelope", b"a\xff\xfeb")
        await test.expect_error(data, "malformed_message", "WIRE-24", about="bytes that are not UTF-8")


@check("WIRE-02", "WIRE-03", "WIRE-12", "ERR-06")
async def envelopes_are_complete(test: ServerTest) -> None:
    """A message without a valid type, id or payload is malformed"""
    invalid_members: list[tuple[str, str, list[Any]]] = [  # the value ``...`` stands for a message without the member
        ("WIRE-02", "type", [..., None, 1, []]),
        ("WIRE-03", "id", [..., None, "", 7]),
        ("WIRE-12", "payload", [..., None, [], "x", 1]),
    ]
    for row, member, values in invalid_members:
        for value in values:
            about = f"no {member}" if value is ... else f"the {member} {json.dumps(value)}"
            answer = await test.expect_error(_request(**{member: value}), "malformed_message", row, about=about)
            if row == "WIRE-03":
                test.note("WIRE-03", answer.has_null_id, f"id null for {about}", answer)


@check("EVAL-01", "INVK-01", "INVK-02", "ERR-06")
async def payloads_are_complete(test: ServerTest) -> None:
    """A request without a named intent, or without a macro_id and arguments, is malformed"""
    unknown_preference = {**_UNKNOWN_INTENT, "options": {"disclosure_preference": "everything"}}
    cases: list[tuple[str, str, list[dict[str, Any]]]] = [
        ("EVAL-01", "intent_request", [{}, {"intent": {}}, {"intent": {"name": 1}}, {"intent": "x"}]),
        ("EVAL-01", "intent_request", [{**_UNKNOWN_INTENT, "facts": {}}, unknown_preference]),
        ("INVK-01", "invoke_request", [{"args": {}}, {"macro_id": 1, "args": {}}]),
        (
            "INVK-02",
            "invoke_request",
            [{"macro_id": "x"}, {"macro_id": "x", "args": []}, {"macro_id": "x", "args": "x"}],
        ),
    ]
    for row, type_, payloads in cases:
        for payload in payloads:
            await test.expect_error(message(type_, payload), "malformed_message", row, about=f"the payload {payload}")


@check("WIRE-02", "WIRE-15", "ERR-08")
async def types_are_known(test: ServerTest) -> None:
    """A message of an unknown type, or of a type of servers, is refused"""
    for type_ in ("x-unknown", "", "Intent_Request", "intent_request "):
        await test.expect_error(_request(type=type_), "invalid_type", "WIRE-02", about=f"the type {type_!r}")
    for type_ in ("manifest", "intent_response", "invoke_response", "progress", "error", "authenticate_response"):
        await test.expect_error(_request(type=type_), "invalid_type", "WIRE-15", about=f"a client's {type_}")


@check("WIRE-09", "WIRE-11", "ERR-05", "ERR-41")
async def versions_are_checked(test: ServerTest) -> None:
    """Other versions are refused, with the list of supported ones"""
    for version in ("1999-01-draft", "2026-02-DRAFT", ""):
        about = f"the version {version!r}"
        answer = await test.expect_error(_request(manglecp=version), "unsupported_version", "WIRE-11", about=about)
        if answer.code == "unsupported_version":
            is_repeated = answer.details.get("requested_version") == version
            supported_versions = answer.details.get("supported_versions")
            holds = is_repeated and isinstance(supported_versions, list) and VERSION in supported_versions
            test.note(("WIRE-11", "ERR-41"), holds, "requested_version and supported_versions", answer.details)
    answer = await test.request(_request(manglecp=...))
    test.note("WIRE-09", answer.type == "error", "an error for a message without a version", answer)


@check("OPEN-58")
async def unknown_members(test: ServerTest) -> None:
    """Unknown members are ignored and never repeated; the same key twice is malformed"""
    value = "conformance-unknown-member"
    payload = {**_UNKNOWN_INTENT, "later": {"a": value}}
    answer = await test.request(message("intent_request", payload, later=value))
    test.note("OPEN-58", answer.code != "malformed_message", "unknown members ignored", answer)
    test.note("OPEN-58", value.encode() not in answer.data, "unknown members not repeated", answer)
    two_payloads = encode(_request()).replace(b'"payload"', b'"payload": {}, "payload"')
    await test.expect_error(two_payloads, "malformed_message", "OPEN-58", about="the same key twice")


@check("WIRE-14", "OPEN-59", level=2, transports=SESSIONS)
async def cancels_are_notifications(test: ServerTest) -> None:
    """A cancel of an unknown request is ignored, and one without request_id is malformed"""
    connection = await test.session()
    await connection.write(encode(message("cancel", {"request_id": "conformance-nobody"}, id=None)))
    next_request = _request()
    answer = await test.request(next_request)
    holds = answer.id == next_request["id"]
    test.note(("WIRE-14", "OPEN-59"), holds, "no answer to a cancel of an unknown request", answer)
    cancel = message("cancel", {}, id=None)
    answer = await test.expect_error(cancel, "malformed_message", "OPEN-59", about="a cancel without request_id")
    test.note("OPEN-59", answer.has_null_id, "id null on the error for it", answer)


_GUARANTEED_BYTES: Final = 16 << 20  # every server accepts messages of this size
_MAX_SENT_BYTES: Final = 64 << 20  # a higher limit of the server is not tested


def _request_of_size(size_bytes: int) -> bytes:
    data = encode(_request())
    return data[:-1] + b" " * (size_bytes - len(data)) + b"}"


@check("WIRE-21", time_factor=3)
async def large_messages(test: ServerTest) -> None:
    """A message of 16 MiB is accepted"""
    small_answer = await test.request(_request_of_size(1_000))
    sizes, limit = [_GUARANTEED_BYTES], test.manifest_limit("max_message_bytes")
    if _GUARANTEED_BYTES < limit <= _MAX_SENT_BYTES:
        sizes.append(limit)
    for size in sizes:
        answer = await test.request(_request_of_size(size))
        is_same = (answer.type, answer.code) == (small_answer.type, small_answer.code)
        test.note("WIRE-21", is_same, f"for {size} bytes the same answer as to a small message: {small_answer}", answer)


@check("WIRE-22", "ERR-07", "MANI-24", "CONF-03", time_factor=3)
async def too_large_messages(test: ServerTest) -> None:
    """A message beyond limits.max_message_bytes is refused"""
    limit = test.manifest_limit("max_message_bytes")
    require(limit < _MAX_SENT_BYTES, f"limits.max_message_bytes is {limit}")
    rows = ("WIRE-22", "MANI-24", "CONF-03")
    try:
        answer = await test.request(_request_of_size(limit + 1))
    except ConnectionLost:  # the server may close the connection
        test.note(rows, True)
        await test.disconnect()
        return
    about = f"{limit + 1} bytes, one more than limits.max_message_bytes"
    test.note_error(answer, "message_too_large", *rows, about=about)
    answer = await test.request(_request())
    test.note("WIRE-22", answer.code != "message_too_large", "the next message accepted", answer)
