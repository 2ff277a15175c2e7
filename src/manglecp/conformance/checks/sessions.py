"""What only sessions have: pipelining, cancelling, and an end."""

from __future__ import annotations

import asyncio
from collections import Counter

from manglecp.conformance.bench import Bench, dumped, message
from manglecp.conformance.lines.line import Answer
from manglecp.conformance.lines.stdio import StdioLine
from manglecp.conformance.registry import SESSIONS, STDIO, WEBSOCKET, check

_MANY = 20


@check("TRANS-02", "TRANS-04", "TRANS-05", "MANI-01", transports=WEBSOCKET, access=False)
async def manifest_first_on_websocket(b: Bench) -> None:
    """The manifest is the first message of each connection, in one text frame"""
    line = b.new_line()
    try:
        answer = await line.open()
    finally:
        await line.close()
    b.that(("TRANS-02", "MANI-01"), answer.type == "manifest", "the manifest", answer)
    b.that("MANI-01", answer.message.get("id", "absent") is None, "id null on the manifest", answer)
    b.that(("TRANS-04", "TRANS-05"), True, "", "")  # anything else would have been no message


@check("TRANS-25", "TRANS-23", "MANI-01", transports=STDIO, access=False)
async def manifest_first(b: Bench) -> None:
    """The manifest is the first line"""
    line = b.new_line()
    try:
        answer = await line.open()
    finally:
        await line.close()
    b.that(("TRANS-25", "TRANS-23", "MANI-01"), answer.type == "manifest", "the manifest", answer)
    b.that("MANI-01", answer.message.get("id", "absent") is None, "id null on the manifest", answer)


@check("TRANS-33", "TRANS-34", "WIRE-04", transports=SESSIONS, patience=2)
async def pipelining(b: Bench) -> None:
    """Requests sent without waiting are all answered, each once"""
    line = await b.session()
    stated = await b.intent()
    sent = [message("intent_request", stated.payload()) for _ in range(_MANY)]
    sent[3]["payload"] = {}
    for one in sent:
        await line.write(dumped(one))
    answers: list[Answer] = [await line.next() for _ in sent]
    came, wanted = Counter(str(one.message.get("id")) for one in answers), Counter(str(one["id"]) for one in sent)
    b.that(("TRANS-33", "WIRE-04"), came == wanted, "one terminal message for each id", came - wanted)
    b.that("TRANS-33", not line.repeated, "no second one", line.repeated)
    for answer in answers:
        wrong = answer.message.get("id") == sent[3]["id"]
        kind = "error" if wrong else "intent_response"
        busy = answer.code in ("rate_limited", "server_not_ready")
        b.that("TRANS-34", answer.type == kind or busy, f"{kind} for its own request", answer)


@check("TRANS-36", "TRANS-38", "ERR-32", level=2, transports=SESSIONS, patience=2)
async def cancelling(b: Bench) -> None:
    """A request that is cancelled has one terminal message: cancelled, or its answer"""
    line = await b.session()
    stated = await b.intent()
    sent = [message("intent_request", stated.payload()) for _ in range(_MANY)]
    for one in sent:
        await line.write(dumped(one))
    for one in reversed(sent):
        await line.write(dumped(message("cancel", {"request_id": one["id"]}, id=None)))
    answers = [await line.next() for _ in sent]
    came = Counter(str(one.message.get("id")) for one in answers)
    rows = ("TRANS-36", "TRANS-38")
    b.that(rows, came == Counter(str(one["id"]) for one in sent), "one terminal message for each id", came)
    after = await b.state(stated)
    b.that("TRANS-38", after.type == "intent_response", "an answer to the next request", after)
    b.that("TRANS-38", not line.repeated, "no other terminal message", line.repeated)
    for answer in answers:
        fits = answer.type == "intent_response" or answer.code in ("cancelled", "rate_limited", "server_not_ready")
        b.that("TRANS-38", fits, "cancelled, or the answer", answer)
        if answer.code == "cancelled":
            b.that("ERR-32", answer.payload.get("recoverable") is False, "recoverable false", answer)


@check("TRANS-37", "TRANS-38", "ERR-32", "PROG-06", level=2, transports=SESSIONS, patience=3)
async def cancelling_runs(b: Bench) -> None:
    """An invocation that is cancelled has one terminal message"""
    for invocation in b.invocations(lambda one: one.slow):
        macro_id = await b.macro_id(invocation)
        line = await b.session()
        request = message("invoke_request", {"macro_id": macro_id, "args": dict(invocation.args)})
        await line.write(dumped(request))
        await asyncio.sleep(0.2)
        await line.write(dumped(message("cancel", {"request_id": request["id"]}, id=None)))
        answer = await line.next()
        own = answer.message.get("id") == request["id"]
        b.that(("TRANS-38", "PROG-06"), own, "the id of what was cancelled", answer)
        stopped = answer.code == "cancelled"
        b.that("TRANS-37", stopped, "a slow run that stops", answer)
        if stopped:
            b.that("ERR-32", answer.payload.get("recoverable") is False, "recoverable false", answer)


@check("TRANS-26", "TRANS-27", "TRANS-23", "TRANS-24", transports=STDIO, patience=2)
async def end_of_input(b: Bench) -> None:
    """At the end of its input the server answers what is pending, and ends"""
    line = b.new_line()
    assert isinstance(line, StdioLine)
    try:
        await line.open()
        request = message("intent_request", {"intent": {"name": "conformance_end"}})
        await line.write(dumped(request))
        line.end_input()
        answer = await line.next()
        b.that("TRANS-27", answer.message.get("id") == request["id"], "the pending answer", answer)
        await line.ended()
        b.that("TRANS-27", not line.unread, "nothing else after the end of the input", line.unread)
        status = await line.exit_status()
        b.that("TRANS-26", status == 0, "exit status 0", status)
        b.that(("TRANS-23", "TRANS-24"), True, "", "")
    finally:
        await line.close()
