"""WebSocket under fuzz: messages that are none on connections that have to live, and frames that are none.

A frame that breaks the protocol ends its own connection, with the code that belongs to it, and nobody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tests.fuzz.answers import MEMORY, SIZES, answer, check, check_all
from tests.fuzz.frames import SENTINEL, sent
from tests.fuzz.odd_frames import ANSWERED, JOINED, Odd, handshake, odd
from tests.load.serving import PATIENCE, Server, serve
from tests.load.wires import CLOSE, PING, PONG, TEXT, Frame, connect, connect_websocket, frame, read_frame

pytestmark = pytest.mark.no_cover

BATCH: Final = 40
"""Fewer than a session may have unanswered."""


@dataclass
class Line:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def hear(self) -> dict[str, Any]:
        """The next answer."""
        while True:
            heard = await read_frame(self.reader)
            if heard.opcode == PING:
                self.writer.write(frame(heard.data, PONG))
                continue
            assert heard.opcode == TEXT, f"a frame of kind {heard.opcode}: {heard.data!r}"
            told = answer(heard.data)
            if told["type"] not in ("manifest", "progress"):
                return told

    async def check(self) -> str:
        """It lives; the tool that a plain request is answered with."""
        self.writer.write(frame(SENTINEL.data))
        told = await self.hear()
        check(SENTINEL, told)
        found: str = told["payload"]["macro_tools"][0]["macro_id"]
        return found


async def line(server: Server) -> Line:
    made = Line(*await connect_websocket(server.port))
    assert answer((await read_frame(made.reader)).data)["type"] == "manifest"
    return made


@contextlib.asynccontextmanager
async def bystander(server: Server) -> AsyncIterator[None]:
    """A client on a connection of its own, who is answered all the while."""
    one, over = await line(server), asyncio.Event()

    async def stay() -> None:
        while not over.is_set():
            await one.check()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 1.0)

    staying = asyncio.create_task(stay())
    yield
    over.set()
    await staying
    one.writer.close()


@pytest.mark.req("TRANS-04", "TRANS-05", "TRANS-33", "SEC-02")
@pytest.mark.parametrize("count", SIZES)
async def test_messages(count: int, tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        first = await line(server)
        tool = await first.check()
        first.writer.close()
        await messages(server, range(200), tool)
        before = server.figures()
        async with asyncio.timeout(PATIENCE + count / 20), bystander(server):
            await asyncio.gather(*(messages(server, range(200 + n, 200 + count, 4), tool) for n in range(4)))
        await server.at_rest(before, kilobytes=MEMORY)
        assert not server.faults()
        server.ask_to_end()
        assert server.ended() == 0
        assert not server.left()


async def messages(server: Server, seeds: range, tool: str) -> None:
    """One connection, on which every frame is answered."""
    one = await line(server)
    for first in range(0, len(seeds), BATCH):
        batch = [*(sent(seed, tool, as_text) for seed in seeds[first : first + BATCH]), SENTINEL]
        masks = Random(first)
        one.writer.write(b"".join(frame(each.data, mask=masks.randbytes(4)) for each in batch))
        check_all(batch, [await one.hear() for each in batch if not each.silent])
    await one.check()  # nothing was answered twice
    one.writer.close()


def as_text(data: bytes) -> bytes:
    """What a text frame may hold."""
    return data.decode(errors="replace").encode()


@pytest.mark.req("TRANS-04", "TRANS-05", "TRANS-06", "SEC-02")
@pytest.mark.parametrize("count", [pytest.param(1_000, id="1,000"), pytest.param(100_000, marks=pytest.mark.soak)])
async def test_frames(count: int, tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        await frames(server, range(100))
        before = server.figures()
        async with asyncio.timeout(PATIENCE + count / 10), bystander(server):
            await asyncio.gather(*(frames(server, range(100 + n, 100 + count, 8)) for n in range(8)))
        await server.at_rest(before, kilobytes=MEMORY)
        assert not server.faults()
        server.ask_to_end()
        assert server.ended() == 0


async def frames(server: Server, seeds: range) -> None:
    """One connection for each that ends one."""
    one = await line(server)
    for seed in seeds:
        made = odd(seed)
        one.writer.write(made.data)
        if made.answers is not None:
            for expected in made.answers:
                await heard(one, expected, made)
            await one.check()
            continue
        await ended(one, made)
        one = await line(server)
        if seed % 10 == 0:
            await shaken(server, seed)
    one.writer.close()


async def heard(one: Line, expected: bytes, made: Odd) -> None:
    got = await read_frame(one.reader)
    if expected is ANSWERED:
        told = answer(got.data)
        assert (got.opcode, told["id"], told["payload"]["code"]) == (TEXT, None, "malformed_message"), made
    elif expected is JOINED:
        assert (got.opcode, answer(got.data)["type"]) == (TEXT, "intent_response"), made
    else:
        assert got == Frame(PONG, expected), made


async def ended(one: Line, made: Odd) -> None:
    """The client says nothing more, and the server has to close."""
    got = []
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        if not made.codes:
            one.writer.write_eof()
        while True:
            got.append(await read_frame(one.reader))
            if got[-1].opcode == CLOSE and made.codes:
                one.writer.write(frame(got[-1].data, CLOSE))
    one.writer.close()
    assert all(each.opcode in (TEXT, CLOSE, PONG) for each in got), made
    if made.codes:
        assert [each.code for each in got if each.opcode == CLOSE] in ([code] for code in made.codes), f"{made}: {got}"


async def shaken(server: Server, seed: int) -> None:
    """A handshake with something wrong in it."""
    reader, writer = await connect(server.port)
    with contextlib.suppress(ConnectionError):
        writer.write(handshake(seed))
        writer.write_eof()
        heard = await reader.read()
        assert not heard.startswith(b"HTTP/1.1 5"), handshake(seed)
    writer.close()
