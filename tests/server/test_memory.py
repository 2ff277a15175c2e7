"""Long messages are let go of at once: the collector comes by so seldom that what waits for it could be any amount."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Awaitable, Callable

import pytest

from manglecp.server.protocols import HttpProtocol, WebSocketProtocol
from tests.load.wires import JSON, connect, connect_websocket, frame, read_answer, read_frame, request
from tests.server.desk import PATIENCE, encoded, intent
from tests.server.house import House, house

LONG = b'{"type":"' + b"x" * (4 << 20)
"""No JSON."""
TIMES = 4


async def posted(h: House) -> None:
    reader, writer = await connect(h.port)
    writer.write(request(b"POST", b"/evaluate", LONG, JSON))
    assert (await read_answer(reader)).json()["payload"]["code"] == "malformed_message"
    writer.close()


async def half_posted(h: House) -> None:
    _, writer = await connect(h.port)
    writer.write(request(b"POST", b"/evaluate", LONG, JSON)[: len(LONG) // 2])
    await writer.drain()
    writer.close()


async def framed(h: House) -> None:
    reader, writer = await connect_websocket(h.port)
    await read_frame(reader)
    writer.write(frame(LONG))
    assert json.loads((await read_frame(reader)).data)["payload"]["code"] == "malformed_message"
    writer.close()


async def half_framed(h: House) -> None:
    reader, writer = await connect_websocket(h.port)
    await read_frame(reader)
    writer.write(frame(LONG)[: len(LONG) // 2])
    await writer.drain()
    writer.close()


@pytest.mark.no_cover
@pytest.mark.req("SEC-37")
@pytest.mark.parametrize("send", [posted, half_posted, framed, half_framed])
async def test_nothing_of_a_long_message_waits_for_the_collector(send: Callable[[House], Awaitable[None]]) -> None:
    async with house() as h, asyncio.timeout(PATIENCE):
        await send(h)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(TIMES):
                await send(h)
            while tracemalloc.get_traced_memory()[0] > len(LONG) // 4:  # connections take a moment to end
                await asyncio.sleep(0.05)
        finally:
            tracemalloc.stop()
            gc.enable()


@pytest.mark.no_cover
async def test_an_idle_connection_does_not_keep_its_last_message() -> None:
    async with house(ping=PATIENCE) as h, asyncio.timeout(PATIENCE):
        reader, writer = await connect_websocket(h.port)
        await read_frame(reader)
        tracemalloc.start()
        try:
            writer.write(frame(LONG))
            await read_frame(reader)
            while tracemalloc.get_traced_memory()[0] > len(LONG) // 4:
                await asyncio.sleep(0.05)
        finally:
            tracemalloc.stop()
            writer.close()


# --- connections -----------------------------------------------------------------------------------------------------


async def asked(h: House) -> None:
    reader, writer = await connect(h.port)
    for name in ("a", "b"):
        writer.write(request(b"POST", b"/evaluate", encoded(intent(name)), JSON))
        assert (await read_answer(reader)).status == 200
    writer.close()


async def not_waited_for(h: House) -> None:
    _, writer = await connect(h.port)
    writer.write(request(b"POST", b"/evaluate", encoded(intent("a")), JSON))
    await writer.drain()
    writer.close()


async def too_long(h: House) -> None:
    reader, writer = await connect(h.port)
    head, _, _ = request(b"POST", b"/evaluate", LONG, JSON).partition(b"\r\n\r\n")
    writer.write(head.replace(b"%d" % len(LONG), b"999999999") + b"\r\n\r\n")
    assert (await read_answer(reader)).status == 413
    writer.close()


async def over_a_websocket(h: House) -> None:
    reader, writer = await connect_websocket(h.port)
    await read_frame(reader)
    writer.write(frame(encoded(intent("a"))))
    assert json.loads((await read_frame(reader)).data)["id"] == "a"
    writer.close()


@pytest.mark.no_cover
@pytest.mark.parametrize("speak", [asked, not_waited_for, half_posted, too_long, over_a_websocket])
async def test_nothing_of_a_connection_waits_for_the_collector(speak: Callable[[House], Awaitable[None]]) -> None:
    async with house() as h, asyncio.timeout(PATIENCE):
        await speak(h)
        gc.collect()
        gc.disable()
        try:
            for _ in range(TIMES):
                await speak(h)
            while any(isinstance(one, HttpProtocol | WebSocketProtocol) for one in gc.get_objects()):
                await asyncio.sleep(0.05)
        finally:
            gc.enable()
