"""The kinds of clients in :mod:`tests.load.traffic`. Each makes a connection or a few, and uses them for a while."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final

from tests.load.traffic import Client, Traffic, leaving
from tests.load.wires import (
    CLOSE,
    JSON,
    PING,
    PONG,
    TEXT,
    Answer,
    connect,
    connect_websocket,
    frame,
    message,
    read_answer,
    read_frame,
    request,
)

__all__ = ["mixture"]

MANIFEST: Final = b"/.well-known/manglecp/manifest.json"
TOO_BIG: Final = 1009
GOODBYES: Final = frozenset({1001, 1012})
"""With which a server that ends takes leave, of those that come late as well."""
TOO_LONG: Final = b'{"type":"' + b"x" * (1 << 24) + b'"}'
PIPELINE: Final = 8
PENDING: Final = 64
"""Requests of one session that may be unanswered."""


# --- those that do everything right ----------------------------------------------------------------------------------


async def asks(t: Traffic, number: int) -> None:
    """Evaluates and invokes over HTTP, and looks at the manifest now and then."""
    token, asker = t.token(number), t.asker(number)
    reader, writer = await connect(t.port)
    try:
        for n in range(50):
            if t.over:
                return
            question, began = asker.next(), time.monotonic()
            writer.write(request(b"POST", question.path, question.data, JSON, token=token))
            got = await read_answer(reader)
            if (got.status == 200) != (got.json()["type"] != "error"):
                t.blame("asks", f"status {got.status} for {got.body[:200]!r}")
            wait = t.judge("asks", question, got.json(), began)
            if got.headers.get(b"connection") == b"close":
                return
            if n % 10 == 0:
                await _look_at_manifest(t, reader, writer)
            await t.pause(wait)
    finally:
        writer.close()


async def _look_at_manifest(t: Traffic, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(request(b"GET", MANIFEST))
    whole = await read_answer(reader)
    writer.write(request(b"GET", MANIFEST, None, ((b"if-none-match", whole.headers.get(b"etag", b"")),)))
    again = await read_answer(reader)
    if whole.status != 200 or whole.json()["payload"]["server_name"] != "drafts":
        t.blame("asks", f"the manifest is {whole}")
    if (again.status, again.body) != (304, b"") and not t.draining:
        t.blame("asks", f"the manifest has not changed, and yet {again} was answered")


async def talks(t: Traffic, number: int) -> None:
    """Several requests at once over a WebSocket; answers come in any order."""
    asker = t.asker(number)
    reader, writer = await connect_websocket(t.port, token=t.token(number))
    try:
        for _ in range(20):
            if t.over:
                return
            batch = [asker.next() for _ in range(PIPELINE)]
            waiting, began = {one.id: one for one in batch}, time.monotonic()
            writer.write(b"".join(frame(one.data) for one in batch))
            wait = 0.0
            while waiting:
                got = await _next(t, "talks", reader, writer)
                if got is None:
                    return
                question = waiting.pop(got["id"], None)
                if question is None:
                    t.blame("talks", f"{got['id']} was not asked, or answered before")
                else:
                    wait = max(wait, t.judge("talks", question, got, began))
            await t.pause(wait)
    finally:
        writer.close()


async def _next(
    t: Traffic, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> dict[str, Any] | None:
    """The next answer; None if the server has taken leave."""
    while True:
        got = await read_frame(reader)
        if got.opcode == PING:
            writer.write(frame(got.data, PONG))
        elif got.opcode == CLOSE:
            if not t.draining or got.code not in GOODBYES:
                t.blame(kind, f"closed with {got.code}")
            writer.write(frame(got.data, CLOSE))
            return None
        elif got.opcode == TEXT:
            told: dict[str, Any] = json.loads(got.data)
            if told["type"] not in ("manifest", "progress"):
                return told
        else:
            t.blame(kind, f"a frame of kind {got.opcode}")


async def trickles(t: Traffic, number: int) -> None:
    """A slow writer that comes to an end, and is answered like anybody else."""
    question = t.asker(number).next()
    data = request(b"POST", question.path, question.data, JSON, token=t.token(number))
    reader, writer = await connect(t.port)
    try:
        for start in range(0, len(data), 40):
            writer.write(data[start : start + 40])
            await asyncio.sleep(0.02)
        began = time.monotonic()
        await t.pause(t.judge("trickles", question, (await read_answer(reader)).json(), began))
    finally:
        writer.close()


async def hurries(t: Traffic, number: int) -> None:
    """More at once than a session may: the rest is put off, and nothing is lost."""
    asker = t.asker(number)
    reader, writer = await connect_websocket(t.port, token=t.token(number))
    try:
        waiting = {one.id: one for one in (asker.next() for _ in range(PENDING + 40))}
        writer.write(b"".join(frame(one.data) for one in waiting.values()))
        while waiting:
            got = await _next(t, "hurries", reader, writer)
            if got is None:
                return
            question, code = waiting.pop(got["id"]), got["payload"].get("code")
            if code in {"rate_limited", *_refusals(t)} and got["payload"]["retry_after_ms"] > 0:
                t.done["hurries, put off"] += 1
            elif code is not None or question.wrong(got["payload"]):
                t.blame("hurries", f"was answered with {got}")
        t.done["hurries"] += 1
        await t.pause(0.5)
    finally:
        writer.close()


# --- those that are slow, or leave -----------------------------------------------------------------------------------


async def dawdles(t: Traffic, _: int) -> None:
    """A slow writer that never comes to an end."""
    reader, writer = await connect(t.port)
    with leaving():
        writer.write(b"POST /evaluate HTTP/1.1\r\nhost: localhost\r\n")
        while not t.over and not reader.at_eof():
            writer.write(b"x: y\r\n")
            await asyncio.sleep(0.1)
    writer.close()
    t.done["dawdles"] += 1


async def stares(t: Traffic, number: int) -> None:
    """Asks, and does not read the answers; not even to find out that nobody gives any."""
    asker, socket = t.asker(number), number % 2 == 0
    with leaving():
        if socket:
            _, writer = await connect_websocket(t.port, token=t.token(number))
            data = b"".join(frame(asker.next().data) + frame(b"hello", PING) for _ in range(20))
        else:
            _, writer = await connect(t.port)
            data = request(b"GET", MANIFEST) * 20
        transport = writer.transport
        transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            if t.over:
                break
            if transport.get_write_buffer_size() < 1 << 20:
                writer.write(data)
            await asyncio.sleep(0.1)
        transport.abort()
    t.done["stares"] += 1


async def drops(t: Traffic, number: int) -> None:
    """Leaves in the middle of a request, or before or in the middle of the answer."""
    asker, token = t.asker(number), t.token(number)
    for n in range(12):
        if t.over:
            return
        question = asker.next()
        data = request(b"POST", question.path, question.data, JSON, token=token)
        with leaving():
            if n % 4 == 3:
                reader, writer = await connect_websocket(t.port, token=token)
                writer.write(frame(question.data) * (n // 4 + 1))
            else:
                reader, writer = await connect(t.port)
                writer.write(data[: len(data) * (1 + n % 4) // 3])
            if n % 3:
                await asyncio.sleep(0.001 * n)
            if n % 4 == 2:
                await reader.read(10)
            writer.transport.abort()
        t.done["drops"] += 1
        await t.pause(0.02)


# --- those that say what they must not -------------------------------------------------------------------------------


async def overdoes(t: Traffic, number: int) -> None:
    """Messages that are too long, and much too long."""
    token = t.token(number)
    reader, writer = await connect(t.port)
    writer.write(request(b"POST", b"/evaluate", TOO_LONG, JSON, token=token))
    _refused(t, "overdoes", await read_answer(reader), {413}, {"message_too_large"})
    writer.close()
    reader, writer = await connect(t.port)
    with leaving():
        announced = (b"content-length", b"%d" % (20 * len(TOO_LONG)))
        writer.write(request(b"POST", b"/evaluate", None, (*JSON, announced), token=token) + bytes(1 << 20))
        _refused(t, "overdoes", await read_answer(reader), {413}, {"message_too_large"})
    writer.close()
    reader, writer = await connect_websocket(t.port, token=token)
    writer.write(frame(TOO_LONG))
    told = await _next(t, "overdoes", reader, writer)
    if told is not None and told["payload"].get("code") not in {"message_too_large", *_refusals(t)}:
        t.blame("overdoes", f"was answered with {told}")
    with leaving():
        writer.write(b"\x81\xff" + (20 * len(TOO_LONG)).to_bytes(8) + bytes(1 << 20))
        while (got := await read_frame(reader)).opcode != CLOSE:
            pass
        if got.code != TOO_BIG and not t.draining:
            t.blame("overdoes", f"closed with {got.code}")
    writer.close()
    t.done["overdoes"] += 1
    await t.pause(0.5)


async def babbles(t: Traffic, number: int) -> None:
    """What is no message, on connections that live through it; and what is no HTTP."""
    token = t.token(number)
    wrong: tuple[tuple[bytes, str], ...] = (
        (b"{", "malformed_message"),
        (b"[" * 5_000, "malformed_message"),
        (b'{"a":NaN}', "malformed_message"),
        (message("intent_request", "b", {}), "malformed_message"),
        (message("nonsense", "b", {}), "invalid_type"),
        (b'{"id":"b","type":"intent_request","manglecp":"1999","payload":{}}', "unsupported_version"),
    )
    reader, writer = await connect(t.port)
    for data, code in wrong:
        writer.write(request(b"POST", b"/evaluate", data, JSON, token=token))
        got = await read_answer(reader)
        _refused(t, "babbles", got, {400}, {code})
        if got.headers.get(b"connection") == b"close":
            break
    writer.close()
    reader, writer = await connect_websocket(t.port, token=token)
    for data, code in wrong:
        writer.write(frame(data))
        told = await _next(t, "babbles", reader, writer)
        if told is None:
            break
        if told["payload"]["code"] not in {code, *_refusals(t)}:
            t.blame("babbles", f"{data[:50]!r} was answered with {told}")
    writer.close()
    reader, writer = await connect(t.port)
    with leaving():
        writer.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
        await reader.read()
    writer.close()
    t.done["babbles"] += 1
    await t.pause(0.1)


async def strangers(t: Traffic, number: int) -> None:
    """No credential, and one that does not hold, of which there may not be many."""
    data = t.asker(number).next().data
    reader, writer = await connect(t.port)
    writer.write(request(b"POST", b"/evaluate", data, JSON))
    got = await read_answer(reader)
    _refused(t, "strangers", got, {401}, {"auth_required"})
    if got.headers.get(b"connection") != b"close":
        writer.write(request(b"POST", b"/evaluate", data, JSON, token="nobody"))
        _refused(t, "strangers", await read_answer(reader), {401, 429}, {"auth_invalid", "rate_limited"})
    writer.close()
    reader, writer = await connect_websocket(t.port)
    for said, codes in (
        (data, {"auth_required"}),
        (message("authenticate", "a", {"scheme": "bearer", "token": "nobody"}), {"auth_invalid", "rate_limited"}),
    ):
        writer.write(frame(said))
        told = await _next(t, "strangers", reader, writer)
        if told is None:
            break
        if told["payload"].get("code") not in codes | _refusals(t):
            t.blame("strangers", f"was answered with {told}")
    writer.close()
    t.done["strangers"] += 1
    await t.pause(0.2)


def _refusals(t: Traffic) -> set[str]:
    return {"server_not_ready"} if t.draining else set()


def _refused(t: Traffic, kind: str, got: Answer, statuses: set[int], codes: set[str]) -> None:
    code = got.json()["payload"].get("code")
    put_off = t.draining and (got.status, code) == (503, "server_not_ready")
    if not put_off and (got.status not in statuses or code not in codes):
        t.blame(kind, f"was answered with {got}")


# --- together --------------------------------------------------------------------------------------------------------

_SHARES: Final[tuple[tuple[Client, int], ...]] = (
    (asks, 7),
    (talks, 4),
    (trickles, 1),
    (hurries, 1),
    (dawdles, 1),
    (stares, 2),
    (drops, 1),
    (overdoes, 1),
    (babbles, 1),
    (strangers, 1),
)


def mixture(connections: int) -> list[Client]:
    """So many clients of all kinds, at least one of each."""
    one_round = [client for client, share in _SHARES for _ in range(share)]
    return [one_round[n % len(one_round)] for n in range(connections)]
