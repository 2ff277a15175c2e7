"""Checks of envelopes and message sizes. The ids (*rows*) are defined in ``docs/reference/requirements.md``."""

from __future__ import annotations

from typing import Any, Final

from manglecp.client import ConnectionLost
from manglecp.conformance.server_test import SESSIONS, ServerTest, check, encode, message, require

_UNKNOWN_INTENT: Final = {"intent": {"name": "conformance_envelope"}}  # a valid payload; it returns no tools


def _request(**changes: Any) -> dict[str, Any]:
    return message("intent_request", _UNKNOWN_INTENT, **changes)


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
    answer = await test.request(cancel)
    test.note_error(answer, "malformed_message", "OPEN-59", about="a cancel without request_id")
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
