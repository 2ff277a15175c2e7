"""Checks of the manifest, the transports and the sizes of messages.

The ids of requirements in ``@check`` are called *rows*: rows of the tables in ``docs/reference/requirements.md``.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from manglecp.client import ConnectionLost, StdioTransport
from manglecp.conformance.connections import ServerMessage, get_objects
from manglecp.conformance.server_test import (
    BUSY_CODES,
    SESSIONS,
    ServerTest,
    check,
    encode,
    message,
    require,
)

_UNKNOWN_INTENT: Final = {"intent": {"name": "conformance_envelope"}}  # a valid payload; it returns no tools


def _request(**changes: Any) -> dict[str, Any]:
    return message("intent_request", _UNKNOWN_INTENT, **changes)


@check("CONF-12", "MANI-16", "DATA-50", level=2, needs_credential=False)
async def predicates_are_described(test: ServerTest) -> None:
    """The manifest describes the predicates that intents need"""
    schemas = test.predicate_schemas
    if test.report.level == 3:
        test.note("CONF-12", bool(schemas), "predicate schemas in the manifest", schemas)
    described_names = {schema["predicate"] for schema in schemas}
    intents = get_objects(test.manifest, "intents")
    required_names = {name for intent in intents for name in intent.get("required_facts") or ()}
    undescribed_names = sorted(required_names - described_names)
    test.note("MANI-16", not undescribed_names, "a schema of each predicate that an intent requires", undescribed_names)
    for schema in schemas:
        lists = [schema[name] for name in ("arg_types", "arg_names") if schema.get(name)]
        holds = all(len(items) == schema["arity"] for items in lists)
        test.note("DATA-50", holds, "as many arg_types and arg_names as arguments", schema)


_CONCURRENT_REQUESTS = 20


@check("TRANS-02", "TRANS-04", "TRANS-05", "MANI-01", transports=("websocket",), needs_credential=False)
async def manifest_first_on_websocket(test: ServerTest) -> None:
    """The manifest is the first message of each connection, in one text frame"""
    async with test.other_session() as (_, first_message):
        test.note(("TRANS-02", "MANI-01"), first_message.type == "manifest", "the manifest", first_message)
        test.note(("TRANS-04", "TRANS-05"), True)  # a violation would have raised InvalidMessage


@check("TRANS-25", "TRANS-23", "MANI-01", transports=("stdio",), needs_credential=False)
async def manifest_first(test: ServerTest) -> None:
    """The manifest is the first line"""
    async with test.other_session() as (_, first_message):
        test.note(("TRANS-25", "TRANS-23", "MANI-01"), first_message.type == "manifest", "the manifest", first_message)


async def _exchange_concurrently(test: ServerTest, *envelopes: dict[str, Any]) -> tuple[list[ServerMessage], list[str]]:
    """Send envelopes without waiting. Return the answers to the requests, and the ids without exactly one answer."""
    session = await test.session()
    for envelope in envelopes:
        await session.write(encode(envelope))
    sent_ids = [envelope["id"] for envelope in envelopes if envelope["id"] is not None]  # cancels have no id
    answers = [await session.next() for _ in sent_ids]
    answered_ids = [answer.id for answer in answers]
    return answers, [id_ for id_ in sent_ids if answered_ids.count(id_) != 1]


@check("TRANS-33", "TRANS-34", "WIRE-04", transports=SESSIONS, time_factor=2)
async def pipelining(test: ServerTest) -> None:
    """Requests sent without waiting are all answered, each once"""
    intent = await test.usable_intent()
    requests = [message("intent_request", intent.payload()) for _ in range(_CONCURRENT_REQUESTS)]
    requests[3]["payload"] = {}  # one request is invalid
    answers, wrong_ids = await _exchange_concurrently(test, *requests)
    test.note(("TRANS-33", "WIRE-04"), not wrong_ids, "one terminal message for each id", wrong_ids)
    unexpected_messages = await (await test.session()).unexpected()
    test.note("TRANS-33", not unexpected_messages, "no second terminal message", unexpected_messages)
    for answer in answers:
        type_ = "error" if answer.id == requests[3]["id"] else "intent_response"
        is_busy = answer.code in BUSY_CODES
        test.note("TRANS-34", answer.type == type_ or is_busy, f"{type_} for its own request", answer)


@check("TRANS-36", "TRANS-38", "ERR-32", level=2, transports=SESSIONS, time_factor=2)
async def cancelling(test: ServerTest) -> None:
    """A request that is cancelled has one terminal message: cancelled, or its answer"""
    intent = await test.usable_intent()
    requests = [message("intent_request", intent.payload()) for _ in range(_CONCURRENT_REQUESTS)]
    cancels = (message("cancel", {"request_id": request["id"]}, id=None) for request in reversed(requests))
    answers, wrong_ids = await _exchange_concurrently(test, *requests, *cancels)
    test.note(("TRANS-36", "TRANS-38"), not wrong_ids, "one terminal message for each id", wrong_ids)
    answer = await test.evaluate(intent)
    test.note("TRANS-38", answer.type == "intent_response", "an answer to the next request", answer)
    unexpected_messages = await (await test.session()).unexpected()
    test.note("TRANS-38", not unexpected_messages, "no other terminal message", unexpected_messages)
    for answer in answers:
        holds = answer.type == "intent_response" or answer.code in ("cancelled", *BUSY_CODES)
        test.note("TRANS-38", holds, "cancelled, or the answer", answer)
        if answer.code == "cancelled":
            test.note("ERR-32", answer.payload.get("recoverable") is False, "recoverable false", answer)


@check("TRANS-37", "TRANS-38", "ERR-32", "PROG-06", level=2, transports=SESSIONS, time_factor=3)
async def cancelling_runs(test: ServerTest) -> None:
    """An invocation that is cancelled has one terminal message"""
    for invocation in test.planned_invocations(lambda invocation: invocation.slow):
        macro_id = await test.macro_id(invocation)
        session = await test.session()
        request = message("invoke_request", {"macro_id": macro_id, "args": dict(invocation.args)})
        await session.write(encode(request))
        await asyncio.sleep(0.2)  # let the run begin
        await session.write(encode(message("cancel", {"request_id": request["id"]}, id=None)))
        answer = await session.next()
        test.note(("TRANS-38", "PROG-06"), answer.id == request["id"], "the id of the cancelled request", answer)
        if test.note("TRANS-37", answer.code == "cancelled", "the error cancelled, because the slow run stops", answer):
            test.note("ERR-32", answer.payload.get("recoverable") is False, "recoverable false", answer)


@check("TRANS-26", "TRANS-27", "TRANS-23", "TRANS-24", transports=("stdio",), time_factor=2)
async def end_of_input(test: ServerTest) -> None:
    """At the end of its input the server answers the pending requests, and exits"""
    async with test.other_session() as (session, _):
        assert isinstance(session.stream, StdioTransport)
        process = session.stream.process
        assert process is not None
        assert process.stdin is not None
        request = message("intent_request", {"intent": {"name": "conformance_end"}})
        await session.write(encode(request))
        process.stdin.close()
        answer = await session.next()
        test.note("TRANS-27", answer.id == request["id"], "the pending answer", answer)
        with suppress(ConnectionLost):
            while True:
                test.note("TRANS-27", False, "nothing else after the end of the input", await session.next())
        status = await process.wait()
        test.note("TRANS-26", status == 0, "exit status 0", status)
        test.note(("TRANS-23", "TRANS-24"), True)  # a violation would have raised InvalidMessage


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
