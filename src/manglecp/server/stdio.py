"""Standard streams: one message a line (TRANS-23), for whoever started this process.

The manifest is written before any input is read (TRANS-25), and input is read when the pack is loaded, so that a client
which does not wait is answered all the same. At the end of the input only what is pending is answered (TRANS-27).

Reading and writing may block, and the streams belong to others as well, who would not expect them to be changed: both
are done in threads, except for what a pipe certainly takes at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from manglecp.server.core import Core
from manglecp.server.sessions import Session
from manglecp.server.streams import Streams

__all__ = ["serve_stdio"]

_CHUNK: Final = 65_536
_CHUNKS: Final = 16
"""How many are read ahead."""
_AT_ONCE: Final = select.PIPE_BUF
"""A pipe that can be written takes so much without waiting."""
_LONGEST: Final = 4
"""Times the limit: what is longer is not kept."""


async def serve_stdio(
    core: Core, streams: Streams, *, said: bytes | None = None, stop: asyncio.Event | None = None
) -> None:
    """Until the input ends or ``stop`` is set. ``said`` is the manifest that was written already."""
    writer = ThreadPoolExecutor(1, thread_name_prefix="manglecp-stdout")
    loop = asyncio.get_running_loop()
    first = said

    async def send(data: bytes) -> None:
        nonlocal first
        known, first = first, None
        if data == known:
            return
        if len(data) < _AT_ONCE and select.select([], [streams.sink], [], 0)[1]:
            streams.write(data)
        else:
            await loop.run_in_executor(writer, streams.write, data)

    stop = stop or asyncio.Event()
    session = core.session("stdio", send=send)
    try:
        async with session:
            reading = asyncio.create_task(_read(core, session, streams.source))
            stopping = asyncio.create_task(stop.wait())
            gone = asyncio.create_task(session.gone())
            done, _ = await asyncio.wait((reading, stopping, gone), return_when=asyncio.FIRST_COMPLETED)
            for task in (stopping, gone):
                task.cancel()
            if reading in done:
                core.closed(session)  # nothing is told any more
                reading.result()
                await session.drain()
            else:
                reading.cancel()
                await core.drain()
                if not session.lost:
                    await session.drain()
    finally:
        writer.shutdown(wait=False)


async def _read(core: Core, session: Session, source: int) -> None:
    await core.serving.ready()
    most = _LONGEST * core.max_message_bytes
    with contextlib.suppress(ConnectionResetError):
        async for line in _lines(source, most):
            await session.receive(line)


async def _lines(source: int, most: int) -> AsyncIterator[bytes]:
    """Those that are not empty. What is longer than ``most`` is cut, which is long enough to be refused."""
    begun = bytearray()
    async for chunk in _chunks(source):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            line = bytes(begun) + part[: most - len(begun)]
            begun.clear()
            if line.strip(b" \t\r"):
                yield line
        begun += rest[: most - len(begun)]
    if begun.strip(b" \t\r"):
        yield bytes(begun)


async def _chunks(source: int) -> AsyncIterator[bytes]:
    """A thread reads: no other way reads pipes, terminals and files alike."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(_CHUNKS)

    def read() -> None:
        data = b"\n"
        while data:
            room.acquire()
            try:
                data = os.read(source, _CHUNK)
            except OSError:
                data = b""
            try:
                loop.call_soon_threadsafe(queue.put_nowait, data)
            except RuntimeError:  # the loop is closed, and nobody listens
                return

    threading.Thread(target=read, name="manglecp-stdin", daemon=True).start()
    while data := await queue.get():
        yield data
        room.release()
