"""HTTP under fuzz: bodies that are no messages on connections that have to live, and bytes that are no HTTP.

Whatever comes in, nothing fails, nothing is left behind, and those in between are answered as ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

import pytest

from manglecp.wire import CODES
from tests.fuzz.answers import MEMORY, SIZES, answer, check
from tests.fuzz.frames import SENTINEL, Sent, sent
from tests.fuzz.requests import raw
from tests.load.serving import PATIENCE, Server, serve
from tests.load.wires import JSON, Answer, connect, read_answer, request

pytestmark = pytest.mark.no_cover

PIPELINE: Final = 25

NO_HTTP = b"Invalid HTTP request received."
"""The answer of the parser, which knows no messages."""


@pytest.mark.req("TRANS-13", "TRANS-14", "TRANS-15", "TRANS-16", "SEC-02")
@pytest.mark.parametrize("count", SIZES)
async def test_bodies(count: int, tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        tool = await sentinel(server)
        await bodies(server, range(200), tool)  # what is made once, is made now
        before = server.figures()
        async with asyncio.timeout(PATIENCE + count / 20):
            await asyncio.gather(*(bodies(server, range(200 + n, 200 + count, 4), tool) for n in range(4)))
        assert await sentinel(server) == tool
        await server.at_rest(before, kilobytes=MEMORY)
        assert not server.faults()
        server.ask_to_end()
        assert server.ended() == 0
        assert not server.left()


async def bodies(server: Server, seeds: range, tool: str) -> None:
    """One connection, on which every body is answered, and in order. Every other connection waits for each answer."""
    reader, writer = await connect(server.port)
    pipeline = 1 if seeds.start % 2 else PIPELINE
    for first in range(0, len(seeds), pipeline):
        batch = [sent(seed, tool) for seed in seeds[first : first + pipeline]]
        if pipeline > 1 or first % PIPELINE == 0:
            batch.append(SENTINEL)
        writer.write(b"".join(request(b"POST", path(one), one.data, JSON) for one in batch))
        for one in batch:
            answered(one, await read_answer(reader))
    writer.close()


def path(one: Sent) -> bytes:
    """Mostly where it belongs."""
    return b"/invoke" if b"invoke_request" in one.data or len(one.data) % 10 == 0 else b"/evaluate"


def answered(one: Sent, got: Answer) -> None:
    assert got.headers[b"content-type"] == b"application/json"
    told = answer(got.body)
    if one.silent:  # a cancel, which nobody sends over HTTP
        assert (got.status, told["payload"]["code"]) == (400, "invalid_type")
        return
    check(one, told)
    assert (got.status == 200) == (told["type"] != "error")
    if told["type"] == "error":
        assert got.status == CODES[told["payload"]["code"]].status


async def sentinel(server: Server) -> str:
    """The tool that a plain request is answered with."""
    reader, writer = await connect(server.port)
    writer.write(request(b"POST", b"/evaluate", SENTINEL.data, JSON))
    got = await read_answer(reader)
    writer.close()
    assert got.status == 200
    [tool] = answer(got.body)["payload"]["macro_tools"]
    assert tool["name"] == "measure_text"
    found: str = tool["macro_id"]
    return found


# --- no HTTP ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("TRANS-14", "SEC-02")
@pytest.mark.parametrize("count", [pytest.param(1_000, id="1,000"), pytest.param(100_000, marks=pytest.mark.soak)])
async def test_requests(count: int, tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        await requests(server, range(100))
        before = server.figures()
        async with asyncio.timeout(PATIENCE + count / 10):
            await asyncio.gather(*(requests(server, range(100 + n, 100 + count, 8)) for n in range(8)))
        await sentinel(server)
        await server.at_rest(before, kilobytes=MEMORY)
        assert not server.faults()
        server.ask_to_end()
        assert server.ended() == 0


async def requests(server: Server, seeds: range) -> None:
    """One connection for each."""
    for seed in seeds:
        data, certain = raw(seed)
        got = await exchange(server, data, wait=certain is not None)
        assert certain is None or (got and got[0].status in certain), f"{data[:300]!r} was answered with {got}"
        for one in got:
            assert one.status != 500, f"{data[:300]!r} was answered with {one}"
            if one.status >= 400 and one.body != NO_HTTP:
                answer(one.body)
        if seed % 50 == 0:
            await sentinel(server)


async def exchange(server: Server, data: bytes, *, wait: bool) -> list[Answer]:
    """Everything that is answered. The client says that it has said everything, and then the server has to close.

    ``wait`` for the first answer before that: at the end of what a client says, its requests are cancelled.
    """
    reader, writer = await connect(server.port)
    got = []
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):  # it may not want to hear all of it, and be gone
        writer.write(data)
        if wait:
            got.append(await read_answer(reader))
        writer.write_eof()
        while True:
            got.append(await read_answer(reader))
    writer.close()
    return got
